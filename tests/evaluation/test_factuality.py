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
    qrels = [("q0", "d0"), ("q1", "d1"), ("q2", "d2"), ("q3", "d0"), ("train", "d1")]
    variants = [
        ("d0", "swap", "Swap 0"),
        ("d0", "number", "Number 0"),
        ("d1", "swap", "Swap 1"),
        ("d1", COUNTERPART, "Own 2"),
        ("unknown", "swap", "?"),
    ]
    texts = {"query_id": ["q0", "q1", "q2", "q3"], "text": ["a", "b", "c", "a again"]}
    return {
        "queries": pd.DataFrame(texts),
        "qrels": pd.DataFrame(qrels, columns=["query_id", "document_id"]),
        "documents": {f"d{number}": f"Own {number}" for number in range(3)},
        "variants": pd.DataFrame(variants, columns=["document_id", "kind", "text"]),
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


@pytest.mark.parametrize("seed", range(2))
def test_both_numbers_are_those_of_their_definition(seed: int) -> None:
    """Queries with a varying number of variants of each kind, and ties; AUC of scikit-learn."""
    rng = np.random.default_rng(seed)
    rows = [(q, kind) for q in range(12) for kind in KINDS for _ in range(rng.integers(0, 4))]
    table = pd.DataFrame(rows, columns=["query", "kind"])
    table["own_similarity"] = rng.integers(2, 9, 12)[table["query"]] / 8
    table["variant"] = rng.integers(0, 8, len(table)) / 8
    pairs = table.assign(query_id=table["query"].map("q{}".format), own="own")
    scores = (table.own_similarity.to_numpy(), table.variant.to_numpy())
    found = module.factuality(pairs, *scores, seed=1, resamples=200)
    for kind, row in found.iterrows():
        mask = table.kind != COUNTERPART if kind == module.ALL else table.kind == kind
        rows_of_kind = table[mask]
        own = rows_of_kind.drop_duplicates("query").own_similarity
        truth = [1] * len(own) + [0] * len(rows_of_kind)
        assert row.auc == pytest.approx(roc_auc_score(truth, [*own, *rows_of_kind.variant]))
        difference = rows_of_kind.own_similarity - rows_of_kind.variant
        shares = ((np.sign(difference) + 1) / 2).groupby(rows_of_kind["query"]).mean()
        assert row.paired == pytest.approx(shares.mean())
        assert row.auc_low <= row.auc <= row.auc_high
        assert row.paired_low <= row.paired <= row.paired_high
        assert (row.queries, row.variants) == (len(shares), mask.sum())


IDS = ["paris1", "paris2", "rome1", "rome_paris", "weather"]


def cities() -> KnowledgeGraph:
    entities = pd.DataFrame({"uri": ["u:paris", "u:rome"], "label": ["Paris", "Rome"]})
    entities["types"] = ['["City"]', '["Town"]']
    rows = [
        ("paris1", "u:paris", "in", "France"),
        ("paris2", "u:paris", "mayor", "Anne"),
        ("rome1", "u:rome", "in", "Italy"),
        ("rome_paris", "u:rome", "twin", "u:paris"),
        ("rome_paris", "u:rome", "in", "Italy"),
        ("rome_paris", "u:paris", "in", "France"),
    ]
    facts = pd.DataFrame(rows, columns=["document_id", "head", "relation", "tail"])
    return KnowledgeGraph.from_tables(entities, facts[["head", "relation", "tail"]], facts, IDS)


def run_of(**rankings: list[str]) -> pd.DataFrame:
    table = pd.DataFrame({"query_id": list(rankings), "document_id": list(rankings.values())})
    table = table.explode("document_id", ignore_index=True).dropna()
    return table.assign(rank=table.groupby("query_id").cumcount() + 1)


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
