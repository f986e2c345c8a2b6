"""The ring in one process, a thread per rank: sums, bytes, order of additions, refusals, and many collectives."""

import contextlib
import random
import re
import socket
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from parbench.errors import UsageError
from parbench.launch.failure import follows_from_a_peer
from parbench.launch.stores import joined, opened
from parbench.network.ring import Ring
from parbench.network.ring_errors import PeerGone, PeerStalled, RingClosed, RingMismatch
from parbench.network.ring_plan import OPS, bounds, payload_bytes, plan
from parbench.network.ring_work import HEADER_BYTES
from parbench.network.socket_bytes import queued_bytes

DTYPES = {
    torch.float32: np.float32,
    torch.float64: np.float64,
    torch.float16: np.float16,
    torch.bfloat16: None,
    torch.int8: np.int8,
    torch.uint8: np.uint8,
    torch.int16: np.int16,
    torch.int32: np.int32,
    torch.int64: np.int64,
}


@contextlib.contextmanager
def rings(ranks, **options):
    """Connect a ring of threads of this process."""
    store, port = opened("127.0.0.1", 30)
    made = together(
        ranks, lambda rank: Ring.connect(joined("127.0.0.1", port, 30), rank, ranks, **{"timeout_s": 20, **options})
    )
    try:
        yield made
    finally:
        for ring in made:
            ring.close()
        del store


def together(ranks, act):
    """Let a thread per rank act, and return what each gives or raise what one raises."""
    got, errors = [None] * ranks, []

    def one(rank):
        try:
            got[rank] = act(rank)
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    if errors:
        raise errors[0]
    return got


def open_descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


def whole_numbers(rng, numel, dtype):
    """Return values whose sums are exact in every type, and the same as int64."""
    values = np.array(rng.choices(range(4), k=numel), dtype=np.int64)
    return torch.from_numpy(values).to(dtype), values


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
def test_sums_are_those_of_numpy_for_any_size_and_type(ranks):
    rng = random.Random(ranks)
    sizes = [0, 1, 2, ranks - 1, ranks + 1, 1001, 70_000, *(rng.randrange(1, 5000) for _ in range(4))]
    with rings(ranks) as made:
        for numel in sizes:
            for dtype in DTYPES if numel < 2000 else (torch.float32, torch.bfloat16):
                inputs = [whole_numbers(rng, numel, dtype) for _ in range(ranks)]
                total = torch.from_numpy(sum(values for _, values in inputs)).to(dtype)
                kept = [tensor.clone() for tensor, _ in inputs]

                def act(rank, inputs=inputs, numel=numel, dtype=dtype):
                    ring, given = made[rank], inputs[rank][0]
                    shard = torch.full_like(given[ring.part(numel)], 77)
                    whole = torch.full_like(given, 77)
                    pending = [ring.reduce_scatter_async(shard, given), ring.all_gather_async(whole, shard)]
                    done = [one.wait() for one in pending]
                    assert done[0] is shard
                    summed = given.clone()
                    spread = given.clone()
                    assert ring.all_reduce_async(summed).wait() is summed
                    ring.broadcast_async(spread, ranks - 1).wait()
                    return shard, whole, summed, spread

                for rank, (shard, whole, summed, spread) in enumerate(together(ranks, act)):
                    assert torch.equal(shard, total[made[rank].part(numel)])
                    assert torch.equal(whole, total)
                    assert torch.equal(summed, total)
                    assert torch.equal(spread, inputs[-1][0])
                    assert torch.equal(inputs[rank][0], kept[rank])  # a reduce-scatter only reads


@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_additions_happen_in_the_order_that_is_stated_and_all_ranks_hold_the_same_bits(ranks):
    torch.manual_seed(ranks)
    numel = 1003
    inputs = [torch.randn(numel) * 10 ** (3 * rank) for rank in range(ranks)]
    borders = bounds(numel, ranks)
    wanted = torch.empty(numel)
    for part in range(ranks):
        place = slice(borders[part], borders[part + 1])
        terms = [inputs[(part + 1 + k) % ranks][place].numpy() for k in range(ranks)]
        sums = terms[0]
        for term in terms[1:]:
            sums = sums + term
        wanted[place] = torch.from_numpy(sums)
    with rings(ranks) as made:
        for _ in range(3):
            results = together(ranks, lambda rank: made[rank].all_reduce_async(inputs[rank].clone()).wait())
            assert all(torch.equal(result, wanted) for result in results)


