"""The logistic model over evidence: its inputs, its fit, and what it says."""

from __future__ import annotations

import json
import math
import sys
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

from anmi.candidates import Candidates
from anmi.errors import AnmiError
from anmi.judging.fused import EVIDENCE, FEATURES, FusedModel, base_rate, combined, features, shipped, transferred

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
    assert of(made, "match_reached") == pytest.approx([reached, -math.log(1 - 0.22 / 0.42 + 0.05)], rel=1e-5)
    assert of(made, "coverage_reached") == pytest.approx([reached, -math.log(0.25)], rel=1e-5)


@given(st.sampled_from(EVIDENCE), st.floats(0, 1, width=32), st.floats(0, 1, width=32), st.floats(0, 1, width=32))
def test_more_evidence_never_lowers_an_input(kind: str, one: float, other: float, own: float) -> None:
    low, high = sorted((one, other))
    made = features(measured({kind: [low, high]}, {"dense": [own], "match": [own], "coverage": [own]}))
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
    np.testing.assert_allclose(sum(parts.values()) + model.intercept, logit(model(values)), rtol=1e-6)
    assert parts["dense"][0, 0] == 0, "unknown evidence decides nothing"
    alone = np.where([FEATURES[name].evidence == "match" for name in NAMES], values, np.float32(0.1))
    np.testing.assert_allclose(logit(model(alone[1])) - model.intercept, parts["match"][1], rtol=1e-5, atol=1e-6)


def test_without_a_ridge_it_is_scikit_learns_regression_calibrated_at_the_rate_of_relevant_documents() -> None:
    """Both classes of each collection weigh the same, as ``sample_weight`` says; the scale is then calibrated."""
    draw, groups = np.random.default_rng(1), np.repeat([0, 1], [3000, 800])
    values = draw.normal(size=(3800, K)).astype(np.float32)
    labels = draw.random(3800) < expit(values @ np.linspace(0.2, 1.5, K) - np.where(groups, 5.0, 4.0))
    size = np.array([[((groups == g) & (labels == c)).sum() for c in (0, 1)] for g in (0, 1)])
    weight = 1 / size[groups, labels.astype(int)]
    model = fit_model(values, labels, groups, ridge=0.0)
    oracle = LogisticRegression(C=np.inf, tol=1e-8, max_iter=2000)
    oracle.fit(model.standardised(values), labels, sample_weight=weight / weight.mean())
    found, expected = (each / np.linalg.norm(each) for each in (np.array(model.coefficients), oracle.coef_[0]))
    np.testing.assert_allclose(found, expected, atol=2e-3)
    model = fit_model(values, labels, np.zeros(3800), ridge=0.01)
    assert model(values).mean() == pytest.approx(labels.mean(), rel=0.01)


@pytest.mark.parametrize("spoil", [
    lambda raw: raw["mean"].pop("match_ratio"),
    lambda raw: raw.pop("intercept"),
    lambda raw: raw.update(scale=[1.0, 2.0]),
    lambda raw: raw["coefficients"].update(dense="much"),
])  # fmt: skip
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
    assert all(known[name] == 0 for name in VECTOR_FEATURES), "of an encoder nobody fitted no vectors are looked at"


def test_a_collection_can_be_judged_by_coefficients_in_which_its_truth_had_no_part() -> None:
    assert {"kg_webnlg/beir_en", "api_docs"} <= shipped()["without"].keys()
    models = [transferred("static"), transferred("static", "api_docs"), transferred("static", "kg_webnlg/beir_en")]
    assert len({model.coefficients for model in models}) == 3
    assert transferred("../models/of-mine", "api_docs") == transferred("other", "api_docs")
    with pytest.raises(AnmiError, match='without "api_doc"; did you mean "api_docs"'):
        transferred("static", "api_doc")


def test_the_base_rate_is_that_of_the_collections_behind_the_coefficients() -> None:
    of = {part["collection"]: part for part in shipped()["provenance"]["collections"]["static"]}
    rates = {name: part["planted"] / part["candidates"] for name, part in of.items()}
    assert base_rate("static") == pytest.approx(sum(rates.values()) / 6)
    assert base_rate("static", "scifact") == pytest.approx((sum(rates.values()) - rates["scifact"]) / 5)
    assert base_rate("../models/of-mine") == base_rate("minilm")


@given(st.floats(0.001, 0.999), st.floats(0.001, 0.999), st.floats(0, 3), st.floats(0.05, 0.95))
def test_a_second_judge_adds_to_the_log_odds(first: float, second: float, weight: float, prior: float) -> None:
    found = combined(np.array([first, first, first]), np.array([second, np.nan, prior]), weight, prior)
    assert found[0] == pytest.approx(expit(logit(first) + weight * (logit(second) - logit(prior))), rel=1e-4)
    assert found[1:] == pytest.approx([first] * 2, rel=1e-5)
    assert np.isnan(combined(np.array([np.nan]), np.array([second]), weight, prior)).all()
