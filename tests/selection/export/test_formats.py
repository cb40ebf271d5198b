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


def row(query: str, positive: str, negatives: str, **columns: Any) -> dict[str, Any]:
    """A training row of one-letter documents; dense scores of negatives count down from 0.9."""
    scores = [0.9 - 0.125 * place for place in range(len(negatives))]
    ids = {"query_id": query, "positive_id": positive, "negative_ids": list(negatives)}
    texts = {
        "query": f"질문 {query}",
        "positive": f"Titel {positive}: größer",
        "negatives": [f"text {letter}" for letter in negatives],
    }
    weights = {"query_weight": 1.0, "weights": [1.0] * len(negatives)}
    dense = {"positive_dense": 1.0, "negative_dense": scores}
    cross = {"positive_cross": 4.0, "negative_cross": [-score for score in scores]}
    return ids | texts | weights | dense | cross | columns


# Two rows of query 1 that share a negative; query 2 has two negatives; query 3 has none.
ROWS = pd.DataFrame(
    [row("1", "p", "abc"), row("1", "q", "bde"), row("2", "p", "fg"), row("3", "r", "")]
)


def collection(**changes: Any) -> Collection:
    corpus = pd.DataFrame({"document_id": list("pqrabcdefg"), "title": "", "metadata": ""})
    corpus.loc[corpus.document_id == "p", "title"] = "Titel p:"
    queries = pd.DataFrame({"query_id": list("123"), "metadata": ""})
    tables = {"corpus": corpus, "queries": queries, "name": "mine", "language": "de"}
    return Collection(**(tables | changes))


def export(
    name: str, rows: pd.DataFrame = ROWS, collection: Collection | None = None, **options: Any
) -> Exported:
    return make_export(rows, name, ExportOptions(**options), collection)


def lines(made: Exported) -> list[dict[str, Any]]:
    return made.table.to_dict("records")


def test_a_label_that_no_judge_read_is_certain_and_stays() -> None:
    judged = {"positive_p_relevant": NAN, "negative_p_relevant": [0.25, NAN]}
    rows = pd.DataFrame([row("1", "p", "ab", **judged)])
    made = export("flagembedding", rows, score="p_relevant")
    assert made.table[["pos_scores", "neg_scores"]].values.tolist() == [[[1.0], [0.25]]]
    assert made.left_out == {"negatives without p_relevant": 1}


def test_tuples_are_as_long_as_the_fullest_row_and_say_how_to_keep_the_shorter() -> None:
    made = export("n-tuple")
    assert list(made.table) == ["query", "positive", "negative_1", "negative_2", "negative_3"]
    assert made.left_out == {
        "rows without negatives": 1,
        "rows with fewer than 3 negatives (--negatives 2 keeps every row that has any)": 1,
    }
    shorter = export("n-tuple", negatives=2)
    assert len(shorter.table) == 3 and shorter.left_out == {"rows without negatives": 1}
    assert shorter.table.iloc[2].tolist() == ["질문 2", "Titel p: größer", "text f", "text g"]


def test_the_score_chosen_is_a_cross_encoders_where_it_is_known_for_nearly_all() -> None:
    made = export("n-tuple-scores")
    assert made.score == "cross" and made.table.scores[0][0] == 4
    made = export("n-tuple-scores", score="dense", negatives=2)
    assert np.allclose(made.table.scores.tolist(), [[1.0, 0.9, 0.775]] * 3)
    patchy = pd.DataFrame([row("1", "p", "abc", negative_cross=[0.0, NAN, 0.0])])
    assert export("n-tuple-scores", patchy).score == "dense"
    without = patchy.drop(columns=["positive_dense", "negative_dense"])
    with pytest.raises(AnmiError, match=r"--score.*cross \(known for 75.0 %\)"):
        export("n-tuple-scores", without)


def test_flagembedding_lines_follow_its_documentation() -> None:
    made = export("flagembedding")
    first, second = lines(made)
    assert first == {
        "query": "질문 1",
        "pos": ["Titel p: größer", "Titel q: größer"],
        "neg": [f"text {letter}" for letter in "abcde"],
        "type": "normal",
    }
    assert second["neg"] == ["text f", "text g"]
    assert made.left_out == {"queries without a positive or without negatives": 1}
    scored = lines(export("flagembedding", score="cross", prompt="Find: "))[0]
    assert scored["prompt"] == "Find: " and scored["pos_scores"] == [4, 4]
    assert len(scored["neg_scores"]) == len(scored["neg"]) and scored["neg_scores"][0] == -0.9


