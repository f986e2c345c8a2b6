"""Whatever is read – suites, strategies, records – is understood or refused in a sentence; nothing of it is run.

A sample runs with all tests; the nightly ones read 10^5 inputs.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Literal

import fuzz_inputs as inputs
import msgspec
import pytest
from fuzz_guard import GUARD
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from amounts import IN_CI, amount
from parbench import bind, plan, record, suite
from parbench.discover import PLACES
from parbench.errors import UnreadableError, UsageError
from parbench.grammar import MAX_LENGTH, Call, parse, parse_value, unparse
from parbench.record import RunRecord
from parbench.recordfile import RECORD, decode_record, encode_record
from parbench.registry import Registry
from parbench.spec import RunSpec, spec_id
from parbench.store import find_runs

SAMPLE = 250
NIGHTLY = amount(20_000, in_ci=1_500)  # of each of five targets; in CI the same ones every time


class Mine:
    """A constructor that takes everything an annotation can ask for."""

    def __init__(
        self,
        count: int = 1,
        how: Literal["ring", "tree"] = "ring",
        scale: float | None = None,
        names: tuple[str, ...] = (),
        where: Path = Path(),
        *,
        inner: Call | None = None,
        flag: bool = False,
    ) -> None:
        self.given = (count + 1, how, (scale or 0.0) / 2, names, where, inner, flag)


REGISTRY = Registry()
CLASSES = {"mine": Mine} | {name: REGISTRY.load(kind, name) for kind in PLACES for name in REGISTRY.names(kind)}
STRUCTS = [one for one in vars(record).values() if isinstance(one, type) and issubclass(one, msgspec.Struct)]
# Python's inspect and msgspec compile what stands in the source of parbench, and only that.
for _one in (*(cls.__init__ for cls in CLASSES.values()), *STRUCTS, RunSpec):
    GUARD.annotations |= {str(text) for text in getattr(_one, "__annotations__", {}).values()}
GUARD.annotations.add("def foo(): pass")


@pytest.fixture(autouse=True, scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Let msgspec and torch look at their own types first: what they do once is not what input makes them do."""
    found = decode_record(inputs.REAL_RECORD)
    encode_record(found)
    suite.from_record(found)
    for kind in PLACES:
        REGISTRY.names(kind)


def read_strategy(text: str) -> None:
    """Parse a text, which is then a Call that has one spelling, or refused."""
    with GUARD.watching():
        try:
            call = parse(text)
        except UsageError as error:
            assert str(error)
        else:
            assert len(unparse(call)) > MAX_LENGTH or parse(unparse(call)) == call
        try:
            value = parse_value(text)
        except UsageError:
            return
        written = unparse(Call("p", (value,)))
        assert len(written) > MAX_LENGTH or parse(written).args == (value,)


def bind_call(call: Call) -> None:
    """Give the arguments of a Call to the constructor it names."""
    with GUARD.watching():
        cls = CLASSES.get(call.name)
        try:
            if cls is None:
                REGISTRY.resolve("strategy", call)
            else:
                assert isinstance(bind.construct(cls, call), cls)
                assert bind.canonical(cls, parse(bind.canonical(cls, call))) == bind.canonical(cls, call)
        except UsageError as error:
            assert str(error)


def read_suite(folder: Path, data: bytes) -> None:
    """Read a suite file; and take its bytes for what `--set` is given."""
    path = folder / "mine.toml"
    path.write_bytes(data)
    with GUARD.watching():
        try:
            found = suite.load(path)
            assert found.specs
            REGISTRY.check_names(found.specs)
        except UsageError as error:
            assert str(error)
        try:
            plan.assignment(data.decode("utf-8", "replace"))
        except UsageError as error:
            assert str(error)


def read_one_record(data: bytes) -> None:
    """Decode a record and do what `show` and `run record.json` do with it before anything starts."""
    with GUARD.watching():
        try:
            found = decode_record(data, "some.json")
        except UnreadableError as error:
            assert str(error).startswith("some.json: ")
            return
        assert isinstance(found, RunRecord)
        assert decode_record(encode_record(found)) == found
        spec_id(found.spec)
        try:
            REGISTRY.check_names(suite.from_record(found).specs)
        except UsageError as error:
            assert str(error)


def find_records_in(folder: Path, files: dict[str, bytes]) -> None:
    """Look for records in a folder that holds such files."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, data in files.items():
        (folder / name).mkdir(parents=True)
        (folder / name / RECORD).write_bytes(data)
        (folder / name / "trace.pkl").write_bytes(b"cos\nsystem\n(S'touch pwned'\ntR.")
    folder.mkdir(exist_ok=True)
    with GUARD.watching():
        runs, problems = find_runs(folder)
        assert len(runs) + len(problems) == len(files)
        assert all(problem.sentence for problem in problems)


folders = st.dictionaries(st.sampled_from(("a", "b", "c", "a b", "é")), inputs.record_files, max_size=3)

# target -> what it is given, and what reads it in a folder
TARGETS: dict[str, tuple[st.SearchStrategy[object], Callable[[Path, object], None]]] = {
    "grammar": (inputs.strategy_texts, lambda folder, text: read_strategy(text)),
    "binding": (inputs.calls, lambda folder, call: bind_call(call)),
    "suite": (inputs.suite_files, read_suite),
    "record": (inputs.record_files, lambda folder, data: read_one_record(data)),
    "folder": (folders, lambda folder, files: find_records_in(folder / "results", files)),
}


def fuzz(target: str, folder: Path, examples: int, *, fixed: bool) -> None:
    """Give a target that many inputs; what is not understood must be refused, in time."""
    drawn, read = TARGETS[target]
    checks = settings(
        max_examples=examples,
        deadline=timedelta(seconds=10),
        database=None,
        derandomize=fixed,
        suppress_health_check=list(HealthCheck),
    )
    checks(given(drawn)(lambda one: read(folder, one)))()


@pytest.mark.parametrize("target", TARGETS)
def test_a_sample_of_hostile_input_is_understood_or_refused(target: str, tmp_path: Path) -> None:
    fuzz(target, tmp_path, SAMPLE, fixed=True)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("target", TARGETS)
def test_hostile_input_is_understood_or_refused(target: str, tmp_path: Path) -> None:
    fuzz(target, tmp_path, NIGHTLY, fixed=IN_CI)
