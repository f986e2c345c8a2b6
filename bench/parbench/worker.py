"""A worker is the process of one rank: it joins its group, then serves the launcher until it is told to leave."""

from __future__ import annotations

import datetime
import faulthandler
import os
import signal
import sys
import time
import traceback
from pathlib import Path

import torch
import torch.distributed as dist

from parbench.heartbeat import Heartbeat
from parbench.launch.failure import is_out_of_memory
from parbench.launch.messages import (
    Done,
    Leave,
    Raised,
    Ready,
    Reply,
    Seat,
    decode_command,
    decode_seat,
    encode,
)
from parbench.launch.note import StepNote, note_beside
from parbench.launch.pipe import Pipe
from parbench.launch.stores import Store, joined
from parbench.memory_gauge import give_back_freed_memory, keep_freed_memory, limit_memory
from parbench.network.enter import enter
from parbench.rank import Rank


def join(seat: Seat, heartbeat: Heartbeat, store: Store | None = None) -> Rank:
    """Make this process a rank: threads, memory, device, process group.

    Args:
        seat: which rank it is and where the others meet.
        heartbeat: told what is going on.
        store: where the others meet, if this process has already been there; else `seat` says where.
    """
    torch.set_num_threads(seat.threads)
    give_back_freed_memory() if seat.weigh else keep_freed_memory()
    device = torch.device(seat.device)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if seat.memory_bytes is not None:
        limit_memory(device, seat.memory_bytes)
    timeout = datetime.timedelta(seconds=seat.group_timeout_s)
    if store is None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # one machine: loopback, whatever its host name resolves to
        store = joined(seat.host, seat.port, seat.group_timeout_s)
    dist.init_process_group(
        seat.backend,
        store=store,
        rank=seat.rank,
        world_size=seat.world_size,
        timeout=timeout,
        device_id=device if seat.backend == "nccl" else None,
    )
    dist.barrier()
    return Rank(seat, heartbeat)


def _enter_network(seat: Seat) -> Store | None:
    """Enter the namespace of this rank's shaped link, if it has one, and return where the ranks meet.

    The store stays outside, in the launcher: it is joined first, and a socket stays in the namespace it was made in.
    """
    if seat.network is None:
        return None
    store = joined(seat.host, seat.port, seat.group_timeout_s)
    enter(seat.network)
    os.environ["GLOO_SOCKET_IFNAME"] = seat.network.interface
    return store


def device_name(device: torch.device) -> str:
    """Return the accelerator's model name, or "cpu"."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def main(seat_bytes: bytes, commands: Pipe, pulses: Pipe) -> None:
    """Live as a rank, in a process of its own, until told to leave; never returns.

    Args:
        seat_bytes: an encoded `Seat`.
        commands: both ways: commands in, replies out.
        pulses: out only: the heartbeat.
    """
    seat = decode_seat(seat_bytes)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the launcher decides what Ctrl-C means
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})  # the forkserver holds them back
    _redirect_output(seat.log)
    heartbeat = Heartbeat(seat.rank, pulses, StepNote(note_beside(Path(seat.log))))
    try:
        store = _enter_network(seat)
        heartbeat.start()
        rank = join(seat, heartbeat, store)
        _tell(commands, Ready(device_name=device_name(rank.device)))
        serve(rank, commands)
        heartbeat.phase = "leaving"
        heartbeat.watch([])
        dist.barrier()
        dist.destroy_process_group()
        _tell(commands, Done())
    except BaseException as error:  # noqa: BLE001 - whatever ends a rank must reach the launcher
        traceback.print_exc()
        sys.stderr.flush()
        _tell(commands, raised(error, heartbeat.step))
        os._exit(1)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # no interpreter teardown: threads of the backend may still be running


def serve(rank: Rank, commands: Pipe) -> None:
    """Carry out commands until one says to leave."""
    while True:
        try:
            message = commands.recv_bytes()
        except (EOFError, OSError):
            os._exit(1)  # the launcher is gone
        command = decode_command(message)
        reply = rank.execute(command)
        if isinstance(command, Leave):
            return
        _tell(commands, reply)


def _tell(commands: Pipe, reply: Reply) -> None:
    # An EOFError of a plug-in is a failure to report, so only those of the pipe are caught, and here.
    try:
        commands.send_bytes(encode(reply))
    except OSError:
        os._exit(1)  # the launcher is gone


def raised(error: BaseException, step: int | None) -> Raised:
    """Return the message that tells the launcher about `error`."""
    text, oom = " ".join(str(error).split()), is_out_of_memory(error)
    return Raised(
        at_s=time.perf_counter(),
        step=step,
        kind="oom" if oom else "exception",
        # What was allocated, reserved and used on the device stands at the end of what torch says of that.
        message=f"{type(error).__name__}: {text[: 1000 if oom else 500]}",
    )


def _redirect_output(path: str) -> None:
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    # The launcher asks for stacks with this signal when nothing moves any more.
    faulthandler.enable(file=2, all_threads=True)
    faulthandler.register(signal.SIGUSR1, file=2, all_threads=True)
