"""The README is executed: its commands and programs run, its figures are those of the records it links."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from parbench.cli import main
from parbench.errors import EXIT_PRECEDENCE
from parbench.record import RunRecord
from parbench.recordfile import read_record

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
REFERENCE = ROOT / "results" / "reference"
SKIPPED = "<!-- not executed:"
# Short runs: the README's own numbers of steps are for readers who wait for a true number.
SHORT = ("--steps", "5", "--warmup", "1", "--parity-steps", "1", "--set", "repeats=1", "--no-report")
# Run by other tests, or by whoever runs this one.
MAKE = {"make bench", "make test"}


@dataclass(frozen=True)
class Block:
    language: str
    body: str
    executed: bool
    line: int

    @property
    def file(self) -> str | None:
        """A block that begins with a comment such as `# scaling.toml` is a file that the reader writes."""
        found = re.match(r"# (\w+\.(?:py|toml))\n", self.body)
        return found[1] if found else None


def blocks() -> list[Block]:
    found = []
    lines = TEXT.splitlines()
    start: int | None = None
    for number, line in enumerate(lines):
        if line.startswith("```") and start is None:
            start = number
        elif line == "```" and start is not None:
            body = "\n".join(lines[start + 1 : number]) + "\n"
            executed = not lines[start - 1].startswith(SKIPPED)
            found.append(Block(lines[start].removeprefix("```"), body, executed, start + 1))
            start = None
    return found


def commands(block: Block) -> list[str]:
    return [line.removeprefix("$ ") for line in block.body.splitlines() if line.startswith("$ ")]


def shortened(command: str) -> list[str]:
    words = shlex.split(command)
    return [*words, *SHORT] if "run" in words and "--dry-run" not in words else words


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a reader has who writes the files of the README and follows it from the top."""
    made = tmp_path_factory.mktemp("reader")
    for block in blocks():
        if block.file is not None:
            (made / block.file).write_text(block.body, encoding="utf-8")
    return made


def steps() -> list[object]:
    """Return what a reader does, in order: programs and commands."""
    found = []
    for block in blocks():
        if block.executed and block.file is None and block.language == "python":
            found.append(pytest.param(program, block.body, id=f"line {block.line}: program"))
        if block.executed and block.language == "console":
            found += [pytest.param(command, c, id=f"line {block.line}: {c[:60]}") for c in commands(block)]
    return found


def program(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(text, "README.md", "exec"), {"__name__": "__main__"})


def command(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    name, *arguments = shortened(text)
    if name == "torchrun":
        whole = [sys.executable, "-m", "torch.distributed.run", *arguments]
        done = subprocess.run(whole, capture_output=True, text=True, timeout=100, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return
    assert name == "parbench"
    sys.argv[:] = [name, *arguments]  # in this process, whose forkserver has torch loaded after the first command
    try:
        code: object = main()
    except SystemExit as leaving:
        code = leaving.code or 0
    out, err = capsys.readouterr()
    assert code == 0, out + err
    assert out


@pytest.mark.parametrize(("do", "text"), steps())
def test_what_the_readme_says_runs(
    do: Callable[[str, pytest.CaptureFixture[str]], None],
    text: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.delenv("PARBENCH_FAULT", raising=False)
    do(text, capsys)


def test_every_block_is_executed_shown_output_or_marked() -> None:
    for block in blocks():
        known = block.language in ("console", "python", "text") or block.file is not None or not block.executed
        assert known or {line.partition("#")[0].strip() for line in block.body.splitlines()} == MAKE, block
        assert block.language != "console" or commands(block), f"line {block.line}: a console block without `$ `"


def test_links_of_the_readme_lead_somewhere() -> None:
    targets = re.findall(r"\]\(([^)]+)\)", TEXT)
    assert targets
    for target in targets:
        assert target.startswith("http") or (ROOT / target).is_file(), target


def test_exit_codes_of_the_readme_are_all() -> None:
    table = TEXT.partition("| exit code |")[2].partition("\n\n")[0]
    listed = [int(code) for row in re.findall(r"^\| ([\d, ]+) \|", table, re.MULTILINE) for code in row.split(",")]
    assert sorted(listed) == sorted(EXIT_PRECEDENCE)


def test_figures_of_the_readme_are_those_of_the_linked_records() -> None:
    shown = TEXT.partition("<!-- results -->\n")[2].partition("<!-- /results -->")[0].splitlines()[2:]
    stored = sorted(REFERENCE.glob("default/*/record.json"))
    expected = [row_of(read_record(path), path) for path in stored]
    assert stored
    assert sorted(shown) == sorted(expected), "the table should be:\n" + "\n".join(expected)


def test_reference_records_say_where_and_on_what_they_were_measured() -> None:
    records = [read_record(path) for path in REFERENCE.glob("default/*/record.json")]
    (machine,) = {(r.environment.facts["cpu"], r.environment.facts["cores"]) for r in records}
    (commit,) = {r.environment.facts["commit"] for r in records}
    assert {r.environment.facts["dirty"] for r in records} == {False}
    note = TEXT.partition("<!-- /results -->")[2].partition("```")[0].replace("\n", " ")
    for said in (machine[0], f"{machine[1]} cores", str(commit)[:7], records[0].started_at[:10]):
        assert str(said) in note, f"the note under the table does not say {said!r}"
    for record in records:
        text = msgspec.json.encode(record).decode()
        assert not re.search(r"/(home|root|work|Users)/", text)


def row_of(record: RunRecord, path: Path) -> str:
    """Return the row of the table that a record stands behind."""
    spec, metrics = record.spec, record.metrics
    assert record.rankable
    time, rate, accuracy = (metrics[name] for name in ("step_time_s", "samples_per_s", "held_out_accuracy"))
    assert time.value is not None
    assert time.ci_low is not None
    assert time.ci_high is not None
    assert rate.value is not None
    assert accuracy.value is not None
    milliseconds = f"{time.value * 1e3:.2f} [{time.ci_low * 1e3:.2f}, {time.ci_high * 1e3:.2f}] ms"
    link = f"[record]({path.relative_to(ROOT).as_posix()})"
    cells = (
        f"{spec.workload}/{spec.size}",
        spec.strategy,
        str(spec.world_size),
        milliseconds,
        f"{rate.value:,.0f}",
        f"{accuracy.value:.1%}",
        link,
    )
    return f"| {' | '.join(cells)} |"
