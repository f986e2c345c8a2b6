"""--workload package.module:function: the user's own model without a class, imported only when it is named."""

import json
import sys

import pytest

from parbench import UsageError
from parbench.errors import MissingError
from parbench.function_workload import workload_class
from parbench.registry import Registry

SOURCE = '''"""A model of my own."""

import torch
import torch.nn.functional as F
from torch import nn

from parbench.api import Batch, Job


def tiny(size, seed, device, global_batch_size):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2)).to(device)

    def batch(step):
        made = torch.Generator().manual_seed(seed + step)
        inputs = torch.randn(global_batch_size, 4, generator=made)
        return Batch(inputs=inputs, targets=(inputs.sum(1) > 0).long())

    return Job(
        model=model,
        loss=lambda outputs, share: F.cross_entropy(outputs, share.targets, reduction="sum"),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        batch=batch,
        unit="samples",
        units_per_sample=1,
        blocks=("0", "1"),
    )


tiny.default_batch_size = 12


def nothing(size, seed, device, global_batch_size):
    return None
'''


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "mymodels").mkdir()
    (tmp_path / "mymodels" / "__init__.py").write_text("")
    (tmp_path / "mymodels" / "small.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("mymodels")]:
        del sys.modules[name]


def test_a_function_is_run_stored_and_repeated_only_with_the_same_flag(folder, start):
    named = ("--workload", "mymodels.small:tiny")
    few = ("--size", "smoke", "-s", "single", "-s", "ddp", "--steps", "3", "--warmup", "1", "--json")
    done = start(*named, *few).wait()
    assert done.code == 0, done.err
    assert {run["spec"]["workload"] for run in done.document["runs"]} == {"mymodels.small.tiny"}
    assert {run["spec"]["global_batch_size"] for run in done.document["runs"]} == {12}
    assert all(run["agreement"]["passed"] for run in done.document["runs"])
    record = next(done.results.rglob("record.json"))
    refused = start(record).wait()
    assert refused.code == 2
    assert "--workload package.module:function" in refused.err
    assert json.loads(start(record, *named, "--dry-run", "--json").wait().out)


@pytest.mark.parametrize(
    ("text", "error", "why"),
    [
        ("mymodels.small:absent", UsageError, "has no function 'absent'"),
        ("mymodels.absent:tiny", MissingError, "mymodels.absent, which is not found"),
    ],
)
def test_what_is_not_there_is_said(folder, text, error, why):
    registry = Registry([text])
    with pytest.raises(error, match=why):
        registry.resolve("workload", text.replace(":", "."))


def test_a_function_may_count_tokens(folder):
    with (folder / "mymodels" / "small.py").open("a") as file:
        file.write("tiny.unit = 'tokens'\n")
    assert workload_class("mymodels.small", "tiny").unit == "tokens"


def test_what_is_no_job_is_said(folder):
    import torch

    one = Registry(["mymodels.small:nothing"]).resolve("workload", "mymodels.small.nothing")
    with pytest.raises(UsageError, match=r"must return a parbench\.api\.Job"):
        one.build("smoke", 0, torch.device("cpu"), 2)


def test_a_name_that_is_no_function_is_refused(start):
    done = start("--workload", "os.system", "-s", "single").wait()
    assert done.code == 2
    assert "package.module:function" in done.err


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("sizes", {"smoke": 1}, r"has sizes = \{'smoke': 1\}; it is a list of names"),
        ("sizes", (), r"has sizes = \(\); it is a list of names"),
        ("default_batch_size", "12", "has default_batch_size = '12'; it is a whole number"),
        ("unit", "words", "has unit = 'words'; it is 'samples' or 'tokens'"),
        ("default_batch_size", 0, "has default_batch_size = 0; it is a whole number, at least 1"),
    ],
)
def test_attributes_of_other_types_are_refused_and_not_replaced(folder, name, value, said):
    with (folder / "mymodels" / "small.py").open("a") as file:
        file.write(f"tiny.{name} = {value!r}\n")
    with pytest.raises(UsageError, match=said):
        workload_class("mymodels.small", "tiny")
