"""What the mining did: the funnel, false negatives, and gaps.

Each diagnosis looks at one block after the other; :func:`diagnose` makes them all in one pass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from anmi.candidates import NEGATIVE, OPEN, PADDING, SOURCES, Candidates, CandidateShards, Rule
from anmi.engine.threads import ahead
from anmi.evaluation.shares import share_of_pairs
from anmi.judging.expected import ExpectedShare
from anmi.selection.steps.back_off import TIERS

_BINS: Final = 40


class Diagnosis(Protocol):
    """Something that is found out by looking at one block after the other.

    Attributes
    ----------
    columns
        Measurements it looks at, where they are there.
    """

    columns: tuple[str, ...]

    def see(self, block: Candidates) -> None:
        """Look at a block after selection."""
        ...

    def found(self) -> Any:
        """Return what was found, ready for JSON."""
        ...


def diagnose(shards: Iterable[Candidates], *diagnoses: Diagnosis) -> list[Any]:
    """Return what each of them finds in the shards, in one pass that reads no other measurement."""
    read = dict.fromkeys(column for each in diagnoses for column in each.columns)
    for block in ahead(shards.only(*read) if isinstance(shards, CandidateShards) else shards):
        for each in diagnoses:
            each.see(block)
    return [each.found() for each in diagnoses]


class Funnel:
    """Counts the way from candidates to negatives.

    It finds rows ``step, kind, candidates, queries`` in this order: one of kind ``total``; one per verdict in the order
    of the legend, with its ``rule`` besides and of the kind ``uncertain`` (for distillation only), ``promoted`` (to
    positives) or ``rejected``; ``undecided`` (passed every filter, not drawn); ``negative`` (drawn; queries with at
    least one); ``complete`` (negatives of queries that have ``n``). In the row of a verdict ``candidates`` are those
    that carry it plus the still open ones of queries it dropped, and ``queries`` are those it dropped. The candidates
    of verdicts + undecided + negative add up to the total. A query that stands once per positive counts as often.

    Parameters
    ----------
    n
        Negatives asked for per row.
    """

    columns: tuple[str, ...] = ()

    def __init__(self, n: int) -> None:
        self._n = n
        self._steps: dict[str, None] = {}
        self._rules: dict[str, Rule] = {}
        self._candidates, self._queries = Counter[str](), Counter[str]()
        self._total, self._complete = Counter[str](), Counter[str]()

    def see(self, block: Candidates) -> None:
        """Count a block."""
        self._steps |= dict.fromkeys(block.legend[2:])
        self._rules |= block.rules
        fate = fate_of(block)
        codes = np.arange(len(block.legend))
        candidates = np.bincount(fate[fate != PADDING], minlength=len(codes))
        queries = np.bincount(block.query_verdict, minlength=len(codes))
        self._candidates.update(dict(zip(block.legend, candidates.tolist(), strict=True)))
        self._queries.update(dict(zip(block.legend, queries.tolist(), strict=True)))
        chosen = (fate == NEGATIVE).sum(axis=1)
        self._queries["negative"] += int((chosen > 0).sum())
        full = chosen >= self._n
        self._complete.update(candidates=int(chosen[full].sum()), queries=int(full.sum()))
        self._total.update(candidates=int(block.filled.sum()), queries=len(block))

    def found(self) -> list[dict[str, Any]]:
        """Return the rows."""

        def row(step: str, kind: str, name: str) -> dict[str, Any]:
            return {"step": step, "kind": kind, "candidates": self._candidates[name], "queries": self._queries[name]}

        rows: list[dict[str, Any]] = [{"step": "candidates", "kind": "total", **_counts(self._total)}]
        for name in self._steps:
            rule = self._rules.get(name, Rule())
            kind = rule.kind if rule.kind in ("uncertain", "promoted") else "rejected"
            rows.append(row(name, kind, name) | {"rule": rule.text})
        rows += [row("not drawn", "undecided", "open"), row("negatives", "negative", "negative")]
        return [*rows, {"step": f"all {self._n} negatives", "kind": "complete", **_counts(self._complete)}]


def _counts(counter: Counter[str]) -> dict[str, int]:
    return {"candidates": counter["candidates"], "queries": counter["queries"]}


def fate_of(block: Candidates) -> NDArray[np.int16]:
    """Legend code that decided on each candidate, [Q, M]; -1 in padding.

    A candidate that was still open when its query was dropped shares the fate of the query.
    """
    query = np.broadcast_to(block.query_verdict[:, None], block.verdict.shape)
    fate = np.where((block.verdict == OPEN) & (query != OPEN), query, block.verdict)
    result: NDArray[np.int16] = np.where(block.filled, fate, np.int16(PADDING)).astype(np.int16)
    return result


class Origins:
    """Counts where the selected negatives came from, largest first.

    By ``sources`` that found them, such as ``bm25+dense``, and by ``tiers`` of the back-off they were drawn from.
    """

    columns: tuple[str, ...] = ("tier",)

    def __init__(self) -> None:
        self._sources, self._tiers = Counter[str](), Counter[str]()

    def see(self, block: Candidates) -> None:
        """Count the negatives of a block."""
        drawn = block.negatives & (block.query_verdict == OPEN)[:, None]
        bits, counts = np.unique(block.source[drawn], return_counts=True)
        for value, count in zip(bits.tolist(), counts.tolist(), strict=True):
            self._sources["+".join(name for name, bit in SOURCES.items() if value & bit)] += count
        if "tier" in block.columns:
            tiers = block.columns["tier"][drawn]
            for tier, count in zip(*np.unique(tiers[np.isfinite(tiers)], return_counts=True), strict=True):
                self._tiers[TIERS[int(tier)]] += int(count)

    def found(self) -> dict[str, dict[str, int]]:
        """Return the counts."""
        return {"sources": dict(self._sources.most_common()), "tiers": dict(self._tiers.most_common())}


class Expected:
    """Finds which share of the selected negatives the judge itself expects to be relevant, by ``p_relevant``."""

    columns: tuple[str, ...] = ("p_relevant", "tier")

    def __init__(self) -> None:
        self._share, self._total, self._doubtful = ExpectedShare(), 0, 0

    def see(self, block: Candidates) -> None:
        """Add up the negatives of a block."""
        drawn = block.negatives & (block.query_verdict == OPEN)[:, None]
        values = block.columns.get("p_relevant", np.full(drawn.shape, np.nan))
        self._share.add(np.where(drawn, values, np.nan), block.query_ids)
        self._total += int(drawn.sum())
        if "tier" in block.columns:
            self._doubtful += int((block.columns["tier"][drawn] == TIERS.index("uncertain")).sum())

    def found(self) -> dict[str, Any] | None:
        """Return ``share`` in [0, 1] with its bounds, the ``judged`` negatives it is of, all (``total``) and doubtful.

        ``low`` and ``high`` are from :class:`anmi.judging.expected.ExpectedShare`; ``doubtful`` are those of the last
        tier. None where no negative was judged.
        """
        if not self._share.documents:
            return None
        low, high = self._share.interval
        counts = {"judged": self._share.documents, "total": self._total, "doubtful": self._doubtful}
        return {"share": self._share.share, "low": low, "high": high, **counts}


class BySource:
    """Counts for each part of a collection what passed the consistency filter and how many negatives came of it.

    It finds rows ``source, queries, passed, failed, rows, negatives_mean, negatives_min, negatives_max``; the numbers
    of negatives are per row, None without one. Without the query column ``consistent`` all queries passed.

    Parameters
    ----------
    rows
        Training rows with ``query_id`` and ``negative_ids``.
    source_of
        Source by query id.
    default
        Source of the other queries.
    """

    columns: tuple[str, ...] = ("consistent",)

    def __init__(self, rows: pd.DataFrame, source_of: Mapping[str, str], default: str) -> None:
        self._rows, self._source_of, self._default = rows, source_of, default
        self._passed: dict[str, bool] = {}

    def see(self, block: Candidates) -> None:
        """Note what passed."""
        consistent = block.query_columns.get("consistent", np.ones(len(block), np.float32)) > 0
        self._passed |= dict(zip(block.query_ids.tolist(), consistent.tolist(), strict=True))

    def _sources(self, queries: Iterable[str]) -> list[str]:
        return [self._source_of.get(query, self._default) for query in queries]

    def found(self) -> list[dict[str, Any]]:
        """Return the counts by source."""
        queries = pd.DataFrame({"source": self._sources(self._passed), "passed": list(self._passed.values())})
        sources = np.array(self._sources(self._rows["query_id"]), dtype=object)
        wide = self._rows["negative_ids"].map(len).to_numpy(np.int64)
        table = []
        for source, group in queries.groupby("source", sort=True):
            count, good, mine = len(group), int(group.passed.sum()), wide[sources == source]
            known = {"mean": float(mine.mean()), "min": int(mine.min()), "max": int(mine.max())} if len(mine) else {}
            spread = {f"negatives_{name}": known.get(name) for name in ("mean", "min", "max")}
            counts = {"source": source, "queries": count, "passed": good, "failed": count - good, "rows": len(mine)}
            table.append(counts | spread)
        return table


def false_negatives(rows: pd.DataFrame, equivalents: pd.DataFrame, qrels: pd.DataFrame) -> dict[str, Any]:
    """Count the false negatives: selected negatives that were in truth relevant.

    Equivalents are relevant though no qrel says so, and never seen by the mining; of qrels every label above 0 counts.
    Returns ``count``, ``total`` (selected negatives), ``share``, its 95 % interval ``low`` and ``high`` over queries
    (:func:`anmi.evaluation.shares.share`); ``queries`` with at least one such negative, ``queries_total``, and
    ``known``: queries for which any equivalent is known, without which a small share means little. Without negatives
    the share is 0 in [0, 1].

    Examples
    --------
    >>> rows = pd.DataFrame({"query_id": ["q"], "negative_ids": [["d1", "d2"]]})
    >>> same = pd.DataFrame({"query_id": ["q"], "document_id": ["d2"]})
    >>> none = pd.DataFrame({"query_id": [], "document_id": [], "relevance": []})
    >>> found = false_negatives(rows, same, none)
    >>> found["count"], found["total"], found["share"]
    (1, 2, 0.5)
    """
    chosen = rows[["query_id", "negative_ids"]].explode("negative_ids").dropna()
    pairs = chosen.rename(columns={"negative_ids": "document_id"})
    return false_negatives_of_pairs(pairs, set(rows["query_id"].astype(str)), equivalents, qrels)


def false_negatives_of_pairs(
    pairs: pd.DataFrame, queries: set[str], equivalents: pd.DataFrame, qrels: pd.DataFrame
) -> dict[str, Any]:
    """Return the same as :func:`false_negatives` for negatives of ``queries`` as pairs, which may have a ``count``."""
    relevant = qrels.loc[pd.to_numeric(qrels["relevance"]) > 0, ["query_id", "document_id"]]
    found = share_of_pairs(pairs, pd.concat([equivalents[["query_id", "document_id"]], relevant]))
    return {
        "count": found.count,
        "total": found.total,
        "share": found.value if found.total else 0.0,
        "low": found.low,
        "high": found.high,
        "queries": found.affected,
        "queries_total": len(queries),
        "known": len(queries & set(equivalents["query_id"].astype(str))),
    }


class Gap:
    """Measures how far the selected negatives lie below the positive of their row, by a measurement of both.

    It finds ``column, count, mean, median``, and a histogram of ``counts`` between ``edges``; nothing where no selected
    negative has the measurement.
    """

    def __init__(self, column: str) -> None:
        self.columns: tuple[str, ...] = (column,)
        self._column = column
        self._parts = [np.zeros(0)]

    def see(self, block: Candidates) -> None:
        """Take the gaps of the negatives of a block."""
        if self._column in block.columns and self._column in block.positive_columns:
            row, slot = np.nonzero(block.negatives)
            gaps = block.positive_columns[self._column][row, 0] - block.columns[self._column][row, slot]
            self._parts.append(gaps[np.isfinite(gaps)])

    def found(self) -> dict[str, Any]:
        """Return their distribution."""
        gaps = np.concatenate(self._parts).astype(np.float64)
        if not len(gaps):
            return {}
        counts, edges = np.histogram(gaps, bins=_BINS)
        return {
            "column": self._column,
            "count": len(gaps),
            "mean": float(gaps.mean()),
            "median": float(np.median(gaps)),
            "edges": edges.tolist(),
            "counts": counts.tolist(),
        }
