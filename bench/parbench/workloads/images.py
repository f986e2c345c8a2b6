"""images: a small convolutional network on the user's own images, two arrays in an .npz file.

N images, C channels, H rows, W columns.
"""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from parbench.api import Batch, Job, Workload
from parbench.errors import UsageError, unknown_name
from parbench.workloads import _data, _loss, _vision

_FEWEST = 10  # a fifth of it, two images, is held out
_ADVICE = "write it with numpy.savez(FILE, x=images, y=labels)"


@final
class Images(Workload):
    """Classification of the images in a file; a fifth of them, the same for every run, is held out."""

    unit: ClassVar[str] = "samples"
    sizes: ClassVar[Mapping[str, Mapping[str, int]]] = {
        "smoke": {"filters": 4, "layers": 3},
        "small": {"filters": 16, "layers": 3},
    }
    source: ClassVar[str] = (
        "the arrays x (images) and y (labels) of the .npz file given as path; a convolutional network"
    )

    def __init__(self, path: str) -> None:
        """Remember which file to read.

        Args:
            path: an .npz file with `x`, (N, H, W) or (N, C, H, W), uint8 or floating, and `y`, (N,), integers from 0.
        """
        self._path = path

    def data_hash(self) -> str:
        """Return the SHA-256 of the file's bytes, once all of it is found to be right.

        Raises:
            UsageError: the file cannot be read, or does not hold what it should.
        """
        _load(self._path)
        try:
            with Path(self._path).open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except (OSError, ValueError) as error:
            raise _unreadable(self._path, error) from error

    def default_batch_size(self, size: str) -> int:
        """Return 8 for a smoke test and else 32."""
        self._settings(size)
        return 8 if size == "smoke" else 32

    def build(self, size: str, seed: int, device: torch.device, global_batch_size: int) -> Job:
        """Build the network for the file's channels and classes, and the epochs of its train images.

        Raises:
            UsageError: no such size, a file that does not hold what it should, or a batch larger than the train part.
        """
        settings = self._settings(size)
        images_NCHW, labels_N = _load(self._path)
        train, held_out = _split(images_NCHW, labels_N)
        classes = int(labels_N.max()) + 1
        return Job(
            model=_vision.cnn(images_NCHW.shape[1], settings["filters"], classes, seed, device),
            loss=_loss.sum_loss,
            optimizer=_vision.momentum_sgd,
            batch=_data.batches(train, global_batch_size, seed),
            steps_per_epoch=-(-train.samples // global_batch_size),
            unit=self.unit,
            units_per_sample=1,
            blocks=_vision.blocks(settings["layers"]),
            held_out=_loss.evaluator(held_out, _vision.CHUNK),
        )

    def _settings(self, size: str) -> Mapping[str, int]:
        if size not in self.sizes:
            raise unknown_name("size of images", size, self.sizes, "parbench list workloads")
        return self.sizes[size]


def _split(images_NCHW: Tensor, labels_N: Tensor) -> tuple[Batch, Batch]:
    """Return train and held-out images, both scaled by what the train images are like."""
    train_N, held_out_N = _data.split(len(labels_N))
    std, mean = torch.std_mean(images_NCHW[train_N], correction=0)
    scaled_NCHW = (images_NCHW - mean) / (std if std > 0 else 1.0)
    train, held_out = (Batch(inputs=scaled_NCHW[i], targets=labels_N[i]) for i in (train_N, held_out_N))
    return train, held_out


def _load(path: str) -> tuple[Tensor, Tensor]:
    """Return images_NCHW, float32, and labels_N, int64, from a file that is fully checked."""
    x, y = _arrays(path)
    _check(path, x, y)
    with np.errstate(over="ignore"):
        images = x.astype(np.float32)
    if not np.isfinite(images).all():
        raise UsageError(f"{path!r}: x holds values that are not finite in 32 bits; remove or replace them")
    images_NCHW = torch.from_numpy(images if images.ndim == 4 else images[:, None])
    return images_NCHW, torch.from_numpy(y.astype(np.int64))


def _arrays(path: str) -> tuple[npt.NDArray[np.generic[object]], npt.NDArray[np.generic[object]]]:
    try:
        with Path(path).open("rb") as file:
            archive = np.load(file, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise UsageError(f"{path!r} holds one array, but x and y are needed; {_ADVICE}")
            if missing := {"x", "y"} - set(archive.files):
                found = ", ".join(archive.files)[:200] or "nothing"
                raise UsageError(f"{path!r} has no {' and no '.join(sorted(missing))}, only: {found}; {_ADVICE}")
            return archive["x"], archive["y"]
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise _unreadable(path, error) from error


def _check(path: str, x: npt.NDArray[np.generic[object]], y: npt.NDArray[np.generic[object]]) -> None:
    if x.ndim not in (3, 4) or 0 in x.shape[1:]:
        raise UsageError(f"{path!r}: x has shape {x.shape}; allowed: (N, H, W) or (N, C, H, W), no side 0; reshape it")
    if x.dtype != np.uint8 and x.dtype.kind != "f":
        raise UsageError(f"{path!r}: x is {x.dtype}; allowed: uint8 or floating; convert it with x.astype(...)")
    if y.shape != x.shape[:1]:
        raise UsageError(f"{path!r}: y has shape {y.shape}, but {len(x)} images need one label each: ({len(x)},)")
    if y.dtype.kind not in "iu":
        raise UsageError(f"{path!r}: y is {y.dtype}; allowed: integers; number the classes from 0")
    if len(x) < _FEWEST:
        raise UsageError(
            f"{path!r} holds {len(x)} images; at least {_FEWEST} are needed to train and to hold out; add some"
        )
    low, high = int(y.min()), int(y.max())
    if low < 0 or not 1 <= high < len(x):
        raise UsageError(
            f"{path!r}: labels go from {low} to {high}; allowed: 0 to {len(x) - 1} (a class per image at most), "
            "two classes at least; number the classes from 0"
        )


def _unreadable(path: str, error: Exception) -> UsageError:
    why = getattr(error, "strerror", None) or error  # an OSError's own text repeats the path
    return UsageError(f"cannot read {path!r}: {why}; give the path of an .npz file, {_ADVICE}")
