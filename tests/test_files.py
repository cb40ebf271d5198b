"""Full and read-only disks, real ones: one sentence that names the place, and nothing half-written is seen."""

from __future__ import annotations

import os
import subprocess
import tempfile
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
    TextDataset,
)
from anmi.errors import AnmiError

V1 = "2026-01-01T00.00.00.000Z"
SMALL = 256 * 1024
NOISE = np.random.default_rng(0).random((512, 256)).astype(np.float32)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """Mount a file system of a few kilobytes, or one that is read-only."""
    mounted = []

    def mount(options: str) -> Path:
        place = tmp_path / f"disk{len(mounted)}"
        place.mkdir()
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)],
            capture_output=True,
            check=False,
        )
        if done.returncode:
            pytest.skip(f"a file system cannot be mounted here: {done.stderr.decode().strip()}")
        mounted.append(place)
        return place

    yield mount
    for place in mounted:
        subprocess.run(["umount", "-l", str(place)], check=True)


class Faiss:
    """Saves as an index does."""

    def save(self, path: Path) -> None:
        import faiss

        index = faiss.IndexFlatIP(NOISE.shape[1])
        index.add(NOISE)
        faiss.write_index(index, str(path / "index.faiss"))


class Weights:
    """Saves as a model does."""

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


FRAME = pd.DataFrame({"text": [row.tobytes().hex() for row in NOISE]})
CASES: dict[str, tuple[type, Callable[[], Any]]] = {
    "candidates": (CandidateShardsDataset, shards),
    "table": (TableDataset, lambda: FRAME),
    "json": (JsonDataset, FRAME.text.tolist),
    "text": (TextDataset, lambda: "".join(FRAME.text)),
    "array": (NumpyDataset, lambda: NOISE),
    "faiss": (FolderDataset, Faiss),
    "weights": (FolderDataset, Weights),
}


def refusal(save: Callable[[Any], None], data: Any) -> str:
    """Return what a user is told; Kedro wraps what a dataset raises."""
    with pytest.raises((AnmiError, DatasetError)) as raised:
        save(data)
    return user_error(raised.value) or str(raised.value)


@pytest.mark.parametrize("name", CASES)
def test_a_full_disk_is_told_and_leaves_nothing(name: str, disk: Callable[..., Path]) -> None:
    kind, make = CASES[name]
    place = disk(f"size={SMALL}")
    dataset = kind(filepath=f"{place}/x/artifact", version=Version(None, V1))
    told = refusal(dataset.save, make())
    assert told.startswith(
        f"{place}/x/artifact could not be written, since there is no space left on its disk"
    )
    assert "ANMI_DATA_ROOT" in told
    assert not dataset.exists()
    assert not [path for path in place.rglob("*") if path.is_file()], "the space is free again"


def test_a_read_only_disk_and_one_of_somebody_else(
    disk: Callable[..., Path], tmp_path: Path
) -> None:
    place = disk("size=1m,ro")
    dataset = TableDataset(filepath=f"{place}/artifact", version=Version(None, V1))
    told = refusal(dataset.save, FRAME)
    assert told.startswith(
        f"{place}/artifact could not be written, since its file system is read-only"
    )
    with pytest.raises(
        AnmiError, match=r"runs/r1/run\.json could not be written.*read-only.*ANMI_DATA_ROOT"
    ):
        buckets.write_text(f"{place}/runs/r1/run.json", "{}")
    if os.geteuid():
        pytest.skip("only root can become another user")
    # The folders above are root's alone.
    outside = Path(tempfile.mkdtemp(dir="/tmp"))
    outside.chmod(0o755)
    os.seteuid(65534)
    try:
        dataset = TableDataset(filepath=f"{outside}/artifact", version=Version(None, V1))
        assert "since this user may not write there" in refusal(dataset.save, FRAME)
    finally:
        os.seteuid(0)
        outside.rmdir()
