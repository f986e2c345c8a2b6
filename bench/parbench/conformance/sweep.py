"""Many strategies through their laws: ranks are reused from one to the next, and started anew after one breaks them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from parbench.conformance.checks import check_strategy
from parbench.conformance.findings import Verdict, broken
from parbench.errors import ParbenchError, RankFailed, Stuck
from parbench.registry import Registry
from parbench.session import Session


def strategy_verdicts(
    strategies: Sequence[str], world_sizes: Sequence[int], registry: Registry, timeout_s: float = 60.0
) -> Iterator[Verdict]:
    """Examine every strategy at every world size, one session per world size.

    Args:
        strategies: names with arguments.
        world_sizes: ranks to examine them in.
        registry: where names are looked up.
        timeout_s: seconds without progress that are a hang.
    """
    done: set[tuple[str, int]] = set()
    for size in world_sizes:
        session: Session | None = None
        try:
            for strategy in strategies:
                try:
                    ranks = min(registry.resolve("strategy", strategy).ranks or size, size)
                except ParbenchError as error:  # no ranks are started for what cannot be made
                    if (strategy, 0) not in done:
                        done.add((strategy, 0))
                        yield _broken(strategy, size, "can be made", error)
                    continue
                # One that always has the same ranks is examined once.
                if (strategy, ranks) in done:
                    continue
                done.add((strategy, ranks))
                if session is None:
                    session = Session(size, timeout_s=timeout_s, plugins=registry.plugins)
                verdict, alive = _one(strategy, size, session)
                session = session if alive else None
                yield verdict
        finally:
            if session is not None:
                session.close()


def _one(strategy: str, size: int, session: Session) -> tuple[Verdict, bool]:
    """Return the verdict, and whether the ranks are still alive after it."""
    try:
        return check_strategy(strategy, size, session=session), True
    except (RankFailed, Stuck) as error:
        return _broken(strategy, size, "runs, or says why not", error), False
    except ParbenchError as error:
        return _broken(strategy, size, "can be made", error), True


def _broken(strategy: str, size: int, law: str, error: ParbenchError) -> Verdict:
    return Verdict(kind="strategy", name=strategy, world_size=size, findings=(broken(law, str(error)),))
