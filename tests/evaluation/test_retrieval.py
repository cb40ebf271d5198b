"""Runs without the query itself, and the dev metric on them."""

import numpy as np
import pandas as pd
import pytest

from anmi.evaluation.retrieval import DevQueries, Ranking, dev_collection
from anmi.retrieval.fusion import Ranked
from anmi.retrieval.kinds import EncoderSettings

IDS = [f"d{i}" for i in range(20)]


def queries(**same_as: str) -> pd.DataFrame:
    return pd.DataFrame({"query_id": list(same_as), "same_as": list(same_as.values())})


def labels(*pairs: tuple[str, str]) -> pd.DataFrame:
    return pd.DataFrame(pairs, columns=["query_id", "document_id"]).assign(relevance=1)


def exact(ranking: Ranking, count: int) -> pd.DataFrame:
    """The run of a search that ranks all documents in the order of the corpus."""
    documents = np.tile(np.arange(count, dtype=np.int32), (len(ranking.query_ids), 1))
    scores = -documents.astype(np.float32)
    return ranking.run(lambda depth: Ranked(documents[:, :depth], scores[:, :depth]))


def test_a_query_does_not_find_itself_and_the_depth_is_kept() -> None:
    # d0 is a document; d1 has only its id from one; d2 is labelled relevant to itself; q has the
    # text of d3.
    asked = queries(d0="d0", d1="", d2="d2", q="d3")
    qrels = labels(("d0", "d4"), ("d2", "d2"), ("q", "d5"))
    ranking = Ranking.of(asked, qrels, pd.DataFrame({"document_id": IDS}), depth=10)
    found = exact(ranking, 20).groupby("query_id", sort=False)
    others = dict.fromkeys(["d1", "d2", "q"], IDS[:10])
    assert found.document_id.agg(list).to_dict() == {"d0": IDS[1:11]} | others
    assert found["rank"].agg(list).tolist() == [list(range(1, 11))] * 4


def test_a_query_that_has_copies_is_a_result_where_one_of_them_is_relevant() -> None:
    # d1 is a copy of d0, and d3 of d2; d0 and d3 are queries, of which d0 has a relevant copy.
    corpus = pd.DataFrame({"document_id": IDS[:5], "copy_of": ["d0", "d0", "d2", "d2", "d4"]})
    asked = queries(d0="d0", d3="d3")
    ranking = Ranking.of(asked, labels(("d0", "d1"), ("d3", "d4")), corpus, depth=5)
    measured = exact(ranking, 5)
    given = ranking.of_documents(measured[["query_id", "document_id", "score"]], corpus)
    for run in (measured, given):
        found = run.groupby("query_id").document_id.agg(list).to_dict()
        assert found == {"d0": ["d0", "d2", "d4"], "d3": ["d0", "d4"]}


@pytest.mark.parametrize(
    ("same_as", "rank"), [("x", 10), ("", 11)], ids=["the query itself", "an id that coincides"]
)
def test_the_dev_metric_leaves_out_the_query_itself_and_nothing_else(word_encoder, same_as, rank):
    # Ten documents with the query's very words stand before the relevant one, the first under the
    # query's id.
    corpus = pd.DataFrame({"document_id": ["x", *(f"y{i}" for i in range(9)), "own"], "title": ""})
    corpus["text"] = ["fox"] * 10 + ["fox owl"]
    asked = pd.DataFrame(
        {"query_id": ["x"], "text": ["fox"], "split": ["dev"], "same_as": [same_as]}
    )
    collection = dev_collection(corpus, asked, labels(("x", "own")), 100, 1)
    dev = DevQueries(*collection, EncoderSettings(precision="float32"))
    expected = 1 / np.log2(1 + rank) if rank <= 10 else 0
    assert dev.scores(word_encoder(["fox", "owl"])) == pytest.approx([expected])
    fox, owl = word_encoder(["fox", "owl"])[0].embedding.weight[1:].detach().numpy()
    near = fox @ (fox + owl) / np.linalg.norm(fox) / np.linalg.norm(fox + owl)
    others = 9 if same_as else 10
    loss = np.log(np.exp(near / 0.5) + others * np.exp(1 / 0.5)) - near / 0.5
    assert dev.losses(word_encoder(["fox", "owl"]), 0.5) == pytest.approx([loss])
