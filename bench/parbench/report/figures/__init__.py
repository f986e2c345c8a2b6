"""Figures: each a function of one data frame, drawn with matplotlib, legible in a column of a paper.

The frames are those of `parbench.report.data`; any frame with the columns that a function names will do. Save what is
returned with `saved(figure, "pdf")`, or draw into it further: it is a figure of matplotlib like any other.
"""

from __future__ import annotations

from parbench.report.figures.bandwidth import bus_bandwidth
from parbench.report.figures.breakdown import breakdown
from parbench.report.figures.canvas import Look
from parbench.report.figures.claims import paper, predicted
from parbench.report.figures.colours import Mark, palette
from parbench.report.figures.history import history
from parbench.report.figures.links import Crossing, crossings, links
from parbench.report.figures.loss import loss
from parbench.report.figures.matrix import communication_matrix
from parbench.report.figures.meters import meters
from parbench.report.figures.pareto import front, trade_offs
from parbench.report.figures.saving import saved
from parbench.report.figures.scaling import scaling
from parbench.report.figures.step_time import step_time
from parbench.report.figures.throughput import throughput
from parbench.report.figures.timeline import timeline

__all__ = [
    "Crossing",
    "Look",
    "Mark",
    "breakdown",
    "bus_bandwidth",
    "communication_matrix",
    "crossings",
    "front",
    "history",
    "links",
    "loss",
    "meters",
    "palette",
    "paper",
    "predicted",
    "saved",
    "scaling",
    "step_time",
    "throughput",
    "timeline",
    "trade_offs",
]
