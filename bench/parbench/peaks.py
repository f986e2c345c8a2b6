"""Peaks: the most matrix FLOPs per second that a device is built for, dense, by arithmetic.

From the makers' data sheets; where these give only the number with 2:4 sparsity, half of it. "fp32" is the arithmetic
of products where TF32 is not allowed (torch's default for matrix products); fp16 and bf16 accumulate in fp32.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_SHEET = "NVIDIA data sheet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """What a device is built for.

    Attributes:
        tflops: 10^12 FLOPs per second, dense.
        source: where the number is from.
    """

    tflops: float
    source: str


@dataclass(frozen=True, slots=True)
class _Device:
    """A device: a pattern for the name its driver gives, the text that holds its numbers, and those by arithmetic."""

    name: str
    source: str
    tflops: Mapping[str, float]


def _halves(half: float, tf32: float | None, fp32: float, *, bf16: bool = True) -> Mapping[str, float]:
    found = {"fp16": half, "fp32": fp32}
    return found | ({"bf16": half} if bf16 else {}) | ({"tf32": tf32} if tf32 is not None else {})


# The first pattern that matches counts: variants stand before the plain name.
_DEVICES: Final = (
    _Device(r"V100-SXM", f"{_SHEET} V100 (2020)", _halves(125, None, 15.7, bf16=False)),
    _Device(r"V100-PCIE", f"{_SHEET} V100 (2020)", _halves(112, None, 14, bf16=False)),
    _Device(r"\bT4\b", f"{_SHEET} T4 (2019)", _halves(65, None, 8.1, bf16=False)),
    _Device(r"\bA100\b", f"{_SHEET} A100 (2021)", _halves(312, 156, 19.5)),
    _Device(r"\bA40\b", f"{_SHEET} A40 (2021)", _halves(149.7, 74.8, 37.4)),
    _Device(r"\bA30\b", f"{_SHEET} A30 (2021)", _halves(165, 82, 10.3)),
    _Device(r"\bA10\b", f"{_SHEET} A10 (2021)", _halves(125, 62.5, 31.2)),
    _Device(r"\bL40S\b", f"{_SHEET} L40S (2023)", _halves(362.05, 183, 91.6)),
    _Device(r"\bL40\b", f"{_SHEET} L40 (2022)", _halves(181.05, 90.5, 90.5)),
    _Device(r"\bL4\b", f"{_SHEET} L4 (2023), half of the sparse number", _halves(121, 60, 30.3)),
    _Device(r"\bH100 NVL\b", f"{_SHEET} H100 (2024), half of the sparse number", _halves(835.5, 417.5, 60)),
    _Device(r"\bH100 PCIe\b", f"{_SHEET} H100 (2023), half of the sparse number", _halves(756.5, 378, 51)),
    _Device(r"\bH100\b.*HBM3", f"{_SHEET} H100 (2024), half of the sparse number", _halves(989.5, 494.5, 67)),
    _Device(r"\bH200 NVL\b", f"{_SHEET} H200 (2024), half of the sparse number", _halves(835.5, 417.5, 60)),
    _Device(r"\bH200\b", f"{_SHEET} H200 (2024), half of the sparse number", _halves(989.5, 494.5, 67)),
    _Device(r"\bGH200\b", f"{_SHEET} GH200 (2023), half of the sparse number", _halves(989.5, 494.5, 67)),
    _Device(r"\bB200\b", f"{_SHEET} HGX B200 (2024), an eighth and half of the sparse number", _halves(2250, 1125, 75)),
    _Device(r"RTX 4090\b", "NVIDIA Ada architecture, appendix A (2022)", _halves(165.2, 82.6, 82.6)),
    _Device(r"RTX 3090\b(?! Ti)", "NVIDIA Ampere GA102 architecture (2021)", _halves(71, 35.6, 35.6)),
)


def peak_of(device: str, arithmetic: str) -> Peak | str:
    """Return the dense peak of one device, or a sentence saying why it is not known.

    Args:
        device: the name its driver gives, such as "NVIDIA H200"; "cpu" is no device whose peak is known.
        arithmetic: "fp32", "tf32", "bf16" or "fp16".
    """
    found = next((one for one in _DEVICES if re.search(one.name, device)), None)
    if found is None:
        what = "a CPU's peak depends on its clock and vector units" if device == "cpu" else f"{device} is not listed"
        return f"no dense peak is known: {what}; say it with --peak-tflops"
    if arithmetic not in found.tflops:
        return f"no dense peak of {device} in {arithmetic} is known; say it with --peak-tflops"
    return Peak(tflops=found.tflops[arithmetic], source=found.source)
