"""The loops that parbench is compared with: DDP, FSDP and tensor parallelism on two gloo ranks, in plain torch.

Nothing of parbench runs in it but the workload's model, optimizer and batches, so that both sides do the same work.
"""

from __future__ import annotations

import ctypes
import gc
import multiprocessing as mp
import os
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from parbench.api import Batch, Job
from parbench.workloads.gpt import Gpt

RANKS = 2
MICROBATCHES = 4

Train = Callable[[Batch], torch.Tensor | None]


class HandWritten:
    """Two fresh processes that train on request; between requests they wait for a pipe and use no core."""

    def __init__(self, folder: Path, strategy: str, size: str, global_batch_size: int) -> None:
        # The forkserver of parbench's ranks: both sides start with the same libraries loaded.
        context = mp.get_context("forkserver")
        self._pipes: list[Connection] = []
        self._processes = []
        for rank in range(RANKS):
            here, there = context.Pipe()
            arguments = (rank, str(folder / "rendezvous"), strategy, size, global_batch_size, there)
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
        columns = zip(*(losses for _, losses in answers), strict=True)
        seen = [[loss for loss in column if loss is not None] for column in columns]
        losses = [sum(column) / len(column) for column in seen]
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


def _live(rank: int, rendezvous: str, strategy: str, size: str, global_batch_size: int, pipe: Connection) -> None:
    torch.set_num_threads(1)
    _keep_freed_memory()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=RANKS)
    job = Gpt().build(size, 0, torch.device("cpu"), global_batch_size)
    train = _pipeline(job, rank) if strategy == "pipeline" else _whole_samples(job, rank, strategy, global_batch_size)
    gc.collect()
    gc.freeze()
    gc.disable()
    pipe.send("ready")
    step = 0
    while count := pipe.recv():
        losses: list[torch.Tensor | None] = []
        gc.collect()
        dist.barrier()
        started_s = time.perf_counter()
        for _ in range(count):
            losses.append(train(job.batch(step)))
            step += 1
        wall_s = time.perf_counter() - started_s
        pipe.send((wall_s, [None if x is None else float(x) for x in losses]))
    del train
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)


def _whole_samples(job: Job, rank: int, strategy: str, global_batch_size: int) -> Train:
    model = _WRAP[strategy](job)
    # Fused and foreach kernels take cut parameters or whole ones, not both.
    kinds = [[p for p in job.model.parameters() if isinstance(p, DTensor) is cut] for cut in (True, False)]
    optimizers = [job.optimizer(parameters) for parameters in kinds if parameters]
    # Ranks that share out layers work on the same samples.
    whole = strategy == "tensor"
    start, stop = (0, global_batch_size) if whole else (k * global_batch_size // RANKS for k in (rank, rank + 1))

    def train(batch: Batch) -> torch.Tensor:
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=True)
        logits = model(batch.inputs[start:stop])
        loss = F.cross_entropy(logits.flatten(0, 1), batch.targets[start:stop].flatten())
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        return loss.detach()

    return train


def _pipeline(job: Job, rank: int) -> Train:
    """Return 1F1B of torch.distributed.pipelining on two stages, cut where parbench cuts them."""
    half = -(-len(job.blocks) // RANKS)
    names = job.blocks[rank * half : (rank + 1) * half]
    module = nn.Sequential(*(job.model.get_submodule(name) for name in names))
    stage = PipelineStage(module, rank, RANKS, torch.device("cpu"))
    schedule = Schedule1F1B(stage, MICROBATCHES, loss_fn=_mean_loss)
    optimizer = job.optimizer(module.parameters())

    def train(batch: Batch) -> torch.Tensor | None:
        optimizer.zero_grad(set_to_none=True)
        losses: list[torch.Tensor] = []
        if rank == 0:
            schedule.step(batch.inputs)
        else:
            schedule.step(target=batch.targets, losses=losses)
        optimizer.step()
        return torch.stack(losses).mean().detach() if losses else None

    return train


def _mean_loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def _ddp(job: Job) -> nn.Module:
    return DistributedDataParallel(job.model)


def _fsdp(job: Job) -> nn.Module:
    for block in job.blocks:
        fully_shard(job.model.get_submodule(block))
    return fully_shard(job.model)


def _tensor(job: Job) -> nn.Module:
    styles: dict[str, ParallelStyle] = {}
    for name, module in job.model.named_modules():
        if name.endswith(("attention.qkv", "mlp.up")):
            styles[name] = ColwiseParallel()
        elif name.endswith(("attention.out", "mlp.down")) and isinstance(module, nn.Linear):
            styles[name] = RowwiseParallel()
    return parallelize_module(job.model, init_device_mesh("cpu", (RANKS,)), styles)


_WRAP: dict[str, Callable[[Job], nn.Module]] = {"ddp": _ddp, "fsdp": _fsdp, "tensor": _tensor}


def _keep_freed_memory() -> None:
    # As parbench's ranks do: otherwise glibc gives large blocks back at every free, and page faults are timed.
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(-3, 1 << 30)
        libc.mallopt(-1, 1 << 30)
