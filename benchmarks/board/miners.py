"""Miners of others and ours behind one function: from a task to ``query_id, rank, document_id``."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from protocol import NEGATIVES, SEED, Task

from anmi.corpus.texts import document_texts
from anmi.retrieval.encoders import Encoder, load_encoder
from anmi.retrieval.exact import best
from common import MODELS, kedro, table

# What the shipped coefficients of our judge must not have seen.
WITHOUT: Final = {"kg_webnlg": "kg_webnlg/beir_en"}
DEPTH: Final = 300


def by_dense(
    task: Task, choose: Callable[[NDArray[Any], NDArray[Any], NDArray[Any]], NDArray[Any]]
) -> pd.DataFrame:
    """Let a rule choose from the nearest documents that are not known positives.

    ``choose`` gets their cosines [Q, M], best first, which of them there are [Q, M], and the cosine
    of each query's least similar known positive [Q, 1]; it returns which are negatives, [Q, M].
    """
    model = load_encoder("static", MODELS)
    documents = Encoder.of(model).encode(document_texts(task.corpus), "document")
    cosines = Encoder.of(model).encode(task.queries.text.tolist(), "query") @ documents.T
    row = task.known.query_id.map(
        dict(zip(task.queries.query_id, range(len(task.queries)), strict=True))
    )
    place = task.known.document_id.map(
        dict(zip(task.corpus.document_id, range(len(task.corpus)), strict=True))
    )
    own = (
        pd.Series(cosines[row, place])
        .groupby(row)
        .min()
        .reindex(range(len(cosines)))
        .to_numpy()[:, None]
    )
    cosines[row, place] = -np.inf
    found, values = best(cosines, min(DEPTH, cosines.shape[1]))
    taken = choose(values, np.isfinite(values), own)
    taken &= np.cumsum(taken, axis=1) <= NEGATIVES
    query, slot = np.nonzero(taken)
    return numbered(
        task.queries.query_id.to_numpy()[query],
        task.corpus.document_id.to_numpy()[found[query, slot]],
    )


def numbered(queries: Any, documents: Any) -> pd.DataFrame:
    """Return ``query_id, rank, document_id`` of pairs, best first in every query."""
    pairs = pd.DataFrame({"query_id": queries, "document_id": documents})
    return pairs.assign(rank=pairs.groupby("query_id").cumcount() + 1)


def drawn_from(first: int, last: int, there: NDArray[Any]) -> NDArray[Any]:
    """Return a random choice of :data:`NEGATIVES` among the ranks from ``first`` to ``last``, counted from 0."""
    ranks = np.arange(there.shape[1])
    keys = np.random.default_rng(SEED).random(there.shape)
    keys[~there | (ranks < first) | (ranks >= last)] = np.inf
    least = np.sort(keys, axis=1)[:, NEGATIVES - 1 : NEGATIVES]
    return np.isfinite(keys) & (keys <= least)


def by_sentence_transformers(task: Task) -> pd.DataFrame:
    """Mine with ``sentence_transformers.util.mine_hard_negatives``, relative margin .05 among the first 100."""
    from datasets import Dataset
    from sentence_transformers.util import mine_hard_negatives

    texts = document_texts(task.corpus)
    by_text = dict(zip(reversed(texts), reversed(task.corpus.document_id.tolist()), strict=True))
    of = dict(zip(task.corpus.document_id, texts, strict=True))
    asked = dict(zip(task.queries.query_id, task.queries.text, strict=True))
    data = Dataset.from_dict(
        {
            "anchor": [asked[query] for query in task.known.query_id],
            "positive": [of[document] for document in task.known.document_id],
        }
    )
    mined = mine_hard_negatives(
        data,
        load_encoder("static", MODELS),
        corpus=texts,
        relative_margin=0.05,
        range_max=100,
        num_negatives=NEGATIVES,
        output_format="n-tuple",
        verbose=False,
    )
    name = dict(zip(task.queries.text, task.queries.query_id, strict=True))
    columns = [f"negative_{i}" for i in range(1, NEGATIVES + 1)]
    chosen: dict[str, list[str]] = {
        name[row["anchor"]]: [by_text[row[column]] for column in columns] for row in mined
    }
    pairs = [
        (query, document) for query, found in chosen.items() for document in dict.fromkeys(found)
    ]
    return numbered(*zip(*pairs, strict=True))


def by_anmi(task: Task, recipe: str) -> pd.DataFrame:
    """Mine with ANMI as a user does: a folder in, training rows out."""
    with tempfile.TemporaryDirectory() as scratch:
        task.write(Path(scratch) / "collection")
        given = f"collection=beir:{scratch}/collection,recipe={recipe},denoising.fused.without="
        # All queries are of training: none is cut off for dev or test.
        given += f"{WITHOUT.get(task.name, task.name)},ingestion.dev_share=1e-9,ingestion.test_share=1e-9"
        data = Path(scratch) / "data"
        kedro(
            "run",
            "--pipelines",
            "mining",
            "--params",
            given,
            data=data,
            store=Path(scratch) / "store",
        )
        rows = table(data, "training_rows")
    chosen = rows.drop_duplicates("query_id")
    pairs = [
        (q, d)
        for q, found in zip(chosen.query_id, chosen.negative_ids, strict=True)
        for d in found[:NEGATIVES]
    ]
    return numbered(*zip(*pairs, strict=True))


MINERS: Final[dict[str, Callable[[Task], pd.DataFrame]]] = {
    "random": partial(by_dense, choose=lambda cosines, there, own: drawn_from(0, DEPTH, there)),
    "naive_top": partial(by_dense, choose=lambda cosines, there, own: there),
    "sentence-transformers, relative margin .05": by_sentence_transformers,
    "FlagEmbedding, ranks 10 to 210": partial(
        by_dense, choose=lambda cosines, there, own: drawn_from(10, 210, there)
    ),
    "NeMo, 95 % of the positive": partial(
        by_dense, choose=lambda cosines, there, own: there & (cosines < 0.95 * own)
    ),
    "ANMI, clean_top": partial(by_anmi, recipe="clean_top"),
    "ANMI, anmi_labels_only": partial(by_anmi, recipe="anmi_labels_only"),
}
