"""Plug-in for tests of strategies that relax synchrony: a small perceptron with an optimizer for choice."""

from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import nn

from parbench.api import Batch, Job, Workload

OPTIMIZERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01, eps=1e-3),
}


class Optimized(Workload):
    """Classes that a linear map gives to vectors."""

    unit = "samples"
    sizes: ClassVar = {"smoke": {}}
    source = "numbers drawn from the seed"

    def __init__(self, optimizer: Literal["sgd", "momentum", "adam"] = "momentum") -> None:
        self.optimizer = OPTIMIZERS[optimizer]

    def default_batch_size(self, size):
        return 24

    def build(self, size, seed, device, global_batch_size):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = nn.Sequential(nn.Linear(6, 10), nn.Tanh(), nn.Linear(10, 4)).to(device)

        def batch(step):
            drawn = torch.Generator().manual_seed(seed * 1000 + step)
            inputs = torch.randn(global_batch_size, 6, generator=drawn)
            return Batch(inputs=inputs, targets=inputs[:, :4].argmax(1))

        return Job(
            model=model,
            loss=lambda outputs, share: F.cross_entropy(outputs, share.targets, reduction="sum"),
            optimizer=self.optimizer,
            batch=batch,
            unit="samples",
            units_per_sample=1,
            blocks=("0", "1", "2"),
        )
