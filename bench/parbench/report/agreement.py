"""The agreement table says in Markdown how closely strategies trained as one process did, and where they cannot run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from parbench.record import RunRecord
from parbench.report.words import DASH, small, visible
from parbench.spec import RunSpec

_CAPTION = (
    "Largest difference of a step's mean loss from one process on the same global batches, in nats; ✗ is too much."
)
# What may differ between cells beside ranks and precision, which have columns of their own.
_OTHERS = (
    *("size", "global_batch_size", "accumulate", "recompute", "compile", "network", "rank_speed", "straggler"),
    *("device", "backend", "seed"),
)
_SIGNS = {True: "", False: "✗ ", None: ""}


def agreement_table(records: Sequence[RunRecord]) -> str:
    """Return a table of strategies and workloads by ranks and precision, with the reasons of gaps below it.

    A number is the largest difference of a step's mean loss from one process on the same global batches, in nats.
    """
    columns = list(dict.fromkeys(sorted((r.spec.world_size, r.spec.precision) for r in records)))
    columns.sort(key=lambda one: (one[0], ("fp32", "bf16", "fp16").index(one[1])))
    rows: dict[tuple[str, str], dict[tuple[int, str], RunRecord]] = {}
    varying = [name for name in _OTHERS if len({getattr(r.spec, name) for r in records}) > 1]
    for record in records:
        where = (record.spec.world_size, record.spec.precision)
        row = rows.setdefault((record.spec.strategy, _job(record.spec, varying)), {})
        row[where] = max(row.get(where, record), record, key=badness)  # of several launches the worst speaks
    reasons: dict[str, int] = {}
    lines = [
        markdown_row(
            ["strategy", "workload", *(f"{n} {'rank' if n == 1 else 'ranks'}, {kind}" for n, kind in columns)]
        ),
        markdown_row(["---", "---", *("--:" for _ in columns)]),
        *(
            markdown_row(
                [f"`{safe(strategy)}`", safe(workload), *(agreement_cell(found.get(one), reasons) for one in columns)]
            )
            for (strategy, workload), found in rows.items()
        ),
    ]
    notes = [f"{number}. {safe(reason)}" for reason, number in reasons.items()]
    return "\n".join([*lines, *(["", *notes] if notes else []), "", _CAPTION]) + "\n"


def _job(spec: RunSpec, varying: Sequence[str]) -> str:
    """Return the workload and whatever else is not the same in all records."""
    return " ".join([spec.workload, *(f"{name}={getattr(spec, name)}" for name in varying)])


def badness(record: RunRecord) -> tuple[bool, bool, float]:
    """Return what orders launches of one cell by how badly they agreed."""
    found = record.agreement
    compared = record.status == "complete" and found is not None and found.loss_difference is not None
    if found is None or not compared:
        return (False, True, 0.0)
    return (found.passed is False, False, found.loss_difference or 0.0)


def agreement_cell(record: RunRecord | None, reasons: dict[str, int]) -> str:
    """Return how closely a run trained as one process, in a few characters; `reasons` numbers what is said below."""
    if record is None:
        return ""
    found = record.agreement
    if record.status != "complete" or found is None:
        return f"{DASH} ({_number(record.reason or record.status, reasons)})"
    if found.passed is None or found.loss_difference is None:
        return f"{DASH} ({_number(found.reason or 'not checked', reasons)})"
    mark = f" ({_number(found.reason, reasons)})" if found.reason else ""
    differently = "" if found.declared in ("exactly", "closely") else f" ({found.declared})"
    return f"{_SIGNS[found.passed]}{small(found.loss_difference)}{differently}{mark}"


def _number(reason: str, reasons: dict[str, int]) -> int:
    return reasons.setdefault(reason, len(reasons) + 1)


def markdown_row(cells: Iterable[str]) -> str:
    """Return a row of a table."""
    return f"| {' | '.join(cells)} |"


def safe(text: str) -> str:
    """Return text that cannot leave its cell."""
    return visible(text, 400).replace("|", r"\|").replace("`", "'").replace("<", "&lt;")
