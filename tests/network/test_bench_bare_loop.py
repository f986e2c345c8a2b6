"""The bench beside a bare loop over torch's own collectives, in the same ranks, turn by turn: figures, no verdict.

python -m pytest -q -s -m nightly tests/network/test_bench_bare_loop.py
"""

import json
import multiprocessing as mp
import os
import statistics
import time

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


@pytest.mark.quiet
@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_figures_of_the_bench_beside_a_bare_loop(mark):
    print()
    for nbytes, bench, bare in compare(4, [2**20, 2**22, 2**24], 11, 8):
        ours, theirs = statistics.median(bench), statistics.median(bare)
        paired = statistics.median(a / b for a, b in zip(bench, bare, strict=True))
        print(f"{OP}, 4 ranks, {nbytes >> 20} MiB, medians of {len(bench)} rounds in turn, ms per iteration:")
        print(
            f"  bench {ours * 1e3:.2f}, bare loop {theirs * 1e3:.2f}: ratio {ours / theirs:.3f}, of rounds {paired:.3f}"
        )
        print(f"  load {os.getloadavg()[0]:.1f}")
