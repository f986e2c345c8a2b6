"""A store gives back what was put in, names files harmlessly, and refuses by name what is not its own."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parbench import recordfile
from parbench.errors import StoreError, UnreadableError, UsageError
from parbench.record import (
    SCHEMA_MAJOR,
    SCHEMA_MINOR,
    Agreement,
    Chosen,
    Environment,
    Failure,
    Metric,
    Round,
    RunRecord,
    WarmUp,
    Warned,
)
from parbench.spec import RunSpec, spec_id
from parbench.store import (
    Store,
    decode_record,
    encode_record,
    find_records,
    find_runs,
    new_run_id,
    read_record,
    safe_name,
)

MUSEUM = Path(__file__).parent / "records"
SPEC = RunSpec(workload="digits", strategy="topk(ratio=0.01)", world_size=2, global_batch_size=64)
STEPS = {
    "phase": ["warmup", "timed", "timed"],
    "round": [0, 0, 0],
    "rank": [0, 0, 1],
    "step": [0, 1, 1],
    "seconds": [0.5, 0.25, 0.125],
    "samples": [64, 64, 64],
    "loss": [2.0, None, math.nan],
}


def a_record(**changes: object) -> RunRecord:
    record = RunRecord(
        id="20261130T112233Z-0a1b2c3d",
        suite="digits",
        status="complete",
        started_at="2026-11-30T11:22:33Z",
        spec=SPEC,
        spec_id=spec_id(SPEC),
        environment=Environment(
            fingerprint="f0", software="s0", facts={"cpu": "x", "commit": None}, variables={"OMP_NUM_THREADS": "1"}
        ),
        metrics={
            "step_time_s": Metric(value=0.25, unit="s", better="lower", n=20, ci_low=0.2, ci_high=0.3, source="rounds"),
            "mfu": Metric.unavailable("fraction", "higher", "no peak is known for this CPU"),
        },
        agreement=Agreement(
            declared="on average", passed=True, loss_difference=1e-7, parameter_difference=1e-6, steps=3
        ),
        breakdown={"forward": 0.1, "other": 0.15},
        warnings=(Warned(code="oversubscribed", message="4 ranks on 2 cores", advice="use fewer"),),
        chosen={"backend": Chosen(value="gloo", because="no GPU")},
        launch={"unit": "samples", "units_per_sample": 1, "order": ["ddp", "single"]},
        warm_up=WarmUp(steps=5, wall_s=2.0, first_step_s=1.0, steady=None, rule="until steady"),
        rounds=(Round(index=0, first_step=5, steps=5, samples=320, wall_s=1.25, drain_s=0.0, rank_wall_s=(1.25, 1.2)),),
        failure=Failure(rank=1, step=3, kind="exit", message="exit code 17", followed=("rank 0",)),
        resolved_suite={"workload": {"name": "digits"}, "matrix": {"strategy": ["ddp"]}},
    )
    return msgspec.structs.replace(record, **changes)


def raw(**changes: object) -> dict[str, object]:
    """A stored record as plain data, with top-level fields changed."""
    return json.loads(encode_record(a_record())) | changes


def as_bytes(data: object) -> bytes:
    return json.dumps(data).encode()


# Writing


def test_a_record_comes_back_as_it_was(tmp_path: Path) -> None:
    log = tmp_path / "some.log"
    log.write_bytes(b"x" * 3_000_000)
    folder = Store(tmp_path / "r").write(a_record(), steps=STEPS, files={"log/rank0.log": log})
    assert folder == tmp_path / "r" / "digits" / "20261130T112233Z-0a1b2c3d"
    assert read_record(folder) == read_record(folder / "record.json") == a_record()
    assert (folder / "log" / "rank0.log").read_bytes() == log.read_bytes()
    assert sorted(p.name for p in folder.iterdir()) == ["log", "record.json", "steps.parquet"]
    assert (folder / "record.json").read_text().startswith('{\n  "schema": {\n')


def test_a_run_without_a_breakdown_comes_back_without_one_and_not_with_an_empty_one() -> None:
    absent = a_record(breakdown=None, warm_up=None, agreement=None, failure=None)
    assert decode_record(encode_record(absent)) == absent
    assert decode_record(as_bytes(raw(breakdown=None))).breakdown is None
    assert decode_record(as_bytes(raw(breakdown={"other": None}))).breakdown == {}


def test_raw_samples_come_back(tmp_path: Path) -> None:
    folder = Store(tmp_path).write(a_record(), steps=STEPS | {"note": ["a", None, "c"]}, files={})
    file = pyarrow.parquet.ParquetFile(folder / "steps.parquet")
    assert file.metadata.row_group(0).column(4).compression == "ZSTD"
    table = file.read().to_pydict()
    assert table["seconds"] == STEPS["seconds"]
    assert table["phase"] == STEPS["phase"]
    assert table["loss"][:2] == [2.0, None]
    assert table["note"] == ["a", None, "c"]


def test_no_samples_still_make_a_table(tmp_path: Path) -> None:
    folder = Store(tmp_path).write(a_record(), steps={}, files={})
    assert pyarrow.parquet.ParquetFile(folder / "steps.parquet").read().num_rows == 0


@pytest.mark.parametrize("steps", [{"rank": [0, 1], "step": [0]}, {"rank": ["x"]}, {"other": [1, "x"]}])
def test_samples_that_make_no_table_are_refused(tmp_path: Path, steps: dict[str, list[int]]) -> None:
    with pytest.raises(StoreError):
        Store(tmp_path).write(a_record(), steps=steps, files={})
    assert find_records(tmp_path) == ([], [])


def test_what_is_not_finite_becomes_null_with_a_reason() -> None:
    nan, inf = math.nan, math.inf
    rounds = (a_record().rounds[0], msgspec.structs.replace(a_record().rounds[0], wall_s=inf))
    record = a_record(
        metrics={"final_loss": Metric(value=nan, unit="nats", better="lower", n=1)},
        breakdown={"forward": nan, "other": 1.0},
        launch={"x": inf, "y": 2.0},
        rounds=rounds,
        warm_up=msgspec.structs.replace(a_record().warm_up, first_step_s=nan),
        agreement=Agreement(declared="exactly", passed=False, loss_difference=nan),
        environment=Environment(fingerprint="f", software="s", facts={"load_1min": inf}),
        resolved_suite={"a": [1.0, -inf]},
    )
    text = encode_record(record)
    json.loads(text, parse_constant=pytest.fail)
    found = decode_record(text)
    assert found.metrics["final_loss"].value is None
    assert found.metrics["final_loss"].reason == "not finite (nan)"
    assert (found.breakdown, found.launch) == ({"other": 1.0}, {"y": 2.0})
    assert (len(found.rounds), found.warm_up, found.agreement.loss_difference) == (1, None, None)
    assert found.warnings[-1].code == "not_finite"
    assert "rounds[1].wall_s (inf)" in found.warnings[-1].message


def test_text_that_is_no_utf8_is_escaped() -> None:
    found = decode_record(encode_record(a_record(reason="caf\udce9")))
    assert found.reason == "caf\\udce9"


def test_a_record_of_a_failed_case_beside_complete_ones_is_valid(tmp_path: Path) -> None:
    """F8: one failed result among three leaves valid JSON, and an entry that says so."""
    store = Store(tmp_path)
    for status in ("complete", "failed", "complete"):
        reason = None if status == "complete" else "rank 1 raised ZeroDivisionError"
        store.write(a_record(id=new_run_id(), status=status, reason=reason), steps={}, files={})
    records, problems = find_records(tmp_path)
    assert sorted(r.status for r in records) == ["complete", "complete", "failed"]
    assert problems == []


def test_documents_are_replaced_whole(tmp_path: Path) -> None:
    store = Store(tmp_path / "new")
    assert store.write_document("sweep-1.json", b"old") == tmp_path / "new" / "sweep-1.json"
    store.write_document("sweep-1.json", b"new")
    assert [p.read_bytes() for p in (tmp_path / "new").iterdir()] == [b"new"]


def test_a_name_is_not_used_twice(tmp_path: Path) -> None:
    store = Store(tmp_path)
    folder = store.write(a_record(), steps=STEPS, files={})
    before = (folder / "record.json").read_bytes()
    with pytest.raises(StoreError, match="already stored"):
        store.write(a_record(reason="other"), steps=STEPS, files={})
    assert (folder / "record.json").read_bytes() == before
    assert [p.name for p in folder.parent.iterdir()] == [folder.name]


def test_run_ids_differ_and_sort_by_time() -> None:
    ids = {new_run_id() for _ in range(1000)}
    assert len(ids) == 1000
    assert all(re.fullmatch(r"\d{8}T\d{6}Z-[0-9a-f]{8}", one) for one in ids)


# Names (S6)

HOSTILE = [
    "../../etc/x",
    "/etc/passwd",
    "C:\\windows\\x",
    "a\0b",
    "x" * 5000,
    "CON",
    "con.txt",
    "nul",
    "COM1",
    "trailing.",
    "..",
    ".",
    "",
    ".partial-x",
    "-rf",
    "\u0440\u0430ypal",
    "a/b",
    "a\nb",
    "\u202egnp",
    "\udce9",
    "  ",
    "topk(ratio=0.01)",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_names_become_harmless_ones(text: str, tmp_path: Path) -> None:
    name = safe_name(text)
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}", name)
    assert not name.endswith(".")
    assert name != text
    assert not re.fullmatch(r"(?i)(con|prn|aux|nul|com\d|lpt\d)(\..*)?", name)
    assert (tmp_path / name).resolve().parent == tmp_path.resolve()
    folder = Store(tmp_path).write(a_record(suite=text, id=text), steps={}, files={})
    assert folder.resolve().is_relative_to(tmp_path.resolve())
    assert read_record(folder).suite in (text, "\\udce9")


@pytest.mark.parametrize("text", ["digits", "a", "20261130T112233Z-0a1b2c3d", "x" * 100, "sweep-1.json"])
def test_harmless_names_stay(text: str) -> None:
    assert safe_name(text) == text


def test_lookalikes_stay_apart() -> None:
    assert len({safe_name(text) for text in HOSTILE}) == len(HOSTILE)
    assert safe_name("a/b") != safe_name("a-b")


@given(st.text(st.characters()))
def test_any_name_becomes_one_plain_component(text: str) -> None:
    name = safe_name(text)
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}", name)
    assert safe_name(name) == name


def test_copied_files_stay_in_the_folder(tmp_path: Path) -> None:
    source = tmp_path / "log"
    source.write_text("x")
    folder = Store(tmp_path / "r").write(a_record(), steps={}, files={"../../../up.log": source, "/abs/x": source})
    inside = [p for p in folder.rglob("*") if p.is_file()]
    assert len(inside) == 4
    assert not (tmp_path / "up.log").exists()


def test_linked_folders_inside_are_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "digits").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="symbolic link"):
        Store(tmp_path / "r").write(a_record(), steps={}, files={})
    assert list((tmp_path / "elsewhere").iterdir()) == []


# Reading


@pytest.mark.parametrize("file", sorted(MUSEUM.glob("*.json")), ids=lambda p: p.name)
def test_records_of_every_version_ever_written_are_read(file: Path) -> None:
    before = file.read_bytes()
    record = read_record(file)
    assert record.schema.name == "parbench.record"
    assert record.id
    assert file.read_bytes() == before


def test_the_museum_has_a_record_of_every_version() -> None:
    versions = [f"record-{SCHEMA_MAJOR}.{minor}.json" for minor in range(SCHEMA_MINOR + 1)]
    assert sorted(p.name for p in MUSEUM.iterdir()) == versions


def test_a_truncated_file_is_named_wherever_it_ends(tmp_path: Path) -> None:
    good = encode_record(a_record())
    file = tmp_path / "record.json"
    for size in range(0, len(good.rstrip()), 7):
        file.write_bytes(good[:size])
        with pytest.raises(UnreadableError) as caught:
            read_record(file)
        assert str(file) in str(caught.value)
        assert "byte" in str(caught.value)


@pytest.mark.parametrize(
    "data",
    [
        b'{"name": "x", "version": "1.0.0", "dependencies": {}}',
        b'{"machine_info": {}, "commit_info": {}, "benchmarks": [{"name": "a"}], "version": "4.0.0"}',
        b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR",
        b"[]",
        b'"schema"',
        b"{}",
        b"",
    ],
)
def test_foreign_files_are_no_parbench_result(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "record.json").write_bytes(data)
    with pytest.raises(UnreadableError, match=r"not a parbench result \(no schema"):
        read_record(tmp_path)


@pytest.mark.parametrize(
    "schema", [1, None, "x", [], {"name": "other", "major": 1, "minor": 0}, {"name": "parbench.record"}]
)
def test_foreign_schemas_are_no_parbench_result(schema: object) -> None:
    with pytest.raises(UnreadableError, match="not a parbench result"):
        decode_record(as_bytes(raw(schema=schema)))


def test_a_newer_major_is_refused_by_name() -> None:
    newer = {"name": "parbench.record", "major": 3, "minor": 1}
    with pytest.raises(UnreadableError, match=r"written by a newer version \(3\.1\); this is 1\.3: upgrade parbench"):
        decode_record(as_bytes({"schema": newer, "anything": [1]}))


def test_a_version_that_never_was() -> None:
    with pytest.raises(UnreadableError, match=r"never was a schema 0\.9"):
        decode_record(as_bytes(raw(schema={"name": "parbench.record", "major": 0, "minor": 9})))


def test_a_newer_minor_is_read_and_its_additions_ignored() -> None:
    newer = raw(schema={"name": "parbench.record", "major": 1, "minor": 7}, invented={"x": [1e99]})
    newer["spec"]["invented"] = "10G"
    newer["environment"]["invented"] = 1
    assert msgspec.structs.replace(decode_record(as_bytes(newer)), schema=a_record().schema) == a_record()


def test_a_newer_minor_with_values_unknown_here_says_upgrade() -> None:
    newer = raw(schema={"name": "parbench.record", "major": 1, "minor": 7}, status="paused")
    with pytest.raises(UnreadableError, match="upgrade parbench"):
        decode_record(as_bytes(newer))


def test_unknown_fields_of_this_version_are_no_spec_of_ours() -> None:
    wrong = raw()
    wrong["spec"]["typo"] = 1
    with pytest.raises(UnreadableError, match="typo"):
        decode_record(as_bytes(wrong))


@pytest.mark.parametrize(
    "data",
    [
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        b'{"schema":' + b"[" * 100_000,
        b'{"schema":{"name":"parbench.record","major":' + b"9" * 1_000_000 + b',"minor":0}}',
        b'{"schema":{"name":"parbench.record","major":1e999,"minor":0}}',
        b'{"schema":{"name":"parbench.record","major":NaN,"minor":0}}',
        b'{"schema":"\xff"}',
    ],
    ids=["deep", "deep and open", "huge integer", "1e999", "NaN", "no UTF-8"],
)
def test_hostile_json_is_unreadable(data: bytes) -> None:
    with pytest.raises(UnreadableError):
        decode_record(data)


@pytest.mark.parametrize(
    "value", ["9" * 1_000_000, "1e999", "[" * 100_000 + "]" * 100_000, '{"a":' * 9999 + "1" + "}" * 9999]
)
@pytest.mark.parametrize("field", ["repeat", "resolved_suite", "metrics", "rounds", "launch"])
def test_hostile_values_in_known_fields_are_unreadable(field: str, value: str) -> None:
    plain = as_bytes(raw(**{field: "@"})).replace(b'"@"', value.encode())
    with pytest.raises(UnreadableError):
        decode_record(plain)


def test_of_duplicate_keys_the_last_counts() -> None:
    twice = encode_record(a_record()).replace(b'"suite": "digits"', b'"suite": "a", "suite": "b"')
    assert decode_record(twice).suite == "b"


def test_a_file_over_the_cap_is_not_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recordfile, "MAX_BYTES", 2**20)
    (tmp_path / "record.json").write_bytes(b" " * (2**20 + 1))
    with pytest.raises(UnreadableError, match="larger than 1 MiB"):
        read_record(tmp_path)


@settings(deadline=None, max_examples=300)
@given(st.binary())
def test_any_bytes_are_a_record_or_unreadable(data: bytes) -> None:
    with contextlib.suppress(UnreadableError):
        assert isinstance(decode_record(data), RunRecord)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


@settings(deadline=None, max_examples=300)
@given(st.sampled_from(sorted(raw())), JSON)
def test_any_value_in_any_field_is_a_record_or_unreadable(field: str, value: object) -> None:
    with contextlib.suppress(UnreadableError):
        assert isinstance(decode_record(as_bytes(raw(**{field: value}))), RunRecord)


@settings(deadline=None, max_examples=300)
@given(st.integers(0, len(encode_record(a_record())) - 1), st.integers(0, 255))
def test_any_changed_byte_is_a_record_or_unreadable(at: int, byte: int) -> None:
    data = bytearray(encode_record(a_record()))
    data[at] = byte
    with contextlib.suppress(UnreadableError):
        assert isinstance(decode_record(bytes(data)), RunRecord)


@pytest.mark.parametrize("path", ["missing", "a\0b", "folder"])
def test_what_cannot_be_opened_is_unreadable(tmp_path: Path, path: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(UnreadableError):
        read_record(tmp_path / path)


# Finding


def test_records_are_found_by_id_and_bad_ones_counted(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for suite, run in (("b", "2"), ("a", "3"), ("b", "1"), ("b", "4")):
        store.write(a_record(suite=suite, id=run), steps={}, files={})
    (tmp_path / "b" / "4" / "record.json").write_bytes(b'{"half": ')
    (tmp_path / "b" / ".partial-h-1-x").mkdir()
    (tmp_path / "b" / ".partial-h-1-x" / "record.json").write_bytes(b"{")
    (tmp_path / "a" / "loop").symlink_to(tmp_path)
    (tmp_path / "sweep-1.json").write_bytes(b"not looked at")
    records, problems = find_records(tmp_path)
    assert [r.id for r in records] == ["1", "2", "3"]
    assert [p.path for p in problems] == [tmp_path / "b" / "4" / "record.json"]
    assert "record.json" in problems[0].sentence
    assert [run.folder for run in find_runs(tmp_path / "a")[0]] == [tmp_path / "a" / "3"]
    assert find_records(tmp_path / "b" / "1")[0][0].id == "1"
    assert find_records(tmp_path / "b" / "1" / "record.json")[0][0].id == "1"
    with pytest.raises(UnreadableError):
        find_records(tmp_path / "b" / "4")


def test_an_empty_folder_holds_nothing_and_a_missing_one_is_refused(tmp_path: Path) -> None:
    assert find_records(tmp_path) == ([], [])
    with pytest.raises(UsageError, match="no file or folder"):
        find_records(tmp_path / "missing")


def test_a_fifo_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "record.json")
    with pytest.raises(UnreadableError, match="not a regular file"):
        read_record(tmp_path / "record.json")


# Imports


@pytest.mark.parametrize(
    ("modules", "absent"),
    [
        ("store record recordfile spec naming filesystem", "torch pandas pyarrow scipy"),
        ("statistics metrics gates environment", "torch pandas pyarrow scipy"),
        ("frames", "torch pandas pyarrow scipy"),
    ],
)
def test_the_reading_side_imports_nothing_heavy(modules: str, absent: str) -> None:
    code = (
        f"import importlib, sys\nfor name in {modules.split()!r}: importlib.import_module('parbench.' + name)\n"
        f"sys.exit(', '.join(set({absent.split()!r}) & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
