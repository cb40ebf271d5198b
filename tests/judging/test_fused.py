"""The fused judge: its inputs and model, whose coefficients it uses, and that no query is judged by its own."""

from __future__ import annotations

import json
import logging
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import expit, logit
from sklearn.linear_model import LogisticRegression
from tests.judging.conftest import block_of

from anmi.candidates import Candidates, CandidateShards
from anmi.errors import AnmiError
from anmi.judging.cross_encoder import fold_of
from anmi.judging.evidence import Material, Terms, gather
from anmi.judging.fused import (
    EVIDENCE,
    FEATURES,
    OF_NETWORK,
    FusedModel,
    base_rate,
    combined,
    features,
    shipped,
    transferred,
    with_network,
)
from anmi.judging.fusing import FusedJudge, FusedOptions, contributions, provenance
from anmi.report.sentences import judged_by
from anmi.retrieval.exact import similarities

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
from fit_fused import VECTOR_FEATURES, fit_model

sys.path.pop()
K = len(FEATURES)
NAMES = list(FEATURES)


def measured(values: dict[str, list[float]], own: dict[str, list[float]]) -> Candidates:
    """One query; evidence not named is 0.5 for candidates and unknown for positives."""
    width, known = len(next(iter(values.values()))), len(next(iter(own.values())))
    columns = {name: np.array([values.get(name, [0.5] * width)]) for name in EVIDENCE}
    unknown = {name: np.array([own.get(name, [np.nan] * known)]) for name in EVIDENCE}
    return block_of([range(known, known + width)], [range(known)], columns, unknown)


def of(made: NDArray[np.float32], name: str) -> list[float]:
    return [float(value) for value in made[0, :, NAMES.index(name)]]


def model_of(coefficient: float = 0.5, intercept: float = -1.0) -> FusedModel:
    return FusedModel((0.2,) * K, (2.0,) * K, (coefficient,) * K, intercept)


def test_a_candidate_as_good_as_the_positive_has_no_gap() -> None:
    own = {"dense": [0.7], "match": [0.4], "coverage": [0.8]}
    values = {"dense": [0.7, 0.6], "match": [0.4, 0.2], "coverage": [0.8, 0.6]}
    made = features(measured(values, own))
    assert of(made, "dense_gap") == pytest.approx([0, -0.1])
    assert of(made, "match_ratio") == pytest.approx([0, math.log(0.22 / 0.42)], abs=1e-6)
    reached = -math.log(0.05)
    assert of(made, "match_reached") == pytest.approx(
        [reached, -math.log(1 - 0.22 / 0.42 + 0.05)], rel=1e-5
    )
    assert of(made, "coverage_reached") == pytest.approx([reached, -math.log(0.25)], rel=1e-5)


@given(
    st.sampled_from(EVIDENCE),
    st.floats(0, 1, width=32),
    st.floats(0, 1, width=32),
    st.floats(0, 1, width=32),
)
def test_more_evidence_never_lowers_an_input(
    kind: str, one: float, other: float, own: float
) -> None:
    low, high = sorted((one, other))
    compared = ("dense", "match", "coverage", "network")
    made = features(measured({kind: [low, high]}, {name: [own] for name in compared}))
    assert np.isfinite(made).all()
    assert (made[0, 1] >= made[0, 0] - 1e-6).all()


def test_unknown_inputs_count_as_average_and_none_at_all_as_no_judgment() -> None:
    model = model_of()
    values = np.full((3, K), 0.2, np.float32)
    values[1, 3:] = np.nan
    values[2] = np.nan
    assert model(values)[:2] == pytest.approx([expit(-1.0)] * 2)
    assert np.isnan(model(values)[2])


def test_contributions_and_intercept_make_up_the_log_odds() -> None:
    draw = np.random.default_rng(0)
    values = draw.normal(size=(2, 5, K)).astype(np.float32)
    values[0, 0, :4] = np.nan
    model = FusedModel((0.1,) * K, (0.7,) * K, tuple(draw.random(K).tolist()), -0.5)
    parts = model.contributions(values)
    assert tuple(parts) == EVIDENCE
    assert all(part.shape == (2, 5) for part in parts.values())
    np.testing.assert_allclose(
        sum(parts.values()) + model.intercept, logit(model(values)), rtol=1e-6
    )
    assert parts["dense"][0, 0] == 0, "unknown evidence decides nothing"
    of_match = [FEATURES[name].evidence == "match" for name in NAMES]
    alone = np.where(of_match, values, np.float32(0.1))
    np.testing.assert_allclose(
        logit(model(alone[1])) - model.intercept, parts["match"][1], rtol=1e-5, atol=1e-6
    )


