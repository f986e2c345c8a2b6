"""Figures draw what their frames say: positions, lengths and texts of what is drawn, computed here by hand."""

from __future__ import annotations

import itertools
import xml.etree.ElementTree as ET

import numpy as np
import pandas
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection, QuadMesh
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from parbench.report import figures
from parbench.report.figures import Look, front, palette, saved
from parbench.report.figures.canvas import MOST_ROWS
from parbench.report.figures.saving import for_a_page

FACTS = {"machine": "Xeon, 2 cores", "commit": "abcdef0123", "n": 3}
HOSTILE = '</text><script>alert(1)</script>$\\frac{$ "&\x1b[31m'


def frame(*rows: dict[str, object]) -> pandas.DataFrame:
    return pandas.DataFrame([{**FACTS, **row} for row in rows])


def lines(axes: Axes, gid: str) -> list[Line2D]:
    return [one for one in axes.get_lines() if one.get_gid() == gid]


def names(axes: Axes) -> list[str]:
    return [one.get_text() for one in axes.get_yticklabels()]


def said(figure: Figure) -> str:
    return " ".join(figure.get_supxlabel().split())


def rounds(label: str, *seconds: float, value: float, low: float | None = None, high: float | None = None):
    return [
        {"label": label, "strategy": label, "seconds": s, "value": value, "ci_low": low, "ci_high": high}
        for s in seconds
    ]


def test_step_time_shows_every_sample_the_median_and_its_interval_the_fastest_on_top() -> None:
    table = frame(
        *rounds("slow", 0.004, 0.006, 0.008, value=0.006, low=0.004, high=0.008),
        *rounds("fast", 0.001, 0.003, 0.002, value=0.002),
    )
    drawn = figures.step_time(table)
    (axes,) = drawn.axes
    assert names(axes) == ["fast", "slow"]
    samples = [one for one in axes.collections if isinstance(one, PathCollection)]
    assert sorted(np.asarray(samples[0].get_offsets())[:, 0]) == pytest.approx([1, 2, 3])  # ms
    assert sorted(np.asarray(samples[1].get_offsets())[:, 0]) == pytest.approx([4, 6, 8])
    assert [one.get_xdata()[0] for one in lines(axes, "median")] == pytest.approx([2, 6])
    (interval,) = lines(axes, "interval")  # of few samples there is none
    assert list(interval.get_xdata()) == pytest.approx([4, 8])
    assert "step time (ms)" in axes.get_xlabel()
    assert "95 % interval" in said(drawn)
    assert "n = 3. Xeon, 2 cores. commit abcdef0123." in said(drawn)


def test_what_is_not_ranked_is_marked_beside_its_time() -> None:
    table = frame(
        *({**one, "ranked": False, "quality": "paced"} for one in rounds("sign_vote", 0.001, value=0.001)),
        *({**one, "ranked": True, "quality": "measured"} for one in rounds("ddp", 0.002, value=0.002)),
    )
    drawn = figures.step_time(table)
    assert names(drawn.axes[0]) == ["sign_vote ~ *", "ddp"]
    assert "~: paced; *: not ranked" in said(drawn)


def test_wide_times_are_drawn_on_a_logarithmic_axis_and_near_ones_from_zero() -> None:
    near = figures.step_time(frame(*rounds("a", 0.1, 0.2, value=0.15)))
    wide = figures.step_time(frame(*rounds("a", 0.1, 0.2, value=0.15), *rounds("b", 9.0, value=9.0)))
    assert (near.axes[0].get_xscale(), wide.axes[0].get_xscale()) == ("linear", "log")
    assert near.axes[0].get_xlim()[0] == 0


def test_more_rows_than_are_legible_are_left_out_and_counted() -> None:
    many = frame(*itertools.chain(*(rounds(f"s{k:03d}", 1.0 + k, value=1.0 + k) for k in range(MOST_ROWS + 7))))
    drawn = figures.step_time(many)
    assert names(drawn.axes[0]) == [f"s{k:03d}" for k in range(MOST_ROWS)]
    assert f"the {MOST_ROWS} fastest of {MOST_ROWS + 7}" in said(drawn)


