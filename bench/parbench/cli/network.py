"""`parbench network` measures what links and collectives cost: `bench`, `calibrate`, `list`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from parbench.cli import output

network = typer.Typer(
    help="Measure what links and collectives cost: bench, calibrate, list.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    epilog="parbench network bench --ranks 4 --op all_reduce · parbench network calibrate --network 100mbit",
)

_Ops = Annotated[
    list[str] | None,
    typer.Option(
        "--op", metavar="OP", help="Which collective; repeatable. All of them by default.", show_default=False
    ),
]
_Algorithms = Annotated[
    list[str] | None,
    typer.Option(
        "--algorithm",
        metavar="native|ring",
        help="The backend's own, or parbench's plain-socket ring; repeatable. Both by default.",
        show_default=False,
    ),
]
_RanksOption = Annotated[
    list[int] | None,
    typer.Option("-n", "--ranks", metavar="N", min=2, help="Ranks in the group; repeatable.", show_default="2"),
]
_Min = Annotated[str, typer.Option("--min", metavar="SIZE", help="Smallest buffer of a rank, such as 8 or 4KiB.")]
_Max = Annotated[str, typer.Option("--max", metavar="SIZE", help="Largest buffer of a rank, such as 64MiB.")]
_Factor = Annotated[float, typer.Option("--factor", metavar="F", help="Each size over the one before.")]
_Dtype = Annotated[
    str, typer.Option("--dtype", metavar="TYPE", help="float32, float64, float16, bfloat16, int32, int64.")
]
_WarmUp = Annotated[int, typer.Option("--warm-up", metavar="N", min=0, help="Iterations that are not timed.")]
_Iterations = Annotated[int, typer.Option("--iterations", metavar="N", min=1, help="Timed iterations, back to back.")]
_Budget = Annotated[
    float,
    typer.Option(
        "--budget", metavar="S", min=0.1, help="Seconds for a size; where it takes longer it gets fewer iterations."
    ),
]
_Network = Annotated[
    str | None,
    typer.Option(
        "--network",
        metavar="NETWORK",
        help="Links between ranks: 100mbit, 'rate=312mbit alpha=1ms', a name (parbench network list).",
        show_default="as they are",
    ),
]
_Device = Annotated[str, typer.Option("--device", metavar="auto|cpu|cuda", help="Where tensors are.")]
_Backend = Annotated[str, typer.Option("--backend", metavar="auto|gloo|nccl", help="What moves them natively.")]
_Timeout = Annotated[
    float, typer.Option("--timeout", metavar="S", min=1, help="Seconds without progress that are a hang.")
]
_AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
_Out = Annotated[Path, typer.Option("-o", "--out", metavar="DIR", help="The folder calibrations are kept under.")]


@network.command("bench")
def bench(
    op: _Ops = None,
    algorithm: _Algorithms = None,
    ranks: _RanksOption = None,
    smallest: _Min = "8",
    largest: _Max = "64MiB",
    factor: _Factor = 4,
    dtype: _Dtype = "float32",
    warm_up: _WarmUp = 5,
    iterations: _Iterations = 20,
    budget: _Budget = 10,
    links: _Network = None,
    device: _Device = "auto",
    backend: _Backend = "auto",
    timeout: _Timeout = 120,
    csv: Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="Write a CSV file too.")] = None,
    as_json: _AsJson = False,
) -> None:
    """Time collectives by size as nccl-tests do, every result checked; exits with 1 if one is wrong.

    Bytes are those of the whole buffer of one rank. Bus bandwidth compares with one link whatever the number of ranks.
    """
    from parbench.cli.network_files import check_writable, write
    from parbench.cli.network_run import Asked, measure
    from parbench.cli.network_tables import bench_table
    from parbench.network.bench_output import csv_of, json_of
    from parbench.network.collectives import OPS

    asked = Asked(op or OPS, algorithm, ranks or [2], smallest, largest, factor, dtype, warm_up, iterations, links)
    check_writable(csv)
    done = measure(asked.wanted(device, backend), asked.links, device, backend, timeout, budget)
    facts = {"backend": done.backend, "network": done.link}
    if as_json:
        output.document(json_of(done.measured, {**facts, "chosen": done.chosen}, done.notes))
    else:
        output.results(*bench_table(done.measured, facts))
    output.notes(done.notes)
    write(csv, csv_of(done.measured, facts))
    if code := done.exit_code or int(any(one.wrong for one in done.measured)):
        raise typer.Exit(code)


@network.command("calibrate")
def calibrate(
    op: _Ops = None,
    algorithm: _Algorithms = None,
    ranks: _RanksOption = None,
    smallest: _Min = "8",
    largest: _Max = "8MiB",
    factor: _Factor = 2,
    dtype: _Dtype = "float32",
    warm_up: _WarmUp = 5,
    iterations: _Iterations = 20,
    budget: _Budget = 10,
    links: _Network = None,
    device: _Device = "auto",
    backend: _Backend = "auto",
    timeout: _Timeout = 120,
    out: _Out = Path("results"),
    as_json: _AsJson = False,
) -> None:
    """Fit what collectives cost on a link: alpha to start, beta per byte, gamma per byte added.

    Two sizes in three are fitted, the others give the error. Stored by machine and link.
    """
    import msgspec

    from parbench.cli.network_files import check_folder
    from parbench.cli.network_run import Asked, calibrated, measure
    from parbench.cli.network_tables import calibration_table

    ops = op or ["all_reduce", "reduce_scatter", "all_gather"]
    asked = Asked(ops, algorithm, ranks or [2], smallest, largest, factor, dtype, warm_up, iterations, links)
    asked.check_sizes()
    check_folder(out)
    done = measure(asked.wanted(device, backend), asked.links, device, backend, timeout, budget)
    output.notes(done.notes)
    if code := done.exit_code or int(any(one.wrong for one in done.measured)):
        output.notes(["nothing was fitted or stored"])
        raise typer.Exit(code)
    found = calibrated(done)
    if as_json:
        path = found.path(out)
        output.document(msgspec.json.encode({"path": str(path), "calibration": found}))
    else:
        output.results(*calibration_table(found))
    output.notes([f"stored as {found.store(out)}"])


@network.command("list")
def list_networks(out: _Out = Path("results"), as_json: _AsJson = False) -> None:
    """List links known by name, and what was calibrated."""
    import msgspec

    from parbench.cli.network_tables import calibrations_table, presets_table
    from parbench.network.calibration import Calibration, stored
    from parbench.network.presets import PRESETS

    found = list(stored(out))
    readable = [(path, one) for path, one in found if isinstance(one, Calibration)]
    problems = [str(one) for _, one in found if not isinstance(one, Calibration)]
    if as_json:
        fields = ("title", "rate_bits_per_s", "scale")
        presets = [{"name": name} | {key: getattr(one, key) for key in fields} for name, one in PRESETS.items()]
        kept = [{"path": str(path), "calibration": one} for path, one in readable]
        output.document(msgspec.json.encode({"presets": presets, "calibrations": kept, "unreadable": problems}))
    else:
        output.results(presets_table(PRESETS), calibrations_table(readable))
    output.notes(problems)