def test_without_a_ridge_it_is_scikit_learns_regression_calibrated_at_the_rate() -> None:
    """Both classes of each collection weigh the same, as ``sample_weight`` says; the scale is then calibrated."""
    draw, groups = np.random.default_rng(1), np.repeat([0, 1], [3000, 800])
    values = draw.normal(size=(3800, K)).astype(np.float32)
    labels = draw.random(3800) < expit(
        values @ np.linspace(0.2, 1.5, K) - np.where(groups, 5.0, 4.0)
    )
    size = np.array([[((groups == g) & (labels == c)).sum() for c in (0, 1)] for g in (0, 1)])
    weight = 1 / size[groups, labels.astype(int)]
    model = fit_model(values, labels, groups, ridge=0.0)
    oracle = LogisticRegression(C=np.inf, tol=1e-8, max_iter=2000)
    oracle.fit(model.standardised(values), labels, sample_weight=weight / weight.mean())
    found, expected = (
        each / np.linalg.norm(each) for each in (np.array(model.coefficients), oracle.coef_[0])
    )
    np.testing.assert_allclose(found, expected, atol=2e-3)
    model = fit_model(values, labels, np.zeros(3800), ridge=0.01)
    assert model(values).mean() == pytest.approx(labels.mean(), rel=0.01)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda raw: raw["mean"].pop("match_ratio"),
        lambda raw: raw.pop("intercept"),
        lambda raw: raw.update(scale=[1.0, 2.0]),
        lambda raw: raw["coefficients"].update(dense="much"),
    ],
)
def test_foreign_coefficients_are_refused(spoil: Any) -> None:
    raw = json.loads(json.dumps(model_of().as_dict()))
    assert FusedModel.from_dict(raw) == model_of()
    spoil(raw)
    with pytest.raises(AnmiError, match="do not fit this version"):
        FusedModel.from_dict(raw)


def test_shipped_coefficients_can_be_used_and_say_where_they_come_from() -> None:
    assert {"minilm", "static", "corpus", "other"} <= shipped()["models"].keys()
    for encoder in shipped()["models"]:
        model = transferred(encoder)
        assert min(model.coefficients) >= 0
        assert max(model.coefficients) > 0
        assert min(model.scale) > 0
    known = dict(zip(NAMES, transferred("other").coefficients, strict=True))
    assert all(known[name] == 0 for name in VECTOR_FEATURES), (
        "of an encoder nobody fitted no vectors are looked at"
    )


def test_a_collection_can_be_judged_by_coefficients_in_which_its_truth_had_no_part() -> None:
    assert {"kg_webnlg/beir_en", "api_docs"} <= shipped()["without"].keys()
    left_out = (None, "api_docs", "kg_webnlg/beir_en")
    models = [transferred("static", name) for name in left_out]
    assert len({model.coefficients for model in models}) == 3
    name = with_network("corpus")
    assert transferred(name, "scifact").coefficients != transferred(name).coefficients
    assert transferred("../models/of-mine", "api_docs") == transferred("other", "api_docs")
    with pytest.raises(AnmiError, match='without "api_doc"; did you mean "api_docs"'):
        transferred("static", "api_doc")


def test_the_base_rate_is_that_of_the_collections_behind_the_coefficients() -> None:
    of = {part["collection"]: part for part in shipped()["provenance"]["collections"]["static"]}
    rates = {name: part["planted"] / part["candidates"] for name, part in of.items()}
    assert base_rate("static") == pytest.approx(sum(rates.values()) / 6)
    others = sum(rates.values()) - rates["scifact"]
    assert base_rate("static", "scifact") == pytest.approx(others / 5)
    assert base_rate("../models/of-mine") == base_rate("minilm")


