"""What each format holds, what is left out of it, and what is refused."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anmi.errors import AnmiError
from anmi.selection.export import (
    FORMATS,
    Collection,
    Exported,
    ExportOptions,
    make_export,
    may_replace,
    writing,
)

NAN = math.nan


def row(query: str, positive: str, negatives: str, **more: Any) -> dict[str, Any]:
    """A training row of one-letter documents, whose texts are ``text <letter>``; scores count down from 0.9."""
    scores = [0.9 - 0.125 * place for place in range(len(negatives))]
    return {
        "query_id": query,
        "query": f"질문 {query}",
        "query_weight": 1.0,
        "positive_id": positive,
        "positive": f"Titel {positive}: größer",
        "positive_ids": [positive],
        "negative_ids": list(negatives),
        "negatives": [f"text {letter}" for letter in negatives],
        "weights": [1.0] * len(negatives),
        "sources": ["dense"] * len(negatives),
        "positive_dense": 1.0,
        "negative_dense": scores,
        "positive_cross": 4.0,
        "negative_cross": [-score for score in scores],
        "origin": "qrels",
        **more,
    }


# Two rows of query 1 that share a negative; query 2 has two negatives; query 3 has none.
ROWS = pd.DataFrame(
    [row("1", "p", "abc"), row("1", "q", "bde"), row("2", "p", "fg"), row("3", "r", "")]
)


def export(
    name: str, rows: pd.DataFrame = ROWS, collection: Collection | None = None, **options: Any
) -> Exported:
    return make_export(rows, name, ExportOptions(**options), collection)


def lines(made: Exported) -> list[dict[str, Any]]:
    return made.table.to_dict("records")


def test_a_label_that_no_judge_read_is_certain_and_stays() -> None:
    judged = {"positive_p_relevant": NAN, "negative_p_relevant": [0.25, NAN]}
    made = export("labeled-pair", pd.DataFrame([row("1", "p", "ab", **judged)]), score="p_relevant")
    assert made.table.label.tolist() == [1.0, 0.25]
    assert made.left_out == {"negatives without p_relevant": 1}


def test_tuples_are_as_long_as_the_fullest_row_and_say_how_to_keep_the_shorter() -> None:
    made = export("n-tuple")
    assert list(made.table) == ["query", "positive", "negative_1", "negative_2", "negative_3"]
    assert made.left_out == {
        "rows without negatives": 1,
        "rows with fewer than 3 negatives (--negatives 2 keeps every row that has any)": 1,
    }
    kept = export("n-tuple", negatives=2)
    assert len(kept.table) == 3 and kept.left_out == {"rows without negatives": 1}
    assert kept.table.iloc[2].tolist() == ["질문 2", "Titel p: größer", "text f", "text g"]


def test_the_score_chosen_is_a_cross_encoders_where_it_is_known_for_nearly_all() -> None:
    made = export("n-tuple-scores")
    assert made.score == "cross" and made.table.scores[0][0] == 4
    made = export("n-tuple-scores", score="dense", negatives=2)
    assert np.allclose(made.table.scores.tolist(), [[1.0, 0.9, 0.775]] * 3), (
        "the positive's, then the negatives'"
    )
    patchy = pd.DataFrame([row("1", "p", "abc", negative_cross=[0.0, NAN, 0.0])])
    assert export("n-tuple-scores", patchy).score == "dense"
    without = patchy.drop(columns=["positive_dense", "negative_dense"])
    with pytest.raises(AnmiError, match=r"no score is known for 95%.*cross \(known for 75.0 %\)"):
        export("n-tuple-scores", without)


def test_pairs_and_lists_are_labelled_once_positives_first() -> None:
    made = export("labeled-pair")
    found = [
        (line["query"][-1], line["document"].split()[1][0], line["label"]) for line in lines(made)
    ]
    assert found == [
        ("1", "p", 1),
        ("1", "q", 1),
        *(("1", letter, 0) for letter in "abcde"),
        ("2", "p", 1),
        ("2", "f", 0),
        ("2", "g", 0),
        ("3", "r", 1),
    ]
    assert made.table.label.dtype == np.int64
    listed = export("labeled-list")
    assert [line["labels"] for line in lines(listed)] == [[1, 1, 0, 0, 0, 0, 0], [1, 0, 0]]
    assert listed.table.documents[1] == ["Titel p: größer", "text f", "text g"]
    assert listed.left_out == {"queries without a positive or without negatives": 1}
    soft = export("labeled-pair", score="dense").table.label
    assert soft.dtype == np.float32 and soft.tolist()[:3] == [1.0, 1.0, np.float32(0.9)]


def test_flagembedding_lines_follow_its_documentation() -> None:
    first, second = lines(export("flagembedding"))
    assert first == {
        "query": "질문 1",
        "pos": ["Titel p: größer", "Titel q: größer"],
        "neg": [f"text {letter}" for letter in "abcde"],
        "type": "normal",
    }
    assert second["neg"] == ["text f", "text g"]
    told = lines(export("flagembedding", score="cross", prompt="Find: "))[0]
    assert told["prompt"] == "Find: " and told["pos_scores"] == [4, 4]
    assert len(told["neg_scores"]) == len(told["neg"]) and told["neg_scores"][0] == -0.9


def collection(**changes: Any) -> Collection:
    corpus = pd.DataFrame({"document_id": list("pqrabcdefg"), "title": "", "metadata": ""}).assign(
        text=""
    )
    corpus.loc[corpus.document_id == "p", "title"] = "Titel p:"
    queries = pd.DataFrame({"query_id": list("123"), "metadata": ""})
    return Collection(
        **({"corpus": corpus, "queries": queries, "name": "mine", "language": "de"} | changes)
    )


def test_tevatron_passages_have_ids_titles_and_texts_that_join_to_the_whole() -> None:
    first, _ = lines(export("tevatron", collection=collection()))
    assert first.keys() == {"query_id", "query", "positive_passages", "negative_passages"}
    assert first["positive_passages"] == [
        {"docid": "p", "title": "Titel p:", "text": "größer"},
        {"docid": "q", "title": "", "text": "Titel q: größer"},
    ]
    assert [passage["docid"] for passage in first["negative_passages"]] == list("abcde")
    assert lines(export("tevatron"))[0]["positive_passages"][0]["title"] == "", (
        "without a collection there are none"
    )


def test_pairs_need_the_collection_that_the_rows_were_made_of() -> None:
    made = export("pairs", collection=collection())
    assert lines(made)[2] == {
        "query": "질문 2",
        "positive_doc": "Titel p: größer",
        "hard_negatives": ["text f", "text g"],
        "query_type": "query",
        "doc_type": "document",
        "source": "mine",
        "language": "de",
    }
    with pytest.raises(AnmiError, match="run ingestion"):
        export("pairs")
    with pytest.raises(AnmiError, match='no document "p" of the training rows'):
        export("pairs", collection=collection(corpus=collection().corpus.iloc[1:]))


@pytest.mark.parametrize("name", FORMATS)
def test_what_training_would_not_see_is_in_no_format(name: str) -> None:
    rows = pd.DataFrame(
        [
            row("1", "p", "ab", weights=[0.0, 0.5]),
            row("2", "q", "c", query_weight=0.0),
            row("1", "r", "pd"),
        ]
    )
    made = export(name, rows, collection())
    text = made.table.to_json(force_ascii=False)
    assert "text b" in text and "text d" in text
    # b is the only negative left of the first row, d of the last: p is a positive of the same
    # query.
    assert not [other for other in ("text a", "text p", "질문 2", "text c") if other in text]
    assert made.left_out == {
        "rows of weight 0": 1,
        "negatives of weight 0": 1,
        "negatives that are a positive of the same query": 1,
    }


@pytest.mark.parametrize("name", FORMATS)
def test_rows_as_they_come_from_disk_give_the_same(name: str, tmp_path: Path) -> None:
    ROWS.to_parquet(tmp_path / "rows.parquet")
    loaded = pd.read_parquet(tmp_path / "rows.parquet")
    for rows, place in ((ROWS, "a"), (loaded, "b")):
        export(name, rows, collection()).save(tmp_path / place)
    files = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert "README.md" in files and len(files) == 2
    assert may_replace(tmp_path / "a") is None
    for file in files:
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_files_keep_unicode_and_hold_one_object_a_line(tmp_path: Path) -> None:
    odd = pd.DataFrame([row("1", "p", "a") | {"query": 'two\nlines\u2028 "质量" 😀'}])
    export("flagembedding", odd).save(tmp_path)
    written = (tmp_path / "train.jsonl").read_bytes().decode()
    assert "质量" in written and "😀" in written and written.count("\n") == 1
    assert json.loads(written)["query"] == odd["query"][0]
    readme = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "1 lines of query, pos, neg, type" in readme and '--train_data "train.jsonl"' in readme


def test_each_source_has_files_of_its_own_when_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "_CHUNK", 1)
    made = export("pairs", collection=collection(), by_source=True)
    sources = ["../a b", "news", "../a b"]
    replace(made, table=made.table.assign(source=sources)).save(tmp_path)
    found = {
        path.name: json.loads(path.read_text(encoding="utf-8"))["source"]
        for path in tmp_path.glob("*.jsonl")
    }
    assert found == {
        "part_..-a-b_001.jsonl": "../a b",
        "part_..-a-b_002.jsonl": "../a b",
        "part_news_001.jsonl": "news",
    }
    assert may_replace(tmp_path) is None
    with pytest.raises(AnmiError, match=r"triplet.* has no place for by_source; .* one of pairs"):
        export("triplet", by_source=True)


def test_options_that_a_format_has_no_place_for_are_refused() -> None:
    with pytest.raises(
        AnmiError, match="no place for score; leave it out, or take one of n-tuple-scores"
    ):
        export("triplet", score="dense")
    with pytest.raises(
        AnmiError, match="no place for prompt; leave it out, or take one of flagembedding"
    ):
        export("tevatron", prompt="x")
    with pytest.raises(AnmiError, match='no format "labelled-pair"; did you mean "labeled-pair"'):
        export("labelled-pair")
    with pytest.raises(AnmiError, match='no column "negative_ids"'):
        export("triplet", ROWS.drop(columns="negative_ids"))


LETTERS = st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=5)
TABLES = st.lists(
    st.tuples(st.sampled_from("12"), st.sampled_from("pq"), LETTERS), min_size=1, max_size=5
)


@given(table=TABLES, negatives=st.none() | st.integers(1, 4))
def test_formats_agree_on_which_negatives_a_query_has(table, negatives):
    rows = pd.DataFrame(
        [row(query, positive, "".join(letters)) for query, positive, letters in table]
    )
    wanted = {
        (f"질문 {query}", f"text {letter}")
        for query, _, letters in table
        for letter in letters[: negatives or None]
    }
    pairs = export("labeled-pair", rows, negatives=negatives).table
    assert (
        set(pairs[pairs.label == 0][["query", "document"]].itertuples(index=False, name=None))
        == wanted
    )
    assert not pairs.duplicated(["query", "document"]).any()
    if not wanted:
        return
    triplets = export("triplet", rows, negatives=negatives).table
    assert list(map(tuple, triplets.to_numpy().tolist())) == [
        (f"질문 {query}", f"Titel {positive}: größer", f"text {letter}")
        for query, positive, letters in table
        for letter in letters[: negatives or None]
    ]
    grouped = lines(export("flagembedding", rows, negatives=negatives))
    assert {(line["query"], text) for line in grouped for text in line["neg"]} == wanted
    assert sum(len(line["neg"]) for line in grouped) == len(wanted)
