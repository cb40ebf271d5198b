"""Blocks of queries with candidates as aligned arrays, columns of stages, and shards.

Stages add columns; selection sets verdicts and weights. Nothing is removed on the way, so every
candidate keeps what each judge said of it and the name of the step that decided on it. Shards yield
blocks one at a time, with the columns that later stages added to them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from anmi.errors import AnmiError
from anmi.ragged import Bools, Float32s, Int32s, lists, padded_array, read_table, table_bytes

PADDING: Final = -1
# Columns that stages of mining add, so that a name can be checked before they run; steps say
# themselves what they make.
_RETRIEVED: Final = (
    "bm25 bm25_rank dense dense_rank fused coverage match likeness likeness_terms containment"
    " contained"
)
_JUDGED: Final = (
    "facts p_evidence p_relevant cross p_cross soft_label elo elo_se gap_se p_preferred related"
    " consistent positive_rank llm llm_shift"
)
# What a person said of a candidate: 0 where it was marked as not relevant; it is there only where
# there are marks.
MARKED: Final = "marked"
# The grade by a language model, and by how much it, or what was learned from others, moved the
# log-odds of relevance.
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

# Measurements by the prefix that their names have in files: of candidates, of positives, of whole
# queries.
PREFIXES: Final = {"c.": "columns", "p.": "positive_columns", "q.": "query_columns"}
Kind = Literal["unwanted", "unsafe", "uncertain", "promoted"]


class Rule(NamedTuple):
    """What stands behind a verdict.

    Attributes
    ----------
    text
        The rule with its threshold, such as ``dense ≥ 0.95 of the positive's``; empty where the
        name says it all.
    kind
        ``unwanted``: not the kind of negative that was asked for; ``unsafe``: may be relevant;
        ``uncertain``: fit for distillation only; ``promoted``: so surely relevant that it serves as
        a positive.
    in_batch
        True where the verdict rests on relevance being judged, or on a copy, so that the candidate
        is no negative of this query in a training batch either. That a score is close to the
        positive's is not enough: without all such documents a batch teaches less.
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
        Document indexes of the known positives that are measured, int32 [Q, P], padded with -1; of
        many some are drawn. The first is the one that bars relative to "the positive" go by: of
        those measured the median by similarity.
    documents
        Document indexes of the candidates, int32 [Q, M], padded with -1; never a positive, no
        repeats in a row.
    columns
        Measurements of the candidates by name, float32 [Q, M]; NaN where missing.
    positive_columns
        The same measurements of the positives, float32 [Q, P].
    query_columns
        Measurements of whole queries, float32 [Q] (for example ``positive_rank``).
    source
        Bit-mask of :data:`SOURCES`, uint8 [Q, M].
    verdict
        Index into ``legend``, int16 [Q, M]: 0 undecided, 1 negative, above that the step that
        rejected it.
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
    positives: Int32s
    documents: Int32s
    source: NDArray[np.uint8]
    columns: dict[str, Float32s] = field(default_factory=dict)
    positive_columns: dict[str, Float32s] = field(default_factory=dict)
    query_columns: dict[str, Float32s] = field(default_factory=dict)
    verdict: NDArray[np.int16] = field(default_factory=lambda: np.zeros((0, 0), np.int16))
    weight: Float32s = field(default_factory=lambda: np.zeros((0, 0), np.float32))
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
        wrong += [
            name
            for name, column in self.positive_columns.items()
            if column.shape != self.positives.shape
        ]
        if wrong or self.source.shape != shape or len(self.query_ids) != shape[0]:
            raise ValueError(
                f"arrays do not fit a block of shape {shape}: {wrong or 'source or query_ids'}"
            )

    def __len__(self) -> int:
        return len(self.query_ids)

    @property
    def filled(self) -> Bools:
        """True where a slot holds a candidate, [Q, M]."""
        return self.documents != PADDING

    @property
    def undecided(self) -> Bools:
        """True where a candidate of a kept query is still in play, [Q, M]."""
        return self.filled & (self.verdict == OPEN) & (self.query_verdict == OPEN)[:, None]

    @property
    def negatives(self) -> Bools:
        """True where a candidate was selected as a negative, [Q, M]."""
        return self.filled & (self.verdict == NEGATIVE)

    def with_columns(
        self,
        columns: Mapping[str, NDArray[Any]] | None = None,
        positive_columns: Mapping[str, NDArray[Any]] | None = None,
        query_columns: Mapping[str, NDArray[Any]] | None = None,
    ) -> Candidates:
        """Return a block with measurements added (or replaced)."""
        added = dict(
            zip(PREFIXES.values(), (columns, positive_columns, query_columns), strict=True)
        )
        measurements = {
            kind: getattr(self, kind)
            | {name: np.asarray(column, np.float32) for name, column in (new_columns or {}).items()}
            for kind, new_columns in added.items()
        }
        return replace(self, **measurements)

    def of_kind(self, *kinds: Kind) -> Bools:
        """True where a candidate carries a verdict of one of these kinds, [Q, M]."""
        return self._under_rules(lambda rule: rule.kind in kinds)

    @property
    def excluded_in_batch(self) -> Bools:
        """True where a candidate may be no negative in a training batch either, [Q, M]."""
        return self._under_rules(lambda rule: rule.in_batch)

    def _under_rules(self, condition: Callable[[Rule], bool]) -> Bools:
        codes = [self.legend.index(name) for name, rule in self.rules.items() if condition(rule)]
        return self.filled & np.isin(self.verdict, codes)

    def rejected(
        self,
        step: str,
        mask: Bools,
        rule: str = "",
        kind: Kind = "unwanted",
        in_batch: bool = False,
    ) -> Candidates:
        """Return a block in which undecided candidates under ``mask`` [Q, M] have a verdict.

        Where the name stands for another rule already, as with two steps of one kind, a number is
        added to it.
        """
        legend, code, rules = self._code(step, Rule(rule, kind, in_batch))
        verdict = np.where(mask & self.undecided, np.int16(code), self.verdict)
        return replace(self, verdict=verdict, legend=legend, rules=rules)

    def dropped(
        self,
        step: str,
        mask: Bools,
        rule: str = "",
    ) -> Candidates:
        """Return a block in which kept queries under ``mask`` [Q] carry the verdict ``step``."""
        legend, code, rules = self._code(step, Rule(rule))
        verdict = np.where(mask & (self.query_verdict == OPEN), np.int16(code), self.query_verdict)
        return replace(self, query_verdict=verdict, legend=legend, rules=rules)

    def _code(self, step: str, rule: Rule) -> tuple[tuple[str, ...], int, dict[str, Rule]]:
        name = step
        number = 1
        while name in self.legend and self.rules.get(name, Rule()) != rule:
            number += 1
            name = f"{step} {number}"
        legend = self.legend if name in self.legend else (*self.legend, name)
        return legend, legend.index(name), self.rules | {name: rule}

    def _under(self, legend: tuple[str, ...]) -> Candidates:
        """Return the block with its verdicts numbered by a legend that holds all their names."""
        if self.legend == legend:
            return self
        code = np.array([legend.index(name) for name in self.legend], np.int16)
        return replace(
            self,
            verdict=code[self.verdict],
            query_verdict=code[self.query_verdict],
            legend=legend,
        )

    def take(self, rows: NDArray[Any] | slice) -> Candidates:
        """Return the given rows (an index array, a mask or a slice) as a block."""
        arrays: dict[str, Any] = {name: getattr(self, name)[rows] for name in _ALL}
        measured = each_kind(
            lambda columns: {name: column[rows] for name, column in columns.items()}, self
        )
        return replace(self, **arrays, **measured)

    def only(self, names: Collection[str]) -> Candidates:
        """Return the block without other measurements than these."""
        measured = each_kind(
            lambda columns: {name: column for name, column in columns.items() if name in names},
            self,
        )
        return replace(self, **measured)

    @staticmethod
    def concatenate(blocks: Sequence[Candidates]) -> Candidates:
        """Stack blocks of the same columns, padding narrower ones; verdicts keep their names."""
        legend = tuple(dict.fromkeys(name for block in blocks for name in block.legend))
        rules = {name: rule for block in blocks for name, rule in block.rules.items()}
        blocks = [block._under(legend) for block in blocks]

        padding = dict.fromkeys(("positives", "documents"), PADDING)
        arrays: dict[str, Any] = {
            name: stacked([getattr(block, name) for block in blocks], padding.get(name, 0))
            for name in _ALL
        }

        def stacked_columns(*columns: dict[str, Any]) -> dict[str, Any]:
            return {name: stacked([part[name] for part in columns]) for name in columns[0]}

        measured = each_kind(stacked_columns, *blocks)
        return Candidates(**arrays, **measured, legend=legend, rules=rules)

    def to_table(self) -> pa.Table:
        """Return the block as an Arrow table: a row for each query, lists without padding."""
        arrays: dict[str, pa.Array] = {"query_id": pa.array(self.query_ids.tolist(), pa.string())}
        arrays["positives"] = lists(self.positives, self.positives != PADDING)
        arrays |= {name: lists(getattr(self, name), self.filled) for name in _ARRAYS}
        arrays |= {"query_verdict": pa.array(self.query_verdict)} | to_lists(self, self)
        metadata = {
            _LEGEND_KEY: "\x1f".join(self.legend).encode(),
            _RULES_KEY: json.dumps(self.rules).encode(),
        }
        return pa.table(arrays).replace_schema_metadata(metadata)

    def to_bytes(self) -> bytes:
        """Return the block as the bytes of a Parquet file; equal blocks give equal bytes."""
        return table_bytes(self.to_table())

    @staticmethod
    def from_table(table: pa.Table) -> Candidates:
        """Rebuild a block from :meth:`to_table`; without rows, too, it has a first positive."""
        metadata = table.schema.metadata
        rules = json.loads(metadata.get(_RULES_KEY, b"{}"))
        arrays: dict[str, Any] = {
            name: padded_array(table.column(name), PADDING if name == "documents" else 0)
            for name in _ARRAYS
        }
        return Candidates(
            query_ids=np.array(table.column("query_id").to_pylist(), dtype=np.str_),
            positives=padded_array(table.column("positives"), PADDING, min_width=1),
            query_verdict=table.column("query_verdict").to_numpy(),
            legend=tuple(metadata[_LEGEND_KEY].decode().split("\x1f")),
            rules={name: Rule(*rule) for name, rule in rules.items()},
            **arrays,
            **from_lists(table),
        )


