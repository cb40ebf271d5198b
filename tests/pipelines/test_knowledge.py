"""What a graph lets one measure of two encoders."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from tests.pipelines.tables import NO_PSEUDO, corpus_of, labels_of

from anmi.corpus.knowledge import Knowledge
from anmi.pipelines.evaluation.nodes import measure_knowledge
from anmi.pipelines.params import DenseParams, EvaluationParams
from anmi.store import Store

CITIES = ["rome", "paris", "oslo", "bern"]
LANDS = ["italy", "france", "norway", "switzerland"]


def collection() -> dict[str, Any]:
    """A document per city: the first of a training query, the others of held-out queries."""
    ids = [f"d{i}" for i in range(4)]
    texts = [f"{city} {land}" for city, land in zip(CITIES, LANDS, strict=True)]
    queries = ["t0", "q1", "q2", "q3"]
    splits = ["train", "test", "test", "test"]
    facts = pd.DataFrame({"document_id": ids, "head": CITIES, "relation": "country", "tail": LANDS})
    labels = [city.title() for city in CITIES]
    entities = pd.DataFrame({"uri": CITIES, "label": labels, "types": '["City"]'})
    variants = [(d, "swap", f"{CITIES[i]} {LANDS[i - 1]}") for i, d in enumerate(ids)]
    variants.append(("d1", "counterpart", "oslo norway"))
    return {
        "corpus": corpus_of(texts),
        "queries": pd.DataFrame({"query_id": queries, "text": texts, "split": splits}),
        "qrels": labels_of("t0 d0", "q1 d1", "q2 d2", "q3 d3"),
        "knowledge": Knowledge(entities, facts[["head", "relation", "tail"]], facts),
        "variants": pd.DataFrame(variants, columns=["document_id", "kind", "text"]),
    }


def runs() -> pd.DataFrame:
    """The trained system finds every document first; the untrained one finds it second."""
    rows = []
    for system, places in (("zero_shot", (2, 1)), ("mine", (1, 2))):
        for i in (1, 2, 3):
            rows += [(system, f"q{i}", f"d{i - n}", rank, -rank) for n, rank in enumerate(places)]
    return pd.DataFrame(rows, columns=["system", "query_id", "document_id", "rank", "score"])


@pytest.fixture(scope="module")
def models(word_encoder: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """One encoder to which a country is no word, and one that tells all words apart."""
    folder, count = tmp_path_factory.mktemp("models"), len(CITIES) + len(LANDS)
    for name, words in (("blind", CITIES), ("seeing", [*CITIES, *LANDS])):
        model = word_encoder(words, dimension=count)
        model[0].embedding.weight.data[0] = 0
        model[0].embedding.weight.data[1:] = torch.eye(count)[: len(words)]
        model.save(str(folder / name))
    return str(folder / "blind"), str(folder / "seeing")


def measured(
    models: tuple[str, str], tmp_path: Path, **changes: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    with Store(tmp_path / "store") as store:
        inputs: dict[str, Any] = {
            **collection(),
            "runs": runs(),
            "trained_model": Path(models[1]),
            "encoder": models[0],
            "recipe": "mine",
            "params": EvaluationParams(resamples=100),
            "dense": DenseParams(),
            "seed": 1,
            "store": store,
            "pseudo_queries": NO_PSEUDO,
            "corpus_encoder": tmp_path,
        }
        return measure_knowledge(**inputs | changes)


def test_an_encoder_that_sees_countries_tells_facts_from_false_ones(
    models: tuple[str, str], tmp_path: Path
) -> None:
    metrics, near = measured(models, tmp_path)
    blind, seeing = metrics["zero_shot"], metrics["mine"]
    assert (blind["factuality_auc"], blind["factuality_paired"]) == (0.5, 0.5), (
        "own and variant tie"
    )
    assert (seeing["factuality_auc"], seeing["factuality_paired"]) == (1.0, 1.0)
    assert seeing["factuality_queries"] == 3
    assert set(seeing["factuality"]) == {"swap", "counterpart"}
    assert blind["factuality"]["counterpart"]["paired"] == 1.0, "another city is seen by both"
    assert blind["factuality"]["counterpart"]["queries"] == 1
    # Entities are linked by what the systems found, and neighbours are those of the trained one.
    found = {
        system: (row["linking_accuracy"], row["linking_mrr_10"]) for system, row in metrics.items()
    }
    assert found == {"zero_shot": (0.0, 0.5), "mine": (1.0, 1.0)}
    assert all(row["linking_left_out"] == 0 for row in metrics.values())
    assert near["shares"] == {"right": 0.5, "entails": 0.5, "same_uri": 0.5}


def test_documents_that_were_trained_on_do_not_count(
    models: tuple[str, str], tmp_path: Path
) -> None:
    qrels = collection()["qrels"]
    shared = pd.concat([qrels, qrels.iloc[[2]].assign(query_id="t0")], ignore_index=True)
    metrics, _ = measured(models, tmp_path, qrels=shared)
    assert metrics["mine"]["factuality_queries"] == 2
    assert metrics["mine"]["linking_queries"] == 3, "an entity that is found is found"


@pytest.mark.parametrize("missing", ["entities", "facts"])
def test_without_entities_or_facts_nothing_is_read(missing: str, tmp_path: Path) -> None:
    knowledge = collection()["knowledge"]
    knowledge = replace(knowledge, **{missing: getattr(knowledge, missing)[:0]})
    unread: dict[str, Any] = dict.fromkeys(("corpus", "queries", "qrels", "variants"))
    found = measured(("none", "none"), tmp_path, knowledge=knowledge, **unread)
    assert found == ({}, {})
