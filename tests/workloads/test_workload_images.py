"""The images workload: shapes it takes, files it refuses."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch
from workload_cases import CPU, META, losses, write_images

from parbench.errors import UsageError
from parbench.workloads.images import Images

X = np.zeros((20, 5, 4), dtype=np.uint8)
Y = np.arange(20) % 3


def saved(folder: Path, **arrays: np.ndarray) -> Images:
    path = folder / "it.npz"
    np.savez(path, **arrays)
    return Images(path=str(path))


def test_it_learns_a_pattern(tmp_path: Path) -> None:
    job = Images(path=str(write_images(tmp_path))).build("small", 0, CPU, 16)
    losses(job, 80)
    assert job.held_out is not None
    assert job.held_out(job.model)["accuracy"] > 0.9


@pytest.mark.parametrize("shape", [(20, 5, 4), (20, 3, 5, 4), (20, 1, 1)])
@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.float64])
def test_images_of_any_size_train(shape: tuple[int, ...], dtype: type, tmp_path: Path) -> None:
    x = np.arange(np.prod(shape)).reshape(shape) % 200
    job = saved(tmp_path, x=x.astype(dtype), y=Y).build("smoke", 0, CPU, 6)
    channels = shape[1] if len(shape) == 4 else 1
    assert sum(p.numel() for p in job.model.parameters()) == (
        (9 * channels + 1) * 4 + (9 * 4 + 1) * 8 + (9 * 8 + 1) * 16 + (16 + 1) * 3
    )
    assert [job.batch(k).samples for k in range(3)] == [6, 6, 4]
    assert len(losses(job, 3)) == 3


def test_train_images_are_scaled_to_mean_0_and_deviation_1(tmp_path: Path) -> None:
    job = Images(path=str(write_images(tmp_path))).build("smoke", 0, META, 56)
    inputs = job.batch(0).inputs
    assert inputs.mean().item() == pytest.approx(0, abs=1e-5)
    assert inputs.std(correction=0).item() == pytest.approx(1, abs=1e-5)


def test_images_that_are_all_alike_stay_finite(tmp_path: Path) -> None:
    batch = saved(tmp_path, x=X, y=Y).build("smoke", 0, META, 6).batch(0)
    assert torch.isfinite(batch.inputs).all()


def test_the_hash_is_that_of_the_file(tmp_path: Path) -> None:
    workload = saved(tmp_path, x=X, y=Y)
    assert workload.data_hash() == hashlib.sha256((tmp_path / "it.npz").read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (X[:, 0], Y, r"x has shape \(20, 4\); allowed: \(N, H, W\) or \(N, C, H, W\)"),
        (X[:, :0], Y, r"no side 0"),
        (X.astype(np.int32), Y, "x is int32; allowed: uint8 or floating"),
        (X.astype(bool), Y, "x is bool"),
        (X, Y[:-1], r"y has shape \(19,\), but 20 images need one label each"),
        (X, Y[:, None], r"y has shape \(20, 1\)"),
        (X, Y.astype(np.float32), "y is float32; allowed: integers"),
        (X[:9], Y[:9], "holds 9 images; at least 10"),
        (X[:0], Y[:0], "holds 0 images"),
        (X, Y - 1, "labels go from -1 to 1; allowed: 0 to 19"),
        (X, Y * 10, "labels go from 0 to 20"),
        (X, Y * 0, "two classes at least"),
        (X + np.float32("nan"), Y, "not finite"),
        (X + np.float64(1e300), Y, "not finite in 32 bits"),
    ],
)
def test_arrays_that_make_no_sense(x: np.ndarray, y: np.ndarray, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        saved(tmp_path, x=x, y=y).build("smoke", 0, CPU, 2)


def test_missing_arrays_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has no y, only: images, x; write it with numpy\.savez"):
        saved(tmp_path, images=X, x=X).build("smoke", 0, CPU, 2)
    with pytest.raises(UsageError, match="has no x and no y, only: nothing"):
        saved(tmp_path).build("smoke", 0, CPU, 2)


def test_pickled_objects_are_never_loaded(tmp_path: Path) -> None:
    objects = np.array([{"a": 1}] * 20, dtype=object)
    with pytest.raises(UsageError, match="Object arrays cannot be loaded"):
        saved(tmp_path, x=objects, y=Y).build("smoke", 0, CPU, 2)


def test_files_that_are_no_archive(tmp_path: Path) -> None:
    path = tmp_path / "it.npz"
    with pytest.raises(UsageError, match="No such file"):
        Images(path=str(path)).build("smoke", 0, CPU, 2)
    with pytest.raises(UsageError, match="No such file"):
        Images(path=str(path)).data_hash()
    with pytest.raises(UsageError, match="Is a directory"):
        Images(path=str(tmp_path)).build("smoke", 0, CPU, 2)
    for content in (b"", b"hello", b"PK\x03\x04hello"):
        path.write_bytes(content)
        with pytest.raises(UsageError, match=r"cannot read .*it\.npz"):
            Images(path=str(path)).build("smoke", 0, CPU, 2)
    np.save(tmp_path / "one.npy", X)
    with pytest.raises(UsageError, match="holds one array"):
        Images(path=str(tmp_path / "one.npy")).build("smoke", 0, CPU, 2)


def test_a_truncated_archive(tmp_path: Path) -> None:
    saved(tmp_path, x=X, y=Y)
    whole = (tmp_path / "it.npz").read_bytes()
    for kept in range(0, len(whole), 37):
        (tmp_path / "it.npz").write_bytes(whole[:kept])
        with pytest.raises(UsageError, match="cannot read"):
            Images(path=str(tmp_path / "it.npz")).build("smoke", 0, CPU, 2)


def test_a_batch_larger_than_the_train_images(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"global batch size 17 .* 1 to 16"):
        saved(tmp_path, x=X, y=Y).build("smoke", 0, CPU, 17)
