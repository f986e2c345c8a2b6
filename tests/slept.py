"""A workload whose blocks sleep for their times and give real gradients of real size; links are shaped around it.

Rows are (parameters, forward ms, backward ms). Two synthetic profiles, by FLOPs, of published networks:
  vgg     like VGG-16 (Simonyan and Zisserman, 2015; 138 M parameters): 13 convolutions, then 3 large layers
  resnet  like ResNet-50 (He et al., 2016; 25.6 M parameters): 53 convolutions, times and sizes rising to the end
"""

import time
from typing import ClassVar

import torch
from torch import nn

from parbench.api import Batch, Job, Workload
from parbench.network.sleeping import sleep_exactly, wake_on_time


def vgg(scale, forward_ms, backward_ms):
    """Return rows of VGG-16: weights of its layers, time by multiply-adds at 224 x 224 pixels."""
    widths, side, rows = [(3, 64), (64, 64), 0, (64, 128), (128, 128), 0], 224, []
    widths += [(128, 256), (256, 256), (256, 256), 0, (256, 512), (512, 512), (512, 512), 0]
    widths += [(512, 512), (512, 512), (512, 512), 0]
    for one in widths:
        if one == 0:
            side //= 2
            continue
        weights = 9 * one[0] * one[1]
        rows.append((weights, weights * side * side))
    rows += [(n, n) for n in (25088 * 4096, 4096 * 4096, 4096 * 1000)]
    return _timed(rows, scale, forward_ms, backward_ms)


def resnet(scale, forward_ms, backward_ms):
    """Return rows of ResNet-50: weights of its convolutions, time by multiply-adds."""
    rows, side, before = [(9408, 9408 * 112 * 112)], 56, 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            if block == 0 and width > 64:
                side //= 2
            sizes = [before * width, 9 * width * width, 4 * width * width]
            sizes += [before * 4 * width] if block == 0 else []
            rows += [(size, size * side * side) for size in sizes]
            before = 4 * width
    rows.append((2048 * 1000, 2048 * 1000))
    return _timed(rows, scale, forward_ms, backward_ms)


def _timed(rows, scale, forward_ms, backward_ms):
    whole = sum(work for _, work in rows)
    return [(max(1, n // scale), forward_ms * work / whole, backward_ms * work / whole) for n, work in rows]


class _Slept(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, forward_ms, backward_ms):
        began_s = time.perf_counter()
        ctx.elements, ctx.backward_ms = weight.numel(), backward_ms
        y = x.clone()
        sleep_exactly(forward_ms / 1e3 - (time.perf_counter() - began_s))
        return y

    @staticmethod
    def backward(ctx, grad):
        began_s = time.perf_counter()
        # Of every element what the loss gives: one for each sample, so that averages can be checked.
        found = torch.full((ctx.elements,), float(grad.sum()))
        sleep_exactly(ctx.backward_ms / 1e3 - (time.perf_counter() - began_s))
        return grad, found, None, None


class _Block(nn.Module):
    def __init__(self, row):
        super().__init__()
        elements, self.forward_ms, self.backward_ms = row
        self.weight = nn.Parameter(torch.zeros(elements))

    def forward(self, x):
        wake_on_time()
        return _Slept.apply(x, self.weight, self.forward_ms, self.backward_ms)


class Slept(Workload):
    """Sleeps through a profile; its loss is minus the sum of the first weights."""

    unit = "samples"
    sizes: ClassVar = {"smoke": {}}
    source = "synthetic profiles of published networks, by FLOPs"

    def __init__(self, profile: str, scale: int, forward_ms: float, backward_ms: float) -> None:
        self.rows = {"vgg": vgg, "resnet": resnet}[profile](scale, forward_ms, backward_ms)

    def default_batch_size(self, size):
        return 8

    def build(self, size, seed, device, global_batch_size):
        with device:
            model = nn.Sequential(*[_Block(row) for row in self.rows])
        batch = Batch(inputs=torch.ones(global_batch_size, 1), targets=torch.ones(global_batch_size, 1))
        return Job(
            model=model,
            loss=lambda outputs, batch: outputs.sum(),
            optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.01),
            batch=lambda step: batch,
            unit="samples",
            units_per_sample=1,
            blocks=[str(k) for k in range(len(model))],
        )
