"""What a record says of compression: how much less is sent, and on which links that pays."""

import pytest

from parbench.cases import Case, Measured
from parbench.compression_account import compression_cautions, compression_metrics
from parbench.facts import Inspected
from parbench.network.probe_link import LinkReport
from parbench.spec import RunSpec

NOTES = {"compressor": "topk", "dense_bytes": 1000.0, "encode_s": 3e-6, "decode_s": 1e-6}


def measured(*notes, sent=200.0, rate=None):
    case = Case(cell=0, repeat=0, spec=RunSpec(workload="digits", strategy="topk"), spec_id="x")
    ranks = tuple(Inspected(sent={"all_gather": sent - rank}, notes=one) for rank, one in enumerate(notes))
    links = None
    if rate is not None:
        links = LinkReport(
            line_bits_per_s=(rate,) * 2,
            rate_bits_per_s=(rate, 2 * rate),
            alpha_s=(0.0, 0.0),
            busy_cores=0.0,
            processor_cores=0.0,
            cores=2,
        )
    return Measured(case=case, inspected=ranks, links=links)


def test_what_is_saved_by_hand():
    found = compression_metrics(measured(NOTES, NOTES))
    assert found["compression_ratio"].value == 5.0
    # 800 bytes in 4 us.
    pays = found["compression_pays_below_bits_per_s"]
    assert pays.value == pytest.approx(1.6e9)
    assert (pays.quality, pays.unit) == ("estimated", "bit/s")


def test_nothing_is_said_where_nothing_is_compressed():
    assert compression_metrics(measured({"groups": 3})) == {}
    assert compression_metrics(measured()) == {}
    assert compression_cautions(measured({"groups": 3}, rate=1e6)) == []


@pytest.mark.parametrize(
    ("changes", "sent", "words"),
    [
        ({"dense_bytes": None}, 200.0, "not known"),
        ({"encode_s": None}, 200.0, "not known"),
        ({}, 1000.0, "pays on no link"),
    ],
)
def test_what_is_not_known_is_not_guessed(changes, sent, words):
    notes = {name: value for name, value in (NOTES | changes).items() if value is not None}
    pays = compression_metrics(measured(notes, sent=sent))["compression_pays_below_bits_per_s"]
    assert (pays.value, pays.quality) == (None, "unavailable")
    assert words in pays.reason


def test_a_link_on_which_compression_costs_more_is_told():
    assert compression_cautions(measured(NOTES, rate=1e9)) == []
    (caution,) = compression_cautions(measured(NOTES, rate=2e9))
    assert caution.code == "compression_costs_more"
    assert "pays below 1.6e+03 Mbit/s, and the links carry 2e+03 Mbit/s" in caution.message


def test_numbers_that_were_not_finite_are_told():
    (caution,) = compression_cautions(measured(NOTES, NOTES | {"non_finite_gradients": 3}))
    assert caution.code == "non_finite_gradients"
    assert caution.message.startswith("3 numbers of gradients of rank 1")
