"""Fusion rules are found by name, without torch, apart from strategies, and as arguments of plug-ins."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from fusion_cases import NAMES, Profile, plan_of, rule

from parbench import bind
from parbench.cli import main
from parbench.conformance.source import source_laws
from parbench.errors import UsageError
from parbench.fusion import FusionRule, Plan
from parbench.fusion_check import planned
from parbench.grammar import parse
from parbench.registry import Registry, _Nested
from parbench.schedule import Schedule

MINE = '''"""mine: groups of its own."""

from parbench.fusion import FusionRule, Paper, cut_plan


class Mine(FusionRule):
    """Does what a test wants."""

    name = "my-own"
    paper = Paper("Mine", "https://example.org")

    def __init__(self, cuts: tuple[int, ...] = ()) -> None:
        self.cuts = cuts

    def plan(self, gradients, link, element_bytes):
        return cut_plan(gradients, self.cuts)
'''


def test_names_are_those_of_rules_and_no_strategies() -> None:
    registry = Registry()
    assert registry.names("fusion") == NAMES
    # A system may be called as the rule it is known for: what is meant follows from where it stands.
    assert set(NAMES) & {*registry.names("strategy"), *registry.names("schedule")} == {"mgwfbp"}


def test_rules_need_neither_torch_nor_numpy() -> None:
    code = """
import sys
sys.modules.update({"torch": None, "numpy": None, "pandas": None, "pyarrow": None})
from parbench.cli import main
from parbench.registry import Registry
assert "parbench_strategies" not in {name.partition(".")[0] for name in sys.modules if Registry().names("fusion")}
assert all(entry.broken_reason is None and entry.note is None for entry in Registry().describe("fusion"))
sys.argv = ["parbench", "list", "fusions", "--json"]
sys.exit(main())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [entry["name"] for entry in msgspec.json.decode(done.stdout)["fusions"]] == NAMES


def test_they_are_listed_with_their_papers(capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["parbench", "list", "fusions"])
    monkeypatch.setenv("COLUMNS", "500")
    with pytest.raises(SystemExit) as end:
        main()
    assert not end.value.code
    shown = capsys.readouterr().out
    for part in ("mb=25.0, first_mb=1.0", "(Li et al., 2020)", "https://arxiv.org/abs/1912.09268", "threshold_mb=4.0"):
        assert part in shown


@pytest.mark.parametrize("name", NAMES)
def test_every_rule_obeys_the_laws_of_the_source(name: str) -> None:
    registry = Registry()
    cls = registry.load("fusion", name)
    [entry] = [one for one in registry.describe("fusion") if one.name == name]
    findings = source_laws(Path(entry.origin), cls, paper=True)
    assert [one.outcome for one in findings] == ["holds"] * 3, findings
    assert repr(registry.resolve("fusion", name)) == name == cls.name
    assert entry.summary.startswith(f"{name} ")
    assert entry.summary.endswith(".")


def test_a_text_becomes_a_rule_with_its_arguments() -> None:
    registry = Registry()
    assert isinstance(registry.resolve("fusion", "buckets(mb=25)"), FusionRule)
    assert registry.canonical("fusion", "buckets(25)") == "buckets"
    assert registry.canonical("fusion", "buckets(first_mb=2, mb=5)") == "buckets(first_mb=2.0, mb=5.0)"
    assert registry.canonical("fusion", "slices(7)") == "slices(elements=7)"


HUGE = ("1e300", "inf", "-inf", "1000000000000000000000000000000")


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("bucket", "did you mean 'buckets'?"),
        ("per-tensor", "did you mean 'per_tensor'?"),
        ("wfbp", "did you mean 'mgwfbp'?"),
        ("1f1b", "parbench list fusions"),
        ("ddp(", "parbench list fusions"),
        ("merged(1)", "takes no unnamed values, given 1"),
        ("buckets(size=1)", "no argument of buckets named 'size'"),
        ("buckets(mb=eight)", "must be a number"),
        ("slices(elements=2.5)", "must be a whole number"),
        ("slices(elements=True)", "must be a whole number"),
        ("searched(exhaustive=1)", "must be True or False"),
        *((f"buckets(mb={wrong})", "mb is megabytes") for wrong in ("0", "-1", "1e-9", *HUGE)),
        *((f"buckets(first_mb={wrong})", "first_mb is megabytes") for wrong in ("0", "-0.5", *HUGE)),
        *((f"lazy({wrong})", "threshold_mb is megabytes") for wrong in ("0", "-1", *HUGE)),
        *((f"slices({wrong})", "whole number from 1 to") for wrong in ("0", "-7", HUGE[-1])),
        *((f"slices({wrong})", "elements must be a whole number") for wrong in ("inf", "nan", "1e300")),
        *((f"{text}=nan)", "must be a number") for text in ("buckets(mb", "lazy(threshold_mb", "searched(gain")),
        *((f"searched(groups={wrong})", "groups is a whole number from 1 to 8") for wrong in ("0", "-1", "9")),
        *((f"searched(probes={wrong})", "probes is a whole number from 1 to 1000") for wrong in ("0", "-1", "1001")),
        *((f"searched(warmup={wrong})", "warmup is a whole number from 0 to 1000") for wrong in ("-1", "10000")),
        *((f"searched(gain={wrong})", "gain is a part of the time") for wrong in ("-0.1", "1", *HUGE)),
    ],
)
def test_what_is_no_rule_is_refused(text: str, part: str) -> None:
    with pytest.raises(UsageError) as caught:
        Registry().resolve("fusion", text)
    assert part in str(caught.value)


