"""`parbench show schedule NAME` simulates a pipeline schedule and draws it; nothing is run, and torch is not needed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from parbench.cli import output

if TYPE_CHECKING:
    from parbench.schedule import Costs

# A picture of more says nothing, and takes minutes.
_MOST_ACTIONS = 200_000
_COST = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,6})?")


def show_schedule(
    name: str,
    *,
    stages: int,
    microbatches: int,
    costs: str,
    svg: Path | None,
    plugins: Sequence[Path],
    as_json: bool,
) -> None:
    """Draw a schedule and say what it costs.

    Raises:
        UsageError: there is no such schedule, or it refuses these numbers.
        StoreError: the picture could not be written; it was still printed.
    """
    from parbench.errors import UsageError
    from parbench.registry import Registry
    from parbench.report.schedule_facts import schedule_facts

    registry = Registry(plugins)
    schedule = registry.resolve("schedule", name)
    refusal = schedule.refuses(stages, microbatches)
    if refusal is not None:
        raise UsageError(refusal)
    count = 3 * stages * microbatches * schedule.chunks
    if count > _MOST_ACTIONS:
        raise UsageError(
            f"a schedule of up to {_MOST_ACTIONS} actions (3 x stages x micro-batches x chunks) can be drawn, this has "
            f"{count if count < 10**12 else 'many more'}; take fewer --stages or --microbatches"
        )
    facts = schedule_facts(schedule, name, stages, microbatches, _costs(costs))
    if as_json:
        from parbench.report.schedule_document import schedule_document

        output.document(schedule_document(facts))
    else:
        from parbench.report.schedule import schedule_picture

        output.results(schedule_picture(facts, width=output.console().width))
    if svg is not None:
        from parbench.report.schedule_svg import schedule_svg

        _store(svg, schedule_svg(facts))


def _costs(text: str) -> Costs:
    from parbench.errors import UsageError
    from parbench.schedule import Costs

    parts = text.split(":")
    if len(parts) != 3 or not all(_COST.fullmatch(part) and float(part) > 0 for part in parts):
        raise UsageError(
            "--costs is forward:input-gradient:weight-gradient, three numbers above 0 such as 1:1:1 or 2:2.5:1.5, with "
            f"at most 6 digits before and after the point; given {text[:60]!r}"
        )
    return Costs(*map(Fraction, parts))


def _store(path: Path, data: bytes) -> None:
    """Write a file whole or not at all, in place of a file of this name."""
    import os

    from parbench.errors import StoreError
    from parbench.filesystem import Filesystem, publish_file

    try:
        final = Path(os.path.realpath(path))  # a link stays one
        if final.exists() and not final.is_file():
            raise StoreError(f"the picture cannot be stored: {str(path)!r} is no file; give another name to --svg")
        publish_file(Filesystem(), final, data)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise StoreError(f"the picture cannot be stored at {str(path)!r}: {why}; give another name to --svg") from error
