"""Queries and documents that are plain texts, their candidates, and the fused judge over these."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

from anmi.candidates import PADDING, Candidates, CandidateShards
from anmi.corpus.related import find_related
from anmi.corpus.sentences import detect_language
from anmi.corpus.texts import find_duplicates, normalised_forms
from anmi.engine import EngineParams, add_columns, make_blocks
from anmi.engine.progress import Progress
from anmi.errors import AnmiError
from anmi.fingerprint import hash_text
from anmi.judging.evidence import Material
from anmi.judging.fusing import FusedJudge, FusedOptions
from anmi.ragged import Float32s, Int64s
from anmi.retrieval.bm25 import BM25Index
from anmi.retrieval.encoders import STORED, Encoder
from anmi.retrieval.exact import similarities
from anmi.retrieval.kinds import EncoderSettings
from anmi.retrieval.pool import Positives, RelatedDocuments
from anmi.retrieval.retrieve import Retrieve, query_shards
from anmi.retrieval.terms import Terms
from anmi.store import Store

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

log = logging.getLogger(__name__)
# Candidates of each query by BM25 and by the encoder, and at random, as a run of the project has.
DEPTH: Final = 100
RANDOM: Final = 32
_SHARD: Final = 512
_TEXTS_AT_ONCE: Final = 16_384
# What judges: shipped coefficients hold for the similarities of encoders that they were fitted on.
_JUDGE: Final = "static"
Vectors = tuple[Float32s, Float32s]


def cache_folder(store: str | Path | None = None) -> Path:
    """Return where vectors and the judge's encoder are kept: ``store``, ANMI_STORE or ~/.cache."""
    return Path(store or os.environ.get("ANMI_STORE") or Path.home() / ".cache" / "anmi")


@dataclass
class Collection:
    """Q queries and N documents, each text once, with the known positives.

    Attributes
    ----------
    queries, documents
        Texts; a query or document is named by its number.
    relevant
        Known positives: number of the query and of the document, int64 [P, 2].
    seed
        Of all that is drawn.
    models
        Folder where the judge's encoder is kept.
    """

    queries: list[str]
    documents: list[str]
    relevant: Int64s
    seed: int
    models: Path

    @cached_property
    def query_ids(self) -> list[str]:
        """Numbers as text, as blocks of candidates have them."""
        return list(map(str, range(len(self.queries))))

    @cached_property
    def positives(self) -> Positives:
        """The known positives by query id."""
        queries, documents = self.relevant.T
        ids = {"query_id": queries.astype(str), "document_id": documents.astype(str)}
        numbers = {str(number): number for number in range(len(self.documents))}
        return Positives(pd.DataFrame(ids).assign(relevance=1), numbers)

    @cached_property
    def terms(self) -> Terms:
        """Terms of the documents, cut as their language asks for."""
        return Terms.cut(self.documents, detect_language(self.documents))

    @cached_property
    def static_vectors(self) -> Vectors:
        """Unit vectors of queries and documents by the judge's encoder, a table of tokens."""
        encoder = Encoder(EncoderSettings(encoder=_JUDGE), self.models)
        return encoder.encode(self.queries), encoder.encode(self.documents)

    def related(self) -> RelatedDocuments:
        """Find copies and near-duplicates among the documents."""
        ids = list(map(str, range(len(self.documents))))
        corpus = pd.DataFrame({"document_id": ids})
        forms = normalised_forms(self.documents)
        related = find_related(corpus, forms, find_duplicates(ids, forms))
        return RelatedDocuments.from_table(related, ids)

    def retrieve(
        self, vectors: Vectors, folder: Path, depths: Mapping[str, int], is_judged: bool
    ) -> CandidateShards:
        """Retrieve candidates by BM25 and by the encoder.

        Parameters
        ----------
        vectors
            Unit vectors of queries and documents, float32 [Q, D] and [N, D].
        folder
            Where shards of candidates are written.
        depths
            Candidates of a query by ``bm25`` and by ``dense``.
        is_judged
            Whether documents at random join, and copies of the positives, and a document that has
            the query's text, stay out.
        """
        query_vectors, document_vectors = vectors
        related = RelatedDocuments.unrelated(len(self.documents))
        selves = np.full(len(self.queries), PADDING, np.int32)
        if is_judged:
            related = self.related()
            number_of = {text: number for number, text in enumerate(self.documents)}
            selves = np.array([number_of.get(query, PADDING) for query in self.queries], np.int32)
        search = Retrieve(
            bm25=BM25Index.of_terms(self.terms),
            vectors=document_vectors,
            approximate=None,
            related=related,
            bm25_depth=depths["bm25"],
            dense_depth=depths["dense"],
            random=RANDOM if is_judged else 0,
            seed=self.seed,
            bm25_ranks=depths["bm25"],
            dense_ranks=depths["dense"],
        )
        blocks = make_blocks(
            EngineParams(),
            search,
            query_shards(
                self.query_ids, self.queries, self.positives, selves, query_vectors, _SHARD
            ),
            description="retrieving",
            total=len(self.queries),
        )
        return write_shards(blocks, folder)

    def judge(self) -> Judge:
        """Return the fused judge of these texts, which is to be fitted on candidates."""
        texts = dict(zip(self.query_ids, self.queries, strict=True))
        query_vectors, document_vectors = self.static_vectors
        material = Material(self.terms, texts, document_vectors)
        fused = FusedJudge(FusedOptions(), material, _JUDGE, self.seed)
        return Judge(fused, query_vectors, document_vectors)


