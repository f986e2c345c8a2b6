"""NVML tells what the boards of this host are and draw, through nvidia-ml-py; what it cannot tell has a sentence."""

from __future__ import annotations

from collections.abc import Iterable
from typing import final

from parbench.visible import Board

_SENTENCES = {
    1: "NVML was not initialised",
    3: "the driver does not support it for this board",
    4: "this user has no permission",
    9: "the NVIDIA driver is not loaded",
    12: "NVML library not found (it comes with NVIDIA's driver)",
    13: "the NVML library lacks the function: it is older than nvidia-ml-py expects",
    15: "the GPU is lost: it has fallen off the bus",
    18: "driver and NVML library differ in version: reboot, or reload the driver",
}


@final
class Nvml:
    """An open NVML; `open` gives one, or a sentence saying why there is none."""

    def __init__(self, boards: list[Board]) -> None:
        self.boards = boards

    @staticmethod
    def open() -> Nvml | str:
        """Open NVML and list the boards of this host."""
        try:
            import pynvml
        except ImportError:
            return "nvidia-ml-py is not installed: pip install 'parbench[run]'"
        try:
            pynvml.nvmlInit()
            count = int(pynvml.nvmlDeviceGetCount())
            boards = [_board(index) for index in range(count)]
        except pynvml.NVMLError as error:
            return sentence(error)
        return Nvml([one for one in boards if one is not None])


def _board(index: int) -> Board | None:
    """Return a board; None where it does not answer, as one does that is lost."""
    import pynvml

    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        return Board(
            index=index,
            uuid=str(pynvml.nvmlDeviceGetUUID(handle)),
            bus_id=_text(pynvml.nvmlDeviceGetPciInfo(handle).busId),
            name=str(pynvml.nvmlDeviceGetName(handle)),
            parts=tuple(_parts(handle)),
        )
    except pynvml.NVMLError:
        return None


def _parts(handle: object) -> Iterable[str]:
    import pynvml

    try:
        if not pynvml.nvmlDeviceGetMigMode(handle)[0]:
            return
        most = int(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle))
    except pynvml.NVMLError:
        return
    for k in range(most):
        try:
            yield str(pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, k)))
        except pynvml.NVMLError:
            continue


def sentence(error: Exception) -> str:
    """Return what an NVML error says, in words that help."""
    code = getattr(error, "value", None)
    return _SENTENCES.get(code, f"NVML says: {error}") if isinstance(code, int) else f"NVML says: {error}"


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
