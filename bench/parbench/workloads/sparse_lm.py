"""sparse-lm: a recurrent language model whose embeddings get sparse gradients, trained by sampled softmax.

    token ──> row of the embedding ──> LSTM ──> projection ──> scores of the next token and of K drawn ones
              (few of V rows are touched)                      (rows of the other embedding, few of V too)

B samples, T positions, K drawn tokens, D width of a row, H width of the state, V vocabulary.
Jean et al. 2015, "On Using Very Large Target Vocabulary for Neural Machine Translation" (tokens are drawn with equal
chances, which adds the same to every score); the largest size has the shape of Jozefowicz et al. 2016, "Exploring the
Limits of Language Modeling", with which Parallax (Kim et al. 2019) measured sparse exchange.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar, final

import torch
from torch import Tensor, nn

from parbench.api import Batch, Job, Workload
from parbench.workloads import _data, _loss, _recurrent
from parbench.workloads._recurrent import Recurrent
from parbench.workloads._sizes import settings_of
from parbench.workloads._weights import seeded

Two = tuple[Tensor, Tensor]


@final
class SparseLm(Workload):
    """A language model on tokens drawn from the seed, frequent ones and rare, which touches few rows in a step."""

    name: ClassVar[str] = "sparse-lm"
    unit: ClassVar[str] = "tokens"
    sizes: ClassVar[Mapping[str, Mapping[str, int]]] = {
        "smoke": {"vocabulary": 500, "row": 16, "hidden": 16, "context": 8, "drawn": 8},
        "small": {"vocabulary": 20_000, "row": 64, "hidden": 64, "context": 20, "drawn": 32},
        "1b-word": {"vocabulary": 800_000, "row": 512, "hidden": 2048, "context": 20, "drawn": 64},
    }
    source: ClassVar[str] = (
        "tokens generated from the seed; embeddings of a large vocabulary around an LSTM, trained by sampled softmax "
        "(Jean et al. 2015); 1b-word has the vocabulary and widths of Jozefowicz et al. 2016 (LSTM 2048-512)"
    )

    def __init__(self, sparse: bool = True) -> None:
        """Remember how gradients are.

        Args:
            sparse: whether embeddings get gradients of touched rows alone; else of all rows, most of them zero.
        """
        self._sparse = sparse

    def default_batch_size(self, size: str) -> int:
        """Return 8 samples for a smoke test and else 32."""
        settings_of(self.name, self.sizes, size)
        return 8 if size == "smoke" else 32

    def build(self, size: str, seed: int, device: torch.device, global_batch_size: int) -> Job:
        """Build the model and its stream of tokens.

        Raises:
            UsageError: no such size, or a batch without samples.
        """
        s = settings_of(self.name, self.sizes, size)
        batch = _tokens(s, global_batch_size, seed)
        return Job(
            model=seeded(lambda: self._network(s), _recurrent.fill_of(s["hidden"], embedding=0.1), seed, device),
            loss=_loss.sum_loss,
            optimizer=_sgd,
            batch=batch,
            unit=self.unit,
            units_per_sample=s["context"],
            blocks=["embedding", "layer", "head"],
            sparse=("embedding.rows.weight", "head.rows.weight") if self._sparse else (),
            notes={"touched_rows_fraction": touched(batch(0), s["vocabulary"])},
        )

    def _network(self, s: Mapping[str, int]) -> nn.Sequential:
        return nn.Sequential(
            OrderedDict(
                embedding=_Embedding(s["vocabulary"], s["row"], self._sparse),
                layer=_Layer(s["row"], s["hidden"]),
                head=_Scores(s["vocabulary"], s["row"], self._sparse),
            )
        )


def touched(batch: Batch, vocabulary: int) -> float:
    """Return which fraction of the rows of both embeddings a batch touches (alpha of Kim et al. 2019)."""
    read_N, scored_N = batch.inputs[..., 0].flatten(), batch.inputs[..., 1:].flatten()
    rows = sum(int(ids.bincount(minlength=vocabulary).count_nonzero()) for ids in (read_N, scored_N))
    return rows / (2 * vocabulary)


def _tokens(s: Mapping[str, int], batch_size: int, seed: int) -> Callable[[int], Batch]:
    """Return step -> inputs (B, T, 2 + K): the token, the next one, K drawn ones; the next one is always the first."""
    text = _data.skewed_tokens(s["context"], s["vocabulary"], batch_size, seed)

    def batch(step: int) -> Batch:
        words = text(step)
        random = _data.generator(seed, "drawn", step)
        drawn_BTK = torch.randint(0, s["vocabulary"], (*words.inputs.shape, s["drawn"]), generator=random)
        known = torch.stack([words.inputs, words.targets], dim=-1)
        return Batch(inputs=torch.cat([known, drawn_BTK], dim=-1), targets=torch.zeros_like(words.targets))

    return batch


def _sgd(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=1.0)  # takes sparse gradients, and leaves untouched rows alone


@final
class _Embedding(nn.Module):
    """inputs (B, T, 2 + K) -> (x_BTD, ids (B, T, 1 + K) as numbers that may travel with them)."""

    def __init__(self, vocabulary: int, row: int, sparse: bool) -> None:
        super().__init__()
        self.rows = nn.Embedding(vocabulary, row, sparse=sparse)

    def forward(self, inputs: Tensor) -> Two:
        """Look up; what is to be scored passes by (a float holds whole numbers up to 2^24)."""
        return self.rows(inputs[..., 0]), inputs[..., 1:].float()


@final
class _Layer(nn.Module):
    """The recurrent layer and its projection back to the width of a row."""

    def __init__(self, row: int, hidden: int) -> None:
        super().__init__()
        self.layer = Recurrent(row, hidden, "lstm")
        self.project = nn.Linear(hidden, row)

    def forward(self, both: Two) -> Two:
        """Read and project."""
        return self.project(self.layer(both[0])), both[1]


@final
class _Scores(nn.Module):
    """(y_BTD, ids (B, T, 1 + K)) -> scores (B, T, 1 + K)."""

    def __init__(self, vocabulary: int, row: int, sparse: bool) -> None:
        super().__init__()
        self.rows = nn.Embedding(vocabulary, row, sparse=sparse)

    def forward(self, both: Two) -> Tensor:
        """Compare with the row of every token that is to be scored."""
        y_BTD, ids = both
        rows: Tensor = self.rows(ids.long())
        return (rows * y_BTD.unsqueeze(-2)).sum(-1)
