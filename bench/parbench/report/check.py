"""The check report: what failed on top, what passed counted, for a terminal, as Markdown and as JUnit XML."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterator
from statistics import median

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from parbench.checkresult import FAILING, Checked, CheckResult
from parbench.history import History
from parbench.noise import FEWEST_RUNS, noise_floor
from parbench.record import Metric
from parbench.report.checklines import HEADINGS, sentence, summary, texts_of
from parbench.report.lines import differing
from parbench.report.markdown import plain, table
from parbench.report.words import DASH, amount, visible

_STYLES = {"improvement": "green", "passed": "dim", "inconclusive": "yellow"}


def check_table(result: CheckResult) -> RenderableType:
    """Lay a check out for a terminal; what passed is counted only."""
    shown = [one for one in result.checked if one.outcome != "passed"]
    parts: list[RenderableType] = [Text(summary(result), style="bold")]
    parts += [Text(f"differs: {line}") for line in differing(result.differs)]
    reasons = list(dict.fromkeys(texts_of(one)[-1] for one in shown if one.why))
    if shown:
        grid = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
        for name in HEADINGS[:-1]:
            grid.add_column(Text(name), overflow="fold", no_wrap=name in ("outcome", "metric", "change [interval]"))
        for one in shown:
            *texts, why = texts_of(one)
            texts[0] += f" [{reasons.index(why) + 1}]" if why else ""
            grid.add_row(*map(Text, texts), style=_STYLES.get(one.outcome, "red"))
        parts.append(grid)
        parts += [Text(f"[{k}] {why}") for k, why in enumerate(reasons, start=1)]
    return Group(*parts, *(Text(visible(note, 500), style="dim") for note in result.notes))


def check_markdown(result: CheckResult) -> str:
    """Return the check as Markdown, for `$GITHUB_STEP_SUMMARY` or a pull request."""
    return "\n".join(_markdown(result)) + "\n"


def _markdown(result: CheckResult) -> Iterator[str]:
    yield f"### {plain(summary(result))}\n"
    yield from (f"- differs: {plain(line)}" for line in differing(result.differs))
    failing = [one for one in result.checked if one.outcome in FAILING]
    others = [one for one in result.checked if one.outcome not in FAILING]
    if failing:
        yield "\n" + table(HEADINGS, [texts_of(one) for one in failing])
    yield ""
    yield from (f"- {plain(visible(note, 500))}" for note in result.notes)
    if others:
        rows = table(HEADINGS, [texts_of(one) for one in others])
        yield f"\n<details><summary>{len(others)} not failed</summary>\n\n{rows}\n\n</details>"


def check_junit(result: CheckResult) -> bytes:
    """Return the check as JUnit XML: a test case per cell and metric, inconclusive ones skipped."""
    failing = sum(one.outcome in FAILING for one in result.checked)
    unsure = sum(one.outcome == "inconclusive" for one in result.checked)
    counts = {"tests": str(len(result.checked)), "failures": str(failing), "errors": "0", "skipped": str(unsure)}
    suites = ET.Element("testsuites", {"name": "parbench check", **counts})
    suite = ET.SubElement(suites, "testsuite", {"name": "parbench check", **counts})
    for one in result.checked:
        _case(suite, one)
    ET.indent(suites)
    data: bytes = ET.tostring(suites, encoding="utf-8", xml_declaration=True)
    return data + b"\n"


def _case(suite: ET.Element, one: Checked) -> None:
    name = visible(one.metric or "cell", 40)
    case = ET.SubElement(suite, "testcase", {"classname": visible(one.cell, 80), "name": name, "time": "0"})
    if one.outcome in FAILING:
        ET.SubElement(case, "failure", {"type": one.outcome, "message": sentence(one)})
    elif one.outcome == "inconclusive":
        ET.SubElement(case, "skipped", {"message": sentence(one)})
    else:
        ET.SubElement(case, "system-out").text = sentence(one)


def baseline_table(history: History) -> RenderableType:
    """Lay out what a baseline holds: runs, values and the noise floor of every metric."""
    facts = history.environment.facts
    title = (
        f"{visible(history.path)}: {len(history.runs)} runs on {visible(facts.get('cpu') or 'unknown machine')}, "
        f"fingerprint {visible(history.environment.fingerprint)}"
    )
    grid = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for name in ("cell", "passed", "metric", "median", "runs", "noise floor"):
        grid.add_column(Text(name), overflow="fold", justify="right" if name in ("passed", "runs") else "left")
    for cell in history.cells.values():
        passed = f"{cell.passed}/{cell.passed + cell.failed}"
        for k, (name, series) in enumerate((n, s) for n, s in cell.series.items() if s.values):
            middle = median(series.values)
            floor = noise_floor(series.values)
            constant = len(series.values) > 1 and len(set(series.values)) == 1
            told = "does not vary" if constant else f"needs {FEWEST_RUNS} runs"
            value = amount(Metric(value=middle, unit=series.unit, better=series.better))
            of_cell = (visible(cell.name, 80), passed) if k == 0 else ("", "")
            texts = (*of_cell, visible(name, 40), value, str(len(series.values)))
            grid.add_row(*map(Text, (*texts, told if floor is None else f"{100 * floor:.1f} %" if floor else DASH)))
    return Group(Text(title, style="bold"), grid)
