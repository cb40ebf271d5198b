"""Negatives drawn in every step from several sources, mixed as a schedule says: random, graph, latent and edited."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from anmi import seeds
from anmi.candidates import PADDING
from anmi.corpus.knowledge import Knowledge
from anmi.corpus.texts import document_texts
from anmi.errors import AnmiError
from anmi.evaluation.retrieval import side_by_side
from anmi.ragged import Bools, Float32s, Float64s, Int32s, Int64s
from anmi.retrieval import exact
from anmi.retrieval.pool import RelatedDocuments
from anmi.seeds import choose
from anmi.training.batch import NegativeSampler, Row
from anmi.training.curriculum import Curriculum
from anmi.training.parts import SOURCES, MixedSources

STREAM: Final = "training/mixed"
# Documents drawn besides those that are wanted, since some are excluded. Where at most one in fifty
# is, more than four of nineteen are in one row of 27,000 at most; other collections are so small
# that as many again are drawn.
_SPARE: Final = 4
_FEW_EXCLUDED: Final = 0.02
# Nearest documents looked at: some are about the row's own entity, and are not taken.
_TOP: Final = 32
# Documents that are searched exactly; bytes of vectors from which on a byte stands for four numbers
# or more; links of a document; and documents that a search looks at on its way.
_EXACT: Final = 50_000
_MOST_BYTES: Final = 2**31
_LINKS: Final = 32
_SEARCHED: Final = 128
# As many neighbours of a query as the report of DNH shows, of as many queries as people look at.
_DEPTH: Final = 5
_MOST_WATCHED: Final = 20
_RANDOM, _GRAPH, _LATENT, _EDIT = range(len(SOURCES))
# In the order in which they are served, each with what replaces it.
_FALLBACK: Final = ((_LATENT, _GRAPH), (_EDIT, _GRAPH), (_GRAPH, _RANDOM))
# Kinds of variants that the source "graph" draws; all others are edits.
GRAPH_KINDS: Final = ("swap", "counterpart", "neighbour")


@dataclass(frozen=True)
class Stock:
    """D documents of a corpus and V variants of them, numbered on from D.

    Attributes
    ----------
    ids, texts
        Of documents and then variants, [D + V].
    number
        Of each by its id.
    origin
        The document that each is, or is a variant of, int64 [D + V].
    about
        Number of the entity that a document is about, int32 [D]; -1 where it is about none.
    uris
        Names of the entities.
    related
        How often a document is no negative of another's query: as it states all of its facts, as a
        near-duplicate, or as a part of the same document, int32 [D, D].
    swaps, edits
        Numbers of the variants of a document for the sources graph and edit, int32 [D, S], padded
        with -1.
    """

    ids: NDArray[np.object_]
    texts: NDArray[np.object_]
    number: dict[str, int]
    origin: Int64s
    about: Int32s
    uris: tuple[str, ...]
    related: sparse.csr_array
    swaps: Int32s
    edits: Int32s

    @property
    def documents(self) -> int:
        """Number of the documents, D."""
        return len(self.about)

    @classmethod
    def from_tables(
        cls,
        corpus: pd.DataFrame,
        knowledge: Knowledge,
        variants: pd.DataFrame,
        related_documents: pd.DataFrame,
    ) -> Stock:
        """Read what ingestion and the making of variants left.

        Variants are ``variant_id, document_id, kind, text``; counterparts and neighbours are
        documents, and so are their ids.

        Raises
        ------
        AnmiError
            No document states a fact.
        """
        ids = corpus.document_id.tolist()
        graph = knowledge.of(ids)
        own = np.arange(len(ids), dtype=np.int32)
        if not graph.stated.nnz:
            raise AnmiError(
                "Negatives from mixed sources need to know what documents state, and this"
                " collection has no facts; read it with kg:DIR, or choose a recipe without"
                " `sources: mixed`."
            )
        # Copies, near-duplicates and parts of the same document.
        excluded = RelatedDocuments.from_table(related_documents, ids).excluded(own[:, None])
        row, place = np.nonzero(excluded != PADDING)
        same = sparse.csr_array(
            (np.ones(len(row), np.int32), (row, excluded[row, place])), (len(ids), len(ids))
        )
        number = {identifier: place for place, identifier in enumerate(ids)}
        variants = variants[variants.document_id.isin(number)]
        origin = variants.document_id.map(number).to_numpy(np.int64)
        made = ~variants.variant_id.isin(number).to_numpy()
        number |= {
            identifier: len(ids) + place
            for place, identifier in enumerate(variants.variant_id[made])
        }
        numbers = variants.variant_id.map(number).to_numpy(np.int64)
        graph_kind = variants.kind.isin(GRAPH_KINDS)
        swaps, edits = (
            side_by_side(origin[kind], numbers[kind], len(ids))
            for kind in (graph_kind, ~graph_kind)
        )
        everything = [*ids, *variants.variant_id[made]]
        texts = [*document_texts(corpus), *variants.text[made]]
        return cls(
            np.array(everything, object),
            np.array(texts, object),
            number,
            np.concatenate([own, origin[made]]),
            graph.about,
            graph.uris,
            same + graph.entailing(own[:, None]).astype(np.int32),
            swaps,
            edits,
        )


class LatentIndex:
    """The embeddings of the documents that were encoded last, each once, and a copy of them that is searched.

    Where more are held than there is room for, those go that were encoded longest ago. A copy of up
    to 50,000 is searched exactly. A larger one is indexed by FAISS (HNSW, and where its vectors
    would take more than 2 GiB with codes of product quantisation), beside the training, from one
    :meth:`take` to the next: so what is found does not depend on how long that takes.

    Parameters
    ----------
    capacity
        Most documents that are held.
    corpus
        Documents there are.
    dimension
        Of the embeddings.

    Attributes
    ----------
    documents
        Of the copy, int64 [n].

    Examples
    --------
    >>> index = LatentIndex(capacity=2, corpus=9, dimension=1)
    >>> for document in (4, 7, 8):
    ...     index.add(np.array([document]), np.ones((1, 1), np.float32))
    >>> index.take()
    >>> index.documents.tolist()
    [7, 8]
    """

    def __init__(self, capacity: int, corpus: int, dimension: int) -> None:
        capacity = min(capacity, corpus)
        self._slot_of = np.full(corpus, PADDING, np.int64)
        self._numbers = np.full(capacity, PADDING, np.int64)
        self._vectors = np.zeros((capacity, dimension), np.float32)
        # When each was encoded, 0 where there is none.
        self._time = np.zeros(capacity, np.int64)
        self._thread = ThreadPoolExecutor(1)
        self._next: tuple[Int64s, Float32s, Future[Any]] | None = None
        self.take()

    def add(self, documents: Int64s, vectors: Float32s) -> None:
        """Take in the embeddings, float32 [n, d], of n different documents as they were in a step."""
        documents = documents[-len(self._time) :]
        slots = self._slot_of[documents]
        is_new = slots == PADDING
        now = self._time.max(initial=0) + 1 + np.arange(len(slots))
        self._time[slots[~is_new]] = now[~is_new]
        if is_new.any():
            oldest = np.argpartition(self._time, is_new.sum() - 1)[: is_new.sum()]
            evicted = self._numbers[oldest]
            self._slot_of[evicted[evicted != PADDING]] = PADDING
            slots[is_new] = oldest
        self._slot_of[documents] = slots
        self._numbers[slots] = documents
        self._vectors[slots] = vectors[-len(self._time) :]
        self._time[slots] = now

    def take(self) -> None:
        """Search from now on what is held, or where that is indexed first, what was held at the last call."""
        if self._next is not None:
            documents, _, index = self._next
            self._use(documents, index.result())
            self._next = None
        held = self._held()
        if len(held[0]) > _EXACT:
            self._next = (*held, self._thread.submit(_indexed, held[1]))
        else:
            self._use(*held)

    def search(self, anchors: Float32s, count: int) -> Int64s:
        """Return the places of the nearest documents in the copy, int64 [n, count], nearest first; -1 for none."""
        found = min(count, len(self.documents))
        if isinstance(self._index, np.ndarray):
            places, _ = exact.nearest(anchors, self._index, found, self._longest)
        else:
            _, places = self._index.search(np.ascontiguousarray(anchors), found)
        return np.pad(places.astype(np.int64), ((0, 0), (0, count - found)), constant_values=-1)

    def tensors(self) -> dict[str, Tensor]:
        """Return all it needs to go on elsewhere."""
        index = self._index
        if not isinstance(index, np.ndarray):
            import faiss

            index = faiss.serialize_index(index)
        none = self.documents[:0], self._vectors[:0]
        parts = (*self._held(), self.documents, index, *(self._next or none)[:2])
        return {f"index.{place}": torch.from_numpy(part) for place, part in enumerate(parts)}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on from what :meth:`tensors` gave."""
        parts = [tensors[f"index.{place}"].numpy() for place in range(6)]
        self.add(*parts[:2])
        index: Any = parts[3]
        if index.dtype == np.uint8:
            import faiss

            index = faiss.deserialize_index(index)
        self._use(parts[2], index)
        if len(parts[4]):
            self._next = (parts[4], parts[5], self._thread.submit(_indexed, parts[5]))

    def _held(self) -> tuple[Int64s, Float32s]:
        order = np.argsort(self._time)
        order = order[self._time[order] > 0]
        return self._numbers[order], self._vectors[order]

    def _use(self, documents: Int64s, index: Any) -> None:
        self.documents = documents
        self._index = index
        if isinstance(index, np.ndarray):
            self._longest = float(exact.lengths(index).max(initial=0))


