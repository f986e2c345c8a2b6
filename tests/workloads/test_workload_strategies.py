"""Every workload is spread as one process trains it: two ranks, the strategies that take it, all at size smoke."""

import itertools

import pytest

from amounts import amount
from parbench import Session
from parbench.registry import Registry
from parbench.spec import RunSpec

# images needs a file; its network is that of digits.
NAMES = [name for name in Registry().names("workload") if name not in ("images", "hf")]
# What the others say: nothing of it can be cut, or its gradients are sparse.
CUT = {"alexnet", "bert", "digits", "ecg", "gpt", "matrix-recovery", "mlp", "moe-gpt", "text", "vgg", "vit"}
SPARSE = {"sparse-lm"}
PAIRS = [("replicated", "sparse-lm"), *itertools.product(["ddp", "fsdp", "pipeline", "tensor"], NAMES)]


@pytest.fixture(scope="module")
def session():
    with Session(world_size=2) as ranks:
        yield ranks


@pytest.mark.nightly
@pytest.mark.parametrize(("strategy", "name"), amount(PAIRS, in_ci=PAIRS[::3]))
def test_a_workload_is_spread(session, name, strategy):
    spec = RunSpec(workload=name, strategy=strategy, size="smoke", world_size=2, device="cpu")
    variant = session.add(spec, refuse=False)
    takes = (strategy != "tensor" or name in CUT) and (strategy == "replicated" or name not in SPARSE)
    assert (variant.unsupported is None) == takes, variant.unsupported
    if takes:
        try:
            agreement = variant.parity(2)
            assert agreement.passed, agreement.reason
            assert all(one.traffic == one.sent for one in variant.inspect())
        finally:
            variant.close()
