"""The table of queries: what each was trained with, what was rejected and why, and how held-out ones fared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from anmi.candidates import NEGATIVE, OPEN, PADDING, Candidates
from anmi.report.figures import SCORES

# What bounds the page besides its rows: candidates of a row, and characters of all its documents.
_NEGATIVES: Final = 8
_REJECTED: Final = 6
_TEXTS: Final = 2_500_000
_LONGEST: Final = 240
_SHORTEST: Final = 40
_TAKEN: Final = "negative"
_POSITIVE: Final = "positive"
_BEST_FIRST: Final = 1_000_000


@dataclass
class QueryTable:
    """Collects the rows of the table, block by block.

    What is kept of the candidates lies in flat arrays, so that no block is walked candidate by candidate: the entries
    of row ``i`` are those from ``starts[i]`` to ``starts[i + 1]``.

    Parameters
    ----------
    texts
        Of queries, by id.
    hardness
        Of queries, by id, from 0 to 1; those that it lacks have none.
    splits
        Of queries, by id.
    most
        Rows; what comes later is counted in ``left_out``.
    """

    texts: Mapping[str, str]
    hardness: Mapping[str, float] = field(default_factory=dict)
    splits: Mapping[str, str] = field(default_factory=dict)
    most: int = 5_000
    names: list[str] = field(default_factory=lambda: [_POSITIVE, _TAKEN])
    rules: dict[str, str] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    _documents: list[NDArray[Any]] = field(default_factory=list)
    _verdicts: list[NDArray[Any]] = field(default_factory=list)
    _sizes: list[NDArray[Any]] = field(default_factory=list)
    _scores: dict[str, list[NDArray[Any]]] = field(default_factory=dict)
    left_out: int = 0

    def add_mined(self, blocks: Iterable[Candidates]) -> None:
        """Add the rows of a selection, with their positive, their negatives and the first of what was not taken."""
        for block in blocks:
            room = max(0, self.most - len(self.rows))
            self.left_out += max(0, len(block) - room)
            if room:
                self._add(block.take(slice(0, room)))

    def _add(self, block: Candidates) -> None:
        number = np.array([self._number(name, block) for name in block.legend])
        decided = block.filled & (block.verdict != OPEN)
        taken = decided & (block.verdict == NEGATIVE)
        order = block.columns.get("choice", np.zeros(block.documents.shape, np.float32))
        chosen = _first(taken, np.where(np.isfinite(order), order, _BEST_FIRST), _NEGATIVES)
        refused = _first(decided & ~taken, np.zeros(block.documents.shape), _REJECTED)
        slots = np.concatenate([chosen, refused], axis=1)
        places = np.maximum(slots, 0)
        own = block.positives[:, :1]
        documents = np.concatenate([own, np.take_along_axis(block.documents, places, 1)], axis=1)
        verdicts = np.concatenate([np.zeros_like(own), number[np.take_along_axis(block.verdict, places, 1)]], axis=1)
        there = np.concatenate([own != PADDING, slots >= 0], axis=1)
        self._documents.append(documents[there])
        self._verdicts.append(verdicts[there])
        self._sizes.append(there.sum(axis=1))
        before = sum(map(len, self._documents[:-1]))
        for name in SCORES:
            values = block.columns.get(name)
            if values is None and name not in self._scores:
                continue
            kept = self._scores.setdefault(name, [np.full(before, np.nan)] if before else [])
            if values is None:
                kept.append(np.full(int(there.sum()), np.nan))
                continue
            of_own = block.positive_columns.get(name, np.full(own.shape, np.nan, np.float32))[:, :1]
            kept.append(np.concatenate([of_own, np.take_along_axis(values, places, 1)], axis=1)[there])
        counts = _counts(np.where(decided, number[block.verdict], -1), len(self.names))
        dropped = np.where(block.query_verdict != OPEN, number[block.query_verdict], -1)
        for query_id, count, reason in zip(block.query_ids.tolist(), counts.tolist(), dropped.tolist(), strict=True):
            found = {place: n for place, n in enumerate(count) if n and place > 1}
            self._row(str(query_id), negatives=count[1], rejected=sum(found.values()), steps=found, dropped=reason)

    def _number(self, name: str, block: Candidates) -> int:
        if name not in self.names:
            self.names.append(name)
        if name in block.rules:
            self.rules[name] = block.rules[name].text
        return self.names.index(name)

    def add_held_out(self, queries: Sequence[Mapping[str, Any]]) -> None:
        """Add queries that were not trained on.

        Each has ``query_id``, ``before`` and ``after`` (nDCG@10) and the first documents of both systems as
        ``tops``: by system's name a list of (index of the document, whether it is relevant).
        """
        room = max(0, self.most - len(self.rows))
        self.left_out += max(0, len(queries) - room)
        for query in queries[:room]:
            self._row(query["query_id"], before=query["before"], after=query["after"], tops=query["tops"])
        self._sizes.append(np.zeros(min(room, len(queries)), np.int64))

    def _row(self, query_id: str, **more: Any) -> None:
        hardness = self.hardness.get(query_id)
        shared = {
            "id": query_id,
            "query": _cut(self.texts.get(query_id, ""), _LONGEST),
            "split": self.splits.get(query_id, ""),
            "hardness": None if hardness is None else round(hardness, 2),
        }
        self.rows.append(shared | more)

    def as_dict(self, corpus: pd.DataFrame) -> dict[str, Any] | None:
        """Return what the page is given, plain for JSON; None where there is no row.

        Parameters
        ----------
        corpus
            ``document_id``, ``title`` and ``text``; the index of a document is its place.
        """
        if not self.rows:
            return None
        from anmi.corpus.texts import document_texts

        documents = np.concatenate([*self._documents, np.zeros(0, np.int64)]).astype(np.int64)
        shown = [place for row in self.rows for top in row.get("tops", {}).values() for place, _ in top]
        used = np.unique(np.concatenate([documents, np.array(shown, np.int64)]))
        place_of = dict(zip(used.tolist(), range(len(used)), strict=True))
        longest = int(np.clip(_TEXTS / max(len(used), 1), _SHORTEST, _LONGEST))
        held = corpus.iloc[used]
        texts = [_cut(text, longest) for text in document_texts(held)]
        rows = [
            row | ({"tops": {s: [(place_of[p], r) for p, r in top] for s, top in row["tops"].items()}} if "tops" in row
                   else {})
            for row in self.rows
        ]  # fmt: skip
        return {
            "names": self.names,
            "rules": self.rules,
            "scores": {name: _rounded(name, np.concatenate(parts)) for name, parts in self._scores.items()},
            "documents": np.searchsorted(used, documents).tolist(),
            "verdicts": np.concatenate([*self._verdicts, np.zeros(0, np.int64)]).astype(int).tolist(),
            "starts": np.cumsum(np.concatenate([[0], *self._sizes])).astype(int).tolist(),
            "ids": held["document_id"].astype(str).tolist(),
            "texts": texts,
            "rows": rows,
            "left_out": self.left_out,
        }


def _first(mask: NDArray[np.bool_], order: NDArray[Any], most: int) -> NDArray[np.int64]:
    """Return the places of the first ``most`` true entries of each row [Q, most], by order, then place; else -1."""
    most = min(most, mask.shape[1])
    keys = np.where(mask, order, np.inf)
    places = np.argsort(keys, axis=1, kind="stable")[:, :most]
    return np.where(np.take_along_axis(mask, places, 1), places, -1)


def _counts(numbers: NDArray[Any], width: int) -> NDArray[np.int64]:
    """Count each number of each row [Q, width]; negative ones do not count."""
    rows, columns = np.nonzero(numbers >= 0)
    flat = np.bincount(rows * width + numbers[rows, columns], minlength=len(numbers) * width)
    return flat.reshape(len(numbers), width).astype(np.int64)


def _rounded(name: str, values: NDArray[Any]) -> list[float | None]:
    digits = 0 if name == "elo" else 1 if name == "bm25" else 3
    rounded = np.round(values.astype(np.float64), digits)
    found = rounded.astype(object)
    found[~np.isfinite(rounded)] = None
    listed: list[float | None] = found.tolist()
    return listed


def _cut(text: str, length: int) -> str:
    words = " ".join(text.split())
    return words if len(words) <= length else words[:length] + "…"
