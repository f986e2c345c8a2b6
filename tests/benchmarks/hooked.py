"""hooked: DistributedDataParallel with one of torch's own communication hooks, to compare parbench's engine with."""

from typing import Literal

import torch.distributed.algorithms.ddp_comm_hooks.default_hooks as default_hooks
import torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook as powersgd
from torch.nn.parallel import DistributedDataParallel

from parbench.api import ModelTrainer, Paper, Strategy, backward


class Hooked(Strategy):
    """Trains with torch's wrapper and its fp16 or PowerSGD hook."""

    paper = Paper("PyTorch Distributed (Li et al., 2020)", "https://arxiv.org/abs/2006.15704")
    agrees = "differently"

    def __init__(self, hook: Literal["fp16", "powersgd"] = "fp16", rank: int = 1) -> None:
        self.hook, self.rank = hook, rank

    def wrap(self, job, ctx):
        return HookedTrainer(job, ctx, self)


class HookedTrainer(ModelTrainer):
    def __init__(self, job, ctx, strategy):
        super().__init__(job, ctx, [job.optimizer(job.model.parameters())])
        # One bucket: with more, torch's PowerSGD hook issues collectives from callbacks, a race on gloo.
        self.ddp = DistributedDataParallel(job.model, process_group=ctx.comm.group, bucket_cap_mb=1e5)
        if strategy.hook == "fp16":
            self.ddp.register_comm_hook(ctx.comm.group, default_hooks.fp16_compress_hook)
        else:
            state = powersgd.PowerSGDState(
                ctx.comm.group,
                matrix_approximation_rank=strategy.rank,
                start_powerSGD_iter=2,
                min_compression_rate=1,
            )
            self.ddp.register_comm_hook(state, powersgd.powerSGD_hook)

    def step(self, batch):
        self.zero_grad()
        loss = backward(self.job, self.ctx, self.ddp, batch)
        self.update()
        return loss

    def close(self):
        self.ddp = None
