"""A block holds queries and their candidates as aligned arrays.

Stages add columns; selection sets verdicts and weights. Nothing is removed on the way, so every candidate
keeps what each judge said of it and the name of the step that decided on it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anmi.ragged import lists, padded_array, table_bytes

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
_ALL: Final = ("query_ids", "positives", "query_verdict", *_ARRAYS)

# Measurements by the prefix that their names have in files: of candidates, of positives, of whole queries.
PREFIXES: Final = {"c.": "columns", "p.": "positive_columns", "q.": "query_columns"}
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
        given = dict(zip(PREFIXES.values(), (columns, positive_columns, query_columns), strict=True))
        return replace(self, **{
            kind: getattr(self, kind) | {name: np.asarray(column, np.float32) for name, column in (new or {}).items()}
            for kind, new in given.items()
        })  # fmt: skip

    def of_kind(self, *kinds: Kind) -> NDArray[np.bool_]:
        """True where a candidate carries a verdict of one of these kinds, [Q, M]."""
        return self._under_rules(lambda rule: rule.kind in kinds)

    @property
    def excluded_in_batch(self) -> NDArray[np.bool_]:
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
        arrays: dict[str, Any] = {name: getattr(self, name)[rows] for name in _ALL}
        taken = each_kind(lambda columns: {name: column[rows] for name, column in columns.items()}, self)
        return replace(self, **arrays, **taken)

    def only(self, names: Collection[str]) -> Candidates:
        """Return the block without other measurements than these."""
        kept = each_kind(lambda columns: {name: column for name, column in columns.items() if name in names}, self)
        return replace(self, **kept)

    @staticmethod
    def concatenate(blocks: Sequence[Candidates]) -> Candidates:
        """Stack blocks of the same columns, padding narrower ones; verdicts keep their names."""
        legend = tuple(dict.fromkeys(name for block in blocks for name in block.legend))
        rules = {name: rule for block in blocks for name, rule in block.rules.items()}
        blocks = [block._under(legend) for block in blocks]

        padding = dict.fromkeys(("positives", "documents"), PADDING)
        arrays: dict[str, Any] = {
            name: stacked([getattr(block, name) for block in blocks], padding.get(name, 0)) for name in _ALL
        }
        measured = each_kind(lambda *of: {name: stacked([each[name] for each in of]) for name in of[0]}, *blocks)
        return Candidates(**arrays, **measured, legend=legend, rules=rules)

    def to_table(self) -> pa.Table:
        """Return the block as an Arrow table: one row per query, padding trimmed, lists of equal length in a row."""
        arrays: dict[str, pa.Array] = {"query_id": pa.array(self.query_ids.tolist(), pa.string())}
        arrays["positives"] = lists(self.positives, self.positives != PADDING)
        arrays |= {name: lists(getattr(self, name), self.filled) for name in _ARRAYS}
        arrays |= {"query_verdict": pa.array(self.query_verdict)} | to_lists(self, self)
        metadata = {_LEGEND_KEY: "\x1f".join(self.legend).encode(), _RULES_KEY: json.dumps(self.rules).encode()}
        return pa.table(arrays).replace_schema_metadata(metadata)

    def to_bytes(self) -> bytes:
        """Return the block as the bytes of a Parquet file; equal blocks give equal bytes."""
        return table_bytes(self.to_table())

    @staticmethod
    def from_table(table: pa.Table) -> Candidates:
        """Rebuild a block from :meth:`to_table`; there is a column for the first positive even without rows."""
        metadata = table.schema.metadata
        rules = json.loads(metadata.get(_RULES_KEY, b"{}"))
        arrays: dict[str, Any] = {
            name: padded_array(table.column(name), PADDING if name == "documents" else 0) for name in _ARRAYS
        }
        return Candidates(
            query_ids=np.array(table.column("query_id").to_pylist(), dtype=np.str_),
            positives=padded_array(table.column("positives"), PADDING, least=1),
            query_verdict=table.column("query_verdict").to_numpy(),
            legend=tuple(metadata[_LEGEND_KEY].decode().split("\x1f")),
            rules={name: Rule(*rule) for name, rule in rules.items()},
            **arrays,
            **from_lists(table),
        )


def widened(values: NDArray[Any], width: int, padding: float = np.nan) -> NDArray[Any]:
    """Return the first ``width`` columns of an array; those that it lacks are padding."""
    values = values[:, :width]
    return np.pad(values, ((0, 0), (0, width - values.shape[1])), constant_values=padding)


def stacked(parts: Sequence[NDArray[Any]], padding: float = np.nan) -> NDArray[Any]:
    """Put the rows of several arrays together, padding narrower ones."""
    if parts[0].ndim == 1:
        return np.concatenate(parts)
    width = max(part.shape[1] for part in parts)
    return np.concatenate([widened(part, width, padding) for part in parts])


def each_kind(function: Callable[..., dict[str, Any]], *of: Any) -> dict[str, Any]:
    """Apply a function to the measurements of each kind (see :data:`PREFIXES`) that blocks or columns have."""
    return {kind: function(*(getattr(each, kind) for each in of)) for kind in PREFIXES.values()}


def to_lists(columns: Any, block: Candidates) -> dict[str, pa.Array]:
    """Return the measurements of a block, or of columns for it, as they are stored."""
    filled = {"c.": block.filled, "p.": block.positives != PADDING}
    return {
        prefix + name: lists(values, filled[prefix]) if prefix in filled else pa.array(values)
        for prefix, kind in PREFIXES.items()
        for name, values in getattr(columns, kind).items()
    }


def from_lists(table: pa.Table) -> dict[str, Any]:
    """Return what :func:`to_lists` stored, by kind."""
    found: dict[str, Any] = {kind: {} for kind in PREFIXES.values()}
    for name in table.column_names:
        if (prefix := name[:2]) in PREFIXES:
            column = table.column(name)
            values = column.to_numpy() if prefix == "q." else padded_array(column, np.nan, prefix == "p.")
            found[PREFIXES[prefix]][name[2:]] = values
    return found
