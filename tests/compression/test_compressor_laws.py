"""Every compressor obeys its laws; a compressor with a planted fault breaks the law that is about it, and no other."""

from pathlib import Path

import pytest

from parbench.conformance import check_compressor
from parbench.registry import Registry

REGISTRY = Registry()
NAMES = REGISTRY.names("compressor")
VARIANTS = [
    "topk(exact=False)",
    "topk(per=group)",
    "randomk(feedback=False)",
    "random_block(feedback=False)",
    "signsgd(scaled=False)",
    "terngrad(clip_deviations=inf)",
    "qsgd(levels=3, bucket=100)",
    "powersgd(rank=3, warm_start=False)",
    "wangni(method=closed)",
    "csc(chunk=100, select=prev)",
    "csc(chunk=100)",
    "micro(density=0.05, scaling=mended)",
    "shared_scale_int(stochastic=False)",
    "pactrain(patience=1)",
    "count_sketch(per=group)",
    "threshold(value=2.5)",
    "dgc(ratio=0.01, warmup_steps=2)",
    "lgc(dense_steps=1, train_steps=1)",
    "lgc(dense_steps=0, train_steps=1, form=server)",
]
PLANTED = Path(__file__).parent / "planted_compressor.py"


def broken(name, world_size=3, **kwargs):
    return {finding.law for finding in check_compressor(name, world_size, **kwargs).broken}


SLOW = ("block_projection", "count_sketch", "wangni")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.nightly] if name in SLOW else []) for name in NAMES]
)
def test_compressor(name):
    assert broken(name, registry=REGISTRY) == set()


@pytest.mark.nightly
@pytest.mark.parametrize("world_size", [2, 4])
@pytest.mark.parametrize("name", NAMES)
def test_compressor_at_other_numbers_of_ranks(name, world_size):
    assert broken(name, world_size, registry=REGISTRY) == set()


@pytest.mark.nightly
@pytest.mark.parametrize("name", VARIANTS)
def test_variant(name):
    assert broken(name, 2, registry=REGISTRY) == set()


LINEAR = "the average is the mean of contributions"
SURVIVES = "what it can represent survives a second pass"
CONTRACTS = "comes nearer to the gradient than nothing does"
ZERO = "zero in, zero out"

# fault -> the laws it breaks
TABLE = {
    "none": set(),
    "doubled average": {LINEAR},
    "doubled": {SURVIVES, CONTRACTS},
    # A small loss at each pass still contracts and still learns: only a second pass shows it.
    "shrunk": {SURVIVES},
    "offset": {ZERO, SURVIVES},
    "global draws": {"same seed, same average; draws nothing global"},
    "own average": {"ranks get the same average", LINEAR},
    # What it halves is halved again where the same gradients are given to others.
    "in place": {"leaves the gradients it is given alone", "keeps its state by name"},
    "bytes misreported": {"sends the bytes it says"},
    "state by place": {"keeps its state by name", SURVIVES},
    "wrong type": {"takes any shape and type"},
    "never shorter": {"never sends more than the gradients are"},
}


@pytest.mark.parametrize("fault", TABLE)
def test_a_fault_is_caught_by_its_law(fault):
    assert broken(f"planted_compressor(fault='{fault}')", plugins=[PLANTED]) == TABLE[fault]


def test_a_claim_to_be_unbiased_is_tested():
    assert broken("planted_compressor(fault='none', claims=unbiased)", plugins=[PLANTED]) == {
        "is the gradient on average over draws"
    }


def test_a_compressor_is_one_short_file():
    for entry in REGISTRY.describe("compressor"):
        lines = Path(entry.origin).read_text(encoding="utf-8").splitlines()
        assert len(lines) <= 80, f"{entry.name} has {len(lines)} lines"
        assert entry.broken_reason is None
