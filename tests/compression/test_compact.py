"""A compact gradient is subtracted and written as its elements would be, wherever they lie."""

import math

import pytest
import torch

from parbench.compact import LowRank, Rounded, Sparse, dense

SPARSE = Sparse(values=torch.tensor([1.0, 2.0, 4.0]), places=torch.tensor([0, 5, 0]), shape=(2, 3))
LOW_RANK = LowRank(
    left=torch.tensor([[1.0], [2.0]]), right=torch.tensor([[1.0], [10.0], [100.0]]), shape=(2, 3), dtype=torch.float32
)
ROUNDED = Rounded(values=torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 0.5]).half(), shape=(2, 3), dtype=torch.float32)
# By hand: 1 and 4 meet at place 0; rows are 1 and 2 times (1, 10, 100).
CASES = [(SPARSE, [[5.0, 0.0, 0.0], [0.0, 0.0, 2.0]]), (LOW_RANK, [[1.0, 10.0, 100.0], [2.0, 20.0, 200.0]])]
CASES.append((ROUNDED, [[1.0, 2.0, 3.0], [4.0, 5.0, 0.5]]))


@pytest.mark.parametrize(("compact", "elements"), CASES)
def test_it_stands_for_its_elements(compact, elements):
    assert dense(compact).tolist() == elements


@pytest.mark.parametrize("place", ["contiguous", "transposed", "flat"])
@pytest.mark.parametrize(("compact", "elements"), CASES)
def test_it_is_taken_from_and_written_over_what_is_there(compact, elements, place):
    def of(number):
        if place == "transposed":
            return torch.full((3, 2), number).T
        return torch.full((6,) if place == "flat" else (2, 3), number)

    expected = torch.tensor(elements)
    grad = of(1000.0)
    compact.take_from(grad)
    assert torch.equal(grad.reshape(2, 3), 1000.0 - expected)
    grad = of(math.nan)
    compact.write_to(grad)
    assert torch.equal(grad.reshape(2, 3), expected)


def test_factors_wider_than_the_gradient_are_rounded_once():
    half = LowRank(left=torch.tensor([[1.0, 1.0]]), right=torch.tensor([[2048.0, 1.0]]), shape=(1, 1), dtype=torch.half)
    grad = torch.zeros(1, 1, dtype=torch.half)
    half.write_to(grad)
    assert grad.item() == 2048.0  # 2049 lies between two numbers of half precision, and ties go to the even one
    assert half.dense().dtype == torch.half
