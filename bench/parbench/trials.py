"""Trial jobs: tiny models, each with one property that strategies get wrong, for the laws that all of them obey.

N samples of the data set, B batch, D width, C classes, T tokens, V vocabulary.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from parbench.api import Batch, Job

_WIDTH: Final = 12
_CLASSES: Final = 4
_TOKENS: Final = 6
_VOCABULARY: Final = 20


class _Part(nn.Module):
    """One block of the chain: two layers, which tensor parallelism can cut, with a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(_WIDTH, _WIDTH)
        self.down = nn.Linear(_WIDTH, _WIDTH)

    def forward(self, x_BD: Tensor) -> Tensor:
        out: Tensor = x_BD + self.down(torch.tanh(self.up(x_BD)))
        return out


class _Awkward(nn.Module):
    """A block with a frozen parameter, one that no step uses, and a scalar one."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(_WIDTH, _WIDTH)
        self.frozen = nn.Parameter(torch.ones(_WIDTH), requires_grad=False)
        self.never_used = nn.Parameter(torch.ones(5))
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x_BD: Tensor) -> Tensor:
        out: Tensor = x_BD * self.frozen + self.scale * torch.tanh(self.linear(x_BD))
        return out


class _Stash(nn.Module):
    """A block after which its input skips what follows, beside what is computed."""

    def __init__(self) -> None:
        super().__init__()
        self.part = _Part()

    def forward(self, x_BD: Tensor) -> tuple[Tensor, Tensor]:
        return self.part(x_BD), x_BD[:, : _WIDTH // 2]


class _Under(nn.Module):
    """A block that something skips."""

    def __init__(self) -> None:
        super().__init__()
        self.part = _Part()

    def forward(self, both: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        x_BD, skipped = both
        return self.part(x_BD), skipped


class _Pop(nn.Module):
    """A block that puts what skipped the ones before it back in."""

    def __init__(self) -> None:
        super().__init__()
        self.back = nn.Linear(_WIDTH // 2, _WIDTH)
        self.part = _Part()

    def forward(self, both: tuple[Tensor, Tensor]) -> Tensor:
        x_BD, skipped = both
        out: Tensor = self.part(x_BD + self.back(skipped))
        return out


class _Embedding(nn.Module):
    """Tokens to vectors, averaged over the sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(_VOCABULARY, _WIDTH)

    def forward(self, tokens_BT: Tensor) -> Tensor:
        out: Tensor = self.tokens(tokens_BT).mean(1)
        return out


class _Head(nn.Module):
    """Scores for every class."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.scores = nn.Linear(_WIDTH, classes, bias=False)

    def forward(self, x_BD: Tensor) -> Tensor:
        out: Tensor = self.scores(x_BD)
        return out


def _loss(outputs_BC: Tensor, batch: Batch) -> Tensor:
    return F.cross_entropy(outputs_BC, batch.targets, reduction="sum")


def _sgd(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.05)


def _adam(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-3, eps=1e-6)


def _filled(model: nn.Sequential, generator: torch.Generator) -> nn.Sequential:
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return model


def _chain(generator: torch.Generator, *parts: Callable[[], nn.Module]) -> nn.Sequential:
    # Constructors of layers draw from the global random state, which a job must leave alone.
    with torch.random.fork_rng(devices=[]):
        return _filled(nn.Sequential(*(part() for part in parts)), generator)


def _batches(inputs_N: Tensor, targets_N: Tensor, batch_size: int) -> Callable[[int], Batch]:
    whole = Batch(inputs=inputs_N, targets=targets_N)
    per_epoch = -(-whole.samples // batch_size)

    def batch(step: int) -> Batch:
        start = step % per_epoch * batch_size
        return whole.cut(start, min(start + batch_size, whole.samples))

    return batch


def _job(
    model: nn.Sequential,
    batch: Callable[[int], Batch],
    device: torch.device,
    *,
    unused: tuple[str, ...] = (),
    adam: bool = False,
) -> Job:
    return Job(
        model=model.to(device),
        loss=_loss,
        optimizer=_adam if adam else _sgd,
        batch=batch,
        unit="samples",
        units_per_sample=1,
        blocks=tuple(str(k) for k in range(len(model))),
        shardings={"*.up.*": "column", "*.down.weight": "row"},
        unused=unused,
    )


def _vectors(seed: int, samples: int) -> tuple[Tensor, Tensor]:
    """Return inputs and the classes that a linear map gives them: a problem that a linear model solves."""
    generator = torch.Generator().manual_seed(seed + 1)
    inputs_ND = torch.randn(samples, _WIDTH, generator=generator)
    map_DC = torch.randn(_WIDTH, _CLASSES, generator=generator)
    return inputs_ND, (inputs_ND @ map_DC).argmax(1)


def _plain(seed: int, device: torch.device, samples: int = 32, *, adam: bool = True) -> Job:
    model = _chain(torch.Generator().manual_seed(seed), *[_Part] * 4, partial(_Head, _CLASSES))
    return _job(model, _batches(*_vectors(seed, samples), batch_size=8), device, adam=adam)


def _uneven(seed: int, device: torch.device) -> Job:
    # 27 = 8 + 8 + 8 + 3: shares of one and two samples at 2 ranks, and of none at 4
    return _plain(seed, device, 27)


def _linear(seed: int, device: torch.device) -> Job:
    return _plain(seed, device, 240, adam=False)


def _no_gradient(seed: int, device: torch.device) -> Job:
    model = _chain(torch.Generator().manual_seed(seed), _Part, _Awkward, _Part, _Part, partial(_Head, _CLASSES))
    return _job(model, _batches(*_vectors(seed, 32), batch_size=8), device, unused=("1.never_used",), adam=True)


def _skipping(seed: int, device: torch.device) -> Job:
    generator = torch.Generator().manual_seed(seed)
    model = _chain(generator, _Stash, _Under, _Under, _Pop, _Part, partial(_Head, _CLASSES))
    return _job(model, _batches(*_vectors(seed, 32), batch_size=8), device, adam=True)


def _tied(seed: int, device: torch.device) -> Job:
    generator = torch.Generator().manual_seed(seed)
    model = _chain(generator, _Embedding, *[_Part] * 3, partial(_Head, _VOCABULARY))
    embedding, head = model[0], model[-1]
    if isinstance(embedding, _Embedding) and isinstance(head, _Head):
        head.scores.weight = embedding.tokens.weight
    tokens_NT = torch.randint(0, _VOCABULARY, (32, _TOKENS), generator=generator)
    return _job(model, _batches(tokens_NT, tokens_NT[:, 0], batch_size=8), device, adam=True)


def failing(job: Job, armed: threading.Event) -> Job:
    """Return `job` with a loss that raises once `armed` is set, in every rank that computes it."""

    def loss(outputs: Tensor, batch: Batch) -> Tensor:
        if armed.is_set():
            raise RuntimeError("planned by the examination")
        return job.loss(outputs, batch)

    return replace(job, loss=loss)


Builder = Callable[[int, torch.device], Job]
LINEAR: Final[Builder] = _linear
PLAIN: Final[Builder] = _plain

# Trial name -> (how its job is built, micro-batches per share). Steps 0 to 4 pass the end of an epoch.
TRIALS: Final[Mapping[str, tuple[Builder, int]]] = {
    "plain": (_plain, 1),
    "uneven last batch": (_uneven, 1),
    "accumulation": (_plain, 3),
    "accumulation, uneven": (_uneven, 2),
    "tied parameters": (_tied, 1),
    "no gradient": (_no_gradient, 1),
    "a tensor skips blocks": (_skipping, 1),
}
