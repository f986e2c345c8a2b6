"""A Network is what a user asks of the links between ranks; it is written in one line and has one canonical text.

100mbit                                    every node's link, both directions; a star around one switch
rate=312mbit alpha=1ms                     and 1 ms of start-up, injected once per collective
10gbe(scale=32)                            a link known by name, divided by a stated factor
two-racks(rate=1gbit, oversubscription=4)  the same as `topology=two-racks(oversubscription=4) rate=1gbit`
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from parbench.errors import UsageError, unknown_name
from parbench.fields import shown
from parbench.grammar import Call, Value, parse, unparse
from parbench.network.presets import PRESETS
from parbench.network.quantities import number_of, rate_of, rate_text, time_of, time_text, whole_of

Topology = Literal["star", "two-racks"]
NO_NETWORK = "none"

_LOWEST_BITS_PER_S, _HIGHEST_BITS_PER_S = 1e6, 40e9
# A sleep overshoots by about 0.1 ms: less than that cannot be asked of it.
_LOWEST_ALPHA_S, _HIGHEST_ALPHA_S = 1e-4, 10.0
_LARGEST_GSO, _SMALLEST_GSO = 65536, 2048
_LARGEST_BURST = 1 << 26
_LOWEST_DELAY_S, _HIGHEST_DELAY_S = 1e-6, 1.0
_MOST_LOSS = 0.5
_KEYS = (
    *("rate", "up", "down", "alpha", "delay", "loss", "burst", "gso"),
    *("ranks_per_node", "topology", "oversubscription", "scale"),
)
_HOW = "write 100mbit, 'rate=312mbit alpha=1ms', or a name (parbench list networks)"
_OPTION = re.compile(r"[a-z_]+[ \t]*=")
_NEXT_OPTION = re.compile(r"(?<![,(=\s])[ \t]+(?=[a-z_]+[ \t]*=)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """What is asked of the links.

    Attributes:
        up_bits_per_s: from a node to the switch.
        down_bits_per_s: from the switch to a node.
        alpha_s: start-up cost injected once per collective; 0 leaves the machine's own.
        delay_s: of every packet from a node to the switch, where the kernel can (netem).
        loss: share of those packets that is lost, where the kernel can (netem).
        burst_bytes: what a link may send at once; None lets the plan choose.
        gso_bytes: largest packet that a sender hands to the link; None lets the plan choose.
        ranks_per_node: ranks behind one link.
        topology: how nodes are connected.
        oversubscription: what two racks' nodes could send together, over what the link between the racks carries.
        preset: the link's name, where it was given by name.
        scale: what the named link's rates were divided by.
    """

    up_bits_per_s: float
    down_bits_per_s: float
    alpha_s: float = 0.0
    delay_s: float = 0.0
    loss: float = 0.0
    burst_bytes: int | None = None
    gso_bytes: int | None = None
    ranks_per_node: int = 1
    topology: Topology = "star"
    oversubscription: float = 1.0
    preset: str = ""
    scale: float = 1.0

    @property
    def text(self) -> str:
        """The canonical text: equal networks have equal texts, and `parse_network` gives the network back."""
        options: dict[str, str] = {}
        if self.alpha_s:
            options["alpha"] = time_text(self.alpha_s)
        if self.delay_s:
            options["delay"] = time_text(self.delay_s)
        if self.loss:
            options["loss"] = f"{self.loss:.12g}"
        if self.burst_bytes is not None:
            options["burst"] = str(self.burst_bytes)
        if self.gso_bytes is not None:
            options["gso"] = str(self.gso_bytes)
        if self.ranks_per_node != 1:
            options["ranks_per_node"] = str(self.ranks_per_node)
        if self.topology == "two-racks":
            options["topology"] = f"two-racks(oversubscription={self.oversubscription:.12g})"
        if self.preset:
            named = ", ".join(f"{key}={value}" for key, value in [("scale", f"{self.scale:.12g}"), *options.items()])
            return f"{self.preset}({named})"
        if self.up_bits_per_s != self.down_bits_per_s:
            rates = {"up": rate_text(self.up_bits_per_s), "down": rate_text(self.down_bits_per_s)}
            return " ".join(f"{key}={value}" for key, value in (rates | options).items())
        if not options:
            return rate_text(self.up_bits_per_s)
        return " ".join(f"{k}={v}" for k, v in ({"rate": rate_text(self.up_bits_per_s)} | options).items())


def parse_network(text: str) -> Network | None:
    """Read what a user wrote; None for `none`, which leaves links as they are.

    Raises:
        UsageError: it is no network, or a number in it cannot be meant.
    """
    call = _parsed(text.strip())
    if call == Call(NO_NETWORK):
        return None
    return _network(*_options(call, text))


def _parsed(text: str) -> Call:
    """Return the text as a call; `rate=1gbit alpha=1ms` is short for `star(rate=1gbit, alpha=1ms)`."""
    try:
        if _OPTION.match(text):
            return parse(f"star({_NEXT_OPTION.sub(', ', text)})")
        head, *rest = _NEXT_OPTION.split(text, maxsplit=1)
        call = parse(head)
        options = parse(f"star({_NEXT_OPTION.sub(', ', rest[0])})").kwargs if rest else {}
    except UsageError as error:
        raise UsageError(f"no network can be read from {shown(text)}; {_HOW}\n{error}") from error
    if twice := sorted(call.kwargs.keys() & options.keys()):
        raise UsageError(f"the network {shown(text)} gives {twice[0]} twice; leave one out")
    return Call(call.name, call.args, {**call.kwargs, **options})


def _options(call: Call, text: str) -> tuple[str, dict[str, Value]]:
    """Return the preset's name, or "", and the options by name."""
    options = dict(call.kwargs)
    for key in options:
        if key not in _KEYS:
            raise unknown_name("setting of a network", key, _KEYS, _HOW)
    if call.args:
        raise UsageError(f"{shown(text)} has values without a name; write {call.name}(rate=1gbit)")
    preset = call.name.lower() if call.name.lower() in PRESETS else ""
    if call.name in get_args(Topology):
        _once(options, "topology", call.name)
    elif not preset and call.name[0].isdigit():
        _once(options, "rate", call.name)
    elif not preset:
        raise unknown_name("network", call.name, [*PRESETS, *get_args(Topology), NO_NETWORK], _HOW)
    nested = options.get("topology")
    if isinstance(nested, Call):
        if nested.args or nested.kwargs.keys() - {"oversubscription"}:
            raise UsageError(f"topology={unparse(nested)} takes oversubscription only; mend it")
        options["topology"] = nested.name
        for key, value in nested.kwargs.items():
            _once(options, key, value)
    return preset, options


