"""The search that needs no training scores candidates, and the encoder learns its scores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.pipelines.tables import frame
from tests.pipelines.test_training import (
    BOOK,
    CORPUS,
    NEW,
    QRELS,
    QUERIES,
    WORDS,
    prepare_and_train,
    pseudo_queries,
)
from tests.pipelines.test_training import rows as mined_rows

from anmi.pipelines.params import DenseParams, SearchParams
from anmi.pipelines.training.nodes import score_candidates
from anmi.pipelines.training.params import TrainingParams
from anmi.retrieval.bm25 import BM25Index
from anmi.retrieval.encoders import Encoder
from anmi.retrieval.index import build_index
from anmi.retrieval.pool import RelatedDocuments
from anmi.search.hybrid import best_candidates
from anmi.search.parts import Part
from anmi.store import Store
from anmi.training.batch import assemble, read_rows
from anmi.training.sampling import FirstNegatives, PseudoRows, WithCandidates, WithPseudoQueries

TEACHER = {"kinds": ["title"], "batch_size": 4, "candidates": 3}
OPTIONS = {
    "epochs": 4,
    "batch_size": 8,
    "learning_rate": 0.05,
    "pseudo_queries": TEACHER,
    "loss": {"distillation": {"column": "teacher", "share": 1.0}},
}
RELATED = frame(
    "document_id other_id kind", ("d1", "d0", "copy"), ("d3", "d2", "near"), ("d5", "d4", "sibling")
)
TEXTS = [f"w{i} w{i % 3} w{i % 4} w{i % 5}" for i in range(10)]
WEIGHTS = {"bm25": 0.4, "network": 0.6}


@pytest.fixture(scope="module")
def parts(word_encoder: Any) -> list[Part]:
    encoder = Encoder.of(word_encoder(WORDS))
    ids = [f"d{i}" for i in range(len(TEXTS))]
    index = build_index(encoder.encode(TEXTS, "document"), ids)
    network = Part("network", index, encoder, spread=0.3)
    network.encode = lambda texts: encoder.encode(texts, "query")  # no folder to be checked
    return [Part("bm25", BM25Index.build(TEXTS, "en")), network]


def listed(scores: Any, depth: int, *, by_terms: bool) -> dict[int, float]:
    """The scores of all documents in a list of so many; those that it lacks count as the last."""
    order = sorted(range(len(scores)), key=lambda document: (-scores[document], document))
    best = [document for document in order[:depth] if not by_terms or scores[document] > 0]
    last = 0.0 if by_terms and len(best) < depth else min(scores[document] for document in best)
    return {
        document: scores[document] if document in best else last for document in range(len(scores))
    }


@given(
    positive=st.integers(0, 9),
    words=st.lists(st.integers(0, 12), min_size=1, max_size=4),
    depth=st.integers(1, 12),
    unusable=st.sets(st.integers(0, 9)),
)
def test_the_teacher_is_the_fused_score(
    parts: list[Part], positive: int, words: list[int], depth: int, unusable: set[int]
) -> None:
    query = " ".join(f"w{word}" for word in words)
    related = RelatedDocuments.from_table(RELATED, [f"d{i}" for i in range(10)])
    usable = np.array([document not in unusable for document in range(10)])
    own_document = np.array([positive], np.int32)
    taught = best_candidates(
        parts,
        WEIGHTS,
        [query],
        own_document,
        excluded=related.excluded(own_document[:, None]),
        usable=usable,
        depth=depth,
        count=20,
    )

    bm25 = next(parts[0].index.scored([query], 10))[1][0].astype(float).copy()
    vectors = parts[1].index.vectors()
    near = (vectors @ parts[1].encode([query])[0]).astype(float)
    by_bm25 = listed(bm25, min(depth, 10), by_terms=True)
    by_network = listed(near, min(depth, 10), by_terms=False)
    spread = bm25.std()
    scaled = {i: by_bm25[i] / spread if spread else 0.0 for i in range(10)}
    kin = {0: {0, 1}, 1: {0, 1}, 2: {2, 3}, 3: {2, 3}, 4: {4, 5}, 5: {4, 5}}.get(
        positive, {positive}
    )
    in_lists = {i for i in range(10) if i in np.argsort(-near, kind="stable")[:depth]}
    in_lists |= {i for i in np.argsort(-bm25, kind="stable")[:depth] if bm25[i] > 0}
    candidates = in_lists - kin - unusable
    fused = {i: 0.4 * scaled[i] + 0.6 * by_network[i] / 0.3 for i in candidates}
    assert set(taught.documents[0, 1:].tolist()) - {-1} == candidates
    kept = [i for i in taught.documents[0, 1:].tolist() if i != -1]
    assert taught.scores[0, 1:][: len(kept)] == pytest.approx([fused[i] for i in kept], abs=1e-4)
    assert (np.diff(taught.scores[0, 1:][: len(kept)]) <= 0).all()
    capped = min(scaled[positive], max((scaled[i] for i in candidates), default=0.0))
    own = 0.4 * capped + 0.6 * by_network[positive] / 0.3
    assert taught.scores[0, 0] == pytest.approx(max([own, *fused.values()]), abs=1e-4)


@pytest.fixture
def scored(word_encoder: Any, tmp_path: Path) -> Any:
    """What is scored by BM25 and the encoder before training, and a function that trains on it."""
    word_encoder(WORDS).save(str(tmp_path / "base"), create_model_card=False)
    (tmp_path / "none").mkdir()
    store = Store(tmp_path / "store")
    shared = {
        "pseudo_queries": pseudo_queries(),
        "corpus": CORPUS,
        "related_documents": RELATED,
        "new_documents": NEW,
        "corpus_encoder": tmp_path / "none",
        "encoder": str(tmp_path / "base"),
        "recipe": "mine",
        "recipes": BOOK,
        "dense": DenseParams(precision="float32"),
        "store": store,
    }
    texts = (CORPUS.title + " " + CORPUS.text + " w1 w2").tolist()
    table = score_candidates(
        **shared,
        qrels=QRELS,
        training_rows=mined_rows(),
        bm25_index=BM25Index.build(texts, "en"),
        training=TrainingParams(options=OPTIONS),
        search=SearchParams(parts="bm25+trained", depth=10),
    )

    second = QRELS[:12].assign(document_id="d19")
    positive_ids = [[name, "d19"] for name in mined_rows().positive_id]

    def train(**changes: Any) -> dict[str, Any]:
        return prepare_and_train(
            tmp_path / "data",
            **shared,
            training_rows=mined_rows().assign(positive_ids=positive_ids),
            queries=QUERIES,
            qrels=pd.concat([QRELS, second]),
            knowledge=None,
            variants=pd.DataFrame(),
            scored_candidates=table,
            training=TrainingParams(options=OPTIONS | changes),
            seed=1,
        )

    yield table, train
    store.close()


def test_candidates_are_neither_new_nor_related_nor_copies_and_the_encoder_learns_them(
    scored: Any,
) -> None:
    table, train = scored
    is_pseudo = ~table.query_id.isin(QUERIES.query_id)
    assert (table[~is_pseudo].query_id.nunique(), table[is_pseudo].query_id.nunique()) == (12, 34)
    kin = {"d2": "d3", "d3": "d2", "d4": "d5", "d5": "d4", "d1": "d0"}
    for (_, name), rows in table.groupby(["query_id", "positive_id"]):
        positive, *candidates = rows.document_id
        assert positive == name and len(candidates) == 3
        assert not {name, kin.get(name), "d1", *NEW.document_id} & {*candidates}
        assert rows.score.iloc[0] == rows.score.max()
    of_epochs = train()["training_log"].groupby("epoch").divergence.mean()
    assert of_epochs.iloc[-1] < 0.7 * of_epochs.iloc[0]


def test_rows_keep_the_positive_that_was_scored(scored: Any) -> None:
    _, train = scored
    log = train(batch_size=1, epochs=1)["training_log"]
    assert len(log) == 12 + 9 and (log.divergence > 0).all()


def test_rows_have_the_scores_of_candidates_and_none_is_a_negative(scored: Any) -> None:
    table, _ = scored
    ids = CORPUS.document_id.tolist()
    texts = dict(zip(ids, CORPUS.title + " " + CORPUS.text, strict=True))
    related = RelatedDocuments.from_table(RELATED, ids)
    labelled = FirstNegatives(read_rows(mined_rows()), 2)
    pseudo = PseudoRows(pseudo_queries(), ["title"], related, ids)
    sampler = WithPseudoQueries(labelled, 12, pseudo, steps=9)
    rows = WithCandidates(sampler, table, texts)(np.array([7, 19, 20]), 0)
    batch = assemble(rows, "all")
    scores = table.set_index(["query_id", "positive_id"]).sort_index()
    for row, judged, weights in zip(rows, batch.judged["teacher"], batch.weights, strict=True):
        of_row = scores.loc[(row.query_id, row.positive_id)].set_index("document_id").score
        is_scored = ~np.isnan(judged)
        assert dict(zip(np.array(batch.ids)[is_scored], judged[is_scored], strict=True)) == {
            **of_row.astype(np.float32)
        }
        candidates = is_scored & ~np.isin(batch.ids, mined_rows().negative_ids[7])
        assert (weights[candidates] == 0).all() and candidates.sum() >= 3
