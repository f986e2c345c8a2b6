"""What the launcher and its ranks say to each other: JSON over pipes, never pickled."""

from __future__ import annotations

import msgspec

from parbench.facts import Inspected, ParityFacts, StrategyFacts
from parbench.network.seat import NetworkSeat
from parbench.observed import Reading, Weighed
from parbench.powerplan import Place
from parbench.record import Agrees, Series
from parbench.spec import RunSpec


class Seat(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Everything a fresh process needs to become a rank."""

    rank: int
    local_rank: int
    world_size: int
    host: str
    port: int
    device: str
    backend: str
    threads: int
    group_timeout_s: float
    log: str
    plugins: tuple[str, ...] = ()
    fault: str = ""
    network: NetworkSeat | None = None
    weigh: bool = False
    memory_bytes: int | None = None


# ---- commands: every rank gets the same one, at the same time


class Build(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Build the job of `spec` and spread it over the ranks, as variant number `variant`."""

    variant: int
    spec: RunSpec


class Parity(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Compare the variant with one process, over `steps` steps from the first weights."""

    variant: int
    steps: int


class Steps(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Train the variant for `count` steps between two barriers, from step number `first`."""

    variant: int
    first: int
    count: int


class Inspect(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Take one more period of steps of the variant and look at what they send, hold and compute."""

    variant: int


class Trace(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Count a period of steps of the variant, from step number `first`, and write a trace of `count` more.

    Attributes:
        variant: which.
        first: number of the first step.
        count: steps.
        folder: where files go, `rank<k>.json.gz` and, if asked for, `execution<k>.json`.
        execution: whether PyTorch's execution trace is wanted too.
    """

    variant: int
    first: int
    count: int
    folder: str
    execution: bool = False


class Weigh(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Weigh the one variant of ranks that were started for that (`Seat.weigh`).

    Attributes:
        variant: which.
        snapshot: folder for the history of CUDA's allocator; none is kept where it is empty.
    """

    variant: int
    snapshot: str = ""


class Locate(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Say which board this rank computes on, and whether power can be read."""


class Idle(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Do nothing for a while, and read the power of that."""

    places: tuple[Place, ...]
    seconds: float


class Energy(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Train the variant for `count` steps, from step number `first`, and read the energy of that."""

    variant: int
    first: int
    count: int
    places: tuple[Place, ...]


class Evaluate(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Judge the variant's weights on held-out data."""

    variant: int


class Collectives(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Time one collective in a group of the first `ranks` ranks.

    Attributes:
        op: which.
        algorithm: "native" (the backend's own) or "ring".
        ranks: how many take part.
        bytes: of the whole buffer of one rank.
        dtype: torch's name of its elements.
        warm_up: times that are not timed.
        iterations: times that are, back to back.
        alpha_s: start-up cost that the ring injects once per collective.
    """

    op: str
    algorithm: str
    ranks: int
    bytes: int
    dtype: str = "float32"
    warm_up: int = 5
    iterations: int = 20
    alpha_s: float = 0.0


class Drop(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Release the variant."""

    variant: int


class Clear(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Release every variant and stay."""


class Leave(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Release everything and end the process."""


class Examine(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Examine a strategy for the laws that every strategy obeys, in a group of its own."""

    strategy: str
    world_size: int


Command = (
    Build
    | Collectives
    | Examine
    | Parity
    | Steps
    | Inspect
    | Trace
    | Weigh
    | Locate
    | Idle
    | Energy
    | Evaluate
    | Drop
    | Clear
    | Leave
)

# ---- replies: one per rank and command


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The rank has joined its process group."""

    device_name: str


class Built(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The variant stands, or the sentence that says why it cannot."""

    unsupported: str | None = None
    impossible: bool = False
    agrees: Agrees = "closely"
    period: int = 1
    unit: str = "samples"
    units_per_sample: int = 1
    parameters: int = 0
    shards: tuple[str, ...] = ()
    wall_s: float = 0.0
    member: bool = True


class ParityDone(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The facts of every optimizer compared."""

    facts: tuple[ParityFacts, ...] = ()
    compile_s: float = 0.0


class StepsDone(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Raw samples of one round on one rank; a rank outside the variant has none.

    `started_s` is when it left the barrier, on the clock that all processes of a machine share; `positions` is how many
    targets the batches held, which is how many tokens were fed where tokens are counted; `left_out` is how many samples
    of each batch this rank should have trained on and did not, nothing where it trained on all.
    """

    seconds: tuple[float, ...] = ()
    losses: tuple[float | None, ...] = ()
    nonfinite: tuple[int, ...] = ()
    samples: tuple[int, ...] = ()
    left_out: tuple[int, ...] = ()
    wall_s: float = 0.0
    drain_s: float = 0.0
    compile_s: float = 0.0
    series: tuple[Series, ...] = ()
    started_s: float = 0.0
    positions: int = 0
    member: bool = True


class Metered(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Where a rank is, and what it read of the boards that it reads for its host.

    Attributes:
        place: answers `Locate`.
        readings: answers `Idle` and `Energy`; a rank that reads for nobody has none.
        samples: of the global batches in the window.
        member: whether the rank took part.
    """

    place: Place | None = None
    readings: tuple[Reading, ...] = ()
    samples: int = 0
    member: bool = True


class TraceDone(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The files of one rank's trace; a rank outside the variant has none.

    Attributes:
        path: of the trace.
        execution: of PyTorch's execution trace, if there is one.
        raw_bytes: of the trace before it was compressed.
        file_bytes: of the file.
        wall_s: of the traced steps.
        reason: why there is no trace.
        member: whether the rank took part.
    """

    path: str | None = None
    execution: str | None = None
    raw_bytes: int = 0
    file_bytes: int = 0
    wall_s: float = 0.0
    reason: str | None = None
    member: bool = True


class WeighDone(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The memory of one rank; a rank outside the variant has none."""

    weighed: Weighed | None = None


class CollectivesDone(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """What one rank saw of a timed collective.

    Attributes:
        start_s: when the timing started, on the clock that all processes of a machine share.
        ends_s: when each iteration was complete.
        sent_bytes: sent per iteration, as the kernel counts; None where it cannot.
        wrong: what was wrong with the result, None if nothing.
        member: whether the rank took part.
    """

    start_s: float = 0.0
    ends_s: tuple[float, ...] = ()
    sent_bytes: float | None = None
    wrong: str | None = None
    member: bool = True


class Judged(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Loss and accuracy on held-out data, or why there are none."""

    values: dict[str, float] = {}
    reason: str | None = None


class Done(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Nothing to report."""


class Raised(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The rank raised; its traceback is in its log."""

    at_s: float
    step: int | None
    kind: str
    message: str


Reply = (
    Ready
    | Built
    | CollectivesDone
    | StrategyFacts
    | ParityDone
    | StepsDone
    | Metered
    | TraceDone
    | WeighDone
    | Inspected
    | Judged
    | Done
    | Raised
)


class Pulse(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A rank's sign of life: where it is and how far each process group has come."""

    rank: int
    phase: str
    step: int | None
    sequence: tuple[int, ...]
    peak_rss_bytes: int


_encoder = msgspec.json.Encoder()
_commands = msgspec.json.Decoder(Command)
_replies = msgspec.json.Decoder(Reply)
_pulses = msgspec.json.Decoder(Pulse)
_seats = msgspec.json.Decoder(Seat)


def encode(message: Seat | Command | Reply | Pulse) -> bytes:
    """Return `message` as JSON."""
    return _encoder.encode(message)


def decode_seat(data: bytes) -> Seat:
    """Read a seat."""
    return _seats.decode(data)


def decode_command(data: bytes) -> Command:
    """Read a command."""
    return _commands.decode(data)


def decode_reply(data: bytes) -> Reply:
    """Read a reply."""
    return _replies.decode(data)


def decode_pulse(data: bytes) -> Pulse:
    """Read a pulse."""
    return _pulses.decode(data)
