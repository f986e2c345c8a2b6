"""A canvas is an empty figure of a stated width with a title above and a caption below, ready to be drawn into."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import matplotlib
import matplotlib.style
from matplotlib.figure import Figure

from parbench.report.figures.colours import Palette, palette
from parbench.report.words import several, visible

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

Width = Literal["column", "page"]
Style = Mapping[str, object] | str | Sequence[str]

# Inches of a column and of a page in two columns, as IEEE's journals have them.
WIDTHS_IN: Mapping[Width, float] = {"column": 3.5, "page": 7.16}
# More would be illegible; what is left out is said in the caption.
MOST_ROWS = 24
# Colours of text and of the ground, which a page may replace in the dark.
INK, PAPER, FAINT = "#1b1b1c", "#fffffe", "#d7d7d8"
_FONT, _SMALL = 7.0, 6.0
_CHARACTERS_PER_IN = 22.5  # of the caption
_ROW_IN = 0.21

_STYLE: Mapping[str, object] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Arial", "Helvetica", "sans-serif"],
    "font.size": _FONT,
    "axes.titlesize": _FONT,
    "axes.labelsize": _FONT,
    "legend.fontsize": _SMALL,
    "legend.frameon": False,
    "figure.facecolor": PAPER,
    "axes.facecolor": PAPER,
    "savefig.facecolor": PAPER,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.axisbelow": True,
    "axes.grid.axis": "x",
    "grid.color": FAINT,
    "grid.linewidth": 0.4,
    "lines.linewidth": 1.0,
    "hatch.linewidth": 0.4,
    # Names come from files: a dollar sign in one is no formula.
    "text.parse_math": False,
    "text.usetex": False,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """How a figure is to look.

    Attributes:
        width: of a "column" or of a "page" of a paper.
        style: names of matplotlib's styles, or its parameters by name, which replace parbench's own.
        marks: colour and marker by strategy; made of the frame's strategies where there is none, so that figures of one
            report should be given the same.
    """

    width: Width = "column"
    style: Style = field(default_factory=dict)
    marks: Palette | None = None

    def palette(self, strategies: Sequence[str]) -> Palette:
        """Return the marks of `strategies`."""
        known = self.marks or {}
        missing = [name for name in strategies if name not in known]
        return {**palette(missing), **known} if missing else known


COLUMN = Look()


@contextmanager
def styled(look: Look) -> Iterator[None]:
    """Draw and save inside of this: parbench's style, and what the user replaces of it."""
    with matplotlib.rc_context():
        matplotlib.style.use("default")
        matplotlib.style.use([dict(_STYLE)])
        matplotlib.style.use(look.style if isinstance(look.style, str) else _as_list(look.style))
        yield


def _as_list(style: Mapping[str, object] | Sequence[str]) -> list[dict[str, object] | str]:
    return [dict(style)] if isinstance(style, Mapping) else list(style)


class Canvas:
    """A figure and its axes.

    Args:
        look: width and style.
        rows: bars or lanes, which decide the height; None for a plot of ordinary height.
        panels: axes side by side on a page, below one another in a column.
        title: above all of them.
    """

    def __init__(self, look: Look, *, title: str, rows: int | None = None, panels: int = 1) -> None:
        self.look = look
        across = panels if look.width == "page" else 1
        down = -(-panels // across)
        high = 2.1 if rows is None else 0.5 + _ROW_IN * max(rows, 2)
        self.figure = Figure(figsize=(WIDTHS_IN[look.width], high * down + 0.5), layout="constrained")
        grid = self.figure.subplots(down, across, squeeze=False)
        self.panels: list[Axes] = list(grid.flat)
        self.figure.suptitle(self._wrapped(title, 0.86), x=0.01, ha="left", fontsize=_FONT + 0.5, fontweight="bold")
        for axes in self.panels:
            axes.tick_params(labelsize=_SMALL + 0.5, width=0.6, length=2.5)

    @property
    def axes(self) -> Axes:
        """The first panel."""
        return self.panels[0]

    def caption(self, text: str, frame: pandas.DataFrame) -> None:
        """Write below: what is shown, how many samples, on what machine, which commit."""
        told = " ".join((text.rstrip(".") + ".", *facts_of(frame)))
        self.figure.supxlabel(self._wrapped(told, 1.0), x=0.01, ha="left", fontsize=_SMALL)

    def _wrapped(self, text: str, scale: float) -> str:
        wide = int(WIDTHS_IN[self.look.width] * _CHARACTERS_PER_IN * scale)
        return "\n".join(textwrap.wrap(visible(text, 1200), wide))


@contextmanager
def canvas(
    look: Look, frame: pandas.DataFrame, *, title: str, rows: int | None = None, panels: int = 1
) -> Iterator[Canvas]:
    """Yield a canvas while its style holds; where all of `frame` is of one group, the title says which."""
    groups = texts(frame, "group") if "group" in frame else []
    title = f"{title}: {groups[0]}" if len(groups) == 1 and groups[0] else title
    with styled(look):
        yield Canvas(look, title=title, rows=rows, panels=panels)


def facts_of(frame: pandas.DataFrame) -> Iterator[str]:
    """Yield sentences on sample size, machine and commit, of the columns `n`, `machine` and `commit`."""
    if "n" in frame and len(counts := sorted({int(n) for n in frame["n"].dropna() if n > 0})):
        yield f"n = {' to '.join(map(str, dict.fromkeys((counts[0], counts[-1]))))}."
    for column, label in (("machine", ""), ("commit", "commit ")):
        if column in frame:
            known = [visible(one, 60) for one in dict.fromkeys(frame[column].dropna()) if one]
            if known:
                more = f" and {len(known) - 2} more" if len(known) > 2 else ""
                yield f"{label}{several(known[:2])}{more}."


def texts(frame: pandas.DataFrame, column: str) -> list[str]:
    """Return the different values of a column, in order of appearance."""
    return list(dict.fromkeys(str(one) for one in frame[column]))