def test_tevatron_passages_have_ids_titles_and_texts_that_join_to_the_whole() -> None:
    first, _ = lines(export("tevatron", collection=collection()))
    assert list(first) == ["query_id", "query", "positive_passages", "negative_passages"]
    assert first["positive_passages"] == [
        {"docid": "p", "title": "Titel p:", "text": "größer"},
        {"docid": "q", "title": "", "text": "Titel q: größer"},
    ]
    assert [passage["docid"] for passage in first["negative_passages"]] == list("abcde")
    without_collection = lines(export("tevatron"))[0]
    assert without_collection["positive_passages"][0]["title"] == ""


def test_pairs_need_the_collection_that_the_rows_were_made_of() -> None:
    made = export("pairs", collection=collection())
    texts = {"query": "질문 2", "positive_doc": "Titel p: größer"}
    types = {"query_type": "query", "doc_type": "document", "source": "mine", "language": "de"}
    assert lines(made)[2] == texts | types | {"hard_negatives": ["text f", "text g"]}
    with pytest.raises(AnmiError, match="run ingestion"):
        export("pairs")
    with pytest.raises(AnmiError, match='"p"'):
        export("pairs", collection=collection(corpus=collection().corpus.iloc[1:]))


@pytest.mark.parametrize("name", FORMATS)
def test_what_training_would_not_see_is_in_no_format(name: str) -> None:
    barred = row("1", "p", "ab", weights=[0.0, 0.5])
    # Only b is left of the first row, and d of the last: p is a positive of the same query.
    rows = [barred, row("2", "q", "c", query_weight=0.0), row("1", "r", "pd")]
    made = export(name, pd.DataFrame(rows), collection())
    text = made.table.to_json(force_ascii=False)
    assert "text b" in text and "text d" in text
    assert not [gone for gone in ("text a", "text p", "질문 2", "text c") if gone in text]
    assert list(made.left_out.values()) == [1, 1, 1]


@pytest.mark.parametrize("name", FORMATS)
def test_rows_as_they_come_from_disk_give_the_same(name: str, tmp_path: Path) -> None:
    ROWS.to_parquet(tmp_path / "rows.parquet")
    loaded = pd.read_parquet(tmp_path / "rows.parquet")
    for rows, folder in ((ROWS, "a"), (loaded, "b")):
        export(name, rows, collection()).save(tmp_path / folder)
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
    source_by_file = {
        path.name: json.loads(path.read_text(encoding="utf-8"))["source"]
        for path in tmp_path.glob("*.jsonl")
    }
    assert source_by_file == {
        "part_..-a-b_001.jsonl": "../a b",
        "part_..-a-b_002.jsonl": "../a b",
        "part_news_001.jsonl": "news",
    }
    assert may_replace(tmp_path) is None


@pytest.mark.parametrize(
    ("name", "options", "match"),
    [
        ("n-tuple", {"by_source": True}, "by_source; .* pairs"),
        ("n-tuple", {"score": "dense"}, "score; .* n-tuple-scores"),
        ("tevatron", {"prompt": "x"}, "prompt; .* flagembedding"),
        ("n-tupel", {}, '"n-tuple"'),
        ("n-tuple", {"rows": ROWS.drop(columns="negative_ids")}, '"negative_ids"'),
    ],
)
def test_what_has_no_place_is_refused(name: str, options: dict[str, Any], match: str) -> None:
    with pytest.raises(AnmiError, match=match):
        export(name, **options)


LETTERS = st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=5)
TABLES = st.lists(
    st.tuples(st.sampled_from("12"), st.sampled_from("pq"), LETTERS), min_size=1, max_size=5
)


@given(table=TABLES, negatives=st.none() | st.integers(1, 4))
def test_formats_agree_on_which_negatives_a_query_has(table, negatives):
    rows = pd.DataFrame([row(query, positive, "".join(ids)) for query, positive, ids in table])
    pairs = {
        (f"질문 {query}", f"text {letter}")
        for query, _, letters in table
        for letter in letters[: negatives or None]
    }
    if not pairs:
        return
    grouped = lines(export("flagembedding", rows, negatives=negatives))
    assert {(line["query"], text) for line in grouped for text in line["neg"]} == pairs
    assert sum(len(line["neg"]) for line in grouped) == len(pairs)
    nearest = export("n-tuple", rows, negatives=1).table
    assert nearest.values.tolist() == [
        [f"질문 {query}", f"Titel {positive}: größer", f"text {letters[0]}"]
        for query, positive, letters in table
        if letters
    ]
