"""`parbench conform`, and plug-ins that are broken, hang or die, through the real command line."""

import json
import sys
import tempfile
from pathlib import Path

import pytest

from parbench import discover
from parbench.cli import main
from parbench.recordfile import RECORD
from plugin_sources import strategy

PLANTED = Path(__file__).parent.parent / "conformance" / "plugins" / "planted.py"
PROBE = PLANTED.with_name("planted_probe.py")
FEW = ["ddp", "no_overlap", "single"]
MUSEUM = Path(__file__).parent.parent / "records" / "record-1.0.json"

pytestmark = pytest.mark.usefixtures("no_orphans")


@pytest.fixture
def command(tmp_path, mark, capsys, monkeypatch):
    """Run any command line to its end in this process, and return its exit code and what it printed."""

    def run(*arguments):
        monkeypatch.setenv("COLUMNS", "10000")
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        monkeypatch.setattr(sys, "argv", ["parbench", *map(str, arguments)])
        capsys.readouterr()
        try:
            code = main()
        except SystemExit as stop:
            code = stop.code or 0
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.fixture
def few(monkeypatch):
    """Let `strategies` mean three of those that come with parbench, however many there are."""
    everything = discover._in_package

    def some(package):
        found = everything(package)
        return (one for one in found if package != "parbench_strategies" or one.name in FEW)

    monkeypatch.setattr(discover, "_in_package", some)


@pytest.fixture
def verdicts(command):
    """Run `parbench conform ... --json` and return the exit code and the verdicts by name."""

    def run(*arguments):
        code, out, err = command("conform", *arguments, "--json")
        assert "Traceback" not in err
        found = json.loads(out)["verdicts"]
        return code, {(one["name"], one["kind"]): one for one in found}

    return run


def broken(verdict):
    return {one["law"]: one["detail"] for one in verdict["findings"] if one["outcome"] == "broken"}


BROKEN = {
    "syntax": ("def (", "SyntaxError"),
    "imports": (
        "import no_such_module_here\nfrom parbench.api import Strategy\nclass A(Strategy): ...",
        "no_such_module",
    ),
    "raises": ("from parbench.api import Strategy\n1 / 0\nclass A(Strategy): ...", "ZeroDivisionError"),
    "none": ("x = 1", "exactly one class"),
}


@pytest.fixture
def broken_files(tmp_path):
    """Files that are no plug-ins: nothing in them, an error, two classes, no paper."""
    for name, (text, _) in BROKEN.items():
        (tmp_path / f"{name}.py").write_text(text)
    good = strategy(tmp_path, "whole").read_text()
    (tmp_path / "two.py").write_text(
        good + good.replace("class Whole", "class Other").replace('"""A strategy', '#"""A')
    )
    (tmp_path / "paperless.py").write_text(good.replace('    paper = Paper("none", "https://example.org")\n', ""))
    return {path.stem: path for path in tmp_path.glob("*.py")}


REASONS = {name: reason for name, (_, reason) in BROKEN.items()} | {"two": "Whole, Other", "paperless": "sets no paper"}


def test_ddp_obeys_every_law(command):
    code, out, err = command("conform", "ddp")
    assert code == 0, err
    assert "strategy ddp at 2 ranks obeys every law" in out
    assert "✓" in out
    assert "✗" not in out


@pytest.mark.parametrize(
    ("fault", "law"),
    [("summed", "agrees with one process: plain"), ("hook left", "leaves nothing behind")],
)
def test_a_planted_fault_is_exit_1_and_its_law_is_named(command, fault, law):
    code, out, err = command("conform", f"planted(fault='{fault}')", "--plugin", PLANTED)
    assert code == 1
    assert law in next(line for line in out.splitlines() if "✗" in line)
    assert "1 of 1 break a law" in err


def test_a_file_is_examined_directly(verdicts):
    code, found = verdicts(PROBE)
    assert code == 0
    assert list(found) == [("planted_probe", "probe")]


def test_three_ranks(command):
    code, out, err = command("conform", "single", "-n", 3, "--json")
    assert (code, json.loads(out)["verdicts"][0]["world_size"]) == (0, 1), err
    code, out, err = command("conform", "ddp", "-n", 3, "--json")
    assert (code, json.loads(out)["verdicts"][0]["world_size"]) == (0, 3), err


def test_broken_files_are_listed_with_their_reasons_and_break_nothing(command, broken_files):
    flags = [word for path in broken_files.values() for word in ("--plugin", path)]
    code, out, _ = command("list", "strategies", *flags, "--json")
    assert code == 0
    entries = {one["name"]: one["broken_reason"] for one in json.loads(out)["strategies"]}
    assert [name for name in ("ddp", "single", "no_overlap", "whole") if entries[name]] == []
    for name, reason in REASONS.items():
        assert reason in entries[name]


def test_broken_files_are_verdicts_of_their_own_and_the_others_are_examined(verdicts, few, broken_files):
    flags = [word for name in REASONS for word in ("--plugin", broken_files[name])]
    code, found = verdicts("strategies", *flags)
    assert code == 1
    for name, reason in REASONS.items():
        (said,) = broken(found[name, "strategy"]).items()
        assert said[0] == "can be made"
        assert reason in said[1]
    assert [name for (name, _), verdict in found.items() if not broken(verdict)] == FEW


