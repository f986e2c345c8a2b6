"""Schedules are found by the name of their paper, without torch, and apart from strategies; broken ones are refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from parbench.conformance.source import source_laws
from parbench.errors import UsageError
from parbench.order import checked_order
from parbench.registry import Registry
from parbench.schedule import Schedule

NAMES = [
    "1f1b",
    "dapple-pa",
    "dapple-pb",
    "dualpipev",
    "eager-1f1b",
    "gpipe",
    "interleaved",
    "zb-h1",
    "zb-h2",
    "zbv",
]
MINE = '''"""mine: an order of its own."""

from parbench.schedule import Action, Paper, Schedule


class Mine(Schedule):
    """Does what a test wants."""

    name: str = "my-own"
    paper = Paper("Mine", "https://example.org")

    def __init__(self, note: str = "") -> None:
        self.note = note

    def actions(self, rank, ranks, microbatches):
        ORDER

    def peak_live(self, rank, ranks, microbatches):
        return microbatches
'''


def mine(folder: Path, order: str) -> Registry:
    path = folder / "mine.py"
    path.write_text(MINE.replace("ORDER", order))
    return Registry([path])


def test_names_are_the_papers_and_no_strategies() -> None:
    registry = Registry()
    assert registry.names("schedule") == NAMES
    assert not {"one_f_one_b", "1f1b", "gpipe", "zbv"} & set(registry.names("strategy"))


def test_names_are_read_without_importing() -> None:
    code = (
        "import sys; from parbench.registry import Registry; assert Registry().names('schedule');"
        "print([m for m in sys.modules if m == 'torch' or m.startswith('parbench_strategies')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_schedules_need_neither_torch_nor_numpy() -> None:
    code = """
import sys
sys.modules.update({"torch": None, "numpy": None, "pandas": None, "pyarrow": None})
from parbench.cli import main
from parbench.registry import Registry
assert all(entry.broken_reason is None and entry.note is None for entry in Registry().describe("schedule"))
sys.argv = ["parbench", "show", "schedule", "zbv", "--stages", "2", "--microbatches", "4"]
sys.exit(main())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "rank 1  ." in done.stdout


def test_a_text_becomes_a_schedule_with_its_arguments() -> None:
    registry = Registry()
    made = registry.resolve("schedule", "interleaved(v=3)")
    assert isinstance(made, Schedule)
    assert (made.name, made.chunks) == ("interleaved", 3)
    assert registry.resolve("schedule", "interleaved").chunks == 2
    assert registry.canonical("schedule", "interleaved(2)") == "interleaved"


@pytest.mark.parametrize("name", NAMES)
def test_every_schedule_obeys_the_laws_of_the_source(name: str) -> None:
    registry = Registry()
    cls = registry.load("schedule", name)
    file = Path(str(sys.modules[cls.__module__].__file__))
    assert not [one for one in source_laws(file, cls, paper=True) if one.outcome == "broken"]
    assert vars(cls)["name"] == name
    (entry,) = (one for one in registry.describe("schedule") if one.name == name)
    assert entry.paper_title
    assert entry.paper_url.startswith("https://")


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("1f1", "did you mean '1f1b'?"),
        ("one_f_one_b", "parbench list schedules"),
        ("1F1B", "1f1b"),
        ("ddp", "parbench list schedules"),
        ("interleaved(v=1)", "1f1b"),
        ("interleaved(v=0)", "2 to 64, given 0"),
        ("interleaved(v=-3)", "2 to 64, given -3"),
        ("interleaved(v=1000000000000)", "2 to 64"),
        ("interleaved(v=2.5)", "whole number"),
        ("interleaved(w=2)", "known: v"),
        ("dapple-pa(fit=0)", "at least 1, given 0"),
        ("dapple-pb(-1)", "at least 1, given -1"),
        ("gpipe(3)", "gpipe"),
        ("zbv(", "zbv"),
    ],
)
def test_what_is_no_schedule_is_refused(text: str, part: str) -> None:
    with pytest.raises(UsageError) as caught:
        Registry().resolve("schedule", text)
    assert part in str(caught.value)


def test_one_of_my_own_is_known_by_the_name_it_states(tmp_path: Path) -> None:
    order = "for kind in 'FB':\n            for k in range(microbatches):\n                yield Action(kind, k)"
    registry = mine(tmp_path, order)
    assert "my-own" in registry.names("schedule")
    assert "mine" not in registry.names("schedule")
    assert "my-own" not in registry.names("strategy")
    assert len(checked_order(registry.resolve("schedule", "my-own"), 3, 4)) == 3


@pytest.mark.parametrize(
    ("order", "part"),
    [
        ("yield Action('F', 0)", "a rank does F of micro-batch 0 in chunk 0, not F B or F I W"),
        ("yield from (Action('B', 0), Action('F', 0))", "B F of micro-batch 0"),
        ("yield from (Action('F', 0), Action('W', 0), Action('I', 0))", "F W I of micro-batch 0"),
        ("yield from (Action('F', 0), Action('B', 0), Action('B', 0))", "F B B of micro-batch 0"),
        ("yield from (Action('F', 0), Action('B', 0), Action('F', 1), Action('B', 1))", "no F of micro-batch 1"),
        ("yield from (Action('F', 0, 7), Action('B', 0, 7))", "no F of micro-batch 0 in chunk 7"),
        ("while True:\n            yield Action('F', 0)", "F F F F of micro-batch 0"),
    ],
)
def test_an_order_that_is_wrong_says_where(tmp_path: Path, order: str, part: str) -> None:
    made = mine(tmp_path, order).resolve("schedule", "my-own")
    with pytest.raises(UsageError, match="schedule my-own with 2 ranks and 1 micro-batch") as caught:
        checked_order(made, 2, 1)
    assert part in str(caught.value)


def test_an_order_in_which_ranks_wait_for_each_other_is_refused(tmp_path: Path) -> None:
    one_by_one = "for k in (range(microbatches) if rank else reversed(range(microbatches))):\n            "
    made = mine(tmp_path, one_by_one + "yield Action('F', k)\n            yield Action('B', k)").resolve(
        "schedule", "my-own"
    )
    with pytest.raises(UsageError, match="gets stuck: rank 0 waits for ever before B of micro-batch 1 in chunk 0"):
        checked_order(made, 2, 2)


def test_a_placement_that_is_none_is_refused(tmp_path: Path) -> None:
    order = "yield from (Action('F', 0), Action('B', 0))\n\n    def stage_of(self, rank, chunk, ranks):\n        "
    order += "return STAGE"
    for stage, part in (("0", "stage_of gives stages [0]"), ("ranks - 1 - rank", "place_of(1) is not where")):
        made = mine(tmp_path, order.replace("STAGE", stage)).resolve("schedule", "my-own")
        with pytest.raises(UsageError) as caught:
            checked_order(made, 2, 1)
        assert part in str(caught.value)
