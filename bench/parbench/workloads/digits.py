"""digits: handwritten digits, the 1,797 images of 8 x 8 pixels that come with scikit-learn.

N images, F pixels of an image.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, final

import numpy as np
import torch

from parbench.api import Batch, Job, Workload
from parbench.errors import MissingError, unknown_name
from parbench.workloads import _data, _loss, _vision

_SIDE, _CLASSES = 8, 10
_MISSING = "the digits come with scikit-learn, which is not installed here; pip install scikit-learn"


@final
class Digits(Workload):
    """Classification of UCI's handwritten digits; a fixed fifth of the images is held out, whatever the seed."""

    unit: ClassVar[str] = "samples"
    sizes: ClassVar[Mapping[str, Mapping[str, int]]] = {
        "smoke": {"width": 16, "layers": 2},
        "small": {"width": 256, "layers": 2},
        "cnn": {"filters": 16, "layers": 3},
    }
    source: ClassVar[str] = (
        "UCI 'Optical Recognition of Handwritten Digits', the 1,797 images bundled with scikit-learn (load_digits); "
        "multi-layer perceptrons (smoke, small) and a convolutional network (cnn)"
    )

    def unsupported(self) -> str | None:
        """Say that scikit-learn is missing, where it is."""
        return None if importlib.util.find_spec("sklearn") else _MISSING

    def data_hash(self) -> str:
        """Return the SHA-256 of the pixels and labels, one byte each.

        Raises:
            MissingError: scikit-learn is not installed.
        """
        pixels_NF, labels_N = _load()
        values = pixels_NF.astype(np.uint8).tobytes() + labels_N.astype(np.uint8).tobytes()
        return hashlib.sha256(values).hexdigest()

    def default_batch_size(self, size: str) -> int:
        """Return 64: 22 full batches and one of 30 make an epoch."""
        self._settings(size)
        return 64

    def build(self, size: str, seed: int, device: torch.device, global_batch_size: int) -> Job:
        """Build the classifier and the epochs of its train images.

        Raises:
            UsageError: no such size, or a batch of more than the 1,438 train images.
            MissingError: scikit-learn is not installed.
        """
        settings = self._settings(size)
        layers = settings["layers"]
        pixels_NF, labels_N = _load()
        images = torch.from_numpy(pixels_NF / 16.0).float()  # pixels are counts from 0 to 16
        if "filters" in settings:
            images = images.view(-1, 1, _SIDE, _SIDE)
            model = _vision.cnn(1, settings["filters"], _CLASSES, seed, device)
        else:
            model = _vision.mlp(_SIDE * _SIDE, settings["width"], layers, _CLASSES, seed, device)
        labels = torch.from_numpy(labels_N).long()
        train, held_out = (Batch(inputs=images[i], targets=labels[i]) for i in _data.split(len(labels)))
        return Job(
            model=model,
            loss=_loss.sum_loss,
            optimizer=_vision.momentum_sgd,
            batch=_data.batches(train, global_batch_size, seed),
            steps_per_epoch=-(-train.samples // global_batch_size),
            unit=self.unit,
            units_per_sample=1,
            blocks=_vision.blocks(layers),
            shardings={} if "filters" in settings else _vision.mlp_shardings(layers),
            held_out=_loss.evaluator(held_out, _vision.CHUNK),
        )

    def _settings(self, size: str) -> Mapping[str, int]:
        if size not in self.sizes:
            raise unknown_name("size of digits", size, self.sizes, "parbench list workloads")
        return self.sizes[size]


Arrays = tuple[np.ndarray[tuple[int, int], np.dtype[np.float64]], np.ndarray[tuple[int], np.dtype[np.int64]]]


def _load() -> Arrays:
    """Return pixels (N, 64) and labels (N,)."""
    found = importlib.util.find_spec("sklearn")
    if found is None:
        raise MissingError(_MISSING)
    # Importing scikit-learn takes a second in the launcher and in every rank; the table alone takes hundredths.
    tables = [Path(folder, "datasets", "data", "digits.csv.gz") for folder in found.submodule_search_locations or ()]
    for table in filter(Path.is_file, tables):
        rows_NF = np.loadtxt(table, delimiter=",")
        return rows_NF[:, :-1], rows_NF[:, -1].astype(np.int64)
    from sklearn.datasets import load_digits

    pixels_NF, labels_N = load_digits(return_X_y=True)
    return pixels_NF, labels_N
