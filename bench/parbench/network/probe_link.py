"""The link probe measures what links really do, by plain sockets between their namespaces, before anybody relies on it.

node 0 ──> node 1 ──> node 2 ──> node 3 ──> node 0       pings one link after the other, then all links full at once
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from parbench.errors import MissingError, ParbenchError
from parbench.network.build import Links
from parbench.network.links import PAYLOAD_SHARE
from parbench.network.plan import NetworkPlan
from parbench.network.quantities import rate_text
from parbench.record import Chosen, Warned

# Measured on 2 cores: below this the processor, not the link, is what is measured.
LEAST_EFFICIENCY = 0.88
# Of all cores: above this, results of scheduling differed from what links alone explain by 8 to 29 %.
MOST_BUSY = 0.7
_PORT = 29_500
_PINGS = 60
_DEADLINE_S = 30.0
_SHORTEST_S, _LONGEST_S, _ENOUGH_BYTES = 0.6, 2.0, 8e6


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkReport:
    """What links did with all of them full.

    Attributes:
        line_bits_per_s: of each link, as asked for.
        rate_bits_per_s: of each link, payload of TCP.
        alpha_s: half the median time of a byte there and back, per link, nothing else under way.
        busy_cores: of this machine, everything that ran meanwhile included.
        processor_cores: of the probe's processes alone.
        cores: that this process may use.
    """

    line_bits_per_s: tuple[float, ...]
    rate_bits_per_s: tuple[float, ...]
    alpha_s: tuple[float, ...]
    busy_cores: float
    processor_cores: float
    cores: int

    @property
    def efficiency(self) -> float:
        """Of the slowest link: what it carried over what TCP can carry on such a line."""
        pairs = zip(self.rate_bits_per_s, self.line_bits_per_s, strict=True)
        return min(rate / (line * PAYLOAD_SHARE) for rate, line in pairs)

    @property
    def problem(self) -> str | None:
        """Why nothing should be measured over these links, or None."""
        if self.efficiency >= LEAST_EFFICIENCY:
            return None
        return (
            f"the links reach {self.efficiency:.2f} of what they are to carry, at least {LEAST_EFFICIENCY} is needed "
            f"({self.busy_cores:.1f} of {self.cores} cores were busy): the processor would be the limit; "
            "use a lower rate, fewer ranks or an idle machine"
        )

    @property
    def cautions(self) -> list[Warned]:
        """What a reader of results over these links must know."""
        if self.busy_cores <= MOST_BUSY * self.cores:
            return []
        message = (
            f"with all links full {self.busy_cores:.1f} of {self.cores} cores were busy, "
            f"{self.processor_cores:.1f} of them with the links alone"
        )
        return [
            Warned(
                code="links_need_cores",
                message=message,
                advice="lower the rate, use fewer ranks, or stop what else runs",
            )
        ]

    @property
    def chosen(self) -> dict[str, Chosen]:
        """What was measured, beside the nominal values in the record."""
        because = (
            f"measured before the suite: {len(self.line_bits_per_s)} links full at once, plain sockets, slowest link"
        )
        share = f"of line x {PAYLOAD_SHARE}"
        return {
            "network_measured_rate": Chosen(value=rate_text(min(self.rate_bits_per_s)), because=because),
            "network_measured_efficiency": Chosen(value=f"{self.efficiency:.3f}", because=f"{share}; {because}"),
            "network_measured_alpha": Chosen(
                value=f"{statistics.median(self.alpha_s) * 1e6:.0f} us",
                because=f"half of a byte's way there and back, median of {_PINGS} per link, one link at a time",
            ),
            "network_measured_cores": Chosen(
                value=f"{self.busy_cores:.2f} of {self.cores}",
                because=f"busy with all links full, other programs too; {self.processor_cores:.2f} by the links",
            ),
        }


def probe_links(links: Links, *, seconds: float | None = None, attempts: int = 3) -> LinkReport | None:
    """Measure links that nobody uses; the best of some attempts where one falls short, as others may run here too.

    Args:
        links: to be measured.
        seconds: for which all are full; long enough for the slowest unless given.
        attempts: at most.

    Returns:
        None where there is one node, so no link between two.

    Raises:
        ParbenchError: a peer of the probe ended early.
    """
    if len(links.plan.nodes) < 2:
        return None
    if seconds is None:
        slowest = min(_lines(links.plan))
        seconds = min(_LONGEST_S, max(_SHORTEST_S, _ENOUGH_BYTES * 8 / slowest))
    best: LinkReport | None = None
    for attempt in range(attempts):
        found = _Probe(links, _PORT + attempt).run(seconds)
        if best is None or found.efficiency > best.efficiency:
            best = found
        if best.problem is None:
            break
    return best


def require(report: LinkReport | None) -> None:
    """Refuse links that do not do what they are asked for.

    Raises:
        MissingError: they do not.
    """
    if report is not None and report.problem is not None:
        raise MissingError(report.problem)


class _Probe:
    """The peers of one measurement, one on every node."""

    def __init__(self, links: Links, port: int) -> None:
        self._plan = links.plan
        addresses = [node.address for node in links.plan.nodes]
        peer = str(Path(__file__).with_name("link_peer.py"))
        self._peers = [
            subprocess.Popen(
                (*links.inside(k), sys.executable, "-I", "-S", "-B", peer, own, following, str(port)),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for k, (own, following) in enumerate(zip(addresses, addresses[1:] + addresses[:1], strict=True))
        ]

    def run(self, seconds: float) -> LinkReport:
        watch = threading.Timer(_DEADLINE_S + seconds, self._kill)
        watch.start()
        try:
            return self._run(seconds)
        finally:
            watch.cancel()
            self._kill()

    def _run(self, seconds: float) -> LinkReport:
        self._heard(self._peers)
        self._tell("connect", self._peers)
        self._heard(self._peers)
        alphas = []
        for peer in self._peers:
            self._tell(f"ping {_PINGS}", [peer])
            alphas += self._heard([peer])
        before = _busy_s()
        self._tell(f"flow {seconds}", self._peers)
        flows = self._heard(self._peers)
        busy_s = _busy_s() - before
        wall_s = max(one["wall_s"] for one in flows)
        # A peer hears from the node before it: its figures are those of the link that node sends over.
        rates = [one["bytes_per_s"] * 8 for one in (*flows[1:], flows[0])]
        return LinkReport(
            line_bits_per_s=_lines(self._plan),
            rate_bits_per_s=tuple(rates),
            alpha_s=tuple(one["alpha_s"] for one in alphas),
            busy_cores=busy_s / wall_s,
            processor_cores=sum(one["processor_s"] for one in flows) / wall_s,
            cores=len(os.sched_getaffinity(0)),
        )

    def _tell(self, line: str, peers: Sequence[subprocess.Popen[str]]) -> None:
        for peer in peers:
            if peer.stdin is not None:
                with contextlib.suppress(OSError):  # one that has ended is found, with its last words, by _heard
                    peer.stdin.write(line + "\n")
                    peer.stdin.flush()

    def _heard(self, peers: Sequence[subprocess.Popen[str]]) -> list[dict[str, float]]:
        found = []
        for peer in peers:
            line = peer.stdout.readline() if peer.stdout is not None else ""
            if not line:
                _, errors = peer.communicate()
                told = " ".join(errors.split())[-300:] or f"exit code {peer.returncode}"
                raise ParbenchError(f"the links could not be measured: a peer of the probe ended: {told}")
            found.append({str(key): float(value) for key, value in json.loads(line).items()})
        return found

    def _kill(self) -> None:
        for peer in self._peers:
            peer.kill()
        for peer in self._peers:
            peer.wait()
            for pipe in (peer.stdin, peer.stdout, peer.stderr):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()


def _lines(plan: NetworkPlan) -> tuple[float, ...]:
    """Return the line rate from every node to the next, the link between racks included."""
    nodes, end_to_end = plan.nodes, min(plan.up.rate_bits_per_s, plan.down.rate_bits_per_s)
    following = [*nodes[1:], nodes[0]]
    trunk = plan.trunk.rate_bits_per_s if plan.trunk is not None else end_to_end
    return tuple(
        end_to_end if a.rack == b.rack else min(end_to_end, trunk) for a, b in zip(nodes, following, strict=True)
    )


def _busy_s() -> float:
    """Return processor seconds spent on this machine so far, all cores together."""
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0)
    # Guests' time is part of the user's.
    return sum(times) - idle - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
