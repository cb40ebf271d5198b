"""These nodes encode the collection and retrieve candidates from all sources."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import pandas as pd

from anmi.candidates import CandidateShards
from anmi.corpus.related import documents_of, first_passages
from anmi.corpus.texts import document_texts, joined_texts
from anmi.engine import IN_PROCESS, EngineParams, make_blocks, map_shards
from anmi.files import room
from anmi.pipelines.params import BM25Params, DenseParams, SearchParams
from anmi.ragged import Float32s, Int32s, Int64s
from anmi.retrieval import encoders, exact
from anmi.retrieval.bm25 import BM25Index
from anmi.retrieval.encoders import Encoder
from anmi.retrieval.index import DenseIndex
from anmi.retrieval.kinds import device, is_static, prompts_of
from anmi.retrieval.pool import RelatedDocuments
from anmi.selection.recipe import RecipeBook
from anmi.store import Store

log: Final = logging.getLogger(__name__)
# Cells of positives to a query of a shard: one with thousands of them shares its shard with few
# others.
_POSITIVES: Final = 64


def make_corpus_encoder(
    *,
    corpus: pd.DataFrame,
    new_documents: pd.DataFrame,
    encoder: str,
    params: DenseParams,
    search: SearchParams,
    seed: int,
    store: Store,
) -> Path:
    """Make the corpus's own encoder, of all but new documents; an empty folder where none is used."""
    folder = Path(tempfile.mkdtemp(dir=room("anmi-models-")))
    if encoders.OF_CORPUS in (encoder, params.encoder, *search.parts):
        old = corpus[~corpus.document_id.isin(new_documents.document_id)]
        encoders.save_corpus_encoder(joined_texts(old), folder, seed, store, params.device)
    return folder


def encode_collection(
    *,
    corpus: pd.DataFrame,
    queries: pd.DataFrame,
    corpus_encoder: Path,
    encoder: str,
    recipe: str,
    recipes: RecipeBook,
    params: DenseParams,
    store: Store,
    engine: EngineParams = IN_PROCESS,
) -> dict[str, Any]:
    """Encode documents and the queries to be mined; what the store holds is not computed again.

    Where the recipe reads nothing of an encoder there are no vectors, float32 [N, 0].
    """
    params = recipes.get(recipe).settings("dense", params)
    name = encoders.place_of(params.encoder or encoder, corpus_encoder)
    opened = Encoder(params.of(name), store.path / "models", store)
    # Other processes are asked neither for a table look-up, nor where one process has the GPU.
    if engine.ray_gpus or not (is_static(opened.model) or device(params.device) != "cpu"):
        opened.run = partial(map_shards, engine)
    is_read = "dense" in recipes.get(recipe).sources
    if not is_read:
        log.info("Recipe %s reads nothing of an encoder; nothing is encoded", recipe)

    def vectors(texts: list[str], role: Literal["query", "document"]) -> Float32s:
        if not is_read:
            return np.zeros((len(texts), 0), np.float32)
        plural = "queries" if role == "query" else "documents"
        return opened.encode(texts, role, f"encoding {plural}")

    info = {
        "encoder": params.encoder or encoder,
        "fingerprint": opened.fingerprint,
        "prompts": prompts_of(opened.model),
    }
    return {
        "document_embeddings": vectors(document_texts(corpus), "document"),
        "query_embeddings": vectors(
            queries.text[queries.split.isin(recipes.get(recipe).splits)].tolist(), "query"
        ),
        "encoder_info": info | {"computed_by": opened.precision},
    }


def build_dense_index(
    corpus: pd.DataFrame,
    embeddings: Float32s,
    encoder_info: dict[str, Any],
    params: DenseParams,
) -> DenseIndex:
    """Index the document vectors; an index without dimensions where there are none."""
    kind = params.index if embeddings.shape[1] else "flat"
    return DenseIndex.build(
        embeddings, corpus.document_id.tolist(), kind, encoder_info["fingerprint"]
    )


