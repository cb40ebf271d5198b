"""Encoding by an engine: who computes changes no byte."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from anmi.engine import IN_PROCESS, EngineParams, map_shards
from anmi.retrieval.encoders import Encoding
from anmi.retrieval.prompts import OWN


@pytest.mark.parametrize("workers", [0, 2], ids=["threads", "processes"])
def test_whoever_encodes_the_vectors_are_the_same(workers: int, tmp_path: Path) -> None:
    encoding = Encoding("minilm", tmp_path, 64, OWN, "auto", 4, "document")
    batches = [[f"text {number} of batch {batch}" + " and more" * number for number in range(8)] for batch in range(5)]
    several = EngineParams(workers=workers)
    found, expected = ([*map_shards(engine, encoding, batches)] for engine in (several, IN_PROCESS))
    assert len(found) == len(batches)
    assert all(np.array_equal(mine, other) for mine, other in zip(found, expected, strict=True))
    assert np.linalg.norm(found[0], axis=1) == pytest.approx(1, abs=1e-3)
