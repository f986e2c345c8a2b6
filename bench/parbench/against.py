"""Two versions are measured against each other in turns, in one job: noise between jobs dwarfs most changes.

time   base head | head base | base head | ...      every word a whole `parbench run` of that version
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from parbench.checkresult import ORDER, Checked, CheckResult, Outcome
from parbench.compare import compare_paths
from parbench.comparison import CellCompared, Compared, Comparison
from parbench.errors import CheckFailed, MissingError, UsageError
from parbench.store import find_records
from parbench.verdict import ALPHA, Verdict

_OUT = "{out}"
# What a sweep ends with although it has measured: a rank failed or was stuck, which the records tell.
_MEASURED = (0, 4, 5)
_OUTCOMES: dict[Verdict, Outcome] = {
    "better": "improvement",
    "worse": "regression",
    "changed": "changed",
    "same": "passed",
    "inconclusive": "inconclusive",
    "not ranked": "failed",
    "missing": "missing",
}


def measure_in_turns(base: str, head: str, launches: int, out: Path, tell: Callable[[str], None]) -> tuple[Path, Path]:
    """Run both commands `launches` times in the order base, head, head, base, and return the folders of their results.

    Args:
        base: a command that measures the old version, such as `../base/.venv/bin/parbench run suite.toml`; `{out}` in
            it stands for the folder of results, else `--fresh -o FOLDER` is added.
        head: likewise the new version.
        launches: of each.
        out: folder of both.
        tell: told before each run what is about to run.

    Raises:
        UsageError: a command cannot be meant.
        MissingError: a command is not there.
        CheckFailed: a command ended before it had measured.
    """
    if launches < 1:
        raise UsageError(f"--launches {launches}: at least 1 is needed, 6 to tell small changes")
    folders = {"base": out / "base", "head": out / "head"}
    argv = {name: _argv(name, text, folders[name]) for name, text in (("base", base), ("head", head))}
    for k in range(launches):
        for name in ("base", "head") if k % 2 == 0 else ("head", "base"):
            tell(f"{name}, run {k + 1} of {launches}")
            _run(name, argv[name])
    return folders["base"], folders["head"]


def check_turns(
    base: Path, head: Path, metrics: Sequence[str], unwatched: frozenset[str], margin: float
) -> CheckResult:
    """Return the check of head against base; runs k of both were measured one after the other.

    Raises:
        CheckFailed: nothing was measured, or not alike.
    """
    sides = []
    for folder in (base, head):
        records, problems = find_records(folder) if folder.exists() else ([], [])
        if problems or not records:
            why = problems[0].sentence if problems else "it stored no records: an empty result never passes"
            raise CheckFailed(f"{folder}: {why}")
        if len({record.environment.software for record in records}) > 1:
            raise CheckFailed(
                f"{folder}: its code or a library changed while it was measured; leave both alone until then"
            )
        sides.append(records)
    found = compare_paths(sides[0], sides[1], old_path=str(base), new_path=str(head), turns=True, margin=margin)
    return _as_check(found, metrics, unwatched, margin)


def _as_check(found: Comparison, metrics: Sequence[str], unwatched: frozenset[str], margin: float) -> CheckResult:
    checked = [_lost(name) for name in found.missing]
    for cell in found.cells:
        if cell.unranked:
            checked.append(Checked(cell=_name(cell), outcome="failed", why="; ".join(cell.unranked)))
            continue
        wanted = [
            m for m in cell.metrics if (m.metric in metrics if metrics else m.better and m.metric not in unwatched)
        ]
        checked += [_checked(cell, one, margin) for one in wanted]
    if not checked:
        raise CheckFailed("nothing was checked: no metric was measured on both sides; an empty result never passes")
    return CheckResult(
        baseline=found.old,
        path=found.new,
        alpha=ALPHA,
        differs=found.differs,
        checked=tuple(sorted(checked, key=lambda one: ORDER.index(one.outcome))),
        notes=("base and head were measured in turns, in this job",),
    )


def _checked(cell: CellCompared, one: Compared, margin: float) -> Checked:
    why = [one.why, *(cell.because if one.metric == "step_time_s" else ())]
    return Checked(
        cell=_name(cell),
        metric=one.metric,
        unit=one.unit,
        better=one.better,
        old=one.old,
        new=one.new,
        ratio=one.ratio,
        low=one.low,
        high=one.high,
        threshold=margin,
        p=one.p,
        runs=one.launches,
        outcome=_OUTCOMES[one.verdict],
        why="; ".join(filter(None, why)),
    )


def _lost(name: str) -> Checked:
    return Checked(cell=name, outcome="missing", why="head lacks this cell")


def _name(cell: CellCompared) -> str:
    return f"{cell.workload} {cell.strategy} at {cell.ranks}"


def _argv(name: str, text: str, folder: Path) -> list[str]:
    """Return the command as arguments; no shell sees it."""
    try:
        parts = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"the {name} command {text[:80]!r} is not understood: {error}; mend its quotes") from error
    if not parts:
        raise UsageError(f"the {name} command is empty; give one such as '../{name}/.venv/bin/parbench run suite.toml'")
    if any(_OUT in part for part in parts):
        return [part.replace(_OUT, str(folder)) for part in parts]
    return [*parts, "--fresh", "-o", str(folder)]


def _run(name: str, argv: Sequence[str]) -> None:
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    except OSError as error:
        raise MissingError(f"the {name} command cannot be started: {argv[0]}: {error.strerror}") from error
    if done.returncode not in _MEASURED:
        told = done.stderr.decode(errors="replace").strip().splitlines()
        last = told[-1] if told else "it said nothing"
        raise CheckFailed(f"the {name} command ended with {done.returncode} before it had measured: {last}")
