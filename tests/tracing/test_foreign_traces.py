"""Traces of torch.profiler that parbench did not write: plain jobs of two ranks over gloo."""

from collections import Counter

import pytest

from parbench.tracing import breakdown, chrome, clocks, overlap
from parbench.tracing.chromefile import load

# Layers of 64 x 512 and 512 x 520 with biases.
FIRST, LAST = 64 * 512 + 512, 512 * 520 + 520
STEPS, RANKS = 3, 2


def read(folder):
    return [chrome.read(folder / f"rank{rank}.json.gz") for rank in range(RANKS)]


def sizes(trace, op):
    return Counter(one.logical_bytes for one in trace.collectives if one.op == op)


def test_two_buckets_of_ddp_in_three_steps_are_six_all_reduces_on_each_rank(foreign):
    for trace in read(foreign / "ddp"):
        assert Counter(one.op for one in trace.collectives) == {"all_reduce": 2 * STEPS}
        assert [one.step for one in trace.collectives] == [0, 0, 1, 1, 2, 2]
        assert len([span for span in trace.spans if span.kind == "step"]) == STEPS
        events = [span for span in trace.spans if span.name == "gloo:all_reduce"]
        assert len(events) == trace.candidates == trace.recognised == 2 * STEPS
        # 2 (n-1)/n of 4 bytes a parameter: a bucket's own size at two ranks.
        assert sizes(trace, "all_reduce") == {4 * LAST: STEPS, 4 * FIRST: STEPS}
        assert {(one.members, one.axis, one.dtype) for one in trace.collectives} == {((0, 1), "world", "float32")}


def test_reduce_scatter_of_fsdp_is_named_as_what_it_is_though_gloo_shows_an_all_reduce(foreign):
    for trace in read(foreign / "fsdp"):
        # Both layers are gathered forward and backward; what is gathered or scattered is (n-1)/n of the whole.
        assert sizes(trace, "all_gather") == {2 * LAST: 2 * STEPS, 2 * FIRST: 2 * STEPS}
        assert sizes(trace, "reduce_scatter") == {2 * LAST: STEPS, 2 * FIRST: STEPS}
        shown = {one.shown_as for one in trace.collectives if one.op == "reduce_scatter"}
        assert shown == {"gloo:all_reduce"}
        assert trace.recognised == trace.candidates == len(trace.collectives) == 6 * STEPS


def test_a_row_parallel_layer_adds_its_outputs_once_a_step(foreign):
    for trace in read(foreign / "tensor"):
        assert sizes(trace, "all_reduce") == {4 * 32 * 520: STEPS}  # the functional call and torch's own inside: one


def test_messages_of_a_pipeline_know_their_other_end(foreign):
    zero, one = read(foreign / "pipeline")
    hidden = 4 * 16 * 512
    # Two micro-batches a step: activations forward, gradients back.
    assert Counter((c.op, c.peer, c.logical_bytes) for c in zero.collectives) == {
        ("send", 1, hidden): 2 * STEPS,
        ("recv", 1, 0): 2 * STEPS,
    }
    assert Counter((c.op, c.peer) for c in one.collectives) == {("send", 0): 2 * STEPS, ("recv", 0): 2 * STEPS}


@pytest.mark.parametrize("kind", ["ddp", "fsdp", "tensor", "pipeline"])
def test_parts_sum_to_the_profiled_step_and_clocks_agree(foreign, kind):
    found = clocks.aligned(read(foreign / kind))
    assert found.how == "all ranks share one clock"  # torch says which host it was
    assert found.uncertainty_ns < 10**6
    for trace in found.traces:
        parts = breakdown.of(trace, found.traces)
        assert sum(parts.parts.values()) == pytest.approx(parts.step_s, rel=1e-6)
        events = load(foreign / kind / f"rank{trace.rank}.json.gz").events
        marked = [event.dur for event in events if event.name.startswith("ProfilerStep#")]
        assert parts.step_s == pytest.approx(sum(marked) / STEPS / 1e6, rel=1e-6)
        assert {"forward", "backward", "optimizer"} <= {name for name, seconds in parts.parts.items() if seconds > 0}
        assert 0 <= overlap.fraction(trace, found.traces) <= 1
