"""Bytes are real: what a rank sends of a 40 x 30 matrix of single precision at three ranks, worked out by hand.

An all-reduce of S bytes sends 2(n-1)/n S = 4/3 S of them, an all-gather of m bytes (n-1) m = 2 m.
"""

from fractions import Fraction

import pytest
import torch

from parbench.conformance.compressed import Ranks
from parbench.registry import Registry

REGISTRY = Registry()
DENSE = 4 * 1200


def reduced(size):
    return {"all_reduce": Fraction(4 * size, 3)}


def gathered(size):
    return {"all_gather": Fraction(2 * size)}


SENT = {
    "none": reduced(DENSE),
    "fp16": reduced(2400),
    "bf16": reduced(2400),
    "truncate": reduced(2400),
    "topk": gathered(12 * (4 + 2)),  # values, and indices of two bytes
    "topk(ratio=0.1, exact=False)": gathered(120 * (4 + 2)),
    "dgc": gathered(2 * (4 + 2)),  # 1.2 elements, rounded up
    "randomk": reduced(4 * 120),  # no indices
    "random_block": reduced(4 * 120),
    "signsgd": gathered(150 + 4),  # a bit an element, and a scale
    "efsignsgd": gathered(150 + 4),
    "onebit": gathered(150 + 8),
    "terngrad": gathered(2 * 150 + 4),
    "qsgd": gathered(1200 + 3 * 4),  # three buckets of 512
    "qsgd(levels=7)": gathered(4 * 150 + 3 * 4),  # 15 levels: four bits
    "natural": gathered(1200 + 150),
    "quantize8": gathered(1200 + 4),
    "powersgd": reduced(4 * (40 + 30)),
    "powersgd(rank=3)": reduced(3 * 4 * (40 + 30)),
    "csc(chunk=100)": reduced(4 * (12 + 2 * 100)),  # norms, and two chunks of twelve
    "csc(chunk=500, ratio=0.4)": reduced(4 * (3 + 2 * 500)),  # two of three chunks, one of them half padding
    "shared_scale_int": gathered(4) | reduced(1200),
    "count_sketch": reduced(4 * (5 * 60 + 60)),
    "block_projection": gathered(5 * 64 * 4),  # five blocks of 256
    "pactrain": reduced(DENSE),  # nothing has been zero so far
}


def sent(name, grads):
    ranks = Ranks(REGISTRY.resolve("compressor", name), len(grads))
    return dict(ranks.step([{"k": grad} for grad in grads]).sent), ranks


@pytest.mark.parametrize("name", SENT)
def test_bytes_of_a_matrix(name):
    grads = [torch.randn(40, 30, generator=torch.Generator().manual_seed(rank)) for rank in range(3)]
    seen, ranks = sent(name, grads)
    said = ranks.compressors[0].sent([(40, 30)], 4, ranks.carriage)
    assert seen == SENT[name]
    assert said in (SENT[name], None)
    assert sum(SENT[name].values()) <= Fraction(4 * DENSE, 3)


@pytest.mark.parametrize("name", [name for name in SENT if name not in ("none", "fp16", "bf16", "truncate", "natural")])
def test_a_tensor_too_small_to_gain_stays_as_it_is(name):
    grads = [torch.tensor([float(rank + 1)]) for rank in range(3)]
    seen, ranks = sent(name, grads)
    assert seen == reduced(4)
    step = ranks.step([{"k": grad} for grad in grads])
    assert step.averages[0]["k"].tolist() == [2.0]
    assert step.contributions[2]["k"].tolist() == [3.0]


def test_an_all_gather_that_would_send_more_than_an_all_reduce_is_not_made():
    """Of 2400 elements a 1/16 goes at 6 bytes: 900 bytes against 9600, which n gathered ones reach at n = 22."""
    compressor = REGISTRY.resolve("compressor", "topk(ratio=0.0625)")
    for world_size, op in ((2, "all_gather"), (21, "all_gather"), (22, "all_reduce")):
        carriage = Ranks(compressor, world_size).carriage
        assert set(compressor.sent([(2400,)], 4, carriage)) == {op}
    assert set(compressor.sent([(2400,), (1,)], 4, Ranks(compressor, 2).carriage)) == {"all_gather", "all_reduce"}


def test_bytes_that_follow_the_numbers():
    """Five, three and one are above the bound: all are padded to five; first each says how many, in two parts."""
    grads = [torch.zeros(1200) for _ in range(3)]
    for grad, count in zip(grads, (5, 3, 1), strict=True):
        grad[7 : 7 + count] = 2.0
    seen, ranks = sent("threshold(value=1)", grads)
    assert seen == gathered(2 * 4 + 5 * (4 + 2))
    assert ranks.compressors[0].sent([(1200,)], 4, ranks.carriage) is None
    # Where one rank's message is too long for all, nobody's is gathered.
    grads[1][:] = 3.0
    seen, _ = sent("threshold(value=1)", grads)
    assert seen == gathered(2 * 4) | reduced(DENSE)


def test_half_precision_is_half_of_everything_that_has_its_type():
    grads = [torch.randn(40, 30).half() for _ in range(3)]
    assert sent("topk", grads)[0] == gathered(12 * (2 + 2))
    assert sent("fp16", grads)[0] == reduced(2400)
    assert sent("powersgd", grads)[0] == reduced(4 * (40 + 30))  # factors are of single precision
    assert sent("efsignsgd", grads)[0] == gathered(150 + 4)
