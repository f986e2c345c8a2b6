"""Prints docs/compression.md's table: what every compressor takes and saves on a matrix of a million elements.

make compressors      on an idle machine; one thread, medians of interleaved repeats
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
from torch import nn

from parbench.api import Comm, Stopwatch
from parbench.conformance.compressed import Ranks
from parbench.conformance.jobs import one_thread
from parbench.fusion import Gradient, Group, Piece, Plan
from parbench.registry import Registry
from parbench_strategies.replicated._exchanger import Exchanger
from parbench_strategies.replicated._layout import Layout, Planned

REGISTRY = Registry()
ROWS, COLUMNS = 1000, 1000
ELEMENTS = ROWS * COLUMNS
DEVIATION = 0.005
# Beside the defaults: what is approximate, and what phases of the default hide from a table.
MORE = ["topk(exact=False)", "threshold(value=0.0125)", "lgc(dense_steps=0, train_steps=0)", "powersgd(rank=4)"]
LESS = ["none", "lgc", "threshold"]


def drawn(seed: int) -> torch.Tensor:
    """Return normal numbers about as small as gradients are."""
    return DEVIATION * torch.randn(ELEMENTS, generator=torch.Generator().manual_seed(seed))


class Bench:
    """One compressor in the engine, as one rank has it, error feedback and all."""

    def __init__(self, text: str) -> None:
        self.text = text
        named = {"matrix": nn.Parameter(torch.zeros(ROWS, COLUMNS))}
        given = [Gradient(name="matrix", elements=ELEMENTS, bytes=4 * ELEMENTS)]
        plan = Plan((Group((Piece(0, 0, ELEMENTS),)),))
        self.layout = Layout([Planned(gradients=given, plan=plan)], named, ["matrix"])
        self.watch = Stopwatch()
        self.compressor = REGISTRY.resolve("compressor", text)
        native = REGISTRY.resolve("collective", "native")
        self.exchanger = Exchanger(native, self.compressor, Comm(None, 0, 1), self.watch)
        self.exchanger.lay_out(self.layout)
        self.seconds: list[tuple[float, float]] = []

    def step(self, grad_N: torch.Tensor) -> None:
        self.layout.scatter("matrix", grad_N)
        self.exchanger.start(0)
        self.exchanger.finish()
        self.watch.step()
        means = self.watch.means()
        self.watch.reset()
        self.seconds.append((means["encode_s"], means["decode_s"]))

    def sent_bytes(self) -> float:
        """Return what one of two ranks sends, counted."""
        grads = [drawn(rank).view(ROWS, COLUMNS) for rank in range(2)]
        step = Ranks(self.compressor, 2).step([{"k": grad} for grad in grads])
        return float(sum(step.sent.values()))

    def row(self) -> str:
        encode_s, decode_s = (statistics.median(column) for column in zip(*self.seconds[2:], strict=True))
        sent = self.sent_bytes()
        saved = 4 * ELEMENTS - sent
        pays = f"{8e-6 * saved / (encode_s + decode_s):,.0f}" if saved > 0 else "–"
        return (
            f"| `{self.text}` | {sent / ELEMENTS:.3g} | {4 * ELEMENTS / sent:.3g} | {1e9 * encode_s / ELEMENTS:.3g} "
            f"| {1e9 * decode_s / ELEMENTS:.3g} | {pays} |"
        )


def selection(repeats: int) -> str:
    """Return how long the selection of topk takes beside torch's, interleaved."""
    from parbench_strategies.compression._selection import about_largest, largest

    ways = {
        "torch": lambda flat, k: flat.abs().topk(k, sorted=False).indices,
        "exact": largest,
        "approximate": about_largest,
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for seed in range(repeats):
        flat_N = drawn(seed)
        for name, way in ways.items():
            started_s = time.perf_counter()
            way(flat_N, ELEMENTS // 100)
            seconds[name].append(time.perf_counter() - started_s)
    whole = statistics.median(seconds["torch"])
    shares = {name: statistics.median(values) / whole for name, values in seconds.items()}
    return (
        f"The largest hundredth of 10^6 normal numbers on one thread: `torch.topk` {1e3 * whole:.2f} ms, the exact "
        f"selection {shares['exact']:.2f} of that, the approximate one {shares['approximate']:.2f} "
        f"(medians of {repeats}, interleaved)."
    )


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--repeats", type=int, default=15)
    repeats = arguments.parse_args().repeats
    with one_thread(), torch.no_grad():
        names = [name for name in REGISTRY.names("compressor") if name not in LESS]
        benches = [Bench(text) for text in sorted([*names, *MORE])]
        for seed in range(repeats + 2):
            grad_N = drawn(seed)
            for bench in benches:
                bench.step(grad_N)
        print("| compressor | bytes an element | ratio | encode, ns | decode, ns | pays below, Mbit/s |")
        print("|---|--:|--:|--:|--:|--:|")
        for bench in benches:
            print(bench.row())
        print(f"\n{selection(repeats)}")


if __name__ == "__main__":
    main()
