"""Wire bytes: what gloo's own algorithms send, against counts by hand."""

from fractions import Fraction

import pytest

from parbench.wire import wire_bytes


@pytest.mark.parametrize("n", range(1, 17))
def test_a_broadcast_tree_reaches_every_rank_once(n):
    sent = [wire_bytes("gloo", "broadcast", 1, n, place, Fraction(place == 0)) for place in range(n)]
    assert sum(sent) == n - 1
    assert sent[0] == (n - 1).bit_length()  # ceil(log2 n); measured at 4 ranks: twice


def test_reduce_scatter_is_an_all_reduce():
    # Measured by interface counters: 16 MB at 4 ranks is 24 MB per rank, where 12 MB would do.
    assert wire_bytes("gloo", "reduce_scatter", 16, 4, 0, Fraction(12)) == 24
    assert wire_bytes("gloo", "all_reduce", 16, 4, 0, Fraction(24)) == 24
    assert wire_bytes("gloo", "all_gather", 16, 4, 0, Fraction(12)) == 12


def test_what_is_not_known_is_not_guessed():
    assert wire_bytes("nccl", "all_reduce", 16, 4, 0, Fraction(24)) is None
    assert wire_bytes("nccl", "send", 16, 4, 0, Fraction(16)) == 16
