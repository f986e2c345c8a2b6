"""A Paper is where an idea comes from; it knows nothing of torch, so that schedules can name theirs too."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Paper:
    """Where an idea comes from."""

    title: str
    url: str
