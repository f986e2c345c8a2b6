"""The laws of workloads: the same seed gives the same job, declarations match the model, and it learns."""

from __future__ import annotations

import fnmatch
import hashlib
from collections.abc import Callable

import torch
from torch import Tensor

from parbench.api import Batch, Job, Workload
from parbench.conformance.findings import Finding, held, judged, not_applicable

_CPU = torch.device("cpu")
_STEPS = 40


def workload_laws(workload: Workload) -> list[Finding]:
    """Return the findings of every law.

    Args:
        workload: what is judged.
    """
    if (why := workload.unsupported()) is not None:
        sentence = None if len(why.split()) >= 4 else f"the reason {why!r} is no sentence; say what is missing"
        return [judged("runs, or says why not", sentence, why)]
    laws: list[tuple[str, Callable[[Workload], str | None]]] = [
        ("has a size named smoke", _smoke),
        ("same seed, same batches and weights", _deterministic),
        ("leaves the global random state alone", _global_state),
        ("batches come in any order", _any_order),
        ("every sharding pattern matches a parameter", _shardings),
        ("blocks are disjoint and complete", _blocks),
        ("blocks applied in order are the model", _chain),
        ("units per sample are right", _units),
        ("the loss is a sum over samples", _sums),
        ("an empty share has gradients of zero", _empty_share),
        ("every size builds on the meta device", _meta),
        ("learns", _learns),
    ]
    if "smoke" not in workload.sizes:
        return [judged(laws[0][0], _smoke(workload))]
    return [held("runs, or says why not"), *(judged(law, check(workload)) for law, check in laws), _published(workload)]


def _job(workload: Workload, seed: int = 3, size: str = "smoke", device: torch.device = _CPU) -> Job:
    return workload.build(size, seed, device, workload.default_batch_size(size))


def _smoke(workload: Workload) -> str | None:
    return (
        None
        if "smoke" in workload.sizes
        else f"sizes are {', '.join(workload.sizes)}; add one that takes under a second"
    )


def _deterministic(workload: Workload) -> str | None:
    one, two, other = _job(workload), _job(workload), _job(workload, seed=4)
    if _digest(one) != _digest(two):
        return "two jobs of one seed have different weights"
    for step in (0, 1, 7):
        if not _equal(one.batch(step), two.batch(step)):
            return f"two jobs of one seed have different batches at step {step}"
    return "two seeds give the same weights" if _digest(one) == _digest(other) else None


def _global_state(workload: Workload) -> str | None:
    before = torch.get_rng_state()
    job = _job(workload)
    job.batch(0)
    return None if torch.equal(before, torch.get_rng_state()) else "building it draws from torch's global random state"


def _any_order(workload: Workload) -> str | None:
    job, again = _job(workload), _job(workload)
    forwards = [job.batch(step) for step in range(6)]
    backwards = [again.batch(step) for step in reversed(range(6))][::-1]
    wrong = [k for k, (a, b) in enumerate(zip(forwards, backwards, strict=True)) if not _equal(a, b)]
    return f"batch {wrong[0]} depends on which batches were asked for before" if wrong else None


def _shardings(workload: Workload) -> str | None:
    for size in workload.sizes:
        job = _job(workload, size=size, device=torch.device("meta"))
        names = [name for name, _ in job.model.named_parameters()]
        for pattern, cut in job.shardings.items():
            if cut not in ("column", "row"):
                return f"{pattern!r} is cut by {cut!r}; allowed are 'column' and 'row'"
            if not fnmatch.filter(names, pattern):
                return f"{pattern!r} matches no parameter of size {size}"
    return None


def _blocks(workload: Workload) -> str | None:
    for size in workload.sizes:
        model = (job := _job(workload, size=size, device=torch.device("meta"))).model
        owned = [{f"{block}.{n}" for n, _ in model.get_submodule(block).named_parameters()} for block in job.blocks]
        if any(a.startswith(f"{b}.") for a in job.blocks for b in job.blocks):
            return f"size {size}: one block lies inside another"
        # Tied parameters have one name in the model, that of the first block that holds them.
        missing = {name for name, p in model.named_parameters() if p.requires_grad} - set().union(*owned)
        if missing:
            return f"size {size}: no block holds {', '.join(sorted(missing)[:3])}"
    return None


def _chain(workload: Workload) -> str | None:
    job = _job(workload)
    batch = job.batch(0)
    value = batch.inputs
    with torch.no_grad():
        for block in job.blocks:
            value = job.model.get_submodule(block)(value)
        return None if torch.equal(value, job.model(batch.inputs)) else "the result differs from the model's"


def _units(workload: Workload) -> str | None:
    job = _job(workload)
    batch = job.batch(0)
    if job.unit != workload.unit:
        return f"the job counts {job.unit}, the workload {workload.unit}"
    if batch.inputs.shape[0] != batch.targets.shape[0]:
        return f"{batch.inputs.shape[0]} inputs and {batch.targets.shape[0]} targets"
    if job.unit == "tokens" and batch.inputs.dim() > 1 and job.units_per_sample != batch.inputs.shape[1]:
        return f"a sample has {batch.inputs.shape[1]} tokens, units_per_sample says {job.units_per_sample}"
    if job.unit == "samples" and job.units_per_sample != 1:
        return f"a sample is one sample, units_per_sample says {job.units_per_sample}"
    return None


def _sums(workload: Workload) -> str | None:
    job = _job(workload)
    batch = job.batch(0)
    with torch.no_grad():
        whole = float(job.loss(job.model(batch.inputs), batch))
        parts = sum(float(job.loss(job.model(part.inputs), part)) for part in batch.micro(3))
    close = abs(whole - parts) <= 1e-4 * max(1.0, abs(whole))
    return None if close else f"a batch has loss {whole:.6g}, its three parts together {parts:.6g}"


def _empty_share(workload: Workload) -> str | None:
    job = _job(workload)
    empty = job.batch(0).cut(0, 0)
    job.loss(job.model(empty.inputs), empty).backward()  # type: ignore[no-untyped-call]
    wrong = [n for n, p in job.model.named_parameters() if p.grad is not None and bool((p.grad != 0).any())]
    return f"{wrong[0]} gets a gradient from no sample" if wrong else None


def _meta(workload: Workload) -> str | None:
    for size in workload.sizes:
        job = _job(workload, size=size, device=torch.device("meta"))
        here = [name for name, p in job.model.named_parameters() if p.device.type != "meta"]
        if here:
            return f"size {size}: {here[0]} is not on the meta device"
    return None


def _published(workload: Workload) -> Finding:
    law = "has the published number of parameters"
    if not workload.parameters:
        return not_applicable(law, "it states none: the number depends on the data")
    for size, published in workload.parameters.items():
        job = _job(workload, size=size, device=torch.device("meta"))
        count = sum(p.numel() for p in job.model.parameters() if p.requires_grad)
        if count != published:
            return judged(law, f"size {size} has {count:,} trainable parameters, published are {published:,}")
    return held(law, ", ".join(f"{size} {count:,}" for size, count in workload.parameters.items()))


def _learns(workload: Workload) -> str | None:
    job = _job(workload)
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


def _digest(job: Job) -> str:
    found = hashlib.sha256()
    for _, p in job.model.named_parameters():
        found.update(p.detach().reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def _equal(a: Batch, b: Batch) -> bool:
    def same(x: Tensor, y: Tensor) -> bool:
        return x.dtype == y.dtype and torch.equal(x, y)

    return same(a.inputs, b.inputs) and same(a.targets, b.targets)
