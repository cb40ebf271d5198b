"""A full disk, a real one: one sentence that names the place, and nothing half-written is seen."""

from __future__ import annotations

import errno
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from kedro.io.core import DatasetError, Version

from anmi import buckets
from anmi.candidates import Candidates, CandidateShards
from anmi.cli.common import user_error
from anmi.datasets import (
    CandidateShardsDataset,
    FolderDataset,
    JsonDataset,
    NumpyDataset,
    TableDataset,
)

NOISE = np.random.default_rng(0).random((512, 256)).astype(np.float32)
FRAME = pd.DataFrame({"text": [row.tobytes().hex() for row in NOISE]})


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 256 kilobytes."""
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(tmp_path)]
    mounting = subprocess.run(command, capture_output=True, check=False)
    if mounting.returncode:
        pytest.skip(f"a file system cannot be mounted here: {mounting.stderr.decode().strip()}")
    yield tmp_path
    subprocess.run(["umount", "-l", str(tmp_path)], check=True)


class Faiss:
    def save(self, path: Path) -> None:
        import faiss

        index = faiss.IndexFlatIP(NOISE.shape[1])
        index.add(NOISE)
        faiss.write_index(index, str(path / "index.faiss"))


class Weights:
    def save(self, path: Path) -> None:
        from safetensors.numpy import save_file

        save_file({"w": NOISE}, path / "model.safetensors")


def shards() -> CandidateShards:
    block = Candidates(
        query_ids=np.array([f"q{i}" for i in range(len(NOISE))]),
        positives=np.zeros((len(NOISE), 1), np.int32),
        documents=np.tile(np.arange(NOISE.shape[1], dtype=np.int32), (len(NOISE), 1)),
        source=np.ones(NOISE.shape, np.uint8),
        columns={"bm25": NOISE},
    )
    return CandidateShards.of([block, block])


@pytest.mark.parametrize(
    ("dataset_class", "make_data"),
    [
        (CandidateShardsDataset, shards),
        (TableDataset, lambda: FRAME),
        (JsonDataset, FRAME.text.tolist),
        (NumpyDataset, lambda: NOISE),
        (FolderDataset, Faiss),
        (FolderDataset, Weights),
    ],
)
def test_a_full_disk_is_told_and_leaves_nothing(
    dataset_class: type, make_data: Callable[[], Any], disk: Path
) -> None:
    dataset = dataset_class(
        filepath=f"{disk}/x/artifact", version=Version(None, "2026-01-01T00.00.00.000Z")
    )
    with pytest.raises(DatasetError) as raised:
        dataset.save(make_data())
    message = str(user_error(raised.value))
    assert f"{disk}/x/artifact" in message and "its disk is full" in message
    assert "ANMI_DATA_ROOT" in message and not dataset.exists()
    assert not [path for path in disk.rglob("*") if path.is_file()], "the space is free again"


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(OSError, match="runs") as raised:
        buckets.write_text(f"{tmp_path}/runs/r1/run.json", "{}")
    assert user_error(raised.value) is None, "a defect is no matter of the disk"
    read_only = OSError(errno.EROFS, "Read-only file system", "/x/run.json")
    assert user_error(read_only) == "[Errno 30] Read-only file system: '/x/run.json'"
