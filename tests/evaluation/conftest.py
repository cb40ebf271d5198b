"""What several tests of evaluation look at."""

from collections.abc import Callable

import numpy as np
import pytest

from anmi.candidates import NEGATIVE, Candidates


@pytest.fixture(scope="session")
def block() -> Callable[..., Candidates]:
    """Make selected blocks."""

    def make(seed: int = 0, queries: int = 6, width: int = 8) -> Candidates:
        """A selected block: one query dropped, candidates rejected by two steps, up to 3 negatives a query."""
        rng = np.random.default_rng(seed)
        documents = np.array([rng.permutation(100)[:width] for _ in range(queries)], np.int32)
        documents[0, 5:] = -1
        made = Candidates(
            query_ids=np.array([f"q{seed}_{i}" for i in range(queries)]),
            positives=np.full((queries, 1), 200, np.int32), documents=documents,
            source=np.ones((queries, width), np.uint8),
            columns={
                "dense": rng.random((queries, width), np.float32),
                "elo": 1000 * rng.random((queries, width), np.float32),
            },
            positive_columns={
                "dense": np.full((queries, 1), 0.9, np.float32), "elo": np.full((queries, 1), 1200, np.float32),
            },
        )  # fmt: skip
        made = made.rejected("denoise", made.columns["dense"] > 0.8)
        made = made.dropped("consistency", np.arange(queries) == 2)
        made = made.rejected("max_ratio", made.columns["dense"] > 0.6)
        drawn = made.undecided & (np.cumsum(made.undecided, axis=1) <= 3)
        verdict = np.where(drawn, np.int16(NEGATIVE), made.verdict)
        return Candidates(**{**made.__dict__, "verdict": verdict})

    return make
