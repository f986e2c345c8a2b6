"""A NetworkSeat says where the shaped link of a rank is."""

from __future__ import annotations

import msgspec


class NetworkSeat(msgspec.Struct, frozen=True, kw_only=True):
    """Where to go, and what is found there.

    Attributes:
        namespace: path of its network namespace.
        user_namespace: path of the user namespace to enter first; "" where there is none.
        interface: name of its link there.
        address: IPv4 address of its link.
        alpha_s: start-up cost that parbench's own transport is to add to each collective.
    """

    namespace: str
    user_namespace: str = ""
    interface: str
    address: str
    alpha_s: float = 0.0
