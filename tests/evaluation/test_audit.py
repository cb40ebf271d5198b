"""Leak, gap, coverage and AUC against slow, readable references; what is planted, and what the mining may see."""

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from anmi.candidates import Candidates, CandidateShards
from anmi.errors import AnmiError
from anmi.evaluation import audit
from anmi.evaluation.audit import PlantedTruth, Planting, plant
from anmi.evaluation.significance import share
from anmi.selection.recipe import RecipeBook, Runner, recipe_book

QUERIES, WIDTH, DOCUMENTS = 60, 30, 200
DOCUMENT_IDS = pd.Series([f"d{i}" for i in range(DOCUMENTS)])
NEAREST: dict[str, Any] = {"description": "Nearest.", "steps": {"top": {"by": "dense"}}}
BELOW: dict[str, Any] = {
    "rank_window": {"first": 2},
    "max_ratio": {"max_ratio": 0.93},
    "top": {"by": "dense"},
}
FITTED: dict[str, Any] = {"mixture": {"fewest": 50}, "min_weight": {"weight": 0.1}, "random": {}}
BOOK = recipe_book(
    {
        "nearest": NEAREST,
        "below": {"description": "Two thresholds.", "negatives": 25, "steps": BELOW},
        "mixed": {"description": "Fitted.", "steps": FITTED},
        "in_batch": {"description": "None.", "negatives": 0},
    }
)


@pytest.fixture(scope="module")
def block() -> Candidates:
    rng = np.random.default_rng(3)
    documents = np.stack(
        [rng.choice(DOCUMENTS, WIDTH, replace=False) for _ in range(QUERIES)]
    ).astype(np.int32)
    documents[:5, -4:] = -1
    dense = rng.normal(np.where(rng.random((QUERIES, WIDTH)) < 0.3, 0.7, 0.3), 0.1)
    dense = np.where(documents < 0, np.nan, dense)
    rank = 1.0 + np.argsort(np.argsort(-np.nan_to_num(dense, nan=-9), axis=1), axis=1)
    judged = np.where(rank <= 8, rng.random((QUERIES, WIDTH)), np.nan)
    return Candidates(
        query_ids=np.array([f"q{i // 2}" for i in range(QUERIES)]),
        documents=documents,
        positives=rng.integers(0, DOCUMENTS, (QUERIES, 1)).astype(np.int32),
        source=np.where(documents < 0, 0, 2).astype(np.uint8),
        positive_columns={"dense": rng.normal(0.75, 0.05, (QUERIES, 1)).astype(np.float32)},
    ).with_columns({"dense": dense, "dense_rank": rank, "judge": judged, "gap_se": judged})


@pytest.fixture(scope="module")
def truth(block: Candidates) -> pd.DataFrame:
    """Likelier among the near ones; one query has none, one pair is no candidate."""
    rng = np.random.default_rng(4)
    chance = np.where(np.nan_to_num(block.columns["dense"]) > 0.6, 0.3, 0.02)
    row, slot = np.nonzero((rng.random(chance.shape) < chance) & block.filled)
    pairs = {
        (f"q{r // 2}", f"d{block.documents[r, s]}")
        for r, s in zip(row, slot, strict=True)
        if r // 2 != 7
    }
    absent = set(range(DOCUMENTS)) - set(block.documents[:2].ravel().tolist())
    pairs.add(("q0", f"d{min(absent)}"))
    table = pd.DataFrame(sorted(pairs), columns=["query_id", "document_id"])
    return table.assign(kind=["hidden", *["equivalent"] * (len(table) - 1)])


@pytest.fixture(scope="module")
def planted(truth: pd.DataFrame) -> PlantedTruth:
    return PlantedTruth(truth, DOCUMENT_IDS)


