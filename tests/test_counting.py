"""The byte counter reads every collective; expected bytes are worked out from the ring and tree formulas by hand."""

from fractions import Fraction

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch.testing._internal.distributed.fake_pg import FakeStore

from parbench.counting import ByteCounter

N = 4  # ranks
BYTES = 8 * 4  # eight floats


@pytest.fixture(scope="module", autouse=True)
def group():
    """A group of four ranks of which only rank 0 exists: operators pass, nothing moves."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=N)
    yield
    dist.destroy_process_group()


def floats(count=8):
    return torch.zeros(count)


def pieces(count=8):
    return [floats(count) for _ in range(N)]


CASES = {
    "all_reduce": (lambda: dist.all_reduce(floats()), {"all_reduce": Fraction(2 * 3 * BYTES, 4)}),
    "all_reduce of 7 elements": (lambda: dist.all_reduce(floats(7)), {"all_reduce": Fraction(2 * 3 * 28, 4)}),
    "all_reduce of halves": (
        lambda: dist.all_reduce(floats().bfloat16()),
        {"all_reduce": Fraction(2 * 3 * BYTES, 8)},
    ),
    "all_gather": (lambda: dist.all_gather(pieces(), floats()), {"all_gather": Fraction(3 * BYTES)}),
    "all_gather_into_tensor": (
        lambda: torch.ops.c10d._allgather_base_(floats(32), floats(), dist.group.WORLD.boxed(), False, -1),
        {"all_gather": Fraction(3 * BYTES)},
    ),
    "reduce_scatter": (lambda: dist.reduce_scatter(floats(), pieces()), {"reduce_scatter": Fraction(3 * 4 * BYTES, 4)}),
    "all_to_all": (lambda: dist.all_to_all(pieces(2), pieces(2)), {"all_to_all": Fraction(3 * BYTES, 4)}),
    "broadcast from here": (lambda: dist.broadcast(floats(), 0), {"broadcast": Fraction(BYTES)}),
    "broadcast from elsewhere": (lambda: dist.broadcast(floats(), 1), {}),
    "reduce to here": (lambda: dist.reduce(floats(), 0), {}),
    "reduce to elsewhere": (lambda: dist.reduce(floats(), 1), {"reduce": Fraction(BYTES)}),
    "gather to elsewhere": (lambda: dist.gather(floats(), None, 1), {"gather": Fraction(BYTES)}),
    "scatter from here": (lambda: dist.scatter(floats(), pieces(), 0), {"scatter": Fraction(3 * BYTES)}),
    "send": (lambda: dist.send(floats(), 1), {"send": Fraction(BYTES)}),
    "recv": (lambda: dist.recv(floats(), 1), {}),
    "barrier": (dist.barrier, {}),
    "functional all_reduce": (
        lambda: funcol.all_reduce(floats(), "sum", dist.group.WORLD) + 1,
        {"all_reduce": Fraction(2 * 3 * BYTES, 4)},
    ),
    "functional all_gather": (
        lambda: torch.ops._c10d_functional.all_gather_into_tensor(floats(), N, dist.group.WORLD.group_name),
        {"all_gather": Fraction(3 * BYTES)},
    ),
    "functional reduce_scatter": (
        lambda: torch.ops._c10d_functional.reduce_scatter_tensor(floats(), "sum", N, dist.group.WORLD.group_name),
        {"reduce_scatter": Fraction(3 * BYTES, 4)},
    ),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_logical_bytes(case):
    call, expected = CASES[case]
    with ByteCounter() as counter:
        call()
    assert counter.by_op() == expected
    assert not counter.unknown


def test_a_smaller_group_counts_with_its_own_size():
    pair = dist.new_group([0, 1])
    with ByteCounter() as counter:
        dist.all_reduce(floats(), group=pair)
    (seen,) = counter.seen
    assert (seen.group_size, seen.logical_bytes, seen.dtype) == (2, BYTES, torch.float32)


def test_an_operator_nobody_taught_it_is_named_not_dropped():
    counter = ByteCounter()

    class Schema:
        name = "c10d::something_new_"

    class Operator:
        _schema = Schema

    counter._note(Operator, (torch.zeros(2),))
    assert counter.unknown == {"c10d::something_new_": 1}
