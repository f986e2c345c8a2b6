"""Golden losses: the first five of every small size, so that no change to a model or its data goes unnoticed.

They were taken with torch 2.13.0; the tolerance leaves room for the order of sums of other versions and processors.

Refresh after a change that is meant, and say why in the commit: python tests/workloads/test_workload_golden.py
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from workload_cases import MORE, SMALL, job, losses

GOLDEN = Path(__file__).parent / "golden" / "losses.json"
STEPS = 5
CASES = [*SMALL, *((name, "smoke") for name in MORE)]


@pytest.mark.parametrize(("name", "size"), CASES)
def test_losses_are_the_stored_ones(name: str, size: str, tmp_path: Path) -> None:
    stored = json.loads(GOLDEN.read_text(encoding="utf-8"))["losses"]
    assert losses(job(name, size, tmp_path), STEPS) == pytest.approx(stored[f"{name} {size}"], abs=2e-4)


def refresh() -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = {f"{n} {s}": [round(x, 6) for x in losses(job(n, s, Path(folder)), STEPS)] for n, s in CASES}
    note = "mean loss of the first five steps, seed 0, batch 6, fp32 on a CPU, files of workload_cases.py; " + (
        "refresh: python tests/workloads/test_workload_golden.py"
    )
    GOLDEN.write_text(json.dumps({"note": note, "losses": found}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    refresh()
