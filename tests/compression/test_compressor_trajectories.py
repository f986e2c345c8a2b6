"""Compressors with state follow short trajectories that a few lines of plain Python work out beside them."""

import math

import numpy as np
import pytest
import torch

from parbench.conformance.compressed import Ranks
from parbench.registry import Registry
from parbench_strategies.compression._threshold_scaling import ThresholdScaling

REGISTRY = Registry()
STEPS = 25


def drawn(seed, world_size, elements, steps=STEPS):
    """Return gradients `[step][rank]`, some elements much larger than others."""
    numbers = np.random.default_rng(seed)
    sizes = numbers.exponential(size=elements)
    return [[numbers.normal(size=elements) * sizes for _ in range(world_size)] for _ in range(steps)]


def stepped(ranks, rests, grads):
    """Exchange gradients with error feedback, as the engine does; return the average."""
    given = [torch.from_numpy(rest + grad).float() for rest, grad in zip(rests, grads, strict=True)]
    found = ranks.step([{"k": one} for one in given])
    for rest, one, sent in zip(rests, given, found.contributions, strict=True):
        rest[:] = (one - sent["k"]).double().numpy()
    return found.averages[0]["k"].double().numpy()


# ---- MiCRO


@pytest.mark.parametrize("scaling", ["published", "mended"])
@pytest.mark.parametrize("world_size", [2, 3])
def test_micro_follows_its_definition(world_size, scaling):
    """Partitions rotate, a threshold selects, all contribute at all places, rests are zero there, thresholds move."""
    elements, density = 403, 0.05
    ranks = Ranks(REGISTRY.resolve("compressor", f"micro(density={density}, scaling={scaling})"), world_size)
    rests, mine = (np.zeros((world_size, elements)) for _ in range(2))
    wanted = int(density * elements)
    threshold = 1 / (2 * math.sqrt(wanted))
    for step, grads in enumerate(drawn(1, world_size, elements)):
        average = stepped(ranks, rests, grads)
        mine += grads
        bounds = np.cumsum([0] + [len(part) for part in np.array_split(np.arange(elements), world_size)])
        union = []
        for rank in range(world_size):
            part = (step + rank) % world_size
            own = np.arange(bounds[part], bounds[part + 1])
            chosen = own[np.abs(mine[rank][own]) >= threshold]
            union += list(chosen) if len(chosen) else [own[step % len(own)]]
        right = np.zeros(elements)
        if world_size * max_bytes(union, bounds, step, world_size) + 8 * len(union) >= 8 * elements:
            union = range(elements)  # as it is: indices and values would be longer
            count = elements_chosen(mine, bounds, step, threshold, world_size)
        else:
            count = len(union)
        right[union] = mine[:, union].mean(0)
        mine[:, union] = 0
        assert np.allclose(average, right, atol=1e-5), step
        assert np.allclose(rests, mine, atol=1e-5), step
        ratio = count / wanted
        if ratio > 1.1:
            threshold *= 1.005
        elif ratio > 1 / 1.1:
            threshold *= 0.9987 if scaling == "mended" and ratio <= 1 else 1.00125
        else:
            threshold *= 0.995


def max_bytes(union, bounds, step, world_size):
    return 2 * max(sum(bounds[p] <= place < bounds[p + 1] for place in union) for p in range(world_size))


def elements_chosen(mine, bounds, step, threshold, world_size):
    total = 0
    for rank in range(world_size):
        part = (step + rank) % world_size
        total += max(1, int((np.abs(mine[rank][bounds[part] : bounds[part + 1]]) >= threshold).sum()))
    return total


def test_micro_traced_by_hand():
    """Two ranks, eight elements, one wanted: the threshold is 1/2, and rank 1 chooses among the last four.

    Step 0   0.1 0.9 0.2 0.3|0.1 0.1 0.1 0.1     0 0 0 0|0.4 0.4 -0.7 0.4     places 1 and 6 of both
    Step 1   threshold 1/2 x 1.005, as two were chosen; rank 0 chooses among the last, rank 1 among the first four
    """
    ranks = Ranks(REGISTRY.resolve("compressor", "micro(density=0.125)"), 2)
    one = [0.1, 0.9, 0.2, 0.3, 0.1, 0.1, 0.1, 0.1]
    two = [0.0, 0.0, 0.0, 0.0, 0.4, 0.4, -0.7, 0.4]
    rests = np.zeros((2, 8))
    assert stepped(ranks, rests, np.array([one, two])).tolist() == pytest.approx([0, 0.45, 0, 0, 0, 0, -0.3, 0])
    assert rests[0].tolist() == pytest.approx([0.1, 0, 0.2, 0.3, 0.1, 0.1, 0, 0.1])
    # Of rests plus these, rank 0 has 0.51 at 4, rank 1 nothing of its part above 0.5025: it sends the next in turn, 1.
    average = stepped(ranks, rests, np.array([[0, 0, 0, 0, 0.41, 0, 0, 0], [0, 0.2, 0.501, 0, 0, 0, 0, 0]]))
    assert average.tolist() == pytest.approx([0, 0.1, 0, 0, (0.51 + 0.4) / 2, 0, 0, 0])


