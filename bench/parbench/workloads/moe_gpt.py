"""moe-gpt: a GPT in which every second perceptron is a choice of experts, on synthetic tokens.

    every sample:   expert e scores all T tokens of the sample, takes the C = 2 T / E it likes best, and adds to them

B samples, T positions, D width, E experts, C tokens that an expert takes of a sample, F width of an expert.
Routing: Zhou et al. 2022, "Mixture-of-Experts with Expert Choice Routing", within each sample, so that none depends
on how a batch is cut. An expert looks at a whole sample when it chooses: this measures throughput, it writes no text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from parbench.api import Job, Workload
from parbench.workloads import _data, _gpt_model, _loss
from parbench.workloads._optimizer import adamw
from parbench.workloads._sizes import settings_of
from parbench.workloads._weights import seeded

_EXPERTS_PER_TOKEN = 2  # on average: the paper's capacity factor


@final
class MoeGpt(Workload):
    """GPT whose blocks 1, 3, 5, ... have experts, of which two work on a token on average."""

    name: ClassVar[str] = "moe-gpt"
    unit: ClassVar[str] = "tokens"
    sizes: ClassVar[Mapping[str, Mapping[str, int]]] = {
        "smoke": {"layers": 2, "width": 32, "heads": 4, "context": 16, "vocabulary": 128, "tied": 0, "experts": 4},
        "small": {"layers": 4, "width": 128, "heads": 4, "context": 64, "vocabulary": 1024, "tied": 0, "experts": 8},
        "gpt2-8e": {
            **{"layers": 12, "width": 768, "heads": 12, "context": 1024, "vocabulary": 50257, "tied": 1},
            "experts": 8,
        },
    }
    source: ClassVar[str] = (
        "tokens generated from the seed; GPT-2 (Radford et al. 2019) with experts that choose their tokens (Zhou et "
        "al. 2022) in every second block"
    )

    def default_batch_size(self, size: str) -> int:
        """Return 8."""
        settings_of(self.name, self.sizes, size)
        return 8

    def build(self, size: str, seed: int, device: torch.device, global_batch_size: int) -> Job:
        """Build the model and its stream of synthetic batches.

        Raises:
            UsageError: no such size, or a batch without samples.
        """
        s = settings_of(self.name, self.sizes, size)
        shape = _gpt_model.shape_of(s)

        def block(k: int) -> nn.Module:
            return _gpt_model.Block(shape, mlp=Experts(shape.width, s["experts"]) if k % 2 else None)

        return Job(
            model=seeded(
                lambda: _gpt_model.GptModel(shape, [block(k) for k in range(shape.layers)]),
                _gpt_model.fill_of(shape.layers),
                seed,
                device,
            ),
            loss=_loss.sum_loss,
            optimizer=adamw,
            batch=_data.skewed_tokens(shape.context, shape.vocabulary, global_batch_size, seed),
            unit=self.unit,
            units_per_sample=shape.context,
            blocks=_gpt_model.block_names(shape),
            # The logits and every layer but the experts, whose choice looks at whole positions, are cut as GPT's.
            shardings={p: cut for p, cut in _gpt_model.SHARDINGS.items() if cut != "position"},
            whole=_gpt_model.whole(shape),
        )


@final
class Experts(nn.Module):
    """x_BTD -> x_BTD: perceptrons of which each works on the tokens that it chooses; other tokens get zero.

    Args:
        width: D.
        experts: E; divides twice the positions.
    """

    def __init__(self, width: int, experts: int) -> None:
        super().__init__()
        self.router = nn.Linear(width, experts, bias=False)
        self.expert_up = nn.Parameter(torch.empty(experts, width, 4 * width))
        self.expert_down = nn.Parameter(torch.empty(experts, 4 * width, width))

    def forward(self, x_BTD: Tensor) -> Tensor:
        """Let experts choose, work, and add what they found to their tokens, weighted by the score."""
        samples, positions, width = x_BTD.shape
        experts = self.expert_up.shape[0]
        taken = _EXPERTS_PER_TOKEN * positions // experts
        scores_BTE = self.router(x_BTD).softmax(-1)
        score_BEC, token_BEC = scores_BTE.transpose(1, 2).topk(taken, dim=-1)
        place_BND = token_BEC.reshape(samples, experts * taken, 1).expand(-1, -1, width)
        chosen_BECD = x_BTD.gather(1, place_BND).view(samples, experts, taken, width)
        chosen_END = chosen_BECD.transpose(0, 1).reshape(experts, samples * taken, width)
        hidden_ENF = F.gelu(torch.bmm(chosen_END, self.expert_up), approximate="tanh")
        found_END = torch.bmm(hidden_ENF, self.expert_down)
        found_BECD = found_END.view(experts, samples, taken, width).transpose(0, 1) * score_BEC.unsqueeze(-1)
        return torch.zeros_like(x_BTD).scatter_add(1, place_BND, found_BECD.reshape(place_BND.shape).to(x_BTD.dtype))
