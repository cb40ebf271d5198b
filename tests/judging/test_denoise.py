"""What a cross-encoder's logits become, on made candidates whose truth is known; small models before large ones."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import norm
from tests.judging.conftest import block_of

from anmi.candidates import Candidates, CandidateShards
from anmi.judging.cross_encoder import CrossEncoderOptions, split
from anmi.judging.denoise import Judge, probabilities
from anmi.store import Store

QUERIES, WIDTH = 500, 16


def distance(auc: float) -> float:
    """Between the means of two normal distributions of deviation 1."""
    return float(np.sqrt(2) * norm.ppf(auc))


def made(auc: float, share: float, queries: int = QUERIES) -> tuple[Any, ...]:
    """Truth of positives, then candidates, and by a teacher of that AUC the log-odds at even chances."""
    draw = np.random.default_rng(0)
    relevant = np.append(np.ones(queries), draw.random(queries * WIDTH) < share)
    gap = distance(auc)
    ratio = gap * (draw.normal(size=len(relevant)) + gap * relevant - gap / 2)
    labels = np.repeat([1, 0], [queries, queries * WIDTH])
    folds = np.append(np.arange(queries), np.repeat(np.arange(queries), WIDTH)) % 3
    return relevant[queries:] == 1, ratio, labels, folds


@pytest.mark.parametrize("share", [0.01, 0.05, 0.2, 0.5])
@pytest.mark.parametrize(
    ("auc", "of_share", "of_rejected", "of_error"),
    [(0.7, 0.07, 0.16, 0.025), (0.9, 0.02, 0.02, 0.003), (0.98, 0.02, 0.02, 0.003)],
)
def test_corrected_probabilities_reject_nearly_what_the_best_rule_would(
    auc: float, of_share: float, of_rejected: float, of_error: float, share: float
) -> None:
    relevant, ratio, labels, folds = made(auc, share, queries=2_000)
    expected = 0.3 if share == 0.5 else 0.05
    # Its logits are on a scale of their own.
    chance, found = probabilities(3 * ratio - 7, labels, folds, expected)
    chance = chance[labels == 0]
    assert chance.mean() == pytest.approx(found["share"])
    assert chance.mean() == pytest.approx(relevant.mean(), abs=of_share)
    rejected = chance >= 0.5
    best = ratio[labels == 0] + np.log(share / (1 - share)) >= 0
    assert rejected.mean() == pytest.approx(best.mean(), abs=of_rejected)
    assert (rejected != relevant).mean() < (best != relevant).mean() + of_error
    assert rejected.any() or auc < 0.9, "Platt scaling against unlabelled ones rejects none"
    assert found["reliability"]["expected_calibration_error"] < 0.02

    plain, found = probabilities(ratio, labels, folds, expected, corrected=False)
    np.testing.assert_allclose(plain, expit(ratio))
    error = ((plain[labels == 0] >= 0.5) != relevant).mean()
    assert error == pytest.approx(norm.cdf(-distance(auc) / 2), abs=0.015), "at every share"
    assert found["calibration"] == []


def test_one_that_cannot_tell_does_not_say_how_many_are_relevant() -> None:
    _, ratio, labels, folds = made(0.52, 0.3)
    chance, found = probabilities(np.tanh(ratio), labels, folds, 0.05)
    assert found["auc"] < 0.6
    assert chance[labels == 0].mean() == pytest.approx(0.05, abs=0.02)


class Teacher:
    """Knows the log-odds of every pair; stands for a network, which is tested elsewhere."""

    described = "teacher"

    def __init__(self, logits: dict[tuple[str, str], float]) -> None:
        self.logits = logits
        self.read: list[tuple[str, str]] = []

    def score(self, pairs: Sequence[str], *_: Any) -> np.ndarray:
        texts = [split(pair) for pair in pairs]
        self.read += texts
        return np.array([self.logits[pair] for pair in texts], np.float32)

    def describe(self) -> dict[str, Any]:
        return {"path": self.described}


def judged(
    aucs: Sequence[float],
    monkeypatch: pytest.MonkeyPatch,
    store: Store,
    share: float = 0.2,
    **settings: Any,
) -> tuple[Candidates, Judge, list[Teacher], np.ndarray]:
    """Judge candidates by teachers of these AUCs, who err independently of one another."""
    count = QUERIES * (WIDTH + 1)
    documents = np.arange(QUERIES, count).reshape(QUERIES, WIDTH)
    block = block_of(documents, np.arange(QUERIES)[:, None], {}, {})
    names = [f"query {place}" for place in range(QUERIES)]
    pairs = [(name, f"document {place}") for place, name in enumerate(names)]
    asked = np.repeat(names, WIDTH)
    pairs += [(name, f"document {QUERIES + place}") for place, name in enumerate(asked)]
    relevant, *_ = made(0.9, share)
    truth = np.append(np.ones(QUERIES), relevant)
    teachers = []
    for seed, auc in enumerate(aucs):
        gap = distance(auc)
        noise = np.random.default_rng(seed + 1).normal(size=count)
        logits = gap * (noise + gap * truth - gap / 2)
        teachers.append(Teacher(dict(zip(pairs, logits.tolist(), strict=True))))
    options = CrossEncoderOptions(
        model=tuple(map(str, range(len(aucs)))), **settings.pop("options", {})
    )
    monkeypatch.setattr(Judge, "_made", lambda self, model, shards: [teachers[int(model)]] * 3)
    texts = dict(zip(block.query_ids, names, strict=True))
    corpus = [f"document {place}" for place in range(count)]
    judge = Judge(options, WIDTH, store, Path(), texts, corpus, seed=1, **settings)
    shards = CandidateShards.of([block])
    return judge.fit(shards)(block), judge, teachers, relevant.reshape(QUERIES, WIDTH)


@pytest.mark.parametrize("form", ["corrected", "sigmoid"])
def test_the_large_model_reads_only_what_the_small_one_would_reject(
    form: str, monkeypatch: pytest.MonkeyPatch, store: Store
) -> None:
    settings: dict[str, Any] = {"bars": [("denoise", 0.5)], "options": {"probability": form}}
    small, _, _, truth = judged([0.9], monkeypatch, store, **settings)
    both, judge, (_, large), _ = judged([0.9, 0.98], monkeypatch, store, **settings)
    decided = small.columns["p_cross"] >= 0.5
    known = small.positive_columns["p_cross"] >= 0.5
    assert 0 < len(large.read) == decided.sum() + known.sum() < 0.4 * truth.size
    same = ~decided
    np.testing.assert_array_equal(both.columns["p_cross"][same], small.columns["p_cross"][same])
    rejected = both.columns["p_cross"] >= 0.5
    assert (rejected & ~truth).sum() < 0.5 * (decided & ~truth).sum()
    assert (rejected & truth).sum() > 0.8 * (decided & truth).sum()
    np.testing.assert_array_equal(both.columns["cross"], small.columns["cross"])
    assert judge.summary["confirmed"][0]["judged_pairs"] == len(large.read)
    assert judge.summary["warnings"] == []


def test_a_judge_that_knows_nothing_and_a_bar_that_is_out_of_reach_are_warnings(
    monkeypatch: pytest.MonkeyPatch, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    bars = [("promote", 0.999999), ("denoise", 0.5)]
    with caplog.at_level(logging.WARNING, logger="anmi"):
        _, judge, _, _ = judged([0.52, 0.98], monkeypatch, store, 0.01, bars=[("promote", 0.9)])
        weak, small, bar = judge.summary["warnings"]
        _, judge, _, _ = judged([0.9], monkeypatch, store, bars=bars)
    assert "below 0.6, so it is no judge" in weak and "name a cross-encoder in" in weak
    assert "1 confirms nothing: 0 candidates" in small
    assert 'the threshold 0.9 of the step "promote"' in bar and "lower its threshold" in bar
    (of_promote,) = judge.summary["warnings"]
    assert 'the threshold 0.999999 of the step "promote"' in of_promote
    assert [record.getMessage() for record in caplog.records] == [weak, small, bar, of_promote]
