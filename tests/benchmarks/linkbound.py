"""Plug-ins of the gradient benchmarks: 25 M parameters, whose exchange takes longer than computing their gradients."""

from typing import ClassVar

import torch
from torch import nn

from parbench.api import Batch, Job, ModelTrainer, Paper, Strategy, Workload, backward

LAYERS, WIDTH = 6, 2048  # 6 x (2048 x 2048 + 2048) = 25,178,112 parameters


class LinkBound(Workload):
    """A multi-layer perceptron on numbers drawn from the seed."""

    unit = "samples"
    sizes: ClassVar = {"smoke": {}}
    source = "numbers drawn from the seed"

    def default_batch_size(self, size):
        return 64

    def build(self, size, seed, device, global_batch_size):
        generator = torch.Generator().manual_seed(seed)
        layers = [nn.utils.skip_init(nn.Linear, WIDTH, WIDTH, device=device) for _ in range(LAYERS)]
        with torch.no_grad():
            for layer in layers if device.type != "meta" else ():
                layer.weight.copy_(torch.randn(WIDTH, WIDTH, generator=generator) / WIDTH**0.5)
                layer.bias.zero_()
        model = nn.Sequential(*[nn.Sequential(layer, nn.Tanh()) for layer in layers])
        x = torch.randn(global_batch_size, WIDTH, generator=generator)
        batch = Batch(inputs=x, targets=x.roll(1, 1))
        return Job(
            model=model,
            loss=lambda outputs, batch: (outputs - batch.targets).square().mean(1).sum(),
            optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.01),
            batch=lambda step: batch,
            unit="samples",
            units_per_sample=1,
            blocks=[str(k) for k in range(LAYERS)],
        )


class Alone(Strategy):
    """Exchanges nothing: what a step takes without communication."""

    paper = Paper("none", "https://example.org")
    agrees = "differently"

    def wrap(self, job, ctx):
        return AloneTrainer(job, ctx, [job.optimizer(job.model.parameters())])


class AloneTrainer(ModelTrainer):
    def step(self, batch):
        self.zero_grad()
        loss = backward(self.job, self.ctx, self.job.model, batch)
        self.update()
        return loss
