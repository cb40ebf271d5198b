"""What rose and what fell."""

import pandas as pd

from anmi.report.before_after import before_after, held_out

CORPUS = pd.DataFrame({"document_id": list("abcdef"), "title": "", "text": [f"text of {name}" for name in "abcdef"]})
PLACES = dict(zip(CORPUS.document_id, range(len(CORPUS)), strict=True))
QRELS = pd.DataFrame(
    {"query_id": ["q1", "q2", "q3", "q3"], "document_id": ["a", "b", "c", "d"], "relevance": [1, 2, 1, 0]}
)
RESULTS = pd.DataFrame({"recipe": ["bm25", "zero_shot", "anmi", "hybrid"]})


def scores() -> pd.DataFrame:
    values = {"zero_shot": [0.2, 0.9, 0.5], "hybrid": [1.0, 0.4, 0.5], "bm25": [0.1, 0.1, 0.1]}
    rows = [(f"q{i + 1}", system, value) for system, found in values.items() for i, value in enumerate(found)]
    return pd.DataFrame(rows, columns=["query_id", "system", "ndcg@10"])


def runs() -> pd.DataFrame:
    rows = [
        (system, query, document, rank)
        for system, order in (("zero_shot", "bcdef"), ("hybrid", "abcde"), ("bm25", "fedcb"))
        for query in ("q1", "q2", "q3")
        for rank, document in reversed(list(enumerate(order, start=1)))
    ]
    return pd.DataFrame(rows, columns=["system", "query_id", "document_id", "rank"])


def test_before_is_zero_shot_and_after_what_is_deployed():
    first, second, third = held_out(scores(), runs(), QRELS, PLACES, RESULTS)
    assert (first["query_id"], first["before"], first["after"]) == ("q1", 0.2, 1.0)
    assert first["tops"] == {
        "zero-shot": [(1, False), (2, False), (3, False)],
        "hybrid": [(0, True), (1, False), (2, False)],
    }
    assert second["tops"]["zero-shot"][0] == (1, True)
    assert [relevant for _, relevant in third["tops"]["hybrid"]] == [False, False, True], "0 is not relevant"


def test_without_zero_shot_bm25_stands_before_and_one_system_is_no_comparison():
    lacking = RESULTS[RESULTS.recipe != "zero_shot"]
    assert set(held_out(scores(), runs(), QRELS, PLACES, lacking)[0]["tops"]) == {"BM25", "hybrid"}
    assert held_out(scores(), runs(), QRELS, PLACES, RESULTS[:1]) == []
    assert held_out(scores().rename(columns={"ndcg@10": "ndcg@5"}), runs(), QRELS, PLACES, RESULTS) == []


def shown(buckets: pd.DataFrame) -> dict | None:
    queries = held_out(scores(), runs(), QRELS, PLACES, RESULTS)
    return before_after(queries, buckets, {"q1": "first?"}, CORPUS, QRELS)


def test_groups_tell_what_rose_and_what_fell():
    found = shown(pd.DataFrame({"query_id": ["q1", "q2", "q3"], "bucket": "unseen"}))
    assert found["sentence"] == (
        "Of 3 held-out queries whose documents training never saw, 1 rose from zero-shot to hybrid, 1 fell and 1 "
        "stayed, by nDCG@10."
    )
    assert [(group["title"], [query["id"] for query in group["queries"]]) for group in found["groups"]] == [
        ("Rose most", ["q1"]), ("Fell most", ["q2"]),
    ]  # fmt: skip
    (query,) = found["groups"][0]["queries"]
    assert (query["query"], query["before"], query["after"]) == ("first?", "0.20", "1.00")
    assert [document["relevant"] for document in query["systems"][1]["documents"]] == [True, False, False]


def test_only_unseen_documents_count_where_there_are_some():
    found = shown(pd.DataFrame({"query_id": ["q1", "q2", "q3"], "bucket": ["seen", "unseen", "unseen"]}))
    assert [group["title"] for group in found["groups"]] == ["Fell most"]
    assert shown(pd.DataFrame({"query_id": ["q1", "q2", "q3"], "bucket": ["seen", "seen", "added"]})) is None


def test_what_neither_found_is_told():
    qrels = QRELS.assign(document_id=["f", "b", "c", "d"])
    queries = held_out(scores(), runs(), qrels, PLACES, RESULTS)
    found = before_after(queries, pd.DataFrame(), {}, CORPUS, qrels)
    assert found["groups"][0]["queries"][0]["missed"]["id"] == "f"
    assert found["groups"][1]["queries"][0]["missed"] is None
