"""Drift: the tests are SciPy's, noise is not drift, and real differences are found where they are."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from anmi.candidates import NEGATIVE, Candidates, CandidateShards
from anmi.evaluation.drift import drift, profile

KINDS = ("distributions", "shares", "counts")
WORDS = np.array([f"word{i}" for i in range(3000)])


def world(seed: int, queries: int, *, shift: float = 0.0, longer: int = 0) -> dict[str, Any]:
    """A collection with a selection; scores of a query are much alike, and words are rare the more they go on."""
    rng = np.random.default_rng(seed)

    def text(least: int, most: int) -> str:
        drawn = np.minimum(rng.zipf(1.3, rng.integers(least, most)), len(WORDS)) - 1
        return " ".join(WORDS[i] for i in drawn)

    ids = [f"q{seed}-{i}" for i in range(queries)]
    texts = [text(3, 9 + longer) for _ in ids]
    asked = pd.DataFrame({"query_id": ids, "text": texts, "split": "train"})
    names = [f"d{seed}-{i}" for i in range(queries)]
    texts = [text(20, 80) for _ in names]
    corpus = pd.DataFrame({"document_id": names, "title": "", "text": texts})
    qrels = pd.DataFrame({"query_id": ids, "document_id": names, "relevance": 1, "split": "train"})
    level = rng.normal(0.5, 0.1, (queries, 1))
    dense = (level + rng.normal(shift, 0.03, (queries, 20))).astype(np.float32)
    block = Candidates(
        query_ids=np.array(ids),
        positives=np.arange(queries, dtype=np.int32)[:, None],
        documents=np.tile(np.arange(1000, 1020, dtype=np.int32), (queries, 1)),
        source=np.ones((queries, 20), np.uint8),
        columns={"dense": dense},
        positive_columns={"dense": np.clip(level + 0.1, -1, 1).astype(np.float32)},
        query_columns={"consistent": (rng.random(queries) < 0.8).astype(np.float32)},
    ).rejected("barred", rng.random((queries, 20)) < rng.beta(1, 6, (queries, 1)))
    chosen = block.undecided & (np.cumsum(block.undecided, axis=1) <= 7)
    selection = replace(block, verdict=np.where(chosen, np.int16(NEGATIVE), block.verdict))
    return {"queries": asked, "corpus": corpus, "qrels": qrels, "selection": selection}


def part(made: dict[str, Any], rows: Any) -> dict[str, Any]:
    """The profile of some of the queries and their documents."""
    queries, corpus = made["queries"].iloc[rows], made["corpus"].iloc[rows]
    qrels, selection = made["qrels"].iloc[rows], CandidateShards.of([made["selection"].take(rows)])
    return profile(queries, corpus, qrels, selection, negatives=7)


def whole(made: dict[str, Any]) -> dict[str, Any]:
    return part(made, np.arange(len(made["queries"])))


def worst(found: dict[str, Any]) -> dict[str, str]:
    rows = {name: row["verdict"] for kind in KINDS for name, row in found[kind].items()}
    return {name: verdict for name, verdict in rows.items() if verdict != "none"}


def test_the_tests_are_those_of_scipy_adjusted_by_holm() -> None:
    old, new = whole(world(1, 300)), whole(world(2, 300, shift=0.08, longer=6))
    found = drift(old, new)
    for name, row in found["distributions"].items():
        values = old["distributions"][name], new["distributions"][name]
        test = stats.ks_2samp(*values, method="asymp")
        assert row["size"] == pytest.approx(test.statistic)
        assert row["p_value"] >= test.pvalue
        moved = row["moved"] * np.std(values[0])
        assert moved == pytest.approx(stats.wasserstein_distance(*values))
        assert [row["reference"], row["current"]] == pytest.approx(list(map(np.mean, values)))
    passed = found["shares"]["consistent"]
    table = [[share * 300, (1 - share) * 300] for share in (passed["reference"], passed["current"])]
    assert passed["p_value"] >= stats.chi2_contingency(table).pvalue
    p_values = [row["p_value"] for kind in KINDS for row in found[kind].values()]
    assert max(p_values) <= 1


def test_random_halves_of_one_collection_show_no_drift() -> None:
    quiet = 0
    for seed in range(12):
        made = world(seed, queries=(24, 60, 160)[seed % 3])
        order = np.random.default_rng(seed + 1000).permutation(len(made["queries"]))
        half = len(order) // 2
        found = drift(part(made, np.sort(order[:half])), part(made, np.sort(order[half:])))
        quiet += found["verdict"] == "none"
    assert quiet >= 11


@pytest.mark.parametrize(
    ("change", "expected"),
    [({"shift": 0.08}, {"negative_dense"}), ({"longer": 6}, {"query_length"})],
)
def test_a_shift_is_found_where_it_is(change: dict[str, Any], expected: set[str]) -> None:
    found = drift(whole(world(1, 300)), whole(world(2, 300, **change)))
    names = worst(found)
    assert expected <= names.keys()
    assert found["verdict"] == ("strong" if "strong" in names.values() else "slight")
    untouched = {"positives_per_query", "consistent", "train_queries", "positive_dense"}
    assert not untouched & names.keys()


def test_a_broken_export_shows_in_the_counts() -> None:
    found = drift(whole(world(1, 300)), part(world(1, 300), np.arange(180)))
    names = ("train_queries", "documents", "training_labels", "training_rows")
    assert worst(found) == dict.fromkeys(names, "strong")
    # The same proportion of a handful is no news.
    few = drift(whole(world(1, 20)), part(world(1, 20), np.arange(12)))
    assert worst(few) == {}


def test_a_profile_by_hand() -> None:
    made = world(7, 50)
    found = json.loads(json.dumps(whole(made), allow_nan=False))
    block = made["selection"]
    chosen = block.negatives
    names = ("train_queries", "documents", "training_labels", "training_rows")
    assert found["counts"] == {"dev_queries": 0, "test_queries": 0} | dict.fromkeys(names, 50)
    by_query = np.where(chosen, block.columns["dense"], 0).sum(axis=1) / chosen.sum(axis=1)
    known = np.sort(by_query[chosen.any(axis=1)])
    assert found["distributions"]["negative_dense"] == pytest.approx(known, rel=1e-5)
    lengths = made["queries"].text.str.split().map(len)
    assert found["distributions"]["query_length"] == sorted(lengths)
    assert found["shares"]["all_negatives"]["share"] == (chosen.sum(axis=1) >= 7).mean()
    consistent = {"share": block.query_columns["consistent"].mean(), "count": 50}
    assert found["shares"]["consistent"] == consistent


def test_a_query_with_several_positives_is_one_value_and_shards_do_not_matter() -> None:
    made = world(7, 50)
    tables = (made["queries"], made["corpus"], made["qrels"])
    selection, expected = made["selection"], whole(made)
    for blocks, rows in (
        ([selection, selection.take(np.arange(30))], 80),
        ([selection.take(slice(0, 13)), selection.take(slice(13, 50))], 50),
    ):
        found = profile(*tables, CandidateShards.of(blocks), negatives=7)
        assert found["counts"]["training_rows"] == rows
        assert found["distributions"] == expected["distributions"]
        for name, entry in expected["shares"].items():
            assert name == "dropped" or found["shares"][name] == pytest.approx(entry), name


def test_what_cannot_be_compared_is_said() -> None:
    old, new = whole(world(1, 100)), whole(world(2, 100))
    assert not drift(None, new)["compared"]
    assert drift({}, new)["reason"] == "there is no champion to compare with"
    assert "format" in drift(old | {"format": 0}, new)["reason"]
    del old["distributions"]["negative_dense"]
    found = drift(old | {"made_with": {"encoder": "a"}}, new | {"made_with": {"encoder": "b"}})
    assert "negative_dense" not in found["distributions"]
    assert found["different"] == {"encoder": {"reference": "a", "current": "b"}}
    assert not drift(whole(world(1, 6)), whole(world(2, 6, shift=0.4)))["distributions"], "too few"
