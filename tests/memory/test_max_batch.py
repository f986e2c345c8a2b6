"""The search for the largest batch, on memories made up; and ranks that really run out of theirs."""

from pathlib import Path

import pytest

from parbench.max_batch import largest

WIDE = Path(__file__).parent / "wide.py"


@pytest.mark.parametrize("unit", [1, 2, 6])
@pytest.mark.parametrize("limit", [0, 1, 2, 7, 8, 9, 100, 1000])
@pytest.mark.parametrize("first", [1, 8, 300])
def test_the_largest_multiple_that_fits_is_found_in_few_trials(unit, limit, first):
    tried = []

    def why_not(batch):
        tried.append(batch)
        return None if batch <= limit else f"{batch} samples are too many"

    found = largest(why_not, unit, first)
    exact, batch = limit // unit * unit, found.batch or 0
    assert exact - exact // 32 <= batch <= exact
    assert len(tried) == len(set(tried)) <= 24
    assert all(batch % unit == 0 for batch in tried)
    assert f"{min(one for one in tried if one > limit)} samples are too many" in found.because


def test_a_search_without_end_ends():
    found = largest(lambda batch: None, 3, 3, most=100)
    assert (found.batch, found.because) == (96, "the search ends at 100 samples")


def test_a_rank_that_runs_out_of_memory_is_a_record_that_says_what_was_asked_for(parbench):
    arguments = ("wide", "--plugin", WIDE, "--size", "smoke", "-s", "single", "--parity-steps", 0, "--steps", 5)
    done = parbench(*arguments, "--memory-gib", "0.05", "--global-batch-size", 8)
    record = done.records["single"]
    assert (done.code, record["status"], record["failure"]["kind"]) == (4, "oom", "oom")
    assert "asked for: wide/smoke in fp32, a global batch of 8 over 1 rank, with 0.05 GiB for each" in record["reason"]
    assert "tried to allocate" in record["failure"]["message"]


@pytest.mark.nightly
def test_the_largest_batch_that_fits_is_measured_and_the_record_says_how_it_was_found(parbench):
    """Weights, gradients and Adam's state are 67 MB; what is left of 0.25 GiB holds hundreds of samples or more."""
    arguments = ("wide", "--plugin", WIDE, "--size", "smoke", "-s", "single", "--parity-steps", 0, "--steps", 5)
    done = parbench(*arguments, "--memory-gib", "0.25", "--find-max-batch", "--global-batch-size", 2048)
    assert done.code == 0, done.err
    record = done.records["single"]
    assert record["chosen"]["global_batch_size"]["because"].startswith("the largest that fits: ")
    assert int(record["chosen"]["global_batch_size"]["value"]) == record["spec"]["global_batch_size"] > 64


def test_on_a_cpu_the_search_needs_a_limit(parbench):
    done = parbench("digits", "--size", "smoke", "--device", "cpu", "--find-max-batch")
    assert done.code == 2
    assert "needs --memory-gib X" in done.err
