"""`parbench doctor` says in a few lines what this machine can do, and what will be unavailable and why."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from parbench.cli import output


def doctor(
    out: Annotated[Path, typer.Option("-o", "--out", metavar="DIR", help="The folder results would go to.")] = Path(
        "results"
    ),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
) -> None:
    """Say what this machine can do, what will be unavailable and why."""
    import msgspec
    from rich.table import Table
    from rich.text import Text

    from parbench.report.words import visible

    found = [*_software(), *_machine(), *_rights(out)]
    if as_json:
        checks = [{"name": name, "value": value, "unavailable": missing} for name, value, missing in found]
        output.document(msgspec.json.encode({"checks": checks}))
        return
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, value, missing in found:
        note = Text(f"✗ {visible(missing)}" if missing else "✓", style="yellow" if missing else "green")
        table.add_row(Text(name), Text(visible(value)), note)
    output.results(table)


# One check: its name, what was found, and what is unavailable because of it (None where nothing is).
_Check = tuple[str, str, str | None]


def _software() -> Iterator[_Check]:
    from parbench import __version__
    from parbench.errors import MissingError
    from parbench.launch.place import Machine
    from parbench.registry import TORCH_MISSING

    yield "parbench", f"{__version__}, python {platform.python_version()}", None
    try:
        here = Machine.here()
    except MissingError:
        yield "torch", "missing", f"parbench run: {TORCH_MISSING}"
        return
    import torch

    yield "torch", str(torch.__version__), None
    names = ", ".join(torch.cuda.get_device_name(k) for k in range(here.gpus))
    why = "this build of torch is for CPUs only" if torch.version.cuda is None else "torch finds no GPU"
    yield "GPUs", names or "none", None if here.gpus else f"--device cuda: {why}"
    yield "gloo", "yes" if here.gloo else "no", None if here.gloo else "runs on CPU: this build of torch has no gloo"
    reason = "this build of torch has no NCCL" if not here.nccl else "NCCL needs a GPU"
    usable = here.nccl and here.gpus > 0
    yield "nccl", "yes" if usable else "no", None if usable else f"--backend nccl: {reason}"


def _machine() -> Iterator[_Check]:
    import psutil

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    few = f"true numbers for more than {cores} ranks on the CPU: they would share cores" if cores < 8 else None
    yield "cores", str(cores), few
    memory = psutil.virtual_memory()
    yield "memory", f"{memory.available / 2**30:.1f} of {memory.total / 2**30:.1f} GiB free", None


def _rights(out: Path) -> Iterator[_Check]:
    import shutil

    from parbench import rapl
    from parbench.nvml import Nvml
    from parbench.requirements import powercap

    root, ip = hasattr(os, "geteuid") and os.geteuid() == 0, shutil.which("ip") is not None
    lacking = " and ".join(what for what, there in (("root", root), ("the program ip (iproute2)", ip)) if not there)
    value = f"root: {'yes' if root else 'no'}, ip netns: {'yes' if ip else 'no'}"
    yield "network lab", value, f"slowed-down links: they need {lacking}" if lacking else None
    nvml = Nvml.open()
    if isinstance(nvml, str):
        yield "NVML", "no", f"power and energy of GPUs: {nvml}"
    else:
        yield "NVML", f"{len(nvml.boards)} boards", None
    packages = rapl.packages(powercap())
    if isinstance(packages, str):
        yield "RAPL", "no", f"energy of CPUs: {packages}"
    else:
        yield "RAPL", ", ".join(one.name for one in packages), None
    nearest = next(path for path in (out.absolute(), *out.absolute().parents) if path.exists())
    writable = nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)
    yield "results", str(out), None if writable else f"storing results: {nearest} cannot be written to; use -o DIR"
