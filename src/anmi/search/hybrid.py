"""Parts are fused into one search, which is saved as a folder that needs nothing else."""

from __future__ import annotations

import importlib.metadata
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd

from anmi import __version__
from anmi.candidates import PADDING
from anmi.corpus.related import documents_of, hits_of, result_passages
from anmi.errors import AnmiError, nearest
from anmi.ragged import Bools, Float32s, Int32s, in_rows
from anmi.retrieval.fusion import (
    DEPTH,
    Fused,
    Method,
    Ranked,
    aligned,
    alone,
    best_documents,
    comparable,
    equal,
    fuse,
    mixed,
)
from anmi.retrieval.pool import without
from anmi.search.folder import AGENTS, README, read_settings, rendered, seal
from anmi.search.parts import BM25, Part

log = logging.getLogger(__name__)


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
    ranks, scores
        What each part says, by its name; None where the document is not among the best that the
        part was asked for.
    copies
        Ids of other documents with the same text.
    """

    rank: int
    document_id: str
    passage_id: str
    title: str
    text: str
    score: float
    ranks: dict[str, int | None] = field(default_factory=dict)
    scores: dict[str, float | None] = field(default_factory=dict)
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
            table = _columns(self._source.iloc[list(rows)])
            records: Any = table.to_dict("records")
            return dict(zip(rows, records, strict=True))
        texts: dict[int, dict[str, str]] = {}
        for group in sorted({row // _GROUP for row in rows}):
            try:
                table = self._file.read_row_group(group)
            except OSError as error:
                raise AnmiError(
                    f"{self._source} is damaged ({error}): export or copy the search again"
                ) from error
            for row in set(rows):
                if row // _GROUP == group:
                    (texts[row],) = table.slice(row - group * _GROUP, 1).to_pylist()
        return texts

    @cached_property
    def ids(self) -> list[str]:
        """Ids of the passages, in the order of the corpus."""
        return [str(name) for name in self._places["document_id"]]

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


class PartLists(NamedTuple):
    """What the parts of a search rank best for Q queries.

    Attributes
    ----------
    documents
        By part; documents stand for themselves by their first passage.
    passages
        By part the best passage of each document, int32 [Q, k].
    spreads
        By part what its scores are divided by to be compared, float32 [Q].
    """

    documents: dict[str, Ranked]
    passages: dict[str, Int32s]
    spreads: dict[str, Float32s]


HYBRID: Final = "hybrid"
# The encoder that training began with.
ZERO_SHOT: Final = "zero_shot"
_PACKAGES: Final = ("sentence-transformers", "bm25s", "faiss-cpu")
_DOCUMENTS: Final = "documents.parquet"


class HybridSearch:
    """A search over a corpus by several parts, and by all of them together.

    Made by :meth:`build`, or :meth:`load` of a folder that :meth:`save` wrote.

    Attributes
    ----------
    parts
        By name, in the order in which they are shown.
    settings
        ``method``, ``weights`` and ``depth`` of :func:`anmi.retrieval.fusion.fuse`, ``versions``,
        and what :meth:`build` was told of the collection and the fit.
    folder
        Where it was loaded from; None where it was built.

    Raises
    ------
    AnmiError
        There is no part, two have one name, or they are not of the same passages.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        documents: Documents | pd.DataFrame,
        settings: Mapping[str, Any],
    ) -> None:
        self.parts = {part.name: part for part in parts}
        self.settings = dict(settings)
        self.folder: Path | None = None
        self._documents = documents if isinstance(documents, Documents) else Documents(documents)
        if not parts:
            raise AnmiError("the search has no part: name at least one in search.parts")
        if len(self.parts) < len(parts):
            names = [part.name for part in parts]
            twice = next(name for name in names if names.count(name) > 1)
            raise AnmiError(f'two parts of the search are called "{twice}": give each its own name')
        if {part.passages for part in parts} != {len(documents)}:
            counts = ", ".join(f"{name} {part.passages:,}" for name, part in self.parts.items())
            raise AnmiError(
                "the parts of the search do not belong together, since they index different"
                f" numbers of passages ({counts}; {len(documents):,} have a text): export the"
                " search again"
            )

    @staticmethod
    def build(
        parts: Sequence[Part],
        corpus: pd.DataFrame,
        *,
        weights: Mapping[str, float] | None = None,
        method: Method = "convex",
        depth: int = DEPTH,
        about: Mapping[str, Any] | None = None,
    ) -> HybridSearch:
        """Put a search together.

        Parameters
        ----------
        parts
            Of the corpus.
        corpus
            ``document_id, parent, title, text`` of N documents or passages.
        weights, method, depth
            See :func:`anmi.retrieval.fusion.fuse`; ``depth`` documents of each part are fused.
        about
            Noted in the folder.
        """
        settings = {
            **(about or {}),
            "method": method,
            "weights": dict(weights or equal({part.name: 0 for part in parts})),
            "depth": depth,
            "documents": documents_of(corpus).nunique(),
            "passages": len(corpus),
            "versions": {"anmi": __version__}
            | {name: importlib.metadata.version(name) for name in _PACKAGES},
        }
        return HybridSearch(parts, corpus, settings)

    def save(self, path: Path) -> None:
        """Write the search into the folder ``path``, which is empty or absent, with a README."""
        path.mkdir(parents=True, exist_ok=True)
        for name, part in self.parts.items():
            part.save(path / name)
        self._documents.save(path / _DOCUMENTS)
        settings = dict(self.settings)
        settings.pop("files", None)
        settings.pop("format", None)
        settings["parts"] = [part.about for part in self.parts.values()]
        indexes = {name: part.index.settings for name, part in self.parts.items()}
        variables = {"collection": None, "indexes": indexes, **settings}
        text = rendered(README, **variables)
        (path / README).write_text(text, encoding="utf-8")
        trained = [about for about in settings["parts"] if about["kind"] != BM25]
        if trained:
            part = trained[0]
            text = rendered(AGENTS, part=part, index=indexes[part["name"]])
            (path / AGENTS).write_text(text, encoding="utf-8")
        seal(path, settings)

    @staticmethod
    def load(path: Path | str) -> HybridSearch:
        """Open a folder; encoders and the texts of documents are read when they are needed.

        A part of which a file is missing or damaged is left out with a warning.

        Raises
        ------
        AnmiError
            The folder is not whole, or is damaged, so that nothing can be searched.
        """
        folder = Path(path)
        settings, damaged = read_settings(folder)
        weights = settings["weights"]
        are_shares = all(0 <= weight <= 1 for weight in weights.values())
        if not are_shares or not math.isclose(sum(weights.values()), 1):
            raise AnmiError(
                f"{folder / 'hybrid.json'} has the weights {weights}; numbers from 0 to 1 that add"
                " up to 1 were expected: export it again (`kedro run --pipelines evaluation`)"
            )
        usable = [about for about in settings["parts"] if about["name"] not in damaged]
        if damaged and not usable:
            raise AnmiError(next(iter(damaged.values())))
        for name, problem in damaged.items():
            log.warning('The search goes on without its part "%s": %s', name, problem)
        parts = [Part.load(folder / about["name"], about) for about in usable]
        settings["weights"] = shares(weights, {part.name: part for part in parts})
        search = HybridSearch(parts, Documents(folder / _DOCUMENTS), settings)
        search.folder = folder
        return search

    @property
    def document_ids(self) -> list[str]:
        """Of the passages, in the order of the corpus."""
        return self._documents.ids

    @property
    def megabytes(self) -> dict[str, float]:
        """By part the size of index and model in the folder; empty for a search from none."""
        sizes = dict.fromkeys(self.parts, 0)
        for file, facts in self.settings.get("files", {}).items():
            name = file.partition("/")[0]
            if name in sizes:
                sizes[name] += facts["bytes"]
        return {name: size / 1e6 for name, size in sizes.items() if size}

    def search(
        self,
        queries: Sequence[str] | str,
        k: int = 10,
        system: str = HYBRID,
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
            ``hybrid``, or the name of one of the :attr:`parts`.

        Raises
        ------
        AnmiError
            An empty question, k below 1, an unknown system, or no part can be asked.
        """
        questions = [queries] if isinstance(queries, str) else list(queries)
        if system not in (systems := (HYBRID, *self.parts)):
            raise AnmiError(f'unknown system "{system}"; {nearest(system, systems)}')
        if k < 1:
            raise AnmiError(f"k is {k}, and a search returns at least 1 document")
        for number, text in enumerate(questions, start=1):
            if not text.strip():
                raise AnmiError(f"question {number} is empty: ask something")
        if not questions:
            return []
        if system == HYBRID:
            return self.hits(self.ranked(questions, k))
        # What the other parts say of its hits is shown beside it.
        lists = self.lists(questions, max(k, self.settings["depth"]), needed=system)
        return self.hits(with_passages(alone(lists.documents, system, k), lists.passages))

    def ranked(
        self,
        queries: Sequence[str],
        k: int,
        system: str = HYBRID,
    ) -> Fused:
        """Return the rows of the best passages of the best documents, [Q, k], see :meth:`fused`."""
        is_hybrid = system == HYBRID
        depth = self.settings["depth"] if is_hybrid else k
        lists = self.lists(queries, depth, None if is_hybrid else (system,))
        fused = self.fused(lists, k) if is_hybrid else fuse(lists.documents, k)
        return with_passages(fused, lists.passages)

    def by_system(
        self, query: str, k: int, start: tuple[Ranked, Int32s] | None = None
    ) -> dict[str, list[Hit]]:
        """Return what each part and the hybrid find for a query, with what all parts say of it.

        ``start`` are the best documents and passages by the encoder before training, which come
        first as ``zero_shot``.
        """
        lists = self.lists([query], max(k, self.settings["depth"]))
        hybrid = self.fused(lists, k)
        if start is not None:
            lists.documents[ZERO_SHOT], lists.passages[ZERO_SHOT] = start
        names = sorted(lists.documents, key=lambda name: name != ZERO_SHOT)
        rankings = {name: alone(lists.documents, name, k) for name in names} | {HYBRID: hybrid}
        return {
            system: self.hits(with_passages(ranking, lists.passages))[0]
            for system, ranking in rankings.items()
        }

    def lists(
        self,
        queries: Sequence[str],
        depth: int,
        names: Sequence[str] | None = None,
        excluded: Int32s | None = None,
        needed: str = HYBRID,
    ) -> PartLists:
        """Return what parts of the search rank best, whether it is measured or deployed.

        Parameters
        ----------
        queries
            Q texts.
        depth
            Documents per query and part, at most.
        names
            Of some of the :attr:`parts`. None: all of them that can be asked; one whose model or
            package is not here is left out with a warning, unless it is the one ``needed``.
        excluded
            A document of each query that is not a result, int32 [Q], -1 where there is none.

        Raises
        ------
        AnmiError
            A part that was named cannot be asked, or none can.
        """
        lists = PartLists({}, {}, {})
        for name in names or tuple(self.parts):
            try:
                search, lists.spreads[name] = self.parts[name].search_of(queries)
            except (AnmiError, ModuleNotFoundError) as error:
                problem = f'the part "{name}" of the search cannot be asked ({error})'
                if names or name == needed or len(self.parts) == 1:
                    raise AnmiError(
                        f"{problem}: install what it lacks, or export it again"
                    ) from error
                log.warning("%s and is left out", problem)
                del self.parts[name]
                continue
            lists.documents[name], lists.passages[name] = best_documents(
                search, self.first, max(depth, 1), excluded
            )
        return lists

    @property
    def first(self) -> Int32s:
        """The first passage of the document of each passage, int32 [N]; -1 for copies."""
        return self._documents.results

    def fused(self, lists: PartLists, k: int) -> Fused:
        """Fuse the best documents of all parts, as deep as this search does."""
        depth = max(self.settings["depth"], 1)
        tops = {}
        for name, ranked in lists.documents.items():
            tops[name] = ranked.top(depth)
        weights = shares(self.settings["weights"], tops)
        return fuse(tops, k, lists.spreads, self.settings["method"], weights)

    def hits(self, fused: Fused) -> list[list[Hit]]:
        """Return ranked passages with their texts, query by query."""
        documents = np.unique(fused.documents[fused.documents != PADDING])
        texts = self.texts(documents.tolist())
        ranks = {part: _known(values, int) for part, values in fused.part_ranks.items()}
        scores = {part: _known(values, float) for part, values in fused.part_scores.items()}

        def hit(row: int, place: int, document: int) -> Hit:
            return Hit(
                **texts[document],
                rank=place + 1,
                score=float(fused.scores[row, place]),
                ranks={part: values[row][place] for part, values in ranks.items()},
                scores={part: values[row][place] for part, values in scores.items()},
                copies=self._documents.copies.get(texts[document]["document_id"], ()),
            )

        return [
            [
                hit(row, place, document)
                for place, document in enumerate(documents)
                if document != PADDING
            ]
            for row, documents in enumerate(fused.documents.tolist())
        ]

    def texts(self, rows: list[int]) -> dict[int, dict[str, str]]:
        """Return ``document_id, passage_id, title, text`` of passages, by their corpus rows."""
        return {
            row: {
                "document_id": columns["parent"],
                "passage_id": columns["document_id"],
                "title": columns["title"],
                "text": columns["text"],
            }
            for row, columns in self._documents[rows].items()
        }


def best_candidates(
    parts: Sequence[Part],
    weights: Mapping[str, float],
    queries: Sequence[str],
    positives: Int32s,
    *,
    excluded: Int32s,
    usable: Bools,
    depth: int,
    count: int,
) -> Ranked:
    """Return what a search teaches an encoder: each query's positive, then the best candidates.

    A positive may have all words of its pseudo-query, so BM25 scores it no higher than the best
    candidate. Its fused score is never below that of a candidate: the query asks for the positive.

    Parameters
    ----------
    parts
        Of N passages.
    weights
        By name of the part.
    queries
        Q texts.
    positives
        The relevant passage of each, int32 [Q].
    excluded
        Passages that are no candidates of a query, int32 [Q, K], padded with -1.
    usable
        Which passages may be candidates of any query, [N].
    depth
        Passages of each part that are fused.
    count
        Candidates of a query, at most.
    """
    # A list without weight, so that the positive stands among what is scored.
    no_scores = np.zeros((len(positives), 1), np.float32)
    lists = {"": Ranked(positives[:, None], no_scores)}
    spreads = {}
    for part in parts:
        search, spreads[part.name] = part.search_of(queries)
        lists[part.name] = search(depth)
    union = aligned(lists)
    scores = comparable(union, lists, spreads)
    candidates = without(union.documents, excluded)
    candidates = np.where(usable[candidates], candidates, PADDING)
    is_candidate = candidates != PADDING
    is_positive = union.documents == positives[:, None]
    candidate_scores = np.where(is_candidate, scores[BM25], 0)
    best = candidate_scores.max(axis=1, keepdims=True)
    bounded = np.minimum(scores[BM25], best)
    scores[BM25] = np.where(is_positive, bounded, scores[BM25])
    part_scores = [scores[name] for name in weights]
    fused = mixed([*weights.values()], part_scores)
    fused = np.where(is_candidate | is_positive, fused, -np.inf)
    positive_scores = fused.max(axis=1)
    falling = np.where(is_candidate, -fused, np.inf)
    order = np.argsort(falling, kind="stable")[:, :count]
    return Ranked(
        np.column_stack([positives, in_rows(candidates, order)]),
        np.column_stack([positive_scores, in_rows(fused, order)]),
    )


def shares(weights: Mapping[str, float], parts: Mapping[str, Any]) -> dict[str, float]:
    """Return the weights of some parts, scaled to add up to 1; equal where all are 0.

    Examples
    --------
    >>> shares({"bm25": 0.25, "dense": 0.5, "network": 0.25}, {"bm25": 0, "network": 0})
    {'bm25': 0.5, 'network': 0.5}
    """
    total = sum(weights.get(name, 0.0) for name in parts)
    if not total:
        return equal(parts)
    return {name: weights.get(name, 0.0) / total for name in parts}


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
    table = []
    for row in values.tolist():
        numbers = [None if np.isnan(value) else kind(value) for value in row]
        table.append(numbers)
    return table
