"""lgc: three phases, of which each sends what it says; codes by numpy; and what is learnt is worth having."""

import numpy as np
import pytest
import torch

from parbench.conformance.compressed import Ranks
from parbench.registry import Registry
from parbench_strategies.compression._autoencoder import Autoencoder

REGISTRY = Registry()
ELEMENTS, K = 3000, 30


def alike(seed, world_size, steps, elements=ELEMENTS):
    """Return gradients `[step][rank]` that have most in common, as ranks' have."""
    numbers = np.random.default_rng(seed)
    sizes = numbers.exponential(size=elements) ** 2
    for _ in range(steps):
        common = numbers.normal(size=elements) * sizes
        yield [
            torch.from_numpy(common + 0.1 * numbers.normal(size=elements) * sizes).float() for _ in range(world_size)
        ]


def convolved(rows, weights):
    """A convolution of stride 2 with four taps and one zero at either end, written out."""
    outputs, inputs, taps = weights.shape
    padded = np.pad(rows, ((0, 0), (1, 1)))
    found = np.zeros((outputs, rows.shape[1] // 2))
    for o in range(outputs):
        for at in range(found.shape[1]):
            found[o, at] = sum(weights[o, i, t] * padded[i, 2 * at + t] for i in range(inputs) for t in range(taps))
    return found


def spread(rows, weights):
    """Its transpose: every number adds its taps around twice its place."""
    inputs, outputs, taps = weights.shape
    found = np.zeros((outputs, 2 * rows.shape[1] + 2))
    for o in range(outputs):
        for at in range(rows.shape[1]):
            for t in range(taps):
                found[o, 2 * at + t] += sum(weights[i, o, t] * rows[i, at] for i in range(inputs))
    return found[:, 1:-1]


def leaky(rows):
    return np.where(rows > 0, rows, 0.01 * rows)


def coded(values, weights):
    padded = np.pad(values, (0, -len(values) % 4))
    return convolved(leaky(convolved(padded[None], weights[0])), weights[1])


def decoded(code, weights, count):
    return spread(leaky(spread(code, weights[2])), weights[3])[0, :count]


def weights_of(ranks):
    return [one.detach().double().numpy() for one in ranks.compressors[0]._learned.coder.weights]


@pytest.mark.parametrize("form", ["ring", "server"])
def test_three_phases_follow_their_definition(form):
    """Leaders take turns; values at the leader's largest places are averaged, then codes of them, by numpy."""
    text = f"lgc(ratio=0.01, form={form}, dense_steps=2, train_steps=6, innovation=0.1)"
    ranks = Ranks(REGISTRY.resolve("compressor", text), 3)
    for step, grads in enumerate(alike(0, 3, 12)):
        found = ranks.step([{"k": grad} for grad in grads])
        average = found.averages[0]["k"].double().numpy()
        whole = np.stack([grad.double().numpy() for grad in grads])
        if step < 2:
            assert np.allclose(average, whole.mean(0), atol=1e-5)
            assert found.sent == {"all_reduce": 4 * ELEMENTS * 4 / 3}
            continue
        leader = step % 3
        places = np.argsort(-np.abs(whole[leader]))[:K]
        places = places[np.argsort(whole[leader][places])]
        values, right = whole[:, places], np.zeros(ELEMENTS)
        indices = 4 * K * 4 / 3
        if step < 8:
            right[places] = values.mean(0)
            assert found.sent == {"all_reduce": indices, "all_gather": 2 * 4 * K}
        elif form == "ring":
            weights = weights_of(ranks)
            size = np.abs(values).max(1).mean()
            code = np.mean([coded(one / size, weights) for one in values], axis=0)
            right[places] = decoded(code, weights, K) * size
            assert found.sent == {"all_reduce": indices + 4 * (1 + 8) * 4 / 3}  # 30 values are padded to 32
        else:
            weights = weights_of(ranks)
            size = np.abs(values[leader]).max()
            common = decoded(coded(values[leader] / size, weights), weights, K) * size
            rebuilt = np.repeat(common[None], 3, axis=0)
            for one, own in zip(rebuilt, values, strict=True):
                told = np.argsort(-np.abs(own))[:3]
                one[told] = own[told]
            right[places] = rebuilt.mean(0)
            assert found.sent == {"all_reduce": indices + 4 * (1 + 8) * 4 / 3, "all_gather": 2 * 3 * (4 + 1)}
        assert np.allclose(average, right, atol=1e-4 * np.abs(right).max()), step


def test_ranks_learn_the_same():
    ranks = Ranks(REGISTRY.resolve("compressor", "lgc(dense_steps=0, train_steps=5)"), 3)
    for grads in alike(1, 3, 5):
        ranks.step([{"k": grad} for grad in grads])
    first, *others = (one._learned.coder.weights for one in ranks.compressors)
    assert all(torch.equal(a, b) for other in others for a, b in zip(first, other, strict=True))


def test_what_is_learnt_gives_back_most_of_a_smooth_row():
    """The second phase is worth it: the error falls to a small part of what it is to begin with, on rows never seen."""
    coder = Autoencoder(torch.Generator().manual_seed(0), torch.device("cpu"))
    numbers = np.random.default_rng(0)

    def rows():
        drawn = np.sort(numbers.normal(size=(3, 64)) ** 3, axis=1)
        return torch.from_numpy(drawn / np.abs(drawn).max()).float()

    unseen = rows()

    def error():
        mean = unseen.mean(0, keepdim=True)
        return float((coder.values(coder.code(unseen).mean(0, keepdim=True), 64) - mean).norm().detach() / mean.norm())

    before = error()
    for _ in range(400):
        coder.learn(rows())
    assert error() < 0.5 * before
    assert error() < 0.5
