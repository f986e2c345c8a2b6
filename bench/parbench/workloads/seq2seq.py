"""seq2seq: an encoder and a decoder of recurrent layers with attention, on the reversal of synthetic sentences.

    source ──> embed ──> encoder ──────┐ memory
    target, shifted ──> embed ──> decoder ──> attention ──> head ──> next token of the target

B samples, S tokens of a source, T tokens of a target, D width, V vocabulary.
Architecture: Luong et al. 2015, "Effective Approaches to Attention-based Neural Machine Translation" (global attention
with the dot product as score), without feeding attention back in, so that all positions are attended to at once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar, final

import torch
from torch import Tensor, nn

from parbench.api import Batch, Job, Workload
from parbench.workloads import _data, _loss, _recurrent, _synthetic
from parbench.workloads._recurrent import Cell, Recurrent
from parbench.workloads._sizes import settings_of
from parbench.workloads._weights import seeded

_START = 0  # what the decoder is given before the first token

Two = tuple[Tensor, Tensor]


@final
class Seq2seq(Workload):
    """Translation of sentences into their reversal, token by token; source and target both count as tokens."""

    unit: ClassVar[str] = "tokens"
    sizes: ClassVar[Mapping[str, Mapping[str, int]]] = {
        "smoke": {"layers": 1, "width": 24, "length": 6, "vocabulary": 12},
        "small": {"layers": 2, "width": 96, "length": 12, "vocabulary": 64},
        "gnmt8": {"layers": 8, "width": 1024, "length": 50, "vocabulary": 32000},
    }
    source: ClassVar[str] = (
        "sentences generated from the seed, to be reversed; LSTMs with Luong et al.'s attention (2015); gnmt8 has the "
        "depth, width and vocabulary of GNMT (Wu et al. 2016), not its bidirectional layer and residual connections"
    )

    def __init__(self, cell: Cell = "lstm") -> None:
        """Remember the cell.

        Args:
            cell: "lstm", "gru", or "lstmcell", which goes from position to position in Python.
        """
        self._cell = _recurrent.checked(cell)

    def default_batch_size(self, size: str) -> int:
        """Return 16 sentences for a smoke test and else 64."""
        settings_of("seq2seq", self.sizes, size)
        return 16 if size == "smoke" else 64

    def build(self, size: str, seed: int, device: torch.device, global_batch_size: int) -> Job:
        """Build the model and its stream of sentences.

        Raises:
            UsageError: no such size, or a batch without samples.
        """
        s = settings_of("seq2seq", self.sizes, size)
        return Job(
            model=seeded(lambda: self._network(s), _recurrent.fill_of(s["width"]), seed, device),
            loss=_loss.sum_loss,
            optimizer=_adam,
            batch=_sentences(s["length"], s["vocabulary"], global_batch_size, seed),
            unit=self.unit,
            units_per_sample=2 * s["length"],
            blocks=[
                "embedding",
                *(f"encoder.{k}" for k in range(s["layers"])),
                *(f"decoder.{k}" for k in range(s["layers"])),
                "head",
            ],
        )

    def _network(self, s: Mapping[str, int]) -> nn.Sequential:
        width, layers = s["width"], s["layers"]
        return nn.Sequential(
            OrderedDict(
                embedding=_Embedding(s["vocabulary"], width),
                encoder=nn.Sequential(*map(_Encoding, _recurrent.stacked(width, width, layers, self._cell))),
                decoder=nn.Sequential(*map(_Decoding, _recurrent.stacked(width, width, layers, self._cell))),
                head=_Head(width, s["vocabulary"]),
            )
        )


def _adam(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=5e-3, eps=1e-6)


def _sentences(length: int, vocabulary: int, batch_size: int, seed: int) -> Callable[[int], Batch]:
    _synthetic.checked(batch_size)

    def batch(step: int) -> Batch:
        random = _data.generator(seed, "sentences", step)
        source_BS = torch.randint(1, vocabulary, (batch_size, length), generator=random)
        target_BT = source_BS.flip(1)
        start_B1 = torch.full((batch_size, 1), _START)
        return Batch(inputs=torch.cat([source_BS, start_B1, target_BT[:, :-1]], dim=1), targets=target_BT)

    return batch


@final
class _Embedding(nn.Module):
    """tokens (B, S + T) -> (source_BSD, target_BTD)."""

    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.source = nn.Embedding(vocabulary, width)
        self.target = nn.Embedding(vocabulary, width)

    def forward(self, tokens: Tensor) -> Two:
        """Look both up."""
        source_BS, target_BT = tokens.chunk(2, dim=1)
        return self.source(source_BS), self.target(target_BT)


@final
class _Encoding(nn.Module):
    """A layer that reads the source; the target passes by."""

    def __init__(self, layer: Recurrent) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, both: Two) -> Two:
        """Read."""
        return self.layer(both[0]), both[1]


@final
class _Decoding(nn.Module):
    """A layer that writes the target, beginning with what the encoder's last layer ended with; the memory passes by."""

    def __init__(self, layer: Recurrent) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, both: Two) -> Two:
        """Write."""
        memory_BSD, target_BTD = both
        last_BD = memory_BSD[:, -1]
        cell = () if isinstance(self.layer.layer, nn.GRU) else (torch.zeros_like(last_BD),)
        return memory_BSD, self.layer.from_state(target_BTD, (last_BD, *cell))[0]


@final
class _Head(nn.Module):
    """(memory_BSD, state_BTD) -> logits_BTV: attention to the memory, then a projection of both."""

    def __init__(self, width: int, vocabulary: int) -> None:
        super().__init__()
        self.mix = nn.Linear(2 * width, width, bias=False)
        self.logits = nn.Linear(width, vocabulary, bias=False)

    def forward(self, both: Two) -> Tensor:
        """Attend and project."""
        memory_BSD, state_BTD = both
        scores_BTS = torch.bmm(state_BTD, memory_BSD.transpose(1, 2))
        found_BTD = torch.bmm(scores_BTS.softmax(-1).to(memory_BSD.dtype), memory_BSD)
        return self.logits(torch.tanh(self.mix(torch.cat([found_BTD, state_BTD], dim=-1))))  # type: ignore[no-any-return]
