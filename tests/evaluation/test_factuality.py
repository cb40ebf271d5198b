"""Own documents against false variants, and entities that rankings name, with answers that are known."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from anmi.corpus.knowledge import KnowledgeGraph
from anmi.evaluation import factuality as module

COUNTERPART = module.TRUE_KINDS[0]
KINDS = ("swap", "number", "negation", COUNTERPART)


def collection() -> dict[str, Any]:
    """Three queries, of which the last shares its document with the first; d2 has no variant."""
    return {
        "queries": pd.DataFrame(
            {"query_id": ["q0", "q1", "q2", "q3"], "text": ["a", "b", "c", "a again"]}
        ),
        "qrels": pd.DataFrame(
            {
                "query_id": ["q0", "q1", "q2", "q3", "train"],
                "document_id": ["d0", "d1", "d2", "d0", "d1"],
            }
        ),
        "documents": {"d0": "Own 0", "d1": "Own 1", "d2": "Own 2"},
        "variants": pd.DataFrame(
            [
                ("d0", "swap", "Swap 0"),
                ("d0", "number", "Number 0"),
                ("d1", "swap", "Swap 1"),
                ("d1", COUNTERPART, "Own 2"),
                ("unknown", "swap", "?"),
            ],
            columns=["document_id", "kind", "text"],
        ),
    }


def test_every_query_meets_every_variant_of_its_documents() -> None:
    pairs = module.factuality_pairs(**collection(), seed=1)
    assert sorted(map(tuple, pairs.to_numpy().tolist())) == [
        ("q0", "a", "Own 0", "number", "Number 0"),
        ("q0", "a", "Own 0", "swap", "Swap 0"),
        ("q1", "b", "Own 1", COUNTERPART, "Own 2"),
        ("q1", "b", "Own 1", "swap", "Swap 1"),
        ("q3", "a again", "Own 0", "number", "Number 0"),
        ("q3", "a again", "Own 0", "swap", "Swap 0"),
    ]


@pytest.mark.parametrize("block", [1, 4, 1 << 15])
def test_similarities_are_those_of_the_texts_and_no_text_is_encoded_twice(monkeypatch, block):
    monkeypatch.setattr(module, "_BLOCK", block)
    rng = np.random.default_rng(0)
    vectors: dict[tuple[str, str], NDArray[np.float32]] = {}

    def encode(texts: list[str], role: str) -> NDArray[np.float32]:
        for text in texts:
            assert (text, role) not in vectors
            vector = rng.normal(size=5).astype(np.float32)
            vectors[text, role] = vector / np.linalg.norm(vector)
        return np.stack([vectors[text, role] for text in texts])

    pairs = module.factuality_pairs(**collection(), seed=1)
    own, other = module.pair_similarities(pairs, encode)
    for i, row in pairs.iterrows():
        query = vectors[row["query"], "query"]
        assert own[i] == pytest.approx(query @ vectors[row["own"], "document"], abs=1e-6)
        assert other[i] == pytest.approx(query @ vectors[row["variant"], "document"], abs=1e-6)


def random_pairs(
    seed: int, queries: int = 12
) -> tuple[pd.DataFrame, NDArray[np.float64], NDArray[np.float64]]:
    """Queries with a varying number of variants of each kind, and coarse similarities, so that there are ties."""
    rng = np.random.default_rng(seed)
    places = [
        (q, kind) for q in range(queries) for kind in KINDS for _ in range(rng.integers(0, 4))
    ]
    pairs = pd.DataFrame(
        [(f"q{q}", f"own {q}", kind) for q, kind in places], columns=["query_id", "own", "kind"]
    )
    own = rng.integers(2, 9, queries)[[q for q, _ in places]] / 8
    return pairs, own, rng.integers(0, 8, len(places)) / 8


def slow(
    pairs: pd.DataFrame, own: NDArray[np.float64], other: NDArray[np.float64]
) -> tuple[float, float]:
    """Both numbers by their definition, AUC from scikit-learn."""
    by_query: dict[str, list[float]] = {}
    positives: dict[tuple[str, str], float] = {}
    for i, (query, document) in enumerate(zip(pairs.query_id, pairs.own, strict=True)):
        positives[query, document] = own[i]
        by_query.setdefault(query, []).append(
            1.0 if own[i] > other[i] else 0.5 if own[i] == other[i] else 0.0
        )
    truth = [1] * len(positives) + [0] * len(other)
    auc = roc_auc_score(truth, [*positives.values(), *other])
    return float(auc), float(np.mean([np.mean(shares) for shares in by_query.values()]))


@pytest.mark.parametrize("seed", range(2))
def test_both_numbers_are_those_of_their_definition(seed: int) -> None:
    pairs, own, other = random_pairs(seed)
    found = module.factuality(pairs, own, other, seed=1, resamples=200)
    for kind, row in found.iterrows():
        mask = (
            (pairs.kind != COUNTERPART) if kind == module.ALL else (pairs.kind == kind)
        ).to_numpy()
        auc, paired = slow(pairs[mask], own[mask], other[mask])
        assert (row.auc, row.paired) == (pytest.approx(auc), pytest.approx(paired))
        assert row.auc_low <= row.auc <= row.auc_high
        assert row.paired_low <= row.paired <= row.paired_high
        assert (row.queries, row.variants) == (pairs[mask].query_id.nunique(), mask.sum())


IDS = ["paris1", "paris2", "rome1", "rome_paris", "weather"]


def cities() -> KnowledgeGraph:
    entities = pd.DataFrame(
        {
            "uri": ["u:paris", "u:rome"],
            "label": ["Paris", "Rome"],
            "types": ['["City"]', '["Town"]'],
        }
    )
    facts = pd.DataFrame(
        [
            ("paris1", "u:paris", "in", "France"),
            ("paris2", "u:paris", "mayor", "Anne"),
            ("rome1", "u:rome", "in", "Italy"),
            ("rome_paris", "u:rome", "twin", "u:paris"),
            ("rome_paris", "u:rome", "in", "Italy"),
            ("rome_paris", "u:paris", "in", "France"),
        ],
        columns=["document_id", "head", "relation", "tail"],
    )
    return KnowledgeGraph.from_tables(entities, facts[["head", "relation", "tail"]], facts, IDS)


def run_of(**rankings: list[str]) -> pd.DataFrame:
    rows = [
        (q, d, rank) for q, documents in rankings.items() for rank, d in enumerate(documents, 1)
    ]
    return pd.DataFrame(rows, columns=["query_id", "document_id", "rank"])


def qrels_of(**documents: str) -> pd.DataFrame:
    return pd.DataFrame({"query_id": list(documents), "document_id": list(documents.values())})


def about() -> dict[str, int]:
    return dict(zip(IDS, cities().about.tolist(), strict=True))


def test_the_first_entity_decides_and_documents_about_none_are_passed_over() -> None:
    run = run_of(
        a=["weather", "paris2", "rome1"], b=["rome1", "rome_paris", "paris1"], c=["weather"]
    )
    qrels = qrels_of(a="paris1", b="paris1", c="rome1", d="weather")
    found = module.linking(run, qrels, about())
    assert found.to_dict("index") == {
        "a": {"accuracy": 1.0, "mrr_10": 1.0},
        "b": {"accuracy": 0.0, "mrr_10": 0.5},
        "c": {"accuracy": 0.0, "mrr_10": 0.0},
    }


@given(st.data())
def test_the_ranking_of_entities_is_that_of_a_loop(data: st.DataObject) -> None:
    entity = {f"d{i}": data.draw(st.integers(-1, 3)) for i in range(8)}
    rankings = {
        q: data.draw(st.permutations(sorted(entity)))[: data.draw(st.integers(0, 8))] for q in "ab"
    }
    run = run_of(**rankings)
    shuffled = run.sample(frac=1, random_state=data.draw(st.integers(0, 99)))
    found = module.uri_ranking(shuffled, entity)
    for query, documents in rankings.items():
        expected = list(dict.fromkeys(entity[d] for d in documents if entity[d] >= 0))
        mine = found[found.query_id == query]
        assert mine.entity.tolist() == expected
        assert mine["rank"].tolist() == list(range(1, len(expected) + 1))


def test_neighbours_are_told_by_label_facts_and_entity() -> None:
    run = run_of(
        a=["rome_paris", "paris2", "weather", "paris1", "rome1"],
        b=["paris1", "weather"],
        other=["paris1"],
    )
    near = module.neighbours(run, qrels_of(a="paris1", b="weather"), cities(), IDS, depth=4)
    columns = ["document_id", "own", "entity", "right", "entails", "same_uri"]
    assert near[near.query_id == "a"][columns].to_numpy().tolist() == [
        ["rome_paris", 0, 1, False, True, False],
        ["paris2", 0, 0, False, False, True],
        ["weather", 0, -1, False, False, False],
        ["paris1", 0, 0, True, True, True],
    ]
    # A document that states nothing is entailed by none, and about nothing.
    assert near[near.query_id == "b"][columns].to_numpy().tolist() == [
        ["paris1", -1, 0, False, False, False],
        ["weather", -1, -1, True, False, False],
    ]
