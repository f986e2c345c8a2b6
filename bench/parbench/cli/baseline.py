"""`parbench baseline` keeps what repeated runs of unchanged code measured, as the noise of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from parbench.cli import output
from parbench.cli.check import newest

baseline = typer.Typer(
    name="baseline", help="Record and show baselines: what unchanged code measures.", no_args_is_help=True
)


@baseline.command("record")
def record(
    path: Annotated[
        Path,
        typer.Argument(metavar="PATH", help="Results of several runs of one suite and one commit.", show_default=False),
    ],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="DIR", help="Folder of baselines.")] = Path("baselines"),
) -> None:
    """Record the runs under PATH as the baseline of this machine; older baselines stay."""
    from parbench.baseline import write_baseline
    from parbench.errors import CheckFailed
    from parbench.noise import FEWEST_RUNS

    history = newest(path)
    if not any(cell.passed for cell in history.cells.values()):
        raise CheckFailed(f"no run in {str(path)!r} passed: a baseline of failures would let anything pass")
    runs, commits = len(history.runs), {commit for commit in history.commits if commit}
    if runs < FEWEST_RUNS:
        output.notes(
            [f"{runs} runs: timings are inconclusive until there are {FEWEST_RUNS}; ten show changes of a few per cent"]
        )
    if len(commits) > 1:
        output.notes([f"the runs are of {len(commits)} commits: what changed between them counts as noise"])
    typer.echo(write_baseline(history, out))


@baseline.command("show")
def show(
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="A baseline file or results of several runs.", show_default=False)
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
) -> None:
    """Show what a baseline holds, with the noise floor of every metric."""
    import msgspec

    from parbench.report.check import baseline_table

    history = newest(path)
    if as_json:
        output.document(msgspec.json.format(msgspec.json.encode(history), indent=1))
        return
    output.results(baseline_table(history))
