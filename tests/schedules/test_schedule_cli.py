"""`parbench show schedule` and `parbench list schedules`: what they print, where it goes, and every exit code."""

from __future__ import annotations

import errno
import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import pytest

from parbench import cli
from parbench.filesystem import Filesystem

RECORD = Path(__file__).parent.parent / "records" / "record-1.0.json"
SMALL = ("--stages", "2", "--microbatches", "4")


@dataclass
class Done:
    code: int
    out: str
    err: str


class Parbench:
    """Calls the command line in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def __call__(self, *arguments: str) -> Done:
        self._monkeypatch.setattr(sys, "argv", ["parbench", *arguments])
        try:
            code = cli.main()
        except SystemExit as leaving:
            code = leaving.code if isinstance(leaving.code, int) else 0
        out, err = self._capsys.readouterr()
        return Done(code, out, err)


@pytest.fixture
def parbench(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Parbench:
    monkeypatch.delenv("COLUMNS", raising=False)
    return Parbench(monkeypatch, capsys)


def test_a_schedule_is_drawn(parbench: Parbench) -> None:
    done = parbench("show", "schedule", "1f1b", *SMALL)
    assert done.code == 0, done.err
    assert "rank 0  F0 F1 .  .  B0--- F2 B1--- F3 B2--- .  B3---" in done.out
    assert "rank 1  .  F0 B0--- F1 B1--- F2 B2--- F3 B3---" in done.out
    assert "bubble: 20.0 % (1/5)" in done.out
    assert "https://arxiv.org/abs/2104.04473" in done.out
    assert not done.err


def test_it_fits_a_narrow_terminal(parbench: Parbench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    done = parbench("show", "schedule", "interleaved(v=2)", "--stages", "4", "--microbatches", "8")
    assert done.code == 0
    assert all(len(line) <= 40 for line in done.out.splitlines())


def test_json_is_one_document_with_exact_fractions(parbench: Parbench) -> None:
    costs = ("--costs", "2:1.5:0.5")
    document = json.loads(parbench("show", "schedule", "interleaved(2)", *SMALL, *costs, "--json").out)
    assert document["schema"]["name"] == "parbench.schedule"
    assert document["schedule"] == "interleaved(2)"
    assert (document["ranks"], document["microbatches"], document["chunks"]) == (2, 4, 2)
    assert document["costs"] == {"forward": 2.0, "input_gradient": 1.5, "weight_gradient": 0.5}
    assert document["bubble"]["timeline"]["exact"] == document["bubble"]["closed_form"]["exact"] == "1/9"
    assert document["peak_live"]["counted"] == document["peak_live"]["closed_form"] == [5, 3]
    first = document["timeline"][1][0]
    assert first == {"kind": "F", "microbatch": 0, "chunk": 0, "start": 2.0, "end": 4.0}
    assert [len(line) for line in document["timeline"]] == [16, 16]


def test_json_says_why_there_is_no_closed_form(parbench: Parbench) -> None:
    bubble = json.loads(parbench("show", "schedule", "zb-h2", *SMALL, "--costs", "1:1:3", "--json").out)["bubble"]
    assert bubble["closed_form"] is None
    assert bubble["reason"]


def test_schedules_are_listed_with_their_papers(parbench: Parbench) -> None:
    done = parbench("list", "schedules")
    assert done.code == 0
    for part in ("1f1b", "eager-1f1b", "interleaved", "v=2", "fit=None", "https://arxiv.org/abs/2401.10241"):
        assert part in done.out
    assert "broken" not in done.out
    names = [one["name"] for one in json.loads(parbench("list", "schedules", "--json").out)["schedules"]]
    assert {"gpipe", "1f1b", "zbv"} <= set(names)


def test_help_tells_of_both_forms(parbench: Parbench) -> None:
    text = " ".join(parbench("show", "--help").out.split())
    for part in (
        "PATH | schedule",
        "NAME",
        "--stages",
        "--microbatches",
        "--costs",
        "--svg",
        "./schedule",
        "--details",
    ):
        assert part in text


def test_a_folder_of_results_named_schedule_is_a_path(
    parbench: Parbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "schedule"
    folder.mkdir()
    shutil.copy(RECORD, folder / "record.json")
    monkeypatch.chdir(tmp_path)
    asked = parbench("show", "schedule")
    assert asked.code == 2
    assert "./schedule" in asked.err
    assert parbench("show", "./schedule").code == 0
    assert parbench("show", "schedule/record.json").code == 0
    assert parbench("show", str(folder)).code == 0


USAGE = [
    ("schedule", "--stages"),
    ("schedule 1f1b", "--stages"),
    ("schedule 1f1b --stages 2", "--microbatches"),
    ("schedule 1f1b --microbatches 2", "--stages"),
    ("schedule 1f1", "--stages"),
    ("schedule 1f1 --stages 2 --microbatches 2", "did you mean '1f1b'?"),
    ("schedule one_f_one_b --stages 2 --microbatches 2", "parbench list schedules"),
    ("schedule ddp --stages 2 --microbatches 2", "parbench list schedules"),
    ("schedule os:system --stages 2 --microbatches 2", "parbench list schedules"),
    ("schedule interleaved(v=1) --stages 2 --microbatches 2", "1f1b"),
    ("schedule interleaved(v=2) --stages 4 --microbatches 6", "the nearest: 4 and 8"),
    ("schedule interleaved(v=2) --stages 4 --microbatches 3", "the nearest: 4"),
    ("schedule dualpipev --stages 4 --microbatches 7", "the nearest is 8"),
    ("schedule 1f1b --stages 0 --microbatches 2", "--stages"),
    ("schedule 1f1b --stages -1 --microbatches 2", "--stages"),
    ("schedule 1f1b --stages 1.5 --microbatches 2", "--stages"),
    ("schedule 1f1b --stages 1e3 --microbatches 2", "--stages"),
    ("schedule 1f1b --stages nan --microbatches 2", "--stages"),
    ("schedule 1f1b --stages 2 --microbatches 0", "--microbatches"),
    (f"schedule 1f1b --stages {10**30} --microbatches 2", "take fewer"),
    (f"schedule gpipe --stages 2 --microbatches {10**30}", "take fewer"),
    ("schedule gpipe --stages 400 --microbatches 400", "480000"),
    (f"schedule 1f1b --stages 2 --microbatches {'9' * 5000}", "--microbatches"),
    *(
        (f"schedule 1f1b --stages 2 --microbatches 2 --costs {costs}", "1:1:1")
        for costs in (
            "1",
            "1:1",
            "1:1:1:1",
            "0:1:1",
            "1:0:1",
            "1:1:0",
            "-1:1:1",
            "1:1:nan",
            "1:inf:1",
            "1e9:1:1",
            "a:b:c",
        )
    ),
    ("schedule 1f1b --stages 2 --microbatches 2 --costs 9999999:1:1", "6 digits"),
    ("schedule 1f1b --stages 2 --microbatches 2 --costs 0.0:1:1", "above 0"),
    ("schedule 1f1b --stages 2 --microbatches 2 --details", "--details"),
    ("schedule 1f1b --stages 2 --microbatches 2 --strict", "--strict"),
    ("schedule 1f1b --stages 2 --microbatches 2 --plugin no/such.py", "--plugin"),
    ("schedule 1f1b --stages 2 --microbatches 2 --svg nul\0.svg", "--svg"),
    ("results 1f1b", "'1f1b'"),
    ("results --stages 2", "--stages"),
    ("results --svg x.svg", "--svg"),
    ("results --costs 1:1:1", "--costs"),
    ("schedule/ 1f1b --stages 2 --microbatches 2", "show schedule NAME"),
    ("schedules --stages 2", "--stages"),
]


@pytest.mark.parametrize(("line", "part"), USAGE)
def test_what_cannot_be_meant_is_refused_with_exit_2(parbench: Parbench, line: str, part: str) -> None:
    done = parbench("show", *line.split())
    assert done.code == 2
    assert part in done.err
    assert not done.out


def test_refusals_print_no_escapes(parbench: Parbench) -> None:
    done = parbench("show", "schedule", "\x1b]0;owned\x07", *SMALL)
    assert done.code == 2
    assert "\x1b" not in done.err


# ---- files


@pytest.mark.parametrize("name", ["plain.svg", "a b<>&\"'.svg", "é\n\x1b[31m.svg", "no-extension", "-x.svg", "%s{0}"])
def test_a_picture_is_stored_under_any_name(parbench: Parbench, tmp_path: Path, name: str) -> None:
    done = parbench("show", "schedule", "zbv", *SMALL, f"--svg={tmp_path / name}")
    assert done.code == 0, done.err
    assert ElementTree.fromstring((tmp_path / name).read_bytes()).tag.endswith("svg")
    assert [one.name for one in tmp_path.iterdir()] == [name]
    assert "rank 0" in done.out


def test_a_picture_replaces_an_old_one_and_a_link_stays_a_link(parbench: Parbench, tmp_path: Path) -> None:
    old, link = tmp_path / "old.svg", tmp_path / "link.svg"
    old.write_text("old")
    link.symlink_to(old)
    assert parbench("show", "schedule", "zbv", *SMALL, "--svg", str(link)).code == 0
    assert link.is_symlink()
    assert old.read_text().startswith("<svg")


@pytest.mark.parametrize("name", ["missing/x.svg", ".", "folder", "y" * 300, "file/x.svg"])
def test_a_picture_that_cannot_be_stored_is_still_printed(parbench: Parbench, tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("kept")
    done = parbench("show", "schedule", "gpipe", *SMALL, "--svg", f"{tmp_path}/{name}")
    assert done.code == 6
    assert "rank 0  F0 F1 F2 F3" in done.out
    assert "cannot be stored" in done.err
    assert sorted(one.name for one in tmp_path.iterdir()) == ["file", "folder"]
    assert not list((tmp_path / "folder").iterdir())


def test_a_device_is_not_replaced(parbench: Parbench) -> None:
    done = parbench("show", "schedule", "gpipe", *SMALL, "--svg", "/dev/null")
    assert done.code == 6
    assert not Path("/dev/null").is_file()


def test_a_full_disk_leaves_the_old_picture(
    parbench: Parbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / "old.svg"
    old.write_text("old")

    def full(self: Filesystem, handle: int, data: memoryview) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Filesystem, "write", full)
    done = parbench("show", "schedule", "gpipe", *SMALL, "--svg", str(old), "--json")
    assert done.code == 6
    assert json.loads(done.out)["schedule"] == "gpipe"
    assert "No space left" in done.err
    assert [one.read_text() for one in tmp_path.iterdir()] == ["old"]


def test_one_of_my_own_is_drawn(parbench: Parbench, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        '"""mine: one micro-batch after another."""\n'
        "from parbench.schedule import Action, Paper, Schedule\n\n\n"
        'class Mine(Schedule):\n    """Does one micro-batch after another."""\n\n'
        '    name = "one-by-one"\n    paper = Paper("Mine", "https://example.org")\n\n'
        '    def __init__(self, note: str = ""):\n        self.note = note\n\n'
        "    def actions(self, rank, ranks, microbatches):\n"
        "        for k in range(microbatches):\n            yield Action('F', k)\n            yield Action('B', k)\n\n"
        "    def peak_live(self, rank, ranks, microbatches):\n        return 7\n"
    )
    text = "one-by-one(note='<b>\\x1b[31m&')"
    done = parbench("show", "schedule", text, *SMALL, "--plugin", str(path), "--svg", str(tmp_path / "mine.svg"))
    assert done.code == 0, done.err
    assert "rank 1  .  F0 B0--- .  .  .  F1 B1---" in done.out
    assert "its closed form says 7 on each" in done.out
    assert "\x1b" not in done.out
    title = ElementTree.parse(tmp_path / "mine.svg").getroot()[0].text
    assert str(title).startswith("one-by-one(note='<b>")
    assert "one-by-one" in parbench("list", "schedules", "--plugin", str(path)).out
