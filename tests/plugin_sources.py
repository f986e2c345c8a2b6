"""Plug-ins for tests: strategies that are written down as the few lines in which they differ from an honest one."""

_STRATEGY = '''
"""A strategy of the tests."""

import ctypes
import multiprocessing
import os
import pathlib
import time
import torch
from parbench.api import Paper, Strategy, Trainer, backward

{top}

class {name}(Strategy):
    """Averages gradients after backward, but for what a test changes."""

    paper = Paper("none", "https://example.org")
    agrees = "{agrees}"
    period = {period}

    def unsupported(self, job, ctx):
        return {unsupported}

    def wrap(self, job, ctx):
        return _Trainer(job, ctx)


class _Trainer(Trainer):
    def __init__(self, job, ctx):
        self.job, self.ctx, self.steps, self.kept = job, ctx, 0, None
        self.optimizer = job.optimizer(job.model.parameters())

    def step(self, batch):
        job, ctx = self.job, self.ctx
        {before}
        self.optimizer.zero_grad(set_to_none=True)
        loss = backward(job, ctx, job.model, batch)
        parameters = [p for p in job.model.parameters() if p.grad is not None]
        {exchange}
        self.optimizer.step()
        self.steps += 1
        return loss

    def drain(self):
        {drain}

    def full_parameters(self):
        return {parameters}

    def close(self):
        {close}
'''

_MEAN = "[ctx.comm.mean(p.grad) for p in parameters]"
_STALE = """fresh = [ctx.comm.mean(p.grad).clone() for p in parameters]
        for p, old in zip(parameters, self.kept or fresh):
            p.grad.copy_(old)
        self.kept = fresh"""


def strategy(
    folder,
    name,
    *,
    top="",
    agrees="closely",
    period=1,
    unsupported=None,
    before="pass",
    exchange=_MEAN,
    drain="pass",
    parameters="dict(self.job.model.named_parameters())",
    close="pass",
):
    """Write a strategy called `name` into `folder` and return its path."""
    path = folder / f"{name}.py"
    path.write_text(
        _STRATEGY.format(
            name="".join(map(str.title, name.split("_"))),
            top=top,
            agrees=agrees,
            period=period,
            unsupported=repr(unsupported),
            before=before,
            exchange=exchange,
            drain=drain,
            parameters=parameters,
            close=close,
        ).lstrip()
    )
    return path


def wrong_reductions(folder):
    """Write one honest strategy and those with a wrong reduction; return their paths by name."""
    return {
        "honest": strategy(folder, "honest"),
        "sums": strategy(folder, "sums", exchange="[ctx.comm.sum(p.grad) for p in parameters]"),
        "drops_a_share": strategy(
            folder,
            "drops_a_share",
            exchange="[ctx.comm.mean(p.grad.mul_(1.0 if ctx.rank == 0 else 0.0)) for p in parameters]",
        ),
        "a_step_stale": strategy(folder, "a_step_stale", exchange=_STALE),
    }


DROPOUT = '''
"""A workload of the tests: a model that draws random numbers in every step."""

from typing import ClassVar

import torch
from torch import nn

from parbench.api import Batch, Job, Workload


class Dropping(Workload):
    """Linear regression through dropout."""

    unit = "samples"
    sizes = {"smoke": {"width": 8}, "small": {"width": 8}}
    source = "random numbers"

    def default_batch_size(self, size):
        return 8

    def build(self, size, seed, device, global_batch_size):
        random = torch.Generator().manual_seed(seed)
        x = torch.randn(global_batch_size, 8, generator=random)
        model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.BatchNorm1d(8), nn.Linear(8, 1))
        with torch.no_grad():
            for p in model.parameters():
                p.copy_(torch.randn(p.shape, generator=random) / 3)
        return Job(
            model=model.to(device),
            loss=lambda y, batch: (y - batch.targets).square().sum(),
            optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.01),
            batch=lambda step: Batch(inputs=x, targets=x.sum(1, keepdim=True)),
            unit="samples",
            units_per_sample=1,
            blocks=["0"],
            held_out=lambda model: {"loss": float(model.eval()(x).square().mean())},
        )
'''


def dropping(folder):
    """Write the workload "dropping" into `folder` and return its path."""
    path = folder / "dropping.py"
    path.write_text(DROPOUT.lstrip())
    return path
