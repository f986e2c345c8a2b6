"""`parbench check` fails where new runs are worse, or better, than a baseline by more than this machine's own noise."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parbench.cli import output

if TYPE_CHECKING:
    from parbench.history import History

EXAMPLES = (
    "parbench check results/nightly --baseline baselines · "
    "parbench check results/nightly --baseline baselines --threshold 3% --junit check.xml"
)


def check(
    path: Annotated[
        Path,
        typer.Argument(metavar="PATH", help="New results, or a file of pytest --benchmark-json.", show_default=False),
    ],
    baseline: Annotated[
        Path,
        typer.Option(
            "--baseline",
            metavar="PATH",
            help="A baseline file, a folder of them (the newest of this machine counts), or results of earlier runs.",
            show_default=False,
        ),
    ],
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
    """Check new runs against a baseline of the same machine; torch is not needed.

    Better by more than the noise fails too: the baseline is out of date, record a new one.
    """
    import msgspec

    from parbench.baseline import read_baseline
    from parbench.checking import check as checked
    from parbench.checkresult import FAILING
    from parbench.errors import UsageError
    from parbench.percent import fraction

    level = fraction(alpha, "--alpha")
    if not 0 < level <= 0.5:
        raise UsageError(f"--alpha {alpha}: give a chance above 0% and at most 50%")
    new = newest(path)
    old = read_baseline(baseline, new.environment.fingerprint)
    result = checked(old, new, thresholds=_thresholds(threshold or ()), metrics=metric or (), alpha=level)
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
