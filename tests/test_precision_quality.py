"""Digit rows are learned in lower precision as they are in fp32; make precision prints what docs/precision.md shows."""

import pytest

from precision_quality import measured, paired


def test_a_paired_difference_and_its_interval_by_hand():
    """Differences 1, 2, 3: mean 2, deviation 1, and t for two degrees of freedom is 4.3027."""
    mean, low, high = paired([1.0, 2.0, 3.0])
    assert mean == 2
    assert (low, high) == (pytest.approx(2 - 4.3027 / 3**0.5, abs=1e-3), pytest.approx(2 + 4.3027 / 3**0.5, abs=1e-3))


@pytest.mark.nightly
def test_ten_seeds_reach_the_accuracy_of_fp32():
    """Not worse by more than five points of a hundred, with the certainty of a one-sided 97.5 %."""
    found = {recipe: one for recipe, one in measured(10, 110, cells=("lstm",)).items() if one is not None}
    assert len(found) >= 3  # bf16 under autocast, and weights of both half types
    for recipe, (mean, low, _) in found.items():
        assert low > -0.05, (recipe, mean)
