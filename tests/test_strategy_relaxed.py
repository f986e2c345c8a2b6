"""Strategies that relax synchrony compute what their papers say: each against a few lines of its own in one process."""

import copy
import itertools
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from contexts import context
from parbench import RunSpec, Session, UsageError
from parbench.api import Batch
from parbench.registry import Registry
from parbench_strategies.relaxed._averaging import momenta
from parbench_strategies.relaxed._injection import Injection
from parbench_strategies.relaxed._significance import Significance
from parbench_strategies.relaxed.local_sgd import local_steps

PLUGIN = Path(__file__).parent / "optimized.py"
REGISTRY = Registry([PLUGIN])
RANKS, STEPS = 3, 12
OPTIMIZERS = ("sgd", "momentum", "adam")
CLOSELY = 1e-6
MODEL = 4 * (6 * 10 + 10 + 10 * 4 + 4)  # bytes of the weights


@pytest.fixture(scope="module")
def session():
    with Session(world_size=RANKS, plugins=[PLUGIN]) as ranks:
        yield ranks


def run(session, strategy, optimizer, batch_size=24):
    """Return the losses of the steps."""
    return noted(session, strategy, optimizer, batch_size, inspect=False)[0]


def noted(session, strategy, optimizer, batch_size=24, inspect=True):
    """Return the losses of the steps, and the notes of every rank after one period more."""
    spec = RunSpec(
        workload=f"optimized(optimizer={optimizer})",
        strategy=strategy,
        size="smoke",
        world_size=RANKS,
        global_batch_size=batch_size,
    )
    variant = session.add(spec)
    try:
        assert variant.unsupported is None
        losses = variant.round(STEPS).losses
        return losses, [one.notes for one in variant.inspect()] if inspect else []
    finally:
        variant.close()


def close(given, right):
    return len(given) == len(right) and all(abs(a - b) <= CLOSELY for a, b in zip(given, right, strict=True))


# ---- one process that plays all ranks


class Played:
    """All ranks in one process: a model and an optimizer each."""

    def __init__(self, optimizer, batch_size=24):
        job = REGISTRY.resolve("workload", f"optimized(optimizer={optimizer})").build(
            "smoke", 0, torch.device("cpu"), batch_size
        )
        self.job = job
        self.models = [copy.deepcopy(job.model) for _ in range(RANKS)]
        self.optimizers = [job.optimizer(model.parameters()) for model in self.models]

    def gradients(self, step):
        """Let every rank compute its gradient, scaled so that their mean is that of the batch; return the loss."""
        return sum(self.gradient(step, rank) for rank in range(RANKS))

    def gradient(self, step, rank):
        batch, model = self.job.batch(step), self.models[rank]
        self.optimizers[rank].zero_grad()
        share = batch.share(rank, RANKS)
        loss = self.job.loss(model(share.inputs), share) / batch.samples
        (loss * RANKS).backward()
        return loss.item()

    def update(self):
        for optimizer in self.optimizers:
            optimizer.step()

    def average(self, tensors_of, weights=(1 / RANKS,) * RANKS):
        """Put the weighted mean in place of what `tensors_of(rank)` lists."""
        with torch.no_grad():
            for alike in zip(*(tensors_of(rank) for rank in range(RANKS)), strict=True):
                mean = sum(weight * tensor for weight, tensor in zip(weights, alike, strict=True))
                for tensor in alike:
                    tensor.copy_(mean)

    def weights(self, rank):
        return list(self.models[rank].parameters())

    def grads(self, rank):
        return [p.grad for p in self.models[rank].parameters()]

    def momenta(self, rank):
        state = self.optimizers[rank].state
        names = ("momentum_buffer", "exp_avg", "exp_avg_sq")
        return [state[p][name] for p in self.weights(rank) for name in names if state[p].get(name) is not None]

    def fresh_optimizers(self):
        self.optimizers = [self.job.optimizer(model.parameters()) for model in self.models]


