"""The laws of compressors: what ranks make of known gradients is what each compressor declares."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Final

import torch
from torch import Tensor

from parbench.api import Compressor, all_reduced
from parbench.conformance.compressed import SHAPES, Named, Ranks, drawn, steps_of
from parbench.conformance.draws import contraction, unbiased
from parbench.conformance.findings import Finding, judged, not_applicable
from parbench.conformance.jobs import one_thread, random_states

Law = Callable[[Compressor, int], str | None]

_STEPS: Final = 3


def compressor_laws(compressor: Compressor, world_size: int) -> list[Finding]:
    """Return the findings of every law.

    Args:
        compressor: what is judged; it is copied.
        world_size: ranks that exchange.
    """
    with one_thread(), torch.no_grad():
        return list(_findings(compressor, world_size))


def _findings(compressor: Compressor, world_size: int) -> Iterator[Finding]:
    for law, check in _ALWAYS:
        yield judged(law, _guarded(check, compressor, world_size))
    for law, applies, why, check in _DECLARED:
        if applies(compressor):
            yield judged(law, _guarded(check, compressor, world_size))
        else:
            yield not_applicable(law, why)


def _guarded(check: Law, compressor: Compressor, world_size: int) -> str | None:
    try:
        return check(compressor, world_size)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a plug-in may raise anything, and breaks only this law
        return f"raised {type(error).__name__}: {str(error).partition(chr(10))[0][:300]}"


def _same_average(compressor: Compressor, world_size: int) -> str | None:
    for number, step in enumerate(steps_of(compressor, world_size, _STEPS)):
        for name, first in step.averages[0].items():
            if any(not torch.equal(first, other[name]) for other in step.averages[1:]):
                return f"step {number}: ranks hold different averages of {SHAPES[name]}"
    return None


def _alone(compressor: Compressor, world_size: int) -> str | None:
    ranks = Ranks(compressor, world_size)
    for number in range(_STEPS):
        given = drawn(number, world_size)
        ranks.step(given)
        for mine, fresh in zip(given, drawn(number, world_size), strict=True):
            wrong = [name for name in mine if not torch.equal(mine[name], fresh[name])]
            if wrong:
                return f"it changes the gradient of {SHAPES[wrong[0]]} that it is given"
    return None


def _shapes(compressor: Compressor, world_size: int) -> str | None:
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        ranks = Ranks(compressor, world_size)
        for number in range(_STEPS):
            step = ranks.step(drawn(number, world_size, dtype))
            for name, grad in step.given[0].items():
                for what, found in (("average", step.averages[0][name]), ("contribution", step.contributions[0][name])):
                    if found.shape != grad.shape or found.dtype != dtype:
                        return f"the {what} of {tuple(grad.shape)}, {dtype} is {tuple(found.shape)}, {found.dtype}"
                    if not bool(found.isfinite().all()):
                        return f"the {what} of {tuple(grad.shape)}, {dtype} is not finite"
    return None


def _hard_numbers(compressor: Compressor, world_size: int) -> str | None:
    """Constants, negatives, ties, few numbers among zeros, and sizes near both ends of single precision."""
    line = torch.arange(1200.0)
    kinds: dict[str, Tensor] = {
        "constants": torch.full((1200,), 0.5),
        "negative numbers": -1 - line,
        "ties": (line % 3) - 1,
        "one number among zeros": torch.zeros(1200).index_fill_(0, torch.tensor(700), 3.0),
        "huge numbers": (line / 600 - 1) * min(1e37, compressor.largest / 2),
        "tiny numbers": (line - 600) * 1e-42,
    }
    ranks = Ranks(compressor, world_size)
    for _ in range(_STEPS):
        step = ranks.step([kinds for _ in range(world_size)])
        for name, average in step.averages[0].items():
            if not bool(average.isfinite().all()):
                return f"the average of {name} is not finite"
    return None


def _zero(compressor: Compressor, world_size: int) -> str | None:
    ranks = Ranks(compressor, world_size)
    for number in range(_STEPS):
        step = ranks.step([{name: torch.zeros(shape) for name, shape in SHAPES.items()}] * world_size)
        for name in SHAPES:
            if bool(step.averages[0][name].any()) or bool(step.contributions[0][name].any()):
                return f"step {number}: zeros of {SHAPES[name]} become something else"
    return None


def _repeats(compressor: Compressor, world_size: int) -> str | None:
    before = random_states()
    one, two = (list(steps_of(compressor, world_size, _STEPS)) for _ in range(2))
    moved = [name for name, state in random_states().items() if state != before[name]]
    if moved:
        return f"it draws from the global random state of {moved[0]}; use a generator made from its seed"
    for a, b in zip(one, two, strict=True):
        if any(not torch.equal(a.averages[0][name], b.averages[0][name]) for name in SHAPES):
            return "the same seed gives two different averages"
    return None


def _by_key(compressor: Compressor, world_size: int) -> str | None:
    """In the second step names come in another order and in other groups; in the third as in the first."""
    if compressor.per == "group":
        return None  # its key is the group, and what it is given is another tensor in another group
    together, apart = (Ranks(compressor, world_size) for _ in range(2))
    for number in range(_STEPS):
        given = drawn(number, world_size)
        groups = [[name] for name in reversed(list(SHAPES))] if number == 1 else None
        one, two = together.step(given), apart.step(given, groups)
        for name in SHAPES:
            a, b = one.averages[0][name], two.averages[0][name]
            if not torch.allclose(a, b, rtol=1e-5, atol=1e-6):
                return f"step {number}: the average of {SHAPES[name]} follows what else is in its group"
    return None


def _bytes(compressor: Compressor, world_size: int) -> str | None:
    ranks = Ranks(compressor, world_size)
    said = ranks.compressors[0].sent(list(SHAPES.values()), 4, ranks.carriage)
    if said is None:
        return None
    for number in range(_STEPS):
        seen = ranks.step(drawn(number, world_size)).sent
        for op in seen.keys() | said.keys():
            if seen.get(op, 0) != said.get(op, 0):
                counted, closed = float(seen.get(op, 0)), float(said.get(op, 0))
                return f"step {number}: {op} sends {counted:.1f} bytes, it says {closed:.1f}"
    return None


def _never_more(compressor: Compressor, world_size: int) -> str | None:
    dense = sum(all_reduced(4 * math.prod(shape), world_size) for shape in SHAPES.values())
    # What ranks first tell each other, where they must: eight bytes a tensor.
    agreed = Fraction((world_size - 1) * 8 * len(SHAPES))
    for number, step in enumerate(steps_of(compressor, world_size, _STEPS)):
        sent = sum(step.sent.values())
        if sent > dense + agreed:
            return f"step {number}: it sends {float(sent):.0f} bytes of what takes {float(dense):.0f} as it is"
    return None


def _linear(compressor: Compressor, world_size: int) -> str | None:
    for number, step in enumerate(steps_of(compressor, world_size, _STEPS)):
        for name, average in step.averages[0].items():
            parts = [one[name].double() for one in step.contributions]
            mean = torch.stack(parts).mean(0)
            size = max((float(part.abs().max()) for part in parts if part.numel()), default=0.0)
            allowed = (1e-5 + world_size * compressor.roundoff) * size
            off = float((mean - average).abs().max()) if average.numel() else 0.0
            if not off <= allowed:
                return f"step {number}: of {SHAPES[name]} the mean of contributions is off by {off:.3g}"
    return None


def _survives(compressor: Compressor, world_size: int) -> str | None:
    """What one rank alone contributed, given again in the same step, comes back."""
    for step in range(_STEPS):
        given: Named = drawn(step, 1)[0]
        for _ in range(2):
            ranks = Ranks(compressor, 1)
            ranks.compressors[0].step = step
            passed = ranks.step([given]).contributions[0]
            before, given = given, passed
        for name, first in before.items():
            size = float(first.abs().max()) if first.numel() else 0.0
            off = float((given[name] - first).abs().max()) if first.numel() else 0.0
            if off > 1e-4 * size:
                return f"of {SHAPES[name]} a second pass changes {off:.3g} of {size:.3g}"
    return None


_ALWAYS: Final[tuple[tuple[str, Law], ...]] = (
    ("ranks get the same average", _same_average),
    ("leaves the gradients it is given alone", _alone),
    ("takes any shape and type", _shapes),
    ("takes constants, ties, zeros, huge and tiny numbers", _hard_numbers),
    ("zero in, zero out", _zero),
    ("same seed, same average; draws nothing global", _repeats),
    ("never sends more than the gradients are", _never_more),
)
_DECLARED: Final[tuple[tuple[str, Callable[[Compressor], bool], str, Law], ...]] = (
    (
        "keeps its state by name",
        lambda one: one.per == "tensor",
        "it is given whole groups",
        _by_key,
    ),
    (
        "sends the bytes it says",
        lambda one: one.sent([(9,)], 4, Ranks(one, 2).carriage) is not None,
        "how much it sends follows the numbers it is given",
        _bytes,
    ),
    (
        "the average is the mean of contributions",
        lambda one: one.linear,
        "it declares that it is not",
        _linear,
    ),
    (
        "comes nearer to the gradient than nothing does",
        lambda one: one.claims == "contraction",
        "it claims no contraction",
        contraction,
    ),
    (
        "is the gradient on average over draws",
        lambda one: one.claims == "unbiased",
        "it does not claim to be unbiased",
        unbiased,
    ),
    (
        "what it can represent survives a second pass",
        lambda one: one.repeatable,
        "it declares that it is not repeatable",
        _survives,
    ),
)
