"""`parbench run` leaves a page beside its results and says where; that it cannot be written costs no result."""

from __future__ import annotations

from pathlib import Path

import pytest

from parbench.campaign import Outcome
from parbench.cli import running
from parbench.metrics import combine
from parbench.store import find_records

REFERENCE = Path(__file__).parents[2] / "results" / "reference"


def test_run_says_where_its_report_is(parbench) -> None:
    done = parbench("digits", "--size", "smoke", "-s", "ddp", "--steps", 5, "--warmup", 1, "--report")
    assert done.code == 0
    page = done.results / "digits" / "report.html"
    assert done.out.splitlines()[-1] == f"report: {page}"
    (record,) = done.records.values()
    assert f"./{record['id']}/record.json" in page.read_text()


def test_results_are_kept_where_the_report_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records, _ = find_records(REFERENCE)
    (tmp_path / "file").write_text("")
    outcome = Outcome(records=records, cells=combine(records), path=tmp_path / "file", document=b"", exit_code=0)
    assert running._report(outcome, as_json=False, strict=False, page=True) == 0
    out, err = capsys.readouterr()
    assert "results: " in out
    assert "report: " not in out
    assert "the report could not be written" in err
