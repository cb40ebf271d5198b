"""Training rows and pairs: contents, order, and what is left out."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from tests.selection.conftest import with_lists

from anmi.candidates import PADDING, Candidates, CandidateShards
from anmi.retrieval.pool import RelatedDocuments
from anmi.selection.rows import load, pair_rows, training_rows
from anmi.training.batch import assemble, read_rows

NAMES = [f"d{i}" for i in range(10)]
TEXTS = [f"text {i}" for i in range(10)]
QUERIES = {"a": "query a", "b": "query b", "c": "query c"}
NAN = np.nan


def floats(*rows: list[float]) -> np.ndarray:
    return np.array(rows, np.float32)


def selected() -> Candidates:
    """Row a: negatives 5 then 4; row b: none; row c: dropped though it has one."""
    dense = floats([0.4, 0.5, 0.6], [0.7, NAN, NAN], [0.8, 0.9, NAN])
    choice = floats([2, 1, NAN], [NAN, NAN, NAN], [1, NAN, NAN])
    block = Candidates(
        query_ids=np.array(["a", "b", "c"]),
        positives=np.array([[1], [2], [3]], np.int32),
        documents=np.array([[4, 5, 6], [7, PADDING, PADDING], [8, 9, PADDING]], np.int32),
        source=np.array([[1, 3, 2], [1, 0, 0], [2, 2, 0]], np.uint8),
        columns={"dense": dense, "gap_se": 100 * dense, "choice": choice},
        positive_columns={"dense": floats([0.1], [0.2], [0.3])},
        weight=floats([0.25, 1, 1], [1, 1, 1], [1, 1, 1]),
        verdict=np.array([[1, 1, 0], [2, 0, 0], [1, 0, 0]], np.int16),
        legend=("open", "negative", "denoise"),
    )
    return block.dropped("consistency", np.array([False, False, True]))


def rows_of(*blocks: Candidates) -> pd.DataFrame:
    return with_lists(training_rows(CandidateShards.of(blocks), NAMES, TEXTS, QUERIES))


def test_a_row_holds_its_negatives_in_the_order_of_choice() -> None:
    rows = rows_of(selected())
    row = rows.iloc[0]
    names = ["query_id", "query", "positive_id", "positive", "query_weight"]
    assert row[names].tolist() == ["a", "query a", "d1", "text 1", 1.0]
    assert row.positive_ids == ["d1"]
    assert row.negative_ids == ["d5", "d4"] and row.negatives == ["text 5", "text 4"]
    assert row.weights == [1.0, 0.25] and row.sources == ["bm25+dense", "bm25"]
    assert row.negative_dense == pytest.approx([0.5, 0.4])
    assert row.positive_dense == pytest.approx(0.1)
    assert row.negative_gap_se == pytest.approx([50, 40])
    # A row without negatives is kept, a dropped query is left out.
    assert rows.query_id.tolist() == ["a", "b"]
    for column in ("negative_ids", "negatives", "weights", "sources", "negative_dense"):
        assert rows[column][1] == []


def test_blocks_follow_each_other_and_an_empty_one_adds_nothing() -> None:
    block = selected()
    rows = rows_of(block.take(slice(0, 0)), block.take(slice(1, 2)), block.take(slice(0, 1)))
    assert rows.query_id.tolist() == ["b", "a"] and rows.index.tolist() == [0, 1]
    assert len(rows_of(block.dropped("all", np.ones(3, bool)))) == 0


def test_pairs_carry_texts_types_source_and_language() -> None:
    corpus = pd.DataFrame({"document_id": NAMES, "metadata": ""})
    corpus.loc[1, "metadata"] = json.dumps({"doc_type": "function", "source": "of the document"})
    metadata = ["{}", "", json.dumps({"query_type": "summary"})]
    queries = pd.DataFrame({"query_id": list("abc"), "metadata": metadata})
    pairs = pair_rows(rows_of(selected()), corpus, queries, "beir:x", "ko")
    texts = {"query": "query a", "positive_doc": "text 1", "hard_negatives": ["text 5", "text 4"]}
    types = {"query_type": "query", "doc_type": "function", "source": "beir:x", "language": "ko"}
    assert pairs.to_dict("records") == [texts | types]


def routed() -> Candidates:
    """Query a has two positives: 4 is promoted, 5 negative, 6 unsafe, 7 uncertain; b takes 6."""
    block = Candidates(
        query_ids=np.array(["a", "b"]),
        positives=np.array([[1, 0], [2, PADDING]], np.int32),
        documents=np.array([[4, 5, 6, 7], [6, 4, PADDING, PADDING]], np.int32),
        source=np.ones((2, 4), np.uint8),
        columns={
            "dense": floats([0.4, 0.5, 0.6, 0.7], [0.2, 0.1, NAN, NAN]),
            "p_relevant": floats([0.75, 0.0, 0.3, 0.4], [0.1, 0.1, NAN, NAN]),
            "choice": floats([NAN, 1, NAN, NAN], [1, NAN, NAN, NAN]),
        },
        positive_columns={"dense": floats([0.8, 0.9], [0.3, NAN])},
        query_columns={"weight": np.array([0.5, 1.0], np.float32)},
    )
    is_first = np.array([[True], [False]])
    for document, kind in ((4, "promoted"), (6, "unsafe"), (7, "uncertain")):
        of_kind = is_first & (block.documents == document)
        block = block.rejected(kind, of_kind, "", kind, in_batch=True)
    is_chosen = ~np.isnan(block.columns["choice"])
    return replace(block, verdict=np.where(is_chosen, np.int16(1), block.verdict))


def test_a_promotion_makes_one_more_row_and_is_known_in_all_rows_of_its_query() -> None:
    rows = rows_of(routed())
    assert rows.query_id.tolist() == ["a", "a", "a", "b"]
    assert rows.origin.tolist() == ["qrels", "qrels", "promoted", "qrels"]
    row = rows.iloc[2]
    assert (row.positive_id, row.positive, row.negative_ids) == ("d4", "text 4", ["d5"])
    assert row.query_weight == pytest.approx(0.5 * 0.75)
    assert row.positive_dense == pytest.approx(0.4)
    assert all("d4" in ids for ids in rows.positive_ids[rows.query_id == "a"])


def test_what_may_be_relevant_here_and_stands_in_another_row_is_excluded() -> None:
    rows = rows_of(routed())
    # 7 is in no row, so no batch can hold it.
    assert sorted(rows.excluded_ids[0]) == ["d4", "d6"]
    # Document 4 is only close to the positive of b, so it may meet b in a batch.
    close = routed().rejected("max_ratio", np.ones((2, 4), bool), "", "unsafe")
    assert close.legend[close.verdict[1, 1]] == "max_ratio"
    assert rows.excluded_ids[3] == rows_of(close).excluded_ids[3] == []


def related_rows(
    selves: dict[str, int] | None = None, near: dict[str, str] | None = None, **copy_of: str
) -> pd.DataFrame:
    pairs = [(*pair, "copy") for pair in copy_of.items()]
    pairs += [(other, document, "near") for document, other in (near or {}).items()]
    table = pd.DataFrame(pairs, columns=["document_id", "other_id", "kind"])
    related = RelatedDocuments.from_table(table, NAMES)
    shards = CandidateShards.of([routed()])
    return with_lists(training_rows(shards, NAMES, TEXTS, QUERIES, related, selves))


@pytest.mark.parametrize("related", [{"near": {"d5": "d2", "d9": "d2"}}, {"d5": "d2", "d8": "d2"}])
def test_copies_and_near_duplicates_of_a_positive_are_excluded_where_a_row_holds_them(
    related: dict[str, Any],
) -> None:
    # 5 is a negative of query a and like the positive of query b, 2; so are 8 and 9, and in no row.
    rows = related_rows(**related)
    assert rows.excluded_ids[3] == ["d5"]
    batch = assemble(read_rows(rows), "all")
    weights = batch.weights[:, batch.texts.index("text 5")]
    assert weights[3] == 0 < weights[0]


def test_copies_and_near_duplicates_of_a_promoted_document_are_no_negatives() -> None:
    # Of query a 4 is promoted: 5, its negative, is a copy of it, and 6, of query b, is much like it.
    rows = related_rows(near={"d6": "d4"}, d5="d4")
    assert rows.negative_ids.tolist() == [[], [], [], ["d6"]]
    assert all("d6" in names for names in rows.excluded_ids[:3])


def test_the_query_itself_is_excluded_even_where_no_row_holds_it() -> None:
    # Training may draw it, or its copy, from the corpus.
    rows = related_rows({"b": 8}, d9="d8")
    assert rows.excluded_ids[3] == ["d8", "d9"]
    assert not {"d8", "d9"} & set(rows.excluded_ids[0])


def test_without_queries_there_are_all_columns_and_no_rows(tmp_path):
    rows = with_lists(training_rows(CandidateShards.of([]), ["d0"], ["a fox"], {}))
    assert len(rows) == 0 and set(rows_of(selected()).columns) <= set(rows.columns)
    rows.to_parquet(tmp_path / "rows.parquet")
    read = pd.read_parquet(tmp_path / "rows.parquet")
    assert read.columns.tolist() == rows.columns.tolist()
    for column in ("query_id", "positive_ids", "negatives", "excluded_ids"):
        assert read[column].dtype.kind == "O", column


def test_rows_of_several_groups_are_read_as_they_were_written(
    tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr("anmi.selection.rows.GROUP", 1)
    rows = training_rows(CandidateShards.of([selected()]), NAMES, TEXTS, QUERIES)
    rows.save(tmp_path / "rows.parquet")
    assert pq.read_metadata(tmp_path / "rows.parquet").num_row_groups == len(rows) > 1
    assert load(tmp_path / "rows.parquet").map(str).equals(rows.to_pandas().map(str))
