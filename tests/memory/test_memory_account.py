"""What a record says of memory: the rank that needs most, parts that sum to the peak, and what contradicts it."""

import pytest

from parbench.cases import Case, Measured
from parbench.memory_account import memory_cautions, memory_metrics, memory_of
from parbench.observed import Weighed
from parbench.spec import RunSpec

MIB = 2**20


def weighed(peak, **changes):
    at_peak = {"parameters": 10, "gradients": 8, "optimizer": 20, "buffers": 1, "activations": 30, "other": 5}
    predicted = {"parameters": 10, "gradients": 10, "optimizer": 20, "buffers": 1}
    fields = {
        "at_peak": {name: size * MIB for name, size in at_peak.items()},
        "predicted": {name: size * MIB for name, size in predicted.items()},
        "source": "resident",
        "base_bytes": 200 * MIB,
    }
    return Weighed(peak_bytes=peak * MIB, **(fields | changes))


def measured(*ranks, reason=None):
    case = Case(cell=0, repeat=0, spec=RunSpec(workload="digits", strategy="ddp"), spec_id="x")
    return Measured(case=case, weighed=ranks, weigh_reason=reason)


def test_the_rank_that_needs_most_speaks_and_its_parts_sum_to_the_peak():
    use = memory_of(measured(weighed(76), weighed(80)))
    assert use.rank == 1
    assert len(use.ranks) == 2
    assert use.parts == {
        name: size * MIB
        for name, size in zip(
            ("parameters", "gradients", "optimizer", "activations", "other"), (10, 8, 20, 30, 12), strict=True
        )
    }
    assert sum(use.parts.values()) == 80 * MIB
    assert use.unexplained_bytes == 6 * MIB


def test_the_closed_form_stands_beside_it_with_the_difference():
    use = memory_of(measured(weighed(80)))
    assert (use.predicted_bytes, use.difference_bytes) == (41 * MIB, 39 * MIB)
    use = memory_of(measured(weighed(80, predicted=None)))
    assert (use.predicted_bytes, use.difference_bytes) == (None, None)


def test_metrics_say_what_was_there_before_and_that_nothing_else_was_alive():
    metrics = memory_metrics(measured(weighed(80)), [])
    peak = metrics["peak_memory_bytes"]
    assert (peak.value, peak.unit, peak.quality) == (80 * MIB, "bytes", "measured")
    assert "above the 200 MiB it had before" in peak.source
    assert "holds this variant alone" in peak.source
    parts = [metrics[f"memory_{name}_bytes"].value for name in use_parts()]
    assert sum(parts) == peak.value


def use_parts():
    return ("parameters", "gradients", "optimizer", "activations", "other")


@pytest.mark.parametrize(
    ("m", "words"),
    [
        (measured(), "ended before"),
        (measured(reason="it was left out (--no-memory)"), "--no-memory"),
        (measured(weighed(0, reason="this system does not tell")), "does not tell"),
    ],
)
def test_what_was_not_measured_has_a_reason(m, words):
    metrics = memory_metrics(m, memory_cautions(m))
    assert {one.quality for one in metrics.values()} == {"unavailable"}
    assert all(words in one.reason for one in metrics.values())


@pytest.mark.parametrize(("peak", "possible"), [(74, True), (62, True), (56, False)])
def test_storages_that_were_alive_cannot_exceed_the_peak(peak, possible):
    """74 MiB were alive at once; a tenth of the peak and 8 MiB are the grain of a process."""
    m = measured(weighed(peak))
    warnings = memory_cautions(m)
    assert [one.code for one in warnings] == ([] if possible else ["memory_does_not_add_up"])
    assert memory_metrics(m, warnings)["peak_memory_bytes"].quality == ("measured" if possible else "suspect")
