"""Plans of networks: names, addresses, shapes with their reasons, commands without a shell; nothing is made here."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parbench.errors import UsageError
from parbench.network.admission import admitted
from parbench.network.links import PAYLOAD_SHARE, shape
from parbench.network.plan import MAX_NODES, OWN_INTERFACE, SHARED_INTERFACE, check_capacity, plan, tag_of
from parbench.network.probe_link import LEAST_EFFICIENCY, LinkReport
from parbench.network.spelling import parse_network
from parbench.probes import wire

TAG = tag_of("c0ffee12", 1234)


def planned(text, world_size=4):
    return plan(parse_network(text), world_size, TAG)


def lines(found):
    return [line for stage in found.stages for one in stage for line in (*one.lines, " ".join(one.argv))]


@pytest.mark.parametrize(
    ("text", "burst", "gso"),
    [
        ("100mbit", 70_000, 65536),  # below the packet size the processor would be the limit
        ("312mbit", 70_000, 65536),
        ("1gbit", 131_250, 65536),
        ("2gbit", 262_500, 65536),
        ("rate=312mbit alpha=4ms", 70_000, 65536),
        ("rate=312mbit alpha=1ms", 17_000, 16384),  # a burst must not refill within the start-up cost
        ("rate=1gbit alpha=1ms", 34_000, 32768),
        ("rate=1gbit alpha=2ms", 70_000, 65536),
        ("rate=100mbit alpha=1ms", 4_400, 4096),
        ("rate=100mbit burst=32000", 32_000, 16384),
        ("rate=100mbit gso=16384", 17_000, 16384),
        ("rate=312mbit alpha=1ms burst=70000", 70_000, 65536),  # who asks for it gets it
        ("rate=312mbit burst=20000 gso=8192", 20_000, 8192),
    ],
)
def test_burst_and_packet_size_follow_from_rate_and_start_up(text, burst, gso):
    up = planned(text).up
    assert (up.burst_bytes, up.gso_bytes) == (burst, gso)
    assert up.because


def test_a_start_up_cost_that_no_burst_keeps_is_refused_with_one_that_would():
    with pytest.raises(UsageError, match=r"alpha=200us cannot be kept on a link of 100mbit.*at least 704us"):
        planned("rate=100mbit alpha=200us")
    assert planned("rate=100mbit alpha=704us").up.gso_bytes == 4096


@given(rate=st.integers(10**6, 40 * 10**9), alpha_us=st.one_of(st.just(0), st.integers(100, 10**6)))
def test_no_shape_falls_into_either_trap(rate, alpha_us):
    network = parse_network(f"rate={rate / 1000:.3f}kbit" + (f" alpha={alpha_us}us" if alpha_us else ""))
    try:
        found = shape(network, float(rate))
    except UsageError:
        assert 4400 * 8 / rate > network.alpha_s / 2
        return
    assert found.burst_bytes >= found.gso_bytes
    if alpha_us:
        assert found.burst_bytes * 8 / rate <= network.alpha_s / 2


def test_a_star_gives_every_rank_a_namespace_an_address_and_two_shapers():
    found = planned("100mbit")
    assert [node.name for node in found.nodes] == [f"pb-c0ffee12-1234-n{k}" for k in range(4)]
    assert [node.address for node in found.nodes] == [f"10.77.0.{k}" for k in range(1, 5)]
    assert {node.interface for node in found.nodes} == {OWN_INTERFACE}
    shapers = [line for line in lines(found) if " tbf " in line]
    assert len(shapers) == 8
    assert all("rate 100000000bit burst 70000" in line for line in shapers)


def test_ranks_share_a_node_and_its_link():
    found = planned("100mbit ranks_per_node=3", 8)
    assert [node.ranks for node in found.nodes] == [(0, 1, 2), (3, 4, 5), (6, 7)]
    assert {node.interface for node in found.nodes} == {SHARED_INTERFACE}
    assert found.node_of(5) is found.nodes[1]


@pytest.mark.parametrize(("ranks", "racks"), [(2, [0, 1]), (4, [0, 0, 1, 1]), (5, [0, 0, 0, 1, 1])])
def test_two_racks_share_a_trunk(ranks, racks):
    found = planned("two-racks(rate=100mbit, oversubscription=4)", ranks)
    assert [node.rack for node in found.nodes] == racks
    assert found.trunk.rate_bits_per_s == racks.count(0) * 100e6 / 4
    assert sum("trunk" in line and " tbf " in line for line in lines(found)) == 2


def test_packets_fit_the_smallest_link_on_their_way():
    found = planned("up=1gbit down=312mbit alpha=1ms")
    assert (found.up.gso_bytes, found.down.gso_bytes) == (32768, 16384)
    assert "link set dev pbrank gso_max_size 16384" in lines(found)


def test_delay_and_loss_are_added_to_each_rank_s_way_out():
    found = planned("rate=100mbit delay=1.5ms loss=0.001")
    netem = [line for line in lines(found) if "netem" in line]
    assert netem == ["qdisc add dev pbrank parent 1:1 handle 2: netem delay 1500us loss 0.1% limit 10000"] * 4
    assert not [line for line in lines(planned("100mbit")) if "netem" in line]


@given(ranks=st.integers(1, 64), per_node=st.integers(1, 5), racks=st.booleans())
def test_every_rank_has_one_node_and_names_fit_the_kernel(ranks, per_node, racks):
    topology = " topology=two-racks(oversubscription=2)" if racks else ""
    found = planned(f"rate=10mbit ranks_per_node={per_node}{topology}", ranks)
    assert [rank for node in found.nodes for rank in node.ranks] == list(range(ranks))
    assert len({node.address for node in found.nodes}) == len(found.nodes)
    text = "\n".join(lines(found))
    names = re.findall(r"(?:name|dev|master) (\S+)", text)
    assert max(map(len, names)) <= 15
    for stage in found.stages:
        assert all(one.argv[0] in ("ip", "tc") for one in stage)
        assert all(part and " " not in part for one in stage for part in one.argv)


def test_the_wire_probe_knows_what_links_are_called():
    assert (wire._OWN.decode(), wire._SHARED.decode()) == (OWN_INTERFACE, SHARED_INTERFACE)


def test_too_many_nodes_are_refused():
    with pytest.raises(UsageError, match=f"at most {MAX_NODES}"):
        planned("10mbit", MAX_NODES + 1)


def test_links_that_the_processors_cannot_fill_are_refused_with_what_would_do():
    with pytest.raises(UsageError, match=r"4 links of 4gbit carry 16 Gbit/s together; 2 cores.*at most 2gbit"):
        check_capacity(parse_network("4gbit"), 4, 2)
    check_capacity(parse_network("2gbit"), 4, 2)
    check_capacity(parse_network("4gbit ranks_per_node=2"), 4, 2)


def test_nccl_does_not_use_such_links():
    with pytest.raises(UsageError, match="use --backend gloo"):
        admitted("100mbit", 2, "nccl")
    assert admitted(None, 2, "nccl") is None
    assert admitted("none", 2, "nccl") is None


@pytest.mark.parametrize(("run", "pid"), [("", 1), ("UPPER", 1), ("a b", 1), ("x" * 20, 1), ("abcd", -1)])
def test_a_tag_is_a_name_or_none(run, pid):
    with pytest.raises(ValueError, match="names no run"):
        tag_of(run, pid)


def report(efficiency, busy_cores=0.5):
    line = 100e6
    return LinkReport(
        line_bits_per_s=(line, line),
        rate_bits_per_s=(line * PAYLOAD_SHARE, line * PAYLOAD_SHARE * efficiency),
        alpha_s=(1e-5, 3e-5),
        busy_cores=busy_cores,
        processor_cores=0.1,
        cores=2,
    )


@pytest.mark.parametrize(("efficiency", "fine"), [(1.0, True), (0.881, True), (0.879, False), (0.48, False)])
def test_links_that_fall_short_are_refused(efficiency, fine):
    found = report(efficiency)
    assert math.isclose(found.efficiency, efficiency)
    assert (found.problem is None) == fine
    if not fine:
        assert str(LEAST_EFFICIENCY) in found.problem


@pytest.mark.parametrize(("busy_cores", "marked"), [(0.3, False), (1.4, False), (1.45, True)])
def test_links_that_take_the_cores_are_marked(busy_cores, marked):
    assert [one.code for one in report(1.0, busy_cores).cautions] == ["links_need_cores"] * marked
