"""What the mining did: the funnel, false negatives, and gaps.

Each diagnosis looks at one block after the other; :func:`diagnose` makes them all in one pass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from anmi.candidates import (
    MARKED,
    NEGATIVE,
    OPEN,
    PADDING,
    SOURCES,
    Candidates,
    CandidateShards,
    Rule,
)
from anmi.engine.threads import ahead
from anmi.evaluation.significance import share_of_pairs
from anmi.judging.calibration import reliability
from anmi.judging.expected import ExpectedShare
from anmi.ragged import Bools, Float32s, Int32s, Int64s
from anmi.selection.steps.samplers import TIERS

_GAP_BINS: Final = 40


class Diagnosis:
    """Something that is found out by looking at one block after the other.

    Attributes
    ----------
    columns
        Measurements it looks at, where they are there.
    """

    columns: tuple[str, ...] = ()

    def add(self, block: Candidates) -> None:
        """Look at a block after selection."""
        raise NotImplementedError

    def result(self) -> Any:
        """Return what the blocks show, ready for JSON."""
        raise NotImplementedError


def diagnose(shards: Iterable[Candidates], *diagnoses: Diagnosis) -> list[Any]:
    """Return the result of each diagnosis, in one pass that reads no other measurement."""
    if isinstance(shards, CandidateShards):
        columns = [column for diagnosis in diagnoses for column in diagnosis.columns]
        shards = shards.only(*dict.fromkeys(columns))
    for block in ahead(shards):
        for diagnosis in diagnoses:
            diagnosis.add(block)
    return [diagnosis.result() for diagnosis in diagnoses]


class Funnel(Diagnosis):
    """Counts the way from candidates to negatives.

    The result is rows ``step, kind, candidates, queries``: one of kind ``total``; one per verdict
    in the order of the legend, with its ``rule`` besides and of the kind ``uncertain`` (for
    distillation only), ``promoted`` (to positives) or ``rejected``; ``undecided`` (passed every
    filter, not drawn); ``negative`` (drawn; queries with at least one); ``complete`` (negatives of
    queries that have ``n``). In the row of a verdict ``candidates`` are those that carry it plus
    the still open ones of queries it dropped, and ``queries`` are those it dropped. The candidates
    of verdicts + undecided + negative add up to the total.

    Parameters
    ----------
    n
        Negatives asked for per row.
    """

    def __init__(self, n: int) -> None:
        self._n = n
        self._steps: dict[str, None] = {}
        self._rules: dict[str, Rule] = {}
        self._candidates = Counter[str]()
        self._queries = Counter[str]()

    def add(self, block: Candidates) -> None:
        """Count a block."""
        self._steps |= dict.fromkeys(block.legend[2:])
        self._rules |= block.rules
        fate = fate_of(block)
        count = len(block.legend)
        candidates_by_code = np.bincount(fate[fate != PADDING], minlength=count).tolist()
        queries_by_code = np.bincount(block.query_verdict, minlength=count).tolist()
        self._candidates.update(dict(zip(block.legend, candidates_by_code, strict=True)))
        self._queries.update(dict(zip(block.legend, queries_by_code, strict=True)))
        negatives = (fate == NEGATIVE).sum(axis=1)
        is_complete = negatives >= self._n
        self._candidates.update(
            complete=int(negatives[is_complete].sum()), total=int(block.filled.sum())
        )
        self._queries.update(
            negative=int((negatives > 0).sum()),
            complete=int(is_complete.sum()),
            total=len(block),
        )

    def _row(
        self,
        step: str,
        kind: str,
        counted: str,
    ) -> dict[str, Any]:
        counts = {"candidates": self._candidates[counted], "queries": self._queries[counted]}
        return {"step": step, "kind": kind, **counts}

    def result(self) -> list[dict[str, Any]]:
        """Return the rows."""
        rows = [self._row("candidates", "total", "total")]
        for step in self._steps:
            rule = self._rules.get(step, Rule())
            kind = rule.kind if rule.kind in ("uncertain", "promoted") else "rejected"
            rows.append(self._row(step, kind, step) | {"rule": rule.text})
        rows.append(self._row("not drawn", "undecided", "open"))
        rows.append(self._row("negatives", "negative", "negative"))
        rows.append(self._row(f"all {self._n} negatives", "complete", "complete"))
        return rows


def fate_of(block: Candidates) -> NDArray[np.int16]:
    """Legend code that decided on each candidate, [Q, M]; -1 in padding.

    A candidate that was still open when its query was dropped shares the fate of the query.
    """
    query = np.broadcast_to(block.query_verdict[:, None], block.verdict.shape)
    is_open = (block.verdict == OPEN) & (query != OPEN)
    fate = np.where(is_open, query, block.verdict)
    fate = np.where(block.filled, fate, np.int16(PADDING))
    return fate.astype(np.int16)


def _drawn(block: Candidates) -> Bools:
    """Return which candidates are negatives of queries that were not dropped, [Q, M]."""
    return block.negatives & (block.query_verdict == OPEN)[:, None]


class Origins(Diagnosis):
    """Counts where the selected negatives came from, largest first.

    By ``sources`` that found them, such as ``bm25+dense``, and by ``tiers`` of the back-off they
    were drawn from.
    """

    columns = ("tier",)

    def __init__(self) -> None:
        self._sources = Counter[str]()
        self._tiers = Counter[str]()

    def add(self, block: Candidates) -> None:
        """Count the negatives of a block."""
        drawn = _drawn(block)
        for bits, count in _counts(block.source[drawn]):
            names = [name for name, bit in SOURCES.items() if bits & bit]
            self._sources["+".join(names)] += count
        if "tier" in block.columns:
            tiers = block.columns["tier"][drawn]
            known_tiers = tiers[np.isfinite(tiers)].astype(np.int64)
            for tier, count in _counts(known_tiers):
                self._tiers[TIERS[tier]] += count

    def result(self) -> dict[str, dict[str, int]]:
        """Return the counts."""
        sources = dict(self._sources.most_common())
        return {"sources": sources, "tiers": dict(self._tiers.most_common())}


def _counts(values: NDArray[Any]) -> Iterable[tuple[int, int]]:
    """Return each value with how often it occurs."""
    names, counts = np.unique(values, return_counts=True)
    return zip(names.tolist(), counts.tolist(), strict=True)


# A share of relevant ones among the negatives that never goes out without a warning.
_LARGE_SHARE: Final = 0.05
_LARGE_SHARE_WARNING: Final = (
    "that is many; lower the step's max_expected_share, or label more documents"
)
_BASES: Final = {"transfer": "other collections", "hidden": "labels"}


class Expected(Diagnosis):
    """Adds up ``p_relevant``: which share of the negatives the judge itself expects to be relevant.

    Parameters
    ----------
    judge
        Summary of the fused judge, for what it assumed and what it could not tell.
    """

    columns = ("p_relevant", "tier")

    def __init__(self, judge: Mapping[str, Any] = MappingProxyType({})) -> None:
        self._judge = judge
        self._share = ExpectedShare()
        self._total = 0
        self._doubtful = 0

    def add(self, block: Candidates) -> None:
        """Add up the negatives of a block."""
        drawn = _drawn(block)
        probability = block.columns.get("p_relevant", np.full(drawn.shape, np.nan))
        self._share.add(np.where(drawn, probability, np.nan), block.query_ids)
        self._total += int(drawn.sum())
        if "tier" in block.columns:
            is_doubtful = block.columns["tier"][drawn] == TIERS.index("uncertain")
            self._doubtful += int(is_doubtful.sum())

    def result(self) -> dict[str, Any] | None:
        """Return ``share`` in [0, 1] with its bounds, and counts of negatives.

        ``low`` and ``high`` are from :class:`anmi.judging.expected.ExpectedShare`. The share covers
        the ``judged`` of ``total`` negatives; ``doubtful`` are those of the last tier. It goes by a
        ``basis``: hidden ``labels``, ``other collections``, or ``nothing`` where it cannot be
        estimated. ``warning`` says why, or that it is large; else None. The whole is None where no
        negative was judged.
        """
        share = self._share.share
        if not self._share.documents:
            return None
        low, high = self._share.interval
        warning = self._judge.get("warning")
        basis = "nothing" if warning else _BASES.get(self._judge.get("mode", ""))
        if share > _LARGE_SHARE:
            warning = warning or _LARGE_SHARE_WARNING
        return {
            "share": share,
            "low": low,
            "high": high,
            "judged": self._share.documents,
            "total": self._total,
            "doubtful": self._doubtful,
            "basis": basis,
            "warning": warning or None,
        }


class BySource(Diagnosis):
    """Counts for each part of a collection the queries that pass the filter, and their negatives.

    The result is rows ``source, queries, passed, failed, rows, examples, negatives_mean,
    negatives_min, negatives_max``; ``examples`` is rows plus negatives, ``negatives_*`` are per
    row, None without rows. Without the query column ``consistent`` all queries passed.

    Parameters
    ----------
    rows
        Training rows with ``query_id`` and ``negative_ids``.
    source_of
        Source by query id.
    default
        Source of the other queries.
    """

    columns = ("consistent",)

    def __init__(
        self,
        rows: pd.DataFrame,
        source_of: Mapping[str, str],
        default: str,
    ) -> None:
        self._rows = rows
        self._source_of = source_of
        self._default = default
        self._passed: dict[str, bool] = {}

    def add(self, block: Candidates) -> None:
        """Note what passed."""
        everywhere = np.ones(len(block), np.float32)
        consistent = block.query_columns.get("consistent", everywhere) > 0
        query_ids = block.query_ids.tolist()
        self._passed |= dict(zip(query_ids, consistent.tolist(), strict=True))

    def _sources(self, queries: Iterable[str]) -> list[str]:
        return [self._source_of.get(query, self._default) for query in queries]

    def result(self) -> list[dict[str, Any]]:
        """Return the counts by source."""
        query_sources = self._sources(self._passed)
        has_passed = list(self._passed.values())
        queries = pd.DataFrame({"source": query_sources, "passed": has_passed})
        row_sources = np.array(self._sources(self._rows["query_id"]), dtype=object)
        row_negatives = self._rows["negative_ids"].map(len).to_numpy(np.int64)
        table = []
        for source, passed in queries.groupby("source").passed:
            negatives = row_negatives[row_sources == source]
            rows = len(negatives)
            passed_count = int(passed.sum())
            table.append(
                {
                    "source": source,
                    "queries": len(passed),
                    "passed": passed_count,
                    "failed": len(passed) - passed_count,
                    "rows": rows,
                    "examples": rows + int(negatives.sum()),
                    "negatives_mean": float(negatives.mean()) if rows else None,
                    "negatives_min": int(negatives.min()) if rows else None,
                    "negatives_max": int(negatives.max()) if rows else None,
                }
            )
        return table


def false_negatives(
    rows: pd.DataFrame,
    equivalents: pd.DataFrame,
    qrels: pd.DataFrame,
) -> dict[str, Any]:
    """Count the false negatives: selected negatives that were in truth relevant.

    Equivalents are relevant though no qrel says so, and never seen by the mining; of qrels every
    label above 0 counts. Returns ``count``, ``total`` (selected negatives), ``share``, its 95 %
    interval ``low`` and ``high`` over queries (:func:`anmi.evaluation.significance.share`);
    ``queries`` with at least one such negative, ``queries_total``, and ``known``: queries for which
    any equivalent is known, without which a small share means little. Without negatives the share
    is 0 in [0, 1].

    Examples
    --------
    >>> rows = pd.DataFrame({"query_id": ["q"], "negative_ids": [["d1", "d2"]]})
    >>> same = pd.DataFrame({"query_id": ["q"], "document_id": ["d2"]})
    >>> none = pd.DataFrame({"query_id": [], "document_id": [], "relevance": []})
    >>> counts = false_negatives(rows, same, none)
    >>> counts["count"], counts["total"], counts["share"]
    (1, 2, 0.5)
    """
    negatives = rows[["query_id", "negative_ids"]].explode("negative_ids").dropna()
    pairs = negatives.rename(columns={"negative_ids": "document_id"})
    return false_negatives_of_pairs(pairs, set(rows["query_id"].astype(str)), equivalents, qrels)


def false_negatives_of_pairs(
    pairs: pd.DataFrame,
    queries: set[str],
    equivalents: pd.DataFrame,
    qrels: pd.DataFrame,
) -> dict[str, Any]:
    """Return :func:`false_negatives` of ``queries`` whose negatives are pairs.

    A ``count`` says how often each was a negative.
    """
    is_labelled = pd.to_numeric(qrels["relevance"]) > 0
    labelled = qrels.loc[is_labelled, ["query_id", "document_id"]]
    relevant = pd.concat([equivalents[["query_id", "document_id"]], labelled])
    share = share_of_pairs(pairs, relevant)
    return {
        "count": share.count,
        "total": share.total,
        "share": share.value if share.total else 0.0,
        "low": share.low,
        "high": share.high,
        "queries": share.affected,
        "queries_total": len(queries),
        "known": len(queries & set(equivalents["query_id"].astype(str))),
    }


class Gap(Diagnosis):
    """Measures how far negatives lie below their query's first positive, by a measurement of both.

    The result is ``column, count, mean, median``, and a histogram of ``counts`` between ``edges``;
    nothing where no selected negative has the measurement.
    """

    def __init__(self, column: str) -> None:
        self.columns = (column,)
        self._column = column
        self._gaps = [np.zeros(0)]

    def add(self, block: Candidates) -> None:
        """Take the gaps of the negatives of a block."""
        if self._column in block.columns and self._column in block.positive_columns:
            positive = block.positive_columns[self._column][:, :1]
            gaps = (positive - block.columns[self._column])[block.negatives]
            self._gaps.append(gaps[np.isfinite(gaps)])

    def result(self) -> dict[str, Any]:
        """Return their distribution."""
        gaps = np.concatenate(self._gaps).astype(np.float64)
        if not len(gaps):
            return {}
        counts, edges = np.histogram(gaps, bins=_GAP_BINS)
        return {
            "column": self._column,
            "count": len(gaps),
            "mean": float(gaps.mean()),
            "median": float(np.median(gaps)),
            "edges": edges.tolist(),
            "counts": counts.tolist(),
        }


class AgainstMarks(Diagnosis):
    """Compares the judged probability of marked pairs with what a person said of them.

    Of a pair marked as not relevant it is what the judges said before the mark; of one marked as
    relevant, which is a positive now, what it would be given were it an unlabelled candidate, by
    coefficients that did not see its query. Pairs that nobody judged are left out. Marks are of
    pairs that somebody chose to look at, so their share of relevant ones says nothing of all pairs;
    how far a probability can be believed it does say.

    Parameters
    ----------
    marks
        ``query_id, document_id, relevance``.
    document_ids
        Of the corpus, in its order.
    """

    columns = (MARKED, "p_judged", "p_relevant")

    def __init__(self, marks: pd.DataFrame, document_ids: list[str]) -> None:
        relevant = marks[marks["relevance"] == 1]
        numbers = dict(zip(document_ids, range(len(document_ids)), strict=True))
        query_ids = relevant["query_id"].tolist()
        documents = relevant["document_id"].map(numbers).tolist()
        self._relevant = set(zip(query_ids, documents, strict=True))
        # By query and document, the judged probability and whether the pair is relevant.
        self._judged: dict[tuple[str, int], tuple[float, bool]] = {}

    def add(self, block: Candidates) -> None:
        """Look at a block after selection."""
        if MARKED in block.columns and "p_judged" in block.columns:
            is_refused = block.columns[MARKED] == 0
            for pair, probability in _judged_pairs(
                block,
                block.documents,
                block.columns["p_judged"],
                is_refused,
            ):
                self._judged[pair] = (probability, False)
        if self._relevant and "p_relevant" in block.positive_columns:
            is_marked = np.isin(block.query_ids, [query for query, _ in self._relevant])
            is_positive = (block.positives != PADDING) & is_marked[:, None]
            for pair, probability in _judged_pairs(
                block,
                block.positives,
                block.positive_columns["p_relevant"],
                is_positive,
            ):
                if pair in self._relevant:
                    self._judged[pair] = (probability, True)

    def result(self) -> dict[str, Any] | None:
        """Return counts, means, the Brier score and the reliability; None without a judged mark."""
        if not self._judged:
            return None
        judged = [self._judged[pair] for pair in sorted(self._judged)]
        probability, truth = np.array(judged).T
        groups = {
            "relevant": probability[truth == 1],
            "not_relevant": probability[truth == 0],
        }
        counts: dict[str, Any] = {}
        means = dict[str, float | None]()
        for name, group in groups.items():
            counts[name] = len(group)
            means[name] = float(group.mean()) if len(group) else None
        brier = float(np.mean((probability - truth) ** 2))
        agreement = {"brier": brier, "reliability": reliability(probability, truth, bins=5)}
        return counts | {"mean_probability": means} | agreement


def _judged_pairs(
    block: Candidates,
    documents: Int32s,
    probability: Float32s,
    is_marked: Bools,
) -> Iterable[tuple[tuple[str, int], float]]:
    """Return the marked pairs that were judged, each with its probability."""
    row, slot = np.nonzero(is_marked & np.isfinite(probability))
    query_ids = block.query_ids[row].tolist()
    pairs = zip(query_ids, documents[row, slot].tolist(), strict=True)
    return zip(pairs, probability[row, slot].tolist(), strict=True)


# A twentieth of a cosine is fine enough to see a bend, and leaves hundreds of candidates to a bin
# of a small run.
_BIN_WIDTH: Final = 0.05
# Bins on either side of 0.
_HALF_BINS: Final = 20
_BINS: Final = 2 * _HALF_BINS
# Probabilities are added up as whole numbers, so that no order of the blocks changes the sum.
_WHOLE: Final = 1 << 20
_COUNTS: Final = ("candidates", "judged", "expected", "known", "relevant")


class RelevanceByNearness(Diagnosis):
    """Counts which share of chosen and of rejected candidates is relevant, by how near they are.

    Near is the similarity ``dense`` of a candidate less that of the query's first positive: above 0
    it is nearer to the query than the positive, and the harder a negative. The result is ``edges``
    of n bins, of which the outermost ones hold all beyond, and for ``chosen`` and ``rejected``
    lists of n: ``candidates``; those ``judged`` and their ``expected`` share of relevant ones (mean
    ``p_relevant``, None of none); those of queries for which unlabelled relevant documents are
    ``known``, and how many of them are ``relevant`` in truth. None where nothing was compared.

    Parameters
    ----------
    equivalents
        ``query_id, document_id``: what is relevant though no label says so; mining has not seen it.
    document_ids
        Of the corpus, in its order.
    """

    columns = ("dense", "p_relevant")

    def __init__(self, equivalents: pd.DataFrame, document_ids: Sequence[str]) -> None:
        self._queries = pd.Index(equivalents["query_id"].astype(str).unique())
        self._documents = len(document_ids)
        document = pd.Index(document_ids).get_indexer(pd.Index(equivalents["document_id"]))
        query = self._queries.get_indexer(equivalents["query_id"].astype(str))
        is_present = document >= 0
        self._relevant = self._pairs(query[is_present], document[is_present])
        # By chosen or rejected, kind of count, and bin.
        self._counts = np.zeros((2, len(_COUNTS), _BINS), np.int64)

    def _pairs(self, query: NDArray[np.integer[Any]], document: NDArray[np.integer[Any]]) -> Int64s:
        return query.astype(np.int64) * self._documents + document

    def add(self, block: Candidates) -> None:
        """Count the candidates of a block."""
        if "dense" not in block.columns or "dense" not in block.positive_columns:
            return
        nearness = block.columns["dense"] - block.positive_columns["dense"][:, :1]
        fate = fate_of(block)
        is_decided = (fate >= NEGATIVE) & (block.documents != PADDING)
        row, slot = np.nonzero(np.isfinite(nearness) & is_decided)
        bin_from_middle = np.floor(nearness[row, slot] / _BIN_WIDTH).astype(np.int64)
        number = bin_from_middle + _HALF_BINS
        # Bins of the rejected after those of the chosen.
        is_rejected = fate[row, slot] > NEGATIVE
        bins = np.clip(number, 0, _BINS - 1) + _BINS * is_rejected
        unjudged = np.full(nearness.shape, np.nan, np.float32)
        probability = block.columns.get("p_relevant", unjudged)[row, slot]
        is_judged = np.isfinite(probability)
        query = self._queries.get_indexer(block.query_ids.astype(str))[row]
        is_known = query >= 0
        pairs = self._pairs(query, block.documents[row, slot])
        is_relevant = is_known & np.isin(pairs, self._relevant)
        judged_probability = np.where(is_judged, probability, 0).astype(np.float64)
        expected = np.rint(judged_probability * _WHOLE)
        every = np.ones(len(row))
        for kind, weights in enumerate((every, is_judged, expected, is_known, is_relevant)):
            counts = np.bincount(bins, weights, 2 * _BINS).astype(np.int64)
            self._counts[:, kind] += counts.reshape(2, -1)

    def result(self) -> dict[str, Any] | None:
        """Return the counts and shares."""
        judged = self._counts[:, _COUNTS.index("judged")]
        relevant = self._counts[:, _COUNTS.index("relevant")]
        if not judged.any() and not relevant.any():
            return None
        edges = np.arange(-_HALF_BINS, _HALF_BINS + 1) * _BIN_WIDTH
        chosen, rejected = map(_with_shares, self._counts)
        return {"edges": edges.round(2).tolist(), "chosen": chosen, "rejected": rejected}


def _with_shares(counts: Int64s) -> dict[str, list[Any]]:
    """Return the counts by kind, [kinds, bins], expected ones as shares of those judged."""
    lists: dict[str, list[Any]] = dict(zip(_COUNTS, counts.tolist(), strict=True))
    expected_shares = list[float | None]()
    for total, judged in zip(lists["expected"], lists["judged"], strict=True):
        expected_shares.append(total / _WHOLE / judged if judged else None)
    lists["expected"] = expected_shares
    return lists


_SCORE_BINS: Final = 40
SCORE_COLUMNS: Final = ("dense", "bm25", "p_relevant", "elo")


class Distributions(Diagnosis):
    """Histograms of the scores of positives, kept and rejected candidates within :func:`ranges`.

    By column: ``edges`` and counts for ``positives`` (of the row), ``kept`` (passed every filter),
    ``negatives`` (the part of ``kept`` that was drawn) and ``rejected``, a dict by step.
    """

    def __init__(self, ranges: Mapping[str, tuple[float, float]]) -> None:
        self.columns = tuple(ranges)
        self._ranges = ranges
        # By column and group of candidates; of the rejected the group is their step.
        self._groups: dict[str, dict[str, NDArray[Any]]] = {name: {} for name in ranges}
        self._rejected: dict[str, dict[str, NDArray[Any]]] = {name: {} for name in ranges}

    def add(self, block: Candidates) -> None:
        """Count the values of a block."""
        fate = fate_of(block).ravel()
        order = np.argsort(fate, kind="stable")
        # Where the candidates of each fate end: [0] padding, [1] open, [2] negative, then rejected.
        codes = np.arange(PADDING, len(block.legend))
        ends = np.searchsorted(fate[order], codes, side="right")
        for name in self._ranges:
            unmeasured = np.full(block.documents.shape, np.nan, np.float32)
            values = block.columns.get(name, unmeasured).ravel()[order]
            positives = _first_positive(block, name)
            is_positive = block.positives[:, : positives.shape[1]] != PADDING
            self._count(self._groups, name, "positives", positives[is_positive])
            self._count(self._groups, name, "kept", values[ends[0] : ends[2]])
            self._count(self._groups, name, "negatives", values[ends[1] : ends[2]])
            for code, step in enumerate(block.legend[2:], start=2):
                rejected = values[ends[code] : ends[code + 1]]
                self._count(self._rejected, name, step, rejected)

    def _count(
        self,
        groups: dict[str, dict[str, NDArray[Any]]],
        name: str,
        group: str,
        values: Float32s,
    ) -> None:
        finite = values[np.isfinite(values)]
        counts = np.histogram(finite, _SCORE_BINS, self._ranges[name])[0]
        groups[name][group] = counts + groups[name].get(group, 0)

    def result(self) -> dict[str, dict[str, Any]]:
        """Return the counts."""
        histograms: dict[str, dict[str, Any]] = {}
        for name, groups in self._groups.items():
            if not groups:
                continue
            edges = np.histogram_bin_edges(np.zeros(0), _SCORE_BINS, self._ranges[name])
            steps = self._rejected[name].items()
            rejected = {step: counts.tolist() for step, counts in steps if counts.any()}
            lists = {group: counts.tolist() for group, counts in groups.items()}
            histograms[name] = {"edges": edges.tolist(), **lists, "rejected": rejected}
        return histograms


def _first_positive(block: Candidates, column: str) -> Float32s:
    """Return a measurement of each query's first positive, [Q, 1]; [Q, 0] without it."""
    unmeasured = np.zeros((len(block), 0), np.float32)
    return block.positive_columns.get(column, unmeasured)[:, :1]


def ranges(
    shards: Iterable[Candidates], columns: Sequence[str] = SCORE_COLUMNS
) -> dict[str, tuple[float, float]]:
    """Return the least and the greatest finite value of measurements, of candidates and positives.

    A measurement without any such value is left out.
    """
    bounds: dict[str, tuple[float, float]] = {}
    for block in shards.only(*columns) if isinstance(shards, CandidateShards) else shards:
        for name in columns:
            candidates = block.columns.get(name, np.zeros(0, np.float32))
            positives = _first_positive(block, name)
            values = np.concatenate([candidates.ravel(), positives.ravel()])
            values = values[np.isfinite(values)]
            if len(values):
                low, high = bounds.get(name, (np.inf, -np.inf))
                low = min(low, float(values.min()))
                high = max(high, float(values.max()))
                bounds[name] = (low, high)
    for name, (low, high) in bounds.items():
        bounds[name] = (low, high if high > low else low + 1.0)
    return bounds
