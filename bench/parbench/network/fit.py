"""A fit turns times by size into a start-up cost alpha, a cost per byte beta, and pieces where one line is not enough.

T(S) = alpha + beta S. Alpha is the time of the smallest messages, back to back; beta comes from the largest only:
fitted to all sizes it would be off by tens of percent exactly where most bytes travel (a kink bends the line).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations, pairwise

import msgspec
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# Messages from the largest size down to this part of it say what a byte costs.
_LARGE = 1 / 8
_FEWEST_LARGE = 3
# A line is believed up to this relative error, or three times the noise of the medians, whichever is more.
_TOLERANCE = 0.05
_MOST_PIECES = 4
_FEWEST_IN_A_PIECE = 2
# Standard error of a median of normal noise, over its MAD / sqrt(n).
_MEDIAN_ERROR = 1.4826 * 1.2533


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """The measured time of one size; `error_s` is the standard error of the median."""

    bytes: int
    median_s: float
    error_s: float
    n: int


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """A line that holds from `from_bytes` on."""

    from_bytes: int
    alpha_s: float
    beta_s_per_byte: float


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """What was fitted.

    Attributes:
        alpha_s: start-up cost.
        beta_s_per_byte: cost per byte of the buffer.
        pieces: the line, or several where its residuals show a trend; in order of size, the first from 0.
        trend: why there are several, "" where there is one.
    """

    alpha_s: float
    beta_s_per_byte: float
    pieces: tuple[Piece, ...]
    trend: str = ""


def point(nbytes: int, samples_s: Sequence[float]) -> Point:
    """Return the median of samples with its standard error."""
    values = np.asarray(samples_s, dtype=np.float64)
    middle = float(np.median(values))
    spread = float(np.median(np.abs(values - middle)))
    return Point(bytes=nbytes, median_s=middle, error_s=_MEDIAN_ERROR * spread / math.sqrt(len(values)), n=len(values))


def fit(points: Sequence[Point]) -> Fit:
    """Fit points of different sizes.

    Raises:
        ValueError: there are fewer than three sizes.
    """
    ordered = sorted(points, key=lambda one: one.bytes)
    if len({one.bytes for one in ordered}) < 3:
        raise ValueError(f"{len(ordered)} sizes are too few for a fit; measure at least 3")
    alpha_s, beta = _line(ordered)
    straight = Piece(from_bytes=0, alpha_s=alpha_s, beta_s_per_byte=beta)
    residuals = np.array([one.median_s / line_s(straight, one.bytes) - 1 for one in ordered])
    noise = np.maximum([one.error_s / one.median_s for one in ordered], _roughness(residuals))
    trend = trend_of(residuals, noise, [one.bytes for one in ordered])
    pieces = _pieces(ordered, noise) if trend else (straight,)
    if len(pieces) == 1:
        pieces, trend = (straight,), trend and f"{trend}, and no kink explains it"
    return Fit(alpha_s=alpha_s, beta_s_per_byte=beta, pieces=pieces, trend=trend)


def line_s(piece: Piece, nbytes: int) -> float:
    """Return the time of a size on a line."""
    return piece.alpha_s + piece.beta_s_per_byte * nbytes


def piecewise_s(pieces: Sequence[Piece], nbytes: int) -> float:
    """Return the time of a size on the piece it belongs to."""
    return line_s(next(piece for piece in reversed(pieces) if nbytes >= piece.from_bytes), nbytes)


def interpolated_s(points: Sequence[Point], nbytes: int, beta_s_per_byte: float) -> float:
    """Return the time of a size between measured ones; beyond the largest a byte costs `beta_s_per_byte`."""
    ordered = sorted(points, key=lambda one: one.bytes)
    last = ordered[-1]
    if nbytes > last.bytes:
        return last.median_s + beta_s_per_byte * (nbytes - last.bytes)
    return float(np.interp(nbytes, [one.bytes for one in ordered], [one.median_s for one in ordered]))


def trend_of(residuals: Floats, noise: Floats, sizes: Sequence[int]) -> str:
    """Say where residuals of neighbouring sizes leave the line together by more than noise does, or ""."""
    allowed = np.maximum(_TOLERANCE, 3 * noise)
    beyond = np.abs(residuals) > allowed
    for k, (first, second) in enumerate(pairwise(range(len(residuals)))):
        if beyond[first] and beyond[second] and residuals[first] * residuals[second] > 0:
            worst = first if abs(residuals[first]) > abs(residuals[second]) else second
            return (
                f"from {sizes[k]} to {sizes[k + 1]} bytes times are {residuals[worst] * 100:+.0f} % from the line, "
                f"{allowed[worst] * 100:.0f} % would be noise"
            )
    return ""


def _roughness(residuals: Floats) -> float:
    """Return how far neighbouring sizes scatter around each other: what no line, however many pieces, explains."""
    bends = residuals[1:-1] - (residuals[:-2] + residuals[2:]) / 2
    return float(np.median(np.abs(bends))) * 1.4826 / math.sqrt(1.5)


def _line(ordered: Sequence[Point]) -> tuple[float, float]:
    """Return alpha of the smallest message and beta of the large ones, each corrected for the other."""
    large = [one for one in ordered if one.bytes >= ordered[-1].bytes * _LARGE]
    large = large if len(large) >= _FEWEST_LARGE else list(ordered[-_FEWEST_LARGE:])
    sizes = np.array([one.bytes for one in large], dtype=np.float64)
    times = np.array([one.median_s for one in large])
    alpha_s, beta = ordered[0].median_s, 0.0
    for _ in range(5):
        beta = max(0.0, float(((times - alpha_s) * sizes).sum() / (sizes**2).sum()))
        small = [one for one in ordered if beta * one.bytes <= _TOLERANCE * one.median_s] or [ordered[0]]
        alpha_s = max(0.0, float(np.median([one.median_s - beta * one.bytes for one in small])))
    return alpha_s, beta


def _pieces(ordered: Sequence[Point], noise: Floats) -> tuple[Piece, ...]:
    """Return the number of pieces that the Bayesian information criterion prefers, each where it fits best."""
    weights = 1 / np.maximum(noise, _TOLERANCE / 5)
    best: tuple[Piece, ...] = ()
    lowest = math.inf
    for count in range(1, _MOST_PIECES + 1):
        for cuts in combinations(range(_FEWEST_IN_A_PIECE, len(ordered) - _FEWEST_IN_A_PIECE + 1), count - 1):
            borders = [0, *cuts, len(ordered)]
            if any(b - a < _FEWEST_IN_A_PIECE for a, b in pairwise(borders)):
                continue
            fitted = [_weighted(ordered[a:b], weights[a:b]) for a, b in pairwise(borders)]
            cost = sum(one[2] for one in fitted) + 3 * count * math.log(len(ordered))
            if cost < lowest:
                starts = [ordered[a].bytes if a else 0 for a in borders[:-1]]
                lowest = cost
                best = tuple(
                    Piece(from_bytes=at, alpha_s=alpha_s, beta_s_per_byte=beta)
                    for at, (alpha_s, beta, _) in zip(starts, fitted, strict=True)
                )
    return best


def _weighted(points: Sequence[Point], weights: Floats) -> tuple[float, float, float]:
    """Return alpha, beta and the squared relative errors of the line through some points; beta is not negative."""
    sizes = np.array([one.bytes for one in points], dtype=np.float64)
    times = np.array([one.median_s for one in points])
    scale = weights / times
    matrix = np.stack((scale, scale * sizes), axis=1)
    (alpha, beta), *_ = np.linalg.lstsq(matrix, weights, rcond=None)
    if beta < 0:
        alpha, beta = float((weights * scale).sum() / (scale**2).sum()), 0.0
    errors = matrix @ np.array([alpha, beta]) - weights
    return float(alpha), float(beta), float((errors**2).sum())
