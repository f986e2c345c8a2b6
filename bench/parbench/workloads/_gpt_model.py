"""GPT: a pre-norm transformer decoder that predicts the next token at every position; encoders take its parts.

    tokens --> embedding --> block --> block --> ... --> head --> logits
                              |
                              x + attention(norm(x)), then x + mlp(norm(x))

B samples, T positions, D width, H heads, K width of a head, V vocabulary.
Architecture: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners" (GPT-2), without dropout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from parbench.workloads._weights import Fill, seeded

# "column" cuts a parameter's first dimension (outputs), "row" a weight's second (inputs). A row-cut layer's bias is
# added once, after the sum over ranks, so it stays whole; so do embeddings. Norms treat each position by itself. The
# head's weight may be the token embedding's too (tied): it is meant under either name.
SHARDINGS: Mapping[str, str] = {
    "blocks.*.attention_norm.*": "position",
    "blocks.*.attention.qkv.*": "column",
    "blocks.*.attention.out.weight": "row",
    "blocks.*.mlp_norm.*": "position",
    "blocks.*.mlp.up.*": "column",
    "blocks.*.mlp.down.weight": "row",
    "head.norm.*": "position",
    "head.logits.weight": "vocabulary",
}

_STD = 0.02


def whole(shape: GptShape) -> Mapping[str, int]:
    """Return what a cut must keep together: a head's query, key and value on the way in, its output on the way out."""
    head_width = shape.width // shape.heads
    return {"blocks.*.attention.qkv.*": 3 * head_width, "blocks.*.attention.out.weight": head_width}


@dataclass(frozen=True, slots=True, kw_only=True)
class GptShape:
    """What decides the number of parameters.

    Attributes:
        layers: transformer blocks.
        width: D.
        heads: H; divides `width`.
        context: the most positions a sample may have.
        vocabulary: V.
        tied: whether the head's weight is the token embedding, one parameter in two blocks.
    """

    layers: int
    width: int
    heads: int
    context: int
    vocabulary: int
    tied: bool


def shape_of(settings: Mapping[str, int]) -> GptShape:
    """Return the shape that a workload's size settings name."""
    return GptShape(
        layers=settings["layers"],
        width=settings["width"],
        heads=settings["heads"],
        context=settings["context"],
        vocabulary=settings["vocabulary"],
        tied=bool(settings["tied"]),
    )


def build_gpt(shape: GptShape, seed: int, device: torch.device) -> GptModel:
    """Build the model with GPT-2's initial weights."""
    return seeded(lambda: GptModel(shape), fill_of(shape.layers), seed, device)


def fill_of(layers: int) -> Fill:
    """Return what writes GPT-2's initial weights: normal of 0.02, smaller where a block adds to the residual."""
    residual_std = _STD / (2 * layers) ** 0.5

    def fill(name: str, value: Tensor, random: torch.Generator) -> None:
        if name.endswith("bias"):
            value.zero_()
        elif name.endswith("norm.weight"):
            value.fill_(1.0)
        else:
            adds_to_residual = name.endswith(("attention.out.weight", "mlp.down.weight"))
            value.normal_(0.0, residual_std if adds_to_residual else _STD, generator=random)

    return fill


def block_names(shape: GptShape) -> list[str]:
    """Return the names of the blocks in forward order: the model is nothing but their chain."""
    return ["embedding", *(f"blocks.{k}" for k in range(shape.layers)), "head"]


@final
class GptModel(nn.Module):
    """tokens_BT -> logits_BTV.

    Args:
        shape: of the model.
        blocks: instead of the usual ones.
    """

    def __init__(self, shape: GptShape, blocks: Sequence[nn.Module] | None = None) -> None:
        super().__init__()
        self.embedding = Embedding(shape)
        self.blocks = nn.Sequential(*(blocks or [Block(shape) for _ in range(shape.layers)]))
        self.head = Head(shape)
        if shape.tied:
            self.head.logits.weight = self.embedding.tokens.weight

    def forward(self, tokens_BT: Tensor) -> Tensor:
        """Return the logits of the token after each position."""
        return self.head(self.blocks(self.embedding(tokens_BT)))  # type: ignore[no-any-return]


@final
class Embedding(nn.Module):
    """tokens_BT -> x_BTD: what the token is, plus where it stands."""

    def __init__(self, shape: GptShape) -> None:
        super().__init__()
        self.tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.positions = nn.Embedding(shape.context, shape.width)

    def forward(self, tokens_BT: Tensor) -> Tensor:
        """Add both embeddings."""
        places_T = torch.arange(tokens_BT.shape[1], device=tokens_BT.device)
        return self.tokens(tokens_BT) + self.positions(places_T)  # type: ignore[no-any-return]


@final
class Block(nn.Module):
    """x_BTD -> x_BTD: attention and a perceptron, each added to what goes in.

    Args:
        shape: of the model.
        causal: whether a position sees those before it alone.
        mlp: instead of the perceptron.
    """

    def __init__(self, shape: GptShape, causal: bool = True, mlp: nn.Module | None = None) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(shape.width)
        self.attention = Attention(shape, causal)
        self.mlp_norm = nn.LayerNorm(shape.width)
        self.mlp = mlp or Mlp(shape)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """Add attention, then the perceptron."""
        x_BTD = x_BTD + self.attention(self.attention_norm(x_BTD))
        return x_BTD + self.mlp(self.mlp_norm(x_BTD))  # type: ignore[no-any-return]


@final
class Attention(nn.Module):
    """Self-attention: each position mixes the values of itself and the positions before it, or of all of them.

    The fused projection's outputs are ordered by head, (H, 3, K), so that a contiguous slice of its rows is a set of
    whole heads; the number of heads is read off its output, so that such a slice works unchanged.
    """

    def __init__(self, shape: GptShape, causal: bool = True) -> None:
        super().__init__()
        self.causal = causal
        self.head_width = shape.width // shape.heads
        self.qkv = nn.Linear(shape.width, 3 * shape.width)
        self.out = nn.Linear(shape.width, shape.width)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """Attend."""
        qkv = self.qkv(x_BTD).unflatten(-1, (-1, 3, self.head_width))  # (B, T, H, 3, K)
        q_BHTK, k_BHTK, v_BHTK = (part.transpose(1, 2) for part in qkv.unbind(-2))
        mixed_BHTK = F.scaled_dot_product_attention(q_BHTK, k_BHTK, v_BHTK, is_causal=self.causal)
        return self.out(mixed_BHTK.transpose(1, 2).flatten(-2))  # type: ignore[no-any-return]


@final
class Mlp(nn.Module):
    """A perceptron of four times the width, at each position for itself."""

    def __init__(self, shape: GptShape) -> None:
        super().__init__()
        self.up = nn.Linear(shape.width, 4 * shape.width)
        self.down = nn.Linear(4 * shape.width, shape.width)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """Widen, bend, narrow."""
        return self.down(F.gelu(self.up(x_BTD), approximate="tanh"))  # type: ignore[no-any-return]


@final
class Head(nn.Module):
    """x_BTD -> logits_BTV."""

    def __init__(self, shape: GptShape) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(shape.width)
        self.logits = nn.Linear(shape.width, shape.vocabulary, bias=False)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """Normalise and project."""
        return self.logits(self.norm(x_BTD))  # type: ignore[no-any-return]