@pytest.mark.parametrize(
    ("name", "argument"), [("buckets", "mb"), ("buckets", "first_mb"), ("lazy", "threshold_mb"), ("searched", "gain")]
)
def test_rules_made_in_python_refuse_what_is_no_number(name: str, argument: str) -> None:
    with pytest.raises(ValueError, match=f"{argument} is .*given nan"):
        Registry().load("fusion", name)(**{argument: float("nan")})


def test_one_of_my_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    registry = Registry([path])
    assert "my-own" in registry.names("fusion")
    assert all("my-own" not in registry.names(kind) for kind in ("strategy", "schedule", "workload", "probe"))
    gradients = Profile((0, 1, 2), (1, 1, 1)).gradients
    assert len(planned(registry.resolve("fusion", "my-own(cuts=[1])"), gradients, None, 4).groups) == 2
    for cuts, part in (("[2, 1]", "group 1 is empty"), ("[7]", "group 1 is empty"), ("[1, 1]", "group 1 is empty")):
        with pytest.raises(UsageError, match="fusion rule my-own is broken") as caught:
            planned(registry.resolve("fusion", f"my-own(cuts={cuts})"), gradients, None, 4)
        assert part in str(caught.value)


# ---- rules as arguments


class Engine:
    def __init__(
        self,
        fusion: FusionRule = rule("buckets"),  # noqa: B008
        schedule: Schedule | None = None,
        count: int = 1,
    ) -> None:
        self.fusion, self.count = fusion, count


def engine(text: str) -> Engine:
    made = bind.construct(Engine, parse(text), _Nested(Registry()))
    assert isinstance(made, Engine)
    return made


def test_a_rule_as_an_argument_of_a_plug_in() -> None:
    profile = Profile((0, 1, 2), (300, 300, 300), 1, 1)
    made = engine("engine(fusion=lazy(threshold_mb=0.002))")
    assert planned(made.fusion, profile.gradients, None, 4) == plan_of("lazy(threshold_mb=0.002)", profile)
    assert isinstance(engine("engine(merged, count=2)").fusion.plan(profile.gradients, None, 4), Plan)
    assert engine("engine").fusion.name == "buckets"


def test_one_spelling_of_all_that_mean_the_same() -> None:
    def spelled(text: str) -> str:
        return bind.canonical(Engine, parse(text), _Nested(Registry()))

    assert spelled("engine(fusion=buckets(mb=25))") == spelled("engine(buckets)") == "engine"
    assert spelled("engine(fusion=buckets(5))") == "engine(fusion='buckets(mb=5.0)')"
    assert spelled("engine(fusion=slices(elements=50000))") == "engine(fusion=slices)"


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("engine(fusion=optimall)", "no fusion named 'optimall'; did you mean 'optimal'?"),
        ("engine(fusion=1f1b)", "parbench list fusions"),
        ("engine(fusion=buckets(mb=0))", "mb is megabytes"),
        ("engine(fusion=3)", "fusion must be"),
    ],
)
def test_arguments_that_are_no_rules_are_refused(text: str, part: str) -> None:
    with pytest.raises(UsageError) as caught:
        engine(text)
    assert part in str(caught.value)


# ---- pictures


def drawn(text: str, plan: Plan, sizes: tuple[int, ...], alpha: int, gap: int) -> list[str]:
    """The picture by hand: whoever is free takes the ready group of the least priority."""
    row, left = "", list(plan.groups)
    while left:
        ready = [one for one in left if gap * (one.last + 1) <= len(row)]
        if not ready:
            row += "."
            continue
        chosen = min(ready, key=lambda one: one.priority)
        left.remove(chosen)
        row += "+" * alpha + "".join(str(one.gradient) * ((one.stop - one.start) // MEGA) for one in chosen.pieces)
    backward = "".join(str(i) + "-" * (gap - 1) for i in range(len(sizes)))
    what = "gradients of 3, 1, 1, 4, 1, 2 MB; + is start-up, a digit 1 MB of that gradient, . is idle"
    return [f"    {text}: {what}", f"    backward  {backward}", f"    link      {row}"]


MEGA = 1024 * 1024 // 4  # elements of a megabyte


@pytest.mark.parametrize("name", NAMES)
def test_pictures_are_what_rules_do(name: str) -> None:
    module = importlib.import_module(f"parbench_strategies.fusion.{name}")
    found = re.search(r"^    (\S+): gradients.*\n.*\n.*$", module.__doc__ or "", re.MULTILINE)
    assert found is not None
    sizes, alpha, gap = (3, 1, 1, 4, 1, 2), 3, 3
    # In units of which a megabyte takes one: 4 bytes an element.
    profile = Profile(tuple(gap * (i + 1) for i in range(6)), tuple(MEGA * size for size in sizes), alpha, 1 / 2**20)
    assert found[0].splitlines() == drawn(found[1], plan_of(found[1], profile), sizes, alpha, gap)
