"""Links that exist: what they carry, what ranks see of them, how fast they stand; skipped where they cannot be."""

import os
import statistics
import subprocess
import time

import pytest

from parbench import RunSpec, Session
from parbench.errors import MissingError, UsageError
from parbench.network import keeper
from parbench.network.build import Links
from parbench.network.keeper import refusal
from parbench.network.probe_link import probe_links, require
from parbench.network.spelling import parse_network

WHY_NOT = refusal()
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.usefixtures("no_orphans"),
    pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT)),
]


def made(text, ranks):
    return Links.make(parse_network(text), ranks)


def of_host():
    """Return what anybody sees of this machine's network: interfaces, names of namespaces, mounts."""
    links = subprocess.run(("ip", "-br", "link"), capture_output=True, text=True, check=True).stdout
    names = subprocess.run(("ip", "netns", "list"), capture_output=True, text=True, check=True).stdout
    mounts = subprocess.run(("cat", "/proc/self/mountinfo"), capture_output=True, text=True, check=True).stdout
    return links, names, len(mounts.splitlines())


def test_the_probe_measures_two_links_of_100_mbit():
    before = of_host()
    with made("100mbit", 2) as links:
        assert of_host() == before  # nothing of it is to be seen from outside
        found = probe_links(links)
    assert len(found.rate_bits_per_s) == 2
    assert all(0.5 * 95.6e6 < rate < 1.05 * 95.6e6 for rate in found.rate_bits_per_s)
    assert all(0 < alpha < 0.05 for alpha in found.alpha_s)
    assert 0 <= found.processor_cores <= found.cores
    require(found)


@pytest.mark.quiet
@pytest.mark.nightly
@pytest.mark.parametrize("text", ["100mbit", "312mbit", "1gbit", "rate=312mbit alpha=1ms"])
def test_four_links_reach_nine_tenths_of_what_they_are_to_carry(text):
    with made(text, 4) as links:
        # Others may use this machine too: what the links can do shows when they do not.
        found = max((probe_links(links, seconds=1.5) for _ in range(3)), key=lambda one: one.efficiency)
    print(f"\n{text}: {found.efficiency:.3f}, {found.processor_cores:.2f} cores, {found.busy_cores:.2f} busy")
    assert found.efficiency >= 0.90


@pytest.mark.quiet
@pytest.mark.nightly
def test_eight_links_of_100_mbit_take_under_half_a_core():
    with made("100mbit", 8) as links:
        found = probe_links(links, seconds=1.5)
    print(f"\n8 x 100mbit: {found.efficiency:.3f}, {found.processor_cores:.2f} cores, {found.busy_cores:.2f} busy")
    assert found.processor_cores < 0.5


@pytest.mark.quiet
@pytest.mark.nightly
@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("up=40mbit down=200mbit", [40e6] * 4),
        ("up=200mbit down=40mbit", [40e6] * 4),
        ("two-racks(rate=200mbit, oversubscription=4)", [200e6, 100e6, 200e6, 100e6]),
    ],
)
def test_each_way_is_as_fast_as_its_slowest_link(text, line):
    with made(text, 4) as links:
        found = probe_links(links, seconds=1.5)
    assert list(found.line_bits_per_s) == line
    assert found.efficiency >= 0.88


def test_one_node_has_no_link_to_measure():
    with made("100mbit ranks_per_node=2", 2) as links:
        assert probe_links(links) is None
        assert [seat.address for seat in links.seats] == ["10.77.0.1"] * 2


def test_without_root_a_user_namespace_does(monkeypatch):
    monkeypatch.setattr(keeper, "_ways", lambda: ("user",))
    if (why := refusal()) is not None:
        pytest.skip(why)
    with made("100mbit", 2) as links:
        assert links.seats[0].user_namespace
        assert probe_links(links, seconds=0.2, attempts=1) is not None
    with Session(2, network="100mbit") as session:
        session.add(digits()).round(2)