def _indexed(vectors: Float32s) -> Any:
    """Return an index of FAISS, made by one thread: several would link in an order of their own."""
    import faiss

    faiss.omp_set_num_threads(1)
    size = vectors.shape[1]
    index: Any = faiss.IndexHNSWFlat(size, _LINKS, faiss.METRIC_INNER_PRODUCT)
    if vectors.nbytes > _MOST_BYTES:
        codes = next(size // width for width in range(4, size + 1) if size % width == 0)
        index = faiss.index_factory(size, f"HNSW{_LINKS}_PQ{codes}", faiss.METRIC_INNER_PRODUCT)
        # It orders codes for Hamming distances, which nobody asks for, and takes minutes.
        storage: Any = faiss.downcast_index(index.storage)
        storage.do_polysemous_training = False
        index.train(vectors)
    index.hnsw.efSearch = _SEARCHED
    index.add(vectors)
    return index


def neighbour_table(noted: Iterable[Sequence[Any]] = ()) -> pd.DataFrame:
    """Return ``step, query_id, rank, document_id, uri, own_uri, usable`` of lines in this order."""
    types = {
        "step": "int64",
        "query_id": "str",
        "rank": "int64",
        "document_id": "str",
        "uri": "str",
        "own_uri": "str",
    }
    return pd.DataFrame(list(noted), columns=[*types, "usable"]).astype(types | {"usable": "bool"})


class DNHSampler(NegativeSampler):
    """Draws the negatives of a step from the corpus, the graph, the neighbourhood of the query, and edits.

    No document that states all facts of a positive is drawn, and none that is about the row's own
    entity is a latent negative; nor is such a document a negative of its row through another row of
    the batch. What is drawn depends on the seed, the step, the row and, for latent negatives, on
    the embeddings of earlier steps.

    Parameters
    ----------
    rows
        All training rows; their mined negatives are not used.
    count
        Negatives of a row in a step.
    seed
        Of the training.
    stock
        What is drawn from.
    options
        Final shares, index, filter and weights.
    curriculum
        Whose state says the shares; without one the final ones hold from the first step on.
    dimension
        Of the embeddings.

    Raises
    ------
    AnmiError
        A positive of a row is not in the corpus.
    """

    def __init__(
        self,
        rows: Sequence[Row],
        count: int,
        seed: int,
        stock: Stock,
        options: MixedSources,
        curriculum: Curriculum,
        dimension: int,
    ) -> None:
        self._count = count
        self._seed = seed
        self._stock = stock
        self._options = options
        self._curriculum = curriculum
        self._rows = rows
        self._names = np.array([f"{row.query_id}\x1f{row.positive_id}" for row in rows])
        self._own = np.array(
            [_number(stock, row.positive_id, row.query_id) for row in rows], np.int64
        )
        self._about = stock.about[self._own]
        self._no_negatives = _no_negatives(rows, stock)
        # Row and document in one number, sorted, to be searched.
        self._codes = (
            np.repeat(np.arange(len(rows)), np.diff(self._no_negatives.indptr)) * stock.documents
        )
        self._codes += self._no_negatives.indices
        few = np.diff(self._no_negatives.indptr).max() <= _FEW_EXCLUDED * stock.documents
        self._spare = min(_SPARE, count) if few else count
        self._index = LatentIndex(options.buffer, stock.documents, dimension)
        # Of the queries whose neighbours are noted, the first rows; and what was noted.
        first = {row.query_id: number for number, row in reversed(list(enumerate(rows)))}
        names = sorted(first)
        chosen = choose(names, _MOST_WATCHED, seed)
        self._watched = np.array(
            [first[name] for name, kept in zip(names, chosen, strict=True) if kept], np.int64
        )
        self._noted: list[list[Any]] = []
        self._anchors = np.zeros((len(rows), dimension), np.float32)
        self._known = np.zeros(len(rows), bool)
        self._report: dict[str, float] = {}
        self._hit_rate = math.nan
        # Which documents a batch holds; here so that it is not made anew for every step.
        self._present = np.zeros(stock.documents, bool)

    def sample_negatives(self, rows: Int64s, step: int) -> list[Row]:
        """Return the rows of the given numbers with the negatives of this step (from 0)."""
        drawn, source = self.draw(rows, step)
        hard = ((source != _RANDOM) & (drawn != PADDING)).sum(axis=1) / max(self._count, 1)
        boost = (1 + self._options.boost * hard).tolist()
        sizes = (drawn != PADDING).sum(axis=1).tolist()
        drawn = _present_first(drawn) if min(sizes, default=0) < self._count else drawn
        # All at once; numpy finds them in a fraction of the time that a loop takes.
        names = self._stock.ids[drawn].tolist()
        texts = self._stock.texts[drawn].tolist()
        lines = zip(
            rows.tolist(), names, texts, sizes, boost, self._excluded(rows, drawn), strict=True
        )
        return [self._row(*line) for line in lines]

    # As the training calls whatever gives a step its rows.
    __call__ = sample_negatives

    def _row(
        self,
        number: int,
        names: list[str],
        texts: list[str],
        size: int,
        boost: float,
        excluded: list[str],
    ) -> Row:
        row = self._rows[number]
        own = tuple(names[:size])
        return replace(
            row,
            negative_ids=own,
            negatives=tuple(texts[:size]),
            weights=(1.0,) * size,
            judged={},
            hardness=math.nan,
            query_weight=row.query_weight * boost,
            excluded_ids=(
                row.excluded_ids.union(excluded).difference(own) if excluded else row.excluded_ids
            ),
        )

    def draw(self, rows: Int64s, step: int) -> tuple[Int64s, Int64s]:
        """Return what is drawn for B rows.

        Numbers in the stock, int64 [B, n], -1 where there was nothing; and the source of each,
        int64 [B, n].
        """
        count = self._count
        own = self._own[rows]
        swaps = self._stock.swaps[own].astype(np.int64)
        edits = self._stock.edits[own].astype(np.int64)
        swaps[self._is_excluded(rows, swaps)] = PADDING
        if self._options.edit == 0:
            edits = edits[:, :0]
        widths = np.cumsum([count, count + self._spare, swaps.shape[1], edits.shape[1]])
        slots = np.tile(np.arange(widths[-1], dtype=np.int32), (len(rows), 1))
        chances = seeds.uniform(self._seed, f"{STREAM}/{step}", self._names[rows], slots)
        uniform = np.split(chances, widths[:-1], axis=1)
        asked = self._draw_sources(uniform[0])
        random = (uniform[1] * self._stock.documents).astype(np.int64)
        random[self._is_excluded(rows, random)] = PADDING
        latent = self._latent(rows, bool((asked == _LATENT).any()))
        graph = _shuffled(swaps, uniform[2])
        edited = _shuffled(edits, uniform[3])
        options = {_RANDOM: _present_first(random), _GRAPH: graph, _LATENT: latent, _EDIT: edited}
        source = asked.copy()
        drawn = np.full(asked.shape, PADDING, np.int64)
        for kind, instead in (*_FALLBACK, (_RANDOM, _RANDOM)):
            mine = source == kind
            taken = _taken(options[kind], mine)
            drawn[mine] = taken[mine]
            source[mine & (taken == PADDING)] = instead
        there = drawn != PADDING
        total = max(int(there.sum()), 1)
        shares = np.bincount(source[there], minlength=len(SOURCES)) / total
        self._report = {
            f"share_{name}": float(share) for name, share in zip(SOURCES, shares, strict=True)
        }
        self._report |= {
            "negatives": total / len(drawn),
            "replaced": float((asked != source).mean()),
        }
        self._report |= {"latent_hit_rate": self._hit_rate} if self._options.latent else {}
        return drawn, source

    def update_index(
        self,
        step: int,
        rows: Int64s,
        queries: Float32s,
        document_ids: Sequence[str],
        documents: Float32s,
    ) -> None:
        """Take in what a step, the ``step``-th of the training, encoded; make the index anew if it is due.

        Parameters
        ----------
        step
            From 1.
        rows
            Numbers of the B rows.
        queries, documents
            Embeddings of the rows' queries, float32 [B, d], and of the U different
            documents [U, d].
        document_ids
            Of these documents.
        """
        if self._options.latent == 0:
            return
        # Variants stand behind the documents.
        numbers = np.array(
            [self._stock.number.get(name, self._stock.documents) for name in document_ids], np.int64
        )
        own = numbers < self._stock.documents
        self._index.add(numbers[own], documents[own])
        self._anchors[rows] = queries
        self._known[rows] = True
        if step % self._options.refresh == 0:
            self._index.take()
            # The first large index is still being made.
            if len(self._index.documents):
                self._look(step)

    def neighbours(self) -> pd.DataFrame:
        """Return the five nearest documents of at most 20 queries, each time that the index was made."""
        return neighbour_table(self._noted)

    def report(self) -> dict[str, float]:
        """Return what the last step drew.

        Shares of the sources, the share that was replaced, and of latent negatives the share of
        neighbours that could be taken.
        """
        return self._report

    def state_dict(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return all it needs to go on elsewhere, as plain JSON values and tensors."""
        own = {"anchors": torch.from_numpy(self._anchors), "known": torch.from_numpy(self._known)}
        return {"noted": self._noted}, self._index.tensors() | own

    def load_state_dict(self, values: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Go on from what :meth:`state_dict` gave."""
        self._index.load(tensors)
        self._noted = values["noted"]
        self._anchors, self._known = (tensors[name].numpy().copy() for name in ("anchors", "known"))

    def _draw_sources(self, uniform: Float64s) -> Int64s:
        state = self._curriculum.state
        mix = self._options.mix if state is None or state.mix is None else state.mix
        # A share of 0 must not be drawn, whatever the others are rounded to.
        present = np.flatnonzero(np.array(mix) > 0)
        borders = np.cumsum(np.array(mix)[present])
        place = np.minimum(
            np.searchsorted(borders, uniform * borders[-1], side="right"), len(present) - 1
        )
        return present[place]

    def _latent(self, rows: Int64s, wanted: bool) -> Int64s:
        """Neighbours that may be taken, int64 [B, K] with -1 at the end."""
        found = np.full((len(rows), _TOP), PADDING, np.int64)
        if wanted and len(self._index.documents):
            known, places, documents, usable = self._nearest(rows, _TOP)
            hits = (places >= 0) & usable
            self._hit_rate = (
                float(hits.sum() / (places >= 0).sum()) if (places >= 0).any() else math.nan
            )
            found[known] = _present_first(np.where(hits, documents, PADDING))
        return found

    def _nearest(self, rows: Int64s, count: int) -> tuple[NDArray[Any], ...]:
        """Return which rows are known, [n], and of those places, numbers and usability of the nearest, [n, count]."""
        known = np.flatnonzero(self._known[rows])
        places = self._index.search(self._anchors[rows[known]], count)
        documents = np.where(places < 0, PADDING, self._index.documents[places])
        own = self._about[rows[known], None]
        other = (self._stock.about[documents] != own) | (own < 0)
        return known, places, documents, other & ~self._is_excluded(rows[known], documents)

    def _look(self, step: int) -> None:
        """Note what the index shows."""
        known, _, documents, usable = self._nearest(self._watched, _DEPTH)
        for line, number in enumerate(self._watched[known].tolist()):
            for rank in np.flatnonzero(documents[line] >= 0).tolist():
                document = int(documents[line, rank])
                entities = (int(self._stock.about[document]), int(self._about[number]))
                uris = [self._stock.uris[entity] if entity >= 0 else "" for entity in entities]
                name = self._stock.ids[document]
                query = self._rows[number].query_id
                self._noted.append([step, query, rank + 1, name, *uris, bool(usable[line, rank])])

    def _is_excluded(self, rows: Int64s, documents: Int64s) -> Bools:
        wanted = rows[:, None] * self._stock.documents + documents
        place = np.minimum(np.searchsorted(self._codes, wanted), len(self._codes) - 1)
        real = (documents != PADDING) & (documents < self._stock.documents)
        return (self._codes[place] == wanted) & real

    def _excluded(self, rows: Int64s, drawn: Int64s) -> list[list[str]]:
        """For each row, names of what the batch holds that must not be its negative."""
        there = np.concatenate([drawn[drawn != PADDING], self._own[rows]])
        origin = self._stock.origin[there]
        self._present[origin] = True
        start = self._no_negatives.indptr[rows]
        end = self._no_negatives.indptr[rows + 1]
        lengths = end - start
        flat = np.repeat(start - np.cumsum(lengths) + lengths, lengths) + np.arange(
            int(lengths.sum())
        )
        document = self._no_negatives.indices[flat]
        hit = self._present[document]
        self._present[origin] = False
        place = np.repeat(np.arange(len(rows)), lengths)[hit]
        document = document[hit]
        names: dict[int, set[str]] = {}
        wanted = np.isin(origin, document)
        for item, of in zip(there[wanted].tolist(), origin[wanted].tolist(), strict=True):
            names.setdefault(of, set()).add(self._stock.ids[item])
        excluded: list[list[str]] = [[] for _ in rows]
        for row, of in zip(place.tolist(), document.tolist(), strict=True):
            excluded[row] += names[of]
        return excluded


def _number(stock: Stock, document_id: str, query_id: str) -> int:
    if document_id not in stock.number:
        raise AnmiError(
            f'Training row of query "{query_id}" has the positive "{document_id}", which is not in'
            " the corpus that negatives are drawn from; run ingestion and selection again."
        )
    return stock.number[document_id]


def _no_negatives(rows: Sequence[Row], stock: Stock) -> sparse.csr_array:
    """Documents that are never a negative of a row, bool [rows, D]."""
    positives = _listed([(*row.positive_ids, row.positive_id) for row in rows], stock)
    excluded = _listed([row.excluded_ids for row in rows], stock)
    parts = sparse.csr_array(positives + positives @ stock.related + excluded > 0)
    parts.sort_indices()
    return parts


def _listed(names: Sequence[Iterable[str]], stock: Stock) -> sparse.csr_array:
    pairs = [
        (place, stock.number[name])
        for place, line in enumerate(names)
        for name in line
        if stock.number.get(name, stock.documents) < stock.documents
    ]
    places, documents = np.array(pairs, np.int64).reshape(-1, 2).T
    return sparse.csr_array(
        (np.ones(len(places), np.int32), (places, documents)), (len(names), stock.documents)
    )


def _present_first(numbers: Int64s) -> Int64s:
    return np.take_along_axis(
        numbers, np.argsort(numbers == PADDING, axis=1, kind="stable"), axis=1
    )


def _shuffled(numbers: Int64s, uniform: Float64s) -> Int64s:
    order = np.argsort(np.where(numbers == PADDING, np.inf, uniform), axis=1)
    return np.take_along_axis(numbers, order, axis=1)


def _taken(options: Int64s, wanted: Bools) -> Int64s:
    """Give the k-th slot that is wanted the k-th option of its row; -1 where there are not so many."""
    place = np.cumsum(wanted, axis=1) - 1
    if not options.shape[1]:
        return np.full(wanted.shape, PADDING, np.int64)
    value = np.take_along_axis(options, np.clip(place, 0, options.shape[1] - 1), axis=1)
    return np.where(place < options.shape[1], value, PADDING)
