"""`parbench compare` says of stored results what is faster, smaller or better, by how much, and how sure that is."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parbench.cli import output

if TYPE_CHECKING:
    from parbench.comparison import Comparison
    from parbench.record import RunRecord

EXAMPLES = (
    "parbench compare results/default · parbench compare results/default --reference ddp · "
    "parbench compare before/default after/default --markdown"
)


class Form(StrEnum):
    """How a comparison is printed."""

    TABLE = "table"
    MARKDOWN = "markdown"
    JSON = "json"


def compare(
    path: Annotated[
        Path,
        typer.Argument(metavar="PATH", help="Results; with a second PATH, the old ones.", show_default=False),
    ],
    new: Annotated[
        Path | None,
        typer.Argument(metavar="[PATH]", help="New results, held against the first, cell by cell.", show_default=False),
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(
            "--reference",
            metavar="STRATEGY",
            help="What strategies of one PATH are held against; single unless given.",
            show_default=False,
        ),
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            "--allow",
            metavar="WHAT",
            help="Compare although this differs: machine, backend, device, compute, or a setting such as "
            "global_batch_size; repeat it for several.",
            show_default=False,
        ),
    ] = None,
    fixed: Annotated[
        str | None,
        typer.Option(
            "--fixed",
            metavar="BUDGET",
            help="Compare strategies of one PATH at memory=8GiB (each at its best global batch within that) or "
            "tokens=4096 per step; at the same global batch unless given.",
            show_default=False,
        ),
    ] = None,
    margin: Annotated[
        str,
        typer.Option("--margin", metavar="PERCENT", help="A change below this is called the same."),
    ] = "2%",
    by_loss: Annotated[
        bool,
        typer.Option(
            "--by-loss", help="Compare by loss: steps, seconds, bytes and joules until a training loss is reached."
        ),
    ] = False,
    target_loss: Annotated[
        float | None,
        typer.Option(
            "--target-loss",
            metavar="LOSS",
            help="With --by-loss: the loss to reach; the highest that any strategy ended with unless given.",
            show_default=False,
        ),
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown, as a pull request shows it.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 1 where a step time cannot be told apart or is not ranked.")
    ] = False,
) -> None:
    """Compare strategies of one sweep, or two results cell by cell, a verdict per metric; torch is not needed."""
    from parbench.budget import parse_budget
    from parbench.compare import compare_paths, compare_strategies
    from parbench.errors import UsageError
    from parbench.percent import fraction

    if markdown and as_json:
        raise UsageError("--markdown and --json are two forms of the same; give one")
    if new is not None and reference is not None:
        raise UsageError("--reference is for one PATH: with two, each cell is held against the same cell of the first")
    if new is not None and fixed is not None:
        raise UsageError("--fixed is for one PATH: two are compared at what both were measured at")
    if new is None and allow:
        raise UsageError("--allow is for two PATHs: within one, only what is alike is compared")
    if target_loss is not None and not by_loss:
        raise UsageError("--target-loss goes with --by-loss")
    records = read(path)
    if by_loss:
        if new is not None or markdown or reference is not None:
            raise UsageError("--by-loss compares the strategies of one PATH, as a table or --json; leave the rest out")
        _by_loss(path, records, target_loss, as_json=as_json)
        return
    if new is None:
        budget = parse_budget(fixed) if fixed is not None else None
        level = fraction(margin, "--margin")
        found = compare_strategies(records, path=str(path), reference=reference, margin=level, budget=budget)
    else:
        found = compare_paths(
            records,
            read(new),
            old_path=str(path),
            new_path=str(new),
            allow=allow or (),
            margin=fraction(margin, "--margin"),
        )
    form = Form.JSON if as_json else Form.MARKDOWN if markdown else Form.TABLE
    show(found, form, changes_first=new is not None)
    unsure = [one for cell in found.cells for one in cell.metrics if one.metric == "step_time_s" and cell.reference]
    if strict and any(one.verdict in ("inconclusive", "not ranked", "missing") for one in unsure):
        raise typer.Exit(1)


def _by_loss(path: Path, records: list[RunRecord], target: float | None, *, as_json: bool) -> None:
    import msgspec

    from parbench.toloss import to_loss

    found = to_loss(path, records, target)
    if as_json:
        output.document(msgspec.json.format(msgspec.json.encode(found), indent=1))
        return
    from parbench.report.toloss import loss_table

    output.results(loss_table(found))


def read(path: Path) -> list[RunRecord]:
    """Return the records to compare under `path`; those that cannot be read are told and left out.

    Raises:
        UsageError: there are none.
        UnreadableError: none can be read.
    """
    from parbench.errors import UnreadableError, UsageError
    from parbench.index import newest_records

    records, problems, notes = newest_records(path)
    output.notes([*notes, *(problem.sentence for problem in problems)])
    if problems:
        output.notes([f"{len(problems)} of {len(problems) + len(records)} records cannot be read and are left out"])
    if not records and problems:
        raise UnreadableError(f"no record in {str(path)!r} can be read")
    if not records:
        raise UsageError(f"no records in {str(path)!r}; give the folder that parbench run printed")
    return records


def show(found: Comparison, form: Form, *, changes_first: bool) -> None:
    """Print a comparison on stdout."""
    if form is Form.JSON:
        import msgspec

        output.document(msgspec.json.format(msgspec.json.encode(found), indent=1))
    elif form is Form.MARKDOWN:
        from parbench.report.markdown import comparison_markdown

        output.document(comparison_markdown(found).encode())
    else:
        from parbench.report.comparison import comparison_table

        output.results(comparison_table(found, changes_first=changes_first))
