"""The data frames that figures are drawn from, made of records, samples, traces, histories and files.

Each has a row per thing that is drawn; `machine`, `commit` and `n` say where and how often it was measured.
"""

from __future__ import annotations

from parbench.report.data.benches import bandwidth_frame
from parbench.report.data.cells import (
    breakdown_frame,
    prediction_frame,
    rounds_frame,
    throughput_frame,
    trade_off_frame,
)
from parbench.report.data.losses import loss_frame
from parbench.report.data.past import history_frame
from parbench.report.data.readings import meter_frame
from parbench.report.data.sweeps import links_frame, scaling_frame
from parbench.report.data.traces import matrix_frame, timeline_frame

__all__ = [
    "bandwidth_frame",
    "breakdown_frame",
    "history_frame",
    "links_frame",
    "loss_frame",
    "matrix_frame",
    "meter_frame",
    "prediction_frame",
    "rounds_frame",
    "scaling_frame",
    "throughput_frame",
    "timeline_frame",
    "trade_off_frame",
]
