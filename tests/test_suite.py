"""Tests of suites: matrices, exclusions, changes from the command line, and everything that is refused."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parbench import plan, suite
from parbench.errors import UsageError
from parbench.record import Environment, RunRecord
from parbench.registry import Registry
from parbench.resolve import resolve
from parbench.spec import RunSpec, spec_id

FULL = """
name = "scaling"
[workload]
name = "digits"
size = "smoke"
[matrix]
strategy = ["single", "ddp"]
world_size = [2, 4]
seed = [0, 1]
[[exclude]]
strategy = "ddp()"
world_size = 4
[run]
steps = 7
warmup = 2
repeats = 3
timeout_s = 5
"""


def loaded(folder: Path, text: str | bytes) -> suite.Suite:
    path = folder / "mine.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return suite.load(path)


def test_matrix_multiplies_and_exclude_removes(tmp_path: Path) -> None:
    found = loaded(tmp_path, FULL)
    assert found.name == "scaling"
    assert [(one.world_size, one.seed, one.strategy) for one in found.specs] == [
        (2, 0, "single"),
        (2, 0, "ddp"),
        (2, 1, "single"),
        (2, 1, "ddp"),
        (4, 0, "single"),
        (4, 1, "single"),
    ]
    assert {(one.steps, one.warmup, one.repeats, one.timeout_s) for one in found.specs} == {(7, 2, 3, 5.0)}


def test_name_defaults_to_the_file(tmp_path: Path) -> None:
    assert loaded(tmp_path, '[workload]\nname="digits"\n[matrix]\nstrategy=["ddp"]').name == "mine"


def test_workload_arguments_become_a_call(tmp_path: Path) -> None:
    text = '[workload]\nname="text"\narguments={path="my corpus.txt"}\n[run]\nstrategy="ddp"'
    assert loaded(tmp_path, text).specs[0].workload == "text(path='my corpus.txt')"


BASE = '[workload]\nname="digits"\n[matrix]\nstrategy=["ddp"]\n'


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (BASE + "[rum]\nsteps=5", ["'rum'", "'run'"]),
        (BASE + "[run]\nstep=5", ["'step'", "'steps'", "[run]"]),
        (BASE + "wrold_size=[2]", ["'wrold_size'", "'world_size'", "[matrix]"]),
        ('[workload]\nnmae="digits"', ["'nmae'", "'name'"]),
        (BASE + '[[exclude]]\nstratgy="ddp"', ["'stratgy'", "'strategy'", "exclude"]),
        (BASE + "[[exclude]]", ["at least one"]),
        (BASE + '[[exclude]]\nstrategy="ddp"', ["every cell"]),
        (BASE + "world_size=[]", ["world_size", "empty"]),
        (BASE + "world_size=[0]", ["world_size", "from 1", "given 0"]),
        (BASE + 'world_size=["2"]', ["world_size", "whole number", "'2'"]),
        (BASE + "world_size=[true]", ["world_size", "whole number", "True"]),
        (BASE + "[run]\nsteps=0", ["run.steps", "from 1", "given 0"]),
        (BASE + "[run]\nsteps=-1", ["run.steps", "given -1"]),
        (BASE + "[run]\nsteps=1e309", ["run.steps", "given inf"]),
        (BASE + "[run]\nsteps=nan", ["run.steps", "given nan"]),
        (BASE + "[run]\nwarmup=0", ["run.warmup", "leave it out"]),
        (BASE + "[run]\ntimeout_s=nan", ["run.timeout_s", "above 0", "nan"]),
        (BASE + "[run]\ntimeout_s=0", ["run.timeout_s", "above 0"]),
        (BASE + '[run]\nprecision="fp99"', ["fp32", "bf16", "fp99"]),
        (BASE + "[run]\nsteps=true", ["whole number"]),
        (BASE + '[run]\nstrategy="ddp"', ["'strategy'", "two tables"]),
        (BASE + "[run]\ndata_hash='x'", ["'data_hash'"]),
        ("run=5", ["[run]"]),
        ("name=5", ["name"]),
        ('[workload]\nname="digits"', ["no strategy"]),
        ('[matrix]\nstrategy=["ddp"]', ["no workload"]),
        ("\na=\n", ["line 2"]),
        (b"\n\xff", ["UTF-8", "line 2"]),
        ("a=" + "[" * 5000, ["nested"]),
        ("a=" + "9" * 5000, ["TOML"]),
        ("#" * (suite.MAX_FILE_BYTES + 1), ["bytes"]),
        (BASE + f"seed={list(range(200))}\nworld_size={list(range(1, 100))}", ["19800 cells"]),
    ],
)
def test_mistakes_in_a_suite_are_named(tmp_path: Path, text: str | bytes, parts: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        loaded(tmp_path, text)
    for part in parts:
        assert part in str(caught.value)


DEEP = ".".join("a" * 2000)
HUGE = "0x" + "f" * 20_000


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (f"name.{DEEP}=1", "mine.toml name"),
        (f"name={HUGE}", "mine.toml name"),
        (f"matrix={HUGE}", "must be a table"),
        (BASE + f"steps=[{{{DEEP}=1}}]", "too large to show"),
        (BASE + f"[run]\nsteps.{DEEP}=1", "run.steps"),
        (BASE + f"[run]\nsteps={HUGE}", "run.steps"),
        (BASE + f"[[exclude]]\nsteps.{DEEP}=1", "[[exclude]] number 1 steps"),
        ('[workload]\nname="text"\n' + f"arguments={{x={HUGE}}}", "64 bits"),
        ('[workload]\nname="text"\n' + f"arguments={{x={{{DEEP}=1}}}}", "workload.arguments.x"),
        (f"workload.name.{DEEP}=1", "workload.name"),
    ],
)
def test_tables_without_end_and_huge_integers_are_refused_and_no_traceback(
    tmp_path: Path, text: str, part: str
) -> None:
    with pytest.raises(UsageError) as caught:
        loaded(tmp_path, text)
    assert part in str(caught.value)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    "text", [".".join("a" * 500_000) + "=1", f"[{DEEP}]\n" + "b=1\n" * 200_000, f"{DEEP}=1\n" * 200]
)
def test_keys_that_would_take_hours_are_refused_at_once(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError, match="too many dots"):
        loaded(tmp_path, text)


def test_dots_in_values_are_no_keys(tmp_path: Path) -> None:
    many = [f"topk(ratio=0.{k})" for k in range(1000)]
    assert len(loaded(tmp_path, '[workload]\nname="digits"\n[matrix]\nstrategy=' + str(many)).specs) == 1000


@pytest.mark.parametrize("key", ['"a b"', '"x=1), y"', '""', '"\\u00e9"', "5", "a-b"])
def test_a_key_that_is_no_name_never_becomes_part_of_a_call(tmp_path: Path, key: str) -> None:
    with pytest.raises(UsageError, match="arguments are named like"):
        loaded(tmp_path, f'[workload]\nname="text"\narguments={{{key}="x"}}\n[run]\nstrategy="ddp"')


def test_arguments_that_make_a_workload_too_long_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="4096"):
        loaded(tmp_path, f'[workload]\nname="text"\narguments={{path="{"x" * 5000}"}}\n[run]\nstrategy="ddp"')


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.toml"):
        suite.load(tmp_path / "none.toml")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=200)
@given(st.text(max_size=80), st.sampled_from(["", BASE, BASE + "[run]\nsteps=", FULL]))
def test_any_text_is_a_suite_or_refused(tmp_path: Path, text: str, start: str) -> None:
    try:
        found = loaded(tmp_path, (start + text).encode("utf-8", "surrogatepass"))
    except UsageError:
        return
    assert found.specs


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("steps=5", ("steps", (5,))),
        ("run.steps = 5", ("steps", (5,))),
        ("workload.size=cnn", ("size", ("cnn",))),
        ("workload.name=gpt", ("workload", ("gpt",))),
        ("matrix.world_size=[1, 2, 2]", ("world_size", (1, 2))),
        ("strategy=ddp(bucket_cap_mb=1)", ("strategy", ("ddp(bucket_cap_mb=1)",))),
        ("strategy=[ddp, topk(ratio=0.1)]", ("strategy", ("ddp", "topk(ratio=0.1)"))),
        ("warmup=None", ("warmup", (None,))),
        ("timeout_s=3", ("timeout_s", (3.0,))),
    ],
)
def test_set_changes_a_setting(text: str, expected: tuple[str, tuple[object, ...]]) -> None:
    assert plan.assignment(text) == expected


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("steps", ["KEY=VALUE"]),
        ("stepss=5", ["'steps'"]),
        ("run.stepss=5", ["'run.steps'"]),
        ("workload.steps=5", ["no setting"]),
        ("data_hash=x", ["no setting"]),
        ("steps=0", ["from 1", "'0'"]),
        ("steps=1e309", ["'1e309'"]),
        ("steps=five", ["'five'"]),
        ("global_batch_size=-1", ["'-1'", "automatic"]),
        ("global_batch_size=NaN", ["'NaN'"]),
        ("world_size=[]", ["empty"]),
        ("world_size=[1", ["expected"]),
        ("strategy=", ["string"]),
    ],
)
def test_set_refuses(text: str, parts: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        plan.assignment(text)
    for part in parts:
        assert part in str(caught.value)


def test_changes_replace_what_the_suite_says(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text(FULL)
    found = suite.load(path, {"strategy": ("no_overlap",), "steps": (9,), "seed": (3,)}, "other")
    assert found.name == "other"
    assert {(one.strategy, one.steps, one.seed) for one in found.specs} == {("no_overlap", 9, 3)}


def test_exclude_that_matches_nothing_is_noted(tmp_path: Path) -> None:
    assert "matches no cell" in loaded(tmp_path, BASE + "[[exclude]]\nworld_size=64").notes[0]


def test_default_compares_the_default_strategies_on_real_data() -> None:
    found = resolve(suite.default(), Registry())
    spread = {("single", 1), ("ddp", 2)}
    families = {("fsdp", 2), ("tensor", 2), ("pipeline", 2), ("topk", 2)}
    of_text = {(one.strategy, one.world_size) for one in found.specs if one.workload == "text"}
    of_rows = {(one.strategy, one.world_size) for one in found.specs if one.workload == "digit-rows"}
    assert of_text == spread | families
    assert of_rows == spread | {("amp_rnn(weights=bf16)", 2)}
    assert len(found.specs) == 9
    assert not [note for note in found.notes if "exclude" in note]
    assert all(one.global_batch_size and one.data_hash for one in found.specs)
    assert resolve(found, Registry()) == found


def test_who_chooses_strategies_gets_them_on_all_default_workloads() -> None:
    found = suite.default({"strategy": ("fsdp",)})
    assert [one.workload for one in found.specs] == ["text", "digit-rows"]
    assert not found.notes


def test_single_runs_once_whatever_the_ranks() -> None:
    changes = {"strategy": ("single", "ddp", "ddp()"), "world_size": (2, 3), "size": ("smoke",)}
    found = resolve(suite.from_flags("digits", changes), Registry())
    assert [(one.strategy, one.world_size) for one in found.specs] == [("single", 1), ("ddp", 2), ("ddp", 3)]
    assert "single always runs on 1 rank, whatever is asked for" in found.notes


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"size": ("smal",)}, "'small'"),
        ({"workload": ("digit",)}, "'digits'"),
        ({"strategy": ("dpp",)}, "'ddp'"),
        ({"workload": ("text(path='/no/such/file')",)}, "/no/such/file"),
    ],
)
def test_resolving_refuses_unknown_names(changes: plan.Changes, part: str) -> None:
    with pytest.raises(UsageError, match=part):
        resolve(suite.from_flags("digits", {"size": ("small",), **changes}), Registry())


def test_ranks_that_get_no_samples_are_noted() -> None:
    changes: plan.Changes = {"global_batch_size": (1,), "strategy": ("ddp",), "size": ("smoke",)}
    assert "some ranks get none" in resolve(suite.from_flags("digits", changes), Registry()).notes[0]


def _record(spec: RunSpec) -> RunRecord:
    environment = Environment(fingerprint="f", software="s", facts={})
    return RunRecord(
        id="r",
        suite="default",
        status="complete",
        started_at="",
        spec=spec,
        spec_id=spec_id(spec),
        environment=environment,
    )


def test_record_repeats_its_cell() -> None:
    cell = resolve(suite.from_flags("digits", {"strategy": ("ddp",), "size": ("smoke",)}), Registry()).specs[0]
    repeated = resolve(suite.from_record(_record(cell)), Registry())
    assert repeated.specs == (cell,)
    assert repeated.name == "default"
    assert not repeated.notes


def test_record_of_other_data_is_noted() -> None:
    spec = RunSpec(workload="digits", strategy="ddp", size="smoke", data_hash="old")
    found = resolve(suite.from_record(_record(spec)), Registry())
    assert "old" in found.notes[0]
    assert found.specs[0].data_hash != "old"


def test_specs_made_in_python_are_checked() -> None:
    with pytest.raises(UsageError, match="steps must be"):
        suite.of_specs((RunSpec(workload="digits", strategy="ddp", steps=0),))


def test_document_holds_every_cell() -> None:
    found = suite.default()
    cells = found.document["cells"]
    assert isinstance(cells, list)
    assert tuple(msgspec.convert(cell, RunSpec) for cell in cells) == found.specs


def test_a_lone_surrogate_where_a_number_belongs_is_refused():
    with pytest.raises(UsageError, match="must be a whole number"):
        plan.assignment('world_size="\\ud800"')
