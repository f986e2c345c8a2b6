"""`parbench show` prints stored results again, and draws pipeline schedules."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from parbench.cli import output

EXAMPLES = "parbench show results/digits · parbench show schedule 1f1b --stages 4 --microbatches 8"
_RESULTS, _SCHEDULE = "Stored results: parbench show PATH", "Pipeline schedules: parbench show schedule NAME"


def show(
    what: Annotated[
        str,
        typer.Argument(
            metavar="PATH | schedule",
            help="A record.json, a run's folder or a suite's folder; or the word schedule (a folder of that name is "
            "./schedule).",
            show_default=False,
        ),
    ],
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="With schedule: which one, such as 1f1b or 'interleaved(v=2)' (parbench list schedules).",
            show_default=False,
        ),
    ] = None,
    details: Annotated[
        bool,
        typer.Option(
            "--details",
            help="Everything about every run; always shown for a single one.",
            rich_help_panel=_RESULTS,
        ),
    ] = False,
    agreement: Annotated[
        bool,
        typer.Option(
            "--agreement",
            help="A Markdown table: how closely each strategy trained as one process did, by ranks and precision.",
            rich_help_panel=_RESULTS,
        ),
    ] = False,
    systems: Annotated[
        bool,
        typer.Option(
            "--systems",
            help="A Markdown table: what papers' systems are, what they send in a step, how closely they trained.",
            rich_help_panel=_RESULTS,
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Exit with 7 where a record cannot be read.", rich_help_panel=_RESULTS),
    ] = False,
    stages: Annotated[
        int | None,
        typer.Option(
            "--stages",
            metavar="P",
            min=1,
            help="Ranks of the pipeline; each holds one stage, or several as in interleaved.",
            rich_help_panel=_SCHEDULE,
            show_default=False,
        ),
    ] = None,
    microbatches: Annotated[
        int | None,
        typer.Option(
            "--microbatches",
            metavar="M",
            min=1,
            help="Micro-batches of a step.",
            rich_help_panel=_SCHEDULE,
            show_default=False,
        ),
    ] = None,
    costs: Annotated[
        str | None,
        typer.Option(
            "--costs",
            metavar="F:I:W",
            help="What a forward, a gradient of inputs and one of weights take, such as 1:1:1 (the default).",
            rich_help_panel=_SCHEDULE,
            show_default=False,
        ),
    ] = None,
    svg: Annotated[
        Path | None,
        typer.Option(
            "--svg", metavar="FILE", help="Draw to a file too.", rich_help_panel=_SCHEDULE, show_default=False
        ),
    ] = None,
    plugin: Annotated[
        list[Path] | None,
        typer.Option(
            "--plugin",
            metavar="FILE",
            help="Your own schedule: FILE is imported.",
            rich_help_panel=_SCHEDULE,
            show_default=False,
        ),
    ] = None,
) -> None:
    """Show results that were stored, or draw a pipeline schedule; torch is not needed."""
    from parbench.errors import UsageError

    of_schedules = {
        "--stages": stages,
        "--microbatches": microbatches,
        "--costs": costs,
        "--svg": svg,
        "--plugin": plugin,
    }
    given = [option for option, value in of_schedules.items() if value]
    if what != "schedule":
        if name is not None or given:
            extra = given[0] if name is None else repr(name)
            raise UsageError(f"show PATH takes no {extra}: that is for parbench show schedule NAME")
        _show_results(Path(what), details=details, agreement=agreement, systems=systems, as_json=as_json, strict=strict)
        return
    if name is None or stages is None or microbatches is None:
        raise UsageError(
            "write parbench show schedule NAME --stages P --microbatches M (names: parbench list schedules; a folder "
            "of results that is named schedule: ./schedule)"
        )
    of_results = {"--details": details, "--agreement": agreement, "--systems": systems, "--strict": strict}
    if wrong := [option for option, value in of_results.items() if value]:
        raise UsageError(f"show schedule takes no {wrong[0]}: that is for stored results")
    from parbench.cli.show_schedule import show_schedule

    show_schedule(
        name,
        stages=stages,
        microbatches=microbatches,
        costs="1:1:1" if costs is None else costs,
        svg=svg,
        plugins=plugin or (),
        as_json=as_json,
    )


def _show_results(path: Path, *, details: bool, agreement: bool, systems: bool, as_json: bool, strict: bool) -> None:
    from parbench.errors import UnreadableError, UsageError
    from parbench.store import find_records

    found, problems = find_records(path)
    # Stored by time and chance; read by what is compared, the fewest ranks first.
    records = sorted(found, key=lambda one: (one.spec.workload, one.spec.size, one.spec.world_size, one.spec.strategy))
    output.notes(problem.sentence for problem in problems)
    if problems:
        output.notes([f"{len(problems)} of {len(problems) + len(records)} records cannot be read and are left out"])
    if not records and problems:
        raise UnreadableError(f"no record in {str(path)!r} can be read")
    if not records:
        raise UsageError(f"no records in {str(path)!r}; give the folder that parbench run printed")
    from parbench.metrics import combine

    if agreement:
        from parbench.report.agreement import agreement_table

        output.document(agreement_table(records).encode())
    elif systems:
        from parbench.registry import Registry
        from parbench.report.systems import systems_table

        output.document(systems_table(records, Registry().describe("strategy")).encode())
    elif as_json:
        from parbench.document import document

        output.document(document(path, records, combine(records)))
    else:
        from parbench.report.details import record_details
        from parbench.report.terminal import sweep_table

        output.results(sweep_table(combine(records), records, width=output.console().width))
        if details or len(records) == 1:
            output.results(*(record_details(record) for record in records))
    if strict and problems:
        raise typer.Exit(UnreadableError.exit_code)
