"""Explanations of what became of a query's candidates, and their tables."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.report.conftest import printed
from tests.selection.conftest import named

from anmi.candidates import Candidates
from anmi.judging.fused import EVIDENCE, FusedModel, shipped
from anmi.report.explanation import (
    candidates_table,
    document_table,
    explain,
    in_numbers,
    not_a_candidate,
)
from anmi.selection.recipe import Recipe, Runner

DENSE = np.array([[0.8, 0.77, 0.7, 0.6, 0.5, 0.4]], np.float32)
POSITIVES = (("dense", [0.8, 0.5]), ("elo", [800, 500]))
IDS = [f"d{i}" for i in range(9)]
CORPUS = pd.DataFrame({"document_id": IDS, "title": "", "text": "some words"})


def row(**changes: Any) -> Candidates:
    """One query with positives d0 and d7 and candidates d1 to d6, each less similar than the one before."""
    given: dict[str, Any] = {
        "query_ids": np.array(["q"]),
        "positives": np.array([[0, 7]], np.int32),
        "documents": np.arange(1, 7, dtype=np.int32)[None, :],
        "source": np.full((1, 6), 3, np.uint8),
        "columns": {"dense": DENSE, "elo": 1000 * DENSE, "p_relevant": DENSE - 0.1},
        "positive_columns": {name: np.array([values], np.float32) for name, values in POSITIVES},
        "query_columns": {"positive_rank": np.float32([3]), "consistent": np.float32([0])},
    }
    given["columns"]["gap_se"] = np.full((1, 6), 10, np.float32)
    return Candidates(**given | changes)


def selected(steps: list[Any], negatives: int = 2, block: Candidates | None = None) -> Candidates:
    recipe = Recipe(description="for a test", negatives=negatives, steps=named(*steps))
    return Runner(recipe, 0).apply(row() if block is None else block)


def verdicts(found: dict[str, Any]) -> list[tuple[str, str]]:
    return [(candidate["verdict"], candidate["why"]) for candidate in found["candidates"]]


def test_every_candidate_tells_the_rule_that_decided() -> None:
    window = {"rank_window": {"column": "dense", "last": 100}}
    block = selected([{"max_ratio": {"max_ratio": 0.95}}, window, "top"])
    found = explain(block, CORPUS, negatives_wanted=2)
    unsafe = ("unsafe", "max_ratio: dense ≥ 0.95 of the positive's (dense ≥ 0.76)")
    assert verdicts(found)[:2] == [unsafe, unsafe]
    assert {verdict for verdict, _ in verdicts(found)[2:]} == {"unwanted"}
    block = selected([{"max_ratio": {"max_ratio": 0.95}}, {"top": {"by": "dense"}}])
    assert verdicts(explain(block, CORPUS, negatives_wanted=2))[2:] == [
        ("negative", "choice 1 of 2"),
        ("negative", "choice 2 of 2"),
        *[("not drawn", "2 taken before it")] * 2,
    ]


def test_what_is_left_although_too_few_were_taken_had_no_value_to_be_drawn_by() -> None:
    unknown = row(columns={"dense": np.where(DENSE < 0.7, np.nan, DENSE)})
    found = explain(selected([{"top": {"by": "dense"}}], 5, unknown), CORPUS, negatives_wanted=5)
    assert [verdict for verdict, _ in verdicts(found)] == ["negative"] * 3 + ["not drawn"] * 3
    assert found["candidates"][-1]["why"] == "the sampler had no value for it"
    assert found["candidates"][-1]["scores"]["dense"] is None
    none_wanted = explain(row(), CORPUS, negatives_wanted=0)["candidates"][0]
    assert none_wanted["why"] == "the recipe draws none"


def test_a_dropped_query_tells_step_rule_and_figures() -> None:
    steps = [{"denoise": {"threshold": 0.6}}, "consistency", {"top": {"by": "dense"}}]
    found = explain(selected(steps), CORPUS)
    rule = "BM25 does not find a positive near the top"
    assert found["dropped"] == {"step": "consistency", "rule": rule}
    assert found["figures"] == {"positive_rank": 3, "consistent": 0}
    # What an earlier step rejected keeps that step's name.
    assert found["candidates"][0]["step"] == "denoise"
    assert verdicts(found)[-1] == ("query dropped", f"consistency: {rule}")


@pytest.mark.parametrize(
    ("step", "column"),
    [
        ({"max_ratio": {"max_ratio": 0.9}}, "dense"),
        ({"max_ratio": {"max_ratio": 0.9, "column": "elo"}}, "elo"),
        ({"margin": {"margin": 0.15}}, "dense"),
        ({"elo_gap": {"danger": 150}}, "elo"),
    ],
)
@pytest.mark.parametrize("sign", [1, -1])
def test_the_limit_shown_is_the_one_that_was_applied(step: Any, column: str, sign: int) -> None:
    # Of negative scores the same rules hold; here all but the sign stays.
    shift = np.float32(0 if sign > 0 else -2)
    columns = {name: values + shift for name, values in row().columns.items()}
    positives = {name: values + shift for name, values in row().positive_columns.items()}
    block = selected([step], block=row(columns=columns, positive_columns=positives))
    candidates = explain(block, CORPUS)["candidates"]
    rejected = np.array([candidate["verdict"] == "unsafe" for candidate in candidates])
    assert 0 < rejected.sum() < len(rejected)
    shown = next(candidate["here"] for candidate in candidates if candidate["here"])
    limit = float(shown.split()[-1])
    assert (rejected == (block.columns[column][0] >= limit)).all()


def test_the_chance_that_an_interval_rule_went_by_is_shown() -> None:
    block = selected([{"elo_gap": {"danger": 100, "max_probability": 0.3}}])
    found = explain(block, CORPUS)["candidates"]
    # Gaps of 30 and 100 with a standard error of 10.
    assert found[2]["why"] == "elo_gap: P(gap < 100 Elo) > 0.3 (here 0.5)"
    assert found[1]["here"] == "here 1"
    assert found[3]["verdict"] == "not drawn"
    assert in_numbers("P(gap < 100 Elo) > 0.3", row(columns={})) == ""
    assert in_numbers("gap < 200 Elo, for a later tier than 2", row()) == "elo > 600"


def test_evidence_adds_up_to_the_judgment() -> None:
    values = np.random.default_rng(0).uniform(0, 1, (len(EVIDENCE), 1, 6)).astype(np.float32)
    block = row().with_columns(dict(zip(EVIDENCE, values, strict=True)))
    block = block.with_columns(
        positive_columns={n: np.full((1, 2), 0.5) for n in ("dense", "match", "coverage")}
    )
    model = FusedModel.from_dict(shipped()["models"]["minilm"])
    fused = {"models": [model.as_dict()]}
    found = explain(block, CORPUS, fused)["candidates"]
    from scipy.special import logit

    from anmi.judging.fused import features

    expected = logit(model(features(block))[0])
    told = [sum(candidate["evidence"].values()) + model.intercept for candidate in found]
    np.testing.assert_allclose(told, expected, rtol=1e-4)
    assert explain(row(), CORPUS, fused)["candidates"][0]["evidence"] == {}


def test_an_explanation_is_plain_json() -> None:
    thirds = row(columns={"dense": DENSE / 3})
    found = explain(selected([{"top": {"by": "dense"}}], block=thirds), CORPUS)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["candidates"][0]["scores"]["dense"] == float(f"{0.8 / 3:.7g}")


def test_a_document_that_is_no_candidate_has_a_reason() -> None:
    group = {"d8": "d7"}
    assert "the one that is compared with" in not_a_candidate(0, row(), CORPUS, {})
    assert not_a_candidate(7, row(), CORPUS, {}) == "it is a positive of the query"
    for positives in ({}, {"positives": np.array([[0]], np.int32), "positive_columns": {}}):
        told = not_a_candidate(8, row(**positives), CORPUS, group, labelled=["d0", "d7"])
        assert told == "it has the text of the positive d7, and so is no negative"
    labelled = not_a_candidate(8, row(), CORPUS, {}, labelled=["d8"])
    assert "which was not measured: dense.positives" in labelled
    assert "candidates: 6 from bm25, 6 from dense" in not_a_candidate(8, row(), CORPUS, {})


SHOWN: dict[str, float | None] = {
    "bm25": 12.5,
    "bm25_rank": 4.0,
    "p_relevant": 0.25,
    "elo": 1004.0,
    "elo_se": 88.5,
}
SHOWN |= {"gap": 120.5, "gap_se": 90.5, "cross": 1.5, "odd": None, "coverage": 0.5}
POSITIVE: dict[str, Any] = {"document_id": "a.positive", "start": "does what is asked"}
POSITIVE |= {"scores": {"dense": 0.8, "dense_rank": 1.0, "p_relevant": None}}


def candidate(place: int, verdict: str, why: str, **changes: Any) -> dict[str, Any]:
    return {
        "place": place,
        "document_id": f"package.module.rather_long_name_{place}",
        "start": "密集检索 and further words " * 5,
        "source": ["bm25", "dense"],
        "scores": {"dense": 0.7, "dense_rank": 2.0 + place, **SHOWN},
        "verdict": verdict,
        "why": why,
        "weight": 0.5,
        "tier": None,
        "evidence": {"coverage": 1.25, "match": -2.0},
    } | changes


FOUND = {
    "positives": [POSITIVE],
    "count": 5,
    "candidates": [
        candidate(1, "unsafe", "max_ratio: dense ≥ 0.95 of the positive's (dense ≥ 0.76)"),
        candidate(2, "not drawn", "2 taken before it"),
        candidate(3, "negative", "choice 1 of 2, deeper"),
        candidate(4, "uncertain", "p_relevant 0.2…0.9"),
        candidate(5, "promoted", "promote: p_relevant ≥ 0.9"),
    ],
}


@pytest.mark.parametrize("width", [80, 120, 300])
def test_the_table_fits_and_cuts_no_number_no_rule_and_no_id(width: int) -> None:
    shown = printed(candidates_table(FOUND, 20, width), width)
    rows = [line.split("│")[1:-1] for line in shown.splitlines() if line.startswith("│")]
    assert all(len(cells) == len(rows[0]) for cells in rows)
    columns = ["".join(cell.strip() for cell in cells) for cells in zip(*rows, strict=True)]
    for candidate in FOUND["candidates"]:
        assert candidate["document_id"] in columns[1]
        why = candidate["why"].replace(" ", "")
        assert any(why in column.replace(" ", "") for column in columns)
    assert any("0.700#30.700#4" in column for column in columns)
    assert "…" not in "".join(columns[2:]).replace("0.2…0.9", "")


def test_the_first_are_shown_and_all_that_were_chosen() -> None:
    shown = printed(candidates_table(FOUND, 1, 200), 200)
    assert [place for place in range(1, 6) if f"name_{place} " in shown] == [1, 3, 5]
    assert "3 of 5 candidates shown" in shown
    assert "1 unsafe, 1 not drawn, 1 negative, 1 uncertain, 1 promoted" in shown


def test_everything_about_one_document_stands_beside_the_positive() -> None:
    shown = printed(document_table(FOUND, FOUND["candidates"][0]), 120)
    rows = [line.split("│")[1:-1] for line in shown.splitlines() if line.startswith("│")]
    cells = [[cell.strip() for cell in row] for row in rows]
    values = {name: texts for name, *texts in cells if name}
    assert values["document"] == ["package.module.rather_long_name_1", "a.positive"]
    assert (values["dense"], values["dense_rank"]) == (["0.700", "0.800"], ["3", "1"])
    assert values["coverage"] == ["0.500 (+1.25 log-odds)", ""]
    assert values["why"][0] == "max_ratio: dense ≥ 0.95 of the positive's (dense ≥ 0.76)"
    assert values["place"][0] == "1 of 5"
    assert values["verdict"] == ["unsafe", "positive"]
