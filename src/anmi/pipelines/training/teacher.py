"""The node lets the parts of the search that need no training score documents, for the loss ``distillation``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from anmi.candidates import PADDING
from anmi.corpus.texts import document_texts
from anmi.evaluation.retrieval import side_by_side
from anmi.pipelines.evaluation.search import encoded, untrained_sources
from anmi.pipelines.params import DenseParams, SearchParams
from anmi.pipelines.training.params import TrainingParams, merged_options
from anmi.ragged import Bools, Float32s, Int32s, in_rows
from anmi.retrieval.bm25 import BM25Index
from anmi.retrieval.encoders import OF_CORPUS, Encoder
from anmi.retrieval.fusion import Ranked, aligned, comparable, mixed
from anmi.retrieval.pool import RelatedDocuments, without
from anmi.search.fit import prior, trimmed
from anmi.search.parts import BM25, NETWORK, Part
from anmi.selection.recipe import RecipeBook
from anmi.store import Store

COLUMNS: Final = ("query_id", "positive_id", "positive_teacher", "document_ids", "teacher")
# Queries that are scored at a time, which bounds memory.
_QUERIES: Final = 2_000


class Taught(NamedTuple):
    """What the teacher says of the documents of Q queries.

    Attributes
    ----------
    documents, scores
        Candidates, best first, int32 [Q, K], padded with -1, and their scores, float32 [Q, K].
    positive
        Score of each query's own document, float32 [Q].
    """

    documents: Int32s
    scores: Float32s
    positive: Float32s


@dataclass
class Teacher:
    """Scores documents as a search of parts does, in standard deviations of a query's scores.

    Attributes
    ----------
    parts
        BM25 and encoders, of the same corpus of N documents.
    weights
        Of the parts.
    depth
        Documents of each part that are fused.
    related
        Copies, near-duplicates and siblings of documents, none of which is a candidate.
    usable
        Which documents may be candidates of a pseudo-query, [N].
    """

    parts: Sequence[Part]
    weights: Mapping[str, float]
    depth: int
    related: RelatedDocuments
    usable: Bools

    def score(
        self, queries: Sequence[str], positives: Int32s, negatives: Int32s | None, count: int
    ) -> Taught:
        """Return the best candidates of queries.

        The own document of a pseudo-query has its words, so BM25 counts it at most as the best
        candidate; and it is never behind that, since it is what the query asks for.

        Parameters
        ----------
        queries
            Q texts.
        positives
            The document that each asks for, int32 [Q].
        negatives
            The candidates, int32 [Q, K], padded with -1; None takes what the search finds.
        count
            Candidates of a query, at most.
        """
        wanted = positives[:, None]
        if negatives is not None:
            wanted = np.concatenate([wanted, negatives], axis=1)
        # A list without weight, by which every wanted document has a score.
        lists = {"": Ranked(wanted, np.zeros(wanted.shape, np.float32))}
        spreads = {}
        for part in self.parts:
            search, spreads[part.name] = part.search_of(queries)
            lists[part.name] = search(self.depth)
        union = aligned(lists)
        scores = comparable(union, lists, spreads)
        candidates = self._candidates(union.documents, positives, negatives)
        is_positive = union.documents == positives[:, None]
        best = np.where(candidates == PADDING, 0, scores[BM25]).max(axis=1, keepdims=True)
        capped = np.minimum(scores[BM25], best)
        scores[BM25] = np.where(is_positive, capped, scores[BM25])
        fused = mixed([*self.weights.values()], [scores[name] for name in self.weights])
        order = np.argsort(np.where(candidates == PADDING, np.inf, -fused), kind="stable")
        order = order[:, :count]
        documents = in_rows(candidates, order)
        taught = np.where(documents == PADDING, -np.inf, in_rows(fused, order))
        positive = np.where(is_positive, fused, -np.inf).max(axis=1)
        return Taught(documents, taught, np.maximum(positive, taught.max(axis=1, initial=-np.inf)))

    def _candidates(self, documents: Int32s, positives: Int32s, negatives: Int32s | None) -> Int32s:
        """Return the documents [Q, M] with all that are no candidates blanked."""
        if negatives is not None:
            return np.where(without(documents, negatives) == PADDING, documents, PADDING)
        unrelated = without(documents, self.related.excluded(positives[:, None]))
        return np.where(self.usable[unrelated], unrelated, PADDING)


def score_candidates(
    *,
    pseudo_queries: pd.DataFrame,
    training_rows: pd.DataFrame,
    corpus: pd.DataFrame,
    related_documents: pd.DataFrame,
    new_documents: pd.DataFrame,
    bm25_index: BM25Index,
    corpus_encoder: Path,
    encoder: str,
    recipe: str,
    recipes: RecipeBook,
    training: TrainingParams,
    search: SearchParams,
    dense: DenseParams,
    store: Store,
) -> pd.DataFrame:
    """Score the negatives of training rows, and the best documents of the pseudo-queries that training uses.

    Returns
    -------
    pandas.DataFrame
        :data:`COLUMNS`, a row per training row and pseudo-query; none where the recipe has no
        ``pseudo_queries.candidates``.
    """
    options = merged_options(recipes.get(recipe), training)
    count = options.pseudo_queries.candidates
    if not count:
        return pd.DataFrame(columns=list(COLUMNS))
    kinds = options.pseudo_queries.kinds
    is_used = (pseudo_queries.split == "train") & pseudo_queries.kind.isin(kinds)
    pseudo = pseudo_queries[is_used].rename(columns={"document_id": "positive_id"})
    # An epoch takes the next view.
    pseudo = pseudo[pseudo.groupby(["kind", "positive_id"]).cumcount() < options.epochs]
    labelled = training_rows.rename(columns={"query": "text"})
    texts = [*labelled.text, *pseudo.text]
    parts = [Part(BM25, bm25_index)]
    parts += teaching_parts(texts, corpus, corpus_encoder, encoder, search, dense, store)
    ids = corpus.document_id.tolist()
    related = RelatedDocuments.from_table(related_documents, ids)
    is_old = ~corpus.document_id.isin(new_documents.document_id).to_numpy()
    teacher = Teacher(
        parts,
        trimmed(prior([part.name for part in parts], documents=0)),
        search.depth,
        related,
        is_old & (related.first_of_text == np.arange(len(ids))),
    )
    tables = [
        score_table(teacher, queries[first : first + _QUERIES], ids, count)
        for queries in (labelled, pseudo)
        for first in tqdm(range(0, len(queries), _QUERIES), "scoring candidates", disable=None)
    ]
    return pd.concat(tables, ignore_index=True)


def teaching_parts(
    texts: Sequence[str],
    corpus: pd.DataFrame,
    corpus_encoder: Path,
    encoder: str,
    search: SearchParams,
    dense: DenseParams,
    store: Store,
) -> list[Part]:
    """Return the untrained encoders of the search; without a network the one before training takes its place."""
    documents = document_texts(corpus)
    sources, _ = untrained_sources(documents, corpus_encoder, encoder, search, dense, store)
    if NETWORK not in sources and encoder != OF_CORPUS:
        sources[NETWORK] = dense.of(encoder)
    parts = []
    for name, settings in sources.items():
        part = encoded(name, settings, corpus, [*texts], store)
        # Queries of a training come again in the next one.
        parts.append(replace(part, encoder=Encoder(settings, store.path / "models", store)))
    return parts


def score_table(
    teacher: Teacher, queries: pd.DataFrame, document_ids: Sequence[str], count: int
) -> pd.DataFrame:
    """Return :data:`COLUMNS` of queries ``query_id, text, positive_id``, and ``negative_ids`` where they were mined."""
    index = pd.Index(document_ids)
    positives = index.get_indexer(pd.Index(queries.positive_id)).astype(np.int32)
    negatives = None
    if "negative_ids" in queries:
        mined = queries.negative_ids.reset_index(drop=True).explode()
        places = index.get_indexer(pd.Index(mined))
        negatives = side_by_side(mined.index.to_numpy(), places, len(queries)).astype(np.int32)
        count = negatives.shape[1]
    taught = teacher.score(queries.text.tolist(), positives, negatives, count)
    is_candidate = taught.documents != PADDING
    names = np.array(document_ids, object)
    columns = (
        queries.query_id.tolist(),
        queries.positive_id.tolist(),
        taught.positive,
        [names[row[mask]] for row, mask in zip(taught.documents, is_candidate, strict=True)],
        [row[mask] for row, mask in zip(taught.scores, is_candidate, strict=True)],
    )
    return pd.DataFrame(dict(zip(COLUMNS, columns, strict=True)))
