"""Where ranks compute and what moves their tensors, chosen with a reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from parbench.errors import MissingError, UsageError
from parbench.record import Chosen
from parbench.spec import Backend, Device


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What this host offers to ranks."""

    gpus: int
    nccl: bool
    gloo: bool

    @staticmethod
    def here() -> Machine:
        """Return what torch finds on this host, without touching a GPU's memory."""
        try:
            import torch
            import torch.distributed as dist
        except ImportError:
            raise MissingError("running needs torch: pip install 'parbench[run]'") from None
        gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
        return Machine(gpus=gpus, nccl=dist.is_nccl_available(), gloo=dist.is_gloo_available())


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Device and backend of a launch, each with its reason."""

    device: Literal["cpu", "cuda"]
    backend: Literal["gloo", "nccl"]
    gpus: int
    chosen: dict[str, Chosen]

    def device_of(self, local_rank: int) -> str:
        """Return torch's name for the device of a rank; ranks share GPUs in turn where there are too few."""
        return "cpu" if self.device == "cpu" else f"cuda:{local_rank % self.gpus}"


def place(device: Device, backend: Backend, world_size: int, machine: Machine) -> Placement:
    """Choose device and backend for `world_size` ranks.

    Raises:
        MissingError: the GPU or backend asked for is not there.
        UsageError: device and backend do not go together.
    """
    where = _device(device, world_size, machine)
    how = _backend(backend, where, world_size, machine)
    return Placement(
        device="cuda" if where.value == "cuda" else "cpu",
        backend="nccl" if how.value == "nccl" else "gloo",
        gpus=machine.gpus,
        chosen={"device": where, "backend": how},
    )


def _device(device: Device, world_size: int, machine: Machine) -> Chosen:
    if device == "cuda" and machine.gpus == 0:
        raise MissingError(
            "--device cuda: this machine has no GPU that torch can use; leave it out or say --device cpu"
        )
    if device != "auto":
        return Chosen(value=device, because="asked for")
    if machine.gpus == 0:
        return Chosen(value="cpu", because="torch finds no GPU")
    if machine.gpus < world_size:
        return Chosen(value="cpu", because=f"{machine.gpus} GPUs are too few for {world_size} ranks")
    return Chosen(value="cuda", because=f"{machine.gpus} GPUs for {world_size} ranks")


def _backend(backend: Backend, device: Chosen, world_size: int, machine: Machine) -> Chosen:
    if backend == "nccl":
        if not machine.nccl:
            raise MissingError("--backend nccl: this build of torch has no NCCL; use --backend gloo or auto")
        if machine.gpus == 0:
            raise MissingError("--backend nccl: NCCL needs a GPU and torch finds none; use --backend gloo or auto")
        if device.value == "cpu":
            raise UsageError("--backend nccl moves GPU tensors only; use --device cuda, or --backend gloo")
        if machine.gpus < world_size:
            raise MissingError(
                f"--backend nccl: {world_size} ranks need {world_size} GPUs, this machine has {machine.gpus}; "
                "use --backend gloo to share them"
            )
    if backend == "gloo" and not machine.gloo:
        raise MissingError("--backend gloo: this build of torch has no gloo")
    if backend != "auto":
        return Chosen(value=backend, because="asked for")
    if device.value == "cuda" and machine.nccl and machine.gpus >= world_size:
        return Chosen(value="nccl", because="one GPU per rank")
    if device.value == "cuda":
        return Chosen(
            value="gloo", because="ranks share GPUs, which NCCL refuses" if machine.nccl else "no NCCL in torch"
        )
    return Chosen(value="gloo", because="tensors are on the CPU")
