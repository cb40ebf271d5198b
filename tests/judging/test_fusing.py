"""The fused judge on a collection: whose coefficients it uses, and that no query is judged by its own."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.judging.conftest import block_of

from anmi.candidates import Candidates, CandidateShards
from anmi.judging.cross_encoder import fold_of
from anmi.judging.evidence import Material, Terms, gather
from anmi.judging.fused import base_rate, features, transferred
from anmi.judging.fusing import FusedJudge, FusedOptions, provenance
from anmi.report.sentences import judged_by
from anmi.retrieval.exact import similarities

SEED = 7
TOPICS = 60
EACH = 4


def split(texts: Sequence[str]) -> list[list[str]]:
    return [text.split() for text in texts]


@dataclass(frozen=True)
class Collection:
    """Topics with four documents each, and one query a topic: documents of one topic share most of its words."""

    material: Material
    vectors: NDArray[np.float32]

    def block(self, known: int, width: int = 12) -> Candidates:
        """The first ``known`` documents of a topic are labelled, the others stand among its candidates."""
        draw = np.random.default_rng(3)
        rows = np.arange(TOPICS)[:, None]
        positives = (rows * EACH + np.arange(known)).astype(np.int32)
        order = np.argsort(draw.random((TOPICS, (TOPICS - 1) * EACH)), axis=1)[:, :width]
        strangers = (rows * EACH + EACH + order) % (TOPICS * EACH)
        documents = np.hstack([rows * EACH + np.arange(known, EACH), strangers]).astype(np.int32)
        return self.measured(block_of(documents, positives))

    def measured(self, block: Candidates) -> Candidates:
        """Add what retrieval brings."""
        rows = np.array([int(name[1:]) for name in block.query_ids], np.int64)
        columns, own = (
            {"dense": similarities(self.vectors[rows], np.asarray(self.material.vectors), documents)}
            for documents in (block.documents, block.positives)
        )
        return block.with_columns(columns, own)


@pytest.fixture(scope="module")
def collection() -> Collection:
    draw = np.random.default_rng(11)
    common = [f"common{number}" for number in range(40)]
    texts, queries, centres = [], {}, draw.normal(size=(TOPICS, 16))
    for topic in range(TOPICS):
        words = [f"t{topic}w{number}" for number in range(6)]
        for _ in range(EACH):
            texts.append(" ".join([*draw.choice(words, 4, replace=False), *draw.choice(common, 8)]))
        queries[f"q{topic}"] = " ".join([*draw.choice(words, 3, replace=False), *draw.choice(common, 3)])
    documents = np.repeat(centres, EACH, axis=0) + 0.8 * draw.normal(size=(len(texts), 16))
    asked = centres + 0.8 * draw.normal(size=(TOPICS, 16))
    vectors, asked = (v / np.linalg.norm(v, axis=1, keepdims=True) for v in (documents, asked))
    material = Material(Terms.build(texts, split), queries, vectors.astype(np.float32))
    return Collection(material, asked.astype(np.float32))


def fitted(collection: Collection, block: Candidates, encoder: str = "minilm", **options: object) -> FusedJudge:
    judge = FusedJudge(FusedOptions.model_validate(options), collection.material, encoder, SEED)
    judge.fit(CandidateShards.of([block.take(slice(0, 25)), block.take(slice(25, None))]))
    return judge


def chances(judge: FusedJudge, collection: Collection, block: Candidates) -> NDArray[np.float64]:
    """By the coefficients alone: here whatever is of the positive's topic is a group that counts as relevant."""
    return judge.probability(gather(block, collection.material))