@pytest.mark.parametrize(("ranks", "numel"), [(2, 1), (4, 1000), (4, 300_001), (3, 100_000)])
def test_the_wire_carries_the_ideal_bytes_and_a_header(ranks, numel):
    with rings(ranks) as made:
        for op in OPS:
            # A broadcast's last rank sends a header too: every rank says what it issued.
            expected = [payload_bytes(op, rank, ranks, numel, 4) + HEADER_BYTES for rank in range(ranks)]
            before, kernel = [ring.sent_bytes for ring in made], queued_bytes()
            together(ranks, lambda rank, op=op: issue(made[rank], op, numel))
            assert [ring.sent_bytes - was for ring, was in zip(made, before, strict=True)] == expected
            assert queued_bytes() - kernel == sum(expected)  # what the sockets of this process say themselves
        assert sum(ring.sent_bytes for ring in made) == sum(ring.received_bytes for ring in made)
        whole = 4 * numel
        assert (
            sum(payload_bytes("all_reduce", rank, ranks, numel, 4) for rank in range(ranks)) == 2 * (ranks - 1) * whole
        )
        assert (
            sum(payload_bytes("reduce_scatter", rank, ranks, numel, 4) for rank in range(ranks)) == (ranks - 1) * whole
        )


def issue(ring, op, numel):
    whole = torch.zeros(numel)
    shard = whole[ring.part(numel)].clone()
    pending = {
        "all_reduce": lambda: ring.all_reduce_async(whole),
        "reduce_scatter": lambda: ring.reduce_scatter_async(shard, whole),
        "all_gather": lambda: ring.all_gather_async(whole, shard),
        "broadcast": lambda: ring.broadcast_async(whole),
    }[op]()
    return pending.wait()


def test_what_is_received_is_what_is_sent_next():
    for op in OPS:
        for ranks in (2, 3, 4, 8):
            for rank in range(ranks):
                mine, theirs = plan(op, rank, ranks, 1), plan(op, (rank - 1) % ranks, ranks, 1)
                assert [one.part for one in mine.incoming] == list(theirs.outgoing)
                passed = mine.outgoing[mine.ready :]
                assert list(passed) == [one.part for one in mine.incoming[: len(passed)]]


def test_a_thousand_collectives_leave_nothing_behind():
    threads, descriptors = threading.active_count(), open_descriptors()
    with rings(2) as made:

        def act(rank):
            tensor = torch.ones(16)
            for _ in range(1000):
                made[rank].all_reduce_async(tensor.fill_(1)).wait()
            return tensor

        assert all(torch.equal(got, torch.full((16,), 2.0)) for got in together(2, act))
        assert threading.active_count() == threads + 2
        del act
    made.clear()  # rings hold the store they were made with
    deadline = time.monotonic() + 5
    while open_descriptors() > descriptors and time.monotonic() < deadline:
        time.sleep(0.05)  # the store's own thread takes a moment
    assert threading.active_count() == threads
    assert open_descriptors() <= descriptors


def test_collectives_in_flight_are_carried_out_in_issue_order_while_the_rank_goes_on():
    with rings(3) as made:
        tensors = [[torch.full((50_000,), float(k)) for k in range(8)] for _ in range(3)]

        def act(rank):
            pending = [made[rank].all_reduce_async(tensor) for tensor in tensors[rank]]
            pending[-1].wait()
            return [one.done() for one in pending]

        assert together(3, act) == [[True] * 8] * 3
        assert all(torch.equal(t, torch.full((50_000,), 3.0 * k)) for one in tensors for k, t in enumerate(one))


def test_alpha_is_slept_once_per_collective_and_said():
    with rings(2, alpha_s=0.03) as made:
        started = time.perf_counter()
        together(2, lambda rank: [made[rank].all_reduce_async(torch.ones(4)) for _ in range(5)][-1].wait())
        assert time.perf_counter() - started >= 5 * 0.03
        assert "0.03 s injected once per collective" in made[0].label
    with rings(2) as made:
        assert "injected" not in made[0].label


def test_a_ring_of_one_adds_nothing():
    with rings(1) as (ring,):
        shard = torch.empty(3)
        assert torch.equal(ring.reduce_scatter_async(shard, torch.arange(3.0)).wait(), torch.arange(3.0))
        assert torch.equal(ring.all_gather_async(torch.empty(3), shard).wait(), torch.arange(3.0))
        assert ring.sent_bytes == 0


