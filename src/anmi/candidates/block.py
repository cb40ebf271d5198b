"""The central type: a block of queries with their candidates as aligned arrays.

Stages add columns; selection sets verdicts and weights. Nothing is removed on the way, so every candidate
keeps what each judge said of it and the name of the step that decided on it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anmi.ragged import lists, padded_array, read_table, table_bytes

PADDING: Final = -1
# Columns that stages of mining add, so that a name can be checked before they run; steps say themselves what they make.
_RETRIEVED: Final = "bm25 bm25_rank dense dense_rank fused coverage match likeness likeness_terms containment contained"
_JUDGED: Final = (
    "facts p_evidence p_relevant cross p_cross soft_label elo elo_se gap_se p_preferred related consistent "
    "positive_rank llm llm_shift"
)
# What a person said of a candidate: 0 where it was marked as not relevant; it is there only where there are marks.
MARKED: Final = "marked"
# The grade by a language model, and by how much it, or what was learned from others, moved the log-odds of relevance.
GRADE: Final = "llm"
SHIFT: Final = "llm_shift"
MEASURED: Final = frozenset([*_RETRIEVED.split(), *_JUDGED.split(), "consistent", "positive_rank"])
SOURCES: Final = {"bm25": 1, "dense": 2, "graph": 4, "random": 8}
OPEN: Final = 0
NEGATIVE: Final = 1
_FIRST_LEGEND: Final = ("open", "negative")
_LEGEND_KEY: Final = b"anmi.legend"
_RULES_KEY: Final = b"anmi.rules"
_ARRAYS: Final = ("documents", "source", "verdict", "weight")

Kind = Literal["unwanted", "unsafe", "uncertain", "promoted"]


class Rule(NamedTuple):
    """What stands behind a verdict.

    Attributes
    ----------
    text
        The rule with its threshold, such as ``dense ≥ 0.95 of the positive's``; empty where the name says it all.
    kind
        ``unwanted``: not the kind of negative that was asked for; ``unsafe``: may be relevant; ``uncertain``: fit for
        distillation only; ``promoted``: so surely relevant that it serves as a positive.
    in_batch
        True where the verdict rests on relevance being judged, or on a copy, so that the candidate is no negative of
        this query in a training batch either. That a score is close to the positive's is not enough: without all
        such documents a batch teaches less.
    """

    text: str = ""
    kind: Kind = "unwanted"
    in_batch: bool = False


@dataclass(frozen=True)
class Candidates:
    """Q queries with up to M candidates each.

    Attributes
    ----------
    query_ids
        Q identifiers; a query stands once, however many positives it has.
    positives
        Document indexes of the known positives that are measured, int32 [Q, P], padded with -1; of many some are drawn.
        The first is the one that bars relative to "the positive" go by: of those measured the median by similarity.
    documents
        Document indexes of the candidates, int32 [Q, M], padded with -1; never a positive, no repeats in a row.
    columns
        Measurements of the candidates by name, float32 [Q, M]; NaN where missing.
    positive_columns
        The same measurements of the positives, float32 [Q, P].
    query_columns
        Measurements of whole queries, float32 [Q] (for example ``positive_rank``).
    source
        Bit-mask of :data:`SOURCES`, uint8 [Q, M].
    verdict
        Index into ``legend``, int16 [Q, M]: 0 undecided, 1 negative, above that the step that rejected it.
    weight
        Weight of each candidate as a negative in [0, 1], float32 [Q, M].
    query_verdict
        Index into ``legend``, int16 [Q]: 0 kept, otherwise the step that dropped the query.
    legend
        Names of the verdicts.
    rules
        What stands behind a verdict, by its name.
    """

    query_ids: NDArray[np.str_]
    positives: NDArray[np.int32]
    documents: NDArray[np.int32]
    source: NDArray[np.uint8]
    columns: dict[str, NDArray[np.float32]] = field(default_factory=dict)
    positive_columns: dict[str, NDArray[np.float32]] = field(default_factory=dict)
    query_columns: dict[str, NDArray[np.float32]] = field(default_factory=dict)
    verdict: NDArray[np.int16] = field(default_factory=lambda: np.zeros((0, 0), np.int16))
    weight: NDArray[np.float32] = field(default_factory=lambda: np.zeros((0, 0), np.float32))
    query_verdict: NDArray[np.int16] = field(default_factory=lambda: np.zeros(0, np.int16))
    legend: tuple[str, ...] = _FIRST_LEGEND
    rules: dict[str, Rule] = field(default_factory=dict)

    def __post_init__(self) -> None:
        shape = self.documents.shape
        if self.verdict.shape != shape:
            object.__setattr__(self, "verdict", np.zeros(shape, np.int16))
        if self.weight.shape != shape:
            object.__setattr__(self, "weight", np.ones(shape, np.float32))
        if self.query_verdict.shape != shape[:1]:
            object.__setattr__(self, "query_verdict", np.zeros(shape[0], np.int16))
        wrong = [name for name, column in self.columns.items() if column.shape != shape]
        wrong += [name for name, column in self.positive_columns.items() if column.shape != self.positives.shape]
        if wrong or self.source.shape != shape or len(self.query_ids) != shape[0]:
            raise ValueError(f"arrays do not fit a block of shape {shape}: {wrong or 'source or query_ids'}")

    def __len__(self) -> int:
        return len(self.query_ids)

    @property
    def filled(self) -> NDArray[np.bool_]:
        """True where a slot holds a candidate, [Q, M]."""
        return self.documents != PADDING

    @property
    def undecided(self) -> NDArray[np.bool_]:
        """True where a candidate of a kept query is still in play, [Q, M]."""
        return self.filled & (self.verdict == OPEN) & (self.query_verdict == OPEN)[:, None]

    @property
    def negatives(self) -> NDArray[np.bool_]:
        """True where a candidate was selected as a negative, [Q, M]."""
        return self.filled & (self.verdict == NEGATIVE)

    def with_columns(
        self,
        columns: Mapping[str, NDArray[Any]] | None = None,
        positive_columns: Mapping[str, NDArray[Any]] | None = None,
        query_columns: Mapping[str, NDArray[Any]] | None = None,
    ) -> Candidates:
        """Return a block with measurements added (or replaced)."""

        def merged(old: dict[str, NDArray[np.float32]], new: Mapping[str, NDArray[Any]] | None) -> Any:
            return old | {name: np.asarray(column, np.float32) for name, column in (new or {}).items()}

        return replace(
            self,
            columns=merged(self.columns, columns),
            positive_columns=merged(self.positive_columns, positive_columns),
            query_columns=merged(self.query_columns, query_columns),
        )

    def of_kind(self, *kinds: Kind) -> NDArray[np.bool_]:
        """True where a candidate carries a verdict of one of these kinds, [Q, M]."""
        return self._under_rules(lambda rule: rule.kind in kinds)

    @property
    def barred_in_batch(self) -> NDArray[np.bool_]:
        """True where a candidate may be no negative of its query in a training batch either, [Q, M]."""
        return self._under_rules(lambda rule: rule.in_batch)

    def _under_rules(self, wanted: Callable[[Rule], bool]) -> NDArray[np.bool_]:
        codes = [self.legend.index(name) for name, rule in self.rules.items() if wanted(rule)]
        return self.filled & np.isin(self.verdict, codes)

    def rejected(
        self, step: str, mask: NDArray[np.bool_], rule: str = "", kind: Kind = "unwanted", in_batch: bool = False
    ) -> Candidates:
        """Return a block in which the undecided candidates under ``mask`` [Q, M] carry the verdict ``step``.

        Where the name stands for another rule already, as with two steps of one kind, a number is added to it.
        """
        legend, code, rules = self._code(step, Rule(rule, kind, in_batch))
        verdict = np.where(mask & self.undecided, np.int16(code), self.verdict)
        return replace(self, verdict=verdict, legend=legend, rules=rules)

    def dropped(self, step: str, mask: NDArray[np.bool_], rule: str = "") -> Candidates:
        """Return a block in which the still kept queries under ``mask`` [Q] carry the verdict ``step``."""
        legend, code, rules = self._code(step, Rule(rule))
        verdict = np.where(mask & (self.query_verdict == OPEN), np.int16(code), self.query_verdict)
        return replace(self, query_verdict=verdict, legend=legend, rules=rules)

    def _code(self, step: str, rule: Rule) -> tuple[tuple[str, ...], int, dict[str, Rule]]:
        name, number = step, 1
        while name in self.legend and self.rules.get(name, Rule()) != rule:
            number += 1
            name = f"{step} {number}"
        legend = self.legend if name in self.legend else (*self.legend, name)
        return legend, legend.index(name), self.rules | {name: rule}

    def _under(self, legend: tuple[str, ...]) -> Candidates:
        """Return the block with its verdicts numbered by another legend that holds all of their names."""
        if self.legend == legend:
            return self
        code = np.array([legend.index(name) for name in self.legend], np.int16)
        return replace(self, verdict=code[self.verdict], query_verdict=code[self.query_verdict], legend=legend)

    def take(self, rows: NDArray[Any] | slice) -> Candidates:
        """Return the given rows (an index array, a mask or a slice) as a block."""
        return replace(
            self,
            query_ids=self.query_ids[rows],
            positives=self.positives[rows],
            query_verdict=self.query_verdict[rows],
            columns={name: column[rows] for name, column in self.columns.items()},
            positive_columns={name: column[rows] for name, column in self.positive_columns.items()},
            query_columns={name: column[rows] for name, column in self.query_columns.items()},
            **{name: getattr(self, name)[rows] for name in _ARRAYS},
        )

    def only(self, names: Collection[str]) -> Candidates:
        """Return the block without other measurements than these."""

        def kept(columns: dict[str, NDArray[np.float32]]) -> dict[str, NDArray[np.float32]]:
            return {name: values for name, values in columns.items() if name in names}

        return replace(
            self,
            columns=kept(self.columns),
            positive_columns=kept(self.positive_columns),
            query_columns=kept(self.query_columns),
        )

    def of_source(self, source: str) -> Candidates:
        """Return only what one of :data:`SOURCES` found, the best rank by it first; nothing where it was not asked."""
        given = self.columns.get(f"{source}_rank", np.full(self.documents.shape, np.inf, np.float32))
        rank = np.where((self.source & SOURCES[source]) > 0, given, np.inf)
        order = np.argsort(rank, axis=1, kind="stable")
        order = order[:, : int(np.isfinite(rank).sum(axis=1).max(initial=0))]
        found = np.isfinite(np.take_along_axis(rank, order, axis=1))

        def taken(values: NDArray[Any], padding: float) -> NDArray[Any]:
            return np.where(found, np.take_along_axis(values, order, axis=1), padding).astype(values.dtype)

        return replace(
            self,
            documents=taken(self.documents, PADDING),
            source=taken(self.source, 0),
            verdict=taken(self.verdict, 0),
            weight=taken(self.weight, 0),
            columns={name: taken(column, np.nan) for name, column in self.columns.items()},
        )

    @staticmethod
    def concatenate(blocks: Sequence[Candidates]) -> Candidates:
        """Stack blocks of the same columns, padding narrower ones; verdicts keep their names."""
        legend = tuple(dict.fromkeys(name for block in blocks for name in block.legend))
        rules = {name: rule for block in blocks for name, rule in block.rules.items()}
        blocks = [block._under(legend) for block in blocks]
        width = max(block.documents.shape[1] for block in blocks)
        positives = max(block.positives.shape[1] for block in blocks)
        fill = {"documents": PADDING, "source": 0, "verdict": 0, "weight": 0.0}

        def stack(values: Iterable[NDArray[Any]], columns: int, padding: float) -> NDArray[Any]:
            return np.concatenate(
                [np.pad(v, ((0, 0), (0, columns - v.shape[1])), constant_values=padding) for v in values]
            )

        first = blocks[0]
        return Candidates(
            query_ids=np.concatenate([block.query_ids for block in blocks]),
            positives=stack((block.positives for block in blocks), positives, PADDING),
            query_verdict=np.concatenate([block.query_verdict for block in blocks]),
            columns={n: stack((b.columns[n] for b in blocks), width, np.nan) for n in first.columns},
            positive_columns={
                n: stack((b.positive_columns[n] for b in blocks), positives, np.nan) for n in first.positive_columns
            },
            query_columns={n: np.concatenate([b.query_columns[n] for b in blocks]) for n in first.query_columns},
            legend=legend,
            rules=rules,
            **{name: stack((getattr(b, name) for b in blocks), width, fill[name]) for name in _ARRAYS},
        )

    def to_table(self) -> pa.Table:
        """Return the block as an Arrow table: one row per query, padding trimmed, lists of equal length in a row."""
        filled, known = self.filled, self.positives != PADDING
        arrays: dict[str, pa.Array] = {"query_id": pa.array(self.query_ids.tolist(), pa.string())}
        arrays["positives"] = lists(self.positives, known)
        arrays |= {name: lists(getattr(self, name), filled) for name in _ARRAYS}
        arrays["query_verdict"] = pa.array(self.query_verdict)
        arrays |= {f"c.{name}": lists(column, filled) for name, column in self.columns.items()}
        arrays |= {f"p.{name}": lists(column, known) for name, column in self.positive_columns.items()}
        arrays |= {f"q.{name}": pa.array(column) for name, column in self.query_columns.items()}
        metadata = {_LEGEND_KEY: "\x1f".join(self.legend).encode(), _RULES_KEY: json.dumps(self.rules).encode()}
        return pa.table(arrays).replace_schema_metadata(metadata)

    def to_bytes(self) -> bytes:
        """Return the block as the bytes of a Parquet file; equal blocks give equal bytes."""
        return table_bytes(self.to_table())

    @staticmethod
    def from_bytes(data: bytes) -> Candidates:
        """Rebuild a block from :meth:`to_bytes`."""
        return Candidates.from_table(read_table(data))

    @staticmethod
    def from_table(table: pa.Table) -> Candidates:
        """Rebuild a block from :meth:`to_table`; there is a column for the first positive even without rows."""
        names = table.column_names
        metadata = table.schema.metadata
        legend = tuple(metadata[_LEGEND_KEY].decode().split("\x1f"))
        rules = {name: Rule(*rule) for name, rule in json.loads(metadata.get(_RULES_KEY, b"{}")).items()}

        def padded(name: str, padding: float, least: int = 0) -> NDArray[Any]:
            return padded_array(table.column(name), padding, least)

        return Candidates(
            query_ids=np.array(table.column("query_id").to_pylist(), dtype=np.str_),
            positives=padded("positives", PADDING, least=1),
            documents=padded("documents", PADDING),
            source=padded("source", 0),
            verdict=padded("verdict", 0),
            weight=padded("weight", 0.0),
            query_verdict=table.column("query_verdict").to_numpy(),
            columns={n[2:]: padded(n, np.nan) for n in names if n.startswith("c.")},
            positive_columns={n[2:]: padded(n, np.nan, least=1) for n in names if n.startswith("p.")},
            query_columns={n[2:]: table.column(n).to_numpy() for n in names if n.startswith("q.")},
            legend=legend,
            rules=rules,
        )


def stored_columns(stored: Sequence[str], names: Collection[str] | None) -> list[str] | None:
    """Return which columns of a file to read for some measurements; None, for all of them, where all are wanted."""
    if names is None:
        return None
    return [name for name in stored if name[:2] not in ("c.", "p.", "q.") or name[2:] in names]