def test_with_one_positive_everywhere_shipped_coefficients_are_used_and_said_to_be(
    collection: Collection, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    block = collection.block(known=1)
    judge = fitted(collection, block, prior="shipped")
    assert judge.models == [transferred("minilm")]
    assert "shipped coefficients, since 0 queries with several positives are fewer than 50" in caplog.text
    judged = judge(block)
    assert np.isfinite(judged.columns["p_evidence"][block.filled]).all()
    assert np.isnan(judged.positive_columns["p_heldout"]).all(), "the only positive cannot be hidden"
    relevant = block.documents // EACH == np.arange(TOPICS)[:, None]
    probability = judged.columns["p_evidence"]
    assert probability[relevant].mean() > 3 * probability[~relevant].mean()


def test_the_share_of_relevant_documents_is_the_collections_own(
    collection: Collection, caplog: pytest.LogCaptureFixture
) -> None:
    """Of 15 candidates 3 are relevant, and the collections behind the shipped coefficients had 1 in 57."""
    caplog.set_level(logging.INFO)
    block = collection.block(known=1)
    judge, shared = fitted(collection, block), transferred("minilm")
    assert judge.models[0].coefficients == shared.coefficients
    found = chances(judge, collection, block)
    known, least = judge.summary["prior_by_known"], judge.summary["estimated_prior"]
    assert known == pytest.approx(0.2, abs=0.1)
    assert least == pytest.approx(max(known / 2.5, base_rate("minilm"), judge.summary["prior_by_judge"]))
    assert found.mean() == pytest.approx(least, rel=1e-4), "the mean of the probabilities is the share gone by"
    assert "of the most similar documents are relevant" in caplog.text
    before = fitted(collection, block, prior="shipped")
    assert before.models == [shared] and "estimated_prior" not in before.summary
    assert judge.summary["prior_by_judge"] == pytest.approx(chances(before, collection, block).mean(), rel=1e-4)
    all_of_it = fitted(collection, block, overshoot=1.0)
    assert chances(all_of_it, collection, block).mean() == pytest.approx(known, rel=1e-4)


@pytest.mark.parametrize(
    ("name", "options", "left_out", "told"),
    [
        ("api_docs", {}, "api_docs", "scored with coefficients fitted without api_docs"),
        ("api_docs", {"without": None}, None, "so in-sample on these"),
        ("beir:data/scifact", {}, None, "so in-sample on these"),
        ("beir:data/scifact", {"without": "scifact"}, "scifact", "scored with coefficients fitted without scifact"),
    ],
)
def test_the_built_in_collection_is_left_out_unless_all_are_asked_for(
    collection: Collection, name: str, options: dict[str, Any], left_out: str | None, told: str
) -> None:
    """Its truth had a part in the coefficients, so a figure measured on it by those of all would be in-sample."""
    given = FusedOptions.model_validate({"prior": "shipped"} | options)
    judge = FusedJudge(given, collection.material, "minilm", SEED, name)
    judge.fit(CandidateShards.of([collection.block(known=1)]))
    assert judge.models == [transferred("minilm", left_out)] and judge.summary["without"] == left_out
    assert judged_by(provenance(judge.summary)).endswith(told)


def test_no_query_is_judged_by_coefficients_fitted_on_it(collection: Collection) -> None:
    """Spoiling the labels of one fold's queries changes the other folds' coefficients, and never its own."""
    block = collection.block(known=2)
    texts = [collection.material.query_texts[str(query)] for query in block.query_ids]
    fold = fold_of(texts, 3, SEED)
    honest = fitted(collection, block, least_queries=10)
    np.testing.assert_array_equal(honest.fold(block), fold)
    for number in range(3):
        own = fold == number
        positives, documents = block.positives.copy(), block.documents.copy()
        # A stranger is labelled, and the true positive stands among the candidates.
        positives[own, 1], documents[own, -1] = block.documents[own, -1], block.positives[own, 1]
        swapped = collection.measured(replace(block, positives=positives, documents=documents))
        spoilt = fitted(collection, swapped, least_queries=10)
        for other in range(3):
            same = spoilt.models[other] == honest.models[other]
            assert same == (other == number), f"fold {number} spoilt, coefficients for fold {other}"
        seen = chances(spoilt, collection, swapped)
        evidence = features(gather(swapped, collection.material))
        expected = honest.models[number](evidence[own])
        np.testing.assert_allclose(seen[own], expected, rtol=1e-5)


def test_a_positive_is_judged_as_if_nobody_had_labelled_it(collection: Collection) -> None:
    """``p_heldout`` is what the same document gets as a candidate beside the other positive alone."""
    labelled = collection.block(known=2)
    judge = fitted(collection, labelled, least_queries=10)
    held = judge(labelled).positive_columns["p_heldout"]
    for place in (0, 1):
        documents = labelled.documents.copy()
        documents[:, 0] = labelled.positives[:, place]
        judged = judge(collection.measured(block_of(documents, labelled.positives[:, [1 - place]])))
        np.testing.assert_allclose(held[:, place], judged.columns["p_evidence"][:, 0], rtol=1e-4)
        assert np.isnan(judged.positive_columns["p_heldout"]).all()
