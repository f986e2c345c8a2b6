"""A memory launch holds one variant alone, in fresh ranks that give freed memory back, and weighs it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from parbench.errors import ParbenchError
from parbench.launch.failure import RankLost, RanksStuck
from parbench.observed import Weighed
from parbench.session import Session
from parbench.spec import RunSpec


def weighed(open_session: Callable[[RunSpec], Session], spec: RunSpec) -> tuple[Weighed, ...]:
    """Return the memory of every rank of `spec`.

    Args:
        open_session: starts ranks that can be weighed.
        spec: what they hold; its links are left out, they hold nothing.

    Raises:
        RankLost, RanksStuck: a rank failed, or ran out of memory.
        ParbenchError: the variant cannot run here.
    """
    alone = msgspec.structs.replace(spec, network=None)
    session = open_session(alone)
    try:
        found = session.add(alone, refuse=False).weigh()
    except BaseException:
        session.kill()
        raise
    session.close()
    return found


def weighed_or_why(open_session: Callable[[RunSpec], Session], spec: RunSpec) -> tuple[Weighed, ...] | str:
    """Return the memory of every rank, or a sentence saying why it could not be measured."""
    try:
        return weighed(open_session, spec)
    except (RankLost, RanksStuck, ParbenchError) as error:
        return f"the launch that measures memory failed: {error}"
