"""bert: a transformer encoder that fills in masked tokens, up to BERT large, on synthetic tokens.

    tokens, some masked --> embedding --> layer --> ... --> head --> logits of every token
                                           |
                                           norm(x + attention(x)), then norm(x + mlp(x))

B samples, T positions, M masked positions of a sample, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from parbench.api import Batch, Job, Workload
from parbench.workloads import _data, _gpt_model
from parbench.workloads._optimizer import adamw
from parbench.workloads._sizes import settings_of
from parbench.workloads._weights import seeded

_SEGMENTS = 2
_MASKED_PER_CENT = 15
_NO_TARGET = -100


@final
class Bert(Workload):
    """BERT's masked language model on tokens drawn from (seed, step); a few are frequent, most are rare."""

    unit: ClassVar[str] = "tokens"
    sizes: ClassVar[Mapping[str, Mapping[str, int]]] = {
        "smoke": {"layers": 2, "width": 32, "heads": 4, "context": 16, "vocabulary": 128, "tied": 1},
        "small": {"layers": 4, "width": 128, "heads": 4, "context": 64, "vocabulary": 1024, "tied": 1},
        "base": {"layers": 12, "width": 768, "heads": 12, "context": 512, "vocabulary": 30522, "tied": 1},
        "large": {"layers": 24, "width": 1024, "heads": 16, "context": 512, "vocabulary": 30522, "tied": 1},
    }
    source: ClassVar[str] = (
        "tokens generated from the seed; Devlin et al. 2019, 'BERT', with the head of masked tokens, without dropout, "
        "pooler and next sentence; parameters as Hugging Face's BertForMaskedLM has them (uncased)"
    )
    parameters: ClassVar[Mapping[str, int]] = {"base": 109_514_298, "large": 335_174_458}

    def default_batch_size(self, size: str) -> int:
        """Return 8."""
        settings_of("bert", self.sizes, size)
        return 8

    def build(self, size: str, seed: int, device: torch.device, global_batch_size: int) -> Job:
        """Build the model and its stream of synthetic batches.

        Raises:
            UsageError: no such size, or a batch without samples.
        """
        shape = _gpt_model.shape_of(settings_of("bert", self.sizes, size))
        masked = max(1, shape.context * _MASKED_PER_CENT // 100)
        return Job(
            model=seeded(lambda: _Encoder(shape), _gpt_model.fill_of(shape.layers), seed, device),
            loss=lambda outputs, share: _loss(outputs, share, masked),
            optimizer=adamw,
            batch=_batches(shape, masked, global_batch_size, seed),
            unit=self.unit,
            units_per_sample=shape.context,
            blocks=_gpt_model.block_names(shape),
            shardings={
                p: cut for p, cut in _gpt_model.SHARDINGS.items() if p.startswith("blocks.") and cut != "position"
            }
            | {"blocks.*_norm.*": "position"},
            whole=_gpt_model.whole(shape),
        )


def _loss(outputs_BTV: Tensor, share: Batch, masked: int) -> Tensor:
    """Return the sum over samples of the mean cross-entropy over a sample's masked positions, in nats."""
    total = F.cross_entropy(
        outputs_BTV.flatten(0, -2), share.targets.flatten(), ignore_index=_NO_TARGET, reduction="sum"
    )
    return total / masked


def _batches(shape: _gpt_model.GptShape, masked: int, batch_size: int, seed: int) -> Callable[[int], Batch]:
    mask = shape.vocabulary - 1
    whole = _data.skewed_tokens(shape.context, mask, batch_size, seed)

    def batch(step: int) -> Batch:
        tokens_BT = whole(step).inputs
        random = _data.generator(seed, "masks", step)
        place_BM = torch.rand(tokens_BT.shape, generator=random).topk(masked).indices
        targets_BT = torch.full_like(tokens_BT, _NO_TARGET).scatter_(1, place_BM, tokens_BT.gather(1, place_BM))
        return Batch(inputs=tokens_BT.scatter(1, place_BM, mask), targets=targets_BT)

    return batch


@final
class _Encoder(nn.Module):
    """tokens_BT -> logits_BTV."""

    def __init__(self, shape: _gpt_model.GptShape) -> None:
        super().__init__()
        self.embedding = _Embedding(shape)
        self.blocks = nn.Sequential(*(_Layer(shape) for _ in range(shape.layers)))
        self.head = _Head(shape)
        self.head.logits.weight = self.embedding.tokens.weight

    def forward(self, tokens_BT: Tensor) -> Tensor:
        """Return the logits of the token at each position."""
        return self.head(self.blocks(self.embedding(tokens_BT)))  # type: ignore[no-any-return]


@final
class _Embedding(nn.Module):
    """tokens_BT -> x_BTD: what the token is, where it stands, and in which half of the sample."""

    def __init__(self, shape: _gpt_model.GptShape) -> None:
        super().__init__()
        self.tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.positions = nn.Embedding(shape.context, shape.width)
        self.segments = nn.Embedding(_SEGMENTS, shape.width)
        self.norm = nn.LayerNorm(shape.width)

    def forward(self, tokens_BT: Tensor) -> Tensor:
        """Add all three and normalise."""
        places_T = torch.arange(tokens_BT.shape[1], device=tokens_BT.device)
        segments_T = places_T * _SEGMENTS // tokens_BT.shape[1]
        return self.norm(  # type: ignore[no-any-return]
            self.tokens(tokens_BT) + self.positions(places_T) + self.segments(segments_T)
        )


@final
class _Layer(nn.Module):
    """x_BTD -> x_BTD: attention to all positions and a perceptron, each added and then normalised."""

    def __init__(self, shape: _gpt_model.GptShape) -> None:
        super().__init__()
        self.attention = _gpt_model.Attention(shape, causal=False)
        self.attention_norm = nn.LayerNorm(shape.width)
        self.mlp = _gpt_model.Mlp(shape)
        self.mlp_norm = nn.LayerNorm(shape.width)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """Add and normalise, twice."""
        x_BTD = self.attention_norm(x_BTD + self.attention(x_BTD))
        return self.mlp_norm(x_BTD + self.mlp(x_BTD))  # type: ignore[no-any-return]


@final
class _Head(nn.Module):
    """x_BTD -> logits_BTV."""

    def __init__(self, shape: _gpt_model.GptShape) -> None:
        super().__init__()
        self.transform = nn.Linear(shape.width, shape.width)
        self.norm = nn.LayerNorm(shape.width)
        self.logits = nn.Linear(shape.width, shape.vocabulary)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """Transform, normalise and compare with every token's embedding."""
        return self.logits(self.norm(F.gelu(self.transform(x_BTD))))  # type: ignore[no-any-return]
