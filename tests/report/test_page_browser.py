"""The page in a real browser: it opens from disk, sorts, filters, prints, is usable by everybody, and runs nothing."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from report_cases import hostile, of, sweep

from parbench.report.writing import write_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
# What the Web Content Accessibility Guidelines ask for at level AA.
LEVEL_AA = {"runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]}}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright drives the browser: pip install playwright"
    )
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip("no Chromium is installed (on Debian: apt-get install chromium)")
    with playwright.sync_playwright() as started:
        launched = started.chromium.launch(executable_path=found)
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    return write_page(of(*sweep(), folder=folder), folder)


@pytest.fixture
def opened(browser: Browser, written: Path) -> Iterator[Page]:
    page = browser.new_page()
    page.goto(written.as_uri())
    yield page
    page.close()


def column(page: Page, name: str) -> list[str]:
    """Return what a column shows, from the top."""
    headings = [text.strip(" ↕↑↓") for text in page.locator("#cells th").all_inner_texts()]
    at = headings.index(name) + 1
    return page.locator(f"#cells tbody tr:not([hidden]) td:nth-child({at})").all_inner_texts()


def test_opens_from_disk_without_an_error_or_a_request(browser: Browser, written: Path) -> None:
    page = browser.new_page()
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(written.as_uri())
    page.wait_for_timeout(200)
    assert said == []
    assert [url for url in asked if not url.startswith("data:")] == [written.as_uri()]
    loaded = page.evaluate("Array.from(document.images, one => one.complete && one.naturalWidth > 100)")
    assert len(loaded) == 2
    assert all(loaded)
    page.close()


def test_sorts_by_value_and_leaves_what_was_not_measured_at_the_end(opened: Page) -> None:
    heading = opened.get_by_role("button", name="step time")
    heading.click()
    assert column(opened, "strategy") == ["sign_vote", "ddp", "single", "fsdp", "topk"]
    assert opened.locator("th[aria-sort=ascending]").inner_text().startswith("step time")
    heading.click()
    assert column(opened, "strategy") == ["fsdp", "single", "ddp", "sign_vote", "topk"]


def test_sorts_by_keyboard(opened: Page) -> None:
    opened.locator("#filter").focus()
    for _ in range(3):  # the scrolling region, strategy, ranks
        opened.keyboard.press("Tab")
    opened.keyboard.press("Enter")
    assert column(opened, "ranks")[0] == "1"
    assert column(opened, "strategy")[0] == "single"


def test_filters_by_words_and_says_how_many_are_left(opened: Page) -> None:
    opened.get_by_label("Show rows with").fill("DDP complete")
    assert column(opened, "strategy") == ["ddp"]
    assert opened.get_by_role("status").inner_text() == "1 of 5 rows"
    opened.get_by_label("Show rows with").fill("")
    assert len(column(opened, "strategy")) == 5


def test_prints_the_numbers_and_not_the_controls(opened: Page) -> None:
    opened.emulate_media(media="print")
    assert not opened.locator("#filter").is_visible()
    assert opened.locator("#cells").is_visible()
    assert opened.pdf().startswith(b"%PDF")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_passes_axe_at_level_aa(browser: Browser, written: Path, scheme: str) -> None:
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="axe-core comes with axe-playwright-python"
    )
    page = browser.new_page(color_scheme=scheme)
    page.goto(written.as_uri())
    found = axe.Axe().run(page, options=LEVEL_AA)
    told = [(one["id"], [node["html"][:120] for node in one["nodes"][:3]]) for one in found.response["violations"]]
    assert told == []
    assert len(found.response["passes"]) > 10  # it has looked
    page.close()


@pytest.mark.parametrize("wide", [360, 768])
def test_only_the_table_scrolls_sideways_on_a_small_screen(browser: Browser, written: Path, wide: int) -> None:
    page = browser.new_page(viewport={"width": wide, "height": 740})
    page.goto(written.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") == wide
    page.close()


def test_a_page_of_attacks_runs_nothing(browser: Browser, tmp_path: Path) -> None:
    page = browser.new_page()
    dialogs: list[str] = []
    said: list[str] = []
    page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    page.on("console", lambda message: said.append(message.text))
    page.goto(write_page(of(*hostile(), folder=tmp_path), tmp_path).as_uri())
    page.get_by_role("button", name="strategy").click()
    page.wait_for_timeout(200)
    assert page.evaluate("window.owned") is None
    assert dialogs == said == []
    assert page.locator("script").count() == 1
    page.close()
