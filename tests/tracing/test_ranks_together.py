"""What ranks did together: sides of collectives, clocks, skew, the matrix, bandwidth; values by hand."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_cases import US, collective, trace

from parbench.tracing import bandwidth, clocks, matrix, skew
from parbench.tracing.matching import matched


def pair(first=(0, 10), second=(4, 10), op="all_reduce", size=None):
    """One collective of two ranks: (start, end) on each."""
    return [
        trace(rank, collectives=[collective(op, *times[:1], *times, size=size)])
        for rank, times in enumerate((first, second))
    ]


def test_sides_of_a_message_find_each_other_whatever_else_goes_on():
    """Rank 0 sends twice to 1 and once to 2; rank 1 receives from 2 between the two."""
    zero = trace(
        0, world_size=3, collectives=[collective("send", t, t, t + 1, peer=p) for t, p in ((0, 1), (1, 2), (2, 1))]
    )
    one = trace(
        1, world_size=3, collectives=[collective("recv", t, t, t + 1, peer=p) for t, p in ((0, 0), (1, 2), (2, 0))]
    )
    found = matched([zero, one]).sides
    both = [sides for sides in found.values() if len(sides) == 2]
    assert [(s[0].one.start_ns, s[1].one.start_ns) for s in both] == [(0, 0), (2 * US, 2 * US)]
    assert len(found) == 4


def numbered(rank, *steps):
    """All-reduces issued in these steps, beginning one after the other."""
    return trace(rank, collectives=[collective("all_reduce", k, k, k + 1, step=step) for k, step in enumerate(steps)])


def places(traces):
    """Return rank 0's place -> rank 1's place of each collective both were seen to take part in."""
    pairs = [sides for sides in matched(traces).sides.values() if len(sides) == 2]
    return {sides[0].one.start_ns // US: sides[1].one.start_ns // US for sides in pairs}


def test_ranks_that_issue_a_collective_in_different_steps_meet_in_the_order_of_issue():
    """A thread of its own issues it: on rank 1 the second one falls into the next step."""
    assert places([numbered(0, 0, 0, 1), numbered(1, 0, 1, 1)]) == {0: 0, 1: 1, 2: 2}


def test_what_is_missing_in_one_step_disturbs_no_other():
    """Rank 1's second of step 0 was not seen: those of step 1 still find each other."""
    assert places([numbered(0, 0, 0, 1, 1), numbered(1, 0, 1, 1)]) == {0: 0, 2: 1, 3: 2}


def test_waiting_and_transfer_are_apart():
    """Rank 0 comes at 0, rank 1 at 4, both leave at 10: transfer 6, rank 0 waits 4."""
    (found,) = skew.waiting(pair())
    assert found.transfer_s == pytest.approx(6e-6)
    assert found.waiting_s == {0: pytest.approx(4e-6), 1: 0}
    assert found.last == 1
    worst, other = skew.stragglers([found])
    assert (worst.rank, worst.last, worst.delayed_s) == (1, 1, pytest.approx(4e-6))
    assert (other.rank, other.last, other.waited_s) == (0, 0, pytest.approx(4e-6))


def test_a_collective_of_which_a_side_was_not_seen_says_nothing_of_skew():
    alone = trace(0, collectives=[collective("all_reduce", 0, 0, 10)])
    untimed = [alone, trace(1, collectives=[collective("all_reduce", 0, None, None)])]
    assert skew.waiting([alone]) == skew.waiting(untimed) == []


@pytest.mark.parametrize(
    ("op", "logical", "ranks", "buffer", "factor"),
    [
        ("all_reduce", 1500, 4, 1000, 1.5),  # 2 (n-1)/n S
        ("all_gather", 750, 4, 1000, 0.75),  # (n-1)/n S
        ("reduce_scatter", 750, 4, 1000, 0.75),
        ("all_to_all", 500, 2, 1000, 0.5),
    ],
)
def test_bandwidth_takes_the_factor_of_the_group_not_of_the_world(op, logical, ranks, buffer, factor):
    members = tuple(range(ranks))
    every = [
        trace(rank, world_size=8, collectives=[collective(op, 0, 0, 10, axis="tp", members=members, size=logical)])
        for rank in members
    ]
    (row,) = bandwidth.rows(every)
    assert (row.count, row.ranks, row.buffer_bytes, row.logical_bytes) == (1, ranks, buffer, ranks * logical)
    assert row.algbw_bytes_per_s == pytest.approx(buffer / 10e-6)
    assert row.busbw_bytes_per_s == pytest.approx(factor * buffer / 10e-6)