def test_throughput_bars_are_as_long_as_the_rate_and_say_what_is_doubtful() -> None:
    rate = {"unit": "samples/s", "ci_low": None, "ci_high": None, "reason": None}
    table = frame(
        {
            "label": "a",
            "strategy": "a",
            "value": 2000.0,
            "quality": "measured",
            **rate,
            "ci_low": 1800.0,
            "ci_high": 2100.0,
        },
        {"label": "b", "strategy": "b", "value": 5000.0, "quality": "suspect", **rate},
        {"label": "c", "strategy": "c", "value": None, "quality": "unavailable", **rate},
    )
    drawn = figures.throughput(table)
    (axes,) = drawn.axes
    assert names(axes) == ["b ?", "a"]
    assert [bar.get_width() for bar in axes.patches] == pytest.approx([5, 2])  # thousands
    assert [text.get_text() for text in axes.texts] == ["5.00", "2.00"]
    (ends,) = [one.lines[2][0].get_segments()[0] for one in axes.containers if hasattr(one, "has_xerr")]
    assert ends[:, 0] == pytest.approx([1.8, 2.1])
    assert "?: suspect" in said(drawn)


def test_breakdown_parts_are_stacked_to_the_whole() -> None:
    parts = {"backward": 0.003, "forward": 0.001, "exposed_comm/all_reduce/dp": 0.002, "wait": 0.0005}
    drawn = figures.breakdown(frame(*({"label": "ddp", "part": k, "seconds": v} for k, v in parts.items())))
    (axes,) = drawn.axes
    bars = sorted(axes.patches, key=lambda bar: bar.get_x())
    assert [bar.get_width() for bar in bars] == pytest.approx([1, 3, 2, 0.5])  # forward first, as in a step
    assert [bar.get_x() for bar in bars] == pytest.approx([0, 1, 4, 6])
    assert bars[-1].get_x() + bars[-1].get_width() == pytest.approx(1e3 * sum(parts.values()))
    legend = axes.get_legend()
    assert legend is not None
    assert [one.get_text() for one in legend.get_texts()] == ["forward", "backward", "all_reduce/dp", "wait"]


def test_a_point_that_another_beats_in_both_is_not_on_the_front() -> None:
    assert front([(3, 1), (1, 3), (2, 2), (2, 3), (3, 3)]) == [1, 2, 0]
    assert front([(1, 1), (1, 1)]) == [0, 1]
    assert front([]) == []


def test_trade_offs_mark_the_pareto_front() -> None:
    point = {"energy_j_per_step": None}
    drawn = figures.trade_offs(
        frame(
            {"label": "a", "strategy": "a", "step_time_s": 0.001, "peak_memory_bytes": 3 * 2**20, **point},
            {"label": "b", "strategy": "b", "step_time_s": 0.002, "peak_memory_bytes": 1 * 2**20, **point},
            {"label": "c", "strategy": "c", "step_time_s": 0.003, "peak_memory_bytes": 2 * 2**20, **point},
        )
    )
    (axes,) = drawn.axes  # no energy, no second panel
    points = lines(axes, "point")
    assert [(one.get_xdata()[0], one.get_ydata()[0]) for one in points] == [(1, 3), (2, 1), (3, 2)]
    assert [one.get_fillstyle() for one in points] == ["full", "full", "none"]
    (edge,) = lines(axes, "front")
    assert list(edge.get_xdata()) == [1, 2]


def test_what_is_suspect_or_not_ranked_is_on_no_front() -> None:
    point = {"energy_j_per_step": None, "peak_memory_bytes": 2**20}
    drawn = figures.trade_offs(
        frame(
            {"label": "a", "strategy": "a", "step_time_s": 0.003, "ranked": True, "quality": "measured", **point},
            {"label": "b", "strategy": "b", "step_time_s": 0.002, "ranked": True, "quality": "suspect", **point},
            {"label": "c", "strategy": "c", "step_time_s": 0.001, "ranked": False, "quality": "measured", **point},
        )
    )
    assert [one.get_fillstyle() for one in lines(drawn.axes[0], "point")] == ["full", "none", "none"]
    assert "suspect" in drawn.get_supxlabel()