def retrieve(
    *,
    bm25_index: BM25Index,
    dense_index: DenseIndex,
    document_embeddings: Float32s,
    query_embeddings: Float32s,
    corpus: pd.DataFrame,
    queries: pd.DataFrame,
    qrels: pd.DataFrame,
    related_documents: pd.DataFrame,
    recipe: str,
    recipes: RecipeBook,
    bm25: BM25Params,
    dense: DenseParams,
    seed: int,
    engine: EngineParams = IN_PROCESS,
    marks: pd.DataFrame | None = None,
    split: str = "train",
) -> CandidateShards:
    """Retrieve candidates by the sources that the recipe reads, in one pass over each query's scores.

    Every candidate gets the scores of all of them, its ranks as deep as they were searched or the
    recipe reads, whether it is a near-duplicate or a sibling of a positive, and, where there are
    such marks, whether it was marked as not relevant.
    """
    from anmi.retrieval import pool
    from anmi.retrieval.retrieve import Queries, Retrieve, marked

    asked = recipes.get(recipe)
    bm25 = asked.settings("bm25", bm25)
    dense = asked.settings("dense", dense)
    ids = corpus.document_id.tolist()
    encoded = queries[queries.split.isin(asked.splits)]
    labelled = qrels.query_id[qrels.document_id.isin(ids)]
    rows = np.flatnonzero((encoded.split == split) & encoded.query_id.isin(labelled))
    position = dict(zip(ids, range(len(ids)), strict=True))
    asking = encoded.iloc[rows]
    positives = pool.Positives(qrels, position)
    own = pool.own_documents(asking, position)
    names = asking.query_id.tolist()
    texts = asking.text.tolist()
    vectors_of_queries = _scaled(np.asarray(query_embeddings), dense_index)
    shards = [
        Queries(
            names[some],
            texts[some],
            positives.of(names[some]),
            own[some],
            vectors_of_queries[rows[some]],
        )
        for some in _shards(positives.counts(names), bm25.shard)
    ]
    vectors = document_embeddings if dense_index.exact is None else dense_index.exact
    search = Retrieve(
        bm25=bm25_index if "bm25" in asked.sources else None,
        vectors=vectors if "dense" in asked.sources else None,
        approximate=dense_index if "dense" in asked.sources and dense_index.exact is None else None,
        related=RelatedDocuments.from_table(related_documents, ids),
        bm25_depth=bm25.depth,
        dense_depth=dense.depth,
        random=dense.random,
        seed=seed,
        bm25_ranks=asked.deepest_rank("bm25_rank"),
        dense_ranks=asked.deepest_rank("dense_rank"),
        measured=dense.positives,
        longest=dense_index.longest,
        passages=cut_from(corpus),
    )
    found = make_blocks(engine, search, shards, description="retrieving", total=len(rows))
    if marks is None or (refuted := marks[marks["relevance"] == 0]).empty:
        return found
    return found.map(partial(marked, refuted=pool.Positives(refuted.assign(relevance=1), position)))


def cut_from(corpus: pd.DataFrame) -> Int32s | None:
    """Return the number of the document that each passage was cut from, -1 of whole ones."""
    if "start" not in corpus:
        return None
    return np.where(corpus["start"] >= 0, first_passages(documents_of(corpus)), np.int32(-1))


def retrieve_dev(**inputs: Any) -> CandidateShards:
    """Retrieve candidates for dev queries, none unless a step is fitted on them; nothing of them is ever trained on."""
    wanted = "dev" in inputs["recipes"].get(inputs["recipe"]).splits
    return retrieve(**inputs, split="dev") if wanted else CandidateShards.of([])


def _scaled(queries: Float32s, index: DenseIndex) -> Float32s:
    """Return queries whose inner products rank as the encoder's do and are of the size of cosines.

    Of documents of several lengths each query's are divided by its length and the documents' mean
    one, so that margins and ceilings of recipes, and what judges make of a closeness, keep their
    meaning.
    """
    mean_length = index.settings.get("mean_length")
    if mean_length is None:
        return queries
    scale = np.maximum(exact.lengths(queries), np.float32(1e-12)) * np.float32(mean_length)
    return queries / scale[:, None]


def _shards(counts: Int64s, size: int) -> Iterator[slice]:
    """Cut queries into shards of at most so many, and of fewer where one has many positives."""
    start = 0
    widest = 1
    for place, count in enumerate(counts.tolist()):
        widest = max(widest, count)
        if place - start == size or (
            place > start and (place - start + 1) * widest > size * _POSITIVES
        ):
            yield slice(start, place)
            start = place
            widest = max(count, 1)
    if len(counts):
        yield slice(start, len(counts))
