"""Reports in other forms, and the command: what is written where, hostile texts, what is refused."""

from __future__ import annotations

import csv
import io
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pandas
import pytest
from report_cases import FORMULA, HOSTILE, a_record, around, hostile, of, sweep

from parbench.cli import main
from parbench.report.latex import latex, report_latex
from parbench.report.summary_markdown import report_markdown
from parbench.report.writing import write_figures, write_table
from parbench.store import Store

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["parbench", *map(str, arguments)])
        try:
            code = main()
        except SystemExit as leaving:
            code = int(leaving.code or 0)
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    for record in sweep():
        Store(tmp_path / "results").write(record, steps={}, files={})
    return tmp_path / "results"


# ---- forms


def test_csv_and_parquet_hold_every_metric_of_every_run(tmp_path: Path) -> None:
    source = of(*sweep())
    text = write_table(source, tmp_path, "csv").read_text()
    table = pandas.read_parquet(write_table(source, tmp_path, "parquet"))
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == len(table)
    (time,) = [row for row in rows if (row["strategy"], row["metric"]) == ("ddp", "step_time_s")]
    assert float(time["value"]) == pytest.approx(0.005)
    (failed,) = [row for row in rows if row["strategy"] == "topk"]
    assert failed["value"] == ""
    assert failed["reason"] == "failed: rank 1 raised ZeroDivisionError"


def test_a_spreadsheet_finds_no_formula_in_csv(tmp_path: Path) -> None:
    text = write_table(of(*hostile()), tmp_path, "csv").read_text()
    fields = [field for row in csv.reader(io.StringIO(text)) for field in row]
    assert f"'{FORMULA}" in fields
    assert not [field for field in fields if re.match(r"[=+\-@\t\r](?![\d.]+(e[+-]?\d+)?$)", field)]


def test_markdown_of_attacks_is_text() -> None:
    text = report_markdown(of(*hostile()))
    assert "<" not in text
    assert "](" not in text.replace(r"\](", "")
    (separator,) = [line for line in text.splitlines() if line.startswith("| ---")]
    bars = separator.count("|")
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(rows) == 2 + 4
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {bars}


def test_markdown_has_verdict_table_and_notes() -> None:
    text = report_markdown(of(*sweep()))
    assert "ddp at 2 ranks trains 2.0" in text
    assert re.search(r"\| ddp \| 2 \| 5\.00 ", text)
    assert "failed: rank 1 raised ZeroDivisionError" in text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("topk(ratio=0.01)", "topk(ratio=0.01)"),
        ("50 % of a_b & c#d", r"50 \% of a\_b \& c\#d"),
        (r"\input{/etc/passwd}", r"\textbackslash{}input\{/etc/passwd\}"),
        ("$x^2$~", r"\$x\textasciicircum{}2\$\textasciitilde{}"),
        ("1–2×", r"1--2\texttimes{}"),
    ],
)
def test_latex_sets_text_as_it_is(text: str, expected: str) -> None:
    assert latex(text) == expected


def test_latex_tables_are_whole() -> None:
    text = report_latex(of(*sweep()))
    assert text.count(r"\begin{table}") == text.count(r"\end{table}") == 1
    (line,) = [line for line in text.splitlines() if line.startswith("ddp &")]
    assert line.split(" & ")[:3] == ["ddp", "2", "5.00 ms"]
    rows = text.partition(r"\toprule")[2].partition(r"\bottomrule")[0].splitlines()
    assert {row.count(" & ") for row in rows if row.endswith(r"\\")} == {6}
    attack = report_latex(of(*hostile()))
    assert attack.isascii()
    assert not re.search(r"(?<!\\)[$%#](?! Made)", attack.split("\n", 1)[1])


def test_files_of_figures_stay_in_their_folder_whatever_workloads_are_called(tmp_path: Path) -> None:
    names = ["../../etc/x", "/etc/x", "..", "C:\\x", "a" * 5000, HOSTILE, "con", "a/b", "a-b"]
    cells = [a_record(around(5), size=name, number=k) for k, name in enumerate(names)]
    for three in (cells[:4], cells[4:8], cells[7:]):
        paths = write_figures(of(*three), tmp_path, "step-time", form="svg")
        assert len(set(paths)) == len(three)
        assert {path.resolve().parent for path in paths} == {tmp_path.resolve()}
        assert all(len(path.name) < 120 and path.name.isascii() for path in paths)