def test_lines_whose_names_are_cut_alike_have_two_names_in_the_legend() -> None:
    common = {"kind": "strong", "speed_up": 1.0, "efficiency": 1.0, "base_ranks": 2}
    names = [f"replicated(fusion={one}, collective=ring)" for one in ("lazy", "merged")]
    drawn = figures.scaling(frame(*({"strategy": s, "ranks": n, **common} for s in names for n in (2, 4))))
    texts = [one.get_text() for one in drawn.axes[0].get_legend().get_texts()]
    assert len(texts) == len(set(texts)) == 3


def test_scaling_lies_beside_the_ideal() -> None:
    drawn = figures.scaling(
        frame(
            {"strategy": "ddp", "kind": "strong", "ranks": 2, "speed_up": 1.0, "efficiency": 1.0, "base_ranks": 2},
            {"strategy": "ddp", "kind": "strong", "ranks": 8, "speed_up": 3.0, "efficiency": 0.75, "base_ranks": 2},
        )
    )
    speed, efficiency = drawn.axes
    assert [list(one.get_ydata()) for one in lines(speed, "ddp/strong")] == [[1, 3]]
    assert [list(one.get_ydata()) for one in lines(efficiency, "ddp/strong")] == [[100, 75]]
    (ideal,) = lines(speed, "ideal")
    assert (list(ideal.get_xdata()), list(ideal.get_ydata())) == ([2, 8], [1, 4])


def times(strategy: str, **at: float):
    rates = {"slow": 1e8, "fast": 1e10}
    return [
        {"strategy": strategy, "bits_per_s": rates[k], "value": v, "ci_low": v / 1.1, "ci_high": v * 1.1}
        for k, v in at.items()
    ]


def test_crossing_of_two_lines_in_logarithms_with_the_interval_of_both() -> None:
    # 0.4 falls to 0.1 and 0.2 stays: 0.4 x (1/4)^share = 0.2 at half of two decades, so at 1e9.
    table = frame(*times("ddp", slow=0.4, fast=0.1), *times("topk", slow=0.2, fast=0.2))
    (found,) = figures.crossings(table)
    assert (found.below, found.above) == ("topk", "ddp")
    assert found.bits_per_s == pytest.approx(1e9)
    # ddp / 1.1 meets topk x 1.1 where 4^share = 2 / 1.21, the reverse where 4^share = 2 x 1.21.
    assert found.low == pytest.approx(1e8 * 100 ** (np.log(2 / 1.21) / np.log(4)))
    assert found.high == pytest.approx(1e8 * 100 ** (np.log(2 * 1.21) / np.log(4)))
    drawn = figures.links(table)
    (mark,) = lines(drawn.axes[0], "crossing")
    assert mark.get_xdata()[0] == pytest.approx(1.0)  # Gbit/s
    assert "with links above 1.0 (0.53 to 1.9) Gbit/s ddp wins, below topk" in said(drawn)


def test_strategies_that_do_not_cross_in_what_was_measured_have_no_crossing() -> None:
    assert figures.crossings(frame(*times("a", slow=0.4, fast=0.1), *times("b", slow=0.5, fast=0.2))) == []


def test_loss_is_drawn_against_whatever_is_known() -> None:
    rows = [
        {"label": "ddp", "strategy": "ddp", "run": "r", "steps": k, "seconds": 0.5 * k, "bytes": None, "joules": None,
         "loss": 1.0 / k}
        for k in (1, 2, 4)
    ]  # fmt: skip
    drawn = figures.loss(frame(*rows).astype({"bytes": float, "joules": float}))
    assert [axes.get_xlabel() for axes in drawn.axes] == ["training steps", "seconds of steps (s)"]
    assert [list(one.get_xdata()) for axes in drawn.axes for one in lines(axes, "r")] == [[1, 2, 4], [0.5, 1, 2]]
    assert list(lines(drawn.axes[0], "r")[0].get_ydata()) == [1, 0.5, 0.25]


def test_bus_bandwidth_marks_wrong_results() -> None:
    drawn = figures.bus_bandwidth(
        frame(
            {"label": "ring", "bytes": 1024, "value": 2e6, "ci_low": 1e6, "ci_high": 3e6, "correct": True},
            {"label": "ring", "bytes": 4096, "value": 4e6, "ci_low": 3e6, "ci_high": 5e6, "correct": False},
        )
    )
    (axes,) = drawn.axes
    line = next(one for one in axes.get_lines() if one.get_label() == "ring")
    assert (list(line.get_xdata()), list(line.get_ydata())) == ([1024, 4096], [2, 4])  # M bytes/s
    (wrong,) = lines(axes, "wrong")
    assert (list(wrong.get_xdata()), list(wrong.get_ydata())) == ([4096], [4])