def test_without_a_network_its_inputs_are_unknown_and_count_for_nothing() -> None:
    own = {"dense": [0.7], "match": [0.4], "coverage": [0.8], "network": [0.6]}
    block = measured({"network": [0.5, 0.9]}, own)
    columns = {name: values for name, values in block.columns.items() if name != "network"}
    without = replace(block, columns=columns)
    assert of(features(block), "network_gap") == pytest.approx([-0.1, 0.3])
    blind = features(without)
    assert np.isnan(of(blind, OF_NETWORK)).all()
    model, seeing = transferred("corpus"), transferred(with_network("corpus"))
    np.testing.assert_array_equal(model(blind), model(features(block)))
    assert seeing(features(block))[0, 1] > seeing(features(block))[0, 0] * 1.2
    assert "network" not in contributions(without, {"models": [model.as_dict()]})
    told = contributions(block, {"models": [seeing.as_dict()]})["network"][0]
    assert told[1] > told[0]


@given(st.floats(0.001, 0.999), st.floats(0.001, 0.999), st.floats(0, 3), st.floats(0.05, 0.95))
def test_a_second_judge_adds_to_the_log_odds(
    first: float, second: float, weight: float, prior: float
) -> None:
    found = combined(np.full(3, first), np.array([second, np.nan, prior]), weight, prior)
    expected = expit(logit(first) + weight * (logit(second) - logit(prior)))
    assert found[0] == pytest.approx(expected, rel=1e-4)
    assert found[1:] == pytest.approx([first] * 2, rel=1e-5)
    assert np.isnan(combined(np.array([np.nan]), np.array([second]), weight, prior)).all()


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
        vectors, queries = np.asarray(self.material.vectors), self.vectors[rows]
        columns, own = (
            {"dense": similarities(queries, vectors, documents)}
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
        queries[f"q{topic}"] = " ".join(
            [*draw.choice(words, 3, replace=False), *draw.choice(common, 3)]
        )
    documents = np.repeat(centres, EACH, axis=0) + 0.8 * draw.normal(size=(len(texts), 16))
    asked = centres + 0.8 * draw.normal(size=(TOPICS, 16))
    vectors, asked = (v / np.linalg.norm(v, axis=1, keepdims=True) for v in (documents, asked))
    material = Material(Terms.build(texts, split), queries, vectors.astype(np.float32))
    return Collection(material, asked.astype(np.float32))


def fitted(
    collection: Collection, block: Candidates, encoder: str = "minilm", **options: object
) -> FusedJudge:
    judge = FusedJudge(FusedOptions.model_validate(options), collection.material, encoder, SEED)
    judge.fit(CandidateShards.of([block.take(slice(0, 25)), block.take(slice(25, None))]))
    return judge


def chances(judge: FusedJudge, collection: Collection, block: Candidates) -> NDArray[np.float64]:
    """By the coefficients alone: here whatever is of the positive's topic is a group that counts as relevant."""
    return judge.probability(gather(block, collection.material))


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
    assert least == pytest.approx(
        max(known / 2.5, base_rate("minilm"), judge.summary["prior_by_judge"])
    )
    assert found.mean() == pytest.approx(least, rel=1e-4), (
        "the mean of the probabilities is the share gone by"
    )
    assert (
        "shipped coefficients, since 0 queries with several positives are fewer than 50"
        in caplog.text
    )
    before = fitted(collection, block, prior="shipped")
    assert before.models == [shared] and "estimated_prior" not in before.summary
    assert judge.summary["prior_by_judge"] == pytest.approx(
        chances(before, collection, block).mean(), rel=1e-4
    )
    all_of_it = fitted(collection, block, overshoot=1.0)
    assert chances(all_of_it, collection, block).mean() == pytest.approx(known, rel=1e-4)


@pytest.mark.parametrize(
    ("name", "options", "left_out", "told"),
    [
        ("api_docs", {}, "api_docs", "scored with coefficients fitted without api_docs"),
        ("api_docs", {"without": None}, None, "so in-sample on these"),
        ("beir:data/scifact", {}, None, "so in-sample on these"),
        (
            "beir:data/scifact",
            {"without": "scifact"},
            "scifact",
            "scored with coefficients fitted without scifact",
        ),
    ],
)
def test_the_built_in_collection_is_left_out_unless_all_are_asked_for(
    collection: Collection, name: str, options: dict[str, Any], left_out: str | None, told: str
) -> None:
    """Its truth had a part in the coefficients, so a figure measured on it by those of all would be in-sample."""
    given = FusedOptions.model_validate({"prior": "shipped"} | options)
    judge = FusedJudge(given, collection.material, "minilm", SEED, name)
    judge.fit(CandidateShards.of([collection.block(known=1)]))
    assert (
        judge.models == [transferred("minilm", left_out)] and judge.summary["without"] == left_out
    )
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
