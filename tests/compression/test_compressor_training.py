"""Compressors that claim to train as without them, on average, do: the same final loss, seed by seed."""

import pytest

from compressor_training import differences, interval
from parbench import Session
from parbench.registry import Registry

REGISTRY = Registry()
ON_AVERAGE = [
    name for name in REGISTRY.names("compressor") if REGISTRY.resolve("compressor", name).agrees == "on average"
]
# Nats, of about 0.1 at the end.
TOLERANCE = 0.01


def test_an_interval_is_students():
    """Of 1, 2 and 3: mean 2, standard error 1 / sqrt(3), 4.303 of it at two degrees of freedom."""
    mean, low, high = interval([1.0, 2.0, 3.0])
    assert (mean, low, high) == pytest.approx((2.0, 2 - 4.303 / 3**0.5, 2 + 4.303 / 3**0.5), abs=1e-3)


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_what_claims_to_train_alike_on_average_reaches_the_same_loss():
    assert len(ON_AVERAGE) >= 5
    bare: dict[int, float] = {}
    with Session(world_size=2) as session:
        for name in ON_AVERAGE:
            found = differences(session, name, "digits", "small", seeds=10, steps=100, bare=bare)
            mean, low, high = interval(found)
            print(f"{name}: {mean:+.5f} [{low:+.5f}, {high:+.5f}] nats more than without")
            assert -TOLERANCE < low <= high < TOLERANCE, name