def test_communication_matrix_is_from_rows_to_columns() -> None:
    rows = [{"source": a, "destination": b, "bytes": v * 1024} for (a, b), v in {(0, 1): 3, (2, 0): 5}.items()]
    (axes, _) = figures.communication_matrix(frame(*rows)).axes
    mesh = next(one for one in axes.collections if isinstance(one, QuadMesh))
    assert np.asarray(mesh.get_array()).reshape(3, 3) == pytest.approx(np.array([[0, 3, 0], [0, 0, 0], [5, 0, 0]]))


def test_timeline_has_computing_above_communication() -> None:
    span = {"start_s": 5.001, "end_s": 5.003}
    drawn = figures.timeline(
        frame(
            {"rank": 0, "kind": "forward", "lane": "compute", "start_s": 5.0, "end_s": 5.002},
            {"rank": 0, "kind": "collective", "lane": "communication", **span},
            {"rank": 1, "kind": "forward", "lane": "compute", **span},
        )
    )
    boxes = {one.get_gid(): one.get_paths()[0].get_extents() for one in drawn.axes[0].collections}
    assert (boxes["rank 0 forward"].x0, boxes["rank 0 forward"].x1) == pytest.approx((0, 2))  # ms from the first span
    assert (boxes["rank 0 collective"].x0, boxes["rank 0 collective"].x1) == pytest.approx((1, 3))
    assert boxes["rank 0 forward"].y1 < boxes["rank 0 collective"].y0  # rows grow downwards
    assert round(boxes["rank 1 forward"].y0) == 1


def test_meters_have_a_panel_per_quantity() -> None:
    drawn = figures.meters(
        frame(
            {"what": "power", "label": "board 0", "seconds": 0.0, "value": 200.0, "unit": "W"},
            {"what": "power", "label": "board 0", "seconds": 1.0, "value": 300.0, "unit": "W"},
            {"what": "memory", "label": "board 0", "seconds": 0.0, "value": 3 * 2**30, "unit": "bytes"},
        )
    )
    assert [axes.get_ylabel() for axes in drawn.axes] == ["power (W)", "memory (GiB)"]
    assert list(lines(drawn.axes[0], "board 0")[0].get_ydata()) == [200, 300]
    assert list(lines(drawn.axes[1], "board 0")[0].get_ydata()) == [3]


def test_history_shows_levels_and_where_they_change_first() -> None:
    def series(name: str, values: list[float], levels: list[float], changed: int | None):
        return [
            {"series": name, "strategy": name, "run": k + 1, "value": v, "unit": "s", "level": level,
             "changed": k == changed, "commit": f"c{k}"}
            for k, (v, level) in enumerate(zip(values, levels, strict=True))
        ]  # fmt: skip

    drawn = figures.history(
        frame(*series("same", [1.0, 1.1], [1.05, 1.05], None), *series("moved", [1.0, 2.0], [1.0, 2.0], 1))
    )
    first, second = drawn.axes
    assert (first.get_title(loc="left"), second.get_title(loc="left")) == ("moved", "same")
    (change,) = lines(first, "change")
    assert change.get_xdata()[0] == 1.5
    assert [text.get_text() for text in first.texts] == ["c1"]
    assert not lines(second, "change")
    assert list(lines(first, "level")[0].get_ydata()) == [1, 2]


def test_predicted_lies_on_the_line_where_it_is_true() -> None:
    row = {"strategy": "ddp", "unit": "bytes"}
    drawn = figures.predicted(
        frame(
            {**row, "what": "sent", "predicted": 2048.0, "measured": 2048.0},
            {**row, "what": "kept", "predicted": 1024.0, "measured": 4096.0},
        )
    )
    (axes,) = drawn.axes
    assert [(one.get_xdata()[0], one.get_ydata()[0]) for one in lines(axes, "ddp/kept")] == [(1, 4)]  # KiB
    (equal,) = lines(axes, "equal")
    assert list(equal.get_xdata()) == list(equal.get_ydata()) == [1, 4]


