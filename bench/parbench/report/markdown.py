"""Markdown of verdicts, as a pull request or `$GITHUB_STEP_SUMMARY` shows them: what changed is on top."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from parbench.comparison import Comparison
from parbench.report.comparison import scaled_texts
from parbench.report.lines import HEADINGS, Line, below, differing, lines_of, title
from parbench.report.words import visible

_SCALING = ("workload", "strategy", "scaling", "ranks", "step time", "speed-up", "efficiency", "overhead", "base")


def comparison_markdown(comparison: Comparison) -> str:
    """Return the comparison as Markdown; names from files cannot break out of their cell (S3)."""
    return "\n".join(_parts(comparison)) + "\n"


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table of plain text."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(plain(text) for text in line)} |" for line in lines)


def plain(text: str) -> str:
    """Return text that Markdown and HTML show as it is."""
    if text == "---":
        return text
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("\n", " ")
    return re.sub(r"([\\`*_{}\[\]|#~])", r"\\\1", escaped)


def _parts(comparison: Comparison) -> Iterator[str]:
    yield f"### {plain(title(comparison))}\n"
    yield from (f"- {plain(visible(sentence, 500))}" for sentence in comparison.fixed)
    for sentence in differing(comparison.differs):
        yield f"- differs: {plain(sentence)}"
    lines = lines_of(comparison, changes_first=True)
    changed = [one for one in lines if one.verdict in ("worse", "better", "changed", "missing")]
    others = [one for one in lines if one not in changed]
    yield ""
    yield table(HEADINGS, [one.texts for one in changed]) if changed else _none_named(others)
    yield ""
    yield from (f"- {plain(sentence)}" for sentence in below(comparison))
    if others:
        rows = [(*one.texts, one.why) for one in others]
        summary = f"the others of {len(lines)} comparisons: {_counted(others)}"
        hidden = table((*HEADINGS, "why"), rows)
        yield f"\n<details><summary>{summary}</summary>\n\n{hidden}\n\n</details>"
    if comparison.scaling:
        yield "\n" + table(_SCALING, [scaled_texts(one) for one in comparison.scaling])


def _none_named(lines: Sequence[Line]) -> str:
    """Say that nothing changed only where that is known: what is inconclusive may have."""
    if all(one.verdict == "same" for one in lines):
        return "Nothing changed."
    return f"No change can be named: {_counted(lines)}."


def _counted(lines: Sequence[Line]) -> str:
    found = Counter(one.verdict for one in lines)
    return ", ".join(f"{number} {verdict}" for verdict, number in found.most_common())
