"""A RunRecord is one launch of one cell: what was asked, where it ran, what was measured and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import msgspec

from parbench.observed import Flops, Held, MemoryUse, Power, Traffic
from parbench.spec import RunSpec

SCHEMA_NAME = "parbench.record"
SCHEMA_MAJOR = 1
SCHEMA_MINOR = 3

Status = Literal["complete", "failed", "oom", "timeout", "unsupported", "interrupted"]
Quality = Literal["measured", "estimated", "paced", "simulated", "suspect", "unavailable"]
Better = Literal["lower", "higher"]
Agrees = Literal["exactly", "closely", "on average", "differently"]


class Schema(msgspec.Struct, frozen=True, kw_only=True):
    """Name and version of a file's layout: a newer minor is readable, a newer major is not."""

    name: str = SCHEMA_NAME
    major: int = SCHEMA_MAJOR
    minor: int = SCHEMA_MINOR


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """One number with its unit, its source and how sure it is; `value` is None exactly where `reason` says why.

    Attributes:
        value: the number in `unit`, or None where it was not measured.
        unit: "s", "samples/s", "nats", ...
        better: which direction is an improvement; None where neither is.
        n: how many independent samples stand behind it.
        ci_low: lower end of the 95 % interval; None where n is too small for one.
        ci_high: upper end of the same interval.
        source: how it was obtained, in a few words.
        quality: how far to trust it.
        reason: why it is unavailable or suspect, else None.
    """

    value: float | None
    unit: str
    better: Better | None
    n: int = 0
    ci_low: float | None = None
    ci_high: float | None = None
    source: str = ""
    quality: Quality = "measured"
    reason: str | None = None

    @staticmethod
    def unavailable(unit: str, better: Better | None, reason: str) -> Metric:
        """Return the metric that says it was not measured, and why."""
        return Metric(value=None, unit=unit, better=better, quality="unavailable", reason=reason)

    def suspected(self, reason: str) -> Metric:
        """Return the same number marked as one not to believe, with the reason."""
        return msgspec.structs.replace(self, quality="suspect", reason=reason)

    def finite(self) -> Metric:
        """Return a metric that strict JSON can hold: a NaN or infinite value becomes None with a reason."""
        bad = [x for x in (self.value, self.ci_low, self.ci_high) if x is not None and not math.isfinite(x)]
        if not bad:
            return self
        value = self.value if self.value is not None and math.isfinite(self.value) else None
        reason = self.reason or f"not finite ({bad[0]})"
        return msgspec.structs.replace(
            self,
            value=value,
            ci_low=None,
            ci_high=None,
            reason=reason,
            quality="unavailable" if value is None else self.quality,
        )


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """What a probe measured in one round on one rank.

    Attributes:
        name: of the metric, with its unit in it.
        unit: of every value.
        better: which direction is an improvement; None where neither is.
        values: one per step, in order; empty where `reason` says why nothing was measured.
        source: how it was obtained, in a few words.
        reason: why there are no values.
    """

    name: str
    unit: str
    better: Better | None
    values: tuple[float, ...]
    source: str
    reason: str | None = None


class Chosen(msgspec.Struct, frozen=True, kw_only=True):
    """An automatic choice and its reason."""

    value: str
    because: str


class Warned(msgspec.Struct, frozen=True, kw_only=True):
    """Something a reader of the numbers must know: a stable code, a sentence, and what to do about it."""

    code: str
    message: str
    advice: str = ""


class Agreement(msgspec.Struct, frozen=True, kw_only=True):
    """How closely a strategy trained as one process does, on the same global batches.

    Attributes:
        declared: what the strategy claims.
        passed: whether the claim held; None where it was not checked (`reason` says why).
        loss_difference: largest absolute difference of a step's global mean loss.
        parameter_difference: largest absolute difference of a parameter after the last step.
        steps: training steps compared, per optimizer.
        reason: why it failed or was not checked.
    """

    declared: Agrees
    passed: bool | None
    loss_difference: float | None = None
    parameter_difference: float | None = None
    steps: int = 0
    reason: str | None = None


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """K consecutive steps of one variant, barrier to drained, as the slowest rank saw them."""

    index: int
    first_step: int
    steps: int
    samples: int
    wall_s: float
    drain_s: float
    rank_wall_s: tuple[float, ...]


