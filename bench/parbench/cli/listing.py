"""`parbench list` says what there is of each kind of plug-in, and of networks, and which of them are broken."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parbench.cli import output

if TYPE_CHECKING:
    from rich.table import Table

    from parbench.discover import Kind
    from parbench.registry import Entry


class Listed(StrEnum):
    """What can be listed."""

    STRATEGIES = "strategies"
    WORKLOADS = "workloads"
    PROBES = "probes"
    SCHEDULES = "schedules"
    FUSIONS = "fusions"
    COLLECTIVES = "collectives"
    COMPRESSORS = "compressors"
    NETWORKS = "networks"


_KINDS: Mapping[str, Kind] = {
    "strategies": "strategy",
    "workloads": "workload",
    "probes": "probe",
    "schedules": "schedule",
    "fusions": "fusion",
    "collectives": "collective",
    "compressors": "compressor",
}


def list_plugins(
    what: Annotated[Listed, typer.Argument(help="What to list.", show_default=False)],
    plugin: Annotated[
        list[Path] | None,
        typer.Option("--plugin", metavar="FILE", help="List your own plug-in too.", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
) -> None:
    """List strategies, what they are made of, workloads, probes or networks: name, what it is, arguments, source."""
    import msgspec

    if what is Listed.NETWORKS:
        _list_networks(as_json)
        return
    from parbench.registry import Registry

    entries = Registry(plugin or []).describe(_KINDS[what.value])
    if as_json:
        output.document(msgspec.json.encode({what.value: entries}))
        return
    output.results(_table(entries, papers=what not in (Listed.WORKLOADS, Listed.PROBES)))
    output.notes(entry.note for entry in entries if entry.note)


def _table(entries: list[Entry], *, papers: bool) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from parbench.report.words import visible

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for title in ("name", "what it is", "arguments", "from"):
        table.add_column(title, overflow="fold", no_wrap=title == "name")
    for entry in entries:
        summary = visible(entry.summary)
        if entry.broken_reason is not None:
            table.add_row(Text(entry.name), Text(f"broken: {visible(entry.broken_reason)}", style="red"), "", "")
            continue
        if papers:
            origin = f"{visible(entry.paper_title)} {visible(entry.paper_url)}".strip()
        else:
            summary += f" Sizes: {', '.join(map(visible, entry.sizes))}." if entry.sizes else ""
            origin = visible(entry.source)
        table.add_row(*map(Text, (entry.name, summary, ", ".join(map(visible, entry.arguments)), origin)))
    return table


def _list_networks(as_json: bool) -> None:
    import msgspec
    from rich import box
    from rich.table import Table

    from parbench.network.presets import PRESETS
    from parbench.network.quantities import rate_text

    if as_json:
        facts = [
            {"name": name, "title": one.title, "rate_bits_per_s": one.rate_bits_per_s, "scale": one.scale}
            for name, one in PRESETS.items()
        ]
        output.document(msgspec.json.encode({"networks": facts}))
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for title in ("name", "what it is", "real rate", "scale", "shaped to"):
        table.add_column(title, overflow="fold")
    for name, one in PRESETS.items():
        shaped = rate_text(one.rate_bits_per_s / one.scale)
        table.add_row(name, one.title, rate_text(one.rate_bits_per_s), f"{one.scale:g}", shaped)
    output.results(table)
    output.notes(
        (
            "also a rate (100mbit), or settings: 'rate=312mbit alpha=1ms', 'up=100mbit down=1gbit', ranks_per_node=2, "
            "two-racks(rate=1gbit, oversubscription=4), burst=, gso=",
        )
    )
