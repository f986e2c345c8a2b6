"""A Finding is what one law says of one plug-in; a Verdict is all of them."""

from __future__ import annotations

from typing import Literal

import msgspec

Outcome = Literal["holds", "broken", "not applicable"]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What one law says.

    Attributes:
        law: its name.
        outcome: whether it holds; "not applicable" has its reason in `detail`.
        detail: what was seen, in a sentence.
    """

    law: str
    outcome: Outcome
    detail: str = ""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What all laws say of one plug-in at one world size.

    Attributes:
        kind: "strategy", "compressor", "workload" or "probe".
        name: the plug-in, as the user wrote it.
        world_size: ranks it was examined in; None where there were none.
        findings: one per law.
        seconds: what the examination took, part by part.
    """

    kind: str
    name: str
    world_size: int | None
    findings: tuple[Finding, ...]
    seconds: dict[str, float] = {}

    @property
    def broken(self) -> tuple[Finding, ...]:
        """The laws it breaks."""
        return tuple(f for f in self.findings if f.outcome == "broken")

    @property
    def passed(self) -> bool:
        """Whether it breaks no law."""
        return not self.broken


def held(law: str, detail: str = "") -> Finding:
    """Return the finding of a law that holds."""
    return Finding(law=law, outcome="holds", detail=detail)


def broken(law: str, detail: str) -> Finding:
    """Return the finding of a law that is broken, and how."""
    return Finding(law=law, outcome="broken", detail=detail)


def not_applicable(law: str, why: str) -> Finding:
    """Return the finding of a law that says nothing here, and why."""
    return Finding(law=law, outcome="not applicable", detail=why)


def judged(law: str, problem: str | None, detail: str = "") -> Finding:
    """Return the finding of a law that is broken exactly if there is a problem."""
    return held(law, detail) if problem is None else broken(law, problem)