class WarmUp(msgspec.Struct, frozen=True, kw_only=True):
    """What was left out before measuring."""

    steps: int
    wall_s: float
    first_step_s: float
    steady: bool | None
    rule: str


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended early: the root cause first, what followed from it after.

    Attributes:
        rank: the rank to blame; None where it is not known.
        step: the training step it was in; None before the first.
        kind: "exception", "exit", "signal", "hang", "oom".
        message: one line, such as "ZeroDivisionError: division by zero".
        detail: path of the log that holds the traceback or the stacks, relative to the record's folder.
        followed: one line per other rank that failed afterwards.
    """

    rank: int | None
    step: int | None
    kind: str
    message: str
    detail: str | None = None
    followed: tuple[str, ...] = ()


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """What machine and software a run was measured on; nothing secret, no user name, no home path.

    Attributes:
        fingerprint: hash of the hardware class; records of different fingerprints are not compared.
        software: hash of versions and commit; a finished cell is skipped only where both match.
        facts: readable facts ("cpu", "cores", "memory_gib", "python", "torch", "commit", "dirty", "load_1min", ...).
        variables: the environment variables that change results (an allow-list), secrets never.
    """

    fingerprint: str
    software: str
    facts: Mapping[str, str | int | float | bool | None]
    variables: Mapping[str, str] = {}


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Everything one launch of one cell left behind.

    Attributes:
        id: UTC time plus random hexadecimal digits; two runs never share one.
        suite: the name of the suite it belongs to.
        spec_id: hash of the canonical `spec`.
        repeat: which fresh launch of the cell this is, from 0.
        status: how it ended.
        reason: a sentence wherever status is not "complete".
        traffic: what a step sends, beside its closed form; None where no step was inspected.
        held: what a rank keeps from step to step, likewise.
        flops: what a step of the whole model computes; None where no step was inspected.
        memory: what every rank needed in a launch that held this variant alone; None where there was none.
        power: what meters of power read while it stepped alone; None where it did not get that far.
        precision: class of operators ("matrix product", "communication", ...) -> the types they really computed in.
        notes: per rank, what is particular to it or its plan, such as its place in a mesh.
        numerics: "finite", or "nonfinite at step k".
        chosen: automatic choices with their reasons, by name ("device", "backend", "threads", ...).
        launch: how it was measured: cells it was interleaved with, order, rank placement.
        rounds: the raw rounds behind the timing metrics.
        resolved_suite: the suite as it was resolved, so that the record repeats it.
        resumed_from: id of an interrupted run of the same cell, if this one follows it.
    """

    schema: Schema = Schema()
    id: str
    suite: str
    status: Status
    reason: str | None = None
    started_at: str
    spec: RunSpec
    spec_id: str
    repeat: int = 0
    environment: Environment
    metrics: dict[str, Metric] = {}
    agreement: Agreement | None = None
    traffic: Traffic | None = None
    held: Held | None = None
    flops: Flops | None = None
    power: Power | None = None
    memory: MemoryUse | None = None
    precision: dict[str, str] = {}
    notes: tuple[dict[str, str | int | float], ...] = ()
    breakdown: dict[str, float] | None = None
    warnings: tuple[Warned, ...] = ()
    numerics: str = "finite"
    chosen: dict[str, Chosen] = {}
    launch: dict[str, str | int | float | bool | list[str]] = {}
    warm_up: WarmUp | None = None
    rounds: tuple[Round, ...] = ()
    failure: Failure | None = None
    resolved_suite: dict[str, object] = {}
    resumed_from: str | None = None

    @property
    def rankable(self) -> bool:
        """Whether it may be called faster or slower: complete, finite, not suspect, training as one process does."""
        time = self.metrics.get("step_time_s")
        return (
            self.status == "complete"
            and self.numerics == "finite"
            and self.agreement is not None
            and self.agreement.passed is True
            and self.agreement.declared in ("exactly", "closely")
            and time is not None
            and time.quality not in ("suspect", "unavailable")
            and all(one.code != "mixed_gpus" for one in self.warnings)
        )
