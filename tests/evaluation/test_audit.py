"""Leak, gap, coverage and AUC against slow, readable references; what is planted, and what the mining may see."""

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score
from tests.mined import recipe_book

from anmi.candidates import Candidates, CandidateShards
from anmi.errors import AnmiError
from anmi.evaluation import audit
from anmi.evaluation.audit import PlantedTruth, Planting, plant
from anmi.evaluation.significance import share
from anmi.selection.recipe import RecipeBook, Runner

QUERIES, WIDTH, DOCUMENTS = 60, 30, 200
DOCUMENT_IDS = pd.Series([f"d{i}" for i in range(DOCUMENTS)])
NEAREST = {"description": "Nearest.", "steps": {"top": {"by": "dense"}}}
BELOW = {"rank_window": {"first": 2}, "max_ratio": {"max_ratio": 0.93}, "top": {"by": "dense"}}
FITTED = {"mixture": {"fewest": 50}, "min_weight": {"weight": 0.1}, "random": {}}
RECIPES: dict[str, Any] = {
    "nearest": NEAREST,
    "below": {"description": "Two thresholds.", "negatives": 25, "steps": BELOW},
    "mixed": {"description": "Fitted.", "steps": FITTED},
    "in_batch": {"description": "None.", "negatives": 0},
}
BOOK = recipe_book(RECIPES)


