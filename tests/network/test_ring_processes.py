"""The ring between processes: one that dies or stands still is named by all the others, within the timeout."""

import json
import multiprocessing as mp
import os
import signal
import time

import pytest
import torch

from parbench.launch.forkserver import ensure_forkserver, fork
from parbench.launch.stopping import StopRequest
from parbench.launch.stores import joined, opened
from parbench.network.ring import Ring

pytestmark = [pytest.mark.nightly, pytest.mark.usefixtures("no_orphans")]
TIMEOUT_S = 3.0


def serve(message, pipe, _):
    """Be a rank: all-reduce again and again until something goes wrong, then say what, and when."""
    asked = json.loads(message)
    torch.set_num_threads(1)
    ring = Ring.connect(joined("127.0.0.1", asked["port"], 30), asked["rank"], asked["ranks"], timeout_s=TIMEOUT_S)
    tensor = torch.zeros(asked["numel"])
    pipe.send_bytes(b"ready")
    try:
        while True:
            ring.all_reduce_async(tensor).wait()
            if ring.sent_bytes < 0:
                return
    except Exception as error:  # noqa: BLE001
        ring.close()
        told = {"kind": type(error).__name__, "said": str(error), "at_s": time.monotonic()}
        pipe.send_bytes(json.dumps(told).encode())
    finally:
        os._exit(0)


@pytest.fixture
def processes(mark):
    ensure_forkserver(StopRequest())
    made = []

    def start(ranks, numel):
        store, port = opened("127.0.0.1", 30)
        for rank in range(ranks):
            here, there = mp.Pipe()
            unused, out = mp.Pipe(duplex=False)
            asked = {"rank": rank, "ranks": ranks, "port": port, "numel": numel}
            made.append((fork(serve, json.dumps(asked).encode(), there, out, f"ring{rank}"), here))
            for pipe in (there, unused, out):
                pipe.close()
        for _, pipe in made:
            assert pipe.poll(30)
            assert pipe.recv_bytes() == b"ready"
        return store, made

    yield start
    for process, pipe in made:
        process.kill()
        process.join(5)
        pipe.close()


@pytest.mark.parametrize("numel", [16, 3_000_000])
@pytest.mark.parametrize("ranks", [2, 4])
def test_all_others_name_a_rank_that_is_killed(processes, ranks, numel):
    store, made = processes(ranks, numel)
    time.sleep(0.1)
    killed_s = time.monotonic()
    os.kill(made[1][0].pid, signal.SIGKILL)
    for rank, (_, pipe) in enumerate(made):
        if rank != 1:
            told = heard(pipe)
            assert told["kind"] == "PeerGone"
            assert "rank 1 at 127.0.0.1" in told["said"]
            assert "connection closed by peer" in told["said"]
            assert told["at_s"] - killed_s < TIMEOUT_S
    del store


def test_all_others_name_a_rank_that_is_stopped(processes):
    store, made = processes(4, 100_000)
    os.kill(made[2][0].pid, signal.SIGSTOP)
    stopped_s = time.monotonic()
    for rank, (_, pipe) in enumerate(made):
        if rank != 2:
            told = heard(pipe)
            assert "timed out waiting for rank 2 at 127.0.0.1" in told["said"]
            assert told["at_s"] - stopped_s > TIMEOUT_S - 0.5
    del store


def heard(pipe):
    assert pipe.poll(20)
    return json.loads(pipe.recv_bytes())
