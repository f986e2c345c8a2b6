"""Chunks are equal pieces of a flat gradient, one a row; zeros fill up the last."""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F
from torch import Tensor

By = Literal["current", "prev"]  # by whose norms chunks are chosen: of this step, or of the last


def chunked(grad_B: Tensor, chunk: int) -> Tensor:
    """Return the chunks of a gradient."""
    return F.pad(grad_B.reshape(-1), (0, -grad_B.numel() % chunk)).view(-1, chunk)


def unchunked(rows_KC: Tensor, chosen_K: Tensor, like_B: Tensor) -> Tensor:
    """Return a gradient of some chunks and zeros elsewhere."""
    chunk = rows_KC.shape[1]
    whole = rows_KC.new_zeros(-(-like_B.numel() // chunk), chunk).index_copy_(0, chosen_K, rows_KC)
    return whole.view(-1)[: like_B.numel()].view(like_B.shape)
