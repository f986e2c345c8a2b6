"""Schedules with numbers that they take, drawn at random, and what their papers say about them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from hypothesis import settings
from hypothesis import strategies as st

from parbench.registry import Registry
from parbench.schedule import Costs, Schedule

REGISTRY = Registry()
MOST_RANKS, MOST_MICROBATCHES = 7, 20

quick = settings(max_examples=80, deadline=None, database=None, derandomize=True)


@dataclass(frozen=True)
class Case:
    text: str
    ranks: int
    microbatches: int

    @cached_property
    def schedule(self) -> Schedule:
        return REGISTRY.resolve("schedule", self.text)

    @cached_property
    def order(self) -> list[list[tuple[str, int, int]]]:
        """What each rank does, as plain data: kind, micro-batch, chunk."""
        made = self.schedule
        every = [made.actions(rank, self.ranks, self.microbatches) for rank in range(self.ranks)]
        return [[(one.kind, one.microbatch, one.chunk) for one in actions] for actions in every]

    @property
    def chunks(self) -> int:
        return chunks(self.text)

    def stage(self, rank: int, chunk: int) -> int:
        """The papers' placement: round and round for interleaved, down and up for V shapes."""
        if self.text in ("zbv", "dualpipev"):
            return rank if chunk == 0 else 2 * self.ranks - 1 - rank
        return chunk * self.ranks + rank

    def place(self, stage: int) -> tuple[int, int]:
        return self._places[stage]

    @cached_property
    def _places(self) -> dict[int, tuple[int, int]]:
        return {self.stage(r, c): (r, c) for r in range(self.ranks) for c in range(self.chunks)}


def chunks(text: str) -> int:
    if text.startswith("interleaved"):
        return int(text.removeprefix("interleaved(v=").removesuffix(")"))
    return 2 if text in ("zbv", "dualpipev") else 1


def fit(text: str) -> int:
    """D of DAPPLE."""
    return int(text.partition("fit=")[2].removesuffix(")") or 10**9)


ALTERNATING = ("1f1b", "eager-1f1b", "dapple-pa", "dapple-pb")
FITTED = tuple(f"dapple-{policy}(fit={d})" for policy in ("pa", "pb") for d in (1, 2, 3, 5, 8, 13))
INTERLEAVED = tuple(f"interleaved(v={v})" for v in (2, 3, 4))
HALVED = ("zb-h1", "zb-h2")
VSHAPED = ("zbv", "dualpipev")
TEXTS = ("gpipe", *ALTERNATING, *FITTED, *INTERLEAVED, *HALVED, *VSHAPED)


@st.composite
def cases(draw: st.DrawFn, texts: tuple[str, ...] = TEXTS) -> Case:
    """Draw a schedule and numbers that it takes: a multiple of P if interleaved, 2P or more for DualPipeV."""
    text, ranks = draw(st.sampled_from(texts)), draw(st.integers(1, MOST_RANKS))
    microbatches = draw(st.integers(1, MOST_MICROBATCHES))
    if text.startswith("interleaved"):
        microbatches = ranks * (1 + microbatches % 4)
    if text == "dualpipev":
        microbatches += 2 * ranks - 1
    return Case(text, ranks, microbatches)


_parts = st.fractions(min_value=Fraction(1, 9), max_value=9, max_denominator=9)
costs: st.SearchStrategy[Costs] = st.builds(Costs, _parts, _parts, _parts) | st.just(Costs())
alike: st.SearchStrategy[Costs] = _parts.map(lambda part: Costs(part, part, part))

# ---- what the papers say: most live micro-batches of rank i, from the start of F to the end of B or W


LIVE: dict[str, Callable[[int, int, int, str], int]] = {
    # GPipe keeps all, 2.3
    "gpipe": lambda i, p, m, text: m,
    # Megatron 2.2.1: at most as many as stages follow, this one counted
    "1f1b": lambda i, p, m, text: min(p - i, m),
    # AlpaComm: min(m, 2(n-i)-1) warm-up forwards
    "eager-1f1b": lambda i, p, m, text: min(2 * (p - i) - 1, m),
    # DAPPLE: K_i
    "dapple-pa": lambda i, p, m, text: min(p - i, fit(text), m),
    "dapple-pb": lambda i, p, m, text: min(2 * (p - i) - 1, fit(text), m),
    # Megatron's warm-up of (v-1) p + 2(p-i-1) forwards, and the one of the first pair
    "interleaved": lambda i, p, m, text: min((chunks(text) - 1) * p + 2 * (p - i - 1) + 1, m * chunks(text)),
    # Zero Bubble 2.3: (p-i) M_B + i M_W and (2(p-i)-1) M_B + 2i M_W, for i from 0
    "zb-h1": lambda i, p, m, text: min((p - i) + i, m),
    "zb-h2": lambda i, p, m, text: min((2 * (p - i) - 1) + 2 * i, m),
    # Zero Bubble 6: p whole activations, as 1F1B's first stage, in halves; fewer if there are not 2p-1 micro-batches
    "zbv": lambda i, p, m, text: 2 * p if m >= 2 * p - 1 else min(m, 2 * p - 1 - i) + min(m, i + 1),
    # DualPipe: PP + 1 where PP = 2p stages
    "dualpipev": lambda i, p, m, text: 2 * p + 1,
}


def family(text: str) -> str:
    return text.partition("(")[0]
