"""Event files of TensorBoard: scalars by step, final metrics at the last step, settings as text."""

from __future__ import annotations

from pathlib import Path

from parbench.errors import MissingError
from parbench.exporters.exported import Exported


def write(run: Exported, folder: Path) -> Path:
    """Write an event file into a folder of the run's own, in the place of a former one, and return that.

    Raises:
        MissingError: tensorboard is not installed.
        OSError: it cannot be written.
    """
    try:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
    except ImportError as error:
        raise MissingError("this export needs tensorboard: pip install 'parbench[tensorboard]'") from error
    place = folder / run.name
    for former in place.glob("events.out.tfevents.*"):
        former.unlink()  # another file beside it would be read as well, and every scalar twice
    writer = EventFileWriter(str(place))

    def scalar(tag: str, value: float, step: int, at_s: float) -> None:
        summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
        writer.add_event(Event(wall_time=at_s, step=step, summary=summary))

    for step, passed, seconds, loss in run.points:
        scalar("step/step_time_s", seconds, step, run.started_s + passed)
        if loss is not None:
            scalar("step/loss", loss, step, run.started_s + passed)
    last, passed = (run.points[-1][0], run.points[-1][1]) if run.points else (0, 0.0)
    for name, value in run.metrics.items():
        scalar(f"metric/{name}", value, last, run.started_s + passed)
    writer.close()
    return place
