"""BM25 and trained retrievers form one search, saved as a folder that needs nothing else."""

from __future__ import annotations

import importlib.metadata
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, cast

import numpy as np
import pandas as pd

from anmi import __version__
from anmi.candidates import PADDING
from anmi.corpus.related import documents_of, hits_of, result_passages
from anmi.errors import AnmiError, nearest
from anmi.ragged import Float32s, Int32s
from anmi.retrieval.bm25 import BM25Index
from anmi.retrieval.fusion import (
    DEPTH,
    Fused,
    Method,
    Ranked,
    Search,
    alone,
    best_documents,
    equal,
    fuse,
)
from anmi.retrieval.index import Index, SparseIndex, Vectors, build_index, load_index, term_table
from anmi.search.folder import COMPANION, README, copy_model, read_settings, rendered, seal


@dataclass(frozen=True)
class Hit:
    """A document that was found.

    Attributes
    ----------
    rank
        From 1.
    document_id, title, text
        Of the document; where it was cut, title and text of the passage that answers.
    passage_id
        Of that passage; that of the document where it was not cut.
    score
        By which it was ranked; compares documents of one query only.
    bm25_rank, bm25_score, dense_rank, dense_score, sparse_rank, sparse_score
        What each part says; None where the search has no such part, or the document is not among
        the best that the part was asked for.
    copies
        Ids of other documents with the same text.
    """

    rank: int
    document_id: str
    passage_id: str
    title: str
    text: str
    score: float
    bm25_rank: int | None = None
    bm25_score: float | None = None
    dense_rank: int | None = None
    dense_score: float | None = None
    sparse_rank: int | None = None
    sparse_score: float | None = None
    copies: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return everything by name, for JSON."""
        return asdict(self) | {"copies": list(self.copies)}


# The parent is the document that a passage belongs to, and `copy_of` the first one of its text.
COLUMNS: Final = ("document_id", "parent", "copy_of", "title", "text")
_PLACES: Final = COLUMNS[:3]
# What is read for one document: few enough for a look, enough to compress well.
_GROUP: Final = 500


class Documents:
    """The documents or passages of a search; a file is read only as far as it is asked for.

    Parameters
    ----------
    source
        A table ``document_id, parent, title, text``, or the Parquet file that :meth:`save` wrote.
    """

    def __init__(self, source: pd.DataFrame | Path) -> None:
        self._source = source

    def __len__(self) -> int:
        return (
            int(self._file.metadata.num_rows)
            if isinstance(self._source, Path)
            else len(self._source)
        )

    def __getitem__(self, rows: Sequence[int]) -> dict[int, dict[str, str]]:
        """Return ``document_id, parent, title, text`` by row, of the rows asked for."""
        if not isinstance(self._source, Path):
            records: Any = _columns(self._source.iloc[list(rows)]).to_dict("records")
            return dict(zip(rows, records, strict=True))
        texts: dict[int, dict[str, str]] = {}
        for group in sorted({row // _GROUP for row in rows}):
            try:
                table = self._file.read_row_group(group)
            except OSError as error:
                raise AnmiError(
                    f"{self._source} is damaged ({error}): export or copy the search again"
                ) from error
            in_group = [row for row in set(rows) if row // _GROUP == group]
            texts |= {row: table.slice(row - group * _GROUP, 1).to_pylist()[0] for row in in_group}
        return texts

    @cached_property
    def results(self) -> Int32s:
        """The first passage of the document of each passage, int32 [N]; -1 for copies."""
        return result_passages(self._places)

    @cached_property
    def copies(self) -> dict[str, tuple[str, ...]]:
        """Ids of the other documents with the same text, by the id of the first."""
        places = self._places
        pairs = pd.DataFrame({"first": hits_of(places), "copy": documents_of(places)})
        pairs = pairs[pairs["first"] != pairs["copy"]].drop_duplicates()
        groups = pairs.groupby("first", sort=False)["copy"]
        return {str(first): tuple(group) for first, group in groups}

    @property
    def _places(self) -> pd.DataFrame:
        if not isinstance(self._source, Path):
            return self._source
        columns = [name for name in _PLACES if name in self._file.schema_arrow.names]
        return self._file.read(columns).to_pandas()

    def save(self, path: Path) -> None:
        """Write the :data:`COLUMNS` as Parquet, in groups that are read one by one."""
        if isinstance(self._source, Path):
            path.write_bytes(self._source.read_bytes())
            return
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pa.Table.from_pandas(_columns(self._source), preserve_index=False)
        pq.write_table(table, path, row_group_size=_GROUP, write_page_checksum=True)

    @cached_property
    def _file(self) -> Any:
        import pyarrow.parquet as pq

        return pq.ParquetFile(self._source, memory_map=True, page_checksum_verification=True)


def _columns(corpus: pd.DataFrame) -> pd.DataFrame:
    places = {"parent": documents_of(corpus), "copy_of": hits_of(corpus)}
    return corpus.assign(**places)[list(COLUMNS)].astype(str)


Encode = Callable[[Sequence[str]], Any]


Kind = Literal["dense", "sparse"]
# Where models lie in the folder of a search.
MODELS: Final = ("model", COMPANION)


class PartLists(NamedTuple):
    """What the parts of a search rank best for Q queries.

    Attributes
    ----------
    documents
        By part; documents stand for themselves by their first passage.
    passages
        By part the best passage of each document, int32 [Q, k].
    bm25_spread
        Standard deviation of BM25's scores of all passages, float32 [Q]; 1 without BM25.
    """

    documents: dict[str, Ranked]
    passages: dict[str, Int32s]
    bm25_spread: Float32s


class Encoded(NamedTuple):
    """What a search is made of, of each retriever.

    Attributes
    ----------
    model
        Folder of the trained sentence-transformers model.
    embeddings
        Of the documents by the model: vectors, float32 [N, D], or a sparse retriever's, [N,
        V].
    spread
        What its scores are divided by to be compared, see
        :func:`anmi.retrieval.index.spread_of_scores`.
    """

    model: Path
    embeddings: Vectors
    spread: float


@dataclass
class Retriever:
    """A trained retriever and its index.

    Attributes
    ----------
    model
        Folder of the sentence-transformers model.
    index
        Of its vectors, of either :attr:`kind`.
    how
        ``max_length``, ``precision`` and ``batch_size`` that texts are encoded with.
    """

    model: Path
    index: Index
    how: Mapping[str, Any] = field(repr=False)

    @property
    def kind(self) -> Kind:
        """What the model gives: a direction, or weights of terms."""
        return "sparse" if isinstance(self.index, SparseIndex) else "dense"

    @cached_property
    def encode(self) -> Encode:
        """From queries to their vectors, of a sparse retriever to terms, with the model's own prompt.

        Raises
        ------
        AnmiError
            The folder holds more than data, or no such model.
        """
        from anmi.retrieval.encoders import cached_encoder, encode
        from anmi.retrieval.model_folder import check_folder

        check_folder(self.model)
        if (terms := term_table(self.model)) is not None:
            return terms
        model = cached_encoder(str(self.model), self.model.parent, self.how["max_length"])
        options: dict[str, Any] = {name: self.how[name] for name in ("precision", "batch_size")}
        return lambda texts: encode(model, texts, role="query", **options)

    def search_of(self, queries: Sequence[str]) -> Search:
        """Return the search for some queries, from a number of passages to the best ones."""
        vectors = self.encode(queries)
        return lambda count: Ranked(*self.index.search(vectors, count))


def companion_of(model: Path) -> list[Path]:
    """Return the folder of the retriever that was trained beside a model, none where there is none."""
    folder = model / COMPANION
    return [folder] if folder.is_dir() else []


System = Literal["hybrid", "bm25", "dense", "sparse"]
SYSTEMS: Final = ("hybrid", "bm25", "dense", "sparse")
_PACKAGES: Final = ("sentence-transformers", "bm25s", "faiss-cpu")
_BM25: Final = "bm25"
_DOCUMENTS: Final = "documents.parquet"


class HybridSearch:
    """A search over a corpus by BM25, by one or two trained retrievers, and by all of them together.

    Made by :meth:`build`, or :meth:`load` of a folder that :meth:`save` wrote.

    Attributes
    ----------
    retrievers
        By kind, ``dense`` or ``sparse``; the first is the one that the run is named after.
    settings
        ``method``, ``weights`` and ``depth`` of :func:`anmi.retrieval.fusion.fuse`, ``spreads`` by
        kind, ``encoder`` (how models are run), ``versions``, and what :meth:`build` was told of the
        collection and the fit.
    """

    def __init__(
        self,
        bm25: BM25Index,
        retrievers: Sequence[Retriever],
        documents: Documents | pd.DataFrame,
        settings: Mapping[str, Any],
    ) -> None:
        self.bm25 = bm25
        self.retrievers: dict[Kind, Retriever] = {
            retriever.kind: retriever for retriever in retrievers
        }
        self.settings = dict(settings)
        self._documents = documents if isinstance(documents, Documents) else Documents(documents)
        if len(self.retrievers) < len(retrievers):
            raise AnmiError(
                f"two {retrievers[0].kind} retrievers were given, and a search has one dense and"
                " one sparse one at most"
            )
        for kind, retriever in self.retrievers.items():
            counted = retriever.index.settings["documents"]
            if not len(documents) == bm25.settings["documents"] == counted:
                raise AnmiError(
                    "the parts of the search do not belong together: BM25 knows"
                    f" {bm25.settings['documents']} documents, the {kind} index {counted}, and"
                    f" {len(documents)} have a text; export the search again"
                )

    @staticmethod
    def build(
        bm25: BM25Index,
        corpus: pd.DataFrame,
        parts: Sequence[Encoded],
        *,
        encoder: Mapping[str, Any],
        weights: Mapping[str, float] | None = None,
        method: Method = "convex",
        depth: int = DEPTH,
        index: str = "flat",
        about: Mapping[str, Any] | None = None,
    ) -> HybridSearch:
        """Put a search together.

        Parameters
        ----------
        bm25
            Of the corpus.
        corpus
            ``document_id, parent, title, text`` of N documents or passages.
        parts
            A trained retriever, or a dense and a sparse one.
        encoder
            ``max_length``, ``precision`` and ``batch_size`` that the documents were encoded with.
        weights, method, depth
            See :func:`anmi.retrieval.fusion.fuse`; ``depth`` documents of each part are fused.
        index
            Kind of the dense index, see :meth:`anmi.retrieval.index.DenseIndex.build`.
        about
            Noted in the folder.

        Raises
        ------
        AnmiError
            Both retrievers are of the same kind.
        """
        ids = corpus.document_id.tolist()
        retrievers = [
            Retriever(part.model, build_index(part.embeddings, ids, index), encoder)
            for part in parts
        ]
        spreads: dict[str, float] = {
            retriever.kind: part.spread for retriever, part in zip(retrievers, parts, strict=True)
        }
        settings = {
            **(about or {}),
            "method": method,
            "weights": dict(weights or equal({_BM25: 0, **spreads})),
            "depth": depth,
            "spreads": spreads,
            "encoder": dict(encoder),
            "documents": documents_of(corpus).nunique(),
            "passages": len(corpus),
            "versions": {"anmi": __version__}
            | {name: importlib.metadata.version(name) for name in _PACKAGES},
        }
        return HybridSearch(bm25, retrievers, corpus, settings)

    def save(self, path: Path) -> None:
        """Write the search into the folder ``path``, which is empty or not there; its README says how to use it."""
        path.mkdir(parents=True, exist_ok=True)
        (path / _BM25).mkdir()
        self.bm25.save(path / _BM25)
        places = []
        for model, (kind, retriever) in zip(MODELS, self.retrievers.items(), strict=False):
            (path / kind).mkdir()
            retriever.index.save(path / kind)
            copy_model(retriever.model, path / model)
            places.append({"kind": kind, "model": model, "index": kind})
        self._documents.save(path / _DOCUMENTS)
        settings = {
            name: value for name, value in self.settings.items() if name not in ("files", "format")
        }
        settings["retrievers"] = places
        exact = all(
            part.index.settings["kind"] in ("flat", "inverted") for part in self.retrievers.values()
        )
        normalised = "mean_length" not in self.main.index.settings
        about = {"collection": None, "exact": exact, "normalised": normalised, **settings}
        text = rendered("README", **about)
        (path / README).write_text(text, encoding="utf-8")
        seal(path, settings)

    @staticmethod
    def load(path: Path | str) -> HybridSearch:
        """Open a folder; encoders and the texts of documents are read when they are needed.

        Raises
        ------
        AnmiError
            The folder is not whole, or is damaged.
        """
        folder = Path(path)
        settings = read_settings(folder)
        weights = settings["weights"]
        if not all(0 <= weight <= 1 for weight in weights.values()) or not math.isclose(
            sum(weights.values()), 1
        ):
            raise AnmiError(
                f"{folder / 'hybrid.json'} has the weights {weights}; numbers from 0 to 1 that add"
                " up to 1 were expected: export it again (`kedro run --pipelines evaluation`)"
            )
        retrievers = [
            Retriever(
                folder / place["model"], load_index(folder / place["index"]), settings["encoder"]
            )
            for place in settings["retrievers"]
        ]
        return HybridSearch(
            BM25Index.load(folder / _BM25), retrievers, Documents(folder / _DOCUMENTS), settings
        )

    @property
    def main(self) -> Retriever:
        """The retriever that the run is named after."""
        return next(iter(self.retrievers.values()))

    @property
    def document_ids(self) -> list[str]:
        """Of the corpus, in its order."""
        return self.main.index.document_ids

    def search(
        self, queries: Sequence[str] | str, k: int = 10, system: System = "hybrid"
    ) -> list[list[Hit]]:
        """Return the best documents of each query.

        Parameters
        ----------
        queries
            Questions; a single text is one.
        k
            Documents per query, at most. ``hybrid`` fuses lists of :attr:`settings` ``depth`` and
            has no more.
        system
            ``hybrid``, ``bm25``, or the kind of one of the :attr:`retrievers`.

        Raises
        ------
        AnmiError
            An empty question, k below 1, or an unknown system.
        """
        questions = [queries] if isinstance(queries, str) else list(queries)
        if system not in (systems := ("hybrid", _BM25, *self.retrievers)):
            raise AnmiError(f'unknown system "{system}"; {nearest(system, systems)}')
        if k < 1:
            raise AnmiError(f"k is {k}, and a search returns at least 1 document")
        if blank := [place for place, text in enumerate(questions, start=1) if not text.strip()]:
            raise AnmiError(f"question {blank[0]} is empty: ask something")
        if not questions:
            return []
        return self.hits(self.ranked(questions, k, system))

    def ranked(self, queries: Sequence[str], k: int, system: System = "hybrid") -> Fused:
        """Return the rows of the best passages of the best documents, [Q, k], see :meth:`fused`."""
        is_hybrid = system == "hybrid"
        depth = self.settings["depth"] if is_hybrid else k
        parts = self.parts if is_hybrid else (system,)
        lists = self.lists(queries, depth, parts)
        fused = self.fused(lists, k) if is_hybrid else fuse(lists.documents, k)
        return with_passages(fused, lists.passages)

    def by_system(self, query: str, k: int) -> dict[str, list[Hit]]:
        """Return what each part and the hybrid find for a query, with what all parts say of it."""
        lists = self.lists([query], max(k, self.settings["depth"]))
        rankings = {part: alone(lists.documents, part, k) for part in self.parts}
        rankings["hybrid"] = self.fused(lists, k)
        return {
            system: self.hits(with_passages(ranking, lists.passages))[0]
            for system, ranking in rankings.items()
        }

    def lists(
        self,
        queries: Sequence[str],
        depth: int,
        parts: Sequence[str] | None = None,
        excluded: Int32s | None = None,
    ) -> PartLists:
        """Return what parts of the search rank best, whether it is measured or deployed.

        Parameters
        ----------
        queries
            Q texts.
        depth
            Documents per query and part, at most.
        parts
            Some of :attr:`parts`; None: all of them.
        excluded
            A document of each query that is not a result, int32 [Q], -1 where there is none.
        """
        documents: dict[str, Ranked] = {}
        passages: dict[str, Int32s] = {}
        spread = np.ones(len(queries), np.float32)
        for part in parts or self.parts:
            if part == _BM25:
                search, spread = self.bm25.search_of(queries)
            else:
                search = self.retrievers[cast(Kind, part)].search_of(queries)
            documents[part], passages[part] = best_documents(
                search, self.first, max(depth, 1), excluded
            )
        return PartLists(documents, passages, spread)

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of what is fused: ``bm25`` and the kinds of the retrievers."""
        return (_BM25, *self.retrievers)

    @property
    def first(self) -> Int32s:
        """The first passage of the document of each passage, int32 [N]; -1 for copies."""
        return self._documents.results

    def fused(self, lists: PartLists, k: int) -> Fused:
        """Fuse the best documents of all parts, as deep as this search does."""
        depth = max(self.settings["depth"], 1)
        tops = {part: ranked.top(depth) for part, ranked in lists.documents.items()}
        spreads = {_BM25: lists.bm25_spread, **self.settings["spreads"]}
        return fuse(tops, k, spreads, self.settings["method"], self.settings["weights"])

    def hits(self, found: Fused) -> list[list[Hit]]:
        """Return ranked passages with their texts, query by query."""
        texts = self.texts(np.unique(found.documents[found.documents != PADDING]).tolist())
        parts = {f"{part}_rank": _known(values, int) for part, values in found.part_ranks.items()}
        parts |= {
            f"{part}_score": _known(values, float) for part, values in found.part_scores.items()
        }
        parts["score"] = found.scores.tolist()

        def hit(row: int, place: int, document: int) -> Hit:
            figures = {name: values[row][place] for name, values in parts.items()}
            copies = self._documents.copies.get(texts[document]["document_id"], ())
            return Hit(**{"rank": place + 1, **texts[document], **figures}, copies=copies)

        return [
            [
                hit(row, place, document)
                for place, document in enumerate(documents)
                if document != PADDING
            ]
            for row, documents in enumerate(found.documents.tolist())
        ]

    def texts(self, rows: list[int]) -> dict[int, dict[str, str]]:
        """Return ``document_id``, ``passage_id``, ``title`` and ``text`` of passages, by their rows in the corpus."""
        return {
            row: {
                "document_id": columns["parent"],
                "passage_id": columns["document_id"],
                "title": columns["title"],
                "text": columns["text"],
            }
            for row, columns in self._documents[rows].items()
        }


def with_passages(fused: Fused, passages: Mapping[str, Int32s]) -> Fused:
    """Return a ranking with the passage of each document that the part ranking it best found best.

    Parameters
    ----------
    fused
        Documents, [Q, k].
    passages
        By part the best passage of each document that it lists, int32 [Q, depth].
    """
    best_rank = np.full(fused.documents.shape, np.inf, np.float32)
    answering = fused.documents.copy()
    for part, ranks in fused.part_ranks.items():
        is_better = ranks < best_rank
        query = np.nonzero(is_better)[0]
        place = ranks[is_better].astype(np.int64) - 1
        answering[is_better] = passages[part][query, place]
        best_rank[is_better] = ranks[is_better]
    return fused._replace(documents=answering)


def _known(values: Float32s, kind: type[int] | type[float]) -> list[list[Any]]:
    """Return values [Q, k] as numbers of a kind, with None in the place of NaN."""
    return [[None if np.isnan(value) else kind(value) for value in row] for row in values.tolist()]