def test_paper_beside_measured() -> None:
    claim = {"label": "speed-up", "paper": 2.5, "measured": 2.0, "ci_low": 1.5, "ci_high": 2.25, "unit": "times"}
    (axes,) = figures.paper(frame(claim)).axes
    assert lines(axes, "paper")[0].get_xdata()[0] == 2.5
    assert lines(axes, "median")[0].get_xdata()[0] == 2.0
    assert list(lines(axes, "interval")[0].get_xdata()) == [1.5, 2.25]


# ---- colours


def test_a_strategy_has_one_colour_whatever_else_is_drawn() -> None:
    alone = palette(["ddp"])["ddp"]
    assert palette(["ddp", "single", "fsdp", "tensor"])["ddp"] == alone
    look = Look(marks=palette(["ddp", "fsdp"]))
    for drawn in (
        figures.step_time(frame(*rounds("ddp", 1.0, value=1.0)), look),
        figures.step_time(frame(*rounds("fsdp", 1.0, value=1.0), *rounds("ddp", 2.0, value=2.0)), look),
    ):
        assert lines(drawn.axes[0], "median")[-1].get_color() == alone.colour


def test_colours_differ_while_there_are_some_and_then_hatches_do() -> None:
    marks = palette(f"s{k}" for k in range(20))
    assert len(set(list(marks.values())[:6])) == 6
    assert len(set(marks.values())) == 20
    assert len({one.colour for one in palette("abcdef").values()}) == 6


def test_colours_are_told_apart_by_readers_who_lack_a_kind_of_cone() -> None:
    # Viénot, Brettel and Mollon (1999): what protanopes and deuteranopes see, on linear RGB.
    seen = {
        "protan": [[0.11238, 0.88762, 0.0], [0.11238, 0.88762, 0.0], [0.00401, -0.00401, 1.0]],
        "deutan": [[0.29275, 0.70725, 0.0], [0.29275, 0.70725, 0.0], [-0.02234, 0.02234, 1.0]],
    }
    colours = [_linear(mark.colour) for mark in palette([*"abcdef", "single"]).values()]
    for matrix in seen.values():
        for one, other in itertools.combinations(colours, 2):
            apart = [(255 * c) for c in _encoded(np.array(matrix) @ one) - _encoded(np.array(matrix) @ other)]
            assert max(map(abs, apart)) > 20


def _linear(colour: str) -> np.ndarray:
    values = np.array([int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)])
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def _encoded(values: np.ndarray) -> np.ndarray:
    held = np.clip(values, 0, 1)
    return np.where(held <= 0.0031308, held * 12.92, 1.055 * held ** (1 / 2.4) - 0.055)


# ---- files


def test_hostile_names_are_text_in_every_format() -> None:
    drawn = figures.step_time(frame(*rounds(HOSTILE, 1.0, 2.0, value=1.5)))
    for data in (saved(drawn, "svg"), for_a_page(drawn, Look())):
        root = ET.fromstring(data)
        assert not [one for one in root.iter() if one.tag.endswith("script")]
        assert "<script>" in "".join(root.itertext())
        assert b"\x1b" not in data
    assert saved(drawn, "png").startswith(b"\x89PNG")
    assert saved(drawn, "pdf").startswith(b"%PDF")


def test_the_same_figure_is_the_same_bytes() -> None:
    table = frame(*rounds("ddp", 1.0, 2.0, value=1.5))
    assert saved(figures.step_time(table), "svg") == saved(figures.step_time(table), "svg")


@pytest.mark.parametrize(("width", "inches"), [("column", 3.5), ("page", 7.16)])
def test_widths_are_those_of_a_journal_and_text_is_legible(width: str, inches: float) -> None:
    drawn = figures.step_time(frame(*rounds("ddp", 1.0, value=1.0)), Look(width=width))
    assert drawn.get_figwidth() == inches
    drawn.draw_without_rendering()
    texts = [*drawn.axes[0].get_xticklabels(), *drawn.axes[0].get_yticklabels(), drawn.axes[0].xaxis.label]
    assert all(text.get_fontsize() >= 6 for text in texts)


def test_a_style_replaces_parbenchs_own() -> None:
    drawn = figures.step_time(frame(*rounds("ddp", 1.0, value=1.0)), Look(style={"axes.labelsize": 13}))
    assert drawn.axes[0].xaxis.label.get_fontsize() == 13
