"""`parbench run` measures a suite: from a file, a workload's name, a stored record, or the default one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from parbench.cli import run_options as options
from parbench.cli.request import changes_of, named, suite_of
from parbench.cli.running import start

EXAMPLES = (
    "[bold]Examples[/bold]\n\n"
    "parbench run  (the default suite: under a minute)\n\n"
    "parbench run digits -s single -s ddp -n 2 --steps 50\n\n"
    "parbench run text -s 'ddp(bucket_cap_mb=1)' -s ddp --repeats 3\n\n"
    "parbench run suite.toml --set run.steps=200 --dry-run\n\n"
    "parbench run results/default/RUN/record.json  (the same cell again)\n\n"
    "Exit codes: 0 ok, 2 refused, 3 something is missing, 4 a rank failed, 5 no progress, 6 not stored, 7 unreadable."
)

_WHAT = "What is computed"
_RESULTS = "Results"

_Text = str | None


def run(
    what: Annotated[
        _Text,
        typer.Argument(
            metavar="[SUITE.toml | WORKLOAD | record.json]",
            help="A suite file, a workload such as `digits`, or a record to repeat; without it, the default suite.",
            show_default=False,
        ),
    ] = None,
    strategy: Annotated[
        list[str] | None,
        typer.Option(
            "-s",
            "--strategy",
            metavar="STRATEGY",
            help="A strategy with its arguments, such as `ddp(bucket_cap_mb=1)`; repeat it to compare several.",
            rich_help_panel=_WHAT,
            show_default=False,
        ),
    ] = None,
    world_size: Annotated[
        list[str] | None,
        typer.Option(
            "-n",
            "--world-size",
            metavar="N",
            help="Number of ranks; repeat it for several. `single` always has one.",
            rich_help_panel=_WHAT,
            show_default=False,
        ),
    ] = None,
    size: Annotated[
        _Text,
        typer.Option(
            "--size",
            metavar="SIZE",
            help="The workload's size (`parbench list workloads`).",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    global_batch_size: Annotated[
        _Text,
        typer.Option(
            "--global-batch-size",
            metavar="B",
            help="Samples per step over all ranks together; the workload's own unless given.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    accumulate: Annotated[
        _Text,
        typer.Option(
            "--accumulate",
            metavar="N",
            help="Micro-batches a rank cuts its share into.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    data_workers: Annotated[
        _Text,
        typer.Option(
            "--data-workers",
            metavar="N",
            help="Threads of each rank that make the next batches; the time steps wait for theirs is reported.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    precision: Annotated[
        _Text,
        typer.Option(
            "--precision",
            metavar="fp32|bf16|fp16",
            help="Arithmetic of forward and backward; weights stay fp32.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    recompute: Annotated[
        _Text,
        typer.Option(
            "--recompute",
            metavar="none|full|selective",
            help="What backward computes again instead of keeping: all of each block, or all but matrix products.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    compiled: Annotated[
        bool,
        typer.Option(
            "--compile", help="Compile each block; the time it takes is reported apart.", rich_help_panel=_WHAT
        ),
    ] = False,
    seed: Annotated[
        _Text,
        typer.Option("--seed", metavar="N", help="Seed of weights and batches.", rich_help_panel=_WHAT),
    ] = None,
    steps: options.Steps = None,
    warmup: options.Warmup = None,
    repeats: options.Repeats = None,
    parity_steps: options.ParitySteps = None,
    probe: options.Probe = None,
    memory: options.Memory = True,
    memory_snapshot: options.MemorySnapshot = False,
    trace: options.Trace = True,
    trace_steps: options.TraceSteps = None,
    execution_trace: options.ExecutionTrace = False,
    find_max_batch: Annotated[
        bool,
        typer.Option(
            "--find-max-batch",
            help="Search the largest batch that fits into memory, and measure with that (on a CPU with --memory-gib).",
            rich_help_panel=_WHAT,
        ),
    ] = False,
    memory_gib: options.MemoryGib = None,
    peak_tflops: options.PeakTflops = None,
    timeout: options.Timeout = None,
    device: options.Device = None,
    backend: options.Backend = None,
    require: options.Require = None,
    exclusive: options.Exclusive = False,
    threads: options.Threads = None,
    network: options.Network = None,
    rank_speed: options.RankSpeed = None,
    straggler: options.Straggler = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Any setting of a suite, such as `run.steps=5` or `world_size=[1,2]`; wins over other flags.",
            rich_help_panel=_WHAT,
            show_default=False,
        ),
    ] = None,
    plugin: Annotated[
        list[Path] | None,
        typer.Option(
            "--plugin",
            metavar="FILE",
            help="Your own strategy or workload: FILE is imported and its name becomes known.",
            rich_help_panel=_WHAT,
            show_default=False,
        ),
    ] = None,
    workload: Annotated[
        _Text,
        typer.Option(
            "--workload",
            metavar="MODULE:FUNCTION",
            help="Your own workload, imported: a function(size, seed, device, batch size) that returns a Job.",
            rich_help_panel=_WHAT,
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path,
        typer.Option("-o", "--out", metavar="DIR", help="Folder of all results.", rich_help_panel=_RESULTS),
    ] = Path("results"),
    suite_name: Annotated[
        _Text,
        typer.Option(
            "--suite-name",
            metavar="NAME",
            help="Names the folder in DIR instead of the suite.",
            rich_help_panel=_RESULTS,
        ),
    ] = None,
    fresh: Annotated[
        bool,
        typer.Option("--fresh", help="Measure finished cells again, do not resume.", rich_help_panel=_RESULTS),
    ] = False,
    report: Annotated[
        bool,
        typer.Option(
            "--report/--no-report",
            help="Leave report.html beside the results (parbench report); never with --json.",
            rich_help_panel=_RESULTS,
        ),
    ] = True,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print one JSON document on stdout.", rich_help_panel=_RESULTS),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Print the cells that would run, and start nothing.", rich_help_panel=_RESULTS),
    ] = False,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            help="Exit with 1 where there is a warning, with 3 where a cell is unsupported.",
            rich_help_panel=_RESULTS,
        ),
    ] = False,
) -> None:
    """Measure strategies on a workload: check that they train alike, time them interleaved, say which wins.

    Progress goes to stderr, the table (or `--json`) to stdout, every sample to DIR.

    The same command goes on where an interrupted sweep stopped.
    """
    if not trace and (trace_steps is not None or execution_trace):
        from parbench.errors import UsageError

        given = "--execution-trace" if trace_steps is None else f"--trace-steps {trace_steps}"
        raise UsageError(f"--no-trace leaves out what {given} asks for; give one of them")
    flags = {
        "size": size,
        "global_batch_size": global_batch_size,
        "accumulate": accumulate,
        "data_workers": data_workers,
        "precision": precision,
        "recompute": recompute,
        "compile": "true" if compiled else None,
        "seed": seed,
        "steps": steps,
        "warmup": warmup,
        "repeats": repeats,
        "parity_steps": parity_steps,
        "memory": None if memory else "false",
        "memory_snapshot": "true" if memory_snapshot else None,
        "trace_steps": trace_steps if trace else "0",
        "execution_trace": "true" if execution_trace else None,
        "memory_gib": memory_gib,
        "peak_tflops": peak_tflops,
        "timeout_s": timeout,
        "device": device,
        "backend": backend,
        "threads": threads,
        "network": network,
        "rank_speed": rank_speed,
        "straggler": straggler,
    }
    lists = {"strategy": strategy or [], "world_size": world_size or []}
    lists |= {name: [text] for name, text in flags.items() if text is not None}
    changes = ({"probes": (tuple(probe),)} if probe else {}) | changes_of(lists, settings or [])
    plugins = [*(plugin or []), *([Path(workload)] if workload else [])]
    suite = suite_of(named(what, workload), changes, suite_name)
    from parbench.requirements import Demands

    demands = Demands(
        require=tuple(require or ()),
        exclusive=exclusive,
        find_max_batch=find_max_batch,
        memory_snapshot=memory_snapshot,
    )
    start(
        suite,
        plugins,
        out,
        demands,
        fresh=fresh,
        as_json=as_json,
        dry_run=dry_run,
        strict=strict,
        page=report and not as_json,
    )
