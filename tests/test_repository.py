"""Laws of the repository: files stay small and say what they are, and tell nothing of the machine they were made on."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from parbench.errors import EXIT_PRECEDENCE
from parbench.faults import Kind
from parbench.gates import SUSPECT_CODES
from parbench.grammar import parse
from parbench.metrics import TIMING
from parbench.record import Quality, Status
from parbench.registry import Registry

ROOT = Path(__file__).parent.parent
MODULES = sorted(path for folder in ("bench", "strategies") for path in (ROOT / folder).rglob("*.py"))

SOFT_LINES, HARD_LINES = 250, 400
# A file over the soft limit, and why it is still one idea.
LONGER = {
    "bench/parbench/api.py": "the contract: who writes a plug-in sees all of it",
    "bench/parbench/recording.py": "one function per part of a record, in its order",
    "bench/parbench/campaign.py": "taking up, measuring and storing share the sweep's state",
    "bench/parbench/cli/run.py": "one option per setting, each with its help",
    "bench/parbench/grammar.py": "one grammar: reading and writing it must agree",
    "bench/parbench/launch/local.py": "starting, watching and ending ranks share their state",
    "bench/parbench/launch/messages.py": "one list: who speaks to ranks sees all that can be said",
    "bench/parbench/measure.py": "the phases of one launch share its cases and its endings",
    "bench/parbench/plan.py": "every table of a suite is checked where it is read",
    "bench/parbench/rank.py": "one method per command of the launcher",
    "bench/parbench/record.py": "one schema: who reads a record sees all of it",
    "bench/parbench/registry.py": "finding, importing and describing plug-ins share what is known of them",
    "strategies/parbench_strategies/replicated/_engine.py": "one step's life, which three threads share",
    "bench/parbench/session.py": "a session and its variants know each other",
}

# Put together here, so that this file does not hold what it forbids.
HOSTS = [".".join(parts) for parts in (("pypi", "org"), ("pythonhosted", "org"), ("download", "pytorch", "org"))]
LEAKS = re.compile(
    "|".join(
        [
            *map(re.escape, HOSTS),
            r"--(?:extra-)?index-url[ =]https?:",
            r"(?<![\w.])/(?:home|Users)/(?!alice|planteduser|hunter2hunter2|\[|'|\")\w+",
            r"(?<![\w./])/(?:root|work|workspace|mnt|srv)/\w+",
        ]
    )
)


def tracked() -> list[Path]:
    """Return the files that are or would be committed; all sources where this is no git checkout."""
    command = ("git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=60)
    except OSError:
        return MODULES
    found = [ROOT / name for name in done.stdout.decode().split("\0") if name]
    return [path for path in found if path.is_file()] or MODULES


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def test_files_are_short_or_say_why_not() -> None:
    long = {name(path): lines(path) for path in MODULES if lines(path) > SOFT_LINES}
    assert not {one: count for one, count in long.items() if one not in LONGER}, "split them, or give a reason here"
    assert not {one: count for one, count in long.items() if count > HARD_LINES}, f"over {HARD_LINES} lines: split them"
    assert all((ROOT / one).is_file() for one in LONGER)


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_a_module_begins_with_its_definition(path: Path) -> None:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")), clean=False)
    assert docstring, "it has no docstring"
    first, _, rest = docstring.partition("\n")
    assert first, "the definition stands in the first line"
    assert first.endswith("."), f"not a sentence: {first!r}"
    assert not rest or rest.startswith("\n"), "an empty line follows the definition, which has one line"


def test_no_file_names_a_machine_or_a_registry() -> None:
    leaks = [
        f"{name(path)}:{number}: {line.strip()[:120]}" for path, number, line in _text_lines() if LEAKS.search(line)
    ]
    assert not leaks


def test_documents_that_are_named_exist() -> None:
    named = re.compile(r"\b[A-Z]{4,}\.md\b|\.\./shared\b")
    gone = [
        f"{name(path)}:{number}: {found[0]}"
        for path, number, line in _text_lines()
        if path != Path(__file__)
        for found in named.finditer(line)
        if not (ROOT / found[0]).is_file()
    ]
    assert not gone, "say it there, or name a file of this repository"


def _text_lines() -> Iterator[tuple[Path, int, str]]:
    for path in tracked():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), start=1):
            yield path, number, line


# ---- documents


def table(document: str, heading: str) -> list[str]:
    """Return the first column of the table under `heading`, without back-ticks."""
    text = (ROOT / "docs" / document).read_text(encoding="utf-8").partition(f"\n{heading}\n")[2]
    rows = re.search(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert rows, f"{document} has no table under {heading!r}"
    return [row.split("|")[1].strip().replace("`", "") for row in rows[0].splitlines()[2:]]


def codes_in_the_sources() -> set[str]:
    """Return the codes of all warnings that are constructed anywhere."""
    found: set[str] = set()
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Warned":
                code = next(keyword.value for keyword in node.keywords if keyword.arg == "code")
                assert isinstance(code, ast.Constant), f"{name(path)}:{node.lineno}: a code is a literal"
                found.add(str(code.value))
    return found


def test_every_warning_is_documented() -> None:
    assert sorted(table("faults.md", "## Warnings")) == sorted(codes_in_the_sources())


def test_the_document_says_which_warnings_make_timing_suspect() -> None:
    text = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)` \|.*\| timing is `suspect` \|", text, re.MULTILINE)) == SUSPECT_CODES


def test_every_exit_code_status_and_fault_is_documented() -> None:
    assert sorted(map(int, table("faults.md", "## Exit codes"))) == sorted(EXIT_PRECEDENCE)
    assert sorted(table("faults.md", "## Statuses")) == sorted(get_args(Status))
    text = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8").partition("## Injecting faults")[2]
    assert all(f"`{kind}`" in text for kind in get_args(Kind))


def test_every_metric_and_quality_is_documented() -> None:
    documented = set(table("metrics.md", "## Metrics that exist now"))
    assert documented >= set(TIMING) | {"startup_s", "final_loss", "held_out_loss", "held_out_accuracy"}
    text = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert all(f"`{quality}`" in text for quality in get_args(Quality))


def test_every_strategy_is_in_the_agreement_table() -> None:
    listed = tomllib.loads((ROOT / "docs" / "agreement.toml").read_text(encoding="utf-8"))["matrix"]["strategy"]
    assert sorted({parse(one).name for one in listed}) == Registry().names("strategy")
    text = (ROOT / "docs" / "agreement.md").read_text(encoding="utf-8")
    assert all(f"| `{one}` | {workload} |" in text for one in listed for workload in ("digits", "text"))
