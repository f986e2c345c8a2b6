"""Recurrent workloads: cells by hand, states carried from chunk to chunk, rare events, and what is learned."""

import math

import pytest
import torch
from workload_cases import CPU, losses

from parbench.errors import UsageError
from parbench.registry import Registry
from parbench.workloads._carried import Carried
from parbench.workloads._recurrent import Recurrent
from parbench.workloads.disruption import roc_auc, shots


def built(text, size="smoke", batch=6, seed=0):
    return Registry().resolve("workload", text).build(size, seed, CPU, batch)


def drawn(cell="lstm", inputs=3, hidden=4):
    layer = Recurrent(inputs, hidden, cell)
    for k, p in enumerate(layer.parameters()):
        torch.nn.init.normal_(p, generator=torch.Generator().manual_seed(k))
    return layer


def x(samples=5, positions=6, seed=9):
    return torch.randn(samples, positions, 3, generator=torch.Generator().manual_seed(seed))


def test_a_layer_cell_by_cell_is_the_fused_one():
    fused, cells = drawn("lstm"), drawn("lstmcell")
    torch.testing.assert_close(fused(x()), cells(x()))


@pytest.mark.parametrize("cell", ["lstm", "gru", "lstmcell"])
def test_a_sequence_in_chunks_is_the_whole_sequence(cell):
    layer = drawn(cell)
    carried = Carried(layer, streams=5)
    whole = layer(x())
    for chunk in range(3):
        place = torch.tensor([[b, chunk] for b in range(5)], dtype=torch.float32)
        part, _ = carried((x()[:, 2 * chunk : 2 * chunk + 2], place))
        torch.testing.assert_close(part, whole[:, 2 * chunk : 2 * chunk + 2])


def test_a_new_sequence_begins_with_zero_and_micro_batches_find_their_own_state():
    layer, streams = drawn(), torch.arange(5.0)
    carried = Carried(layer, streams=5)
    place = lambda chunk: torch.stack([streams, torch.full((5,), float(chunk))], dim=1)  # noqa: E731
    for chunk in range(2):
        for rows in (slice(3, 5), slice(0, 3)):  # in another order than the batch's
            carried((x(seed=chunk)[rows], place(chunk)[rows]))
    again, _ = carried((x(seed=2), place(0)))
    torch.testing.assert_close(again, layer(x(seed=2)))


def test_a_chunk_computed_again_gives_the_same():
    """Recomputation in backward runs a block's forward a second time."""
    carried, streams = Carried(drawn(), streams=5), torch.arange(5.0)
    for chunk in range(3):
        placed = (x(seed=chunk), torch.stack([streams, torch.full((5,), float(chunk))], dim=1))
        assert torch.equal(carried(placed)[0], carried(placed)[0])


def test_no_gradient_passes_from_chunk_to_chunk():
    carried, streams = Carried(drawn(), streams=5), torch.arange(5.0)
    first = x().requires_grad_()
    carried((first, torch.stack([streams, torch.zeros(5)], dim=1)))
    second, _ = carried((x(), torch.stack([streams, torch.ones(5)], dim=1)))
    second.sum().backward()
    assert first.grad is None


def test_a_disruption_job_carries_states_unless_told_not_to():
    stateful, stateless = built("disruption"), built("disruption(stateful=False)")
    chunk = lambda job, step: job.batch(step).inputs[0, 0, -1].item()  # noqa: E731
    assert [chunk(stateful, step) for step in range(4)] == [0, 1, 0, 1]
    assert [chunk(stateless, step) for step in range(4)] == [0] * 4
    with torch.no_grad():
        first = [job.model(job.batch(0).inputs) for job in (stateful, stateless)]
        second = [job.model(job.batch(1).inputs) for job in (stateful, stateless)]
    assert torch.equal(*first)
    assert not torch.allclose(*second)


def test_streams_are_as_many_as_a_half_precise_number_can_count():
    with pytest.raises(UsageError, match="1 to 256"):
        built("disruption", batch=257)


def test_a_quarter_of_the_shots_end_early_and_only_their_end_is_warned_of():
    series, soon = shots(2000, 64, 8, torch.Generator().manual_seed(1))
    assert series.shape == (2000, 64, 14)
    disrupts = soon.any(1)
    assert float(disrupts.float().mean()) == pytest.approx(0.25, abs=4 * math.sqrt(0.25 * 0.75 / 2000))
    assert soon[disrupts].sum(1).unique().tolist() == [8]
    assert (soon[disrupts][:, -8:] == 1).all()
    # Channels without a precursor look alike in both.
    assert series[disrupts][..., 5].std().item() == pytest.approx(series[~disrupts][..., 5].std().item(), rel=0.05)
    assert series[disrupts][:, -4:, 0].std() > 1.5 * series[~disrupts][:, -4:, 0].std()


def test_area_under_the_curve_by_hand():
    """Three of four pairs are in order; a tie counts half."""
    truth = torch.tensor([True, True, False, False])
    assert roc_auc(torch.tensor([0.9, 0.4, 0.6, 0.1]), truth) == 0.75
    assert roc_auc(torch.tensor([0.9, 0.6, 0.6, 0.1]), truth) == 0.875
    assert math.isnan(roc_auc(torch.rand(4), torch.ones(4, dtype=torch.bool)))


def test_rare_events_are_learned():
    job = built("disruption", batch=32)
    before = job.held_out(job.model)["roc_auc"]
    losses(job, 200)
    after = job.held_out(job.model)["roc_auc"]
    assert 0.2 < before < 0.8
    assert after > 0.9


@pytest.mark.parametrize("cell", ["lstm", "gru", "lstmcell"])
def test_digits_are_learned_row_by_row(cell):
    job = built(f"digit-rows(cell={cell})", batch=64)
    losses(job, 110)  # five epochs
    assert job.held_out(job.model)["accuracy"] > 0.75


def test_an_unknown_cell_is_refused():
    with pytest.raises(UsageError, match="cell must be one of lstm, gru, lstmcell"):
        built("lstm(cell=elman)")