@pytest.fixture(scope="module")
def block() -> Candidates:
    rng = np.random.default_rng(3)
    documents = np.array([rng.choice(DOCUMENTS, WIDTH, replace=False) for _ in range(QUERIES)])
    documents = documents.astype(np.int32)
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
    found = zip(row // 2, block.documents[row, slot], strict=True)
    pairs = {(f"q{query}", f"d{document}") for query, document in found if query != 7}
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
    relevant = pairs(truth)
    chosen = Runner(book.get(name), seed).run(CandidateShards.of([block])).whole()
    gaps, full = [], 0
    counts: dict[str, list[int]] = {}
    for row, query in enumerate(block.query_ids.tolist()):
        slots = np.flatnonzero(chosen.negatives[row])
        full += len(slots) == book.get(name).negatives
        positive = block.positive_columns["dense"][row, 0]
        for slot in slots:
            # Two rows of a query are one query.
            count = counts.setdefault(query, [0, 0])
            count[0] += (query, f"d{block.documents[row, slot]}") in relevant
            count[1] += 1
            gaps.append(float(positive - block.columns["dense"][row, slot]))
    interval = share(*np.array(list(counts.values())).T, seed=seed)
    return {
        "false_negative_rate": sum(count for count, _ in counts.values()) / len(gaps),
        "false_negative_rate_low": interval.low,
        "false_negative_rate_high": interval.high,
        "gap": float(np.mean(gaps)),
        "coverage": full / len(block),
        "queries_lost": len(set(block.query_ids) - counts.keys()),
        "negatives": len(gaps),
    }


def audited(block: Candidates, planted: PlantedTruth, book: RecipeBook = BOOK) -> pd.DataFrame:
    return audit.audit_recipes(CandidateShards.of([block]), planted, book, seed=5)


def test_recipes_are_counted_as_one_would_by_hand(block, truth, planted):
    table = audited(block, planted).set_index("recipe")
    for name in table.index:
        expected = counted(block, truth, name, BOOK, 5)
        assert table.loc[name, list(expected)].to_dict() == pytest.approx(expected, abs=1e-6)
    assert table.false_negative_rate["nearest"] > 0
    assert table.coverage["below"] < 1
    settings = {"nearest": "", "below": "max_ratio.max_ratio", "mixed": "min_weight.weight"}
    assert table.setting.to_dict() == settings
    assert table.threshold["below"] == 0.93, "the last of two"


def test_shards_do_not_matter(block: Candidates, planted: PlantedTruth) -> None:
    whole = CandidateShards.of([block])
    slices = [slice(start, start + 7) for start in range(0, len(block), 7)]
    shards = CandidateShards.of([block.take(rows) for rows in slices])
    by_judge = (audit.audit_judges(blocks, planted) for blocks in (shards, whole))
    pd.testing.assert_frame_equal(*by_judge)
    by_recipe = (audit.audit_recipes(blocks, planted, BOOK, seed=5) for blocks in (shards, whole))
    pd.testing.assert_frame_equal(*by_recipe)
    share_of_candidates = (len(planted) - 1) / len(planted)
    for blocks in (shards, whole):
        assert audit.found_share(blocks, planted) == share_of_candidates


def test_a_recipe_that_cannot_run_here_does_not_end_the_audit_of_the_others(block, truth, planted):
    broken = {"description": "Needs Elo.", "steps": {"elo_gap": {}, "random": {}}}
    table = audited(block, planted, recipe_book({"broken": broken, "sound": NEAREST}))
    assert table.recipe.tolist() == ["broken", "sound"]
    assert "elo" in table.failed[0]
    summary = audit.summarise(table, audit.audit_judges([block], planted), truth, 1.0)
    assert (set(summary["failed"]), set(summary["audit"]["recipes"])) == ({"broken"}, {"sound"})
    assert summary["audit"]["planted"] == {"equivalent": len(truth) - 1, "hidden": 1}
    with pytest.raises(AnmiError, match=r"no recipe to measure: .*elo"):
        audited(block, planted, recipe_book({"broken": broken}))
    with pytest.raises(AnmiError, match=r'"broken" is not known: .*elo'):
        audit.check_false_negatives(table, "broken", 0.5)


def test_judges_are_measured_near_the_top_where_they_judged(block, truth, planted):
    table = audit.audit_judges([block], planted, depth=20).set_index("judge")
    assert set(table.index) == {"dense", "judge"}, "ranks and errors are no judgments"
    row, slot = np.nonzero(block.filled & (block.columns["dense_rank"] <= 20))
    relevant = pairs(truth)
    near = zip(block.query_ids[row].tolist(), block.documents[row, slot], strict=True)
    labels = np.array([(query, f"d{document}") in relevant for query, document in near])
    for name, found in table.iterrows():
        values = block.columns[name][row, slot]
        judged = ~np.isnan(values)
        assert found.auc == pytest.approx(roc_auc_score(labels[judged], values[judged]))
        assert (found.planted, found.missing) == (labels[judged].sum(), (~judged).sum())
        assert found.planted + found.others == judged.sum()
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
    variance = wins.mean(axis=1).var(ddof=1) / truth.sum()
    variance += wins.mean(axis=0).var(ddof=1) / (~truth).sum()
    half = 1.959964 * math.sqrt(variance) / (auc * (1 - auc))
    logit = math.log(auc / (1 - auc))
    expected = [1 / (1 + math.exp(-(logit + sign * half))) for sign in (-1, 1)]
    assert [low, high] == pytest.approx(expected, abs=1e-6)
    repeated = audit.clustered_auc(
        *(np.repeat(each, 12) for each in (scores, truth, np.arange(80)))
    )
    assert repeated == pytest.approx((auc, low, high))


def test_the_gate_goes_by_the_estimate(block: Candidates, planted: PlantedTruth) -> None:
    table = audited(block, planted)
    rate = table.set_index("recipe").false_negative_rate["nearest"]
    audit.check_false_negatives(table, "nearest", rate)
    with pytest.raises(AnmiError, match=f'"nearest" has {rate:.2%}'):
        audit.check_false_negatives(table, "nearest", rate - 1e-6)
    with pytest.raises(AnmiError, match="in_batch"):
        audit.check_false_negatives(table, "in_batch", 0.5)


NO_COPIES: dict[str, str] = {}
PAIR = ["query_id", "document_id"]
NO_EQUIVALENTS = pd.DataFrame(columns=PAIR, dtype=object)


def tables(labels: dict[str, str], **split: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Queries and qrels from query → its documents, one letter each."""
    queries = [(name, f"text of {name}", split.get(name, "train")) for name in labels]
    rows = [(query, document) for query, documents in labels.items() for document in documents]
    qrels = pd.DataFrame(rows, columns=PAIR).assign(relevance=1, split="train")
    return pd.DataFrame(queries, columns=["query_id", "text", "split"]), qrels


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
    known = {
        query: math.ceil(len(labelled[query]) / 2) if hide == "half" else 1 for query in several
    }
    assert planted.qrels.query_id.value_counts().to_dict() == known
    assert not pairs(planted.qrels) & pairs(planted.truth)
    all_pairs = pairs(planted.qrels) | pairs(planted.truth)
    assert all_pairs == pairs(qrels[qrels.query_id.isin(several)])
    # A query's draw depends on nothing but the query.
    query = planted.queries.query_id.iloc[0]
    of_query = (table[table.query_id == query][::-1] for table in (queries, qrels))
    alone = plant(*of_query, NO_EQUIVALENTS, NO_COPIES, hide=hide, seed=seed)
    assert pairs(alone.truth) == pairs(planted.truth[planted.truth.query_id == query])


@pytest.fixture
def mixed() -> tuple[pd.DataFrame, ...]:
    """q0 has two positives and an equivalent, q1 one and two, q2 none; t0 is held out."""
    queries, qrels = tables({"q0": "ab", "q1": "c", "q2": "d", "t0": "efg"}, t0="test")
    rows = [("q0", "x"), ("q1", "y"), ("q1", "z"), ("t0", "x")]
    return queries, qrels, pd.DataFrame(rows, columns=PAIR)


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
    """a and b are one text, so q0 hides nothing; x has a copy, planted too; y copies a known text."""
    queries, qrels = tables({"q0": "ab", "q1": "a"})
    same = {"b": "a", "w": "x", "y": "a"}
    equivalents = pd.DataFrame([("q0", "x"), ("q1", "y"), ("q1", "z")], columns=PAIR)
    planted = plant(queries, qrels, equivalents, same, seed=1)
    assert pairs(planted.truth) == {("q0", "x"), ("q0", "w"), ("q1", "z")}
    assert pairs(planted.qrels) == {("q0", "a"), ("q0", "b"), ("q1", "a")}
    copies = pd.DataFrame([("q0", "w")], columns=PAIR)
    from_the_copy = plant(queries, qrels, copies, same, seed=1)
    assert pairs(from_the_copy.truth) == {("q0", "w"), ("q0", "x")}


def test_the_cap_is_nested_and_keyed_by_the_seed() -> None:
    queries, qrels = tables({f"q{i}": "ab" for i in range(30)})
    everything = (queries, qrels, NO_EQUIVALENTS, NO_COPIES)
    kept = {
        (limit, seed): set(plant(*everything, limit=limit, seed=seed).truth.query_id)
        for limit, seed in ((5, 1), (10, 1), (99, 1), (5, 2))
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
