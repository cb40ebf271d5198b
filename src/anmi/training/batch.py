"""From training rows to the tensors of one step: its documents, and what they weigh for a row."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import pandas as pd
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from anmi.errors import AnmiError
from anmi.ragged import Float32s, Int64s
from anmi.retrieval.encoders import Role
from anmi.retrieval.kinds import check_tokens_per_pass, is_dot, is_sparse, passes
from anmi.retrieval.tokens import Tokeniser
from anmi.training.parts import TEACHER

COLUMNS: Final = (
    "query_id",
    "query",
    "positive_id",
    "positive",
    "negative_ids",
    "negatives",
    "weights",
    "query_weight",
    "positive_ids",
)


@dataclass(frozen=True)
class Row:
    """One (query, positive) pair with its mined negatives, best first.

    Attributes
    ----------
    judged
        By column name, what judges said of the positive, and of each negative.
    hardness
        Of the query, in [0, 1]; NaN where training does not ask for it.
    about
        Number of the entity that the positive is about; -1 where it is about none, or training does
        not ask for it.
    """

    query_id: str
    query: str
    positive_id: str
    positive: str
    negative_ids: tuple[str, ...]
    negatives: tuple[str, ...]
    weights: tuple[float, ...]
    query_weight: float
    positive_ids: frozenset[str]
    excluded_ids: frozenset[str] = frozenset()
    judged: Mapping[str, tuple[float, tuple[float, ...]]] = field(default_factory=dict)
    hardness: float = math.nan
    about: int = -1

    def pick(self, places: Sequence[int]) -> Row:
        """Return the row with those of its negatives that stand at ``places``, in that order."""
        judged = {
            name: (positive, tuple(values[place] for place in places))
            for name, (positive, values) in self.judged.items()
        }
        return replace(
            self,
            negative_ids=tuple(self.negative_ids[place] for place in places),
            negatives=tuple(self.negatives[place] for place in places),
            weights=tuple(self.weights[place] for place in places),
            judged=judged,
        )

    def first(self, count: int | None) -> Row:
        """Return the row with the first ``count`` of its negatives; None is all of them."""
        return self if count is None else self.pick(range(min(count, len(self.negatives))))


class NegativeSampler:
    """Chooses the negatives of a step; a draw may depend on seed, step and row only."""

    def __call__(self, rows: Int64s, step: int) -> list[Row]:
        """Return the rows of the given numbers with the negatives of this step (from 0)."""
        raise NotImplementedError

    def report(self) -> dict[str, float]:
        """Return numbers of the last step for the log, by name."""
        return {}

    def state_dict(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return all it needs to go on elsewhere, as plain JSON values and tensors."""
        return {}, {}

    def load_state_dict(self, values: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Go on from what :meth:`state_dict` gave."""


def read_rows(table: pd.DataFrame, columns: Sequence[str] = ()) -> list[Row]:
    """Check a table of training rows and return its rows.

    Parameters
    ----------
    table
        Columns :data:`COLUMNS`; the three lists about negatives of one row have one length.
    columns
        Judgments to read, from ``positive_<column>`` and the lists ``negative_<column>``.

    Raises
    ------
    AnmiError
        A column is missing, there are no rows, or a row is inconsistent; the message names the
        query.
    """
    missing = [name for name in COLUMNS if name not in table.columns]
    if missing:
        raise AnmiError(
            f"The training rows lack the columns {', '.join(missing)}; run the selection stage"
            " again."
        )
    if table.empty:
        raise AnmiError(
            "There are no training rows; check what the recipe rejected, and loosen its filters."
        )
    unjudged = [
        name
        for name in columns
        if f"negative_{name}" not in table or f"positive_{name}" not in table
    ]
    if unjudged:
        raise AnmiError(
            f"Training learns from the judgments {', '.join(unjudged)}, which were not mined for"
            " these training rows; name them under `reads` of the recipe and run the mining again,"
            " or choose another loss or curriculum."
        )
    return [_row(record, columns) for record in table.to_dict("records")]


def _row(record: Mapping[Any, Any], columns: Sequence[str]) -> Row:
    query = str(record["query_id"])
    ids, texts, weights = (tuple(record[name]) for name in ("negative_ids", "negatives", "weights"))
    if not len(ids) == len(texts) == len(weights):
        raise AnmiError(
            f'Training row of query "{query}" has {len(ids)} negative ids, {len(texts)} texts and'
            f" {len(weights)} weights; they must be equally many: run the selection stage again."
        )
    numbers = (*map(float, weights), float(record["query_weight"]))
    if wrong := [weight for weight in numbers if not (math.isfinite(weight) and weight >= 0)]:
        raise AnmiError(
            f'Training row of query "{query}" has the weight {wrong[0]}; '
            "weights must be finite and not negative: check the recipe's weighters."
        )
    judged = {
        name: (float(record[f"positive_{name}"]), tuple(map(float, record[f"negative_{name}"])))
        for name in columns
    }
    # Rows that somebody made by hand need not say what must stay out of their batch.
    excluded = frozenset(record.get("excluded_ids", ()))
    return Row(
        query,
        str(record["query"]),
        str(record["positive_id"]),
        str(record["positive"]),
        ids,
        texts,
        numbers[:-1],
        numbers[-1],
        frozenset(record["positive_ids"]) | {record["positive_id"]},
        excluded,
        judged,
    )


@dataclass(frozen=True)
class Assembly:
    """The documents of a batch and what they weigh.

    Attributes
    ----------
    texts
        U different documents.
    positive
        Column of every row's positive, int64 [B].
    weights
        Weight of every document as a negative of every row, float32 [B, U]; 0 where it is none.
    negatives
        Columns of the row's own negatives of a weight above 0, best first, int64 [B, n], padded
        with -1.
    judged
        By column name, what judges said of every document for every row, float32 [B, U]; NaN where
        nobody did.
    ids
        Of the U documents; of several with one text, that which came first.
    """

    texts: list[str]
    positive: Int64s
    weights: Float32s
    negatives: Int64s
    judged: dict[str, Float32s] = field(default_factory=dict)
    ids: list[str] = field(default_factory=list)


def assemble(rows: Sequence[Row], in_batch: str) -> Assembly:
    """Lay out a batch: one column per different document text, one weight per row and column.

    Rules, a later one winning over an earlier one:

    1. ``in_batch``: other rows' positives (``positives``), or their positives and mined negatives
       (``all``), have weight 1.
    2. A row's own mined negative has its own weight, also 0: a candidate the recipe found doubtful
       for this query must not come back through another row. Listed twice, the smaller weight
       holds. What weighs 0 is in the batch where the row has scores of a teacher.
    3. No document known to be relevant to the query is a negative: the row's positive, any of its
       ``positive_ids``, the positives of other rows of the same query, and any document with the
       text of one of these. Nor is one of the row's ``excluded_ids``: related to its positive, or
       judged likely or uncertain to be relevant in mining.
    """
    column: dict[str, int] = {}
    positive = np.array(
        [column.setdefault(row.positive, len(column)) for row in rows], dtype=np.int64
    )
    positives = len(column)
    ids = {row.positive: row.positive_id for row in reversed(rows)}
    for row in rows:
        for name, text, weight in zip(row.negative_ids, row.negatives, row.weights, strict=True):
            if weight > 0 or TEACHER in row.judged:
                column.setdefault(text, len(column))
            ids.setdefault(text, name)

    weights = np.zeros((len(rows), len(column)), np.float32)
    weights[:, : {"none": 0, "positives": positives, "all": len(column)}[in_batch]] = 1.0
    judged = {name: np.full(weights.shape, np.nan, np.float32) for name in rows[0].judged}
    own_weights: list[dict[int, float]] = [{} for _ in rows]
    for i, row in enumerate(rows):
        present = [place for place, text in enumerate(row.negatives) if text in column]
        columns = [column[row.negatives[place]] for place in present]
        for place, c in zip(present, columns, strict=True):
            weight = row.weights[place]
            own_weights[i][c] = min(weight, own_weights[i].get(c, weight))
        weights[i, list(own_weights[i])] = list(own_weights[i].values())
        for name, (positive_value, values) in row.judged.items():
            judged[name][i, columns] = [values[place] for place in present]
            judged[name][i, positive[i]] = positive_value
    _mask_positives(rows, column, weights)
    columns_left = [
        [c for c in columns if weights[i, c] > 0] for i, columns in enumerate(own_weights)
    ]
    negatives = np.full((len(rows), max(map(len, columns_left))), -1, np.int64)
    for i, columns in enumerate(columns_left):
        negatives[i, : len(columns)] = columns
    names = [ids[text] for text in column]
    return Assembly(list(column), positive, weights, negatives, judged, names)


def _mask_positives(rows: Sequence[Row], column: dict[str, int], weights: Float32s) -> None:
    columns_of: defaultdict[str, set[int]] = defaultdict(set)
    positive_ids: defaultdict[str, set[str]] = defaultdict(set)
    for row in rows:
        columns_of[row.positive_id].add(column[row.positive])
        for document_id, text in zip(row.negative_ids, row.negatives, strict=True):
            if text in column:
                columns_of[document_id].add(column[text])
        positive_ids[row.query_id].update(row.positive_ids)
    for i, row in enumerate(rows):
        # Over the few that a row must not have, not over the hundreds that the batch holds.
        for document_id in positive_ids[row.query_id] | row.excluded_ids:
            if document_id in columns_of:
                weights[i, list(columns_of[document_id])] = 0.0


class Batcher:
    """Turns rows into a batch: lays it out and tokenises queries and documents.

    Texts are grouped by length, so that a long one does not pad all the others.

    Parameters
    ----------
    tokeniser
        Of the encoder that is trained.
    in_batch
        See :func:`assemble`.
    tokens_per_pass
        Tokens of a group at most; None for one group, as a table of token vectors takes it.
    guide
        Scores every document for every query.
    frozen
        Encodes documents where their side is not trained; None leaves them to the encoder that is.
    requested_tokens_per_pass
        The option as the user set it, so that no text may have more.
    """

    def __init__(
        self,
        tokeniser: Tokeniser,
        in_batch: str,
        tokens_per_pass: int | None,
        guide: Frozen | None = None,
        frozen: Frozen | None = None,
        requested_tokens_per_pass: int | None = None,
    ) -> None:
        self._tokeniser = tokeniser
        self._in_batch = in_batch
        self.tokens_per_pass = tokens_per_pass
        self._guide = guide
        self._frozen = frozen
        self._requested_tokens_per_pass = requested_tokens_per_pass

    def __call__(self, rows: Sequence[Row]) -> dict[str, Any]:
        """Return the batch of the given rows."""
        assembly = assemble(rows, self._in_batch)
        queries = [row.query for row in rows]
        hardness = torch.tensor([row.hardness for row in rows], dtype=torch.float32)
        query_weights = [row.query_weight for row in rows]
        return {
            "guide": self._guide and self._guide.scores(queries, assembly.texts),
            "query_ids": [row.query_id for row in rows],
            "document_ids": assembly.ids,
            "about": torch.tensor([row.about for row in rows]),
            "queries": self._groups(queries, "query"),
            "documents": self._documents(assembly.texts),
            "positive": torch.from_numpy(assembly.positive),
            "weights": torch.from_numpy(assembly.weights),
            "negatives": torch.from_numpy(assembly.negatives),
            "query_weight": torch.tensor(query_weights, dtype=torch.float32),
            "judged": {name: torch.from_numpy(values) for name, values in assembly.judged.items()},
            "hardness": None if bool(hardness.isnan().any()) else hardness,
        }

    def _documents(self, texts: list[str]) -> dict[str, Any]:
        if self._frozen is None:
            return self._groups(texts, "document")
        return {"vectors": self._frozen.encode(texts, "document")}

    def _groups(self, texts: list[str], role: str) -> dict[str, Any]:
        groups = [np.arange(len(texts))]
        if self.tokens_per_pass is not None:
            lengths = self._tokeniser.lengths(texts, role)
            check_tokens_per_pass(self._requested_tokens_per_pass, lengths, "training.options")
            groups = passes(lengths, self.tokens_per_pass, len(texts))
        order = np.concatenate(groups)
        group_texts = [[texts[place] for place in group] for group in groups]
        return {
            "groups": [self._tokeniser.features(part, role) for part in group_texts],
            "place": torch.from_numpy(np.argsort(order, kind="stable")),
        }


class Frozen:
    """An encoder that is not trained, as a guide is, and encodes each text once.

    Parameters
    ----------
    encode
        Returns the vectors of texts by their role, [T, D].
    """

    def __init__(self, encode: Callable[[list[str], Role], Any]) -> None:
        self._encode = encode
        self._vectors: dict[tuple[str, str], Tensor] = {}

    @staticmethod
    def guide(encoder: SentenceTransformer) -> Frozen:
        """Return a guide, dense or sparse, of sentence-transformers."""
        options: dict[str, Any] = {"convert_to_tensor": True, "show_progress_bar": False}
        options |= (
            {"convert_to_sparse_tensor": False}
            if is_sparse(encoder)
            else {"normalize_embeddings": not is_dot(encoder)}
        )

        def encode(texts: list[str], role: Role) -> Tensor:
            with torch.no_grad():
                vectors: Tensor = getattr(encoder, f"encode_{role}")(texts, **options)
            return vectors.cpu()

        return Frozen(encode)

    def scores(self, queries: list[str], documents: list[str]) -> Tensor:
        """Return the scores of all documents for each query, [B, U]."""
        return self.encode(queries, "query") @ self.encode(documents, "document").T

    def encode(self, texts: list[str], role: Role) -> Tensor:
        """Return the vectors of texts, [T, D], in main memory."""
        absent = [text for text in dict.fromkeys(texts) if (role, text) not in self._vectors]
        if absent:
            vectors = torch.as_tensor(self._encode(absent, role))
            keys = [(role, text) for text in absent]
            self._vectors.update(zip(keys, vectors, strict=True))
        return torch.stack([self._vectors[role, text] for text in texts])
