"""Negatives drawn in every step from several sources: random, graph, latent and edited."""

from __future__ import annotations

import math
from collections import defaultdict
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
# Random documents drawn besides those that are needed, since some are excluded. Where at most one
# in fifty is, more than four of nineteen are in one row of 27,000 at most; other collections are so
# small that as many again are drawn.
_SPARE: Final = 4
_FEW_EXCLUDED: Final = 0.02
# Nearest documents looked at: some are about the row's own entity, and are not taken.
_NEAREST: Final = 32
# A larger copy is searched by HNSW; one of more bytes by codes of a byte for four numbers or more.
_EXACT: Final = 50_000
_MOST_BYTES: Final = 2**31
# Of HNSW: links of a document, and documents that a search looks at on its way.
_LINKS: Final = 32
_SEARCHED: Final = 128
# Neighbours of a query that the report of DNH shows, and queries that it shows them of.
_REPORTED_NEIGHBOURS: Final = 5
_REPORTED_QUERIES: Final = 20
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
        if not graph.stated.nnz:
            raise AnmiError(
                "Negatives from mixed sources need to know what documents state, and this"
                " collection has no facts; read it with kg:DIR, or choose a recipe without"
                " `sources: mixed`."
            )
        documents = np.arange(len(ids), dtype=np.int32)
        # Copies, near-duplicates and parts of the same document.
        related = RelatedDocuments.from_table(related_documents, ids).excluded(documents[:, None])
        lines, columns = np.nonzero(related != PADDING)
        same = _incidence(lines, related[lines, columns], (len(ids), len(ids)))
        variants = variants[variants.document_id.isin(ids)]
        is_text = ~variants.variant_id.isin(ids).to_numpy()
        all_ids = [*ids, *variants.variant_id[is_text]]
        number = {identifier: place for place, identifier in enumerate(all_ids)}
        origins = variants.document_id.map(number).to_numpy(np.int64)
        numbers = variants.variant_id.map(number).to_numpy(np.int64)
        is_swap = variants.kind.isin(GRAPH_KINDS).to_numpy()
        return cls(
            np.array(all_ids, object),
            np.array([*document_texts(corpus), *variants.text[is_text]], object),
            number,
            np.concatenate([documents, origins[is_text]]),
            graph.about,
            graph.uris,
            same + graph.entailing(documents[:, None]).astype(np.int32),
            side_by_side(origins[is_swap], numbers[is_swap], len(ids)),
            side_by_side(origins[~is_swap], numbers[~is_swap], len(ids)),
        )


class LatentIndex:
    """The embeddings of the documents encoded last, each once, and a copy that is searched.

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
        """Take in the embeddings, float32 [n, d], of n different documents of one step."""
        documents = documents[-len(self._time) :]
        slots = self._slot_of[documents]
        is_new = slots == PADDING
        now = self._time.max(initial=0) + 1 + np.arange(len(slots))
        self._time[slots[~is_new]] = now[~is_new]
        if is_new.any():
            oldest_slots = np.argpartition(self._time, is_new.sum() - 1)[: is_new.sum()]
            evicted = self._numbers[oldest_slots]
            self._slot_of[evicted[evicted != PADDING]] = PADDING
            slots[is_new] = oldest_slots
        self._slot_of[documents] = slots
        self._numbers[slots] = documents
        self._vectors[slots] = vectors[-len(self._time) :]
        self._time[slots] = now

    def take(self) -> None:
        """Search from now on what is held.

        Where that is indexed first, what was held at the last call is searched until the next.
        """
        if self._next is not None:
            documents, _, index = self._next
            self._use(documents, index.result())
            self._next = None
        documents, vectors = self._held()
        if len(documents) > _EXACT:
            self._next = (documents, vectors, self._thread.submit(_indexed, vectors))
        else:
            self._use(documents, vectors)

    def search(self, anchors: Float32s, count: int) -> Int64s:
        """Return places in the copy, int64 [n, count], nearest first; -1 for none."""
        available = min(count, len(self.documents))
        if isinstance(self._index, np.ndarray):
            places, _ = exact.nearest(anchors, self._index, available, self._longest)
        else:
            _, places = self._index.search(np.ascontiguousarray(anchors), available)
        padding = ((0, 0), (0, count - available))
        return np.pad(places.astype(np.int64), padding, constant_values=PADDING)

    def tensors(self) -> dict[str, Tensor]:
        """Return all it needs to go on elsewhere."""
        index = self._index
        if not isinstance(index, np.ndarray):
            import faiss

            index = faiss.serialize_index(index)
        nothing = self.documents[:0], self._vectors[:0]
        arrays = (*self._held(), self.documents, index, *(self._next or nothing)[:2])
        return {f"index.{place}": torch.from_numpy(array) for place, array in enumerate(arrays)}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on from what :meth:`tensors` gave."""
        arrays = [tensors[f"index.{place}"].numpy() for place in range(6)]
        held, vectors, documents, saved_index, next_documents, next_vectors = arrays
        self.add(held, vectors)
        index: Any = saved_index
        if saved_index.dtype == np.uint8:
            import faiss

            index = faiss.deserialize_index(saved_index)
        self._use(documents, index)
        if len(next_documents):
            indexed = self._thread.submit(_indexed, next_vectors)
            self._next = (next_documents, next_vectors, indexed)

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


