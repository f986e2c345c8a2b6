"""The page of a report, parsed: what it says, that no text becomes markup, that any number of rows will do."""

from __future__ import annotations

import base64
import hashlib
import html.parser
import os
import re
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from report_cases import HOSTILE, a_record, around, hostile, many, of, sweep

from parbench.report.page.html import html_of
from parbench.report.page.model import page_of
from parbench.report.page.tables import link
from parbench.report.sentences import heading, verdict
from parbench.report.sources import Source

VOID = {"meta", "link", "img", "input", "br", "hr"}


@dataclass
class Parsed(html.parser.HTMLParser):
    """A document as a browser would build it, as far as these tests look."""

    tags: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)
    scripts: list[str] = field(default_factory=list)
    styles: list[str] = field(default_factory=list)
    text: str = ""
    _open: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag, f"</{tag}> closes something else"

    def handle_data(self, data: str) -> None:
        inside = self._open[-1] if self._open else ""
        if inside in ("script", "style"):
            (self.scripts if inside == "script" else self.styles).append(data)
            return
        self.text += data
        if {"td", "th"} & set(self._open):
            self.rows[-1][-1] += data

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def parsed(source: Source) -> Parsed:
    found = Parsed()
    found.feed(html_of(page_of(source, Path("results"))).decode())
    found.close()
    assert not found._open
    return found


def pictures(page: Parsed) -> list[ET.Element]:
    prefix = "data:image/svg+xml;base64,"
    return [ET.fromstring(base64.b64decode(str(one["src"]).removeprefix(prefix))) for one in page.of("img")]


@pytest.fixture(scope="module")
def page() -> Parsed:
    return parsed(of(*sweep()))


@pytest.fixture(scope="module")
def attacked() -> Parsed:
    return parsed(of(*hostile()))


# ---- what it says


def test_title_names_the_budget_and_the_kind_of_scaling(page: Parsed) -> None:
    assert "suite: fixed global batch of 64 samples per step, no scaling, 1 to 2 ranks" in page.text
    scaled = [a_record(around(8 / n), ranks=n, number=n) for n in (1, 2, 4)]
    assert heading(of(*scaled)) == "suite: fixed global batch of 64 samples per step, strong scaling over 1 to 4 ranks"


def test_verdict_is_in_plain_sentences_with_factor_and_interval() -> None:
    text = " ".join(verdict(of(*sweep())))
    found = re.search(r"On digits/small ddp at 2 ranks trains (\S+)× \((\S+)–(\S+)\) faster per step than single", text)
    assert found, text
    factor, low, high = map(float, found.groups())
    assert factor == pytest.approx(2, rel=0.01)  # 10 ms against 5 ms
    assert low <= factor <= high
    assert "sign_vote is shown and not ranked" in text
    assert "1 of 5 cells ended early and has no numbers" in text


def test_verdict_says_what_speed_costs() -> None:
    def share(value: float):
        from parbench.record import Metric

        counted = Metric(value=value * 2**20, unit="bytes", better="lower", n=1, source="counted")
        return {"peak_memory_bytes": counted}

    text = " ".join(
        verdict(
            of(
                a_record(around(10), strategy="single", ranks=1, metrics=share(1), number=1),
                a_record(around(5), metrics=share(3), number=2),
            )
        )
    )
    assert "it takes 3.00× the memory of a rank" in text


def test_the_fastest_is_not_named_where_intervals_overlap() -> None:
    text = " ".join(verdict(of(a_record(around(5), number=1), a_record(around(5.001), strategy="fsdp", number=2))))
    assert "no clear winner between ddp at 2 ranks and fsdp at 2 ranks: their intervals overlap" in text


def test_links_decide_who_wins() -> None:
    rates = {"100mbit": (40, 20), "1gbit": (4, 20)}
    records = [
        a_record(around(ms), strategy=name, network=links, number=3 * k + j)
        for k, (links, times) in enumerate(rates.items())
        for j, (name, ms) in enumerate(zip(("ddp", "topk"), times, strict=True))
    ]
    text = " ".join(verdict(of(*records)))
    # ddp falls tenfold over a decade: 40 ms x 100 Mbit/s = 20 ms x 200 Mbit/s.
    assert re.search(r"with links above 200 \(19\d to 20\d\) Mbit/s ddp wins, below topk", text), text


def test_table_has_every_cell_with_its_numbers(page: Parsed) -> None:
    head, *rows = page.rows
    columns = [name.strip() for name in head]
    cells = {row[columns.index("strategy")]: dict(zip(columns, row, strict=True)) for row in rows}
    assert list(cells) == ["single", "ddp", "fsdp", "sign_vote", "topk"]
    assert cells["ddp"]["step time"].startswith("5.00 [")
    assert cells["ddp"]["× single"] == "2.00"
    assert cells["ddp"]["throughput"] == "12.8 k samples/s"  # 64 samples in 5 ms
    assert cells["ddp"]["held-out acc."] == "96.0 %"
    assert cells["single"]["× single"] == "1"


