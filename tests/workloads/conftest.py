"""Workloads are small here: one thread computes them faster than several that wait for each other."""

import pytest

from parbench.conformance.jobs import one_thread


@pytest.fixture(autouse=True)
def _one_thread():
    with one_thread():
        yield
