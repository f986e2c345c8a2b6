"""Presets are links people know by name, each divided by a stated scale so that one machine can carry it.

Bytes and link rate must be divided by the same factor for times to stay what they are on the real link (paced compute
does so). A preset adds no start-up cost: what this machine's own is, is measured; `alpha=` adds to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A link by name.

    Attributes:
        title: what it is.
        rate_bits_per_s: of the real link, per direction.
        scale: what rates are divided by unless the user says otherwise.
    """

    title: str
    rate_bits_per_s: float
    scale: float


PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        "1gbe": Preset(title="Gigabit Ethernet", rate_bits_per_s=1e9, scale=1),
        "10gbe": Preset(title="10 Gigabit Ethernet", rate_bits_per_s=10e9, scale=32),
        "25gbe": Preset(title="25 Gigabit Ethernet", rate_bits_per_s=25e9, scale=80),
        "100gbe": Preset(title="100 Gigabit Ethernet", rate_bits_per_s=100e9, scale=320),
        "edr": Preset(title="InfiniBand EDR, 4 lanes", rate_bits_per_s=100e9, scale=320),
        "hdr": Preset(title="InfiniBand HDR, 4 lanes", rate_bits_per_s=200e9, scale=640),
    }
)
