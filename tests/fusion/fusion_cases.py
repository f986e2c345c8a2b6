"""Profiles drawn at random in whole numbers, so that floats are exact, and the published recursion once more."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

from hypothesis import settings
from hypothesis import strategies as st

from parbench.fusion import AlphaBeta, FusionRule, Gradient, Link, Plan
from parbench.fusion_check import planned
from parbench.registry import Registry

REGISTRY = Registry()
NAMES = ["bayesian", "buckets", "lazy", "merged", "mgwfbp", "optimal", "per_tensor", "searched", "slices"]
TEXTS = (
    *NAMES,
    "buckets(mb=0.0001, first_mb=0.00002)",
    "lazy(threshold_mb=0.0001)",
    "searched(groups=3)",
    "slices(elements=1)",
    "slices(elements=7)",
)

quick = settings(max_examples=60, deadline=None, database=None, derandomize=True)


@dataclass(frozen=True)
class Profile:
    ready: tuple[int, ...]
    sizes: tuple[int, ...]
    alpha: int = 0
    beta: float = 0

    @property
    def gradients(self) -> list[Gradient]:
        pairs = enumerate(zip(self.ready, self.sizes, strict=True))
        return [Gradient(name=f"p{i}", elements=size, bytes=4 * size, ready_s=ready) for i, (ready, size) in pairs]

    @property
    def link(self) -> AlphaBeta:
        return AlphaBeta(self.alpha, self.beta)

    def time(self, message_bytes: float) -> float:
        return self.alpha + self.beta * message_bytes


@st.composite
def profiles(draw: st.DrawFn, most: int = 14) -> Profile:
    number = draw(st.integers(1, most))
    gaps = draw(st.lists(st.integers(0, draw(st.sampled_from((1, 9, 400)))), min_size=number, max_size=number))
    sizes = draw(st.lists(st.integers(1, draw(st.sampled_from((1, 9, 60)))), min_size=number, max_size=number))
    ready = tuple(sum(gaps[: i + 1]) for i in range(number))
    return Profile(ready, tuple(sizes), draw(st.integers(0, 300)), draw(st.integers(0, 5)))


def random_profile(source: random.Random, most: int) -> Profile:
    """Of several kinds: alike gradients, a few large ones, a slow start, gaps of about the start-up time."""
    number, alpha, beta = source.randint(1, most), source.randint(0, 200), source.randint(0, 3)
    gap = source.choice((1, 20, max(1, alpha - 1), 2 * alpha + 1, 500))
    size = source.choice((1, 10, 100))
    ready, now = [], 0
    for _ in range(number):
        now += source.randint(0, gap) if source.random() < 0.7 else gap
        ready.append(now)
    sizes = [source.randint(1, size) * (source.choice((1, 1, 1, 30))) for _ in range(number)]
    return Profile(tuple(ready), tuple(sizes), alpha, beta)


@functools.cache
def rule(text: str) -> FusionRule:
    return REGISTRY.resolve("fusion", text)


def plan_of(text: str, profile: Profile, link: Link | None = None) -> Plan:
    return planned(rule(text), profile.gradients, link or profile.link, 4)


def members(plan: Plan) -> list[list[int]]:
    """Gradients of each group, for plans of whole gradients."""
    return [[piece.gradient for piece in group.pieces] for group in plan.groups]


def recursion(groups: Sequence[Sequence[int]], profile: Profile, time: Callable[[float], float]) -> float:
    """MG-WFBP's tau_c(1) + t_c(1), from the start of backward."""
    end = 0.0
    for group in groups:
        end = max(end, profile.ready[group[-1]]) + time(4 * sum(profile.sizes[i] for i in group))
    return end


def partitions(number: int) -> Iterator[list[list[int]]]:
    for count in range(number):
        for cuts in combinations(range(1, number), count):
            yield [list(range(a, b)) for a, b in pairwise((0, *cuts, number))]
