"""A link peer sends over one link and receives over another, as told line by line; run as a program of its own.

It imports nothing but the standard library, so that it starts in hundredths of a second in every namespace.

argv: own address, next address, port.  stdin: "connect", then "ping COUNT", then "flow SECONDS".  stdout: JSON lines.
"""

from __future__ import annotations

import json
import socket
import statistics
import sys
import threading
import time

_CHUNK = bytes(1 << 17)
_READ = 1 << 20
_TIMEOUT_S = 20.0
_SETTLE = 0.2  # share of a flow left out at its start: what a burst lets through, and TCP finding the rate


def main(own: str, following: str, port: int) -> None:
    """Serve the lines of the standard input until they end."""
    listener = socket.create_server((own, port))
    listener.settimeout(_TIMEOUT_S)
    _say({"ready": True})
    out: socket.socket | None = None
    server = threading.Thread(target=_receive, args=(listener,), daemon=True)
    for line in sys.stdin:
        word, _, value = line.strip().partition(" ")
        if word == "connect":
            server.start()
            out = socket.create_connection((following, port), _TIMEOUT_S)
            out.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _say({"connected": True})
        elif word == "ping" and out is not None:
            _say({"alpha_s": _ping(out, int(value))})
        elif word == "flow" and out is not None:
            _send(out, float(value))
            server.join(_TIMEOUT_S)


def _ping(out: socket.socket, count: int) -> float:
    """Return half the median time of a byte there and back, the first ones left out."""
    taken = []
    for _ in range(count):
        started_s = time.perf_counter()
        out.sendall(b"p")
        if not out.recv(1):
            raise ConnectionError("the next peer ended")
        taken.append(time.perf_counter() - started_s)
    return statistics.median(taken[count // 4 :]) / 2


def _send(out: socket.socket, seconds: float) -> None:
    out.sendall(b"f")
    deadline_s = time.perf_counter() + seconds
    while time.perf_counter() < deadline_s:
        out.sendall(_CHUNK)
    out.shutdown(socket.SHUT_WR)


def _receive(listener: socket.socket) -> None:
    """Echo pings, then take in a flow and say how fast it came."""
    source, _ = listener.accept()
    source.settimeout(_TIMEOUT_S)
    source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while (byte := source.recv(1)) == b"p":
        source.sendall(byte)
    began_s, busy_s = time.perf_counter(), time.process_time()
    arrived = [(began_s, 0)]
    buffer = bytearray(_READ)
    total = 0
    while got := source.recv_into(buffer):
        total += got
        arrived.append((time.perf_counter(), total))
    end_s = arrived[-1][0]
    first = next(one for one in arrived if one[0] >= began_s + _SETTLE * (end_s - began_s))
    rate = (total - first[1]) / max(end_s - first[0], 1e-9)
    _say({"bytes_per_s": rate, "processor_s": time.process_time() - busy_s, "wall_s": end_s - began_s})


def _say(fact: dict[str, float] | dict[str, bool]) -> None:
    sys.stdout.write(json.dumps(fact) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
