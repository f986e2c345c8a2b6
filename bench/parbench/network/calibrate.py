"""Calibrating turns measured collectives into curves: some sizes are fitted, the others say how far the fit errs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from parbench.errors import UsageError
from parbench.network.bench import Measured
from parbench.network.calibration import Curve, HeldOut, Reducing
from parbench.network.fit import Point, fit, interpolated_s, piecewise_s, point

# One size in three is held out, never the smallest or the largest.
_HELD_OUT_EVERY = 3
FEWEST_SIZES = 5


def curves_of(measured: Sequence[Measured]) -> tuple[Curve, ...]:
    """Return a curve per collective, algorithm and number of ranks.

    Raises:
        UsageError: one of them has fewer than five sizes.
    """
    by_kind: dict[tuple[str, str, int, str], list[Point]] = defaultdict(list)
    for one in measured:
        wanted = one.wanted
        key = (wanted.op, wanted.algorithm, wanted.ranks, wanted.dtype)
        by_kind[key].append(point(wanted.bytes, one.samples_s))
    return tuple(_curve(*key, points) for key, points in by_kind.items())


def _curve(op: str, algorithm: str, ranks: int, dtype: str, points: Sequence[Point]) -> Curve:
    ordered = sorted(points, key=lambda one: one.bytes)
    if len(ordered) < FEWEST_SIZES:
        raise UsageError(
            f"{op} at {ranks} ranks has {len(ordered)} sizes, a calibration needs {FEWEST_SIZES}; "
            "widen --min and --max or lower --factor"
        )
    out = [k for k in range(1, len(ordered) - 1) if k % _HELD_OUT_EVERY == 1]
    seen = [one for k, one in enumerate(ordered) if k not in out]
    fitted = fit(seen)

    def held(one: Point) -> HeldOut:
        def error(predicted_s: float) -> float:
            return predicted_s / one.median_s - 1

        return HeldOut(
            bytes=one.bytes,
            median_s=one.median_s,
            alpha_beta=error(fitted.alpha_s + fitted.beta_s_per_byte * one.bytes),
            piecewise=error(piecewise_s(fitted.pieces, one.bytes)),
            interpolated=error(interpolated_s(seen, one.bytes, fitted.beta_s_per_byte)),
        )

    return Curve(
        op=op,
        algorithm=algorithm,
        ranks=ranks,
        dtype=dtype,
        alpha_s=fitted.alpha_s,
        beta_s_per_byte=fitted.beta_s_per_byte,
        pieces=fitted.pieces,
        trend=fitted.trend,
        points=tuple(ordered),
        held_out=tuple(held(ordered[k]) for k in out),
    )


def reducing_of(curves: Sequence[Curve]) -> tuple[Reducing, ...]:
    """Return what adding costs: an all-reduce moves a buffer twice as far as an all-gather does, and adds it once.

    beta(all_reduce) = 2 (n-1)/n b + (n-1)/n gamma and beta(all_gather) = (n-1)/n b, for a link of b seconds per byte.
    """
    by_kind = {(one.op, one.algorithm, one.ranks): one for one in curves}
    found = []
    for (op, algorithm, ranks), curve in by_kind.items():
        gathering = by_kind.get(("all_gather", algorithm, ranks))
        if op != "all_reduce" or gathering is None:
            continue
        gamma = (curve.beta_s_per_byte - 2 * gathering.beta_s_per_byte) * ranks / (ranks - 1)
        reason = (
            "" if gamma > 0 else "an all-reduce takes no longer than two all-gathers: adding is hidden or too cheap"
        )
        found.append(
            Reducing(algorithm=algorithm, ranks=ranks, gamma_s_per_byte=gamma if gamma > 0 else None, reason=reason)
        )
    return tuple(found)
