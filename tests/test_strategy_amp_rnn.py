"""amp_rnn: the paper's learning rate, loss scales, steps skipped on all ranks, clipping, and half the bytes."""

import functools

import pytest
import torch

from parbench import Session, UsageError
from parbench.conformance.jobs import one_thread
from parbench.registry import Registry
from parbench.spec import RunSpec
from parbench_strategies.precision._rate import grown, growth
from parbench_strategies.precision._scale import Scale

# Sample 5 of 6, which is rank 1's, overflows in step 3: its gradient is finite, and the square of that is not.
OVERFLOWING = '''"""overflowing: a linear model whose gradient overflows in step 3, on the rank of sample 5 alone."""

import torch
from torch import nn

from parbench.api import Batch, Job, Workload


class Overflowing(Workload):
    """One batch in ten has a sample that is far too large."""

    unit = "samples"
    sizes = {"smoke": {}}
    source = "made from the seed"

    def default_batch_size(self, size):
        return 6

    def build(self, size, seed, device, global_batch_size):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1)).to(device)

        def batch(step):
            inputs = torch.ones(6, 4)
            if step == 3:
                inputs[5] = 1e30
            return Batch(inputs=inputs, targets=torch.zeros(6))

        return Job(
            model=model,
            loss=lambda outputs, share: outputs.sum() * 1e-2,
            optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
            batch=batch,
            unit="samples",
            units_per_sample=1,
            blocks=("0", "1"),
        )
'''


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    plugin = tmp_path_factory.mktemp("plugins") / "overflowing.py"
    plugin.write_text(OVERFLOWING)
    with Session(world_size=2, plugins=[plugin]) as ranks:
        yield ranks


def added(session, strategy, workload="digit-rows", **changes):
    spec = {"size": "smoke", "world_size": 2, "device": "cpu", "global_batch_size": 32} | changes
    return session.add(RunSpec(workload=workload, strategy=strategy, **spec), refuse=False)


# ---- the learning rate


@pytest.mark.parametrize(("replicas", "times"), [(1, 0.990), (100, 50.0), (400, 80.0)])
def test_the_papers_learning_rates(replicas, times):
    assert growth(replicas) == pytest.approx(times, abs=1e-3)
    assert grown(1e-4, replicas) == pytest.approx(1e-4 * times, rel=1e-3)


def test_the_learning_rate_is_capped_as_in_the_papers_code():
    assert grown(0.5, 1) == pytest.approx(0.1 / 1.01)  # the base rate
    assert grown(0.01, 400) == 0.1  # the rate itself: 0.8 before


# ---- the scale


def test_a_dynamic_scale_halves_on_overflow_and_doubles_after_two_thousand_clean_steps():
    scale = Scale(64.0, dynamic=True)
    scale.update(True)
    assert scale.value == 32
    for _ in range(1999):
        scale.update(False)
    assert scale.value == 32
    scale.update(False)
    assert scale.value == 64
    assert scale.events == [(1, 32.0), (2001, 64.0)]
    assert scale.overflows == 1


def test_a_static_scale_stays_and_never_leaves_its_bounds():
    fixed, falling = Scale(1024.0, dynamic=False), Scale(4.0, dynamic=True)
    for _ in range(40):
        fixed.update(True)
        falling.update(True)
    assert fixed.value == 1024
    assert falling.value == 2.0**-14


@pytest.mark.parametrize("inner", ["fp16", "ddp", "fsdp", "central", "zero1"])
def test_an_overflow_on_one_rank_skips_the_step_on_all(session, inner):
    variant = added(session, f"amp_rnn({inner}, scale=dynamic)", "overflowing", global_batch_size=6)
    plain = added(session, f"amp_rnn({inner}, scale=none)", "overflowing", global_batch_size=6)
    assert variant.unsupported is None
    losses = variant.round(5).losses
    # Inspection takes step 0 once more, so six steps were taken.
    ranks = [one.notes for one in variant.inspect()]
    assert [one["skipped_steps"] for one in ranks] == [1, 1]
    assert [one["loss_scale"] for one in ranks] == [32768, 32768]
    assert [one["scale_events"] for one in ranks] == ["step 4: 32768", "step 4: 32768"]
    # The weights after the step are those before it: the batch of step 4 is that of step 2, one update later.
    before = plain.round(3).losses
    assert losses[:3] == pytest.approx(before, rel=1e-4)
    falls = losses[1] - losses[2]
    assert losses[4] == pytest.approx(losses[2] - falls, rel=0.05)
    for one in (variant, plain):
        one.close()


# ---- clipping


@functools.cache
def by_hand(clip, steps, batch_size=32):
    """Train digit rows in one process with torch's own clipping; return the losses."""
    with one_thread():
        return _by_hand(clip, steps, batch_size)


