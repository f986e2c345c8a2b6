"""Writes the tables of docs/network.md: the rest of the page stays as it is.

python tests/network_document.py [collectives|ring|cost]
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from parbench.environment import capture
from parbench.network.build import Links
from parbench.network.probe_link import probe_links
from parbench.network.spelling import parse_network

PAGE = Path(__file__).parents[1] / "docs" / "network.md"
LINE_BYTES_PER_S = 125e6
RANKS = (2, 4, 8)
SETTINGS = (
    "rate=100mbit burst=32000",
    "rate=100mbit burst=70000",
    "rate=312.5mbit burst=39000",
    "rate=312.5mbit burst=70000",
    "rate=312.5mbit burst=17000 gso=16384",
    "rate=1gbit burst=131072",
    "rate=2gbit burst=262144",
    "rate=4gbit burst=524288",
)


def collectives() -> Iterator[str]:
    """Yield the table of bus bandwidth."""
    rows = _bench("1gbit", RANKS, ("1MiB", "16MiB"), ("all_reduce", "reduce_scatter", "all_gather"))
    found = {(r["op"], r["algorithm"], r["ranks"], _mebibytes(r)): r["busbw_bytes_per_s"] for r in rows}
    sizes = [(n, size) for n in RANKS for size in (1, 16)]
    yield "| collective | " + " | ".join(f"{n} ranks, {size} MiB" for n, size in sizes) + " |"
    yield "|---|" + "--:|" * len(sizes)
    for op in ("all_reduce", "reduce_scatter", "all_gather"):
        for algorithm in ("native", "ring"):
            cells = [found.get((op, algorithm, n, size)) for n, size in sizes]
            told = ["" if one is None else f"{one / LINE_BYTES_PER_S:.2f}" for one in cells]
            yield f"| {op}, {algorithm} | " + " | ".join(told) + " |"


def ring() -> Iterator[str]:
    """Yield what the ring is to hold, and whether it does."""
    large = _bench("1gbit", (4,), ("16MiB", "16MiB"), ("reduce_scatter",))
    native, own = (next(r for r in large if r["algorithm"] == name) for name in ("native", "ring"))
    small = _bench("1gbit", (4,), ("64", "64"), ("all_reduce",))
    latency_s = next(r["median_s"] for r in small if r["algorithm"] == "ring")
    yield "| what | native | ring | ratio |"
    yield "|---|--:|--:|--:|"
    times = native["median_s"], own["median_s"]
    yield f"| reduce-scatter of 16 MiB, ms | {times[0] * 1e3:.1f} | {times[1] * 1e3:.1f} | {times[1] / times[0]:.2f} |"
    wire = native["wire_bytes_per_rank"], own["wire_bytes_per_rank"]
    yield f"| the same, MB sent per rank | {wire[0] / 1e6:.2f} | {wire[1] / 1e6:.2f} | {wire[1] / wire[0]:.2f} |"
    native_s = next(r["median_s"] for r in small if r["algorithm"] == "native")
    yield (
        f"| all-reduce of 64 bytes, ms | {native_s * 1e3:.2f} | {latency_s * 1e3:.2f} | {latency_s / native_s:.2f} |"
    )


def cost() -> Iterator[str]:
    """Yield the table of rates and busy cores."""
    yield "| link | " + " | ".join(f"{n} ranks" for n in RANKS) + " |"
    yield "|---|" + "--:|" * len(RANKS)
    for text in SETTINGS:
        cells = []
        for n in RANKS:
            with Links.make(parse_network(text), n) as links:
                found = probe_links(links, seconds=1.5)
            cells.append(f"{found.efficiency:.2f} ({found.busy_cores:.2f})")
        yield f"| {text} | " + " | ".join(cells) + " |"


def _bench(network: str, ranks: tuple[int, ...], sizes: tuple[str, str], ops: tuple[str, ...]) -> list[dict]:
    command = [sys.executable, "-m", "parbench", "network", "bench", "--json", "--network", network]
    command += ["--min", sizes[0], "--max", sizes[1], "--factor", "16", "--warm-up", "2", "--iterations", "9"]
    command += [part for n in ranks for part in ("--ranks", str(n))] + [part for op in ops for part in ("--op", op)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout)["rows"]


def _mebibytes(row: dict) -> int:
    return round(row["bytes"] / 2**20)


def main() -> None:
    """Measure and write."""
    makers = {"collectives": collectives, "ring": ring, "cost": cost}
    for name in sys.argv[1:] or makers:
        before = os.getloadavg()[0]
        table = list(makers[name]())
        facts = capture().facts
        where = f"{facts['cpu']}, {facts['cores']} cores, load {before:.1f} before, commit {str(facts['commit'])[:7]}."
        after = re.compile(rf"(<!-- table: {name} -->\n).*?(?=\n## |\Z)", re.DOTALL)
        text = PAGE.read_text(encoding="utf-8")
        told = "\n".join([where, "", *table])
        PAGE.write_text(after.sub(lambda found, told=told: f"{found[1]}\n{told}\n", text), encoding="utf-8")


if __name__ == "__main__":
    main()
