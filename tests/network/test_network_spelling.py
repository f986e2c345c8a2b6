"""Networks as users write them: what each text means, which are refused and how, and that texts are stable."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parbench.errors import UsageError
from parbench.network.presets import PRESETS
from parbench.network.quantities import rate_of, rate_text, time_of, time_text
from parbench.network.spelling import Network, parse_network
from parbench.spec import RunSpec, canonical


@pytest.mark.parametrize(
    ("text", "up", "down", "alpha_s", "canonical"),
    [
        ("100mbit", 100e6, 100e6, 0, "100mbit"),
        ("  1GBIT ", 1e9, 1e9, 0, "1gbit"),
        ("rate=100mbit", 100e6, 100e6, 0, "100mbit"),
        ("1500mbit", 1.5e9, 1.5e9, 0, "1.5gbit"),
        ("rate=312mbit alpha=1ms", 312e6, 312e6, 1e-3, "rate=312mbit alpha=1ms"),
        ("312mbit alpha=1000us", 312e6, 312e6, 1e-3, "rate=312mbit alpha=1ms"),
        ("star(rate=1gbit, alpha=0.5ms)", 1e9, 1e9, 5e-4, "rate=1gbit alpha=500us"),
        ("up=10mbit down=1gbit", 10e6, 1e9, 0, "up=10mbit down=1gbit"),
        ("rate=1gbit up=10mbit", 10e6, 1e9, 0, "up=10mbit down=1gbit"),
        ("10gbe", 312.5e6, 312.5e6, 0, "10gbe(scale=32)"),
        ("10GbE scale=10 alpha=2ms", 1e9, 1e9, 2e-3, "10gbe(scale=10, alpha=2ms)"),
        ("hdr(scale=200)", 1e9, 1e9, 0, "hdr(scale=200)"),
        (
            "two-racks(oversubscription=4) rate=1gbit ranks_per_node=2",
            1e9,
            1e9,
            0,
            "rate=1gbit ranks_per_node=2 topology=two-racks(oversubscription=4)",
        ),
    ],
)
def test_a_network_means_rates_and_start_up_and_has_one_text(text, up, down, alpha_s, canonical):
    found = parse_network(text)
    assert (found.up_bits_per_s, found.down_bits_per_s, found.alpha_s) == (up, down, alpha_s)
    assert found.text == canonical
    assert parse_network(found.text) == found


def test_none_is_no_network():
    assert parse_network("none") is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no network can be read from ''"),
        ("100", "write 100mbit"),
        ("100m", "rate must be a rate with its unit"),
        ("0mbit", "from 1mbit to 40gbit, given 0 Gbit/s"),
        ("0.5mbit", "from 1mbit to 40gbit"),
        ("100gbit", "from 1mbit to 40gbit, given 100 Gbit/s"),
        ("-5mbit", "no network named '-5mbit'"),
        ("10gb", "rate must be a rate with its unit"),
        ("rate=1e400mbit", "rate must be a rate with its unit"),
        ("infmbit", "no network named 'infmbit'"),
        ("gigabit", "no network named 'gigabit'"),
        ("10gbee", "rate must be a rate with its unit"),
        ("star", "the network has no rate"),
        ("two-racks(oversubscription=4)", "the network has no rate"),
        ("up=1gbit", "the network has no rate"),
        ("rate=1gbit up=1gbit down=1gbit", "one too many"),
        ("rate=1gbit rate=2gbit", "given twice"),
        ("1gbit rate=2gbit", "gives rate twice"),
        ("rate=1gbit speed=3", "no setting of a network named 'speed'"),
        ("1gbit(2)", "values without a name"),
        ("rate=1gbit alpha=1", "alpha must be a time with its unit"),
        ("rate=1gbit alpha=1us", "alpha must be from 100us to 10s"),
        ("rate=1gbit alpha=20s", "alpha must be from 100us to 10s"),
        ("rate=1gbit delay=2s", "delay must be from 1us to 1s"),
        ("rate=1gbit loss=0.6", "loss must be a number from 0 to 0.5"),
        ("rate=1gbit loss=1mbit", "loss must be a number from 0 to 0.5"),
        ("rate=1gbit burst=0", "burst must be a whole number"),
        ("rate=1gbit gso=1e9", "gso must be a whole number"),
        ("rate=312mbit burst=39000 gso=65536", "the kernel would cut every packet up"),
        ("rate=1gbit ranks_per_node=0", "ranks_per_node must be a whole number"),
        ("rate=1gbit ranks_per_node=True", "ranks_per_node must be a whole number"),
        ("rate=1gbit oversubscription=4", "add topology=two-racks"),
        ("two-racks(rate=1gbit, oversubscription=0.5)", "oversubscription must be a number from 1"),
        ("two-racks(rate=1gbit, oversubscription=inf)", "oversubscription must be a number from 1"),
        ("rate=1gbit topology=ring", "no topology named 'ring'"),
        ("rate=1gbit scale=2", "scale belongs to a link known by name"),
        ("10gbe rate=1gbit", "10gbe has its own rate"),
        ("10gbe(scale=0)", "scale must be a number from 1"),
        ("10gbe(scale=1000000)", "change scale"),
    ],
)
def test_nonsense_is_refused_with_what_is_allowed(text, said):
    with pytest.raises(UsageError) as refused:
        parse_network(text)
    assert said in str(refused.value)


@given(st.text(max_size=60))
def test_any_text_is_a_network_or_refused(text):
    try:
        found = parse_network(text)
    except UsageError:
        return
    assert found is None or parse_network(found.text) == found


RATES = st.integers(10**6, 40 * 10**9).map(float)
WORDS = st.sampled_from(["1gbit", "10gbe", "rate=", "alpha=", "=", " ", "(", ")", ",", "star", "two-racks", "1ms", "4"])


@given(st.lists(WORDS, max_size=12).map("".join))
def test_words_of_networks_in_any_order_are_a_network_or_refused(text):
    test_any_text_is_a_network_or_refused.hypothesis.inner_test(text)


@given(
    up=RATES,
    down=RATES,
    alpha_ns=st.one_of(st.just(0), st.integers(10**5, 10**10)),
    delay_us=st.integers(0, 10**6),
    loss=st.floats(0, 0.5),
    burst=st.one_of(st.none(), st.integers(65536, 1 << 26)),
    gso=st.one_of(st.none(), st.integers(2048, 65536)),
    per_node=st.integers(1, 1024),
    over=st.one_of(st.none(), st.floats(1, 1000)),
)
def test_every_network_survives_its_text(up, down, alpha_ns, delay_us, loss, burst, gso, per_node, over):
    network = Network(
        up_bits_per_s=up,
        down_bits_per_s=down,
        alpha_s=round(alpha_ns / 1e9, 9),
        delay_s=round(delay_us / 1e6, 9),
        loss=float(f"{loss:.12g}"),
        burst_bytes=burst,
        gso_bytes=gso,
        ranks_per_node=per_node,
        topology="star" if over is None else "two-racks",
        oversubscription=1.0 if over is None else float(f"{over:.12g}"),
    )
    assert parse_network(network.text) == network


@given(RATES)
def test_a_rate_survives_its_text(rate):
    assert rate_of(rate_text(rate), "rate") == rate or math.isclose(rate_of(rate_text(rate), "rate"), rate, abs_tol=0.5)


@given(st.integers(10**3, 10**11))
def test_a_time_survives_its_text(nanoseconds):
    assert math.isclose(time_of(time_text(nanoseconds / 1e9), "time"), nanoseconds / 1e9, rel_tol=1e-9)


def test_every_preset_is_a_link_this_tool_can_shape():
    for name, one in PRESETS.items():
        found = parse_network(name)
        assert found.preset == name
        assert found.up_bits_per_s == one.rate_bits_per_s / one.scale


def test_specs_without_a_network_keep_their_identity():
    plain = RunSpec(workload="digits", strategy="ddp")
    assert b"network" not in canonical(plain)
    assert b"network" in canonical(RunSpec(workload="digits", strategy="ddp", network="1gbit"))