def neighbour_table(lines: Iterable[Sequence[Any]] = ()) -> pd.DataFrame:
    """Return ``step, query_id, rank, document_id, uri, own_uri, usable`` of lines in this order."""
    types = {"step": "int64", "query_id": "str", "rank": "int64"}
    types |= dict.fromkeys(("document_id", "uri", "own_uri"), "str")
    types["usable"] = "bool"
    return pd.DataFrame(list(lines), columns=list(types)).astype(types)


class DNHSampler(NegativeSampler):
    """Draws the negatives of a step from the corpus, the graph, the query's neighbours and edits.

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
        for row in rows:
            if row.positive_id not in stock.number:
                raise AnmiError(
                    f'Training row of query "{row.query_id}" has the positive "{row.positive_id}",'
                    " which is not in the corpus that negatives are drawn from; run ingestion and"
                    " selection again."
                )
        self._count = count
        self._seed = seed
        self._stock = stock
        self._options = options
        self._curriculum = curriculum
        self._rows = rows
        self._row_keys = np.array([f"{row.query_id}\x1f{row.positive_id}" for row in rows])
        self._positives = np.array([stock.number[row.positive_id] for row in rows], np.int64)
        self._about = stock.about[self._positives]
        self._no_negatives = _no_negatives(rows, stock)
        excluded_counts = np.diff(self._no_negatives.indptr)
        # Row and document in one number, sorted, to be searched.
        row_numbers = np.repeat(np.arange(len(rows)), excluded_counts)
        self._codes = row_numbers * stock.documents + self._no_negatives.indices
        few_excluded = excluded_counts.max() <= _FEW_EXCLUDED * stock.documents
        self._spare = min(_SPARE, count) if few_excluded else count
        self._index = LatentIndex(options.buffer, stock.documents, dimension)
        # Of queries whose neighbours are reported, the first rows; and the lines of the report.
        query_ids, first_rows = np.unique([row.query_id for row in rows], return_index=True)
        self._reported = first_rows[choose(query_ids.tolist(), _REPORTED_QUERIES, seed)]
        self._neighbour_lines: list[list[Any]] = []
        self._anchors = np.zeros((len(rows), dimension), np.float32)
        self._has_anchor = np.zeros(len(rows), bool)
        self._report: dict[str, float] = {}
        self._hit_rate = math.nan

    def sample_negatives(self, rows: Int64s, step: int) -> list[Row]:
        """Return the rows of the given numbers with the negatives of this step (from 0)."""
        drawn, sources = self.draw(rows, step)
        is_drawn = drawn != PADDING
        hard_shares = (is_drawn & (sources != _RANDOM)).sum(axis=1) / max(self._count, 1)
        boosts = (1 + self._options.boost * hard_shares).tolist()
        sizes = is_drawn.sum(axis=1).tolist()
        excluded = self._excluded_names(rows, drawn)
        drawn = _present_first(drawn)
        # All at once; numpy finds them in a fraction of the time that a loop takes.
        names = self._stock.ids[drawn].tolist()
        texts = self._stock.texts[drawn].tolist()
        sampled = []
        for line, (number, size) in enumerate(zip(rows.tolist(), sizes, strict=True)):
            row = self._rows[number]
            negative_ids = tuple(names[line][:size])
            sampled_row = replace(
                row,
                negative_ids=negative_ids,
                negatives=tuple(texts[line][:size]),
                weights=(1.0,) * size,
                judged={},
                hardness=math.nan,
                query_weight=row.query_weight * boosts[line],
                excluded_ids=row.excluded_ids.union(excluded[line]).difference(negative_ids),
            )
            sampled.append(sampled_row)
        return sampled

    # As the training calls whatever gives a step its rows.
    __call__ = sample_negatives

    def draw(self, rows: Int64s, step: int) -> tuple[Int64s, Int64s]:
        """Return what is drawn for B rows.

        Numbers in the stock, int64 [B, n], -1 where there was nothing; and the source of each,
        int64 [B, n].
        """
        count = self._count
        stock = self._stock
        positives = self._positives[rows]
        swaps = stock.swaps[positives].astype(np.int64)
        swaps[self._is_excluded(rows, swaps)] = PADDING
        edits = stock.edits[positives].astype(np.int64)
        if self._options.edit == 0:
            edits = edits[:, :0]
        widths = np.cumsum([count, count + self._spare, swaps.shape[1], edits.shape[1]])
        slots = np.tile(np.arange(widths[-1], dtype=np.int32), (len(rows), 1))
        chances = seeds.uniform(self._seed, f"{STREAM}/{step}", self._row_keys[rows], slots)
        of_source, of_random, of_swaps, of_edits = np.split(chances, widths[:-1], axis=1)
        random = (of_random * stock.documents).astype(np.int64)
        random[self._is_excluded(rows, random)] = PADDING
        planned = self._draw_sources(of_source)
        latent = np.full((len(rows), _NEAREST), PADDING, np.int64)
        if (planned == _LATENT).any() and len(self._index.documents):
            self._fill_latent(latent, rows)
        stocks = {
            _RANDOM: _present_first(random),
            _GRAPH: _shuffled(swaps, of_swaps),
            _LATENT: latent,
            _EDIT: _shuffled(edits, of_edits),
        }
        sources = planned.copy()
        drawn = np.full(planned.shape, PADDING, np.int64)
        for source, fallback in (*_FALLBACK, (_RANDOM, _RANDOM)):
            is_due = sources == source
            served = _served(stocks[source], is_due)
            drawn[is_due] = served[is_due]
            sources[is_due & (served == PADDING)] = fallback
        self._report = self._shares(planned, sources, drawn)
        return drawn, sources

    def _shares(self, planned: Int64s, sources: Int64s, drawn: Int64s) -> dict[str, float]:
        is_drawn = drawn != PADDING
        total = max(int(is_drawn.sum()), 1)
        counts = np.bincount(sources[is_drawn], minlength=len(SOURCES))
        report = {f"share_{SOURCES[place]}": float(n / total) for place, n in enumerate(counts)}
        report["negatives"] = total / len(drawn)
        report["replaced"] = float((planned != sources).mean())
        if self._options.latent:
            report["latent_hit_rate"] = self._hit_rate
        return report

    def update_index(
        self,
        step: int,
        rows: Int64s,
        queries: Float32s,
        document_ids: Sequence[str],
        documents: Float32s,
    ) -> None:
        """Take in what the ``step``-th step encoded; make the index anew if it is due.

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
        corpus_size = self._stock.documents
        # Variants stand behind the documents.
        numbers = np.array(
            [self._stock.number.get(name, corpus_size) for name in document_ids], np.int64
        )
        is_document = numbers < corpus_size
        self._index.add(numbers[is_document], documents[is_document])
        self._anchors[rows] = queries
        self._has_anchor[rows] = True
        if step % self._options.refresh == 0:
            self._index.take()
            # The first large index is still being made.
            if len(self._index.documents):
                self._note_neighbours(step)

    def neighbours(self) -> pd.DataFrame:
        """Return the five nearest of at most 20 queries, each time that the index was made."""
        return neighbour_table(self._neighbour_lines)

    def report(self) -> dict[str, float]:
        """Return what the last step drew.

        Shares of the sources, the share that was replaced, and of latent negatives the share of
        neighbours that could be taken.
        """
        return self._report

    def state_dict(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return all it needs to go on elsewhere, as plain JSON values and tensors."""
        tensors = self._index.tensors() | {
            "anchors": torch.from_numpy(self._anchors),
            "known": torch.from_numpy(self._has_anchor),
        }
        return {"noted": self._neighbour_lines}, tensors

    def load_state_dict(self, values: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Go on from what :meth:`state_dict` gave."""
        self._index.load(tensors)
        self._neighbour_lines = values["noted"]
        self._anchors = tensors["anchors"].numpy().copy()
        self._has_anchor = tensors["known"].numpy().copy()

    def _draw_sources(self, chances: Float64s) -> Int64s:
        state = self._curriculum.state
        mix = self._options.mix if state is None or state.mix is None else state.mix
        # A share of 0 must not be drawn, whatever the others are rounded to.
        present = np.flatnonzero(np.array(mix) > 0)
        borders = np.cumsum(np.array(mix)[present])
        places = np.searchsorted(borders, chances * borders[-1], side="right")
        return present[np.minimum(places, len(present) - 1)]

    def _fill_latent(self, latent: Int64s, rows: Int64s) -> None:
        """Write the neighbours that may be taken into [B, K], those of -1 last."""
        lines = np.flatnonzero(self._has_anchor[rows])
        documents, is_usable = self._nearest(rows[lines], _NEAREST)
        neighbour_count = (documents != PADDING).sum()
        self._hit_rate = float(is_usable.sum() / neighbour_count) if neighbour_count else math.nan
        latent[lines] = _present_first(np.where(is_usable, documents, PADDING))

    def _nearest(self, rows: Int64s, count: int) -> tuple[Int64s, Bools]:
        """Return the documents nearest to rows, and which may be taken, [n, count]."""
        places = self._index.search(self._anchors[rows], count)
        documents = np.where(places < 0, PADDING, self._index.documents[places])
        about = self._about[rows, None]
        is_other = (self._stock.about[documents] != about) | (about < 0)
        is_usable = is_other & (documents != PADDING) & ~self._is_excluded(rows, documents)
        return documents, is_usable

    def _note_neighbours(self, step: int) -> None:
        stock = self._stock
        rows = self._reported[self._has_anchor[self._reported]]
        documents, is_usable = self._nearest(rows, _REPORTED_NEIGHBOURS)
        for line, place in np.argwhere(documents != PADDING).tolist():
            row_number = rows[line]
            document = documents[line, place]
            entities = (stock.about[document], self._about[row_number])
            uris = [stock.uris[entity] if entity >= 0 else "" for entity in entities]
            query_id = self._rows[row_number].query_id
            identity = (query_id, place + 1, stock.ids[document], *uris)
            self._neighbour_lines.append([step, *identity, bool(is_usable[line, place])])

    def _is_excluded(self, rows: Int64s, documents: Int64s) -> Bools:
        codes = rows[:, None] * self._stock.documents + documents
        places = np.minimum(np.searchsorted(self._codes, codes), len(self._codes) - 1)
        is_document = (documents != PADDING) & (documents < self._stock.documents)
        return (self._codes[places] == codes) & is_document

    def _excluded_names(self, rows: Int64s, drawn: Int64s) -> list[list[str]]:
        """For each row, names of what the batch holds that must not be its negative."""
        numbers = np.concatenate([drawn[drawn != PADDING], self._positives[rows]])
        origins = self._stock.origin[numbers]
        names_of_origin = defaultdict(set)
        names = self._stock.ids[numbers].tolist()
        for origin, name in zip(origins.tolist(), names, strict=True):
            names_of_origin[origin].add(name)
        lines, documents = self._no_negatives[rows].tocoo().coords
        is_present = np.isin(documents, origins)
        excluded: list[list[str]] = [[] for _ in rows]
        pairs = zip(lines[is_present].tolist(), documents[is_present].tolist(), strict=True)
        for line, document in pairs:
            excluded[line] += names_of_origin[document]
        return excluded


def _no_negatives(rows: Sequence[Row], stock: Stock) -> sparse.csr_array:
    """Documents that are never a negative of a row, bool [rows, D]."""
    positives = _listed([(*row.positive_ids, row.positive_id) for row in rows], stock)
    excluded = _listed([row.excluded_ids for row in rows], stock)
    is_excluded = sparse.csr_array(positives + positives @ stock.related + excluded > 0)
    is_excluded.sort_indices()
    return is_excluded


def _listed(names: Sequence[Iterable[str]], stock: Stock) -> sparse.csr_array:
    pairs = [
        (line, stock.number[name])
        for line, row_names in enumerate(names)
        for name in row_names
        if stock.number.get(name, stock.documents) < stock.documents
    ]
    lines, documents = np.array(pairs, np.int64).reshape(-1, 2).T
    return _incidence(lines, documents, (len(names), stock.documents))


def _incidence(lines: Int64s, columns: Int32s | Int64s, shape: tuple[int, int]) -> sparse.csr_array:
    return sparse.csr_array((np.ones(len(lines), np.int32), (lines, columns)), shape)


def _present_first(numbers: Int64s) -> Int64s:
    order = np.argsort(numbers == PADDING, axis=1, kind="stable")
    return np.take_along_axis(numbers, order, axis=1)


def _shuffled(numbers: Int64s, chances: Float64s) -> Int64s:
    order = np.argsort(np.where(numbers == PADDING, np.inf, chances), axis=1)
    return np.take_along_axis(numbers, order, axis=1)


def _served(numbers: Int64s, is_due: Bools) -> Int64s:
    """Give the k-th slot that is due the k-th number of its row; -1 where there are not so many."""
    width = numbers.shape[1]
    if not width:
        return np.full(is_due.shape, PADDING, np.int64)
    places = np.cumsum(is_due, axis=1) - 1
    served = np.take_along_axis(numbers, np.clip(places, 0, width - 1), axis=1)
    return np.where(places < width, served, PADDING)