def counted(
    block: Candidates, truth: pd.DataFrame, name: str, book: RecipeBook, seed: int
) -> dict[str, float]:
    """What an audit reports of one recipe, one candidate at a time."""
    relevant = set(zip(truth.query_id, truth.document_id, strict=True))
    chosen = Runner(book.get(name), seed).run(CandidateShards.of([block])).whole()
    false_negatives, gaps, full, served = 0, [], 0, set()
    own: dict[str, list[int]] = {}
    for row in range(len(block)):
        slots = np.flatnonzero(chosen.negatives[row])
        full += len(slots) == book.get(name).negatives
        for slot in slots:
            query = str(block.query_ids[row])
            served.add(query)
            hit = (query, f"d{block.documents[row, slot]}") in relevant
            false_negatives += hit
            own[query] = [sum(pair) for pair in zip(own.get(query, [0, 0]), (hit, 1), strict=True)]
            gaps.append(
                float(block.positive_columns["dense"][row, 0] - block.columns["dense"][row, slot])
            )
    # Two rows of a query are one query.
    interval = share(*np.array(list(own.values())).T, seed=seed)
    return {
        "false_negative_rate": false_negatives / len(gaps),
        "false_negative_rate_low": interval.low,
        "false_negative_rate_high": interval.high,
        "gap": float(np.mean(gaps)),
        "coverage": full / len(block),
        "queries_lost": len(set(block.query_ids)) - len(served),
        "negatives": len(gaps),
    }


def test_recipes_are_counted_as_one_would_by_hand(block, truth, planted):
    table = audit.audit_recipes(CandidateShards.of([block]), planted, BOOK, seed=5)
    own = table.set_index("recipe")
    assert set(own.index) == {"nearest", "below", "mixed"}
    for name in own.index:
        expected = counted(block, truth, name, BOOK, 5)
        assert own.loc[name, list(expected)].to_dict() == pytest.approx(expected, abs=1e-6)
    assert own.false_negative_rate["nearest"] > 0
    assert own.coverage["below"] < 1
    assert own.setting.to_dict() == {
        "nearest": "",
        "below": "max_ratio.max_ratio",
        "mixed": "min_weight.weight",
    }
    assert own.threshold["below"] == 0.93, "the last of two"


def test_shards_do_not_matter(block: Candidates, planted: PlantedTruth) -> None:
    whole = CandidateShards.of([block])
    parts = CandidateShards.of(
        [block.take(slice(start, start + 7)) for start in range(0, len(block), 7)]
    )
    pd.testing.assert_frame_equal(
        audit.audit_judges(parts, planted), audit.audit_judges(whole, planted)
    )
    found, expected = (
        audit.audit_recipes(given, planted, BOOK, seed=5) for given in (parts, whole)
    )
    pd.testing.assert_frame_equal(found, expected)
    assert (
        audit.found_share(parts, planted)
        == audit.found_share(whole, planted)
        == (len(planted) - 1) / len(planted)
    )


def test_a_recipe_that_cannot_run_here_does_not_end_the_audit_of_the_others(block, truth, planted):
    broken = {"description": "Needs Elo.", "steps": {"elo_gap": {}, "random": {}}}
    table = audit.audit_recipes(
        CandidateShards.of([block]),
        planted,
        recipe_book({"broken": broken, "sound": NEAREST}),
        seed=1,
    )
    assert table.recipe.tolist() == ["broken", "sound"]
    assert "elo" in table.failed[0]
    summary = audit.summarise(table, audit.audit_judges([block], planted), truth, 1.0)
    assert (set(summary["failed"]), set(summary["audit"]["recipes"])) == ({"broken"}, {"sound"})
    assert summary["audit"]["planted"] == {"equivalent": len(truth) - 1, "hidden": 1}
    with pytest.raises(AnmiError, match=r"no recipe to measure: .*elo"):
        audit.audit_recipes(
            CandidateShards.of([block]), planted, recipe_book({"broken": broken}), seed=1
        )
    with pytest.raises(
        AnmiError, match=r'false-negative rate of recipe "broken" is not known: .*elo'
    ):
        audit.check_false_negatives(table, "broken", 0.5)


def test_judges_are_measured_near_the_top_where_they_judged(block, truth, planted):
    table = audit.audit_judges([block], planted, depth=20).set_index("judge")
    assert set(table.index) == {"dense", "judge"}, "ranks and errors are no judgments"
    relevant = set(zip(truth.query_id, truth.document_id, strict=True))
    for name in table.index:
        values, labels, missing = [], [], 0
        for row, slot in np.argwhere(block.filled & (block.columns["dense_rank"] <= 20)):
            value = float(block.columns[name][row, slot])
            missing += math.isnan(value)
            if not math.isnan(value):
                values.append(value)
                labels.append(
                    (str(block.query_ids[row]), f"d{block.documents[row, slot]}") in relevant
                )
        found = table.loc[name]
        assert found.auc == pytest.approx(roc_auc_score(labels, values))
        assert (found.planted, found.others, found.missing) == (
            sum(labels),
            len(labels) - sum(labels),
            missing,
        )
        assert found.auc_low < found.auc < found.auc_high


