from __future__ import annotations

import pandas as pd

from anmi.adaptation.pseudo_tests import unlabelled_splits, with_pseudo_tests

QUERIES = pd.DataFrame({"query_id": ["q"], "text": ["?"], "split": ["train"], "metadata": ["{}"], "same_as": [""]})
QRELS = pd.DataFrame({"query_id": ["q"], "document_id": ["c"], "relevance": [1], "split": ["train"]})
PARTS = [f"{word} is here." for word in ("One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight")]
TEXT = " ".join(PARTS)
VIEWS = [
    *[("cloze", part, "A " + TEXT.replace(part, "")) for part in PARTS],
    ("title", "A", TEXT),
    *[("keyphrase", f"here {number}", f"A {TEXT}") for number in range(5)],
]  # fmt: skip


def asked_and_left(count: int, kinds: tuple[str, ...] = ("cloze", "title", "keyphrase")) -> tuple[list[str], str]:
    """What the first of so many new documents asks, by kind, and what is left of its text."""
    names = [f"d{number}" for number in range(count)]
    whole = pd.DataFrame({"document_id": names, "title": "A", "text": TEXT, "metadata": "{}"})
    made = pd.DataFrame([
        {"query_id": f"{kind}:{place}:{name}", "text": text, "document_id": name, "positive_text": positive,
         "kind": kind, "weight": 1.0, "split": "test"}
        for name in names for place, (kind, text, positive) in enumerate(VIEWS) if kind in kinds
    ])  # fmt: skip
    corpus, queries, qrels = with_pseudo_tests(whole, QUERIES, QRELS, made, unlabelled_splits(QUERIES, QRELS))
    assert queries.columns.tolist() == QUERIES.columns.tolist() and qrels.dtypes.equals(QRELS.dtypes)
    own = queries[queries.query_id.isin(qrels.query_id[qrels.document_id == "d0"])]
    assert set(own.split) == {"test"} and set(corpus.title) == {""}
    assert not any(text in corpus.text[0] for text in own.text if text in PARTS), "what is asked is taken out"
    return own.query_id.str.split(":").str[0].tolist(), corpus.text[0]


def test_new_documents_ask_once_or_where_they_are_few_up_to_five_times_and_half_of_the_text_is_left() -> None:
    assert [len(asked_and_left(count)[0]) for count in (40, 30, 15, 10, 3, 1)] == [1, 1, 2, 3, 5, 5]
    assert "keyphrase" not in asked_and_left(15)[0] and asked_and_left(3)[0].count("keyphrase") <= 1
    asked, left = asked_and_left(3, ("cloze",))
    assert asked == ["cloze"] * 4 and len(left.split()) == 13


def test_key_phrases_are_asked_once_where_a_document_has_nothing_else() -> None:
    assert asked_and_left(3, ("keyphrase",)) == (["keyphrase"], f"A {TEXT}")


def test_splits_with_labels_stay_as_they_are() -> None:
    nothing = pd.DataFrame({"document_id": ["c"], "split": "test"})
    corpus, queries, qrels = with_pseudo_tests(nothing, QUERIES, QRELS, nothing, [])
    assert corpus is nothing and queries is QUERIES and qrels is QRELS
