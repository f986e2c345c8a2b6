"""Device and backend: what is chosen on which machine, why, and what is refused."""

import pytest

from parbench.errors import MissingError, UsageError
from parbench.launch.place import Machine, place

CPU = Machine(gpus=0, nccl=False, gloo=True)
ONE = Machine(gpus=1, nccl=True, gloo=True)
FOUR = Machine(gpus=4, nccl=True, gloo=True)
NO_NCCL = Machine(gpus=4, nccl=False, gloo=True)
NO_GLOO = Machine(gpus=0, nccl=False, gloo=False)


@pytest.mark.parametrize(
    ("machine", "device", "backend", "ranks", "chosen", "because"),
    [
        (CPU, "auto", "auto", 2, ("cpu", "gloo"), ("torch finds no GPU", "tensors are on the CPU")),
        (CPU, "cpu", "gloo", 2, ("cpu", "gloo"), ("asked for", "asked for")),
        (ONE, "auto", "auto", 1, ("cuda", "nccl"), ("1 GPUs for 1 ranks", "one GPU per rank")),
        (ONE, "auto", "auto", 2, ("cpu", "gloo"), ("1 GPUs are too few for 2 ranks", "tensors are on the CPU")),
        (ONE, "cuda", "auto", 2, ("cuda", "gloo"), ("asked for", "ranks share GPUs, which NCCL refuses")),
        (ONE, "cuda", "gloo", 2, ("cuda", "gloo"), ("asked for", "asked for")),
        (FOUR, "auto", "auto", 4, ("cuda", "nccl"), ("4 GPUs for 4 ranks", "one GPU per rank")),
        (FOUR, "cpu", "auto", 4, ("cpu", "gloo"), ("asked for", "tensors are on the CPU")),
        (NO_NCCL, "auto", "auto", 2, ("cuda", "gloo"), ("4 GPUs for 2 ranks", "no NCCL in torch")),
    ],
)
def test_what_is_chosen_and_why(machine, device, backend, ranks, chosen, because):
    placement = place(device, backend, ranks, machine)
    assert (placement.device, placement.backend) == chosen
    assert tuple(placement.chosen[name].because for name in ("device", "backend")) == because


@pytest.mark.parametrize(
    ("machine", "device", "backend", "ranks", "error", "why"),
    [
        (CPU, "cuda", "auto", 1, MissingError, "no GPU"),
        (CPU, "auto", "nccl", 2, MissingError, "no NCCL"),
        (Machine(gpus=0, nccl=True, gloo=True), "auto", "nccl", 2, MissingError, "needs a GPU"),
        (FOUR, "cpu", "nccl", 2, UsageError, "GPU tensors only"),
        (ONE, "cuda", "nccl", 2, MissingError, "2 ranks need 2 GPUs, this machine has 1"),
        (NO_NCCL, "cuda", "nccl", 2, MissingError, "no NCCL"),
        (NO_GLOO, "cpu", "gloo", 2, MissingError, "no gloo"),
    ],
)
def test_what_is_refused_and_why(machine, device, backend, ranks, error, why):
    with pytest.raises(error, match=why):
        place(device, backend, ranks, machine)


def test_ranks_take_gpus_in_turn():
    placement = place("cuda", "gloo", 3, Machine(gpus=2, nccl=True, gloo=True))
    assert [placement.device_of(rank) for rank in range(3)] == ["cuda:0", "cuda:1", "cuda:0"]
    assert place("cpu", "auto", 2, CPU).device_of(1) == "cpu"