scored = st.lists(
    st.tuples(st.integers(0, 6), st.booleans(), st.integers(0, 5)), min_size=2, max_size=60
)


@given(scored)
def test_the_area_is_that_of_scikit_learn_with_ties(rows: list[tuple[int, bool, int]]) -> None:
    scores, truth, cluster = (np.array(column) for column in zip(*rows, strict=True))
    auc, low, high = audit.clustered_auc(scores, truth, cluster)
    if truth.all() or not truth.any():
        assert math.isnan(auc)
        return
    assert auc == pytest.approx(roc_auc_score(truth, scores))
    assert 0 <= low <= auc + 1e-9 <= high + 2e-9 <= 1 + 2e-9


def test_without_clusters_it_is_delong_and_those_that_repeat_one_candidate_count_once() -> None:
    """Variance of DeLong et al. 1988, pair by pair."""
    rng = np.random.default_rng(1)
    truth = rng.random(80) < 0.4
    scores = rng.normal(truth.astype(float))
    auc, low, high = audit.clustered_auc(scores, truth, np.arange(80))
    wins = (scores[truth][:, None] > scores[~truth][None, :]).astype(float)
    variance = (
        wins.mean(axis=1).var(ddof=1) / truth.sum() + wins.mean(axis=0).var(ddof=1) / (~truth).sum()
    )
    half = 1.959964 * math.sqrt(variance) / (auc * (1 - auc))
    logit = math.log(auc / (1 - auc))
    expected = [1 / (1 + math.exp(-(logit + sign * half))) for sign in (-1, 1)]
    assert [low, high] == pytest.approx(expected, abs=1e-6)
    repeated = audit.clustered_auc(
        *(np.repeat(each, 12) for each in (scores, truth, np.arange(80)))
    )
    assert repeated == pytest.approx((auc, low, high))


def test_the_gate_goes_by_the_estimate(block: Candidates, planted: PlantedTruth) -> None:
    findings = audit.audit_recipes(CandidateShards.of([block]), planted, BOOK, seed=5)
    own = findings.set_index("recipe").loc["nearest"]
    audit.check_false_negatives(findings, "nearest", own.false_negative_rate)
    interval = f"{own.false_negative_rate_low:.2%} to {own.false_negative_rate_high:.2%}"
    told = (
        f'"nearest" has {own.false_negative_rate:.2%} .*{interval}.* audit.max_false_negative_rate'
    )
    with pytest.raises(AnmiError, match=told):
        audit.check_false_negatives(findings, "nearest", own.false_negative_rate - 1e-6)


NO_COPIES: dict[str, str] = {}
NO_EQUIVALENTS = pd.DataFrame(
    {"query_id": pd.Series(dtype=str), "document_id": pd.Series(dtype=str)}
)


