"""Observed is what a step was seen to send and a rank to hold, beside what the strategy's closed forms say."""

from __future__ import annotations

import msgspec


class Traffic(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank sends in a training step, a mean over a period; the rank that sends most.

    Attributes:
        rank: which.
        sent: collective -> logical bytes (what its ideal algorithm sends), counted at torch's dispatcher.
        wire: collective -> bytes that the backend's own algorithm sends; None where that is not known.
        collectives: how many it issues.
        closed_form: collective -> logical bytes, as the strategy says; None where it says nothing.
        textbook: the formula usually quoted: n ranks, P parameters, b bytes of one.
        textbook_bytes: its value; padding, buffers and what a system does besides are left out of it.
    """

    rank: int
    sent: dict[str, float]
    wire: dict[str, float] | None = None
    collectives: float = 0.0
    closed_form: dict[str, float] | None = None
    textbook: str | None = None
    textbook_bytes: float | None = None


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank keeps from step to step; the rank that holds most.

    Attributes:
        rank: which.
        held: "parameters", "optimizer" and "buffers" -> bytes of storage, padding included.
        closed_form: the same and "gradients", as the strategy says; None where it says nothing.
        shards: what the ranks share out instead of repeating.
    """

    rank: int
    held: dict[str, int]
    closed_form: dict[str, int] | None = None
    shards: tuple[str, ...] = ()


class Flops(msgspec.Struct, frozen=True, kw_only=True):
    """What a step of the whole model computes, counted from shapes on one rank.

    Attributes:
        samples: samples of the global batch that was counted.
        model: operator -> FLOPs of forward and backward, as one process computes them.
        hardware: the same with what backward computes again; equal where nothing is recomputed.
        tf32: classes of operators ("matrix product", "convolution") that may round fp32 to TF32 on this device.
        reason: why nothing was counted.
    """

    samples: int = 0
    model: dict[str, int] = {}
    hardware: dict[str, int] = {}
    tf32: tuple[str, ...] = ()
    reason: str | None = None


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What one meter of power read over a block of steps of one variant; one per board and host.

    Attributes:
        host: which host, by number.
        name: of what is measured, such as "NVIDIA H200" or "package-0".
        id: a hash of the board's UUID; the domain of a CPU.
        index: the driver's number of the board; None for a CPU.
        scope: what the number is about: "GPU board", "GPU module (CPU and GPU)" or "CPU package".
        energy_j: over the window; None where `reason` says why.
        source: "counter" (the difference of the energy counter) or "integral" (of polled power).
        counter_j: by the counter, where there is one.
        integral_j: by the integral of power, where that can be read.
        window_s: length of the window, barrier to drained.
        steps: training steps in it.
        readings: times the meter was read.
        missed: fraction of the window in which it could not be.
        field: which power was read: "instant", "average" (over a second) or "none".
        period_s: how often the source's value changes.
        idle_w: power before any rank had built anything, measured apart.
        limit_w: the power limit.
        default_limit_w: the limit it leaves the factory with.
        clocks_mhz: of the multiprocessors, the lowest and the highest in the window.
        most_clock_mhz: the highest they can have.
        temperatures_c: before and after.
        throttled: why clocks were held down meanwhile, as the driver says.
        others: processes on the board that are none of the ranks'; None where it does not tell.
        used_bytes: memory in use on the board, by whomever.
        slice: whether the ranks have a part (MIG) of the board only, whose power is that of the whole.
        estimated: why the number is not exact, such as a window that is short for the meter.
        reason: why there is no number.
    """

    host: int = 0
    name: str
    id: str
    index: int | None = None
    scope: str
    energy_j: float | None = None
    source: str = ""
    counter_j: float | None = None
    integral_j: float | None = None
    window_s: float = 0.0
    steps: int = 0
    readings: int = 0
    missed: float = 0.0
    field: str = "none"
    period_s: float | None = None
    idle_w: float | None = None
    limit_w: float | None = None
    default_limit_w: float | None = None
    clocks_mhz: tuple[int, ...] = ()
    most_clock_mhz: int | None = None
    temperatures_c: tuple[int, ...] = ()
    throttled: tuple[str, ...] = ()
    others: int | None = None
    used_bytes: int | None = None
    slice: bool = False
    estimated: str | None = None
    reason: str | None = None


class Power(msgspec.Struct, frozen=True, kw_only=True):
    """What the meters of power read while one variant stepped alone.

    Attributes:
        boards: one reading per meter: GPUs where the ranks compute on them, CPU packages else; never one per rank.
        samples: samples of the global batches in the window.
        reason: why nothing was read.
    """

    boards: tuple[Reading, ...] = ()
    samples: int = 0
    reason: str | None = None


class Weighed(msgspec.Struct, frozen=True, kw_only=True):
    """The memory of one rank that held one variant alone; bytes above what it had before it built anything.

    Attributes:
        base_bytes: what it had before.
        peak_bytes: the most in steps after the first.
        first_peak_bytes: the most in the first step, in which optimizers make their state.
        between_steps_bytes: what was left between steps.
        phases: the most in each phase ("build", "first step", "forward", "backward", "optimizer").
        at_peak: "parameters", "gradients", "optimizer", "buffers", "activations" (what a step makes) and "other" (what
            was there before it, such as buckets) -> bytes of storages alive when most were, seen at torch's dispatcher.
        held: what the trainer keeps from step to step, walked.
        predicted: the strategy's closed form of states; None where it gives none.
        facts: what a GPU's allocator tells besides (reserved, active, used on the device, retries).
        source: how the peak was obtained.
        reason: why there is no number.
    """

    base_bytes: int = 0
    peak_bytes: int = 0
    first_peak_bytes: int = 0
    between_steps_bytes: int = 0
    phases: dict[str, int] = {}
    at_peak: dict[str, int] = {}
    held: dict[str, int] = {}
    predicted: dict[str, int] | None = None
    facts: dict[str, int] = {}
    source: str = ""
    reason: str | None = None


class MemoryUse(msgspec.Struct, frozen=True, kw_only=True):
    """What a variant that was alone in its launch needed.

    Attributes:
        rank: the one that needed most.
        ranks: every rank.
        parts: "parameters", "gradients", "optimizer", "activations" and "other" of that rank's peak, which they sum to.
        unexplained_bytes: its peak less the storages seen alive in it.
        predicted_bytes: the strategy's closed form of states; None where it gives none.
        difference_bytes: peak less predicted: activations, temporaries, and what is not explained.
        reason: why nothing was measured.
    """

    rank: int = 0
    ranks: tuple[Weighed, ...] = ()
    parts: dict[str, int] = {}
    unexplained_bytes: int = 0
    predicted_bytes: int | None = None
    difference_bytes: int | None = None
    reason: str | None = None