# ---- the command


def test_report_writes_a_page_beside_the_results_and_says_where(stored: Path, command: Command) -> None:
    code, out, _ = command("report", stored)
    assert (code, out.strip()) == (0, str(stored / "report.html"))
    assert "ddp at 2 ranks" in (stored / "report.html").read_text()


def test_report_of_one_record(stored: Path, command: Command) -> None:
    record = next(stored.rglob("record.json"))
    code, out, _ = command("report", record)
    assert (code, out.strip()) == (0, str(record.parent / "report.html"))


def test_tables_and_figures_go_where_they_are_asked_to(stored: Path, tmp_path: Path, command: Command) -> None:
    code, out, _ = command("report", stored, "--format", "csv", "--format", "latex", "-o", tmp_path / "t")
    assert code == 0
    assert sorted(Path(line).name for line in out.split()) == ["report.csv", "report.tex"]
    code, out, _ = command("report", stored, "--figure", "step-time", "--format", "pdf", "-o", tmp_path / "f")
    assert code == 0
    assert (tmp_path / "f" / "step-time.pdf").read_bytes().startswith(b"%PDF")
    code, out, _ = command("report", stored, "--figure", "all", "--width", "page", "-o", tmp_path / "all")
    assert sorted(path.name for path in (tmp_path / "all").iterdir()) == ["step-time.svg", "throughput.svg"]


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["--figure", "step-tme"], 2, "did you mean 'step-time'?"),
        (["--figure", "breakdown"], 2, "hold nothing that figure 'breakdown' shows"),
        (["--figure", "step-time", "--format", "csv"], 2, "--figure is written as svg, png or pdf"),
        (["--format", "pdf"], 2, "name one with --figure"),
        (["--reference", "dpp"], 2, "did you mean 'ddp'?"),
        (["--style", "no-such"], 2, "no style named 'no-such'"),
        (["--watch", "--format", "csv"], 2, "--watch writes the page again"),
        (["--bench", "no-such.csv"], 2, "cannot read 'no-such.csv'"),
    ],
)
def test_what_cannot_be_meant_is_one_sentence(
    stored: Path, command: Command, arguments: list[str], code: int, sentence: str
) -> None:
    given, out, err = command("report", stored, *arguments)
    assert given == code
    assert out == ""
    assert sentence in err
    assert "Traceback" not in err


def test_paths_that_are_not_there_and_records_that_cannot_be_read(
    stored: Path, tmp_path: Path, command: Command
) -> None:
    assert command("report", tmp_path / "nothing")[0] == 2
    (tmp_path / "empty").mkdir()
    code, _, _ = command("report", tmp_path / "empty")
    assert code == 0
    assert "Nothing has been measured here yet" in (tmp_path / "empty" / "report.html").read_text()
    next(stored.rglob("record.json")).write_text("{")
    code, _, err = command("report", stored, "--strict")
    assert code == 7
    assert "1 of 5 records cannot be read and are left out" in err
    assert "1 records could not be read and are left out" in (stored / "report.html").read_text()
    (tmp_path / "file").write_text("")
    assert command("report", stored, "-o", tmp_path / "file")[0] == 6


def test_a_link_at_the_name_of_the_report_is_replaced_not_followed(
    stored: Path, tmp_path: Path, command: Command
) -> None:
    (tmp_path / "target").write_text("precious")
    (stored / "report.html").symlink_to(tmp_path / "target")
    assert command("report", stored)[0] == 0
    assert (tmp_path / "target").read_text() == "precious"


def test_watching_writes_the_page_again_when_there_is_a_new_record(
    stored: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = stored / "report.html"
    looks: list[bool] = []

    def sleep(_: float) -> None:
        looks.append(">late" in page.read_text())
        if len(looks) == 1:
            Store(stored).write(a_record(around(3), strategy="late", number=9), steps={}, files={})
        if len(looks) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", sleep)
    code, out, _ = command("report", stored, "--watch")
    assert code == 0
    assert looks == [False, True, True]
    assert out.count("report.html") == 3  # at first, with the new record, and at the end
    assert "data-watched" not in page.read_text()
