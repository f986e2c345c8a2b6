"""A benchmark file is what `pytest --benchmark-json` writes, with what `parbench check` needs from tests of suites."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from parbench.errors import UnreadableError
from parbench.history import History, HistoryCell, histories
from parbench.record import Environment, RunRecord
from parbench.summary import summary_of

KEY = "parbench"
_MAX_BYTES = 1 << 26


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What a test of a suite adds to its benchmark.

    Attributes:
        spec_id: of the cell.
        run: id of the `parbench run`.
        commit: of parbench.
        cell: the history of this one run of it.
        environment: where it ran.
    """

    spec_id: str
    run: str
    commit: str | None = None
    cell: HistoryCell
    environment: Environment


class _Bench(msgspec.Struct, frozen=True):
    extra_info: dict[str, msgspec.Raw] = {}


class _File(msgspec.Struct, frozen=True):
    benchmarks: list[_Bench]
    machine_info: dict[str, msgspec.Raw]


def extra_info(records: Sequence[RunRecord]) -> dict[str, object]:
    """Return what readers and `parbench check` want beside the times: metrics, agreement, and how rounds were got.

    Args:
        records: the launches of one cell of one run.
    """
    last = records[-1]
    (history,) = histories([summary_of(one) for one in records])
    told = Told(
        spec_id=last.spec_id,
        run=history.runs[-1],
        commit=history.commits[-1],
        cell=history.cells[last.spec_id],
        environment=last.environment,
    )
    plain: Mapping[str, object] = {name: m.value for name, m in last.metrics.items() if m.value is not None}
    agreement = msgspec.to_builtins(last.agreement) if last.agreement is not None else None
    together = last.launch.get("interleaved_with") or []
    return {
        **plain,
        "agreement": agreement,
        "replayed": "its rounds were measured before, in turns with the other cells of the suite",
        "interleaved_with": together,
        "records": [one.id for one in records],
        KEY: msgspec.to_builtins(told),
    }


def read_benchmarks(path: Path) -> list[History]:
    """Return the history of each machine in a file of `--benchmark-json` or `--benchmark-autosave`.

    Benchmarks that are no cells of a suite are left out.

    Raises:
        UnreadableError: it is damaged, or no such file.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            raise UnreadableError(f"{path}: larger than {_MAX_BYTES >> 20} MiB, so no file of pytest-benchmark")
        found = msgspec.json.decode(data, type=_File)
        told = [
            msgspec.json.decode(one.extra_info[KEY], type=Told) for one in found.benchmarks if KEY in one.extra_info
        ]
    except OSError as error:
        raise UnreadableError(f"{path}: cannot be read: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableError(f"{path}: damaged, or no file of pytest --benchmark-json: {error}") from error
    machines: dict[str, list[Told]] = {}
    for one in told:
        machines.setdefault(one.environment.fingerprint, []).append(one)
    return [_history(group, str(path)) for group in machines.values()]


def _history(told: Sequence[Told], path: str) -> History:
    runs = {one.run: one.commit for one in told}
    return History(
        environment=told[-1].environment,
        runs=tuple(runs),
        commits=tuple(runs.values()),
        cells={one.spec_id: one.cell for one in told},
        path=path,
    )
