"""The laws of workloads: the same seed gives the same job, declarations match the model, and it learns."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterator

import torch

from parbench.api import Workload
from parbench.conformance.findings import Finding, broken, held, judged, not_applicable
from parbench.conformance.jobs import Jobs, digest, equal, guarded, one_thread, random_states

_RUNS = "runs, or says why not"
_META = "every size builds on the meta device"
_STEPS = 40
_KINDS = ("column", "row", "position", "vocabulary")


def workload_laws(workload: Workload) -> list[Finding]:
    """Return the findings of every law.

    Args:
        workload: what is judged.
    """
    if (why := workload.unsupported()) is not None:
        sentence = None if len(why.split()) >= 4 else f"the reason {why!r} is no sentence; say what is missing"
        return [judged(_RUNS, sentence, why)]
    if "smoke" not in workload.sizes:
        listed = ", ".join(workload.sizes)
        return [broken("has a size named smoke", f"sizes are {listed}; add one that takes under a second")]
    with one_thread():
        jobs = Jobs(workload)
        if (problem := guarded(_builds, jobs)) is not None:
            return [broken(_RUNS, problem)]
        return [held(_RUNS), *_all(jobs)]


def _all(jobs: Jobs) -> Iterator[Finding]:
    yield held("has a size named smoke")
    for law, check in _LAWS:
        yield judged(law, guarded(check, jobs))
    if (problem := guarded(_meta, jobs)) is not None:
        yield broken(_META, problem)
        # Every other law about sizes looks at them there.
        return
    yield held(_META)
    yield judged("every sharding pattern matches a parameter", guarded(_shardings, jobs))
    blocks = guarded(_blocks, jobs)
    yield judged("blocks are disjoint and complete", blocks)
    chain = "blocks applied in order are the model"
    if blocks is None:
        yield judged(chain, guarded(_chain, jobs))
    else:
        yield not_applicable(chain, "the blocks are wrong already")
    published = "has the published number of parameters"
    if not jobs.workload.parameters:
        yield not_applicable(published, "it states none: the number depends on the data")
    else:
        listed = ", ".join(f"{size} {count:,}" for size, count in jobs.workload.parameters.items())
        yield judged(published, guarded(_published, jobs), listed)


def _builds(jobs: Jobs) -> str | None:
    jobs.smoke.batch(0)
    return None


def _deterministic(jobs: Jobs) -> str | None:
    one, two, other = jobs.new(), jobs.new(), jobs.new(seed=4)
    if digest(one) != digest(two):
        return "two jobs of one seed have different weights"
    for step in (0, 1, 7):
        if not equal(one.batch(step), two.batch(step)):
            return f"two jobs of one seed have different batches at step {step}"
    return "two seeds give the same weights" if digest(one) == digest(other) else None


def _global_state(jobs: Jobs) -> str | None:
    before = random_states()
    jobs.new().batch(0)
    moved = [name for name, state in random_states().items() if state != before[name]]
    advice = "use a generator of the seed; layers that initialise themselves go under torch.random.fork_rng"
    return f"building it draws from the global random state of {moved[0]}; {advice}" if moved else None


def _any_order(jobs: Jobs) -> str | None:
    job = jobs.new()
    steps = (0, 1, 2, 3, 4, 5, 97, 1009)
    forwards = [job.batch(step) for step in steps]
    backwards = [job.batch(step) for step in reversed(steps)][::-1]
    wrong = [k for k, a, b in zip(steps, forwards, backwards, strict=True) if not equal(a, b)]
    return f"batch {wrong[0]} depends on which batches were asked for before" if wrong else None


def _meta(jobs: Jobs) -> str | None:
    for size, job in jobs.shapes():
        tensors = (*job.model.named_parameters(), *job.model.named_buffers())
        here = [name for name, tensor in tensors if tensor.device.type != "meta"]
        if here:
            return f"size {size}: {here[0]} is not on the meta device"
    return None


def _shardings(jobs: Jobs) -> str | None:
    for size, job in jobs.shapes():
        # A tied weight counts under each of its names.
        names = [name for name, _ in job.model.named_parameters(remove_duplicate=False)]
        for pattern, cut in job.shardings.items():
            if cut not in _KINDS:
                return f"{pattern!r} is cut by {cut!r}; allowed are {', '.join(map(repr, _KINDS))}"
            if not fnmatch.filter(names, pattern):
                return f"{pattern!r} matches no parameter of size {size}"
    return None


def _blocks(jobs: Jobs) -> str | None:
    for size, job in jobs.shapes():
        if len(set(job.blocks)) < len(job.blocks):
            return f"size {size}: a block is listed twice"
        if any(a.startswith(f"{b}.") for a in job.blocks for b in job.blocks):
            return f"size {size}: one block lies inside another"
        owned = [
            {f"{block}.{name}" for name, _ in job.model.get_submodule(block).named_parameters()} for block in job.blocks
        ]
        # Tied parameters have one name in the model, that of the first block that holds them.
        missing = {name for name, p in job.model.named_parameters() if p.requires_grad} - set().union(*owned)
        if missing:
            return f"size {size}: no block holds {', '.join(sorted(missing)[:3])}"
    return None


def _chain(jobs: Jobs) -> str | None:
    job = jobs.smoke
    batch = job.batch(0)
    value = batch.inputs
    with torch.no_grad():
        for block in job.blocks:
            value = job.model.get_submodule(block)(value)
        return None if torch.equal(value, job.model(batch.inputs)) else "the result differs from the model's"


def _units(jobs: Jobs) -> str | None:
    job = jobs.smoke
    batch = job.batch(0)
    if job.unit != jobs.workload.unit:
        return f"the job counts {job.unit}, the workload {jobs.workload.unit}"
    if batch.inputs.shape[0] != batch.targets.shape[0]:
        return f"{batch.inputs.shape[0]} inputs and {batch.targets.shape[0]} targets"
    if job.unit == "tokens" and batch.inputs.dim() > 1 and job.units_per_sample != batch.inputs.shape[1]:
        return f"a sample has {batch.inputs.shape[1]} tokens, units_per_sample says {job.units_per_sample}"
    if job.unit == "samples" and job.units_per_sample != 1:
        return f"a sample is one sample, units_per_sample says {job.units_per_sample}"
    return None


def _sums(jobs: Jobs) -> str | None:
    job = jobs.smoke
    batch = job.batch(0)
    with torch.no_grad():
        whole = float(job.loss(job.model(batch.inputs), batch))
        parts = sum(float(job.loss(job.model(part.inputs), part)) for part in batch.micro(3))
    close = abs(whole - parts) <= 1e-4 * max(1.0, abs(whole))
    return None if close else f"a batch has loss {whole:.6g}, its three parts together {parts:.6g}"


def _empty_share(jobs: Jobs) -> str | None:
    job = jobs.new()
    empty = job.batch(0).cut(0, 0)
    job.loss(job.model(empty.inputs), empty).backward()  # type: ignore[no-untyped-call]
    wrong = [n for n, p in job.model.named_parameters() if p.grad is not None and bool(p.grad.to_dense().any())]
    return f"{wrong[0]} gets a gradient from no sample" if wrong else None


def _published(jobs: Jobs) -> str | None:
    shapes = dict(jobs.shapes())
    for size, published in jobs.workload.parameters.items():
        if size not in shapes:
            return f"parameters names a size {size!r}, which there is not"
        count = sum(p.numel() for p in shapes[size].model.parameters() if p.requires_grad)
        if count != published:
            return f"size {size} has {count:,} trainable parameters, published are {published:,}"
    return None


def _learns(jobs: Jobs) -> str | None:
    job = jobs.new()
    optimizer = job.optimizer(job.model.parameters())
    losses = []
    for step in range(_STEPS):
        batch = job.batch(step)
        optimizer.zero_grad(set_to_none=True)
        loss = job.loss(job.model(batch.inputs), batch) / batch.samples
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(float(loss.detach()))
    first, last = sum(losses[:3]) / 3, sum(losses[-10:]) / 10
    return None if last < 0.97 * first else f"loss {first:.4g} at first, {last:.4g} after {_STEPS} steps of size smoke"


_LAWS: tuple[tuple[str, Callable[[Jobs], str | None]], ...] = (
    ("same seed, same batches and weights", _deterministic),
    ("leaves the global random state alone", _global_state),
    ("batches come in any order", _any_order),
    ("units per sample are right", _units),
    ("the loss is a sum over samples", _sums),
    ("an empty share has gradients of zero", _empty_share),
    ("learns", _learns),
)
