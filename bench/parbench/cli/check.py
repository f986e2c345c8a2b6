"""`parbench check` fails where new runs are worse, or better, than a baseline by more than this machine's own noise."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parbench.cli import output

if TYPE_CHECKING:
    from parbench.checkresult import CheckResult
    from parbench.history import History

EXAMPLES = (
    "parbench check results/nightly --baseline baselines · "
    "parbench check results/nightly --baseline baselines --threshold 3% --junit check.xml · "
    "parbench check --base '../base/.venv/bin/parbench run suite.toml' --against-head 'parbench run suite.toml'"
)


_STORED, _TURNS = "New results against a baseline", "Two versions measured in turns"


def check(
    path: Annotated[
        Path | None,
        typer.Argument(metavar="[PATH]", help="New results, or a file of pytest --benchmark-json.", show_default=False),
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option(
            "--baseline",
            metavar="PATH",
            help="A baseline file, a folder of them (the newest of this machine counts), or results of earlier runs.",
            show_default=False,
            rich_help_panel=_STORED,
        ),
    ] = None,
    base: Annotated[
        str | None,
        typer.Option(
            "--base",
            metavar="CMD",
            help="Measures the old version, such as '../base/.venv/bin/parbench run suite.toml'.",
            show_default=False,
            rich_help_panel=_TURNS,
        ),
    ] = None,
    against_head: Annotated[
        str | None,
        typer.Option(
            "--against-head",
            metavar="CMD",
            help="Measures the new version; both run in turns, here and now.",
            show_default=False,
            rich_help_panel=_TURNS,
        ),
    ] = None,
    launches: Annotated[
        int, typer.Option("--launches", metavar="N", help="Runs of each command.", rich_help_panel=_TURNS)
    ] = 6,
    out: Annotated[
        Path, typer.Option("-o", "--out", metavar="DIR", help="Where their results go.", rich_help_panel=_TURNS)
    ] = Path("results"),
    threshold: Annotated[
        list[str] | None,
        typer.Option(
            "--threshold",
            metavar="[METRIC=]PERCENT",
            help="The change that counts; the noise floor of each metric, at least 2 %, unless given.",
            show_default=False,
        ),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            "--metric",
            metavar="NAME",
            help="What to check; repeat it for several. Every metric with a direction but start-up unless given.",
            show_default=False,
        ),
    ] = None,
    alpha: Annotated[
        str, typer.Option("--alpha", metavar="PERCENT", help="Accepted chance of any false alarm in one check.")
    ] = "5%",
    accept_better: Annotated[
        bool, typer.Option("--accept-better", help="Do not fail where something got better.")
    ] = False,
    junit: Annotated[
        Path | None, typer.Option("--junit", metavar="FILE", help="Write JUnit XML too.", show_default=False)
    ] = None,
    markdown: Annotated[
        Path | None,
        typer.Option(
            "--markdown",
            metavar="FILE",
            help="Append Markdown too, as to $GITHUB_STEP_SUMMARY.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 where something is inconclusive.")] = False,
) -> None:
    """Check new runs against a baseline of the same machine, or two versions against each other, measured in turns.

    Better by more than the noise of a baseline fails too: it is out of date, record a new one.
    """
    import msgspec

    from parbench.checkresult import FAILING
    from parbench.errors import UsageError
    from parbench.percent import fraction

    level = fraction(alpha, "--alpha")
    if not 0 < level <= 0.5:
        raise UsageError(f"--alpha {alpha}: give a chance above 0% and at most 50%")
    wanted = _thresholds(threshold or ())
    if path is not None and baseline is not None and base is None and against_head is None:
        result = _stored(path, baseline, wanted, metric or (), level)
    elif path is None and baseline is None and base is not None and against_head is not None:
        result = _in_turns(base, against_head, launches, out, wanted, metric or ())
        accept_better = True
    else:
        raise UsageError(
            "write parbench check PATH --baseline PATH, or parbench check --base CMD --against-head CMD to measure two "
            "versions in turns"
        )
    if as_json:
        output.document(msgspec.json.format(msgspec.json.encode(result), indent=1))
    else:
        from parbench.report.check import check_table

        output.results(check_table(result))
    if junit is not None:
        from parbench.report.check import check_junit

        output.file(junit, check_junit(result))
    if markdown is not None:
        from parbench.report.check import check_markdown

        output.file(markdown, check_markdown(result).encode(), append=True)
    failing = FAILING - {"improvement"} if accept_better else FAILING
    unsure = strict and any(one.outcome == "inconclusive" for one in result.checked)
    if unsure or any(one.outcome in failing for one in result.checked):
        raise typer.Exit(1)


def _stored(
    path: Path, baseline: Path, thresholds: dict[str, float], metrics: Sequence[str], alpha: float
) -> CheckResult:
    from parbench.baseline import read_baseline
    from parbench.checking import check as checked

    new = newest(path)
    old = read_baseline(baseline, new.environment.fingerprint)
    return checked(old, new, thresholds=thresholds, metrics=metrics, alpha=alpha)


def _in_turns(
    base: str, head: str, launches: int, out: Path, thresholds: dict[str, float], metrics: Sequence[str]
) -> CheckResult:
    from parbench.against import check_turns, measure_in_turns
    from parbench.checking import UNWATCHED
    from parbench.errors import UsageError
    from parbench.naming import new_run_id
    from parbench.verdict import MARGIN

    if set(thresholds) - {""}:
        raise UsageError("--against-head takes one --threshold for all metrics, such as --threshold 3%")
    folder = out / f"against-{new_run_id()}"
    folders = measure_in_turns(base, head, launches, folder, lambda text: typer.echo(text, err=True))
    output.notes([f"results: {folder}"])
    return check_turns(*folders, metrics=metrics, unwatched=UNWATCHED, margin=thresholds.get("", MARGIN))


def newest(path: Path) -> History:
    """Return the history under `path`, of the machine that measured last.

    Raises:
        CheckFailed: there are no records: an empty result never passes.
        UnreadableError: a record cannot be read: what is left would be judged as if it were all.
    """
    from parbench.baseline import stored_histories
    from parbench.errors import CheckFailed

    found = stored_histories(path)
    if not found:
        raise CheckFailed(f"no records in {str(path)!r}: an empty result never passes; give what parbench run printed")
    return found[-1]


def _thresholds(texts: Sequence[str]) -> dict[str, float]:
    from parbench.percent import fraction

    found = {}
    for text in texts:
        name, _, percent = text.rpartition("=")
        found[name.strip()] = fraction(percent, "--threshold")
    return found
