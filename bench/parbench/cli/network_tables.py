"""Tables of `parbench network`: measured collectives, a calibration, and what there is of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table
from rich.text import Text

from parbench.report.words import DASH, number, size, visible

if TYPE_CHECKING:
    from rich.console import RenderableType

    from parbench.network.bench import Measured
    from parbench.network.calibration import Calibration, Curve
    from parbench.network.presets import Preset


def bench_table(measured: Sequence[Measured], facts: Mapping[str, str]) -> list[RenderableType]:
    """Lay measured collectives out, one per line; bandwidths in GB/s (1e9 bytes per second), as nccl-tests do."""
    table = _table(
        ["collective", "algorithm"],
        ["ranks", "bytes", "median ms", "p99 ms", "algbw GB/s", "busbw GB/s", "sent/rank", "n", "correct"],
    )
    last = ""
    for one in measured:
        row, wanted = one.row, one.wanted
        table.add_row(
            row.op if row.op != last else "",
            row.algorithm,
            str(row.ranks),
            str(row.bytes),
            number(one.median_s * 1e3),
            number(one.percentile_s(99) * 1e3),
            number(one.algbw_bytes_per_s / 1e9),
            number(one.busbw_bytes_per_s / 1e9),
            DASH if row.wire_bytes_per_rank is None else size(row.wire_bytes_per_rank),
            str(wanted.iterations),
            Text("✓" if row.correct else "✗ WRONG", style="green" if row.correct else "red"),
        )
        last = row.op
    where = f"{facts['backend']} · {visible(facts['network'], 80)}"
    legend = (
        "bytes: the whole buffer of one rank; busbw: algbw x 2(n-1)/n, (n-1)/n or 1; n: timed iterations, back to back"
    )
    return [Text(where, style="bold"), table, Text(legend, style="dim")] if measured else []


def calibration_table(found: Calibration) -> list[RenderableType]:
    """Lay a calibration out, one collective per line."""
    table = _table(
        ["collective", "algorithm"],
        ["ranks", "alpha ms", "beta ns/byte", "pieces", "error a-b", "error pieces", "error interp.", "sizes"],
    )
    for curve in found.curves:
        table.add_row(
            curve.op,
            curve.algorithm,
            str(curve.ranks),
            number(curve.alpha_s * 1e3),
            number(curve.beta_s_per_byte * 1e9),
            str(len(curve.pieces)),
            *_errors(curve),
            f"{len(curve.points)}",
        )
    trends = [
        Text(f"{one.op} ({one.algorithm}, {one.ranks} ranks): {visible(one.trend)}", style="dim")
        for one in found.curves
        if one.trend
    ]
    gammas = [
        Text(
            f"adding ({one.algorithm}, {one.ranks} ranks): gamma "
            + (
                f"{number(one.gamma_s_per_byte * 1e9)} ns/byte"
                if one.gamma_s_per_byte
                else f"unavailable: {one.reason}"
            )
        )
        for one in found.reducing
    ]
    legend = (
        "error: the largest and the median over held-out sizes, of alpha + beta S, of the pieces, and of interpolation"
    )
    title = Text(f"{visible(found.link, 80)} · {found.backend} · machine {found.fingerprint}", style="bold")
    return [title, table, *gammas, *trends, Text(legend, style="dim")]


def presets_table(presets: Mapping[str, Preset]) -> Table:
    """Lay out the links known by name."""
    table = _table(["link", "what it is"], ["rate Gbit/s", "divided by", "here Mbit/s"])
    for name, one in presets.items():
        here = one.rate_bits_per_s / one.scale / 1e6
        table.add_row(name, one.title, number(one.rate_bits_per_s / 1e9), f"{one.scale:g}", f"{here:g}")
    return table


def calibrations_table(found: Sequence[tuple[Path, Calibration]]) -> RenderableType:
    """Lay out what was calibrated, one link per line."""
    if not found:
        return Text("no calibration is stored here: parbench network calibrate makes one", style="dim")
    table = _table(["calibrated link", "backend", "machine", "measured (UTC)", "file"], ["curves", "worst error"])
    for path, one in found:
        errors = [error for curve in one.curves if (error := curve.error("interpolated")) is not None]
        worst = f"{max(errors) * 100:.0f} %" if errors else DASH
        texts = (one.link, one.backend, one.fingerprint, one.measured_at, str(path))
        table.add_row(*(Text(visible(text, 80)) for text in texts), str(len(one.curves)), worst)
    return table


def _errors(curve: Curve) -> list[str]:
    from statistics import median

    shown = []
    for how in ("alpha_beta", "piecewise", "interpolated"):
        errors = [abs(getattr(one, how)) for one in curve.held_out]
        shown.append(f"{max(errors) * 100:.0f} ({median(errors) * 100:.0f}) %" if errors else DASH)
    return shown


def _table(texts: Sequence[str], numbers: Sequence[str]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for title in texts:
        table.add_column(title, overflow="fold")
    for title in numbers:
        table.add_column(title, justify="right", no_wrap=True)
    return table
