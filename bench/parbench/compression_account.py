"""What compression saves and costs: how many fewer bytes are sent, and on which links that is worth its time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

from parbench.cases import Measured
from parbench.facts import Inspected
from parbench.record import Metric, Warned

_DENSE: Final = "dense_bytes"
_BITS: Final = 8


def compression_metrics(m: Measured) -> dict[str, Metric]:
    """Return the metrics of compression; none where nothing is compressed."""
    one = _busiest(m.inspected)
    if one is None:
        return {}
    return {"compression_ratio": _ratio(one), "compression_pays_below_bits_per_s": _pays_below(one)}


def compression_cautions(m: Measured) -> Sequence[Warned]:
    """Return what to know before believing that compression helps, or that gradients were what they seem."""
    return [*_costs_more(m), *_not_finite(m)]


def _busiest(ranks: Sequence[Inspected]) -> Inspected | None:
    """Return the rank that sends most, if it compresses."""
    compressing = [one for one in ranks if "compressor" in one.notes]
    return max(compressing, key=lambda one: math.fsum(one.sent.values()), default=None)


def _ratio(one: Inspected) -> Metric:
    dense, sent = _number(one, _DENSE), math.fsum(one.sent.values())
    if dense is None or not sent:
        return Metric.unavailable("ratio", "higher", "it is not known what the gradients would take as they are")
    source = "what gradients would take by the same collective over what was sent: values, indices, scales, padding"
    return Metric(value=dense / sent, unit="ratio", better="higher", n=1, source=source)


def _pays_below(one: Inspected) -> Metric:
    unit = "bit/s"
    dense, sent = _number(one, _DENSE), math.fsum(one.sent.values())
    encode_s, decode_s = _number(one, "encode_s"), _number(one, "decode_s")
    if dense is None or encode_s is None or decode_s is None or not encode_s + decode_s:
        return Metric.unavailable(unit, "higher", "the time that compression takes is not known here")
    if sent >= dense:
        return Metric.unavailable(unit, "higher", "it does not send less than the gradients are: it pays on no link")
    return Metric(
        value=_BITS * (dense - sent) / (encode_s + decode_s),
        unit=unit,
        better="higher",
        n=1,
        source="bytes saved over the time to encode and decode, means over the steps of a rank",
        quality="estimated",
        reason="as if nothing overlapped: where backward hides the time of either, it is another rate",
    )


def _costs_more(m: Measured) -> Iterator[Warned]:
    one = _busiest(m.inspected)
    pays_below = _pays_below(one).value if one is not None else None
    if pays_below is None or m.links is None:
        return
    rate = min(m.links.rate_bits_per_s)
    if rate > pays_below:
        yield Warned(
            code="compression_costs_more",
            message=(
                f"to compress takes longer than it saves here: it pays below {pays_below / 1e6:.3g} Mbit/s, and the "
                f"links carry {rate / 1e6:.3g} Mbit/s"
            ),
            advice="compare with the same strategy and compressor=none, or use a cheaper compressor",
        )


def _not_finite(m: Measured) -> Iterator[Warned]:
    counts = {rank: _number(one, "non_finite_gradients") for rank, one in enumerate(m.inspected)}
    found = {rank: count for rank, count in counts.items() if count}
    if found:
        rank, count = max(found.items(), key=lambda pair: pair[1])
        yield Warned(
            code="non_finite_gradients",
            message=f"{count:.0f} numbers of gradients of rank {rank} were not finite; compression took them for zero",
            advice="lower the learning rate, or look for what makes them; without compression the weights would follow",
        )


def _number(one: Inspected, name: str) -> float | None:
    value = one.notes.get(name)
    return float(value) if isinstance(value, int | float) else None
