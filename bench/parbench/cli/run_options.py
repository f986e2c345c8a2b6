"""Options of `parbench run` that say how something is measured, and where it runs."""

from __future__ import annotations

from typing import Annotated

import typer

HOW = "How it is measured"
WHERE = "Where it runs"

Steps = Annotated[
    str | None,
    typer.Option("--steps", metavar="N", help="Measured training steps.", rich_help_panel=HOW),
]
Warmup = Annotated[
    str | None,
    typer.Option(
        "--warmup",
        metavar="N",
        help="Steps left out first; until the step time is steady unless given.",
        rich_help_panel=HOW,
    ),
]
Repeats = Annotated[
    str | None,
    typer.Option(
        "--repeats",
        metavar="N",
        help="Fresh launches of every cell; their spread is what a rerun may show.",
        rich_help_panel=HOW,
    ),
]
ParitySteps = Annotated[
    str | None,
    typer.Option(
        "--parity-steps",
        metavar="N",
        help="Steps compared with one process first; 0 leaves the check out and ranks nothing.",
        rich_help_panel=HOW,
    ),
]
Probe = Annotated[
    list[str] | None,
    typer.Option(
        "--probe",
        metavar="P",
        help="A meter to run in the timed rounds (`parbench list probes`); repeat it for several.",
        rich_help_panel=HOW,
        show_default=False,
    ),
]
Memory = Annotated[
    bool,
    typer.Option(
        "--memory/--no-memory",
        help="Measure memory, in a short launch that holds one case alone.",
        rich_help_panel=HOW,
    ),
]
MemorySnapshot = Annotated[
    bool,
    typer.Option(
        "--memory-snapshot",
        help="Keep what CUDA's allocator did in that launch, for pytorch.org/memory_viz (memory/rank<k>.pickle).",
        rich_help_panel=HOW,
    ),
]
Trace = Annotated[
    bool,
    typer.Option(
        "--trace/--no-trace",
        help="Trace a few steps after the timed ones: where a step's time goes.",
        rich_help_panel=HOW,
    ),
]
TraceSteps = Annotated[
    str | None,
    typer.Option(
        "--trace-steps",
        metavar="N",
        help="Steps to trace; fewer where files would be large.",
        rich_help_panel=HOW,
    ),
]
ExecutionTrace = Annotated[
    bool,
    typer.Option(
        "--execution-trace",
        help="Write PyTorch's execution traces of the traced steps too (input of Chakra).",
        rich_help_panel=HOW,
    ),
]
MemoryGib = Annotated[
    str | None,
    typer.Option(
        "--memory-gib",
        metavar="X",
        help="The most memory a rank may take besides what it begins with; beyond that the case is `oom`.",
        rich_help_panel=WHERE,
    ),
]
PeakTflops = Annotated[
    str | None,
    typer.Option(
        "--peak-tflops",
        metavar="X",
        help="Dense peak of one device (of one rank on a CPU) in TFLOP/s, for MFU; known for common GPUs.",
        rich_help_panel=HOW,
    ),
]
Timeout = Annotated[
    str | None,
    typer.Option(
        "--timeout",
        metavar="S",
        help="Seconds without progress after which a case is ended.",
        rich_help_panel=HOW,
    ),
]
Device = Annotated[
    str | None,
    typer.Option("--device", metavar="auto|cpu|cuda", help="Where tensors live.", rich_help_panel=WHERE),
]
Backend = Annotated[
    str | None,
    typer.Option("--backend", metavar="auto|gloo|nccl", help="What moves tensors.", rich_help_panel=WHERE),
]
Require = Annotated[
    list[str] | None,
    typer.Option(
        "--require",
        metavar="power",
        help="Start nothing (exit code 3) where power and energy cannot be read.",
        rich_help_panel=HOW,
        show_default=False,
    ),
]
Exclusive = Annotated[
    bool,
    typer.Option(
        "--exclusive",
        help="Start nothing (exit code 3) where other processes compute on the GPUs.",
        rich_help_panel=WHERE,
    ),
]
Threads = Annotated[
    str | None,
    typer.Option("--threads", metavar="N", help="Compute threads per rank.", rich_help_panel=WHERE),
]
Network = Annotated[
    str | None,
    typer.Option(
        "--network",
        metavar="NAME|RATE",
        help="A shaped link per rank: `100mbit`, `rate=312mbit alpha=1ms`, a name (`parbench list networks`).",
        rich_help_panel=WHERE,
    ),
]
RankSpeed = Annotated[
    str | None,
    typer.Option(
        "--rank-speed",
        metavar="S,S,...",
        help="How fast each rank computes, relative to what it can: `1,1,0.5` (on a CPU).",
        rich_help_panel=WHERE,
    ),
]
Straggler = Annotated[
    str | None,
    typer.Option(
        "--straggler",
        metavar="DISTRIBUTION",
        help="Ranks that stop now and then: `exponential(mean=0.2, every=10)`, `fixed(seconds)`, "
        "`uniform(low, high)`; with `rank=K` that one alone.",
        rich_help_panel=WHERE,
    ),
]
