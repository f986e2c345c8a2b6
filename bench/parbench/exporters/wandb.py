"""Runs of Weights & Biases, written offline: nothing leaves this machine until its owner says `wandb sync`."""

from __future__ import annotations

from pathlib import Path

from parbench.errors import MissingError
from parbench.exporters.exported import Exported


def write(run: Exported, folder: Path) -> Path:
    """Write an offline run below `folder`/wandb and return its folder.

    Raises:
        MissingError: wandb is not installed.
        OSError: it cannot be written.
    """
    try:
        import wandb
    except ImportError as error:
        raise MissingError("this export needs wandb: pip install 'parbench[wandb]'") from error
    folder.mkdir(parents=True, exist_ok=True)
    quiet = wandb.Settings(silent=True, console="off", disable_git=True, save_code=False, x_disable_stats=True)
    begun = wandb.init(
        project="parbench",
        name=run.title,
        id=run.name,
        dir=str(folder),
        mode="offline",
        config=dict(run.settings),
        settings=quiet,
        reinit="finish_previous",
    )
    for step, _, seconds, loss in run.points:
        begun.log({"step_time_s": seconds, **({} if loss is None else {"loss": loss})}, step=step)
    begun.summary.update(run.metrics)
    place = Path(begun.dir).parent
    begun.finish(exit_code=0 if run.status == "complete" else 1)
    wandb.teardown()  # its service has written everything only when it has ended
    return place
