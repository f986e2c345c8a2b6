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
