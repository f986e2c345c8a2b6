"""Telling says in a record what links were like: as numbers, and as what a reader must know."""

from __future__ import annotations

import statistics

from parbench.network.probe_link import LinkReport
from parbench.network.quantities import time_text
from parbench.network.spelling import parse_network
from parbench.record import Warned


def link_facts(report: LinkReport | None) -> dict[str, str | int | float | bool | list[str]]:
    """Return what was measured of the links, as numbers by name."""
    if report is None:
        return {}
    return {
        "network_line_bits_per_s": min(report.line_bits_per_s),
        "network_rate_bits_per_s": min(report.rate_bits_per_s),
        "network_efficiency": report.efficiency,
        "network_alpha_s": statistics.median(report.alpha_s),
        "network_busy_cores": report.busy_cores,
        "network_processor_cores": report.processor_cores,
    }


def link_cautions(text: str | None, report: LinkReport | None) -> list[Warned]:
    """Return what a reader of results over network `text` must know."""
    network = None if text is None else parse_network(text)
    found = list(report.cautions) if report is not None else []
    if network is not None and network.alpha_s:
        found.append(
            Warned(
                code="alpha_not_injected",
                message=f"alpha = {time_text(network.alpha_s)} is added to each collective of parbench's own transport "
                "(ring_socket); torch's own collectives start at this machine's cost",
                advice="compare strategies that use collective=ring_socket, or leave alpha out",
            )
        )
    return found