def tables(labels: dict[str, str], **split: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Queries and qrels from query → its documents, one letter each."""
    queries = pd.DataFrame(
        {"query_id": list(labels), "text": [f"text of {name}" for name in labels]}
    )
    queries["split"] = [split.get(name, "train") for name in labels]
    pairs = [
        (query, document, 1, "train")
        for query, documents in labels.items()
        for document in documents
    ]
    return queries, pd.DataFrame(pairs, columns=["query_id", "document_id", "relevance", "split"])


def pairs(table: pd.DataFrame) -> set[tuple[str, str]]:
    return set(zip(table.query_id, table.document_id, strict=True))


labels = st.dictionaries(
    st.sampled_from([f"q{i}" for i in range(8)]),
    st.sets(st.sampled_from("abcdefgh"), min_size=1).map(lambda found: "".join(sorted(found))),
    min_size=1,
)


@given(labels, st.integers(0, 5), st.sampled_from(["half", "all_but_one"]))
def test_half_or_one_of_the_positives_stay_known_and_nothing_is_lost(labelled, seed, hide):
    queries, qrels = tables(labelled)
    several = {query for query, documents in labelled.items() if len(documents) > 1}
    if not several:
        with pytest.raises(AnmiError, match="two positives"):
            plant(queries, qrels, NO_EQUIVALENTS, NO_COPIES, seed=seed)
        return
    planted = plant(queries, qrels, NO_EQUIVALENTS, NO_COPIES, hide=hide, seed=seed)
    assert set(planted.queries.query_id) == set(planted.truth.query_id) == several
    kept = {
        query: math.ceil(len(labelled[query]) / 2) if hide == "half" else 1 for query in several
    }
    assert planted.qrels.query_id.value_counts().to_dict() == kept
    assert not pairs(planted.qrels) & pairs(planted.truth)
    assert pairs(planted.qrels) | pairs(planted.truth) == {
        p for p in pairs(qrels) if p[0] in several
    }
    one = planted.queries.query_id.iloc[0]
    alone = plant(
        queries[queries.query_id == one],
        qrels[qrels.query_id == one][::-1],
        NO_EQUIVALENTS,
        NO_COPIES,
        hide=hide,
        seed=seed,
    )
    expected = planted.truth[planted.truth.query_id == one]
    assert pairs(alone.truth) == pairs(expected), "a query's draw depends on nothing but the query"


@pytest.fixture
def mixed() -> tuple[pd.DataFrame, ...]:
    """q0 has two positives and one equivalent, q1 one positive and two equivalents, q2 nothing, t0 is held out."""
    queries, qrels = tables({"q0": "ab", "q1": "c", "q2": "d", "t0": "efg"}, t0="test")
    rows = [("q0", "x"), ("q1", "y"), ("q1", "z"), ("t0", "x")]
    return queries, qrels, pd.DataFrame(rows, columns=["query_id", "document_id"])


def planted_kinds(planted: Planting) -> dict[str, dict[str, int]]:
    return {str(k): v.query_id.value_counts().to_dict() for k, v in planted.truth.groupby("kind")}


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ("auto", {"hidden": {"q0": 1}, "equivalent": {"q0": 1, "q1": 2}}),
        ("hidden", {"hidden": {"q0": 1}}),
        ("equivalents", {"equivalent": {"q0": 1, "q1": 2}}),
    ],
)
def test_kinds(
    mixed: tuple[pd.DataFrame, ...], kinds: str, expected: dict[str, dict[str, int]]
) -> None:
    planted = plant(*mixed, NO_COPIES, kinds=kinds, seed=1)  # type: ignore[arg-type]
    assert planted_kinds(planted) == expected
    assert len(planted.qrels) == {"auto": 2, "hidden": 1, "equivalents": 3}[kinds]
    assert set(planted.queries.split) == {"train"}
    assert list(planted.qrels.columns) == list(mixed[1].columns)


def test_copies_of_a_text_are_one_document() -> None:
    """a and b are one text, so q0 has nothing to hide; x has a copy, which is planted, too; y copies a known text."""
    queries, qrels = tables({"q0": "ab", "q1": "a"})
    rows = [("q0", "x"), ("q1", "y"), ("q1", "z")]
    same = {"b": "a", "w": "x", "y": "a"}
    planted = plant(
        queries, qrels, pd.DataFrame(rows, columns=["query_id", "document_id"]), same, seed=1
    )
    assert pairs(planted.truth) == {("q0", "x"), ("q0", "w"), ("q1", "z")}
    assert pairs(planted.qrels) == {("q0", "a"), ("q0", "b"), ("q1", "a")}
    from_the_copy = plant(
        queries, qrels, pd.DataFrame({"query_id": ["q0"], "document_id": ["w"]}), same, seed=1
    )
    assert pairs(from_the_copy.truth) == {("q0", "w"), ("q0", "x")}


def test_the_cap_is_nested_and_keyed_by_the_seed() -> None:
    queries, qrels = tables({f"q{i}": "ab" for i in range(30)})
    kept = {
        (limit, seed): set(
            plant(queries, qrels, NO_EQUIVALENTS, NO_COPIES, limit=limit, seed=seed).truth.query_id
        )
        for limit in (5, 10, 99)
        for seed in (1, 2)
    }
    assert [len(kept[limit, 1]) for limit in (5, 10, 99)] == [5, 10, 30]
    assert kept[5, 1] < kept[10, 1]
    assert kept[5, 1] != kept[5, 2]


@pytest.mark.parametrize(
    ("kinds", "need"), [("hidden", "two positives"), ("equivalents", "api_docs")]
)
def test_a_collection_that_offers_nothing_is_told_what_it_needs(kinds: str, need: str) -> None:
    queries, qrels = tables({"q0": "a", "q1": "b"})
    with pytest.raises(AnmiError, match=need):
        plant(queries, qrels, NO_EQUIVALENTS, NO_COPIES, kinds=kinds, seed=1)  # type: ignore[arg-type]
