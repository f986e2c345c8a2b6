"""Tests of the registry: names to classes, arguments checked before they are used, broken files breaking nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from parbench.errors import MissingError, UsageError
from parbench.registry import Registry

GOOD = '''"""Mine: does nothing new."""
from typing import Literal
from parbench.api import Job, Paper, RankContext, Strategy, Trainer

class Mine(Strategy):
    paper = Paper("Mine", "https://example.org")
    agrees = "exactly"

    def __init__(self, count: int = 1, how: Literal["ring", "tree"] = "ring", scale: float | None = None,
                 names: tuple[str, ...] = (), *, flag: bool = False) -> None:
        if count < 1:
            raise ValueError(f"count must be at least 1, got {count}")
        self.given = (count, how, scale, names, flag)

    def wrap(self, job: Job, ctx: RankContext) -> Trainer:
        raise NotImplementedError
'''


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


@pytest.fixture
def mine(tmp_path: Path) -> Registry:
    return Registry([write(tmp_path, "mine.py", GOOD)])


def test_folder_is_the_registry() -> None:
    assert {"single", "ddp", "no_overlap"} <= set(Registry().names("strategy"))
    assert {"digits", "text", "gpt", "images"} <= set(Registry().names("workload"))


def test_names_imports_nothing() -> None:
    code = (
        "import sys; from parbench.registry import Registry; r = Registry(); r.names('strategy'); r.names('workload');"
        "print([m for m in sys.modules if m == 'torch' or m.startswith('parbench_strategies.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_resolve_gives_an_instance_with_its_arguments(mine: Registry) -> None:
    made = mine.resolve("strategy", "mine(2, tree, 3, [a, b], flag=true)")
    assert vars(made)["given"] == (2, "tree", 3.0, ("a", "b"), True)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("mine(cuont=1)", ["'count'", "mine(count=1"]),
        ("mine(1, tree, None, [], true)", ["at most 4", "given 5"]),
        ("mine(1, count=2)", ["twice"]),
        ("mine(true)", ["count", "whole number", "True"]),
        ("mine(1.5)", ["count", "whole number", "1.5"]),
        ("mine(how=star)", ["how", "ring, tree", "star"]),
        ("mine(scale=x)", ["scale", "a number or None"]),
        ("mine(names=[1])", ["names", "list"]),
        ("mine(flag=1)", ["flag", "True or False"]),
        ("mine(count=topk(1))", ["count", "topk(1)"]),
        ("mine(0)", ["count must be at least 1, got 0"]),
    ],
)
def test_bad_arguments_are_refused_with_what_is_allowed(mine: Registry, text: str, parts: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        mine.resolve("strategy", text)
    for part in parts:
        assert part in str(caught.value)


def test_canonical_is_the_same_for_the_same_meaning(mine: Registry) -> None:
    spellings = ["mine", "mine()", "mine(1)", "mine(count=1, how='ring')"]
    assert {mine.canonical("strategy", text) for text in spellings} == {"mine"}
    assert mine.canonical("strategy", "mine(scale=2)") == mine.canonical("strategy", "mine(1, ring, 2.0)")


@pytest.mark.parametrize("text", ["../../x", "os:system", "http://example.org/x", "os.system", "parbench.cli", "dpp"])
def test_names_that_are_no_plugins_are_refused_and_import_nothing(text: str) -> None:
    before = set(sys.modules)
    with pytest.raises(UsageError) as caught:
        Registry().resolve("strategy", text)
    assert set(sys.modules) == before
    assert "parbench list strategies" in str(caught.value)
    assert "ddp" in str(caught.value)


def test_broken_plugin_is_listed_with_its_reason_and_breaks_nothing_else(tmp_path: Path) -> None:
    files = [
        write(
            tmp_path, "raises.py", '"""Raises."""\nfrom parbench.api import Strategy\n1 / 0\nclass X(Strategy): ...\n'
        ),
        write(tmp_path, "syntax.py", "def ("),
        write(tmp_path, "leaves.py", "raise SystemExit(3)"),
        write(tmp_path, "two.py", GOOD + GOOD.replace("class Mine", "class Other").partition("\n")[2]),
        write(tmp_path, "none.py", "from parbench.api import Strategy\n"),
        write(tmp_path, "abstract.py", "from parbench.api import Strategy\nclass A(Strategy): ...\n"),
        write(tmp_path, "bare.py", GOOD.replace('    agrees = "exactly"\n', "")),
        write(tmp_path, "needs.py", "import no_such_module_here\n" + GOOD),
    ]
    registry = Registry(files)
    reasons = {entry.name: entry.broken_reason for entry in registry.describe("strategy")}
    assert "ZeroDivisionError" in (reasons["raises"] or "")
    assert "SyntaxError" in (reasons["syntax"] or "")
    assert "SystemExit" in (reasons["leaves"] or "")
    assert "Mine, Other" in (reasons["two"] or "")
    assert "none" in (reasons["none"] or "")
    assert "exactly one class" in (reasons["abstract"] or "")
    assert "agrees" in (reasons["bare"] or "")
    assert "no_such_module_here" in (reasons["needs"] or "")
    assert reasons["ddp"] is None
    with pytest.raises(MissingError):
        registry.resolve("strategy", "needs")
    assert registry.resolve("strategy", "ddp")


def test_one_name_twice_names_both_files(tmp_path: Path) -> None:
    registry = Registry([write(tmp_path, "ddp.py", GOOD)])
    with pytest.raises(UsageError) as caught:
        registry.resolve("strategy", "ddp")
    assert str(tmp_path / "ddp.py") in str(caught.value)
    assert "replicated" in str(caught.value)
    assert registry.resolve("strategy", "single")


@pytest.mark.parametrize("name", ["missing.py", "folder", "text.txt", "a b.py"])
def test_plugin_must_be_a_python_file(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    write(tmp_path, "text.txt", "")
    write(tmp_path, "a b.py", "")
    with pytest.raises(UsageError, match="--plugin"):
        Registry([tmp_path / name])


def test_edited_plugin_is_read_again(tmp_path: Path) -> None:
    path = write(tmp_path, "mine.py", GOOD)
    assert Registry([path]).canonical("strategy", "mine(2)") == "mine(count=2)"
    path.write_text(GOOD.replace("count: int = 1", "count: int = 2"))
    assert Registry([path]).canonical("strategy", "mine(2)") == "mine"


def test_without_torch_names_are_listed_and_the_pip_line_is_given() -> None:
    code = """
import sys
sys.modules["torch"] = None
from parbench.registry import Registry
from parbench.errors import MissingError
entries = {entry.name: entry for entry in Registry().describe("strategy")}
assert entries["ddp"].summary.startswith("DistributedDataParallel"), entries
assert entries["ddp"].broken_reason is None
assert "pip install 'parbench[run]'" in entries["ddp"].note
try:
    Registry().resolve("strategy", "ddp")
except MissingError as error:
    assert "pip install 'parbench[run]'" in str(error)
else:
    raise SystemExit("no error")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
