"""The index of many records: the same answers as without it, never believed against a file, damaged or not."""

import os
from pathlib import Path

import msgspec
import pytest
from compare_cases import runs

from parbench import index
from parbench.index import MOST_LAUNCHES, NAME, newest_records, summaries
from parbench.recordfile import RECORD, encode_record, read_record
from parbench.summary import summary_of


@pytest.fixture
def many(tmp_path, monkeypatch):
    """Return a folder of 60 records, which is many here."""
    monkeypatch.setattr(index, "_FEWEST", 10)
    for record in runs([0.01 + 0.0001 * k for k in range(60)]):
        folder = tmp_path / "results" / record.id
        folder.mkdir(parents=True)
        (folder / RECORD).write_bytes(encode_record(record))
    return tmp_path / "results"


def reads(monkeypatch):
    """Count records that are read from their files."""
    done = []
    monkeypatch.setattr(index, "read_record", lambda path: done.append(path) or read_record(path))
    return done


def test_the_second_look_reads_no_record_and_finds_the_same(many, monkeypatch):
    first, problems = summaries(many)
    assert (len(first), problems) == (60, [])
    assert first == [index.Found(one.folder, summary_of(read_record(one.folder))) for one in first]
    read = reads(monkeypatch)
    assert summaries(many)[0] == first
    assert read == []


def test_only_what_changed_is_read_again(many, monkeypatch):
    first, _ = summaries(many)
    changed, gone = first[3].folder, first[4].folder
    record = msgspec.structs.replace(read_record(changed), numerics="nonfinite at step 7")
    (changed / RECORD).write_bytes(encode_record(record))
    os.utime(changed / RECORD, ns=(1, 1))
    (gone / RECORD).unlink()
    read = reads(monkeypatch)
    second, _ = summaries(many)
    assert read == [changed]
    assert len(second) == 59
    assert second[3].summary.problem == "diverged: nonfinite at step 7"


@pytest.mark.parametrize("damage", [b"", b"PAR1 nonsense", None])
def test_a_damaged_index_is_moved_aside_and_made_anew(many, damage):
    first, _ = summaries(many)
    file = many / NAME
    file.write_bytes(file.read_bytes()[:-20] if damage is None else damage)
    assert summaries(many)[0] == first
    assert (many / (NAME + ".corrupt")).is_file()
    assert summaries(many)[0] == first


def test_a_truncated_record_is_told_although_the_index_knew_it(many):
    first, _ = summaries(many)
    file = first[0].folder / RECORD
    file.write_bytes(file.read_bytes()[:99])
    found, problems = summaries(many)
    assert len(found) == 59
    assert str(file) in problems[0].sentence


def test_a_folder_that_cannot_be_written_costs_time_only(many, monkeypatch):
    monkeypatch.setattr(index, "publish_file", lambda *_: (_ for _ in ()).throw(OSError(28, "no space left")))
    assert len(summaries(many)[0]) == 60
    assert not (many / NAME).exists()


def test_an_index_can_be_removed_and_is_no_record(many):
    first, _ = summaries(many)
    (many / NAME).unlink()
    assert summaries(many)[0] == first


def test_few_records_get_no_index(tmp_path, stored):
    path = Path(stored("few", runs([0.01] * 3)))
    assert len(summaries(path)[0]) == 3
    assert not list(path.rglob(NAME))


def test_of_many_launches_the_newest_are_compared_and_the_rest_is_told(many):
    records, _, notes = newest_records(many)
    assert len(records) == MOST_LAUNCHES
    assert min(record.id for record in records) > summaries(many)[0][-MOST_LAUNCHES - 1].summary.id
    assert f"48 of 60 records under {many} are left out" in notes[0]


def test_only_the_software_measured_last_is_compared(tmp_path, stored):
    old, new = runs([0.01] * 3, software="old"), runs([0.02] * 3, first=50, software="new")
    records, _, notes = newest_records(Path(stored("both", [*old, *new])))
    assert {record.environment.software for record in records} == {"new"}
    assert "3 of 6" in notes[0]
