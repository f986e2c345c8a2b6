"""Frames of sweeps over ranks and over links."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from parbench.comparable import setting_of
from parbench.errors import UsageError
from parbench.metrics import Cell
from parbench.network.spelling import Network, parse_network
from parbench.record import RunRecord
from parbench.report.data.measured import Row, frame_of, measured, short_names
from parbench.report.rows import namer
from parbench.scaling import scaling

if TYPE_CHECKING:
    import pandas


def scaling_frame(cells: Sequence[Cell]) -> pandas.DataFrame:
    """Return a row per workload, links, strategy, kind of scaling and number of ranks, from the fewest ranks."""
    settings: dict[tuple[object, ...], list[Cell]] = {}
    for cell in cells:
        settings.setdefault(setting_of(cell.spec), []).append(cell)
    short = short_names(cell.strategy for cell in cells)
    # What tells the settings apart, but not the batch, which differs along weak scaling.
    name = namer([_without_batch(cell) for cell in cells])
    rows: list[Row] = []
    for part in settings.values():
        found = scaling(part, [name(_without_batch(cell)) for cell in part])
        base: dict[tuple[str, str, str], int] = {}
        for one in found:
            of = (one.workload, one.strategy, one.kind)
            base[of] = min(base.get(of, one.ranks), one.ranks)
        rows += [
            {
                "group": f"{one.workload}, {one.kind}",
                "strategy": short[one.strategy],
                "kind": one.kind,
                "ranks": one.ranks,
                "speed_up": one.speed_up,
                "efficiency": one.efficiency,
                "step_time_s": one.step_time_s,
                "base_ranks": base[one.workload, one.strategy, one.kind],
            }
            for one in found
        ]
    return frame_of(rows, ("group", "strategy", "kind", "ranks", "speed_up", "efficiency", "base_ranks"))


def _without_batch(cell: Cell) -> Cell:
    return msgspec.structs.replace(cell, spec=msgspec.structs.replace(cell.spec, global_batch_size=None))


def links_frame(cells: Sequence[Cell], records: Sequence[RunRecord]) -> pandas.DataFrame:
    """Return a row per cell on links of a known rate: `bits_per_s` of the slower direction of one, step time in s.

    Cells that differ in their links' rates only are a group.
    """
    known = {
        text: parsed
        for text in {cell.spec.network for cell in cells if cell.spec.network}
        if (parsed := _network(text)) is not None
    }
    name = namer([_without_links(cell) for cell in cells])
    rows: list[Row] = []
    for one in measured(cells, records):
        spec, time = one.cell.spec, one.metric("step_time_s")
        if time is None or spec.network not in known or not one.cell.rankable:
            continue
        links = known[spec.network]
        group = f"{name(_without_links(one.cell))}, {_ranks(spec.world_size)}{_others(links)}"
        rows.append(
            {
                **one.facts,
                "group": group,
                "strategy": one.called,
                "bits_per_s": min(links.up_bits_per_s, links.down_bits_per_s),
                "value": time.value,
                "ci_low": time.ci_low,
                "ci_high": time.ci_high,
                "n": time.n,
            }
        )
    frame = frame_of(rows, ("group", "strategy", "bits_per_s", "value", "ci_low", "ci_high", "n"))
    frame = frame.astype(dict.fromkeys(("bits_per_s", "value", "ci_low", "ci_high"), "float64"))
    # One bandwidth is no line.
    return frame[frame.groupby("group")["bits_per_s"].transform("nunique") > 1] if len(frame) else frame


def _network(text: str | None) -> Network | None:
    try:
        return parse_network(text) if text else None
    except UsageError:  # of a version that knows other networks
        return None


def _without_links(cell: Cell) -> Cell:
    return msgspec.structs.replace(cell, spec=msgspec.structs.replace(cell.spec, network=None))


def _ranks(count: int) -> str:
    return f"{count} rank{'' if count == 1 else 's'}"


def _others(links: Network) -> str:
    """Return whatever else is asked of links than their rate, in words."""
    parts = [f"start-up {1e3 * links.alpha_s:g} ms"] if links.alpha_s else []
    parts += [f"delay {1e3 * links.delay_s:g} ms"] if links.delay_s else []
    parts += [f"loss {links.loss:.2%}"] if links.loss else []
    parts += [f"{links.topology}, {links.oversubscription:g} to 1"] if links.topology != "star" else []
    parts += [f"{links.ranks_per_node} ranks behind a link"] if links.ranks_per_node > 1 else []
    return "".join(f", {part}" for part in parts)
