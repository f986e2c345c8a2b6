"""HolisticTraceAnalysis (extra `hta`) reads the same traces, each rank's and the merged one, with the same counts."""

import importlib.util
import json
import subprocess
import sys

import pytest

PROGRAM = """
import json, sys
from hta.trace_analysis import TraceAnalysis

# The last step is left out unless asked for.
files = {int(k): v for k, v in json.loads(sys.argv[1]).items()}
found = TraceAnalysis(trace_files=files, include_last_profiler_step=True)
symbols = found.t.symbol_table.get_sym_table()
print("counts", json.dumps({k: [symbols[i] for i in found.t.get_trace(k)["name"]] for k in found.t.get_all_traces()}))
"""


def names(files):
    command = [sys.executable, "-c", PROGRAM, json.dumps({k: str(path) for k, path in files.items()})]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr[-2000:]
    line = next(line for line in done.stdout.splitlines() if line.startswith("counts "))
    return {int(k): found for k, found in json.loads(line.removeprefix("counts ")).items()}


@pytest.mark.skipif(importlib.util.find_spec("hta") is None, reason="pip install 'parbench[hta]'")
def test_holistic_trace_analysis_counts_the_same(foreign, command, tmp_path):
    folder, merged = foreign / "ddp", tmp_path / "merged.json.gz"
    for found in names({rank: folder / f"rank{rank}.json.gz" for rank in (0, 1)}).values():
        assert sum(name.startswith("ProfilerStep#") for name in found) == 3
        assert found.count("gloo:all_reduce") == found.count("c10d::allreduce_") == 6
    assert command(folder, "-o", merged)[0] == 0
    (found,) = names({0: merged}).values()
    assert sum(name.startswith("ProfilerStep#") for name in found) == 2 * 3
    assert found.count("all_reduce world") == found.count("c10d::allreduce_") == 2 * 6
