"""What comes with parbench obeys its laws at 2 ranks; make conformance runs the other world sizes."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from parbench import Session, UsageError
from parbench.conformance import Finding, Verdict, check_probe, check_strategy, check_workload
from parbench.conformance.findings import broken
from parbench.conformance.source import source_laws
from parbench.conformance.strategies import strategy_laws
from parbench.facts import StrategyFacts
from parbench.registry import Registry

REGISTRY = Registry()


@pytest.fixture(scope="module")
def session():
    with Session(world_size=2) as ranks:
        yield ranks


@pytest.mark.parametrize("strategy", REGISTRY.names("strategy"))
def test_strategy(session, strategy):
    verdict = check_strategy(strategy, 2, session=session)
    assert verdict.passed, verdict.broken
    print(strategy, verdict.seconds)


@pytest.mark.parametrize("workload", [name for name in REGISTRY.names("workload") if name not in ("images", "hf")])
def test_workload(workload):
    verdict = check_workload(workload)
    assert verdict.passed, verdict.broken


@pytest.mark.parametrize("probe", REGISTRY.names("probe"))
def test_probe(probe):
    verdict = check_probe(probe)
    assert verdict.passed, verdict.broken
    cost = verdict.seconds.get("overhead per step")  # one that cannot measure here, and says why, has none
    assert cost is None or cost > 0


def test_no_law_is_left_out_for_the_strategies_that_come_with_parbench(session):
    """Whatever is 'not applicable' to a plain all-reduce would let every law be dodged."""
    verdict = check_strategy("no_overlap", 2, session=session)
    assert [f.law for f in verdict.findings if f.outcome == "not applicable"] == []
    assert len(verdict.findings) == 19


# ---- laws of the source


def laws_of(tmp_path, text, name="mine"):
    file = tmp_path / f"{name}.py"
    file.write_text(text)
    registry = Registry([file])
    return {f.law: f for f in source_laws(file, registry.load("strategy", name), paper=True)}


SOURCE = '''"""A strategy of my own."""
{imports}
from parbench.api import Paper, Strategy


class Mine(Strategy):
    {doc}
    paper = Paper("{title}", "{url}")
    agrees = "closely"

    def wrap(self, job, ctx):
        raise NotImplementedError
'''
GOOD = {
    "imports": "import torch",
    "doc": '"""Trains as I like it."""',
    "title": "Mine (2026)",
    "url": "https://example.org",
}


@pytest.mark.parametrize(
    ("change", "law"),
    [
        ({}, None),
        ({"imports": "import parbench.session"}, "imports only the contract"),
        ({"imports": "from parbench import store"}, "imports only the contract"),
        ({"imports": "from parbench_strategies.replicated import ddp"}, "imports only the contract"),
        # Of another family: what it exports, by name, and nothing else.
        ({"imports": "from parbench_strategies.tensor import CutLayers, Plan"}, None),
        ({"imports": "from parbench_strategies.tensor import CutLayers as C"}, None),
        ({"imports": "from parbench_strategies.tensor._plan import Plan"}, "imports only the contract"),
        ({"imports": "from parbench_strategies.tensor import CutLayers, _plan"}, "imports only the contract"),
        ({"imports": "from parbench_strategies.tensor import tensor"}, "imports only the contract"),
        ({"imports": "from parbench_strategies.tensor import *"}, "imports only the contract"),
        ({"imports": "import parbench_strategies.tensor"}, "imports only the contract"),
        ({"imports": "from parbench_strategies import tensor"}, "imports only the contract"),
        ({"imports": "import pandas"}, "imports only the contract"),
        ({"doc": '"""mine"""'}, "is defined in one sentence"),
        ({"doc": "x = 1"}, "is defined in one sentence"),
        ({"title": ""}, "names its paper"),
        ({"url": "somewhere"}, "names its paper"),
    ],
)
def test_source_laws(tmp_path, change, law):
    found = laws_of(tmp_path, SOURCE.format(**GOOD | change))
    assert [name for name, finding in found.items() if finding.outcome == "broken"] == ([law] if law else [])


def test_strategies_of_parbench_import_nothing_else():
    """Independent of the law: a plain search of every import in every strategy."""
    import parbench_strategies

    for file in Path(parbench_strategies.__path__[0]).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom):
                top = (node.module or "").partition(".")[0]
                contract = ("parbench.api", "parbench.errors", "parbench.schedule", "parbench.paper", "parbench.fusion")
                allowed = node.module in contract or top in ("torch", "parbench_strategies")
                assert allowed or top in sys.stdlib_module_names, f"{file}: {node.module}"


def test_families_import_of_each_other_only_what_is_exported():
    """Independent of the law, and of all modules, also those that are no plug-ins."""
    import parbench_strategies

    root, seen = Path(parbench_strategies.__path__[0]), 0
    for file in root.rglob("*.py"):
        own = file.relative_to(root).parts[0]
        for node in ast.walk(ast.parse(file.read_text())):
            parts = (node.module or "").split(".") if isinstance(node, ast.ImportFrom) else []
            if parts[:1] == ["parbench_strategies"] and len(parts) > 1 and parts[1] != own:
                family = importlib.import_module(".".join(parts))
                assert len(parts) == 2, f"{file}: {node.module}"
                assert {alias.name for alias in node.names} <= set(family.__all__), f"{file}: {node.module}"
                seen += 1
    assert seen


@pytest.mark.parametrize("family", ["tensor", "pipelined", "sharded"])
def test_what_a_family_exports_is_there_and_nothing_else_is(family):
    package = importlib.import_module(f"parbench_strategies.{family}")
    assert all(getattr(package, name) is not None for name in package.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        package.nothing  # noqa: B018


def test_schedules_are_read_without_torch():
    code = "import sys, parbench_strategies.pipelined.schedules.gpipe; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# ---- laws judged on made-up facts


def facts(**changes):
    values = {
        "agrees": "closely",
        "repeats": "bitwise",
        "learning": (2.0,) + (0.5,) * 9,
        "first": (1.0, 0.5),
        "second": (1.0, 0.5),
        "beside": (1.0, 0.5),
        "closed_form": {},
    }
    return StrategyFacts(**values | changes)


def broken_laws(*ranks):
    return {finding.law for finding in strategy_laws(ranks) if finding.outcome == "broken"}


def test_facts_that_break_nothing():
    assert broken_laws(facts(), facts()) == set()


def test_a_reason_must_be_a_sentence():
    assert broken_laws(facts(unsupported="no")) == {"runs, or says why not"}
    assert broken_laws(facts(unsupported="it needs a GPU, and there is none")) == set()


def test_ranks_must_agree_on_whether_they_run():
    assert broken_laws(facts(), facts(unsupported="it needs a GPU, and there is none")) == {"runs, or says why not"}


def test_a_loss_that_does_not_fall():
    assert broken_laws(facts(learning=(2.0,) + (1.2,) * 9)) == {"learns what a linear model can"}
    assert broken_laws(facts(learning=(2.0, None))) == {"learns what a linear model can"}


def test_repetition_is_as_tight_as_declared():
    off = {"second": (1.0, 0.5 + 5e-7), "beside": (1.0, 0.5)}
    assert broken_laws(facts(**off)) == {"same seed, same losses"}
    assert broken_laws(facts(repeats="closely", **off)) == set()
    assert broken_laws(facts(repeats="closely", second=(1.0, 0.6))) == {"same seed, same losses"}
    assert broken_laws(facts(repeats="never", second=(1.0, 0.6))) == set()


def test_an_operator_the_counter_cannot_read_is_no_pass():
    assert broken_laws(facts(unreadable=("c10d::new",))) == {"sends the bytes it says"}


def test_a_rank_that_sends_what_only_another_declared():
    sent = {"broadcast": 8.0}
    assert broken_laws(facts(counted=sent, closed_form=sent), facts(counted=sent)) == {"sends the bytes it says"}


def test_an_unknown_strategy_is_refused_before_ranks_start():
    with pytest.raises(UsageError, match="did you mean 'ddp'"):
        check_strategy("dddp", 2)


def test_verdict():
    verdict = Verdict(kind="strategy", name="x", world_size=2, findings=(Finding(law="a", outcome="holds"),))
    assert verdict.passed
    assert not Verdict(kind="strategy", name="x", world_size=2, findings=(broken("a", "b"),)).passed
