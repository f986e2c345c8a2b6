"""What every workload promises a strategy, checked on every size."""

from __future__ import annotations

import fnmatch
import math
from pathlib import Path

import pytest
import torch
from workload_cases import CPU, LARGE, META, SMALL, job, losses, workload

from parbench.api import Batch, Job
from parbench.errors import UsageError

small = pytest.mark.parametrize(("name", "size"), SMALL)
_LONG = {("gpt", "small")}  # half a minute of training
quick = pytest.mark.parametrize(
    ("name", "size"),
    [pytest.param(*one, marks=[pytest.mark.nightly] if one in _LONG else []) for one in SMALL],
)
every = pytest.mark.parametrize(("name", "size"), SMALL + LARGE)


def gradients(a_job: Job, batch: Batch) -> list[torch.Tensor]:
    a_job.model.zero_grad()
    a_job.loss(a_job.model(batch.inputs), batch).backward()
    return [p.grad.clone() for p in a_job.model.parameters() if p.grad is not None]


@pytest.mark.parametrize("name", ["digits", "images", "text", "gpt"])
def test_the_list_above_leaves_no_size_out(name: str, tmp_path: Path) -> None:
    assert set(workload(name, tmp_path).sizes) == {size for n, size in SMALL + LARGE if n == name}


@small
def test_same_seed_gives_same_weights_and_batches_in_any_order(name: str, size: str, tmp_path: Path) -> None:
    first, second, other = (job(name, size, tmp_path, seed=seed) for seed in (3, 3, 4))
    assert all(map(torch.equal, first.model.state_dict().values(), second.model.state_dict().values()))
    assert not all(map(torch.equal, first.model.state_dict().values(), other.model.state_dict().values()))
    forward = [first.batch(step) for step in range(30)]
    backward = [second.batch(step) for step in reversed(range(30))][::-1]
    for a, b in zip(forward, backward, strict=True):
        assert torch.equal(a.inputs, b.inputs)
        assert torch.equal(a.targets, b.targets)
    assert not torch.equal(first.batch(0).inputs, other.batch(0).inputs)


@every
def test_global_random_state_is_left_as_it_was(name: str, size: str, tmp_path: Path) -> None:
    a_workload = workload(name, tmp_path)
    for device in [META] if (name, size) in LARGE else [META, CPU]:
        before = torch.get_rng_state()
        a_workload.build(size, 0, device, 2).batch(1)
        assert torch.equal(torch.get_rng_state(), before)


@small
def test_weights_do_not_depend_on_the_global_random_state(name: str, size: str, tmp_path: Path) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        first = job(name, size, tmp_path)
        torch.manual_seed(2)
        second = job(name, size, tmp_path)
    assert all(map(torch.equal, first.model.state_dict().values(), second.model.state_dict().values()))


@small
def test_batches_hold_the_stated_samples_and_units_on_the_cpu(name: str, size: str, tmp_path: Path) -> None:
    a_job = job(name, size, tmp_path, batch_size=5)
    batch = a_job.batch(0)
    assert batch.samples == len(batch.targets) == 5
    assert batch.inputs.device == batch.targets.device == CPU
    assert batch.targets.dtype == torch.int64
    units = batch.samples if a_job.unit == "samples" else batch.inputs.numel()
    assert units == batch.samples * a_job.units_per_sample


@every
def test_blocks_are_disjoint_and_hold_every_trainable_parameter(name: str, size: str, tmp_path: Path) -> None:
    a_workload = workload(name, tmp_path)
    model = a_workload.build(size, 0, META, 2).model
    blocks = a_workload.build(size, 0, META, 2).blocks
    # remove_duplicate=False: a tied parameter has a name in each of its blocks
    owners = {
        full: [block for block in blocks if full.startswith(block + ".")]
        for full, _ in model.named_parameters(remove_duplicate=False)
    }
    assert all(len(found) == 1 for found in owners.values())
    assert {found[0] for found in owners.values()} == set(blocks)


@small
def test_the_model_is_the_chain_of_its_blocks(name: str, size: str, tmp_path: Path) -> None:
    a_job = job(name, size, tmp_path)
    whole = x = a_job.batch(0).inputs
    for block in a_job.blocks:
        x = a_job.model.get_submodule(block)(x)
    assert torch.equal(x, a_job.model(whole))


@every
def test_every_sharding_pattern_matches_and_cuts_evenly(name: str, size: str, tmp_path: Path) -> None:
    a_job = workload(name, tmp_path).build(size, 0, META, 2)
    parameters = dict(a_job.model.named_parameters(remove_duplicate=False))
    for pattern, cut in a_job.shardings.items():
        matches = fnmatch.filter(parameters, pattern)
        assert matches, pattern
        for full in matches:
            # Layers of positions stay whole, and parts of a vocabulary may differ by one word.
            dim = {"column": 0, "row": 1}.get(cut)
            assert dim is None or parameters[full].shape[dim] % 2 == 0
    cuts_of = {full: [p for p in a_job.shardings if fnmatch.fnmatch(full, p)] for full in parameters}
    assert all(len(found) <= 1 for found in cuts_of.values())


