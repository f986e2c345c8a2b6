"""The cells of a suite before it runs, as `--dry-run` shows them."""

from __future__ import annotations

import msgspec
from rich import box
from rich.table import Table
from rich.text import Text

from parbench.report.words import visible
from parbench.spec import RunSpec, spec_id
from parbench.suite import Suite

# Shown where a cell asks for it.
_WHERE_ASKED = {"network": "network", "rank_speed": "speeds", "straggler": "straggler"}


def cells_table(suite: Suite) -> Table:
    """Return one line per cell that would run."""
    count = "1 cell" if len(suite.specs) == 1 else f"{len(suite.specs)} cells"
    title = f"{visible(suite.name, 60)}: {count}, nothing is started"
    table = Table(title=Text(title), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    asked = {
        name: label
        for name, label in _WHERE_ASKED.items()
        if any(getattr(spec, name) is not None for spec in suite.specs)
    }
    columns = ("workload", "strategy", "ranks", *asked.values(), "batch", "precision", "steps", "repeats", "seed", "id")
    for name in columns:
        table.add_column(name, overflow="fold")
    for spec in suite.specs:
        batch = "own" if spec.global_batch_size is None else str(spec.global_batch_size)
        where = (visible(getattr(spec, name) or "none", 60) for name in asked)
        numbers = (spec.world_size, *where, batch, spec.precision, spec.steps, spec.repeats, spec.seed, spec_id(spec))
        texts = (f"{visible(spec.workload, 60)}/{visible(spec.size, 20)}", visible(spec.strategy, 60))
        table.add_row(*map(Text, (*texts, *map(str, numbers))))
    return table


def cells_document(suite: Suite) -> bytes:
    """Return the same as JSON, every field of every cell spelled out."""
    cells = [{"spec_id": spec_id(spec), "spec": _complete(spec)} for spec in suite.specs]
    return msgspec.json.encode({"suite": suite.name, "cells": cells, "notes": suite.notes})


def _complete(spec: RunSpec) -> dict[str, object]:
    return {name: getattr(spec, name) for name in spec.__struct_fields__}