def widened(
    values: NDArray[Any],
    width: int,
    padding: float = np.nan,
) -> NDArray[Any]:
    """Return the first ``width`` columns of an array; those that it lacks are padding."""
    values = values[:, :width]
    return np.pad(values, ((0, 0), (0, width - values.shape[1])), constant_values=padding)


def stacked(parts: Sequence[NDArray[Any]], padding: float = np.nan) -> NDArray[Any]:
    """Put the rows of several arrays together, padding narrower ones."""
    if parts[0].ndim == 1:
        return np.concatenate(parts)
    width = max(part.shape[1] for part in parts)
    return np.concatenate([widened(part, width, padding) for part in parts])


def each_kind(function: Callable[..., dict[str, Any]], *blocks: Any) -> dict[str, Any]:
    """Apply a function to the measurements of each kind, see :data:`PREFIXES`."""
    return {
        kind: function(*(getattr(block, kind) for block in blocks)) for kind in PREFIXES.values()
    }


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
    measured: dict[str, Any] = {kind: {} for kind in PREFIXES.values()}
    for name in table.column_names:
        if (prefix := name[:2]) in PREFIXES:
            column = table.column(name)
            measured[PREFIXES[prefix]][name[2:]] = (
                column.to_numpy()
                if prefix == "q."
                else padded_array(column, np.nan, min_width=int(prefix == "p."))
            )
    return measured