@small
def test_an_empty_share_gives_loss_zero_and_gradients_zero(name: str, size: str, tmp_path: Path) -> None:
    a_job = job(name, size, tmp_path)
    empty = a_job.batch(0).cut(0, 0)
    loss = a_job.loss(a_job.model(empty.inputs), empty)
    assert loss.shape == ()
    assert loss.item() == 0
    found = gradients(a_job, empty)
    assert len(found) == len(list(a_job.model.parameters()))
    assert all(not grad.any() for grad in found)


@small
@pytest.mark.parametrize("samples", [0, 3])
def test_bf16_autocast_gives_finite_gradients(name: str, size: str, samples: int, tmp_path: Path) -> None:
    a_job = job(name, size, tmp_path)
    part = a_job.batch(0).cut(0, samples)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outputs = a_job.model(part.inputs)
    a_job.loss(outputs.float(), part).backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in a_job.model.parameters())


@small
def test_a_batch_has_the_summed_gradients_of_its_uneven_shares(name: str, size: str, tmp_path: Path) -> None:
    a_job = job(name, size, tmp_path)
    batch = a_job.batch(0)
    whole = gradients(a_job, batch)
    parts = [gradients(a_job, batch.share(rank, 4)) for rank in range(4)]
    assert {batch.share(rank, 4).samples for rank in range(4)} == {1, 2}
    for total, *shares in zip(whole, *parts, strict=True):
        torch.testing.assert_close(sum(shares), total, rtol=1e-4, atol=1e-5)


@small
def test_loss_is_the_sum_over_samples(name: str, size: str, tmp_path: Path) -> None:
    a_job = job(name, size, tmp_path)
    batch = a_job.batch(0)
    outputs = a_job.model(batch.inputs)
    log_probabilities = outputs.log_softmax(-1).gather(-1, batch.targets.unsqueeze(-1)).squeeze(-1)
    expected = -sum(one.mean().item() for one in log_probabilities)
    assert a_job.loss(outputs, batch).item() == pytest.approx(expected, rel=1e-5)


@small
def test_an_untrained_model_guesses(name: str, size: str, tmp_path: Path) -> None:
    a_job = job(name, size, tmp_path)
    choices = a_job.model(a_job.batch(0).inputs).shape[-1]
    assert losses(a_job, 1)[0] == pytest.approx(math.log(choices), abs=0.1)


@quick
def test_the_loss_falls(name: str, size: str, tmp_path: Path) -> None:
    seen = losses(job(name, size, tmp_path), 25, fixed_batch=True)
    assert seen[-1] < 0.9 * seen[0]


@small
def test_held_out_loss_is_measured_in_eval_mode_and_leaves_every_mode_as_it_was(
    name: str, size: str, tmp_path: Path
) -> None:
    a_job = job(name, size, tmp_path)
    if a_job.held_out is None:
        assert a_job.held_out_reason
        return
    modes_seen = []
    a_job.model.register_forward_hook(lambda module, *_: modes_seen.append((module.training, torch.is_grad_enabled())))
    part = a_job.model.get_submodule(a_job.blocks[0])
    part.eval()
    result = a_job.held_out(a_job.model)
    assert set(modes_seen) == {(False, False)}
    assert a_job.model.training
    assert not part.training
    choices = a_job.model(a_job.batch(0).inputs).shape[-1]
    assert result["loss"] == pytest.approx(math.log(choices), abs=0.15)
    assert 0 <= result["accuracy"] <= 1


@pytest.mark.parametrize("name", ["digits", "images", "text", "gpt"])
def test_an_unknown_size_is_refused_with_the_near_one(name: str, tmp_path: Path) -> None:
    a_workload = workload(name, tmp_path)
    with pytest.raises(UsageError, match="did you mean 'smoke'"):
        a_workload.build("smokey", 0, CPU, 2)
    with pytest.raises(UsageError, match="did you mean 'smoke'"):
        a_workload.default_batch_size("smokey")


@small
def test_the_default_batch_fits(name: str, size: str, tmp_path: Path) -> None:
    a_workload = workload(name, tmp_path)
    batch_size = a_workload.default_batch_size(size)
    assert a_workload.build(size, 0, META, batch_size).batch(0).samples == batch_size


@pytest.mark.parametrize("name", ["digits", "images", "text", "gpt"])
def test_a_batch_without_samples_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"global batch size 0"):
        workload(name, tmp_path).build("smoke", 0, META, 0)
