"""A size of a workload is settings under a name; one that is not there is refused with the nearest."""

from __future__ import annotations

from collections.abc import Mapping

from parbench.errors import unknown_name


def settings_of(workload: str, sizes: Mapping[str, Mapping[str, int]], size: str) -> Mapping[str, int]:
    """Return the settings of `size`.

    Raises:
        UsageError: there is no such size.
    """
    if size not in sizes:
        raise unknown_name(f"size of {workload}", size, sizes, "parbench list workloads")
    return sizes[size]