_OF_KEY: Final = b"anmi.of"
Layer: TypeAlias = bytes | Path | pa.Table | Candidates
"""Candidates or columns of one block: a file, its bytes or its table, or the block itself."""
Layers: TypeAlias = tuple[Layer, ...]


def as_bytes(layer: Layer) -> bytes:
    """Return a layer as the bytes of a Parquet file."""
    if isinstance(layer, bytes):
        return layer
    if isinstance(layer, Path):
        return layer.read_bytes()
    return layer.to_bytes() if isinstance(layer, Candidates) else table_bytes(layer)


def _table(layer: bytes | Path | pa.Table) -> pa.Table:
    return layer if isinstance(layer, pa.Table) else read_table(layer)


def _narrowed(layer: Layer, names: Sequence[str]) -> pa.Table | Candidates:
    """Return a layer without other measurements than these; nothing else is read from a file."""
    if isinstance(layer, Candidates):
        return layer.only(names)

    def chosen(stored: list[str]) -> list[str]:
        return [name for name in stored if name[:2] not in PREFIXES or name[2:] in names]

    return (
        layer.select(chosen(layer.column_names))
        if isinstance(layer, pa.Table)
        else read_table(layer, chosen)
    )


def block_of(layers: Layers) -> Candidates:
    """Put a block together from what retrieval found and the columns that stages added to it."""
    first, *added = layers
    block = first if isinstance(first, Candidates) else Candidates.from_table(_table(first))
    for layer in added:
        block = Columns.from_table(_table(layer)).onto(block)
    return block


