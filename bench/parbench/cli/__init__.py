"""The command line: `parbench run`, `list`, `show`, `compare`, `report`, `export`, `check`, `trace` and others.

Nothing heavy is imported here: `parbench --help` answers at once, and the reading commands work without torch.
"""

from __future__ import annotations

import io
import os
import sys
from typing import Annotated

import typer

from parbench import __version__
from parbench.cli.baseline import baseline
from parbench.cli.check import EXAMPLES as CHECKED
from parbench.cli.check import check
from parbench.cli.compare import EXAMPLES as COMPARED
from parbench.cli.compare import compare
from parbench.cli.conform import conform
from parbench.cli.doctor import doctor
from parbench.cli.export import export
from parbench.cli.history import history
from parbench.cli.listing import list_plugins
from parbench.cli.network import network
from parbench.cli.report import EXAMPLES as REPORTED
from parbench.cli.report import report
from parbench.cli.run import EXAMPLES, run
from parbench.cli.show import EXAMPLES as SHOWN
from parbench.cli.show import show
from parbench.cli.trace import EXAMPLES as TRACED
from parbench.cli.trace import trace
from parbench.errors import ParbenchError

app = typer.Typer(
    name="parbench",
    help="Compare ways of parallelising neural network training: which wins on this hardware, by how much, and why.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with: parbench run",
)
app.command("run", epilog=EXAMPLES)(run)
app.command("list")(list_plugins)
app.command("show", epilog=SHOWN)(show)
app.command("compare", epilog=COMPARED)(compare)
app.command("report", epilog=REPORTED)(report)
app.command("check", epilog=CHECKED)(check)
app.add_typer(baseline, name="baseline")
app.command("history")(history)
app.command("export")(export)
app.command("doctor")(doctor)
app.command("conform")(conform)
app.add_typer(network, name="network")
app.command("trace", epilog=TRACED)(trace)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"parbench {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    return None


def _open_what_is_closed() -> None:
    """Give closed standard streams a file to go to: a pipe to a rank that took their number would be taken for one."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this one
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115


def main() -> int:
    """Run the command line.

    Returns:
        The exit code; usage errors that typer finds leave by SystemExit with code 2.
    """
    _open_what_is_closed()
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show "µ" gets its number all the same.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        app(prog_name="parbench")
    except ParbenchError as error:
        from parbench.report.words import lines

        typer.echo(f"parbench: {lines(str(error))}", err=True)
        return error.exit_code
    except Exception:
        typer.echo(
            "parbench: this is a bug in parbench or in a plug-in; please report it with the text below and the output "
            "of `parbench doctor --json`",
            err=True,
        )
        raise
    return 0
