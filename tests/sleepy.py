"""Plug-ins for tests of replicated strategies: a workload whose backward sleeps, a probe that sees collectives."""

import itertools
import random
import threading
import time
from typing import ClassVar

import torch
import torch.distributed as dist
from torch import nn

from parbench.api import Batch, Job, Probe, Series, Workload
from parbench.counting import ByteCounter

WIDTH = 8
BATCHES_OF_AN_EPOCH = 3


class _Sleep(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, block):
        ctx.block = block
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        ctx.block.nap()
        return grad, None


class _Block(nn.Module):
    def __init__(self, sleep_ms, fails_at):
        super().__init__()
        self.linear = nn.utils.skip_init(nn.Linear, WIDTH, WIDTH)
        self.sleep_ms, self.fails_at, self.calls = sleep_ms, fails_at, 0

    def nap(self):
        self.calls += 1
        if self.calls == self.fails_at and dist.get_rank() == 1:
            raise RuntimeError("planned by the test")
        time.sleep(random.SystemRandom().uniform(0.5, 1.0) * self.sleep_ms / 1000)

    def forward(self, x):
        return x + torch.tanh(self.linear(_Sleep.apply(x, self)))


class _Last(nn.Module):
    """Uses one parameter only for samples whose first number is positive, and another never."""

    def __init__(self, awkward, early):
        super().__init__()
        if awkward or early:
            self.sometimes = nn.Parameter(torch.ones(()))
        if awkward:
            self.never = nn.Parameter(torch.ones(3))
        self.picky = awkward or early
        self.register_buffer("shift", torch.zeros(5))

    def forward(self, x):
        first = x[:, :1]
        if self.picky and bool((first > 0).any()):
            x = x + (first > 0) * self.sometimes
        return x + self.shift.sum()


class Sleepy(Workload):
    """Learns nothing in particular, slowly; batches of odd steps are smaller."""

    unit = "samples"
    sizes: ClassVar = {"smoke": {}}
    source = "numbers drawn from the seed"

    def __init__(
        self,
        blocks: int = 4,
        sleep_ms: float = 0.0,
        awkward: bool = False,
        fails_at: int = 0,
        early: bool = False,
    ) -> None:
        self.blocks, self.sleep_ms, self.awkward, self.fails_at = blocks, sleep_ms, awkward, fails_at
        self.early = early

    def default_batch_size(self, size):
        return 8

    def build(self, size, seed, device, global_batch_size):
        generator = torch.Generator().manual_seed(seed)
        blocks = [_Block(self.sleep_ms, self.fails_at) for _ in range(self.blocks)]
        model = nn.Sequential(*blocks, _Last(self.awkward, self.early))
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.device.type != "meta" and parameter.dim() > 0:
                    parameter.copy_(torch.randn(parameter.shape, generator=generator) / 3)

        def batch(step):
            step %= BATCHES_OF_AN_EPOCH
            drawn = torch.Generator().manual_seed(seed + step)
            x = torch.randn(global_batch_size - (0 if self.early else 3 * (step % 2)), WIDTH, generator=drawn)
            if self.awkward:  # the first number is positive in the first sample, the last one, or none
                x[:, 0] = -5.0
                x[: 1 if step == 0 else 0, 0] = 5.0
                x[-1 if step == 1 else len(x) :, 0] = 5.0
            if self.early:  # in every second sample: at 4 ranks and two micro-batches in the first of both
                x[:, 0] = -5.0
                x[::2, 0] = 5.0
            return Batch(inputs=x, targets=x.sin())

        return Job(
            model=model.to(device),
            loss=lambda outputs, batch: (outputs - batch.targets).square().sum(),
            optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9),
            batch=batch,
            unit="samples",
            units_per_sample=1,
            blocks=[str(k) for k in range(len(model))],
            unused=(f"{len(blocks)}.sometimes", f"{len(blocks)}.never") if self.awkward else (),
        )


class Seen(Probe):
    """Counts the collectives of each step and their bytes, and this process's threads."""

    def start(self, ctx):
        self.counter, self.marks = ByteCounter(), []
        self.counter.__enter__()

    def step(self):
        self.marks.append((len(self.counter.seen), threading.active_count()))

    def stop(self):
        self.counter.__exit__(None, None, None)
        starts = [k for k, one in enumerate(self.counter.seen) if one.op == "barrier"][:1] or [-1]
        edges = [starts[0] + 1, *(end for end, _ in self.marks)]
        steps = [self.counter.seen[a:b] for a, b in itertools.pairwise(edges)]
        values = {
            "all_reduces": [sum(one.op == "all_reduce" for one in step) for step in steps],
            "all_reduce_bytes": [sum(one.logical_bytes for one in step if one.op == "all_reduce") for step in steps],
            "broadcast_bytes": [sum(one.logical_bytes for one in step if one.op == "broadcast") for step in steps],
            "groups": [len({one.group for one in step if one.op == "all_reduce"}) for step in steps],
            "threads": [threads for _, threads in self.marks],
        }
        return [
            Series(name=name, unit="1", better=None, values=tuple(map(float, found)), source="dispatch mode")
            for name, found in values.items()
        ]