@dataclass(frozen=True)
class Part:
    """A written file: its name, its queries, and the hash of its bytes, as :func:`hash_file`'s."""

    name: str
    rows: int
    digest: str


def _write(parts: Iterable[bytes], folder: Path) -> list[Part]:
    """Write parts into a folder under their numbers."""
    written = []
    for number, data in enumerate(parts):
        name = f"part-{number:05d}.parquet"
        rows = pq.read_metadata(pa.BufferReader(data)).num_rows
        (folder / name).write_bytes(data)
        written.append(Part(name, rows, hashlib.blake2b(data, digest_size=16).hexdigest()))
    return written


@dataclass(frozen=True)
class Columns:
    """Measurements that a stage adds to one block.

    Attributes
    ----------
    columns, positive_columns, query_columns
        As those of :class:`Candidates`.
    of
        Digest of the block's queries and candidates; empty where only some of the block was read.

    Examples
    --------
    >>> documents = np.array([[3, 1], [2, -1]], np.int32)
    >>> source = np.ones((2, 2), np.uint8)
    >>> block = Candidates(np.array(["a", "b"]), documents[:, :1], documents, source)
    >>> judged = block.with_columns({"cross": np.array([[0.5, 1.0], [0.25, np.nan]])})
    >>> added = Columns.from_table(read_table(Columns.added(block, judged).to_bytes(block)))
    >>> added.onto(block).columns["cross"].tolist()
    [[0.5, 1.0], [0.25, nan]]
    """

    columns: dict[str, Float32s] = field(default_factory=dict)
    positive_columns: dict[str, Float32s] = field(default_factory=dict)
    query_columns: dict[str, Float32s] = field(default_factory=dict)
    of: str = ""

    @staticmethod
    def added(before: Candidates, after: Candidates) -> Columns:
        """Return the columns of ``after`` that ``before`` lacks or has with other values."""

        def new(now: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
            return {name: values for name, values in now.items() if old.get(name) is not values}

        return Columns(**each_kind(new, after, before), of=digest_of(before))

    def onto(self, block: Candidates) -> Candidates:
        """Return the block with these columns.

        Raises
        ------
        AnmiError
            They were made for other candidates.
        """
        if self.of and self.of != digest_of(block):
            names = [*self.columns, *self.positive_columns, *self.query_columns, "a column"]
            raise AnmiError(
                f'"{names[0]}" was measured for other candidates than those it was to be joined'
                " with: run the stages of mining again, from the first one that changed"
            )
        return block.with_columns(
            {name: _placed(values, block.filled) for name, values in self.columns.items()},
            {
                name: _placed(values, block.positives != PADDING)
                for name, values in self.positive_columns.items()
            },
            self.query_columns,
        )

    def to_bytes(self, block: Candidates) -> bytes:
        """Return the columns as the bytes of a Parquet file, without the padding of their block."""
        return table_bytes(
            pa.table(to_lists(self, block)).replace_schema_metadata({_OF_KEY: self.of.encode()})
        )

    @staticmethod
    def from_table(table: pa.Table) -> Columns:
        """Rebuild the columns from a file of :meth:`to_bytes`."""
        return Columns(
            **from_lists(table), of=(table.schema.metadata or {}).get(_OF_KEY, b"").decode()
        )


def digest_of(block: Candidates) -> str:
    """Return a hash of queries, positives, candidates and their places: 16 hexadecimal digits."""
    state = hashlib.blake2b(
        "\x1f".join(block.query_ids.tolist()).encode(errors="surrogatepass"), digest_size=8
    )
    for documents in (block.positives, block.documents):
        filled = documents != PADDING
        state.update(np.ascontiguousarray(filled.sum(axis=1), np.int64).tobytes())
        state.update(np.ascontiguousarray(documents[filled], np.int32).tobytes())
    return state.hexdigest()


def _placed(values: Float32s, held: Bools) -> Float32s:
    """Return stored values, which have no padding inside a row, where a block has its documents."""
    stored = np.arange(values.shape[1]) < held.sum(axis=1)[:, None]
    if np.array_equal(stored, held):
        return values
    placed = np.full(held.shape, np.nan, np.float32)
    placed[held] = values[stored]
    return placed


class ColumnShards:
    """The columns that a stage adds, one part a block; none where it had nothing to add.

    Parameters
    ----------
    parts
        Makes the parts as :meth:`Columns.to_bytes` writes them.
    files
        Where they are files; then each pass reads them again.
    """

    def __init__(
        self,
        parts: Callable[[], Iterable[Layer]] | None = None,
        files: Sequence[Path] = (),
    ) -> None:
        self.layers: Callable[[], Iterable[Layer]] = parts or (lambda: files)
        self._some = bool(parts or files)

    def __bool__(self) -> bool:
        return self._some

    def parts(self) -> Iterator[bytes]:
        """Yield the part of each block."""
        return map(as_bytes, self.layers())

    def save(self, folder: Path) -> list[Part]:
        """Write the parts into a folder, one after the other."""
        return _write(self.parts(), folder)


class CandidateShards:
    """Blocks of queries that are read, or made, one at a time.

    Holds a function that makes the blocks, or the layers of each, so memory is bounded by a shard
    whatever the number of queries; files are read again at each pass.

    Examples
    --------
    >>> len(list(CandidateShards(lambda: iter([]))))
    0
    """

    def __init__(
        self,
        blocks: Callable[[], Iterable[Layer | Layers]],
        files: Sequence[Path] | None = None,
    ) -> None:
        self._blocks = blocks
        self.files = files

    @staticmethod
    def of(blocks: Sequence[Candidates]) -> CandidateShards:
        """Wrap blocks that are in memory already."""
        return CandidateShards(lambda: blocks)

    @staticmethod
    def read(files: Sequence[Path]) -> CandidateShards:
        """Read shards from Parquet files, in the order given."""
        return CandidateShards(lambda: files, files)

    def save(self, folder: Path) -> list[Part]:
        """Write the blocks into a folder, one after the other."""
        return _write(self.parts(), folder)

    def layers(self) -> Iterator[Layers]:
        """Yield what :func:`block_of` puts each block together from; files are not read for it."""
        return (block if isinstance(block, tuple) else (block,) for block in self._blocks())

    def parts(self) -> Iterator[bytes]:
        """Yield each block as :meth:`Candidates.to_bytes` writes it, without decoding files."""
        for layers in self.layers():
            yield as_bytes(layers[0]) if len(layers) == 1 else block_of(layers).to_bytes()

    def __iter__(self) -> Iterator[Candidates]:
        return map(block_of, self.layers())

    def joined(self, *added: ColumnShards) -> CandidateShards:
        """Return the blocks with the columns that stages added, by position.

        Raises
        ------
        AnmiError
            When read: the columns are of other candidates.
        """
        some = [columns for columns in added if columns]
        return CandidateShards(lambda: _side_by_side(self, some)) if some else self

    def map(self, function: Callable[[Candidates], Candidates]) -> CandidateShards:
        """Return shards on which ``function`` is applied as they are read."""
        return CandidateShards(lambda: map(function, self))

    def only(self, *names: str) -> CandidateShards:
        """Return shards without other measurements than these; of files, nothing else is read."""
        return CandidateShards(
            lambda: (
                tuple(_narrowed(layer, names) for layer in layers) for layers in self.layers()
            ),
            self.files,
        )

    def whole(self) -> Candidates:
        """Return all shards as one block; for small collections and tests."""
        return Candidates.concatenate(list(self))


def _side_by_side(blocks: CandidateShards, added: Sequence[ColumnShards]) -> Iterator[Layers]:
    for layers, *parts in zip_longest(blocks.layers(), *(columns.layers() for columns in added)):
        if layers is None or any(part is None for part in parts):
            raise AnmiError(
                "columns and candidates that were to be joined are not of the same number of"
                " shards: run the stages of mining again, from the first one that changed"
            )
        yield (*layers, *parts)
