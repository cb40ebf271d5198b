from __future__ import annotations

import pandas as pd

from anmi.adaptation.stand_in import unlabelled_splits, with_pseudo_tests

CORPUS = pd.DataFrame({
    "document_id": ["a", "b", "c"], "title": ["A", "B", "C"], "text": ["x. y.", "z.", "w."], "metadata": "{}"
})  # fmt: skip
QUERIES = pd.DataFrame({"query_id": ["q"], "text": ["?"], "split": ["train"], "metadata": ["{}"], "same_as": [""]})
QRELS = pd.DataFrame({"query_id": ["q"], "document_id": ["c"], "relevance": [1], "split": ["train"]})
PSEUDO = pd.DataFrame({
    "query_id": ["cloze:0:a", "title:0:a", "title:0:b", "title:0:c"],
    "text": ["x.", "A", "B", "C"],
    "document_id": ["a", "a", "b", "c"],
    "positive_text": ["A y.", "x. y.", "z.", "w."],
    "kind": ["cloze", "title", "title", "title"],
    "weight": 1.0,
    "split": ["test", "test", "dev", "train"],
})  # fmt: skip


def test_every_new_document_asks_once_and_lacks_what_it_asks() -> None:
    corpus, queries, qrels = with_pseudo_tests(CORPUS, QUERIES, QRELS, PSEUDO, unlabelled_splits(QUERIES, QRELS))
    asked = queries[queries.split == "test"]
    assert len(asked) == 1
    of = PSEUDO.set_index("query_id").loc[asked.query_id.item()]
    assert corpus.text[0] == of.positive_text and corpus.title[0] == "" and of.text not in corpus.text[0]
    assert qrels[qrels.query_id == asked.query_id.item()].document_id.item() == "a"
    assert corpus.text[2] == "w." and corpus.title[2] == "C"
    assert queries.columns.tolist() == QUERIES.columns.tolist() and qrels.dtypes.equals(QRELS.dtypes)


def test_splits_with_labels_stay_as_they_are() -> None:
    corpus, queries, qrels = with_pseudo_tests(CORPUS, QUERIES, QRELS, PSEUDO, [])
    assert corpus is CORPUS and queries is QUERIES and qrels is QRELS


def test_key_phrases_are_asked_only_where_a_document_has_nothing_else() -> None:
    phrases = [f"keyphrase:{place}:a" for place in range(20)]
    easy = pd.DataFrame({
        "query_id": [*phrases, "keyphrase:0:b"], "text": "z", "document_id": ["a"] * 20 + ["b"], "positive_text": "z.",
        "kind": "keyphrase", "weight": 1.0, "split": "test",
    })  # fmt: skip
    made = pd.concat([easy, PSEUDO[PSEUDO.document_id == "a"]], ignore_index=True)
    _, queries, _ = with_pseudo_tests(CORPUS, QUERIES, QRELS, made, ["test"])
    kinds = queries[queries.split == "test"].query_id.str.split(":").str[0].tolist()
    assert kinds[0] in ("cloze", "title") and kinds[1:] == ["keyphrase"]
