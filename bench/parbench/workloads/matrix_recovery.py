"""matrix-recovery: a deep linear network learns a matrix of low rank, from all or from some of its entries.

    row i of the matrix  ~  e_i W_1 W_2 ... W_L            compressed:  e_i V C_2 ... C_(L-1) U

B rows of a batch, D side of the matrix, R its rank, L factors.
Kwon et al. 2024, "Efficient Low-Dimensional Compression of Overparameterized Models": small orthogonal first weights;
what a factor learns lies in a subspace of 2 R dimensions, so the compressed network has inner factors of side 2 R and
outer ones that begin as singular vectors of what is observed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import ClassVar, Literal, final

import torch
from torch import Tensor, nn

from parbench.api import Batch, Job, Workload
from parbench.workloads import _data
from parbench.workloads._sizes import settings_of
from parbench.workloads._weights import seeded

_FIRST = 0.2  # size of the first weights: where a narrow network is small enough, it finds low ranks first
_RATE = 0.3  # per row: losses are divided by their number; three factors of norm 1 diverge beyond 2/3
_OBSERVED = 0.3  # of the entries, in completion; the repository of the paper has 20 to 30 %

Problem = Literal["factorization", "completion"]


@final
class MatrixRecovery(Workload):
    """Gradient descent on a product of square matrices until it is the matrix; a sample is one row."""

    name: ClassVar[str] = "matrix-recovery"
    unit: ClassVar[str] = "samples"
    sizes: ClassVar[Mapping[str, Mapping[str, int]]] = {
        "smoke": {"side": 16, "rank": 2, "factors": 3},
        "small": {"side": 100, "rank": 5, "factors": 3},
        "wide": {"side": 1000, "rank": 10, "factors": 3},
    }
    source: ClassVar[str] = (
        "a matrix of low rank made by a fixed seed; deep linear networks of Kwon et al. 2024 (factorization, "
        "completion; compressed or not), small with the side and rank of its repository's completion"
    )

    def __init__(self, problem: Problem = "factorization", compressed: bool = False) -> None:
        """Remember what is to be recovered, and how.

        Args:
            problem: whether all entries are seen ("factorization") or three tenths of them ("completion").
            compressed: whether inner factors have twice the rank as their side instead of the matrix's.
        """
        self._problem = problem
        self._compressed = compressed

    def default_batch_size(self, size: str) -> int:
        """Return all rows: a step is one of gradient descent."""
        return settings_of(self.name, self.sizes, size)["side"]

    def build(self, size: str, seed: int, device: torch.device, global_batch_size: int) -> Job:
        """Build the factors and the epochs of the matrix's rows.

        Raises:
            UsageError: no such size, or a batch of more rows than there are.
        """
        s = settings_of(self.name, self.sizes, size)
        side, rank, factors = s["side"], s["rank"], s["factors"]
        truth_DD = target(side, rank)
        seen_DD = torch.ones_like(truth_DD)
        if self._problem == "completion":
            seen_DD = (torch.rand(side, side, generator=_data.generator(0, "seen")) < _OBSERVED).float()
        widths = [side, *[2 * rank if self._compressed else side] * (factors - 1), side]
        surrogate_DD = truth_DD * seen_DD / seen_DD.mean()
        rows = Batch(inputs=torch.eye(side), targets=torch.stack([truth_DD * seen_DD, seen_DD], dim=1))
        return Job(
            model=seeded(lambda: _product(widths), _fill_of(surrogate_DD, factors, self._compressed), seed, device),
            loss=_loss,
            optimizer=lambda parameters: torch.optim.SGD(parameters, lr=_RATE * side),
            batch=_data.batches(rows, global_batch_size, seed),
            unit=self.unit,
            units_per_sample=1,
            blocks=[str(k) for k in range(factors)],
            shardings={"0.weight": "column", "1.weight": "row"},
            steps_per_epoch=-(-rows.samples // global_batch_size),
            held_out=_evaluator(truth_DD),
        )


def target(side: int, rank: int) -> Tensor:
    """Return a matrix of this rank whose singular values are 1, the same for every run."""
    left, right = (_orthogonal(side, rank, _data.generator(0, "target", k)) for k in ("left", "right"))
    return left @ right.T


def _orthogonal(rows: int, columns: int, random: torch.Generator) -> Tensor:
    """Return columns of unit length, each at right angles to all others (or rows, where there are fewer)."""
    drawn = torch.randn(max(rows, columns), min(rows, columns), generator=random)
    found: Tensor = torch.linalg.qr(drawn).Q
    return found if rows >= columns else found.T


def _product(widths: list[int]) -> nn.Sequential:
    return nn.Sequential(*(nn.Linear(a, b, bias=False) for a, b in itertools.pairwise(widths)))


def _fill_of(surrogate_DD: Tensor, factors: int, compressed: bool) -> Callable[[str, Tensor, torch.Generator], None]:
    def fill(name: str, value: Tensor, random: torch.Generator) -> None:
        """Orthogonal and small; outer factors of a compressed network: singular vectors."""
        factor = int(name.strip(".").split(".")[0])
        if compressed and factor in (0, factors - 1):
            left, _, right = torch.linalg.svd(surrogate_DD)
            vectors = left[:, : value.shape[0]].T if factor == 0 else right[: value.shape[1]].T
            value.copy_(_FIRST * vectors)
        else:
            value.copy_(_FIRST * _orthogonal(value.shape[0], value.shape[1], random))

    return fill


def _loss(outputs_BD: Tensor, share: Batch) -> Tensor:
    """Return the sum over rows of half the squared error of the entries that are seen."""
    rows_BD, seen_BD = share.targets.unbind(1)
    return 0.5 * ((outputs_BD - rows_BD) * seen_BD).square().sum()


def _evaluator(truth_DD: Tensor) -> Callable[[nn.Module], Mapping[str, float]]:
    """Return model -> {"loss": how far the product is from the matrix, seen or not, relative to the matrix's norm}."""

    def evaluate(model: nn.Module) -> Mapping[str, float]:
        device = next(model.parameters()).device
        with torch.no_grad():
            product_DD = model(torch.eye(truth_DD.shape[0], device=device)).float().cpu()
        return {"loss": float((product_DD - truth_DD).norm() / truth_DD.norm())}

    return evaluate