@dataclass(frozen=True)
class Judge:
    """The fused judge, which looks at similarities by its own encoder, whatever retrieved.

    Attributes
    ----------
    fused
        With its material.
    queries, documents
        Unit vectors by that encoder, float32 [Q, E] and [N, E].
    """

    fused: FusedJudge
    queries: Float32s
    documents: Float32s

    def view(self, block: Candidates) -> Candidates:
        """Return a block whose ``dense`` is the similarity by the judge's encoder."""
        vectors = self.queries[block.query_ids.astype(np.int64)]
        candidates = similarities(vectors, self.documents, block.documents)
        positives = similarities(vectors, self.documents, block.positives)
        return block.with_columns({"dense": candidates}, {"dense": positives})

    def fit(self, shards: CandidateShards) -> None:
        """Choose the coefficients for this collection."""
        self.fused.fit(shards.map(self.view))
        self.fused.material.terms.prepare()

    def __call__(self, block: Candidates) -> Candidates:
        """Return a block with the evidence and ``p_evidence``; ``dense`` stays what it was."""
        judged = self.fused(self.view(block))
        return judged.with_columns(
            {"dense": block.columns["dense"]}, {"dense": block.positive_columns["dense"]}
        )

    def judged(self, shards: CandidateShards) -> CandidateShards:
        """Return shards with the columns that the judge adds."""
        total = self.fused.queries or None
        added = add_columns(EngineParams(), self, shards, description="judging", total=total)
        return shards.joined(added)


def write_shards(shards: CandidateShards, folder: Path) -> CandidateShards:
    """Write shards into a new folder, so that further passes read and do not compute."""
    folder.mkdir()
    parts = shards.save(folder)
    return CandidateShards.read([folder / part.name for part in parts])


def text_vectors(
    model: SentenceTransformer,
    texts: Any,
    store: str | Path | None,
    query_options: Mapping[str, Any],
    document_options: Mapping[str, Any],
) -> Vectors:
    """Return the vectors of ``texts.queries`` and ``texts.documents``, see :func:`encode`."""
    if model.similarity_fn_name not in (None, "cosine", "dot"):
        raise AnmiError(
            f"the model compares vectors by {model.similarity_fn_name} distance: set its"
            " similarity_fn_name to cosine, by which vectors of length 1 rank the same"
        )
    path = None if store is None else Path(store)
    queries = encode(model, "query", texts.queries, path, **query_options)
    documents = encode(model, "document", texts.documents, path, **document_options)
    return queries, documents


def encode(
    model: SentenceTransformer,
    role: str,
    texts: Sequence[str],
    store: Path | None,
    **options: Any,
) -> Float32s:
    """Encode texts as ``mine_hard_negatives`` of sentence-transformers does.

    Parameters
    ----------
    model, role, texts
        ``role`` is ``query`` or ``document``.
    store
        Folder where vectors are kept; None keeps none.
    **options
        ``prompt``, ``prompt_name``, ``batch_size`` and ``pool`` of the model's ``encode``.

    Returns
    -------
    numpy.ndarray
        Unit vectors, float32 [len(texts), D].
    """
    encode_texts = getattr(model, f"encode_{role}")

    def compute(batch: list[str]) -> Float32s:
        vectors = encode_texts(
            batch,
            normalize_embeddings=True,
            convert_to_numpy=True,
            show_progress_bar=False,
            **options,
        )
        return np.asarray(vectors, np.float32)

    with Progress(total=len(texts), desc=f"encoding: {role}", unit="text") as bar:
        if store is None:
            return _in_batches(compute, texts, bar)
        prompt = f"{options.get('prompt_name')}\x1f{options.get('prompt')}"
        key = f"{Encoder.of(model).fingerprint}\x1f{role}\x1f{prompt}\x1fmine_hard_negatives"
        return Store(store).vectors(
            hash_text(key), texts, compute, _TEXTS_AT_ONCE, bar, number=STORED
        )


def _in_batches(
    compute: Callable[[list[str]], Float32s], texts: Sequence[str], bar: Progress
) -> Float32s:
    """Encode many texts at a time, so that the bar moves."""
    vectors = []
    bar.update(0)
    for start in range(0, len(texts), _TEXTS_AT_ONCE):
        batch = list(texts[start : start + _TEXTS_AT_ONCE])
        vectors.append(compute(batch))
        bar.update(len(batch))
    return np.concatenate(vectors)
