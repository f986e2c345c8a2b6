"""Saving turns a figure into bytes: SVG, PNG or PDF, the same bytes for the same figure."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Literal

import matplotlib.style
from matplotlib.figure import Figure

from parbench.report.figures.canvas import COLUMN, FAINT, INK, PAPER, Look, styled
from parbench.report.figures.colours import NEUTRAL

Format = Literal["svg", "png", "pdf"]
FORMATS: tuple[Format, ...] = ("svg", "png", "pdf")
_DPI = 300  # of PNG, and of what is a picture inside a drawing
_INK, _PAPER, _FAINT, _NEUTRAL = "#e8e8e8", "#16181c", "#3a3d42", "#a8a8a8"  # on a dark page

# Fonts stay fonts: text can be searched and edited, and journals ask for it.
_FONTS: Mapping[str, object] = {"svg.fonttype": "none", "pdf.fonttype": 42, "svg.hashsalt": "parbench"}


def saved(figure: Figure, form: Format, look: Look = COLUMN) -> bytes:
    """Return a figure as a file.

    Args:
        figure: what `parbench.report.figures` drew.
        form: "svg", "png" or "pdf".
        look: the one it was drawn with.
    """
    dates = {"svg": {"Date": None, "Creator": "parbench"}, "pdf": {"CreationDate": None}, "png": {}}
    out = io.BytesIO()
    with styled(look):
        matplotlib.style.use([dict(_FONTS)])
        figure.savefig(out, format=form, dpi=_DPI, metadata=dates[form])
    return out.getvalue()


def for_a_page(figure: Figure, look: Look) -> bytes:
    """Return a figure as SVG whose text and ground change with a page that is light or dark."""
    drawn = saved(figure, "svg", look).decode()
    # Attributes of matplotlib's SVG win over a sheet unless that insists.
    rules = "".join(
        f'[style*="{what}: {old}"]{{{what}:{new} !important}}'
        for old, new in ((INK, _INK), (PAPER, _PAPER), (FAINT, _FAINT), (NEUTRAL, _NEUTRAL))
        for what in ("fill", "stroke")
    )
    head, _, rest = drawn.partition("<defs>")
    sheet = f'<style type="text/css">@media (prefers-color-scheme: dark){{{rules}}}</style>'
    return f"{head}<defs>{sheet}{rest}".encode()
