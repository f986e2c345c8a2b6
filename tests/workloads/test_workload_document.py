"""docs/workloads.md is what its command prints."""

import re
from pathlib import Path

import pytest

from parbench.registry import Registry
from workload_document import document

PAGE = Path(__file__).parents[2] / "docs" / "workloads.md"


def test_every_workload_and_size_is_listed_and_published_sizes_are_marked():
    text = PAGE.read_text(encoding="utf-8")
    listed = re.findall(r"^\| `([\w-]+)` \| ([\w-]+) \| ([\d,]+)( \*\*P\*\*)? \|", text, re.MULTILINE)
    registry = Registry()
    expected = [
        (name, size)
        for name in registry.names("workload")
        if name not in ("images", "hf")
        for size in registry.load("workload", name).sizes
    ]
    assert [(name, size) for name, size, _, _ in listed] == expected
    for name, size, count, mark in listed:
        published = registry.load("workload", name).parameters
        assert bool(mark) == (size in published)
        assert not mark or int(count.replace(",", "")) == published[size]


@pytest.mark.nightly
def test_the_page_is_what_the_command_prints():
    assert document() == PAGE.read_text(encoding="utf-8")
