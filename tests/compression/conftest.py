"""Compressors are examined as ranks run them, with one thread: to wait for a second takes longer than the work."""

import pytest

from parbench.conformance.jobs import one_thread


@pytest.fixture(autouse=True)
def _one_thread():
    with one_thread():
        yield