def test_a_send_and_its_recv_are_one_message():
    zero = trace(0, collectives=[collective("send", 0, 0, 10, peer=1, size=1000)])
    one = trace(1, collectives=[collective("recv", 2, 2, 10, peer=0, size=0)])
    (row,) = bandwidth.rows([zero, one])
    assert (row.op, row.count, row.buffer_bytes, row.transfer_s) == ("message", 1, 1000, pytest.approx(8e-6))
    assert row.busbw_bytes_per_s == pytest.approx(1000 / 8e-6)


def test_the_matrix_says_who_sends_to_whom():
    """An all-reduce over (0, 1, 2) round the ring, an all-to-all of them, a message 2 -> 0, a gather to 1."""
    group = (0, 1, 2)
    every = []
    for rank in group:
        found = [
            collective("all_reduce", 0, 0, 1, members=group, size=40),
            collective("all_to_all", 1, 1, 2, members=group, size=20),
            collective("gather", 2, 2, 3, members=group, size=0 if rank == 1 else 7),
        ]
        found += [collective("send", 3, 3, 4, peer=0, size=5)] if rank == 2 else []
        every.append(trace(rank, world_size=3, collectives=found))
    found = matrix.sent(every)
    assert found.sent == [[0, 40 + 10 + 7, 10], [10, 0, 40 + 10], [40 + 10 + 5, 10 + 7, 0]]
    assert found.unplaced == found.unknown == 0


def test_bytes_that_are_not_known_are_counted_and_not_guessed():
    found = matrix.sent(pair())
    assert found.sent == [[0, 0], [0, 0]]
    assert found.unknown == 2


def test_ranks_of_one_host_keep_their_times():
    found = clocks.aligned(pair())
    assert found.offsets_ns == {0: 0, 1: 0}
    assert found.uncertainty_ns == 0


def test_a_shared_clock_that_contradicts_itself_says_by_how_much():
    """Rank 0 leaves at 10, rank 1 comes at 13 only: the clocks are at least 3 apart."""
    assert clocks.aligned(pair((0, 10), (13, 20))).uncertainty_ns == 3 * US


def test_hosts_that_share_nothing_are_left_as_they_are_and_said():
    zero, one = trace(0, host="a"), trace(1, host="b")
    found = clocks.aligned([zero, one])
    assert found.uncertainty_ns is None
    assert "[1]" in found.how


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.integers(-(10**9), 10**9), min_size=4, max_size=4),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), min_size=1, max_size=8),
)
def test_alignment_recovers_any_offset_of_clocks(offsets, times):
    """Groups (0, 1), (1, 2), (2, 3): rank 3 is reached through the others; starts differ, ends coincide."""
    truth = []
    for rank in range(4):
        found = []
        for number, (start, length) in enumerate(times):
            begins = [start + rank * 1000, start + rank * 2000]
            end = start + length + 10**7
            for k, group in enumerate(g for g in ((0, 1), (1, 2), (2, 3)) if rank in g):
                one = collective("all_reduce", None, None, None, number=number, members=group)
                at = {"issued_ns": begins[k], "start_ns": begins[k], "end_ns": end}
                found.append(type(one)(**{**{f: getattr(one, f) for f in one.__struct_fields__}, **at}))
        truth.append(trace(rank, world_size=4, host=f"host {rank}", collectives=found))
    wrong = [clocks.shifted(one, offset) for one, offset in zip(truth, offsets, strict=True)]
    found = clocks.aligned(wrong)
    assert found.uncertainty_ns == 0
    assert [one.collectives for one in found.traces] == [clocks.shifted(one, offsets[0]).collectives for one in truth]
