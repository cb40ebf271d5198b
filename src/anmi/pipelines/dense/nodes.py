"""These nodes encode the collection and retrieve candidates from all sources."""

from __future__ import annotations

import logging
import tempfile
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import pandas as pd

from anmi.candidates import CandidateShards
from anmi.corpus.related import documents_of, first_passages
from anmi.corpus.texts import among, document_texts, joined_texts
from anmi.engine import EngineParams, make_blocks, map_shards
from anmi.files import Linked, room
from anmi.pipelines.params import BM25Params, DenseParams, SearchParams
from anmi.ragged import Float32s, Int32s
from anmi.retrieval import encoders, exact
from anmi.retrieval.bm25 import BM25Index
from anmi.retrieval.encoders import Encoder
from anmi.retrieval.index import DenseIndex
from anmi.retrieval.kinds import device, is_static, prompts_of
from anmi.retrieval.pool import RelatedDocuments
from anmi.selection.recipe import RecipeBook
from anmi.store import Store

log: Final = logging.getLogger(__name__)


def make_corpus_encoder(
    *,
    corpus: pd.DataFrame,
    new_documents: pd.DataFrame,
    encoder: str,
    params: DenseParams,
    seed: int,
    store: Store,
) -> Path:
    """Make the corpus's own encoder, of all but new documents; an empty folder if none is used."""
    folder = Path(tempfile.mkdtemp(dir=room("anmi-models-")))
    if encoders.OF_CORPUS in (encoder, params.encoder):
        old = corpus[~among(corpus.document_id, new_documents.document_id)]
        encoders.save_corpus_encoder(joined_texts(old), folder, seed, store, params.device)
    return folder


def make_corpus_part(
    *,
    corpus: pd.DataFrame,
    new_documents: pd.DataFrame,
    corpus_encoder: Path,
    params: DenseParams,
    search: SearchParams,
    seed: int,
    store: Store,
) -> Path | Linked:
    """Return the corpus's own encoder for the search, made here if mining had no use for it.

    The folder is empty if it is no part of the search either.
    """
    if any(corpus_encoder.iterdir()):
        return Linked(corpus_encoder)
    return make_corpus_encoder(
        corpus=corpus,
        new_documents=new_documents,
        encoder=encoders.OF_CORPUS if encoders.OF_CORPUS in search.parts else "",
        params=params,
        seed=seed,
        store=store,
    )


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
    engine: EngineParams,
) -> dict[str, Any]:
    """Encode documents and the queries to be mined; what the store holds is not computed again.

    Where the recipe reads nothing of an encoder there are no vectors, float32 [N, 0].
    """
    chosen = recipes.get(recipe)
    params = chosen.settings("dense", params)
    name = params.encoder or encoder
    settings = params.of(encoders.place_of(name, corpus_encoder))
    opened = Encoder(settings, store.path / "models", store)
    if _is_shared(opened.model, engine, params.device):
        opened.run = partial(map_shards, engine)
    is_read = "dense" in chosen.sources
    if not is_read:
        log.info("Recipe %s reads nothing of an encoder; nothing is encoded", recipe)

    def vectors(texts: list[str], role: Literal["query", "document"], plural: str) -> Float32s:
        if not is_read:
            return np.zeros((len(texts), 0), np.float32)
        return opened.encode(texts, role, f"encoding {plural}")

    info = {
        "encoder": name,
        "fingerprint": opened.fingerprint,
        "prompts": prompts_of(opened.model),
    }
    query_texts = queries.text[queries.split.isin(chosen.splits)].tolist()
    return {
        "document_embeddings": vectors(document_texts(corpus), "document", "documents"),
        "query_embeddings": vectors(query_texts, "query", "queries"),
        "encoder_info": info | {"computed_by": opened.precision},
    }


def _is_shared(model: Any, engine: EngineParams, device_name: str | None) -> bool:
    """Return whether other processes are to encode, too."""
    if is_static(model):
        # Other machines may not have the table.
        return engine.kind == "local"
    # One process has the GPU.
    return engine.ray_gpus or device(device_name) == "cpu"


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
    engine: EngineParams,
    marks: pd.DataFrame,
    split: str = "train",
) -> CandidateShards:
    """Retrieve candidates by the sources that the recipe reads, in one pass over the scores.

    Every candidate gets the scores of all of them, its ranks as deep as they were searched or the
    recipe reads, whether it is a near-duplicate or a sibling of a positive, and, where there are
    such marks, whether it was marked as not relevant.
    """
    from anmi.retrieval.pool import Positives, own_documents
    from anmi.retrieval.retrieve import Retrieve, marked, query_shards

    chosen = recipes.get(recipe)
    bm25 = chosen.settings("bm25", bm25)
    dense = chosen.settings("dense", dense)
    ids = corpus.document_id.tolist()
    numbers = dict(zip(ids, range(len(ids)), strict=True))
    encoded = queries[queries.split.isin(chosen.splits)]
    labelled = qrels.query_id[among(qrels.document_id, corpus.document_id)]
    is_mined = (encoded.split == split) & among(encoded.query_id, labelled)
    vectors = _scaled(np.asarray(query_embeddings), dense_index)[is_mined.to_numpy()]
    mined = encoded[is_mined]
    shards = query_shards(
        mined.query_id.tolist(),
        mined.text.tolist(),
        Positives(qrels, numbers),
        own_documents(mined, numbers),
        vectors,
        bm25.shard,
    )
    reads_dense = "dense" in chosen.sources
    is_exact = dense_index.exact is not None
    documents = dense_index.exact if is_exact else document_embeddings
    rounded = exact.rounded_if_worth(dense_index.exact if reads_dense else None, len(mined))
    search = Retrieve(
        bm25=bm25_index if "bm25" in chosen.sources else None,
        vectors=documents if reads_dense else None,
        approximate=dense_index if reads_dense and not is_exact else None,
        related=RelatedDocuments.from_table(related_documents, ids),
        bm25_depth=bm25.depth,
        dense_depth=dense.depth,
        random=dense.random,
        seed=seed,
        bm25_ranks=chosen.deepest_rank("bm25_rank"),
        dense_ranks=chosen.deepest_rank("dense_rank"),
        measured=dense.positives,
        longest=dense_index.longest,
        rounded=rounded,
        passages=cut_from(corpus),
    )
    candidates = make_blocks(engine, search, shards, description="retrieving", total=len(mined))
    refuted = marks[marks["relevance"] == 0].assign(relevance=1)
    if refuted.empty:
        return candidates
    return candidates.map(partial(marked, refuted=Positives(refuted, numbers)))


def cut_from(corpus: pd.DataFrame) -> Int32s | None:
    """Return the number of the document that each passage was cut from, -1 of whole ones."""
    if "start" not in corpus:
        return None
    return np.where(corpus["start"] >= 0, first_passages(documents_of(corpus)), np.int32(-1))


def retrieve_dev(**inputs: Any) -> CandidateShards:
    """Retrieve candidates for dev queries, if a step is fitted on them; none is trained on."""
    has_fitted_step = "dev" in inputs["recipes"].get(inputs["recipe"]).splits
    return retrieve(**inputs, split="dev") if has_fitted_step else CandidateShards.of([])


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
