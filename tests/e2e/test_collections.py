"""Mining on collections that users bring: a BEIR folder, numbered files of pairs, a graph with known truth."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.data
PAIR_KEYS = {
    "query",
    "positive_doc",
    "hard_negatives",
    "query_type",
    "doc_type",
    "source",
    "language",
}


@pytest.fixture
def mine(new_place: Any, in_process: Any, tmp_path: Path) -> Any:
    """Run the mining pipeline and return the place and the lines it exported."""

    def run(*parameters: str) -> tuple[Any, list[dict[str, Any]]]:
        place = new_place(tmp_path)
        done = in_process(place, "run", "--pipelines", "mining", "--params", ",".join(parameters))
        assert done.exit_code == 0, done.output + str(done.exception)
        return place, place.exported()

    return run


def check(lines: list[dict[str, Any]], language: str, most: int = 7) -> None:
    assert lines
    for line in lines:
        assert line.keys() == PAIR_KEYS
        assert line["query"].strip()
        assert line["positive_doc"].strip()
        assert len(line["hard_negatives"]) == len(set(line["hard_negatives"])) <= most
        assert line["positive_doc"] not in line["hard_negatives"]
        assert line["language"] == language
        assert line["query_type"]
        assert line["doc_type"]
    assert sum(len(line["hard_negatives"]) >= 7 for line in lines) > 0.9 * len(lines)


@pytest.mark.rare
def test_scifact(scifact: Any) -> None:
    check(scifact.exported(), "en", most=50)
    info = scifact.json("ingestion", "collection_info.json")
    assert info["documents"] == 5183
    assert info["queries"]["test"] == 300
    assert info["queries"]["train"] + info["queries"]["dev"] > 795, (
        "809, less those whose text stands in test"
    )
    assert info["queries"]["dev"] > 80
    assert "dev cut from train" in info["notes"]["splits"]
    queries, rows = (
        scifact.table("ingestion", "queries.parquet"),
        scifact.table("selection", "training_rows.parquet"),
    )
    split = queries.set_index("query_id").loc[rows.query_id].split
    assert split.tolist() == rows.split.tolist()
    assert set(split) == {"train"}


@pytest.mark.rare
def test_korean_pairs(mine: Any, shared_data: Path) -> None:
    collection = f"collection=pairs:{shared_data}/ko_pairs/*.jsonl"
    place, lines = mine(collection, "recipe=bm25_random", "ingestion.max_queries=200")
    check(lines, "ko")
    assert {line["query_type"] for line in lines} != {"query"}, (
        "the types of the input are passed on"
    )
    info = place.json("ingestion", "collection_info.json")
    assert info["queries"]["train"] == 200
    assert all(info["queries"][split] > 0 for split in ("dev", "test"))
    rated = place.with_stage_columns().whole()
    kept = set(rated.query_ids[rated.query_columns["consistent"] > 0].tolist())
    rows = place.table("selection", "training_rows.parquet")
    assert set(rows.query_id) == kept
    rows = rows[rows.split == "train"]
    kept &= set(rows.query_id)
    assert place.json("denoising", "cross_encoder.json") == {"judged_pairs": 0}, (
        "the recipe reads no judgment"
    )
    (source,) = place.json("selection", "selection_summary.json")["by_source"]
    assert (source["source"], source["queries"], source["passed"]) == ("sae4k", 200, len(kept))
    assert source["rows"] == len(rows)


def test_a_graph_whose_false_negatives_are_known(mine: Any, shared_data: Path) -> None:
    folder = shared_data / "kg_webnlg" / "beir_en"
    place, lines = mine(
        f"collection=beir:{folder}", "recipe=naive_top", "ingestion.max_queries=200"
    )
    check(lines, "en")
    leak = place.json("selection", "selection_summary.json")["false_negatives"]
    # An oracle of our own: a document that states every triple of one of the query's documents is
    # relevant.
    corpus = place.table("ingestion", "corpus.parquet").set_index("document_id")
    facts = {
        name: {json.dumps(triple) for triple in json.loads(text).get("triples", [])}
        for name, text in corpus.metadata.items()
    }
    rows = place.table("selection", "training_rows.parquet")
    rows = rows[rows.split == "train"]
    wrong = 0
    for row in rows.drop_duplicates("query_id").itertuples():
        asked = [facts[document] for document in row.positive_ids]
        wrong += sum(any(own <= facts[document] for own in asked) for document in row.negative_ids)
    assert leak["total"] == rows.drop_duplicates("query_id").negative_ids.map(len).sum()
    assert leak["count"] == wrong > 0, "naive mining takes false negatives here"
