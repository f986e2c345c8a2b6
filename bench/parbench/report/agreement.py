"""The agreement table says in Markdown how closely strategies trained as one process did, and where they cannot run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from parbench.record import RunRecord
from parbench.report.words import DASH, small, visible

_CAPTION = (
    "Largest difference of a step's mean loss from one process on the same global batches, in nats; ✗ is too much."
)
_SIGNS = {True: "", False: "✗ ", None: ""}


def agreement_table(records: Sequence[RunRecord]) -> str:
    """Return a table of strategies and workloads by ranks and precision, with the reasons of gaps below it.

    A number is the largest difference of a step's mean loss from one process on the same global batches, in nats.
    """
    columns = list(dict.fromkeys(sorted((r.spec.world_size, r.spec.precision) for r in records)))
    columns.sort(key=lambda one: (one[0], ("fp32", "bf16", "fp16").index(one[1])))
    rows: dict[tuple[str, str], dict[tuple[int, str], RunRecord]] = {}
    for record in records:
        where = (record.spec.world_size, record.spec.precision)
        # The last launch of a cell speaks for it.
        rows.setdefault((record.spec.strategy, record.spec.workload), {})[where] = record
    reasons: dict[str, int] = {}
    lines = [
        _line(["strategy", "workload", *(f"{n} {'rank' if n == 1 else 'ranks'}, {kind}" for n, kind in columns)]),
        _line(["---", "---", *("--:" for _ in columns)]),
        *(
            _line([f"`{_safe(strategy)}`", _safe(workload), *(_cell(found.get(one), reasons) for one in columns)])
            for (strategy, workload), found in rows.items()
        ),
    ]
    notes = [f"{number}. {_safe(reason)}" for reason, number in reasons.items()]
    return "\n".join([*lines, *(["", *notes] if notes else []), "", _CAPTION]) + "\n"


def _cell(record: RunRecord | None, reasons: dict[str, int]) -> str:
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


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _safe(text: str) -> str:
    return visible(text, 400).replace("|", r"\|").replace("`", "'").replace("<", "&lt;")
