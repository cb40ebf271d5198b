"""Negatives mined again by the encoder that is being trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from anmi.errors import AnmiError
from anmi.training.batch import Row
from anmi.training.checkpoint import CheckpointPlan
from anmi.training.options import TrainingOptions
from anmi.training.options.sources import RefreshedSources
from anmi.training.refreshed import Documents, RefreshedSampler
from anmi.training.trainer import train

DOCUMENTS = Documents([f"d{i}" for i in range(30)], [f"text {i % 28}" for i in range(30)])
ROWS = [
    Row(f"q{i // 2}", f"query {i // 2}", f"d{i}", f"text {i}", (f"d{i + 9}", f"d{i + 8}"), ("x", "y"), (0.5, 0.25),
        1.0, frozenset({f"d{i}"}), frozenset({f"d{(i + 5) % 30}"}))
    for i in range(6)
]  # fmt: skip


class Encoder:
    """Other vectors in every call, and remembers them."""

    def __init__(self) -> None:
        self.rng, self.made = np.random.default_rng(0), []

    def __call__(self, texts: list[str], role: str) -> np.ndarray:
        vectors = self.rng.normal(size=(len(texts), 4)).astype(np.float32)
        self.made.append(dict(zip(texts, vectors / np.linalg.norm(vectors, axis=1, keepdims=True), strict=True)))
        return np.array([self.made[-1][text] for text in texts])


def sampler(encode: Any, every: int = 3, count: int = 4, **options: Any) -> RefreshedSampler:
    return RefreshedSampler(ROWS, count, 1, DOCUMENTS, RefreshedSources(**options), every, encode)


def allowed(row: Row, encoder: Encoder, top: int, max_ratio: float | None = None) -> list[str]:
    """What may be drawn, nearest first, one comparison after the other."""
    queries, documents = encoder.made[-2:]
    same = [other for other in ROWS if other.query_id == row.query_id]
    positives = {other.positive for other in same}
    barred = {name for other in same for name in other.excluded_ids}
    near = []
    for name, text in zip(DOCUMENTS.ids, DOCUMENTS.texts, strict=True):
        score = float(queries[row.query] @ documents[text])
        own = float(queries[row.query] @ documents[row.positive])
        below = max_ratio is None or score < own - abs(own) * (1 - max_ratio)
        if text not in positives and name not in barred and below:
            near.append((-score, name))
    return [name for _, name in sorted(near)][:top]


@pytest.mark.parametrize("max_ratio", [None, 0.9])
def test_negatives_are_the_nearest_that_may_be_drawn(max_ratio: float | None) -> None:
    encoder = Encoder()
    made = sampler(encoder, top=5, count=5, max_ratio=max_ratio)
    everything = np.arange(len(ROWS))
    for step in range(3):
        assert [row.negative_ids for row in made(everything, step)] == [row.negative_ids for row in ROWS]
    assert not encoder.made
    lengths = set()
    for step in (3, 4, 6):
        for row, found in zip(ROWS, made(everything, step), strict=True):
            assert set(found.negative_ids) == set(allowed(row, encoder, 5, max_ratio))
            assert found.negatives == tuple(DOCUMENTS.texts[DOCUMENTS.ids.index(name)] for name in found.negative_ids)
            assert found.weights == (1.0,) * len(found.negatives) and found.excluded_ids == row.excluded_ids
            lengths.add(len(found.negatives))
    assert len(encoder.made) == 4, "mined after 3 and 6 steps, not after 4"
    assert (lengths == {5}) == (max_ratio is None), "with a ceiling some rows have fewer"


def test_a_draw_is_uniform_among_the_nearest_and_depends_on_seed_row_and_step_only() -> None:
    made = sampler(Encoder(), every=1, top=8, count=2)
    made(np.arange(6), 1)
    made._every = 10_000
    drawn = [made(np.array([2]), step)[0].negative_ids for step in range(2, 2002)]
    names, counts = np.unique(np.array(drawn), return_counts=True)
    assert len(names) == 8 and all(len(set(pair)) == 2 for pair in drawn)
    # Four standard errors of a share of a quarter.
    assert np.abs(counts / 2000 - 0.25).max() < 4 * np.sqrt(0.25 * 0.75 / 2000)
    together = made(np.arange(6), 7)
    assert together[2].negative_ids == made(np.array([2]), 7)[0].negative_ids


def test_the_state_goes_on_without_mining_again() -> None:
    made = sampler(Encoder(), top=6)
    first, second = made(np.arange(6), 3), made(np.arange(6), 4)
    values, tensors = made.state_dict()
    again = sampler(lambda *_: pytest.fail("mined again"), top=6)
    again.load_state_dict(values, tensors)
    assert again(np.arange(6), 4) == second
    assert again(np.arange(6), 3) == first
    assert again.report()["mined_at"] == 3.0
    fresh = sampler(Encoder())
    assert fresh.state_dict()[1] == {}
    fresh.load_state_dict(*fresh.state_dict())
    assert fresh(np.arange(1), 0)[0].negative_ids == ROWS[0].negative_ids


def test_the_share_of_new_neighbours_is_counted_row_by_row() -> None:
    encoder = Encoder()
    made = sampler(encoder, top=6, count=6)
    before = made(np.arange(6), 3)
    assert np.isnan(made.report()["renewed"])
    after = made(np.arange(6), 6)
    fresh = [len(set(b.negative_ids) - set(a.negative_ids)) for a, b in zip(before, after, strict=True)]
    assert made.report()["renewed"] == pytest.approx(sum(fresh) / 36) and 0 < sum(fresh) < 36


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"curriculum": "tiers"}, "which curriculum tiers needs"),
        ({"loss": "hybrid"}, "which loss hybrid needs"),
        ({"hardness": "hans"}, "which hardness hans needs"),
        ({"draw": "random"}, "which draw random needs"),
        ({"negatives": None}, "with refreshed sources `negatives` says"),
        ({"retriever": "sparse"}, "a sparse retriever has none"),
        ({"pseudo_queries": {"kinds": ["cloze"]}}, "sources refreshed needs"),
    ],
)
def test_what_needs_mined_negatives_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TrainingOptions(**{"sources": "refreshed", "negatives": 2, **options})


COUNT = 12
WORDS = [f"w{i}" for i in range(2 * COUNT)]
CORPUS = Documents([f"d{i}" for i in range(COUNT)], WORDS[COUNT:])
TABLE = pd.DataFrame([
    {"query_id": f"q{i}", "query": WORDS[i], "positive_id": f"d{i}", "positive": WORDS[COUNT + i],
     "negative_ids": [], "negatives": [], "weights": [], "query_weight": 1.0, "positive_ids": [f"d{i}"]}
    for i in range(COUNT)
])  # fmt: skip


@pytest.fixture
def fit(word_encoder: Any) -> Any:
    def run(stock: Documents | None = CORPUS, epochs: int = 30, every: int = 2, **given: Any) -> Any:
        options = TrainingOptions(
            sources={"refreshed": {"every": every, "top": 3}}, negatives=2, epochs=epochs, batch_size=4,
            learning_rate=0.1, in_batch="none", checkpoint_minutes=None, checkpoint_steps=1,
        )  # fmt: skip
        model = word_encoder(WORDS, dimension=8)
        return train(
            TABLE, encoder=model, options=options, output=None, seed=1, stock=stock, show_progress=False, **given
        )

    return run


def test_a_training_mines_by_its_own_weights(fit: Any) -> None:
    result = fit()
    assert result.log.mined_at.tolist() == [2.0 * (step // 2) for step in range(90)]
    assert result.log.loss.iloc[:2].sum() == 0.0, "there are no negatives before the first time"
    assert 0 < result.log.renewed.max() < 1
    drawn = result.drawn.groupby("query_id").document_id.agg(set)
    assert all(f"d{query[1:]}" not in found for query, found in drawn.items()) and len(drawn) == COUNT
    vectors = result.model.encode(WORDS, normalize_embeddings=True)
    assert ((vectors[:COUNT] @ vectors[COUNT:].T).argmax(1) == np.arange(COUNT)).mean() > 0.9
    with pytest.raises(AnmiError, match="give the training the corpus"):
        fit(stock=None)


def test_stopped_between_two_minings_it_goes_on_to_the_same_weights(fit: Any, tmp_path: Path) -> None:
    def stops(model: Any) -> float:
        # At the end of the second epoch; the newest checkpoint is of its fifth step, and what was mined of its fourth.
        if list(tmp_path.glob("*/step-00000005")):
            raise KeyboardInterrupt
        return 0.5

    with pytest.raises(KeyboardInterrupt):
        fit(epochs=6, every=4, evaluate_dev=stops, checkpoints=CheckpointPlan(tmp_path))
    resumed = fit(epochs=6, every=4, evaluate_dev=lambda model: 0.5, checkpoints=CheckpointPlan(tmp_path))
    whole = fit(epochs=6, every=4, evaluate_dev=lambda model: 0.5)
    assert resumed.summary["resumed_from_step"] == 5
    pd.testing.assert_frame_equal(resumed.log, whole.log, check_exact=True)
    assert all(torch.equal(a, b) for a, b in zip(resumed.model.parameters(), whole.model.parameters(), strict=True))
