"""The loop that parbench is compared with: DDP on two gloo ranks, written by hand with plain torch.distributed.

Nothing of parbench runs in it but the workload's model, optimizer and batches, so that both sides do the same work.
"""

from __future__ import annotations

import ctypes
import gc
import multiprocessing as mp
import os
import time
from multiprocessing.connection import Connection
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

from parbench.workloads.gpt import Gpt

RANKS = 2


class HandWritten:
    """Two fresh processes that train on request; between requests they wait for a pipe and use no core."""

    def __init__(self, folder: Path, size: str, global_batch_size: int) -> None:
        # The forkserver of parbench's ranks: both sides start with the same libraries loaded.
        context = mp.get_context("forkserver")
        self._pipes: list[Connection] = []
        self._processes = []
        for rank in range(RANKS):
            here, there = context.Pipe()
            arguments = (rank, str(folder / "rendezvous"), size, global_batch_size, there)
            process = context.Process(target=_live, args=arguments, daemon=True)
            process.start()
            there.close()
            self._pipes.append(here)
            self._processes.append(process)
        for pipe in self._pipes:
            pipe.recv()

    @property
    def pids(self) -> list[int]:
        return [process.pid or 0 for process in self._processes]

    def round(self, steps: int) -> tuple[float, list[float]]:
        """Take `steps` steps; return seconds on the slowest rank, and per step the loss of the global batch."""
        for pipe in self._pipes:
            pipe.send(steps)
        answers = [pipe.recv() for pipe in self._pipes]
        losses = [sum(column) / RANKS for column in zip(*(losses for _, losses in answers), strict=True)]
        return max(wall_s for wall_s, _ in answers), losses

    def __enter__(self) -> HandWritten:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        if kind is None:
            for pipe in self._pipes:
                pipe.send(0)
            for process in self._processes:
                process.join(20)
        for process in self._processes:
            process.kill()  # whatever state it is in, stopped too
            process.join()


def _live(rank: int, rendezvous: str, size: str, global_batch_size: int, pipe: Connection) -> None:
    torch.set_num_threads(1)
    _keep_freed_memory()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=RANKS)
    job = Gpt().build(size, 0, torch.device("cpu"), global_batch_size)
    model = DistributedDataParallel(job.model)
    optimizer = job.optimizer(job.model.parameters())
    start, stop = (k * global_batch_size // RANKS for k in (rank, rank + 1))
    gc.collect()
    gc.freeze()
    gc.disable()
    pipe.send("ready")
    step = 0
    while count := pipe.recv():
        losses = []
        gc.collect()
        dist.barrier()
        started_s = time.perf_counter()
        for _ in range(count):
            batch = job.batch(step)
            optimizer.zero_grad(set_to_none=True)
            logits = model(batch.inputs[start:stop])
            loss = F.cross_entropy(logits.flatten(0, 1), batch.targets[start:stop].flatten())
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
            step += 1
        wall_s = time.perf_counter() - started_s
        pipe.send((wall_s, [float(x) for x in losses]))
    del model, optimizer
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)


def _keep_freed_memory() -> None:
    # As parbench's ranks do: otherwise glibc gives large blocks back at every free, and page faults are timed.
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(-3, 1 << 30)
        libc.mallopt(-1, 1 << 30)