def local_sgd(optimizer, period, momentum, start=0, batch_size=24):
    ranks, losses = Played(optimizer, batch_size), []
    for step in range(STEPS):
        losses.append(ranks.gradients(step))
        if step < start:
            ranks.average(ranks.grads)
        ranks.update()
        if step >= start and (step - start + 1) % period == 0:
            ranks.average(ranks.weights)
            if momentum == "average":
                ranks.average(ranks.momenta)
            if momentum == "reset":
                ranks.fresh_optimizers()
    return losses


def synchronous(optimizer):
    ranks, losses = Played(optimizer), []
    for step in range(STEPS):
        losses.append(ranks.gradients(step))
        ranks.average(ranks.grads)
        ranks.update()
    return losses


# ---- local SGD


@pytest.mark.parametrize("momentum", ["average", "keep", "reset"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_local_sgd_averages_weights_once_a_period_and_does_with_momenta_as_told(session, optimizer, momentum):
    losses = run(session, f"local_sgd(period=3, momentum={momentum})", optimizer)
    assert close(losses, local_sgd(optimizer, 3, momentum))


def test_modes_of_momentum_differ_so_that_the_test_above_tells_them_apart():
    found = [local_sgd("momentum", 3, mode) for mode in ("average", "keep", "reset")]
    assert all(not close(a, b) for a, b in ((found[0], found[1]), (found[1], found[2]), (found[0], found[2])))


def test_local_sgd_weighs_shares_by_their_samples(session):
    losses, notes = noted(session, "local_sgd(period=2)", "momentum", batch_size=7)
    assert close(losses, local_sgd("momentum", 2, "average", batch_size=7))
    assert notes[0]["lssr"] == 1 / 2


@pytest.mark.parametrize(
    ("strategy", "optimizer"),
    [
        *((f"local_sgd(period=1, momentum={mode})", "sgd") for mode in ("average", "keep", "reset")),
        *((f"local_sgd(period=1, momentum={mode})", "momentum") for mode in ("average", "keep")),
        *(("selsync(delta=0)", one) for one in ("sgd", "momentum")),
        *(("selsync(delta=0, aggregate=grads)", one) for one in OPTIMIZERS),
        *((f"post_local_sgd(start={STEPS})", one) for one in OPTIMIZERS),
        ("fedavg(local_epochs=1, local_batch_size=inf)", "sgd"),
    ],
)
def test_with_nothing_relaxed_it_is_synchronous_training(session, strategy, optimizer):
    assert close(run(session, strategy, optimizer), synchronous(optimizer))


def test_the_mean_of_steps_of_adam_is_not_the_step_of_the_mean(session):
    """Averaging weights after every step is the paper's definition, and with Adam another training: not a fault."""
    losses = run(session, "local_sgd(period=1)", "adam")
    assert close(losses, local_sgd("adam", 1, "average"))
    assert not close(losses, synchronous("adam"))


def test_post_local_sgd_begins_to_relax_after_its_start(session):
    losses, notes = noted(session, "post_local_sgd(start=5, period=3)", "adam")
    assert close(losses, local_sgd("adam", 3, "keep", start=5))
    assert notes[0]["synchronised_steps"] == 5 + 3  # of 12 steps and 3 of the inspection


# ---- ranks of different speed


@pytest.mark.parametrize(
    ("speeds", "steps"), [((1, 0.5, 0.24), [8, 4, 1]), ((0.5, 0.5, 0.1), [8, 8, 1]), ((), [8, 8, 8])]
)
def test_local_steps_are_in_proportion_to_speed_and_at_least_one(speeds, steps):
    assert [local_steps(8, speeds, rank) for rank in range(RANKS)] == steps


def test_a_share_that_no_float_is_exactly_loses_no_step():
    assert local_steps(100, (0.29, 1.0), 0) == 29


def heterogeneous(optimizer, period, steps):
    ranks, losses = Played(optimizer), []
    for step in range(STEPS):
        works = [step % period < most for most in steps]
        seen = [ranks.gradient(step, rank) if work else None for rank, work in enumerate(works)]
        for work, one in zip(works, ranks.optimizers, strict=True):
            if work:
                one.step()
        present = [loss for loss in seen if loss is not None]
        losses.append(RANKS * sum(present) / len(present))
        if (step + 1) % period == 0:
            ranks.average(ranks.weights)
            ranks.average(ranks.momenta)
    return losses


def test_a_slow_rank_takes_fewer_local_steps_and_what_it_leaves_out_is_not_counted(session):
    spec = RunSpec(
        workload="optimized(optimizer=momentum)",
        strategy="local_sgd(period=4, heterogeneous=True)",
        size="smoke",
        world_size=RANKS,
        rank_speed="1,1,0.5",
    )
    variant = session.add(spec)
    done = variant.round(STEPS)
    notes = [one.notes for one in variant.inspect()]
    variant.close()
    assert close(done.losses, heterogeneous("momentum", 4, [4, 4, 2]))
    assert done.samples == (24, 24, 16, 16) * 3
    assert [one["local_steps_per_period"] for one in notes] == [4, 4, 2]


# ---- SelSync


def test_significance_is_the_relative_change_of_the_smoothed_squared_norm():
    """Window 2: E = 4, (0.99 * 4 + 8) / 1.99, (0.99 * 8 + 2) / 1.99."""
    watch = Significance(window=2)
    one, two, three = 4.0, (0.99 * 4 + 8) / 1.99, (0.99 * 8 + 2) / 1.99
    assert watch.of(4.0) == math.inf
    assert watch.of(8.0) == pytest.approx(two / one - 1)
    assert watch.of(2.0) == pytest.approx(1 - three / two)


def test_significance_of_nothing_is_nothing_and_of_what_is_not_finite_infinite():
    watch = Significance(window=1)
    assert [watch.of(x) for x in (0.0, 0.0, 1.0, 1.0, math.inf)] == [math.inf, 0.0, math.inf, 0.0, math.inf]


def selsync(optimizer, delta, window, aggregate):
    ranks, losses, together = Played(optimizer), [], []
    squares, smoothed = [[] for _ in range(RANKS)], [[] for _ in range(RANKS)]
    for step in range(STEPS):
        losses.append(ranks.gradients(step))
        for rank in range(RANKS):
            squares[rank].append(sum(grad.double().square().sum().item() for grad in ranks.grads(rank)))
            seen = squares[rank][-window:][::-1]
            weights = [0.99**age for age in range(len(seen))]
            smoothed[rank].append(sum(w * s for w, s in zip(weights, seen, strict=True)) / sum(weights))
        votes = [abs(e[-1] - e[-2]) / e[-2] >= delta for e in smoothed] if step else [True]
        together.append(step < window or any(votes))
        if together[-1] and aggregate == "grads":
            ranks.average(ranks.grads)
        ranks.update()
        if together[-1] and aggregate == "params":
            ranks.average(ranks.weights)
    return losses, together


@pytest.mark.parametrize("aggregate", ["params", "grads"])
def test_selsync_synchronises_where_a_rank_votes_for_it(session, aggregate):
    right, together = selsync("momentum", 0.45, 2, aggregate)
    losses, notes = noted(session, f"selsync(delta=0.45, window=2, aggregate={aggregate})", "momentum")
    assert close(losses, right)
    assert 0 < sum(together[2:]) < len(together) - 2  # some of either
    inspected = notes[0]["synchronised_steps"] - sum(together)  # the inspection takes a window more
    assert inspected in (0, 1, 2)
    assert notes[0]["lssr"] == pytest.approx(1 - notes[0]["synchronised_steps"] / (STEPS + 2))
    assert len({one["lssr"] for one in notes}) == 1


def test_selsync_that_never_synchronises_is_local_training_and_sends_nothing(session):
    losses, notes = noted(session, "selsync(delta=inf)", "momentum")
    assert close(losses, local_sgd("momentum", STEPS + 1, "keep"))
    assert notes[0]["lssr"] == 1
    assert traffic("selsync(delta=inf)") == {}


def injected(optimizer, alpha, beta):
    """Train on what ranks keep and are lent: 8 samples a share, so that o = 8 / 1.25 = 6, and 2 are lent."""
    ranks, losses = Played(optimizer), []
    for step in range(STEPS):
        batch, (lender,) = ranks.job.batch(step), Injection(alpha, beta).lenders(0, step, RANKS)
        shares, total = [batch.share(rank, RANKS) for rank in range(RANKS)], 0.0
        for rank, (model, one) in enumerate(zip(ranks.models, ranks.optimizers, strict=True)):
            one.zero_grad()
            parts = [shares[rank].cut(0, 8)] if rank == lender else [shares[rank].cut(0, 6), shares[lender].cut(0, 2)]
            mixed = Batch(inputs=torch.cat([p.inputs for p in parts]), targets=torch.cat([p.targets for p in parts]))
            loss = ranks.job.loss(model(mixed.inputs), mixed) / 8
            loss.backward()
            total += loss.item() / RANKS
        losses.append(total)
        ranks.average(ranks.grads)
        ranks.update()
    return losses


def test_lent_samples_take_the_place_of_others_and_travel(session):
    spec = RunSpec(
        workload="optimized(optimizer=momentum)",
        strategy="selsync(delta=0, aggregate=grads, alpha=0.25, beta=0.25)",
        size="smoke",
        world_size=RANKS,
    )
    variant = session.add(spec)
    done = variant.round(STEPS)
    sent = [one.sent.get("broadcast", 0) for one in variant.inspect()]
    variant.close()
    assert close(done.losses, injected("momentum", 0.25, 0.25))
    assert done.samples == (24 - 2 * 2,) * STEPS
    assert sorted(sent) == [0, 0, 2 * (6 * 4 + 8)]  # two vectors of six numbers, two classes


@pytest.mark.parametrize("partition", ["labels", "shares"])
def test_whoever_sees_which_sample_of_a_batch_the_mean_gradient_is_the_same(session, partition):
    losses = run(session, f"selsync(delta=0, aggregate=grads, partition={partition})", "momentum")
    assert close(losses, synchronous("momentum"))


# ---- FedAvg


def fedavg(optimizer, epochs, size, batch_size):
    ranks, losses = Played(optimizer, batch_size), []
    for step in range(STEPS):
        batch, total = ranks.job.batch(step), 0.0
        ranks.fresh_optimizers()
        shares = [batch.share(rank, RANKS) for rank in range(RANKS)]
        for share, model, client in zip(shares, ranks.models, ranks.optimizers, strict=True):
            for epoch in range(epochs):
                parts = list(share.micro(-(-share.samples // size)))
                for part in parts:
                    client.zero_grad()
                    loss = ranks.job.loss(model(part.inputs), part)
                    (loss / part.samples).backward()
                    client.step()
                    total += loss.item() / batch.samples if epoch == 0 else 0.0
        ranks.average(ranks.weights, [share.samples / batch.samples for share in shares])
        losses.append(total)
    return losses


@pytest.mark.parametrize(("optimizer", "batch_size"), [("sgd", 24), ("momentum", 24), ("adam", 24), ("momentum", 17)])
def test_fedavg_is_the_papers_algorithm(session, optimizer, batch_size):
    losses, notes = noted(session, "fedavg(local_epochs=2, local_batch_size=3)", optimizer, batch_size=batch_size)
    assert close(losses, fedavg(optimizer, 2, 3, batch_size))
    assert [one["local_steps"] for one in notes] == [(STEPS + 1) * 2 * -(-k // 3) for k in sizes(batch_size)]


def sizes(samples):
    bounds = [samples * rank // RANKS for rank in range(RANKS + 1)]
    return [stop - start for start, stop in itertools.pairwise(bounds)]


# ---- crossover


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_each_job_of_crossover_trains_synchronously_on_every_second_batch(session, optimizer):
    losses, notes = noted(session, "crossover", optimizer)
    for first in (0, 1):
        job = Played(optimizer).job
        alone, right = job.optimizer(job.model.parameters()), []
        for step in range(first, STEPS, 2):
            alone.zero_grad()
            batch = job.batch(step)
            loss = job.loss(job.model(batch.inputs), batch) / batch.samples
            loss.backward()
            alone.step()
            right.append(loss.item())
        assert close(losses[first::2], right)
    assert [notes[0][f"{name}_job_steps"] for name in ("first", "second")] == [STEPS // 2 + 1] * 2


def test_each_job_of_crossover_has_statistics_of_its_own():
    """As running means of batch norm: the second job's batches must not be in the first one's."""
    seen = [torch.full((4, 2), float(step)) for step in range(4)]
    job = replace(
        Played("sgd").job,
        model=nn.Sequential(nn.BatchNorm1d(2, momentum=None), nn.Linear(2, 1)),
        loss=lambda outputs, batch: outputs.sum(),
        batch=lambda step: Batch(inputs=seen[step], targets=torch.zeros(4)),
    )
    trainer = REGISTRY.resolve("strategy", "crossover").wrap(job, context(1))
    for step in range(4):
        trainer.step(job.batch(step))
    trainer.drain()
    buffers = trainer.full_buffers()
    assert int(buffers["0.num_batches_tracked"]) == 2
    assert buffers["0.running_mean"].tolist() == [1.0, 1.0]  # of steps 0 and 2


def test_momenta_are_those_of_whatever_the_optimizer_steps():
    """Half weights are stepped as copies, which the model does not know."""
    copy = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([copy], lr=0.1, momentum=0.9)
    copy.grad = torch.full((3,), 2.0)
    optimizer.step()
    assert [one.tolist() for one in momenta(optimizer)] == [[2.0, 2.0, 2.0]]


# ---- closed forms and refusals


def job(optimizer="momentum"):
    return REGISTRY.resolve("workload", f"optimized(optimizer={optimizer})").build("smoke", 0, torch.device("cpu"), 24)


def traffic(strategy, optimizer="momentum"):
    return REGISTRY.resolve("strategy", strategy).traffic(job(optimizer), context(4))


@pytest.mark.parametrize(
    ("strategy", "optimizer", "sent"),
    [
        ("local_sgd(period=3, momentum=keep)", "momentum", 1.5 * MODEL / 3),  # 2(n-1)/n = 1.5 at four ranks
        ("local_sgd(period=3, momentum=average)", "momentum", 1.5 * 2 * MODEL / 3),
        ("local_sgd(period=3, momentum=average)", "sgd", 1.5 * MODEL / 3),
        ("local_sgd(period=3, momentum=average)", "adam", 1.5 * 3 * MODEL / 3),
        ("post_local_sgd(period=2)", "adam", 1.5 * MODEL / 2),
        ("fedavg", "adam", 1.5 * MODEL),
        ("selsync(delta=0)", "adam", 1.5 * MODEL),
        ("crossover", "adam", 1.5 * MODEL),
    ],
)
def test_what_is_sent_per_step_follows_from_what_is_averaged(strategy, optimizer, sent):
    assert traffic(strategy, optimizer) == {"all_reduce": sent}


def test_traffic_that_gradients_decide_has_no_closed_form():
    assert traffic("selsync(delta=0.3)") is None


def test_a_round_is_whole_periods():
    found = {name: REGISTRY.resolve("strategy", name).period for name in ("local_sgd(period=7)", "crossover", "fedavg")}
    assert found == {"local_sgd(period=7)": 7, "crossover": 2, "fedavg": 1}


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("local_sgd(period=0)", "period must be from 1"),
        ("local_sgd(momentum=forget)", "one of average, keep, reset"),
        ("post_local_sgd(start=-1)", "start must be from 0"),
        ("selsync(delta=-0.1)", "delta must be 0"),
        ("selsync(window=0)", "window must be from 1"),
        ("selsync(aggregate=both)", "one of params, grads"),
        ("fedavg(local_epochs=0)", "local_epochs must be from 1"),
        ("fedavg(local_batch_size=0)", "local_batch_size must be a whole number"),
        ("fedavg(local_batch_size=2.5)", "local_batch_size must be a whole number"),
    ],
)
def test_what_is_not_allowed_is_refused_in_a_sentence(written, said):
    with pytest.raises(UsageError, match=said):
        REGISTRY.resolve("strategy", written)
