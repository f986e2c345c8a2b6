"""The table of systems says in Markdown what papers' systems are, what they send and how closely they trained.

A row per strategy that names its point in the space of replicated strategies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from parbench.grammar import parse
from parbench.point import Point
from parbench.record import RunRecord
from parbench.registry import Entry
from parbench.report.agreement import agreement_cell, badness, markdown_row, safe
from parbench.report.words import DASH, amount

_AXES = ("fusion", "compressor", "collective", "synchrony", "order")


def systems_table(records: Sequence[RunRecord], entries: Sequence[Entry]) -> str:
    """Return a table of the systems among `records`, with the reasons of gaps below it.

    Bytes are those that the busiest rank sends in a step, counted; agreement is the largest difference of a step's mean
    loss from one process. Of several launches the worst speaks.

    Args:
        records: of one workload.
        entries: what is known of every strategy.
    """
    known = {entry.name: entry for entry in entries if entry.point is not None}
    rows: dict[str, dict[int, RunRecord]] = {}
    for record in records:
        if parse(record.spec.strategy).name not in known:
            continue
        row, ranks = rows.setdefault(record.spec.strategy, {}), record.spec.world_size
        row[ranks] = max(row.get(ranks, record), record, key=badness)
    columns = sorted({ranks for row in rows.values() for ranks in row})
    reasons: dict[str, int] = {}
    lines = [
        markdown_row(["system", "paper", *_AXES, *_titles("bytes per step", columns), *_titles("agreement", columns)]),
        markdown_row(["---"] * (2 + len(_AXES)) + ["--:"] * (2 * len(columns))),
        *(_line(strategy, row, known, columns, reasons) for strategy, row in sorted(rows.items())),
    ]
    notes = [f"{number}. {safe(reason)}" for reason, number in reasons.items()]
    return "\n".join([*lines, *(["", *notes] if notes else [])]) + "\n"


def _titles(what: str, columns: Sequence[int]) -> list[str]:
    return [f"{what}, {ranks} {'rank' if ranks == 1 else 'ranks'}" for ranks in columns]


def _line(
    strategy: str,
    row: Mapping[int, RunRecord],
    known: Mapping[str, Entry],
    columns: Sequence[int],
    reasons: dict[str, int],
) -> str:
    entry = known[parse(strategy).name]
    point = entry.point or Point()
    title = safe(entry.paper_title)
    paper = f"[{title}]({entry.paper_url})" if _is_address(entry.paper_url) else title
    sent = [_sent(row[ranks]) if ranks in row else "" for ranks in columns]
    agreement = [agreement_cell(row.get(ranks), reasons) for ranks in columns]
    axes = [safe(getattr(point, axis)) for axis in _AXES]
    return markdown_row([f"`{safe(strategy)}`", paper, *axes, *sent, *agreement])


def _sent(record: RunRecord) -> str:
    metric = record.metrics.get("traffic_bytes_per_step")
    return DASH if metric is None else amount(metric)


def _is_address(url: str) -> bool:
    return url.startswith(("https://", "http://")) and not any(char in url for char in "()<>| \t\n")
