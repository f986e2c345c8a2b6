"""The picture of a schedule as SVG: a row per rank, a bar per action, its times as a hint; for light and dark pages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape

from parbench.report import schedule_words as words
from parbench.report.schedule_facts import KINDS, ScheduleFacts
from parbench.report.words import number
from parbench.timeline import Timed

_ROW, _BAR, _LEFT, _TOP, _LINE = 26, 22, 70, 34, 18  # heights and margins, in pixels
_CHARACTER = 7.2
_WIDEST, _NARROWEST = 2400.0, 640.0  # of the rows

# Bars keep their light fill and dark text in both; what lies on the page changes with it.
_STYLE = """
text { font: 12px ui-monospace, Menlo, Consolas, monospace; fill: #1b1b1b; }
.title { font-weight: bold; } .idle { fill: #e6e6e6; } .F { fill: #9cc9f0; } .B { fill: #9fd6a4; }
.I { fill: #8fd8d2; } .W { fill: #e5b3e0; } rect { stroke: #5a5a5a; stroke-width: .5; } .bar { text-anchor: middle; }
@media (prefers-color-scheme: dark) { text { fill: #eeeeee; } text.bar { fill: #1b1b1b; } .idle { fill: #3a3a3a; } }
"""


def schedule_svg(facts: ScheduleFacts) -> bytes:
    """Return the picture as an SVG document, in UTF-8."""
    labels = max(len(facts.label(one.action)) for line in facts.lines for one in line)
    shortest = min(one.end - one.start for line in facts.lines for one in line)
    wide = max(_NARROWEST, min(_WIDEST, float(facts.length / shortest) * (labels * _CHARACTER + 4)))
    scale = wide / float(facts.length)
    below = [words.legend(facts), words.costs(facts), *words.findings(facts), words.source(facts)]
    bottom = _TOP + _ROW * facts.ranks + 8
    across = max(_LEFT + wide + 10, 10 + _CHARACTER * max(map(len, below)) + 10)
    down = bottom + _LINE * len(below) + 6
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {across:.0f} {down}" width="{across:.0f}" '
        f'height="{down}" role="img" aria-labelledby="title description">',
        f'<title id="title">{escape(words.title(facts))}</title>',
        f'<desc id="description">{escape(" ".join(f"{line}." for line in words.findings(facts)))}</desc>',
        f"<style>{_STYLE}</style>",
        f'<text class="title" x="10" y="20">{escape(words.title(facts))}</text>',
        *(part for rank, line in enumerate(facts.lines) for part in _rank(line, rank, facts, scale)),
        *(f'<text x="10" y="{bottom + _LINE * (k + 1)}">{escape(line)}</text>' for k, line in enumerate(below)),
        "</svg>",
    ]
    return ("\n".join(parts) + "\n").encode()


def _rank(line: Sequence[Timed], rank: int, facts: ScheduleFacts, scale: float) -> Iterator[str]:
    top = _TOP + _ROW * rank
    middle = top + _BAR / 2 + 4
    yield f'<text x="10" y="{middle:.0f}">rank {rank}</text>'
    yield f'<rect class="idle" x="{_LEFT}" y="{top}" width="{float(facts.length) * scale:.2f}" height="{_BAR}"/>'
    for one in line:
        left, wide = _LEFT + float(one.start) * scale, float(one.end - one.start) * scale
        label = facts.label(one.action)
        hint = f"{label}: {KINDS[one.action.kind]}, from {number(float(one.start))} to {number(float(one.end))}"
        yield (
            f'<rect class="{one.action.kind}" x="{left:.2f}" y="{top}" width="{wide:.2f}" height="{_BAR}">'
            f"<title>{escape(hint)}</title></rect>"
        )
        if wide >= len(label) * _CHARACTER:
            yield f'<text class="bar" x="{left + wide / 2:.2f}" y="{middle:.0f}">{escape(label)}</text>'