def test_quality_is_marked_in_text_and_said_on_hover(page: Parsed) -> None:
    (row,) = [row for row in page.rows if "fsdp" in row]
    marked = next(field for field in row if field.startswith("1.00 MiB ?"))
    number = re.search(r"\[(\d+)\]", marked)
    assert number
    assert {"id": f"note-{number[1]}"} in page.of("li")
    assert "peak memory is suspect: parts differ" in page.text
    assert "peak memory is suspect: parts differ" in [one.get("title") for one in page.of("td")]


def test_failures_warnings_and_reproduction_are_said(page: Parsed) -> None:
    assert "failed: rank 1 raised ZeroDivisionError" in page.text
    assert "oversubscribed (fsdp): 8 ranks on 2 cores → use -n 2" in page.text
    assert "parbench run results/suite/20261130T100000Z-00000005/record.json" in page.text


def test_links_lead_to_records_beside_the_page(page: Parsed) -> None:
    hrefs = [one["href"] for one in page.of("a") if "record.json" in str(one.get("href"))]
    assert hrefs[0] == "./suite/20261130T100000Z-00000001/record.json"
    assert len(hrefs) == 5


def test_traces_are_linked_where_there_are_some(tmp_path: Path) -> None:
    record = a_record(around(5))
    (tmp_path / "suite" / record.id / "trace").mkdir(parents=True)
    found = Parsed()
    found.feed(html_of(page_of(of(record, folder=tmp_path), tmp_path)).decode())
    assert f"./suite/{record.id}/trace/" in [one.get("href") for one in found.of("a")]


def test_a_folder_is_never_taken_for_a_script() -> None:
    assert link(Path("javascript:alert(1)") / "a b#?", Path()) == "./javascript%3Aalert%281%29/a%20b%23%3F"
    assert link(Path(os.fsdecode(b"caf\xe9")), Path()) == "./caf%E9"  # a name that is not UTF-8


def test_figures_say_what_they_show(page: Parsed) -> None:
    images = page.of("img")
    assert [str(one["alt"]).partition(",")[0] for one in images] == ["Step times of strategies", "Throughput"]
    assert all("Xeon" in str(one["alt"]) for one in images)
    assert "Breakdown" not in page.text


# ---- security


def test_only_parbenchs_own_script_and_style_are_in_it_and_the_policy_names_them(attacked: Parsed) -> None:
    (policy,) = (one["content"] for one in attacked.of("meta") if one.get("http-equiv"))
    ((script,), (style,)) = attacked.scripts, attacked.styles
    assert len(attacked.of("script")) == len(attacked.of("style")) == 1
    for kind, text in (("script", script), ("style", style)):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in str(policy)
    assert str(policy).startswith("default-src 'none'")
    assert "unsafe" not in str(policy)


def test_attributes_of_records_never_become_markup(attacked: Parsed) -> None:
    assert all(not name.startswith("on") and name != "style" for _, attributes in attacked.tags for name in attributes)
    leads = [str(one.get("href")) for one in (*attacked.of("a"), *attacked.of("link"))]
    assert all(one.startswith(("./", "#", "data:,")) for one in leads)
    assert all(str(one["src"]).startswith("data:image/svg+xml;base64,") for one in attacked.of("img"))
    assert HOSTILE[:40] in attacked.text


def test_nothing_is_evaluated_or_steers_a_terminal(attacked: Parsed) -> None:
    assert "{{7*7}}" in attacked.text
    assert not {"\x1b", "\x07", "\u2028"} & set(attacked.text)


def test_pictures_hold_no_script_whatever_strategies_are_called(attacked: Parsed) -> None:
    found = pictures(attacked)
    assert len(found) >= 3  # rounds, rates, a breakdown
    for picture in found:
        assert not [one for one in picture.iter() if one.tag.rpartition("}")[2] in ("script", "foreignObject", "a")]
        assert not [name for one in picture.iter() for name in one.attrib if name.startswith("on")]


# ---- any number of rows


def test_nothing_measured_is_a_page_that_says_so() -> None:
    found = parsed(of())
    assert "Nothing has been measured here yet" in found.text
    assert "parbench run" in found.text
    assert not found.of("img")
    assert not found.rows


def test_one_row_needs_no_comparison() -> None:
    found = parsed(of(a_record(around(5))))
    assert len(found.rows) == 2
    assert "fewer than two strategies can be ranked" in found.text


def test_where_all_failed_it_says_why_and_draws_nothing() -> None:
    bad = [a_record(strategy=name, status="oom", reason="8 GiB wanted", number=k) for k, name in enumerate("ab")]
    found = parsed(of(*bad))
    assert "No cell was measured: all 2 ended early" in found.text
    assert "oom: 8 GiB wanted" in found.text
    assert not found.of("img")


def test_a_thousand_rows_are_all_in_the_table_and_the_page_stays_small() -> None:
    source = of(*many(60))
    whole = html_of(page_of(source, Path("results")))
    assert whole.count(b"<tr class=") == 60
    # Rows are what grows: a thousand of them and the figures, which do not grow, are under 10 MB.
    row_bytes = (whole.rindex(b"</tr>") - whole.index(b"<tbody>")) / 60
    assert len(whole) + 940 * row_bytes < 10e6


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_five_hundred_records_are_a_page_of_less_than_ten_megabytes() -> None:
    whole = html_of(page_of(of(*many(500)), Path("results")))
    assert whole.count(b"<tr class=") == 500
    assert len(whole) < 10e6
