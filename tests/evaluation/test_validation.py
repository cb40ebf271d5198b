"""The validation loss against the formula, written down slowly."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import logsumexp

from anmi.evaluation import validation
from anmi.evaluation.retrieval import dev_metric, dev_pool
from anmi.evaluation.validation import dev_loss, mean_loss
from anmi.retrieval.related import RelatedDocuments


def slow(
    queries: NDArray[np.float32],
    documents: NDArray[np.float32],
    own: list[list[int]],
    masked: NDArray[np.bool_],
    temperature: float,
) -> float:
    """Query by query, own document by own document, in double precision."""
    losses = []
    for i, mine in enumerate(own):
        logits = documents.astype(np.float64) @ queries[i].astype(np.float64) / temperature
        negatives = [logits[j] for j in range(len(documents)) if not masked[i, j] and j not in mine]
        losses.append(np.mean([logsumexp([logits[j], *negatives]) - logits[j] for j in mine]))
    return float(np.mean(losses))


def unit(rng: np.random.Generator, count: int, width: int = 4) -> NDArray[np.float32]:
    vectors = rng.normal(size=(count, width))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


@given(st.integers(0, 10_000), st.sampled_from([0.01, 0.05, 1.0]), st.sampled_from([1, 7, 1 << 22]))
def test_the_loss_is_that_of_the_formula_whatever_the_block(seed: int, temperature: float, block: int) -> None:
    rng = np.random.default_rng(seed)
    queries, documents = unit(rng, 6), unit(rng, 9)
    own = [sorted(rng.choice(9, rng.integers(1, 4), replace=False).tolist()) for _ in range(6)]
    masked = rng.random((6, 9)) < 0.3
    for i, mine in enumerate(own):
        masked[i, mine] = True
    query = np.repeat(np.arange(6), [len(mine) for mine in own])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(validation, "_MOST_VALUES", block)
        found = mean_loss(queries, documents, query, np.concatenate(own), sparse.csr_array(masked), temperature)
        terms = [sparse.csr_matrix(vectors) for vectors in (queries, documents)]
        of_terms = mean_loss(*terms, query, np.concatenate(own), sparse.csr_array(masked), temperature)
    assert found == pytest.approx(slow(queries, documents, own, masked, temperature), rel=1e-4, abs=1e-5)
    assert of_terms == pytest.approx(found, rel=1e-4, abs=1e-5)


def test_a_query_without_negatives_has_no_loss() -> None:
    vectors, own = np.eye(2, dtype=np.float32), np.arange(2)
    assert mean_loss(vectors, vectors, own, own, sparse.csr_array(np.ones((2, 2), bool)), 0.05) == 0


def test_a_model_that_tells_nothing_apart_pays_for_every_document() -> None:
    same, own = np.ones((5, 1), np.float32), np.arange(5)
    assert mean_loss(same, same, own, own, sparse.csr_array(np.eye(5, dtype=bool)), 0.05) == pytest.approx(math.log(5))


WORDS = [f"w{i}" for i in range(30)]


@pytest.fixture
def encoder(word_encoder: Any) -> Any:
    return partial(word_encoder, WORDS)


def collection(documents: int = 40, dev: int = 6) -> dict[str, pd.DataFrame]:
    rng = np.random.default_rng(1)
    texts = [" ".join(rng.choice(WORDS, 4)) for _ in range(documents + dev)]
    ids = [f"d{i}" for i in range(documents)]
    queries = [f"q{i}" for i in range(dev)]
    return {
        "corpus": pd.DataFrame({"document_id": ids, "title": "", "text": texts[:documents]}),
        "queries": pd.DataFrame(
            {
                "query_id": ["t", *queries, "no label"],
                "text": ["w1", *texts[documents:], "w2"],
                "split": ["train"] + ["dev"] * (dev + 1),
            }
        ),
        "qrels": pd.DataFrame(
            {"query_id": ["t", *queries, "q0"], "document_id": ["d1", *ids[-dev:], "d3"], "relevance": 1}
        ),
    }


def test_the_whole_way_from_texts_to_the_loss(encoder: Any) -> None:
    given, model = collection(), encoder()
    texts = given["corpus"].text.tolist()
    asked = given["queries"].text.tolist()[1:7]
    queries, documents = (model.encode(part, normalize_embeddings=True) for part in (asked, texts))
    own = [[34, 3], [35], [36], [37], [38], [39]]
    masked = np.zeros((6, 40), bool)
    measure = dev_loss(**given, barred=None, most_documents=100, precision="float32", seed=1)
    assert measure is not None
    assert measure(model) == pytest.approx(slow(queries, documents, own, masked, 0.05), rel=1e-4)
    masked[1, [0, 5, 9]] = True
    asked_for: list[Any] = []

    def barred(positives: NDArray[np.int32]) -> sparse.csr_array:
        asked_for.append(positives.tolist())
        return sparse.csr_array(masked)

    measure = dev_loss(**given, barred=barred, most_documents=100, precision="float32", seed=1)
    assert measure is not None
    assert measure(model) == pytest.approx(slow(queries, documents, own, masked, 0.05), rel=1e-4)
    assert asked_for == [[[34, 3], [35, -1], [36, -1], [37, -1], [38, -1], [39, -1]]], "asked once, not in every call"


def test_what_is_barred_is_by_number_in_the_corpus_also_in_a_sample(encoder: Any) -> None:
    given, model = collection(), encoder()
    wrong = np.ones((6, 40), bool)
    measure = dev_loss(
        **given, barred=lambda _: sparse.csr_array(wrong), most_documents=12, precision="float32", seed=1
    )
    assert measure is not None
    assert measure(model) == 0
    # All but the first document are barred: whether it is in the sample decides.
    wrong[:, 0] = False
    for seed in range(4):
        pool = dev_pool(*given.values(), 12, seed)
        measure = dev_loss(
            **given, barred=lambda _: sparse.csr_array(wrong), most_documents=12, precision="float32", seed=seed
        )
        assert pool is not None
        assert measure is not None
        assert (measure(model) > 0) == ("d0" in set(pool.documents.document_id))


def test_a_copy_of_a_positive_and_the_query_itself_are_no_negatives(encoder: Any) -> None:
    given, model = collection(), encoder()
    texts, asked = given["corpus"].text.tolist(), given["queries"].text.tolist()[1:7]
    queries, documents = (model.encode(part, normalize_embeddings=True) for part in (asked, texts))
    # d0 is a copy of the positive of q1, d2 much like it, and q2 is document d7, of which d8 is a copy.
    pairs = [("d35", "d0", "copy"), ("d8", "d7", "copy"), ("d0", "d2", "near")]
    table = pd.DataFrame(pairs, columns=["document_id", "other_id", "kind"])
    given["queries"]["same_as"] = ["", "", "", "d7", "", "", "", ""]
    related = RelatedDocuments.from_table(table, given["corpus"].document_id.tolist())
    masked = np.zeros((6, 40), bool)
    masked[1, [0, 2]] = masked[2, [7, 8]] = True
    own = [[34, 3], [35], [36], [37], [38], [39]]
    measure = dev_loss(**given, barred=None, most_documents=100, precision="float32", seed=1, related=related)
    assert measure is not None
    assert measure(model) == pytest.approx(slow(queries, documents, own, masked, 0.05), rel=1e-4)


def test_the_pool_has_the_positives_and_as_many_as_asked_for() -> None:
    given = collection()
    pool = dev_pool(*given.values(), 12, 1)
    assert pool is not None
    assert len(pool.documents) == 12
    assert {"d3", *(f"d{i}" for i in range(34, 40))} <= set(pool.documents.document_id)
    assert pool.documents.index.is_monotonic_increasing
    few = dev_pool(*given.values(), 2, 1, most_queries=2)
    assert few is not None
    assert len(few.queries) == 2
    assert set(few.documents.document_id) == set(few.truth.document_id), "positives are never cut"


def test_the_loss_falls_and_the_metric_rises_when_the_texts_are_alike(encoder: Any) -> None:
    given, model = collection(), encoder()
    same = dict(zip(given["qrels"].query_id, given["qrels"].document_id, strict=True))
    text = given["corpus"].set_index("document_id").text
    asked = given["queries"].assign(text=[text.get(same.get(q), "w0") for q in given["queries"].query_id])
    options = {"most_documents": 100, "precision": "float32", "seed": 1}
    losses, metrics = [], []
    for queries in (given["queries"], asked):
        loss = dev_loss(given["corpus"], queries, given["qrels"], None, **options)
        metric = dev_metric(given["corpus"], queries, given["qrels"], **options)
        assert loss is not None
        assert metric is not None
        losses.append(loss(model))
        metrics.append(metric(model))
    assert losses[1] < losses[0]
    assert metrics[1] > metrics[0]


def test_without_dev_queries_there_is_none() -> None:
    given = collection()
    given["queries"]["split"] = "train"
    assert dev_loss(**given, barred=None, most_documents=9, precision="auto", seed=1) is None
