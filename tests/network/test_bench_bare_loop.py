"""The bench beside a bare loop over torch's own collectives, in the same ranks, turn by turn.

python -m pytest -q -s -m quiet tests/network/test_bench_bare_loop.py
"""

import json
import multiprocessing as mp
import os
import statistics
import time

import numpy as np
import pytest
import torch
import torch.distributed as dist

from parbench.launch.forkserver import ensure_forkserver, fork
from parbench.launch.messages import Collectives
from parbench.launch.stopping import StopRequest
from parbench.launch.stores import joined, opened
from parbench.network.algorithms import Native
from parbench.network.bench import Wanted, gathered
from parbench.network.collective_rank import measure

pytestmark = pytest.mark.usefixtures("no_orphans")
OP = "all_reduce"


def serve(message, pipe, _):
    """Be a rank: the bench and the bare loop, in turn; send (bench's reply, bare loop's seconds) of every round."""
    asked = json.loads(message)
    rank, ranks = asked["rank"], asked["ranks"]
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", store=joined("127.0.0.1", asked["port"], 30), rank=rank, world_size=ranks)
    native = Native(dist.group.WORLD, rank, ranks)
    for nbytes in asked["sizes"]:
        command = Collectives(
            op=OP, algorithm="native", ranks=ranks, bytes=nbytes, warm_up=2, iterations=asked["iterations"]
        )
        for turn in range(asked["rounds"]):
            found = {}
            for which in ("bench", "bare") if turn % 2 else ("bare", "bench"):
                if which == "bench":
                    done = measure(
                        command, native, dist.group.WORLD, rank, torch.device("cpu"), lambda _: None, lambda: None
                    )
                    found["bench"] = {"start_s": done.start_s, "ends_s": done.ends_s}
                else:
                    found["bare"] = bare_loop(nbytes, asked["iterations"])
            pipe.send_bytes(json.dumps(found).encode())
    dist.barrier()
    os._exit(0)


def bare_loop(nbytes, iterations):
    """What anybody would write."""
    tensor = torch.zeros(nbytes // 4)
    for _ in range(2):
        dist.all_reduce(tensor)
    dist.barrier()
    started_s = time.perf_counter()
    for _ in range(iterations):
        dist.all_reduce(tensor)
    return {"start_s": started_s, "end_s": time.perf_counter()}


def compare(ranks, sizes, rounds, iterations):
    """Yield size, and seconds per iteration of every round, of the bench and of the bare loop."""
    ensure_forkserver(StopRequest())
    store, port = opened("127.0.0.1", 30)
    made = []
    try:
        for rank in range(ranks):
            here, there = mp.Pipe()
            unused, out = mp.Pipe(duplex=False)
            asked = {
                "rank": rank,
                "ranks": ranks,
                "port": port,
                "sizes": sizes,
                "rounds": rounds,
                "iterations": iterations,
            }
            made.append((fork(serve, json.dumps(asked).encode(), there, out, f"bare{rank}"), here))
            for pipe in (there, unused, out):
                pipe.close()
        for nbytes in sizes:
            bench, bare = [], []
            for _ in range(rounds):
                parts = [json.loads(pipe.recv_bytes()) for _, pipe in made]
                ours = [dict_of(part["bench"]) for part in parts]
                one = gathered(Wanted(op=OP, algorithm="native", ranks=ranks, bytes=nbytes), ours)
                bench.append(sum(one.samples_s) / iterations)
                bare.append(
                    (max(p["bare"]["end_s"] for p in parts) - max(p["bare"]["start_s"] for p in parts)) / iterations
                )
            yield nbytes, bench, bare
    finally:
        for process, pipe in made:
            process.join(5)
            process.kill()
            process.join(5)
            pipe.close()
        del store


def dict_of(part):
    from parbench.launch.messages import CollectivesDone

    return CollectivesDone(start_s=part["start_s"], ends_s=tuple(part["ends_s"]))


def test_the_bench_and_a_bare_loop_run_in_turn_in_the_same_ranks(mark):
    ((nbytes, bench, bare),) = compare(2, [65536], 2, 3)
    assert nbytes == 65536
    assert len(bench) == len(bare) == 2
    assert all(seconds > 0 for seconds in (*bench, *bare))


# A round of 4 ranks on 2 cores takes up to twice as long as another, so that many are needed: MiB -> rounds.
ROUNDS = {1: 301, 4: 151, 16: 61}


@pytest.mark.quiet
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mebibytes", ROUNDS)
def test_the_bench_says_what_a_bare_loop_takes_within_a_tenth(mark, mebibytes):
    ((_, bench, bare),) = compare(4, [mebibytes << 20], ROUNDS[mebibytes], 8)
    ratio = statistics.median(bench) / statistics.median(bare)
    drawn = np.random.default_rng(0).integers(len(bench), size=(2000, len(bench)))
    medians = [np.median(np.array(times)[drawn], axis=1) for times in (bench, bare)]
    low, high = np.quantile(medians[0] / medians[1], [0.025, 0.975])
    ours_ms = statistics.median(bench) * 1e3
    print(f"\n{OP}, 4 ranks, {mebibytes} MiB, {len(bench)} rounds in turn, load {os.getloadavg()[0]:.1f}:")
    print(f"  bench {ours_ms:.2f} ms, over the bare loop {ratio:.3f} [{low:.3f}, {high:.3f}]")
    assert 0.9 < ratio < 1.1
