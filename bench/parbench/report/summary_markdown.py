"""The Markdown of a report: the verdict, the table, the reasons, warnings and how to reproduce, for a page of text."""

from __future__ import annotations

from collections.abc import Iterator

from parbench.report.lines import below
from parbench.report.markdown import plain, table
from parbench.report.page.tables import page_table
from parbench.report.sentences import heading, verdict
from parbench.report.sources import Source
from parbench.report.words import visible

# Links would lead from wherever the text is put.
_LEFT_OUT = frozenset({"record", "trace"})


def report_markdown(source: Source) -> str:
    """Return the report as Markdown; names from files cannot break out of their place (S3)."""
    return "\n".join(_parts(source)) + "\n"


def _parts(source: Source) -> Iterator[str]:
    yield f"# {plain(heading(source))}\n"
    yield plain(" ".join(verdict(source))) + "\n"
    found = page_table(source, source.path)
    kept = [k for k, name in enumerate(found.columns) if name not in _LEFT_OUT]
    if found.rows:
        lines = [
            [" ".join((entries[k].text, *(f"[{one}]" for one in entries[k].notes))) for k in kept]
            for _, entries in found.rows
        ]
        yield table([found.columns[k] for k in kept], lines) + "\n"
    yield from (f"{number}. {plain(note)}" for number, note in enumerate(found.notes, start=1))
    comparison = source.comparison
    if comparison is not None:
        yield ""
        yield from (f"- {plain(visible(one, 1000))}" for one in (*comparison.fixed, *below(comparison)))
    told = {(w.code, w.message, w.advice) for record in source.records for w in record.warnings}
    yield from (f"- warning {plain(' '.join(map(visible, one)))}" for one in sorted(told))
