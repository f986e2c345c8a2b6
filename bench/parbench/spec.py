"""A RunSpec is one cell of a sweep: everything that decides what is computed and how it is measured."""

from __future__ import annotations

import hashlib
from typing import Annotated, Literal

import msgspec

from parbench.errors import UsageError
from parbench.grammar import parse, unparse

Device = Literal["auto", "cpu", "cuda"]
Backend = Literal["auto", "gloo", "nccl"]
Precision = Literal["fp32", "bf16", "fp16"]
Recompute = Literal["none", "full", "selective"]


class RunSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One cell of a sweep, validated once and frozen.

    Attributes:
        workload: the workload as the user wrote it, such as "digits" or "text(path='corpus.txt')".
        strategy: the strategy as the user wrote it, such as "ddp".
        size: one of the workload's sizes.
        world_size: ranks; a strategy that always runs on one rank has 1 here.
        device: where tensors live.
        backend: which library moves them.
        precision: arithmetic of forward and backward; weights stay fp32, and fp16 scales the loss.
        recompute: what backward computes again instead of keeping it: "none", "full" (all inside each block) or
            "selective" (all but matrix multiplications, convolutions and attention).
        compile: whether each block is compiled (torch.compile).
        global_batch_size: samples per optimizer step over all ranks; None takes the workload's own.
        data_workers: threads of each rank that make the next batches; 0 makes each when its step begins.
        data_delay_s: seconds added to the making of each batch, for a source that is slow.
        accumulate: micro-steps a rank's share of the batch is cut into.
        warmup: steps left out before measuring; None warms up until steady.
        steps: measured training steps.
        steps_per_round: consecutive steps between two barriers.
        parity_steps: steps compared with one process before measuring; 0 leaves the check out and ranks nothing.
        repeats: fresh launches of the cell.
        seed: seed of weights and batches.
        threads: compute threads per rank.
        peak_tflops: dense peak of one device in 10^12 FLOPs per second; None takes the table's, where it is listed.
        memory: whether memory is measured, in a launch that holds the one variant alone.
        memory_snapshot: whether that launch also keeps the history of CUDA's allocator.
        trace_steps: steps taken under the profiler after all that is timed; 0 leaves the trace out.
        execution_trace: whether PyTorch's execution traces are written besides.
        memory_gib: the most memory that each rank may take besides what it begins with; None sets no limit.
        probes: meters to run in the timed rounds, such as "contention".
        network: links between the ranks, such as "100mbit" or "two-racks(rate=1gbit, oversubscription=4)"; None leaves
            them as they are.
        rank_speed: how fast each rank computes, relative to what it can, such as "1,1,0.5"; None slows nobody.
        straggler: when ranks stop for a while, such as "exponential(mean=0.2, every=10)"; None lets none stop.
        timeout_s: seconds without progress after which a run is ended.
        data_hash: hash of the data the workload reads; filled in when the spec is resolved.
    """

    workload: str
    strategy: str
    size: str = "small"
    world_size: Annotated[int, msgspec.Meta(ge=1, le=65536)] = 2
    device: Device = "auto"
    backend: Backend = "auto"
    precision: Precision = "fp32"
    recompute: Recompute = "none"
    compile: bool = False
    global_batch_size: Annotated[int, msgspec.Meta(ge=1, le=2**31)] | None = None
    data_workers: Annotated[int, msgspec.Meta(ge=0, le=64)] = 0
    data_delay_s: Annotated[float, msgspec.Meta(ge=0, le=60)] = 0.0
    accumulate: Annotated[int, msgspec.Meta(ge=1, le=2**20)] = 1
    warmup: Annotated[int, msgspec.Meta(ge=1, le=10**9)] | None = None
    steps: Annotated[int, msgspec.Meta(ge=1, le=10**9)] = 100
    steps_per_round: Annotated[int, msgspec.Meta(ge=1, le=10**6)] = 5
    parity_steps: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 3
    repeats: Annotated[int, msgspec.Meta(ge=1, le=10**4)] = 1
    seed: Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)] = 0
    threads: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 1
    peak_tflops: Annotated[float, msgspec.Meta(gt=0, le=10**9)] | None = None
    memory: bool = True
    memory_snapshot: bool = False
    trace_steps: Annotated[int, msgspec.Meta(ge=0, le=10**6)] = 3
    execution_trace: bool = False
    memory_gib: Annotated[float, msgspec.Meta(gt=0, le=10**6)] | None = None
    probes: tuple[str, ...] = ()
    network: str | None = None
    rank_speed: str | None = None
    straggler: str | None = None
    timeout_s: Annotated[float, msgspec.Meta(gt=0, le=10**7)] = 120.0
    data_hash: str | None = None


# When a run is ended, how often it is repeated and what it is held against do not change what it measures.
_NOT_IDENTITY = ("repeats", "timeout_s", "peak_tflops", "memory", "memory_snapshot", "trace_steps", "execution_trace")


def canonical(spec: RunSpec) -> bytes:
    """Return the canonical JSON of what identifies `spec`: defaults left out, so that new fields keep old ids."""
    defaults = {one.name: one.default for one in msgspec.structs.fields(RunSpec)}
    kept = {
        name: value
        for name, value in msgspec.to_builtins(spec).items()
        if name not in _NOT_IDENTITY and value != defaults[name]
    }
    spelled = {name: _one_spelling(kept[name]) for name in ("workload", "strategy")}
    return msgspec.json.encode(kept | spelled, order="deterministic")


def _one_spelling(text: str) -> str:
    """Return one spelling for texts that differ in blanks and quotes only; what cannot be parsed stays as it is."""
    try:
        return unparse(parse(text))
    except UsageError:
        return text


def spec_id(spec: RunSpec) -> str:
    """Return the 16 hexadecimal digits that name `spec` wherever it runs."""
    return hashlib.sha256(canonical(spec)).hexdigest()[:16]
