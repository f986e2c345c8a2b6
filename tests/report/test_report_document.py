"""docs/reports.md and the README's figures: the program runs, all names are there, figures show the linked records."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

from parbench.recordfile import read_record
from parbench.report.catalogue import ENTRIES
from parbench.report.writing import TABLES

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "reports.md").read_text(encoding="utf-8")
README = (
    (ROOT / "README.md").read_text(encoding="utf-8").partition("<!-- figures -->")[2].partition("<!-- /figures -->")[0]
)
FIGURES = re.findall(r"!\[[^\]]+\]\((docs/figures/[^)]+)\)\n\n([^!]+)", README)


def test_the_program_of_the_document_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "reference").symlink_to(ROOT / "results" / "reference")
    monkeypatch.chdir(tmp_path)
    exec(compile(DOCUMENT.partition("```python\n")[2].partition("```")[0], "reports.md", "exec"), {})
    assert (tmp_path / "step-time.pdf").read_bytes().startswith(b"%PDF")


def test_every_figure_and_table_is_in_the_document() -> None:
    rows = re.findall(r"^\| `(\w[\w-]*)` \|", DOCUMENT, re.MULTILINE)
    assert rows == [*TABLES, *(one.name for one in ENTRIES)]


def test_readme_shows_figures_and_links_their_records() -> None:
    assert len(FIGURES) >= 2
    for path, caption in FIGURES:
        assert (ROOT / path).is_file()
        assert len(re.findall(r"\(results/reference/[^)]+/record\.json\)", caption)) >= 2


@pytest.mark.parametrize(("path", "caption"), [one for one in FIGURES if "step-time" in one[0]])
def test_step_times_of_the_readme_are_drawn_where_the_linked_records_say(path: str, caption: str) -> None:
    records = [read_record(ROOT / one) for one in re.findall(r"\((results/reference/[^)]+)\)", caption)]
    times = sorted((r.metrics["step_time_s"].value or 0.0) for r in records)
    groups = [one for one in ET.fromstring((ROOT / path).read_bytes()).iter() if one.tag.endswith("}g")]

    def drawn(name: str) -> list[list[float]]:
        """Return the places of the markers of every group of that name, pixels from the left."""
        return [
            [float(use.attrib["x"]) for use in one.iter() if use.tag.endswith("}use")]
            for one in groups
            if one.get("id") == name
        ]

    assert sum(map(len, drawn("samples"))) == sum(len(r.rounds) for r in records)
    at = np.array(sorted(place for places in drawn("median") for place in places))
    # The axis is linear or logarithmic: of one of them, places are a straight line.
    off = [_residual(np.array(scale), at) for scale in (times, [math.log(x) for x in times])]
    assert min(off) < 0.5


def _residual(values: np.ndarray, places: np.ndarray) -> float:
    return float(np.abs(np.polyval(np.polyfit(values, places, 1), values) - places).max())
