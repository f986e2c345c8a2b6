"""Plug-ins for tests of the gradient engine: exact gradients and sums, plans drawn at random."""

import random
import time
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import nn

from parbench.api import Batch, Job, Strategy, Trainer, Workload
from parbench.counting import ByteCounter
from parbench.fusion import FusionRule, Group, Paper, Piece, Plan
from parbench.grammar import Call
from parbench.registry import Registry

NOWHERE = Paper("none", "https://example.org")


class Summed(Strategy):
    """Trains nothing: its step adds up tensors in many ways, and notes say what is wrong with the sums."""

    paper = NOWHERE
    agrees = "differently"

    def __init__(self, collectives: Sequence[Call | str], elements: Sequence[int], half: bool = False) -> None:
        self.collectives = {str(text): Registry().resolve("collective", text) for text in collectives}
        self.elements, self.dtype = elements, torch.float16 if half else torch.float32

    def wrap(self, job, ctx):
        return _Summing(self, job, ctx)


class _Summing(Trainer):
    def __init__(self, strategy, job, ctx):
        self.strategy, self.job, self.ctx, self.wrong, self.cases = strategy, job, ctx, [], 0

    def step(self, batch):
        for text, collective in self.strategy.collectives.items():
            for elements in self.strategy.elements:
                if collective.refuses(self.ctx.world_size) is None:
                    self.cases += 1
                    self.wrong += [f"{text} of {elements}: {what}" for what in self.problems(collective, elements)]
        return torch.zeros(())

    def given(self, rank, elements, whole):
        """Return what a rank adds: whole numbers, whose sum is exact in any order, or fractions."""
        drawn = torch.Generator().manual_seed(rank)
        if whole:
            return torch.randint(-100, 100, (elements,), generator=drawn).to(self.strategy.dtype)
        return torch.randn(elements, generator=drawn).to(self.strategy.dtype)

    def problems(self, collective, elements):
        ctx = self.ctx
        collective = collective.connected(ctx.comm)
        for whole in (False, True):
            flat = self.given(ctx.rank, elements, whole)
            with ByteCounter() as counter:
                result = collective.start(flat, ctx.comm).wait()
            if counter.unknown or counter.by_op() != collective.sent(elements, flat.itemsize, ctx.rank, ctx.world_size):
                yield f"sent {counter.by_op()}"
            if result.data_ptr() != flat.data_ptr():
                yield "not in place"
            right = torch.stack([self.given(r, elements, whole).double() for r in range(ctx.world_size)]).sum(0)
            error = (result.double() - right).abs().max().item() if elements else 0.0
            if error > (0 if whole else 4e-2 if flat.itemsize == 2 else 4e-6):
                yield f"off by {error}"
            bits = result.view(torch.int16).long()
            hashed = (bits * torch.arange(1, len(bits) + 1)).sum()
            if len({int(one) for one in ctx.comm.all_gather(hashed)}) > 1:
                yield "ranks hold different bits"
        collective.close()

    def full_parameters(self):
        return dict(self.job.model.named_parameters())

    def notes(self):
        return {"wrong": "; ".join(self.wrong), "cases": self.cases}


class _Slow(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, sleep_s):
        ctx.sleep_s = sleep_s
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        time.sleep(random.SystemRandom().random() * ctx.sleep_s)
        return grad, None


class _Exact(nn.Module):
    """Multiplies its weights by whole numbers, so that every sum of a few of them is exact."""

    def __init__(self, sizes, sleep_ms):
        super().__init__()
        self.weights = nn.ParameterList([nn.Parameter(torch.zeros(size)) for size in sizes])
        self.sleep_s = sleep_ms / 1e3

    def forward(self, x):
        total = x.new_zeros(len(x))
        for k, weight in enumerate(self.weights):
            seen = _Slow.apply(weight, self.sleep_s).reshape(-1)
            # Of both signs, different for every element, sample and step.
            factors = (torch.arange(seen.numel(), device=x.device)[None] * (k + 3) + x[:, :1].long()) % 17 - 8
            total = total + (seen * factors).sum(1)
        return total


class Exact(Workload):
    """Linear in its weights: gradients, weights and losses are multiples of 2^-13, exact however they are added."""

    unit = "samples"
    sizes: ClassVar = {"smoke": {}}
    source = "numbers drawn from the seed"

    def __init__(self, parameters: int = 9, largest: int = 400, sleep_ms: float = 0.0) -> None:
        drawn = random.Random(parameters)
        # One without dimensions, and sizes that nothing divides.
        self.shapes = [(), *((drawn.randint(1, largest),) for _ in range(parameters - 1))]
        self.sleep_ms = sleep_ms

    def default_batch_size(self, size):
        return 8

    def build(self, size, seed, device, global_batch_size):
        model = nn.Sequential(_Exact(self.shapes, self.sleep_ms)).to(device)

        def batch(step):
            x = torch.arange(global_batch_size)[:, None] * 5 + step * 3
            return Batch(inputs=x.float(), targets=x[:, 0].float())

        return Job(
            model=model,
            loss=lambda outputs, batch: outputs.sum(),
            optimizer=lambda parameters: torch.optim.SGD(parameters, lr=2**-10),
            batch=batch,
            unit="samples",
            units_per_sample=1,
            blocks=("0",),
        )


class Shuffled(FusionRule):
    """Tries another plan in every step, drawn at random; for ever, or for some steps."""

    name = "shuffled"
    paper = NOWHERE
    probes = True

    def __init__(self, seed: int = 0, steps: int = 10**9) -> None:
        self.seed, self.steps = seed, steps

    def plan(self, gradients, link, element_bytes):
        return drawn_plan(gradients, random.Random(self.seed))

    def search(self, gradients, link, element_bytes):
        drawn = random.Random(self.seed)
        for _ in range(self.steps):
            seconds = yield drawn_plan(gradients, drawn)
            assert seconds > 0
        return drawn_plan(gradients, drawn)


def drawn_plan(gradients, drawn):
    """Return a plan of slices of gradients, in groups of several; within a group they may lie in any order."""
    pieces = []
    for index, gradient in enumerate(gradients):
        most = min(3, gradient.elements - 1)
        cuts = sorted(drawn.sample(range(1, gradient.elements), drawn.randint(0, most)))
        pieces.append([Piece(index, a, b) for a, b in zip([0, *cuts], [*cuts, gradient.elements], strict=True)])
    groups, open_pieces = [], []
    for of_one in pieces:
        drawn.shuffle(of_one)
        for piece in of_one:
            open_pieces.append(piece)
            if drawn.random() < 0.3:
                groups.append(Group(tuple(open_pieces)))
                open_pieces = []
    return Plan((*groups, Group(tuple(open_pieces))) if open_pieces else tuple(groups))
