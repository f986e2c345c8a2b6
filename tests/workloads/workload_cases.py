"""The workloads under test, with generated files where they read the user's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from parbench.api import Job, Workload
from parbench.registry import Registry
from parbench.workloads.digits import Digits
from parbench.workloads.gpt import Gpt
from parbench.workloads.images import Images
from parbench.workloads.text import Text

CPU, META = torch.device("cpu"), torch.device("meta")

# Every size that a CPU trains in well under a second a step.
SMALL = [
    ("digits", "smoke"),
    ("digits", "small"),
    ("digits", "cnn"),
    ("images", "smoke"),
    ("images", "small"),
    ("text", "smoke"),
    ("text", "small"),
    ("gpt", "smoke"),
    ("gpt", "small"),
]
LARGE = [("gpt", name) for name in ("25m", "gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl")]
# Of the workloads below, laws of tests/conformance look at everything that those above are asked here again.
MORE = [
    "alexnet",
    "bert",
    "digit-rows",
    "disruption",
    "ecg",
    "googlenet",
    "lstm",
    "matrix-recovery",
    "mlp",
    "moe-gpt",
    "resnet",
    "seq2seq",
    "sparse-lm",
    "unet3d",
    "vgg",
    "vit",
]

IMAGES = 70  # 56 to train on


def write_text(folder: Path) -> Path:
    """Write 20,000 characters made by a formula: words of a small alphabet, some punctuation."""
    letters = "abcdefghijklmno pqrstu.\n"
    path = folder / "corpus.txt"
    path.write_text("".join(letters[(k * k + k // 7) % len(letters)] for k in range(20_000)), encoding="utf-8")
    return path


def write_images(folder: Path) -> Path:
    """Write 70 images of 9 x 7 pixels: a bright row tells the class."""
    number = np.arange(IMAGES)
    y = number % 4
    x = (number[:, None, None] * 7 + np.arange(9)[None, :, None] * 5 + np.arange(7) * 3) % 64
    x[number, 2 * y] += 180
    path = folder / "images.npz"
    np.savez(path, x=x.astype(np.uint8), y=y)
    return path


def workload(name: str, folder: Path) -> Workload:
    """Return the workload, reading a generated file where it reads one."""
    if name == "digits":
        return Digits()
    if name == "images":
        return Images(path=str(write_images(folder)))
    if name == "text":
        return Text(path=str(write_text(folder)))
    if name == "gpt":
        return Gpt()
    if name == "lstm":
        return Registry().resolve("workload", f"lstm(path={str(write_text(folder))!r})")
    return Registry().resolve("workload", name)


def job(name: str, size: str, folder: Path, *, seed: int = 0, batch_size: int = 6) -> Job:
    """Build a job on the CPU."""
    return workload(name, folder).build(size, seed, CPU, batch_size)


def losses(a_job: Job, steps: int, *, fixed_batch: bool = False) -> list[float]:
    """Train on one process and return the mean loss of every step."""
    optimizer = a_job.optimizer(a_job.model.parameters())
    seen = []
    for step in range(steps):
        batch = a_job.batch(0 if fixed_batch else step)
        loss = a_job.loss(a_job.model(batch.inputs), batch) / batch.samples
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen.append(loss.item())
    return seen
