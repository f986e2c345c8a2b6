"""The contract plug-ins see: what a strategy, a workload and a probe are given and what they must give back.

B global batch, S this rank's share of it.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import ClassVar, Literal

import torch

from parbench.annotations import annotated
from parbench.awaiting import awaited
from parbench.backward import backward
from parbench.channel import Channel, carriage
from parbench.codec import GatherCompressor, MeanCompressor, RoundsCompressor, Shape, decoded
from parbench.collective import Collective, InFlight
from parbench.collective_rounds import Message, PeerCollective, Round, bounds, carry_out
from parbench.comm import Comm, Handle
from parbench.commthread import CommThread, Mark, Ticket
from parbench.compact import Compact, LowRank, Rounded, Sparse
from parbench.compressor import Carriage, Claims, Compressor, Finish, Reduced, uncompressed
from parbench.context import RankContext
from parbench.engine_ring import SocketRing
from parbench.fusion_check import checked_plan, plan_hash, planned
from parbench.holding import Holding, Memory, bytes_of, optimizer_bytes, replicated_memory, stepped
from parbench.job import Batch, Job, OptimizerFactory
from parbench.order import checked_order
from parbench.paper import Paper
from parbench.point import Point
from parbench.record import Agrees, Series
from parbench.stopwatch import Stopwatch
from parbench.traffic import Textbook, all_reduce_bytes, all_reduced, data_parallel, shared_out, trained_bytes
from parbench.trainer import ModelTrainer, Trainer

__all__ = [
    "Agrees",
    "Batch",
    "Carriage",
    "Channel",
    "Claims",
    "Collective",
    "Comm",
    "CommThread",
    "Compact",
    "Compressor",
    "Finish",
    "GatherCompressor",
    "Handle",
    "Holding",
    "InFlight",
    "Job",
    "LowRank",
    "Mark",
    "MeanCompressor",
    "Memory",
    "Message",
    "ModelTrainer",
    "OptimizerFactory",
    "Paper",
    "PeerCollective",
    "Point",
    "Probe",
    "RankContext",
    "Reduced",
    "Repeats",
    "Round",
    "Rounded",
    "RoundsCompressor",
    "Series",
    "Shape",
    "SocketRing",
    "Sparse",
    "Stopwatch",
    "Strategy",
    "Textbook",
    "Ticket",
    "Trainer",
    "Workload",
    "all_reduce_bytes",
    "all_reduced",
    "annotated",
    "awaited",
    "backward",
    "bounds",
    "bytes_of",
    "carriage",
    "carry_out",
    "checked_order",
    "checked_plan",
    "data_parallel",
    "decoded",
    "optimizer_bytes",
    "plan_hash",
    "planned",
    "replicated_memory",
    "shared_out",
    "stepped",
    "trained_bytes",
    "uncompressed",
]

Repeats = Literal["bitwise", "closely", "never"]


class Strategy(abc.ABC):
    """A way of spreading a job over ranks; its constructor's arguments are its parameters.

    Attributes:
        paper: where the idea comes from.
        point: where it lies in the space of replicated strategies, if it is a paper's system; for docs/systems.md.
        agrees: how closely it trains as one process does on the same global batches.
        ranks: the world size it always uses; None takes whatever is asked for.
        period: steps after which its pattern repeats (local SGD's synchronisation); rounds are multiples of it.
        repeats: whether the same seed gives the same losses: "bitwise", "closely" (to 1e-6, where timing decides the
            order of additions) or "never" (asynchronous).
        consumes_model: whether wrapping changes the job's model for good, as sharding does.
        takes_sparse: whether it copes with sparse gradients.
        steps_together: whether the optimizers of all ranks step within a step of training, in the same ones, each once:
            what stands before an optimizer can then decide for all of them.
        shards: what its ranks share out instead of repeating: "parameters", "gradients", "optimizer state", "layers",
            "positions".
    """

    paper: ClassVar[Paper]
    point: ClassVar[Point | None] = None
    agrees: Agrees
    ranks: int | None = None
    repeats: Repeats = "bitwise"
    consumes_model: bool = False
    takes_sparse: bool = False
    steps_together: bool = True
    shards: Sequence[str] = ()

    @property
    def period(self) -> int:
        """Steps after which the pattern of work repeats."""
        return 1

    def mesh(self, world_size: int) -> Mapping[str, int]:
        """Return the mesh that its ranks form: axis -> ranks along it, outermost first, neighbours along the last.

        What a rank sends is then told apart by the axis along which its peers lie; unless a strategy says otherwise,
        ranks share out the samples along one axis, "dp".
        """
        return {"dp": world_size}

    def impossible(self, job: Job, world_size: int) -> str | None:
        """Return a sentence saying why this job can never run on so many ranks, or None; asked before any rank starts.

        Args:
            job: shapes only (its model is on the meta device).
            world_size: ranks that are asked for.

        Returns:
            What was given, what is allowed and the nearest values that are. Such a cell is refused (exit code 2); in a
            sweep with others it is recorded as unsupported.
        """
        return None

    def unsupported(self, job: Job, ctx: RankContext) -> str | None:
        """Return a sentence saying why this job cannot run here (device, backend, precision), or None."""
        return None

    def traffic(self, job: Job, ctx: RankContext) -> Mapping[str, Fraction] | None:
        """Return the closed form of what this rank sends in a step once it runs steadily, or None where there is none.

        Returns:
            Operation ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "send", "gather",
            "scatter", "reduce") -> logical bytes, as `parbench.counting` defines them; operations that send nothing
            are left out.
        """
        return None

    def textbook(self, job: Job, ctx: RankContext) -> Textbook | None:
        """Return the formula that is usually quoted for what a rank sends in a step; it is shown beside the counts."""
        return None

    def memory(self, job: Job, ctx: RankContext) -> Memory | None:
        """Return the closed form of what this rank holds from step to step, or None where there is none."""
        return None

    @abc.abstractmethod
    def wrap(self, job: Job, ctx: RankContext) -> Trainer:
        """Spread `job` over the ranks of `ctx`."""


class Workload(abc.ABC):
    """A model and its data; its constructor's arguments are its parameters.

    Attributes:
        unit: "samples" or "tokens".
        sizes: size name -> the settings that make it ("smoke" always, under a second on a CPU).
        source: where model and data come from, in a sentence.
        parameters: size name -> published number of trainable parameters, where it does not depend on the data.
    """

    unit: ClassVar[str]
    sizes: ClassVar[Mapping[str, Mapping[str, int]]]
    source: ClassVar[str]
    parameters: ClassVar[Mapping[str, int]] = {}

    def unsupported(self) -> str | None:
        """Return a sentence saying why this workload cannot be built here (a package or file is missing), or None."""
        return None

    def data_hash(self) -> str | None:
        """Return the hash of the data that is read, or None where it is generated from the seed."""
        return None

    @abc.abstractmethod
    def default_batch_size(self, size: str) -> int:
        """Return the global batch size to use where none is given."""

    @abc.abstractmethod
    def build(self, size: str, seed: int, device: torch.device, global_batch_size: int) -> Job:
        """Build the job; the same arguments give the same weights and batches on every rank.

        Args:
            size: a key of `sizes`.
            seed: decides weights and batches; the global random state is left as it was.
            device: where the model lives ("meta" gives shapes only).
            global_batch_size: samples of a step, over all ranks.
        """


class Probe(abc.ABC):
    """A meter in one rank; one probe lives through many rounds, each from `start` to `stop`.

    Attributes:
        intrusive: whether it changes what it measures: then it runs in the traced pass only, never in timed rounds.
    """

    intrusive: ClassVar[bool] = False

    def unsupported(self, ctx: RankContext) -> str | None:
        """Return a sentence saying why it cannot measure here, or None."""
        return None

    @abc.abstractmethod
    def start(self, ctx: RankContext) -> None:
        """Begin a round."""

    def step(self) -> None:
        """Note the end of a step; must not wait for anything."""
        return None

    @abc.abstractmethod
    def stop(self) -> list[Series]:
        """End the round and return what was measured.

        Raises:
            RuntimeError: there was no `start`.
        """
