"""Handwritten digits, the 1,797 images of 8 x 8 pixels that come with scikit-learn, as tensors.

N images, F pixels of an image.
"""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from parbench.api import Batch
from parbench.errors import MissingError
from parbench.workloads import _data

SIDE, CLASSES = 8, 10
MISSING = "the digits come with scikit-learn, which is not installed here; pip install scikit-learn"


def lacking() -> str | None:
    """Say that scikit-learn is missing, where it is."""
    return None if importlib.util.find_spec("sklearn") else MISSING


def data_hash() -> str:
    """Return the SHA-256 of the pixels and labels, one byte each.

    Raises:
        MissingError: scikit-learn is not installed.
    """
    pixels_NF, labels_N = load()
    values = pixels_NF.astype(np.uint8).tobytes() + labels_N.astype(np.uint8).tobytes()
    return hashlib.sha256(values).hexdigest()


def train_and_held_out(*shape: int) -> tuple[Batch, Batch]:
    """Return the images to train on and those held out, each of this shape, with pixels from 0 to 1.

    Raises:
        MissingError: scikit-learn is not installed.
    """
    pixels_NF, labels_N = load()
    images: Tensor = torch.from_numpy(pixels_NF / 16.0).float().view(-1, *shape)
    labels = torch.from_numpy(labels_N).long()
    train, held_out = (Batch(inputs=images[i], targets=labels[i]) for i in _data.split(len(labels)))
    return train, held_out


Arrays = tuple[np.ndarray[tuple[int, int], np.dtype[np.float64]], np.ndarray[tuple[int], np.dtype[np.int64]]]


def load() -> Arrays:
    """Return pixels (N, 64), counts from 0 to 16, and labels (N,).

    Raises:
        MissingError: scikit-learn is not installed.
    """
    found = importlib.util.find_spec("sklearn")
    if found is None:
        raise MissingError(MISSING)
    # Importing scikit-learn takes a second in the launcher and in every rank; the table alone takes hundredths.
    tables = [Path(folder, "datasets", "data", "digits.csv.gz") for folder in found.submodule_search_locations or ()]
    for table in filter(Path.is_file, tables):
        rows_NF = np.loadtxt(table, delimiter=",")
        return rows_NF[:, :-1], rows_NF[:, -1].astype(np.int64)
    from sklearn.datasets import load_digits

    pixels_NF, labels_N = load_digits(return_X_y=True)
    return pixels_NF, labels_N
