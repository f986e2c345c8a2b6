"""A rank that is made slow is found by real runs, and named; live ranks can be timed by pytest-benchmark."""

import pytest
from test_pytest_plugin import pytest_in

from parbench.compare import compare_paths
from parbench.store import find_records

LIVE = """
import pytest
from parbench import RunSpec, Session
from parbench.pytest_plugin import slowest_rank_seconds, tell_rounds

@pytest.mark.benchmark(timer=slowest_rank_seconds)
def test_ddp(benchmark):
    with Session(world_size=2) as session:
        ddp = session.add(RunSpec(workload="digits", size="smoke", strategy="ddp"))
        ddp.round(5)
        tell_rounds(benchmark, (ddp.round(5).wall_s / 5 for _ in range(6)), 6)
        assert ddp.steps_taken == 35

@pytest.mark.benchmark(timer=slowest_rank_seconds)
def test_plain(benchmark):
    benchmark(lambda: None)
"""


@pytest.mark.quiet
@pytest.mark.timeout(600)
def test_a_slow_rank_is_found_and_named(parbench):
    cell = ("digits", "--size", "small", "-s", "ddp", "-n", 2, "--steps", 60, "--repeats", 4, "--parity-steps", 1)
    plain = parbench(*cell)
    slow = parbench(*cell, fault="rank=1,step=0,kind=slow,factor=3")
    assert (plain.code, slow.code) == (0, 0), plain.err + slow.err
    sides = [find_records(one.results)[0] for one in (plain, slow)]
    (found,) = compare_paths(sides[0], sides[1], old_path="plain", new_path="slow").cells
    (time,) = [one for one in found.metrics if one.metric == "step_time_s"]
    assert time.word == "slower"
    assert any(sentence.startswith("rank 1 ends") for sentence in found.because)


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_live_rounds_are_benchmarks_and_a_plain_call_is_refused(tmp_path):
    (tmp_path / "test_live.py").write_text(LIVE)
    done = pytest_in(tmp_path, "test_live.py", "-rA")
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "benchmark(function) cannot use it" in done.stdout