def test_a_kernel_without_shapers_is_named(monkeypatch, tmp_path):
    fake = tmp_path / "tc"
    fake.write_text('#!/bin/sh\necho "Error: Specified qdisc kind is unknown." >&2\nexit 2\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(MissingError, match=r"qdisc kind is unknown.*sch_tbf"):
        made("100mbit", 2)


def test_delay_is_there_or_the_kernel_is_said_to_lack_it():
    try:
        with made("rate=100mbit delay=5ms", 2) as links:
            found = probe_links(links, seconds=0.3, attempts=1)
    except MissingError as error:
        assert "sch_netem" in str(error)
        return
    assert min(found.alpha_s) >= 5e-3


def digits(**changes):
    return RunSpec(**{"workload": "digits", "strategy": "ddp"} | changes)


def test_ddp_sends_over_its_link_what_its_closed_form_says():
    with Session(2, network="100mbit") as session:
        assert session.chosen["network"].value == "100mbit"
        assert session.chosen["network_up"].because
        variant = session.add(digits(probes=("wire",), network="100mbit"))
        variant.round(2)
        rounds = [variant.round(5) for _ in range(3)]
        (expected,) = {sum(one.wire.values()) for one in variant.inspect()}
    for ranks in zip(*(r.ranks for r in rounds), strict=True):
        for name in ("wire_bytes_per_step", "wire_bytes_received_per_step"):
            # The first step of a round also counts the barrier before it.
            values = [v for done in ranks for s in done.series if s.name == name for v in s.values[1:]]
            assert abs(statistics.mean(values) / expected - 1) < 0.03


def test_outside_a_namespace_the_wire_is_not_counted_and_says_why():
    with Session(2) as session:
        done = session.add(digits(size="smoke", probes=("wire",))).round(2)
    for series in done.ranks[0].series:
        assert not series.values
        assert "do not tell them apart" in series.reason


def test_ranks_of_one_node_share_its_counters():
    with Session(2, network="100mbit ranks_per_node=2") as session:
        done = session.add(digits(size="smoke", probes=("wire",))).round(2)
    assert "several ranks share" in done.ranks[0].series[0].reason


def test_a_session_measures_over_its_own_network_only():
    with (
        Session(2, network="rate=100mbit") as session,
        pytest.raises(UsageError, match="wants network 1gbit, this session has 100mbit"),
    ):
        session.add(digits(network="1gbit"))


def test_strategies_that_talk_through_the_store_work_behind_shaped_links():
    """A rank reaches the store through the socket it opened before it went behind its link, and no other way."""
    with Session(2, network="rate=100mbit", timeout_s=20) as session:
        for strategy in ("horovod_like", "replicated(fusion=mgwfbp)", "replicated(collective=ring_socket)"):
            variant = session.add(digits(strategy=strategy, network="rate=100mbit"))
            assert variant.parity(2).passed, strategy
            variant.close()
        with pytest.raises(UsageError, match="starts itself"):
            Session(2, network="rate=100mbit", ranks=session.ranks)


def test_the_socket_ring_of_a_strategy_has_the_start_up_cost_that_was_asked_for():
    """One bucket of 0.1 MB takes 4 ms at 200 Mbit/s; 40 ms more in every step can be nothing else."""
    steps_s = []
    for network in ("rate=200mbit", "rate=200mbit alpha=40ms"):
        with Session(2, network=network, timeout_s=20) as session:
            variant = session.add(digits(strategy="replicated(collective=ring_socket, fusion=merged)", network=network))
            variant.round(2)
            steps_s.append(variant.round(6).wall_s / 6)
    assert 0.035 < steps_s[1] - steps_s[0] < 0.060, steps_s


def test_networks_are_an_axis_and_each_has_a_launch_of_its_own(parbench, tmp_path):
    suite = tmp_path / "suite.toml"
    suite.write_text(
        '[workload]\nname = "digits"\nsize = "smoke"\n[matrix]\nnetwork = ["none", "100mbit", "rate=200mbit"]\n'
        'strategy = ["ddp"]\n[run]\nsteps = 2\nwarmup = 1\nparity_steps = 0\nprobes = ["wire"]\n'
    )
    done = parbench(suite, "--json")
    assert done.code == 0, done.err
    runs = {run["spec"].get("network"): run for run in done.document["runs"]}
    assert set(runs) == {None, "100mbit", "200mbit"}
    assert all(run["launch"]["interleaved_with"] == [] for run in runs.values() if "launch" in run)
    for network in ("100mbit", "200mbit"):
        wire = runs[network]["metrics"]["wire_bytes_per_step"]
        assert (wire["quality"], wire["reason"]) == ("measured", None)
    assert runs[None]["metrics"]["wire_bytes_per_step"]["quality"] == "estimated"


def test_a_record_holds_what_was_asked_chosen_and_measured(parbench):
    options = ("--size", "smoke", "-s", "ddp", "--steps", 2, "--warmup", 1, "--parity-steps", 0, "--json")
    done = parbench("digits", *options, "--network", "rate=312mbit alpha=1ms")
    assert done.code == 0, done.err
    (record,) = done.records.values()
    assert record["spec"]["network"] == "rate=312mbit alpha=1ms"
    assert record["chosen"]["network_up"]["value"] == "tbf rate=312mbit burst=17000 gso=16384"
    assert "half of alpha" in record["chosen"]["network_up"]["because"]
    assert record["chosen"]["network_alpha"]["value"] == "1ms in parbench's own transport"
    assert "alpha_not_injected" in {one["code"] for one in record["warnings"]}
    assert record["launch"]["network_line_bits_per_s"] == 312e6
    assert 0.88 <= record["launch"]["network_efficiency"] < 1.1
    assert record["launch"]["network_alpha_s"] > 0


@pytest.mark.quiet
@pytest.mark.nightly
def test_how_long_a_further_case_of_four_ranks_takes():
    with Session(4):
        pass  # the forkserver has torch loaded from here on
    taken = []
    for _ in range(10):
        started_s = time.perf_counter()
        with Session(4, network="1gbit") as session:
            taken.append((time.perf_counter() - started_s, session.ranks.ready_s))
    print(f"\n4 ranks in namespaces, load {os.getloadavg()[0]:.1f}; seconds with links made, and of ranks alone:")
    print("\n".join(f"{whole:.3f} {ranks:.3f}" for whole, ranks in taken))
