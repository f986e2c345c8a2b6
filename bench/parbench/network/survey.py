"""A survey makes and measures every network of a suite once, before anything is started over it."""

from __future__ import annotations

from collections.abc import Sequence

from parbench.launch.stopping import StopRequest
from parbench.network.build import Links
from parbench.network.probe_link import LinkReport, probe_links, require
from parbench.network.spelling import parse_network
from parbench.spec import RunSpec


def survey(specs: Sequence[RunSpec], stop: StopRequest) -> dict[tuple[str, int], LinkReport]:
    """Return what the links of every network do, by its text and its number of ranks.

    Args:
        specs: the cells, resolved.
        stop: asked between networks; what is not measured then is left out.

    Raises:
        UsageError: a network cannot be planned.
        MissingError: it cannot be made here, or does not do what it is asked for.
    """
    found = {}
    for text, world_size in dict.fromkeys(
        (spec.network, spec.world_size) for spec in specs if spec.network is not None
    ):
        network = parse_network(text)
        if network is None or stop.asked:
            continue
        with Links.make(network, world_size) as links:
            report = probe_links(links)
        if not network.delay_s and not network.loss:  # what they cost is wanted
            require(report)
        if report is not None:
            found[text, world_size] = report
    return found