def _by_hand(clip, steps, batch_size):
    job = Registry().resolve("workload", "digit-rows").build("smoke", 0, torch.device("cpu"), batch_size)
    optimizer = job.optimizer(job.model.parameters())
    seen = []
    for step in range(steps):
        batch = job.batch(step)
        optimizer.zero_grad()
        loss = job.loss(job.model(batch.inputs), batch) / batch.samples
        loss.backward()
        torch.nn.utils.clip_grad_norm_(job.model.parameters(), clip)
        optimizer.step()
        seen.append(loss.item())
    return seen


@pytest.mark.parametrize("inner", ["ddp", "fsdp", "central", "zero1", "replicated"])
def test_the_norm_of_the_whole_gradient_is_clipped_however_it_is_held(session, inner):
    variant = added(session, f"amp_rnn({inner}, clip=0.05)")
    assert variant.round(6).losses == pytest.approx(by_hand(0.05, 6), abs=1e-5)
    found = variant.inspect()
    assert found[0].notes["clipped_steps"] == 7  # all steps: the gradient of an untrained model is longer
    assert found[0].traffic == found[0].sent
    variant.close()


# ---- types and bytes


def test_half_precise_messages_are_exactly_half_the_bytes(session):
    half, whole = added(session, "amp_rnn"), added(session, "amp_rnn(replicated)")
    of_half, of_whole = half.inspect()[0], whole.inspect()[0]
    assert of_half.sent["all_reduce"] * 2 == of_whole.sent["all_reduce"]
    assert of_half.wire["all_reduce"] * 2 == of_whole.wire["all_reduce"]
    assert (of_half.types["communication"], of_half.types["weights"]) == ("fp16", "fp32")
    assert of_whole.types["communication"] == "fp32"
    half.close()
    whole.close()


@pytest.mark.parametrize(
    ("strategy", "precision", "cell", "types"),
    [
        ("amp_rnn", "bf16", "lstm", {"recurrence": "bf16", "weights": "fp32"}),
        ("amp_rnn", "fp16", "gru", {"matrix product": "fp16", "weights": "fp32"}),
        ("amp_rnn(weights=fp16)", "fp32", "lstm", {"weights": "fp16"}),
        ("amp_rnn(fsdp, weights=bf16)", "fp32", "lstmcell", {"weights": "bf16", "matrix product": "bf16"}),
    ],
)
def test_every_recipe_trains_as_fp32_does_within_its_rounding(session, strategy, precision, cell, types):
    variant = added(session, strategy, f"digit-rows(cell={cell})", precision=precision)
    assert variant.unsupported is None
    agreement = variant.parity(3)
    assert agreement.declared == "on average"
    assert agreement.loss_difference < 2e-3  # of 2.3 nats, computed with 8 bits or more
    found = variant.inspect()[0]
    assert found.types.items() >= types.items()
    assert found.traffic == found.sent
    variant.close()


def test_an_lstm_that_this_device_cannot_compute_is_a_sentence(session):
    """Where the processor has the instructions it runs; where it has not, the reason says what to do."""
    variant = added(session, "ddp", precision="fp16")
    if variant.unsupported is None:
        assert variant.parity(2).passed
    else:
        assert "LSTM under autocast to float16" in variant.unsupported
        assert "--precision bf16" in variant.unsupported


@pytest.mark.parametrize(
    ("strategy", "precision", "why"),
    [
        ("amp_rnn(weights=fp16)", "bf16", "leave one of both out"),
        ("amp_rnn(pipeline)", "fp32", "compute whole samples, and this strategy shares out layers"),
        ("amp_rnn(dear)", "fp32", "steps later, by layer or on some ranks only"),
        ("amp_rnn(p3)", "fp32", "steps later, by layer"),
        ("amp_rnn(pipe_sgd(k=2))", "fp32", "steps later, by layer"),
        ("amp_rnn(crossover)", "fp32", "steps later, by layer"),
        ("amp_rnn(fedavg)", "fp32", "steps later, by layer"),
        ("amp_rnn(local_sgd(heterogeneous=True))", "fp32", "steps later, by layer"),
    ],
)
def test_what_does_not_go_together_is_refused(session, strategy, precision, why):
    assert why in added(session, strategy, precision=precision).unsupported


def test_arguments_that_make_no_sense_are_refused():
    for text, why in [("amp_rnn(amp_rnn)", "another amp_rnn"), ("amp_rnn(clip=0)", "clip must be above 0")]:
        with pytest.raises(UsageError, match=why):
            Registry().resolve("strategy", text)


def test_the_mesh_is_that_of_the_strategy_inside():
    assert Registry().resolve("strategy", "amp_rnn(hsdp(replicas=2))").mesh(4) == {"replicate": 2, "shard": 2}


def test_one_spelling_for_what_means_the_same():
    registry = Registry()
    assert registry.canonical("strategy", "amp_rnn(strategy=topk(0.1), scale=auto)") == (
        registry.canonical("strategy", "amp_rnn(topk(ratio=0.1))")
    )
