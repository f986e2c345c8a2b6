"""A place in a torchrun launch, as its environment variables say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from parbench.errors import UsageError
from parbench.spec import RunSpec

_NEEDED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchrunSeat:
    """This process's place in a torchrun launch."""

    rank: int
    local_rank: int
    world_size: int

    @staticmethod
    def here(environ: Mapping[str, str]) -> TorchrunSeat | None:
        """Return this process's place, or None where torchrun did not start it.

        Raises:
            UsageError: some of torchrun's variables are set and others are missing or no numbers.
        """
        if "RANK" not in environ or "WORLD_SIZE" not in environ:
            return None
        missing = [name for name in _NEEDED if name not in environ]
        if missing:
            raise UsageError(
                f"RANK and WORLD_SIZE are set but {', '.join(missing)} is not; start with torchrun, or unset"
            )
        try:
            rank, local, world = (int(environ[name]) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"))
        except ValueError:
            raise UsageError("RANK, LOCAL_RANK and WORLD_SIZE must be numbers; start with torchrun, or unset") from None
        if not 0 <= rank < world or local < 0:
            raise UsageError(f"RANK={rank} must be from 0 to WORLD_SIZE-1={world - 1}; start with torchrun, or unset")
        return TorchrunSeat(rank=rank, local_rank=local, world_size=world)

    def check(self, specs: Sequence[RunSpec]) -> None:
        """Make sure that these ranks can run `specs`.

        Raises:
            UsageError: a cell wants another number of ranks, or fresh launches, which only torchrun itself gives.
        """
        for spec in specs:
            if spec.world_size not in (1, self.world_size):
                raise UsageError(
                    f"{spec.strategy} is to run on {spec.world_size} ranks, torchrun started {self.world_size}; "
                    f"say -n {self.world_size}, or start {spec.world_size} with torchrun"
                )
            if spec.repeats > 1:
                raise UsageError("repeats are fresh launches: under torchrun start it again instead of --repeats")
