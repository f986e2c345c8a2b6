"""digits: handwritten digits, the 1,797 images of 8 x 8 pixels that come with scikit-learn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

import torch

from parbench.api import Job, Workload
from parbench.errors import unknown_name
from parbench.workloads import _data, _digits, _loss, _vision


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
        return _digits.lacking()

    def data_hash(self) -> str:
        """Return the SHA-256 of the pixels and labels, one byte each.

        Raises:
            MissingError: scikit-learn is not installed.
        """
        return _digits.data_hash()

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
        side, classes = _digits.SIDE, _digits.CLASSES
        if "filters" in settings:
            train, held_out = _digits.train_and_held_out(1, side, side)
            model = _vision.cnn(1, settings["filters"], classes, seed, device)
        else:
            train, held_out = _digits.train_and_held_out(side * side)
            model = _vision.mlp(side * side, settings["width"], layers, classes, seed, device)
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
