"""The module holds the options of an export and flattens training rows, from which every format is built."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import Field

from anmi.errors import AnmiError, nearest
from anmi.selection.steps import Params

# The order in which a score is chosen where none is named: a cross-encoder's logits are what MarginMSE was made for.
PREFERRED: Final = ("cross", "p_relevant", "dense")
ENOUGH: Final = 0.95
_TEXTS: Final = ("query_id", "query", "positive_id", "positive")
_NEEDED: Final = (*_TEXTS, "negative_ids", "negatives")


class ExportOptions(Params):
    """What goes into an export."""

    negatives: int | None = Field(
        None, ge=1, le=1000, description="Negatives of each training row, best first; all that it has when empty."
    )
    score: str | None = Field(
        None,
        min_length=1,
        description="Which judgment becomes the score or soft label, such as cross or p_relevant; hard labels of 1 and "
        "0 when empty, or no scores; n-tuple-scores then takes the first of cross, p_relevant and dense that is known "
        "for 95 % of the documents.",
    )
    prompt: str | None = Field(
        None, description="Put into every line as the prompt of its query; the trainer's own setting when empty."
    )
    by_source: bool = Field(
        False,
        description="Files of its own for each source of queries, as the BM25 notebook writes them. Off: a trainer "
        "reads all of them anyway.",
    )


@dataclass(frozen=True)
class Collection:
    """The collection that training rows were made of; some formats name its titles, types and language.

    Attributes
    ----------
    corpus
        ``document_id, title, text, metadata``.
    queries
        ``query_id, metadata``.
    name
        Such as ``beir:scifact``.
    language
        ISO 639-1 code.
    """

    corpus: pd.DataFrame
    queries: pd.DataFrame
    name: str
    language: str


@dataclass
class FlatRows:
    """R training rows and the P negatives that may be exported of them.

    Attributes
    ----------
    rows
        ``query_id, query, positive_id, positive`` of [R] rows, of type object, and ``score``: the positive's.
    row
        int64 [P], rising: the row a negative belongs to.
    ids, texts
        Object [P].
    scores
        float64 [P]; NaN where no score was asked for.
    score
        Name of the judgment in ``scores``; None for none.
    left_out
        How many of what did not get this far.
    """

    rows: pd.DataFrame
    row: NDArray[np.int64]
    ids: NDArray[Any]
    texts: NDArray[Any]
    scores: NDArray[np.float64]
    score: str | None = None
    left_out: dict[str, int] = field(default_factory=dict)

    @property
    def counts(self) -> NDArray[np.int64]:
        """Negatives of each row, int64 [R]."""
        return np.bincount(self.row, minlength=len(self.rows)).astype(np.int64)

    def leave_out(self, what: str, number: int) -> None:
        """Note that something was left out."""
        if number:
            self.left_out[what] = self.left_out.get(what, 0) + int(number)

    def select(self, keep: NDArray[np.bool_]) -> FlatRows:
        """Return some of the negatives, and all rows."""
        parts = (self.row[keep], self.ids[keep], self.texts[keep], self.scores[keep])
        return FlatRows(self.rows, *parts, self.score, self.left_out)


def flatten(rows: pd.DataFrame, negatives: int | None, score: str | None) -> FlatRows:
    """Lay the negatives of training rows flat.

    Left out and counted: rows of weight 0, negatives of weight 0 (our training would not see them either), negatives
    that are a positive of another row of their query, and what the score is missing for.

    Parameters
    ----------
    rows
        As :func:`anmi.selection.rows.training_rows` makes them; further columns are ignored.
    negatives
        Most negatives of a row, best first; None for all.
    score
        Judgment to take along; None for none.

    Raises
    ------
    AnmiError
        A column is missing, or the score was measured for nothing.
    """
    missing = [name for name in _NEEDED if name not in rows]
    if missing:
        raise AnmiError(f'this is no table of training rows: it has no column "{missing[0]}"; run selection again')
    used = rows.query_weight.to_numpy() > 0 if "query_weight" in rows else np.ones(len(rows), bool)
    table = rows[used].reset_index(drop=True)
    flat = _lay_flat(table, score)
    flat.leave_out("rows of weight 0", int((~used).sum()))
    if "weights" in table:
        weights = np.fromiter(chain.from_iterable(table.weights), np.float64, count=len(flat.row))
        flat = _without(flat, weights <= 0, "negatives of weight 0")
    flat = _without(flat, _known_positives(flat), "negatives that are a positive of the same query")
    if score is not None:
        flat = _without(flat, np.isnan(flat.scores), f"negatives without {score}")
    if negatives is not None:
        starts = np.cumsum(flat.counts) - flat.counts
        flat = flat.select(np.arange(len(flat.row)) - starts[flat.row] < negatives)
    return flat


def _lay_flat(table: pd.DataFrame, score: str | None) -> FlatRows:
    lengths = table.negative_ids.map(len).to_numpy(np.int64)
    total = int(lengths.sum())
    # Object columns hold references to the texts, so that repeating a row for each negative copies none of them.
    kept = pd.DataFrame({name: table[name].to_numpy(object) for name in _TEXTS}, dtype=object)
    kept["score"] = np.nan if score is None else _column(table, f"positive_{score}", score)
    scores = np.full(total, np.nan)
    if score is not None:
        scores = np.fromiter(chain.from_iterable(_column(table, f"negative_{score}", score)), np.float64, count=total)
    ids, texts = (_objects(chain.from_iterable(table[name]), total) for name in ("negative_ids", "negatives"))
    return FlatRows(kept, np.repeat(np.arange(len(table)), lengths), ids, texts, scores, score)


def table_of(columns: Mapping[str, Any]) -> pd.DataFrame:
    """Return a table whose texts are references; pandas would otherwise copy them into a column of its own kind.

    Examples
    --------
    >>> table_of({"a": np.array(["x"], dtype=object), "b": np.array([1])}).dtypes.tolist()
    [dtype('O'), dtype('int64')]
    """
    kept = {
        name: pd.Series(values, dtype=object) if getattr(values, "dtype", np.dtype(float)).kind == "O" else values
        for name, values in columns.items()
    }
    return pd.DataFrame(kept)


def _objects(values: Iterable[Any], count: int) -> NDArray[Any]:
    return np.fromiter(values, dtype=object, count=count)


def _column(table: pd.DataFrame, name: str, score: str) -> pd.Series:
    if name not in table:
        raise AnmiError(f'the training rows have no score "{score}"; {nearest(score, _scores(table))}')
    return table[name]


def _scores(table: pd.DataFrame) -> list[str]:
    """Return the names of the judgments that both positives and negatives may have."""
    named = [str(name).removeprefix("positive_") for name in table if str(name).startswith("positive_")]
    return [name for name in named if f"negative_{name}" in table and name not in ("id", "ids")]


def _without(flat: FlatRows, drop: NDArray[np.bool_], what: str) -> FlatRows:
    flat.leave_out(what, int(drop.sum()))
    return flat.select(~drop) if drop.any() else flat


def _known_positives(flat: FlatRows) -> NDArray[np.bool_]:
    """Say for each negative whether another row has it as the positive of the same query, bool [P]."""
    if not len(flat.row):
        return np.zeros(0, bool)
    query = pd.factorize(flat.rows.query_id)[0]
    document = pd.factorize(np.concatenate([flat.rows.positive_id.to_numpy(), flat.ids]))[0].astype(np.int64)
    width = int(document.max()) + 1
    positives = query * width + document[: len(query)]
    return np.isin(query[flat.row] * width + document[len(query) :], positives)


def known_shares(rows: pd.DataFrame) -> dict[str, float]:
    """Return for every judgment the share of exported documents it is known for, 0 to 1.

    Examples
    --------
    >>> known_shares(pd.DataFrame({"positive_a": [1.0, 2.0], "negative_a": [[1.0, np.nan], []]}))
    {'a': 0.75}
    """
    shares = {}
    for name in _scores(rows):
        lists = [np.asarray(each, np.float64) for each in rows[f"negative_{name}"]]
        values = np.concatenate([rows[f"positive_{name}"].to_numpy(np.float64), *lists])
        shares[name] = float(1 - np.isnan(values).mean()) if len(values) else 0.0
    return shares


def preferred_score(rows: pd.DataFrame) -> str:
    """Return the judgment that is exported where none is named.

    Raises
    ------
    AnmiError
        None of them is known for enough documents; the message says how far each is.
    """
    shares = known_shares(rows)
    chosen = next((name for name in PREFERRED if shares.get(name, 0.0) >= ENOUGH), None)
    if chosen is None:
        raise AnmiError(
            f"no score is known for {ENOUGH:.0%} of the documents; choose one by --score: {coverage_text(shares)}"
        )
    return chosen


def coverage_text(shares: dict[str, float]) -> str:
    """Write shares for a message.

    Examples
    --------
    >>> coverage_text({"dense": 1.0, "cross": 0.3412})
    'dense (known for 100.0 %), cross (known for 34.1 %)'
    """
    best = sorted(shares.items(), key=lambda each: -each[1])
    return ", ".join(f"{name} (known for {100 * share:.1f} %)" for name, share in best if share) or "none is measured"