def test_the_dead_branch_of_the_published_threshold_is_mended_on_request():
    for mended, factor in ((False, 1.00125), (True, 0.9987)):
        scaling = ThresholdScaling(mended=mended)
        assert scaling.threshold("a", 4) == 0.25
        scaling.chose("a", 0.25, 2)
        assert scaling.threshold("a", 2) == pytest.approx(0.25 * factor)  # ratio 1
        scaling.chose("a", 0.25, 3)
        assert scaling.threshold("a", 2) == pytest.approx(0.25 * 1.005)
        scaling.chose("a", 0.25, 1)
        assert scaling.threshold("a", 2) == pytest.approx(0.25 * 0.995)


@pytest.mark.parametrize(("mended", "settles"), [(False, 1 / 1.1), (True, 1.0)])
def test_a_scaled_threshold_settles_where_its_rule_turns(mended, settles):
    """Of 2000 normal numbers as many are above a threshold as the error function says; 20 are wanted."""
    scaling, shares = ThresholdScaling(mended=mended), []
    for _ in range(2000):
        threshold = scaling.threshold("a", 20)
        count = 2000 * math.erfc(threshold / math.sqrt(2))
        scaling.chose("a", threshold, count)
        shares.append(count / 20)
    assert shares[0] > 50  # the first threshold is far too low
    assert np.mean(shares[-500:]) == pytest.approx(settles, abs=0.02)


# ---- CSC


@pytest.mark.parametrize("select", ["current", "prev"])
def test_csc_follows_its_definition(select):
    """The chunks whose L1 norms, added up over ranks, were largest are averaged; the others wait."""
    chunk, elements = 50, 490
    ranks = Ranks(REGISTRY.resolve("compressor", f"csc(chunk={chunk}, ratio=0.2, select={select})"), 3)
    rests, mine, before = np.zeros((3, elements)), np.zeros((3, elements)), None
    for step, grads in enumerate(drawn(2, 3, elements)):
        average = stepped(ranks, rests, grads)
        mine += grads
        chunks = [slice(k, k + chunk) for k in range(0, elements, chunk)]
        norms = [sum(np.abs(mine[rank][one]).sum() for rank in range(3)) for one in chunks]
        by = norms if before is None or select == "current" else before
        right = np.zeros(elements)
        for k in np.argsort(by)[-2:]:
            right[chunks[k]] = mine[:, chunks[k]].mean(0)
            mine[:, chunks[k]] = 0
        before = norms
        assert np.allclose(average, right, atol=1e-5), step
        assert np.allclose(rests, mine, atol=1e-5), step


# ---- PacTrain


def test_pactrain_traced_by_hand():
    """Patience 2: two steps without a change after a mask was first known, then only half travels, and four bytes that
    ask. A number in a masked place on one rank has all travel, and from what is zero then a new mask begins.
    """
    ranks = Ranks(REGISTRY.resolve("compressor", "pactrain(patience=2)"), 2)
    half = torch.cat([torch.ones(50), torch.zeros(50)])
    surprise = half.clone()
    surprise[99] = 4.0
    #       first, unchanged twice |     masked      | surprise, and first | unchanged twice | masked but for the one
    given = [half] * 3 + [half] * 2 + [surprise] + [half] * 2 + [half] * 2
    sizes = [400] * 3 + [200 + 4] * 2 + [400 + 4] + [400] * 2 + [204 + 4] * 2
    for step, (one, size) in enumerate(zip(given, sizes, strict=True)):
        found = ranks.step([{"k": one}, {"k": 3 * half}])
        assert found.sent == {"all_reduce": size}, step
        assert torch.equal(found.averages[0]["k"], (one + 3 * half) / 2), step
        assert torch.equal(found.contributions[0]["k"], one)


def test_pactrain_masks_only_what_is_zero_on_average_and_stays_so():
    ranks = Ranks(REGISTRY.resolve("compressor", "pactrain(patience=1)"), 2)
    grads = drawn(5, 2, 60)
    for step, (one, two) in enumerate(grads):
        for k in range(60):
            if k % 3 == 0 and (step + k) % 7:  # zero now and then
                one[k] = two[k] = 0
        a, b = torch.from_numpy(one), torch.from_numpy(two)
        assert torch.equal(ranks.step([{"k": a}, {"k": b}]).averages[0]["k"], (a + b) / 2), step