@pytest.mark.parametrize("name", REASONS)
def test_a_broken_file_given_by_itself_says_why_once(command, broken_files, name):
    code, out, err = command("conform", broken_files[name])
    assert code == 1
    assert REASONS[name] in out
    assert "1 of 1 break a law" in err


@pytest.mark.parametrize("kind", ["workloads", "probes"])
def test_a_broken_file_leaves_the_other_kinds_whole(verdicts, broken_files, kind):
    code, found = verdicts(kind, "--plugin", broken_files["syntax"])
    assert code == 1
    assert [name for (name, _), verdict in found.items() if broken(verdict)] == ["syntax"]
    assert len(found) > 1


def test_a_run_that_does_not_use_a_broken_file_is_measured(parbench, broken_files):
    done = parbench(
        *("digits", "--size", "smoke", "--steps", 2, "--warmup", 1, "--json", "-s", "ddp"),
        *("--plugin", broken_files["raises"]),
    )
    assert done.code == 0, done.err
    assert done.records["ddp"]["status"] == "complete"


def test_a_run_that_uses_a_broken_file_is_refused_with_the_reason(parbench, broken_files):
    done = parbench("digits", "-s", "raises", "--plugin", broken_files["raises"])
    assert done.code == 2
    assert "ZeroDivisionError" in done.err


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["dddp"], ["did you mean 'ddp'"]),
        (["strategys"], ["did you mean 'strategies'"]),
        (["os:system"], ["os:system"]),
        (["ddp(bucket_cap=1)"], ["bucket_cap_mb"]),
        (["missing.py"], ["missing.py"]),
        (["ddp", "-n", "0"], ["--world-size"]),
    ],
)
def test_what_nobody_knows_is_refused(command, words, parts):
    code, out, err = command("conform", *words)
    for part in parts:
        assert part in err + out
    assert code == (1 if "bucket_cap" in words[0] else 2)


def test_a_strategy_that_hangs_and_one_whose_rank_dies_leave_the_next_its_own_ranks(verdicts, few, tmp_path):
    hang = "def wrap(self, job, ctx):\n        ctx.rank and time.sleep(600)"
    stuck = strategy(tmp_path, "a_stuck")
    stuck.write_text(stuck.read_text().replace("def wrap(self, job, ctx):", hang))
    dead = strategy(tmp_path, "b_dead", before="ctx.rank and os.kill(os.getpid(), 9)")
    code, found = verdicts("strategies", "--plugin", stuck, "--plugin", dead, "--timeout", 8)
    assert code == 1
    said = {name: broken(verdict) for (name, _), verdict in found.items()}
    assert list(said) == ["a_stuck", "b_dead", *FEW]
    assert "no progress" in said["a_stuck"]["runs, or says why not"]
    assert "SIGKILL" in said["b_dead"]["runs, or says why not"]
    assert not said["ddp"]
    assert not said["no_overlap"]


# ---- S9: names in result files are never imported


@pytest.fixture
def tripwire(tmp_path, monkeypatch):
    """A module on sys.path, and as a file, that leaves a mark when it is imported."""
    folder = tmp_path / "path"
    (folder / "evil_package").mkdir(parents=True)
    mark = tmp_path / "imported"
    for path in (
        folder / "evil_module.py",
        folder / "evil_package" / "__init__.py",
        folder / "evil_package" / "run.py",
    ):
        path.write_text(f"open({str(mark)!r}, 'w').close()\n")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.chdir(folder)
    yield folder
    assert not mark.exists()
    assert not [name for name in sys.modules if name.startswith("evil_")]


NAMES = ["os:system", "evil_module", "evil_package.run", "evil_package.run:x", "evil_module.py", "./evil_module.py"]


@pytest.mark.parametrize("name", [*NAMES, "__import__('evil_module')"])
def test_names_in_a_record_are_never_imported(command, tripwire, tmp_path, name):
    record = json.loads(MUSEUM.read_bytes())
    record["spec"] |= {"strategy": name, "workload": name, "probes": [name]}
    record["resolved_suite"] = {"name": name, "cells": [record["spec"]]}
    path = tmp_path / "results" / "run" / RECORD
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(record))
    for shown in (path, path.parent, path.parent.parent):
        code, out, err = command("show", shown, "--details")
        assert code == 0, err
        assert name.split("'")[0] in out
    import parbench

    assert len(parbench.load(path.parent.parent)) > 0
    assert command("list", "strategies")[0] == 0
    code, _, err = command("run", path)
    assert code == 2
    assert "parbench list strategies" in err
    if not name.endswith(".py"):  # a file on the command line is asked for
        assert command("conform", name)[0] == 2


def test_a_record_that_used_a_plugin_wants_the_same_flag_again(parbench, tmp_path):
    plugin = strategy(tmp_path, "mine")
    short = ("digits", "--size", "smoke", "--steps", 2, "--warmup", 1, "--json")
    first = parbench(*short, "-s", "mine", "--plugin", plugin)
    assert first.code == 0, first.err
    path = first.folder(first.records["mine"]) / RECORD
    again = parbench(path)
    assert again.code == 2
    assert "no strategy named 'mine'" in again.err
    assert "--plugin FILE" in again.err
    assert "record" in again.err
    assert not again.results.exists()
    assert parbench(path, "--plugin", plugin, "--json").records["mine"]["status"] == "complete"
