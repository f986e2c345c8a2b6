"""Tests by chance are checked by counting on fingers, bootstrap draws by what must hold of any."""

import itertools
import random
from statistics import median

import numpy as np
import pytest
from scipy import stats

from parbench.resampling import adjusted, block_length, least_p, rank_sum_p, ratio_draws, sign_flip_p


@pytest.mark.parametrize(
    ("old", "new", "p"),
    [
        ([1, 2, 3, 4], [5, 6, 7, 8], 2 / 70),  # of 70 splits two are as unequal
        ([1, 2, 3, 4], [8, 7, 6, 5], 2 / 70),
        ([1], [2], 1.0),
        ([1, 1, 1], [1, 1, 1], 1.0),
        ([1, 2, 3], [4, 5, 6, 7, 8], 2 / 56),
    ],
)
def test_rank_sum_counts_splits(old, new, p):
    assert rank_sum_p(old, new) == pytest.approx(p)


def test_rank_sum_is_that_of_scipy_where_there_are_no_ties():
    draw = random.Random(3)
    for _ in range(20):
        old, new = ([draw.random() for _ in range(n)] for n in (5, 4))
        assert rank_sum_p(old, new) == pytest.approx(stats.mannwhitneyu(old, new, method="exact").pvalue)


def test_many_launches_are_counted_exactly_too():
    draw = random.Random(4)
    old, new = ([draw.gauss(shift, 1) for _ in range(30)] for shift in (0, 0.5))
    assert rank_sum_p(old, new) == pytest.approx(stats.mannwhitneyu(old, new, method="exact").pvalue)


def test_ties_share_their_ranks():
    old, new = [1, 1, 2, 3], [2, 3, 4, 4, 4]
    ranks = stats.rankdata([*old, *new])
    middle = 5 * 10 / 2
    splits = [abs(sum(split) - middle) for split in itertools.combinations(ranks, 5)]
    seen = abs(sum(ranks[4:]) - middle)
    assert rank_sum_p(old, new) == pytest.approx(sum(x >= seen for x in splits) / len(splits))


def test_an_outlier_moves_a_rank_test_by_one_rank_only():
    assert rank_sum_p([1, 2, 3, 4, 5], [1.1, 2.1, 3.1, 4.1, 1e9]) > 0.5


def test_sign_flip_counts_signs():
    assert sign_flip_p([1, 2, 3, 4, 5, 6]) == 2 / 64
    assert sign_flip_p([1, -1]) == 1.0
    flipped = itertools.product((1, -1), repeat=3)
    every = [abs(sum(s * d for s, d in zip(signs, (3, -1, 2), strict=True))) for signs in flipped]
    assert sign_flip_p([3, -1, 2]) == sum(x >= 4 for x in every) / 8


def test_least_p_is_what_complete_separation_gives():
    assert least_p(4, 4, paired=False) == pytest.approx(rank_sum_p([1, 2, 3, 4], [5, 6, 7, 8]))
    assert least_p(6, 6, paired=True) == sign_flip_p([1] * 6)
    assert least_p(1, 1, paired=False) == 1.0


@pytest.mark.parametrize("p", [[0.01, 0.04, 0.03, 0.005], [0.2], [0.5, 0.5], [1.0, 0.0]])
def test_correction_is_benjamini_and_hochbergs(p):
    assert adjusted(p) == pytest.approx(stats.false_discovery_control(p).tolist())


def test_nothing_to_correct_stays_nothing():
    assert adjusted([]) == []


def test_draws_are_centred_on_the_ratio_and_repeat_themselves():
    draw = random.Random(1)
    old = [[(draw.gauss(1, 0.05), 1.0) for _ in range(20)] for _ in range(5)]
    new = [[(2 * a, b) for a, b in one] for one in old]
    draws = ratio_draws(old, new, rate=False, paired=False)
    assert median(draws) == pytest.approx(2, rel=0.02)
    assert np.array_equal(draws, ratio_draws(old, new, rate=False, paired=False))


def test_what_disturbs_both_sides_of_a_pair_cancels():
    draw = random.Random(2)
    old = [[(draw.uniform(1, 3), 1.0) for _ in range(16)] for _ in range(3)]
    new = [[(1.5 * a, b) for a, b in one] for one in old]
    apart, together = (ratio_draws(old, new, rate=False, paired=paired) for paired in (False, True))
    assert together == pytest.approx(np.full(1000, 1.5))
    assert np.std(apart) > 0.05


def test_a_rate_is_the_ratio_of_sums():
    # 1 sample in 1 s and 1 in 3 s are 2 samples in 4 s, not the mean of 1 and 1/3.
    same = [[(1.0, 1.0), (1.0, 3.0)]]
    draws = ratio_draws([[(1.0, 1.0)]], same, rate=True, paired=False)
    assert set(np.round(draws, 9)) <= {1.0, 0.5, round(1 / 3, 9)}


def test_rounds_that_follow_each_other_are_drawn_together():
    """Blocks keep the correlation: the interval of a slow wave is wider than that of the same rounds shuffled."""
    wave = [1.0] * 18 + [2.0] * 18
    shuffled = random.Random(5).sample(wave, len(wave))
    flat = [[(1.5, 1.0)] * 36]
    widths = [
        float(np.std(ratio_draws(flat, [[(x, 1.0) for x in one]], rate=True, paired=False))) for one in (wave, shuffled)
    ]
    assert widths[0] > 1.5 * widths[1]
    assert block_length(36) == 6