def test_tensors_that_cannot_be_moved_are_refused_at_once():
    with rings(2) as made:
        ring = made[0]
        for tensor in (torch.ones(4, 4).t(), torch.ones(3, dtype=torch.complex64), torch.ones(3, device="meta")):
            with pytest.raises(UsageError, match="contiguous CPU tensors"):
                ring.all_reduce_async(tensor)
        with pytest.raises(UsageError, match=r"rank 0 of 2 has 3 of 5 float32, not 2 float32"):
            ring.reduce_scatter_async(torch.ones(2), torch.ones(5))
        with pytest.raises(UsageError, match="broadcast from rank 2"):
            ring.broadcast_async(torch.ones(2), 2)
        parameter = torch.nn.Parameter(torch.ones(3))
        together(2, lambda rank: made[rank].all_reduce_async(parameter if rank == 0 else torch.ones(3)).wait())
        assert parameter.tolist() == [2.0] * 3


def test_numbers_that_make_no_ring_are_refused():
    store, _ = opened("127.0.0.1", 10)
    for arguments in ({"rank": 2, "world_size": 2}, {"rank": 0, "world_size": 2, "timeout_s": 0}):
        with pytest.raises(UsageError, match="a ring needs"):
            Ring.connect(store, **arguments)


@pytest.mark.parametrize(
    ("mine", "theirs", "said"),
    [
        (torch.ones(10), torch.ones(11), r"all_reduce of 10 float32 .* all_reduce of 11 float32"),
        (torch.ones(10), torch.ones(10, dtype=torch.int32), r"all_reduce of 10 float32 .* all_reduce of 10 int32"),
    ],
)
def test_ranks_that_issue_different_collectives_are_told_both(mine, theirs, said):
    with rings(2) as made:
        first, second = made[0].all_reduce_async(mine), made[1].all_reduce_async(theirs)
        with pytest.raises((RingMismatch, PeerGone)) as one:
            first.wait()
        with pytest.raises((RingMismatch, PeerGone)) as other:
            second.wait()
        found = [str(error.value) for error in (one, other) if isinstance(error.value, RingMismatch)]
        assert found
        assert any(re.search(said, sentence) or len(found) == 1 for sentence in found)


def test_closing_here_fails_what_is_in_flight_here_and_there():
    with rings(2, timeout_s=10) as made:
        waiting = made[0].all_reduce_async(torch.ones(4))
        queued = made[0].all_reduce_async(torch.ones(4))
        time.sleep(0.1)
        made[0].close()
        for pending in (waiting, queued):
            with pytest.raises(RingClosed):
                pending.wait()
        with pytest.raises(RingClosed):
            made[0].all_reduce_async(torch.ones(4))
        with pytest.raises(PeerGone, match=r"rank 0 at 127\.0\.0\.1") as gone:
            made[1].all_reduce_async(torch.ones(4)).wait()
        assert follows_from_a_peer(str(gone.value))
        with pytest.raises(PeerGone):  # a broken ring says so at once
            made[1].all_reduce_async(torch.ones(4)).wait()


def test_a_rank_that_stands_still_is_named_by_all_within_the_timeout():
    with rings(4, timeout_s=1) as made:
        started = time.monotonic()
        pending = [made[rank].all_reduce_async(torch.ones(1000)) for rank in (0, 1, 3)]  # rank 2 never comes
        for one in pending:
            with pytest.raises((PeerStalled, PeerGone), match=r"timed out waiting for rank 2 at 127\.0\.0\.1") as error:
                one.wait()
            assert follows_from_a_peer(str(error.value))
        assert time.monotonic() - started < 4


def test_strangers_who_knock_are_not_let_in():
    store, port = opened("127.0.0.1", 30)
    knocked = threading.Event()

    def knock():
        other = joined("127.0.0.1", port, 30)
        other.wait(["ring/1/address/0"])
        _, ring_port, host = other.get("ring/1/address/0").decode().split(" ", 2)
        for said in (b"GET / HTTP/1.1\r\n\r\n", b"x" * 20):
            with contextlib.suppress(OSError), socket.create_connection((host, int(ring_port)), 5) as stranger:
                stranger.sendall(said)
        knocked.set()

    stranger = threading.Thread(target=knock)
    stranger.start()

    def act(rank):
        if rank == 1:
            knocked.wait(20)
        with Ring.connect(joined("127.0.0.1", port, 30), rank, 2, timeout_s=20) as ring:
            return ring.all_reduce_async(torch.ones(3)).wait().tolist()

    assert together(2, act) == [[2.0] * 3] * 2
    stranger.join()
    del store


def test_a_rank_that_never_joins_is_named():
    store, port = opened("127.0.0.1", 30)
    with pytest.raises(PeerStalled, match="rank 1"):
        Ring.connect(joined("127.0.0.1", port, 30), 0, 2, timeout_s=0.3)
    del store