def _once(options: dict[str, Value], key: str, value: Value) -> None:
    # `star(topology=two-racks)`, which the short form makes of `topology=two-racks`, is no contradiction.
    if key == "topology" and value == "star":
        options.setdefault(key, value)
        return
    if key in options:
        raise UsageError(f"the network gives {key} twice; leave one out")
    options[key] = value


def _network(preset: str, options: Mapping[str, Value]) -> Network:
    topology = options.get("topology", "star")
    if topology not in get_args(Topology):
        raise unknown_name("topology", str(topology), get_args(Topology), _HOW)
    if "oversubscription" in options and topology != "two-racks":
        raise UsageError("oversubscription is a property of two racks; add topology=two-racks, or leave it out")
    if "scale" in options and not preset:
        raise UsageError("scale belongs to a link known by name, such as 10gbe(scale=32); leave it out")
    up, down, scale = _rates(preset, options)
    alpha_s = _time(options, "alpha", _LOWEST_ALPHA_S, _HIGHEST_ALPHA_S, "a sleep is no finer than that")
    gso, burst = options.get("gso"), options.get("burst")
    gso_bytes = None if gso is None else whole_of(gso, "gso", _SMALLEST_GSO, _LARGEST_GSO)
    burst_bytes = None if burst is None else whole_of(burst, "burst", _SMALLEST_GSO, _LARGEST_BURST)
    if gso_bytes is not None and burst_bytes is not None and burst_bytes < gso_bytes:
        raise UsageError(
            f"burst={burst_bytes} is less than gso={gso_bytes}: the kernel would cut every packet up, and the "
            "processor would become the limit; raise burst or lower gso"
        )
    return Network(
        up_bits_per_s=up,
        down_bits_per_s=down,
        alpha_s=alpha_s,
        delay_s=_time(options, "delay", _LOWEST_DELAY_S, _HIGHEST_DELAY_S, "change it"),
        loss=number_of(options.get("loss", 0), "loss", 0, _MOST_LOSS),
        burst_bytes=burst_bytes,
        gso_bytes=gso_bytes,
        ranks_per_node=whole_of(options.get("ranks_per_node", 1), "ranks_per_node", 1, 1024),
        topology="two-racks" if topology == "two-racks" else "star",
        oversubscription=number_of(options.get("oversubscription", 1), "oversubscription", 1, 1000),
        preset=preset,
        scale=scale,
    )


def _time(options: Mapping[str, Value], key: str, low_s: float, high_s: float, advice: str) -> float:
    value = options.get(key, 0)
    if value == 0:
        return 0.0
    found = round(time_of(value, key), 9)
    if not low_s <= found <= high_s:
        raise UsageError(f"{key} must be from {time_text(low_s)} to {time_text(high_s)}, given {value}; {advice}")
    return found


def _rates(preset: str, options: Mapping[str, Value]) -> tuple[float, float, float]:
    if preset:
        if own := [key for key in ("rate", "up", "down") if key in options]:
            raise UsageError(f"{preset} has its own rate; leave {own[0]} out, or give the rate without the name")
        scale = number_of(options.get("scale", PRESETS[preset].scale), "scale", 1, 1e6)
        up = down = PRESETS[preset].rate_bits_per_s / scale
    else:
        scale = 1.0
        given = {key: round(rate_of(options[key], key)) for key in ("rate", "up", "down") if key in options}
        both = given.get("rate")
        if (both is None) == (not given.keys() >= {"up", "down"}):
            raise UsageError(f"the network has no rate, or one too many; {_HOW}")
        up, down = (float(given.get(key, both or 0)) for key in ("up", "down"))
    for rate in (up, down):
        if not _LOWEST_BITS_PER_S <= rate <= _HIGHEST_BITS_PER_S:
            low, high = rate_text(_LOWEST_BITS_PER_S), rate_text(_HIGHEST_BITS_PER_S)
            raise UsageError(
                f"a link must have from {low} to {high}, given {rate / 1e9:g} Gbit/s; "
                f"{'change scale' if preset else 'change the rate'}"
            )
    return up, down, scale
