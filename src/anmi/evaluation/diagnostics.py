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

_BINS: Final = 40


class Diagnosis:
    """Something that is found out by looking at one block after the other.

    Attributes
    ----------
    columns
        Measurements it looks at, where they are there.
    """

    columns: tuple[str, ...] = ()

    def see(self, block: Candidates) -> None:
        """Look at a block after selection."""
        raise NotImplementedError

    def found(self) -> Any:
        """Return what was found, ready for JSON."""
        raise NotImplementedError


def diagnose(shards: Iterable[Candidates], *diagnoses: Diagnosis) -> list[Any]:
    """Return what each of them finds in the shards, in one pass that reads no other measurement."""
    read = dict.fromkeys(column for each in diagnoses for column in each.columns)
    for block in ahead(shards.only(*read) if isinstance(shards, CandidateShards) else shards):
        for each in diagnoses:
            each.see(block)
    return [each.found() for each in diagnoses]


class Funnel(Diagnosis):
    """Counts the way from candidates to negatives.

    It finds rows ``step, kind, candidates, queries`` in this order: one of kind ``total``; one per
    verdict in the order of the legend, with its ``rule`` besides and of the kind ``uncertain`` (for
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
        full = chosen >= self._n
        self._queries.update(
            negative=int((chosen > 0).sum()), complete=int(full.sum()), total=len(block)
        )
        self._candidates.update(complete=int(chosen[full].sum()), total=int(block.filled.sum()))

    def found(self) -> list[dict[str, Any]]:
        """Return the rows."""

        def row(step: str, kind: str, name: str) -> dict[str, Any]:
            return {
                "step": step,
                "kind": kind,
                "candidates": self._candidates[name],
                "queries": self._queries[name],
            }

        rows = [row("candidates", "total", "total")]
        for name in self._steps:
            rule = self._rules.get(name, Rule())
            kind = rule.kind if rule.kind in ("uncertain", "promoted") else "rejected"
            rows.append(row(name, kind, name) | {"rule": rule.text})
        rows += [row("not drawn", "undecided", "open"), row("negatives", "negative", "negative")]
        return [*rows, row(f"all {self._n} negatives", "complete", "complete")]


def fate_of(block: Candidates) -> NDArray[np.int16]:
    """Legend code that decided on each candidate, [Q, M]; -1 in padding.

    A candidate that was still open when its query was dropped shares the fate of the query.
    """
    query = np.broadcast_to(block.query_verdict[:, None], block.verdict.shape)
    fate = np.where((block.verdict == OPEN) & (query != OPEN), query, block.verdict)
    return np.where(block.filled, fate, np.int16(PADDING)).astype(np.int16)


class Origins(Diagnosis):
    """Counts where the selected negatives came from, largest first.

    By ``sources`` that found them, such as ``bm25+dense``, and by ``tiers`` of the back-off they
    were drawn from.
    """

    columns = ("tier",)

    def __init__(self) -> None:
        self._sources = Counter[str]()
        self._tiers = Counter[str]()

    def see(self, block: Candidates) -> None:
        """Count the negatives of a block."""
        drawn = block.negatives & (block.query_verdict == OPEN)[:, None]
        bits, counts = np.unique(block.source[drawn], return_counts=True)
        for value, count in zip(bits.tolist(), counts.tolist(), strict=True):
            self._sources["+".join(name for name, bit in SOURCES.items() if value & bit)] += count
        if "tier" in block.columns:
            tiers = block.columns["tier"][drawn]
            for tier, count in zip(
                *np.unique(tiers[np.isfinite(tiers)], return_counts=True), strict=True
            ):
                self._tiers[TIERS[int(tier)]] += int(count)

    def found(self) -> dict[str, dict[str, int]]:
        """Return the counts."""
        return {
            "sources": dict(self._sources.most_common()),
            "tiers": dict(self._tiers.most_common()),
        }


# A share of relevant ones among the negatives that never goes out without a warning.
_LARGE: Final = 0.05
_MANY: Final = "that is many; lower the step's max_expected_share, or label more documents"
_BASES: Final = {"transfer": "other collections", "hidden": "labels"}


class Expected(Diagnosis):
    """Finds which share of the selected negatives the judge itself expects to be relevant, by ``p_relevant``.

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

        ``low`` and ``high`` are from :class:`anmi.judging.expected.ExpectedShare`; ``doubtful`` are
        those of the last tier. The share goes by a ``basis``: hidden ``labels``, ``other
        collections``, or ``nothing`` where it cannot be estimated. ``warning`` says why, or that it
        is large; else None. None where no negative was judged.
        """
        if not self._share.documents:
            return None
        low, high = self._share.interval
        counts = {"judged": self._share.documents, "total": self._total, "doubtful": self._doubtful}
        warning = self._judge.get("warning")
        basis = "nothing" if warning else _BASES.get(self._judge.get("mode", ""))
        told = {
            "basis": basis,
            "warning": warning or (_MANY if self._share.share > _LARGE else None),
        }
        return {"share": self._share.share, "low": low, "high": high, **counts, **told}


class BySource(Diagnosis):
    """Counts for each part of a collection what passed the consistency filter and how many negatives came of it.

    It finds rows ``source, queries, passed, failed, rows, examples, negatives_mean, negatives_min,
    negatives_max``; examples are positives and negatives, the numbers of negatives per row, None
    without one. Without the query column ``consistent`` all queries passed.

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

    def __init__(self, rows: pd.DataFrame, source_of: Mapping[str, str], default: str) -> None:
        self._rows = rows
        self._source_of = source_of
        self._default = default
        self._passed: dict[str, bool] = {}

    def see(self, block: Candidates) -> None:
        """Note what passed."""
        consistent = block.query_columns.get("consistent", np.ones(len(block), np.float32)) > 0
        self._passed |= dict(zip(block.query_ids.tolist(), consistent.tolist(), strict=True))

    def _sources(self, queries: Iterable[str]) -> list[str]:
        return [self._source_of.get(query, self._default) for query in queries]

    def found(self) -> list[dict[str, Any]]:
        """Return the counts by source."""
        queries = pd.DataFrame(
            {"source": self._sources(self._passed), "passed": list(self._passed.values())}
        )
        sources = np.array(self._sources(self._rows["query_id"]), dtype=object)
        wide = self._rows["negative_ids"].map(len).to_numpy(np.int64)
        table = []
        for source, group in queries.groupby("source", sort=True):
            count = len(group)
            good = int(group.passed.sum())
            mine = wide[sources == source]
            known = (
                {"mean": float(mine.mean()), "min": int(mine.min()), "max": int(mine.max())}
                if len(mine)
                else {}
            )
            spread = {f"negatives_{name}": known.get(name) for name in ("mean", "min", "max")}
            counts = {
                "source": source,
                "queries": count,
                "passed": good,
                "failed": count - good,
                "rows": len(mine),
            }
            table.append(counts | {"examples": len(mine) + int(mine.sum())} | spread)
        return table


def false_negatives(
    rows: pd.DataFrame, equivalents: pd.DataFrame, qrels: pd.DataFrame
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
    share = {"share": found.value if found.total else 0.0, "low": found.low, "high": found.high}
    of_queries = {"queries": found.affected, "queries_total": len(queries)}
    known = len(queries & set(equivalents["query_id"].astype(str)))
    return {"count": found.count, "total": found.total, **share, **of_queries, "known": known}


class Gap(Diagnosis):
    """Measures how far the selected negatives lie below their query's first positive, by a measurement of both.

    It finds ``column, count, mean, median``, and a histogram of ``counts`` between ``edges``;
    nothing where no selected negative has the measurement.
    """

    def __init__(self, column: str) -> None:
        self.columns = (column,)
        self._column = column
        self._parts = [np.zeros(0)]

    def see(self, block: Candidates) -> None:
        """Take the gaps of the negatives of a block."""
        if self._column in block.columns and self._column in block.positive_columns:
            row, slot = np.nonzero(block.negatives)
            gaps = (
                block.positive_columns[self._column][row, 0]
                - block.columns[self._column][row, slot]
            )
            self._parts.append(gaps[np.isfinite(gaps)])

    def found(self) -> dict[str, Any]:
        """Return their distribution."""
        gaps = np.concatenate(self._parts).astype(np.float64)
        if not len(gaps):
            return {}
        counts, edges = np.histogram(gaps, bins=_BINS)
        middle = {"mean": float(gaps.mean()), "median": float(np.median(gaps))}
        told = {"column": self._column, "count": len(gaps), **middle}
        return told | {"edges": edges.tolist(), "counts": counts.tolist()}


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
        place = dict(zip(document_ids, range(len(document_ids)), strict=True))
        rows = relevant["document_id"].map(place).tolist()
        self._relevant = set(zip(relevant["query_id"].tolist(), rows, strict=True))
        self._seen: dict[tuple[str, int], tuple[float, bool]] = {}

    def see(self, block: Candidates) -> None:
        """Look at a block after selection."""
        if MARKED in block.columns and "p_judged" in block.columns:
            self._note(
                block,
                block.documents,
                block.columns["p_judged"],
                block.columns[MARKED] == 0,
                known=False,
            )
        if self._relevant and "p_relevant" in block.positive_columns:
            asked = np.isin(block.query_ids, [query for query, _ in self._relevant])
            own = (block.positives != PADDING) & asked[:, None]
            self._note(
                block, block.positives, block.positive_columns["p_relevant"], own, known=True
            )

    def _note(
        self,
        block: Candidates,
        documents: Int32s,
        chance: Float32s,
        which: Bools,
        *,
        known: bool,
    ) -> None:
        row, slot = np.nonzero(which & np.isfinite(chance))
        pairs = zip(block.query_ids[row].tolist(), documents[row, slot].tolist(), strict=True)
        for pair, value in zip(pairs, chance[row, slot].tolist(), strict=True):
            if not known or pair in self._relevant:
                self._seen[pair] = (value, known)

    def found(self) -> dict[str, Any] | None:
        """Return counts, mean probabilities, the Brier score and the reliability; None where nothing is compared."""
        if not self._seen:
            return None
        chance, known = (
            np.array(each)
            for each in zip(*(self._seen[pair] for pair in sorted(self._seen)), strict=True)
        )
        truth = known.astype(np.float64)
        means = {
            name: float(chance[which].mean()) if which.any() else None
            for name, which in (("relevant", known), ("not_relevant", ~known))
        }
        counts = {
            "relevant": int(known.sum()),
            "not_relevant": int((~known).sum()),
            "mean_probability": means,
        }
        brier = float(np.mean((chance - truth) ** 2))
        return counts | {"brier": brier, "reliability": reliability(chance, truth, bins=5)}


# A twentieth of a cosine is fine enough to see a bend, and leaves hundreds of candidates to a bin
# of a small run.
_STEP: Final = 0.05
_MOST: Final = 20
# Probabilities are added up as whole numbers, so that no order of the blocks changes the sum.
_WHOLE: Final = 1 << 20
_COUNTS: Final = ("candidates", "judged", "expected", "known", "relevant")


class RelevanceByNearness(Diagnosis):
    """Counts which share of the chosen and of the rejected candidates is relevant, by how near they are.

    Near is the similarity ``dense`` of a candidate less that of the query's first positive: above 0
    it is nearer to the query than the positive, and the harder a negative. It finds ``edges`` of n
    bins, of which the outermost ones hold all beyond, and for ``chosen`` and ``rejected`` lists of
    n: ``candidates``; those ``judged`` and their ``expected`` share of relevant ones (mean
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
        place = pd.Index(document_ids).get_indexer(pd.Index(equivalents["document_id"]))
        query = self._queries.get_indexer(equivalents["query_id"].astype(str))
        self._relevant = self._pairs(query[place >= 0], place[place >= 0])
        self._counts = np.zeros((2, len(_COUNTS), 2 * _MOST), np.int64)

    def _pairs(self, query: NDArray[np.integer[Any]], document: NDArray[np.integer[Any]]) -> Int64s:
        return query.astype(np.int64) * self._documents + document

    def see(self, block: Candidates) -> None:
        """Count the candidates of a block."""
        if "dense" not in block.columns or "dense" not in block.positive_columns:
            return
        near = block.columns["dense"] - block.positive_columns["dense"][:, :1]
        fate = fate_of(block)
        row, slot = np.nonzero(
            np.isfinite(near) & (fate >= NEGATIVE) & (block.documents != PADDING)
        )
        place = np.clip(
            np.floor(near[row, slot] / _STEP).astype(np.int64) + _MOST, 0, 2 * _MOST - 1
        )
        chance = (
            block.columns["p_relevant"][row, slot]
            if "p_relevant" in block.columns
            else np.full(len(row), np.nan)
        )
        judged = np.isfinite(chance)
        query = self._queries.get_indexer(block.query_ids.astype(str))[row]
        relevant = np.isin(self._pairs(query, block.documents[row, slot]), self._relevant) & (
            query >= 0
        )
        whole = np.rint(np.where(judged, chance, 0).astype(np.float64) * _WHOLE)
        # Bins of the rejected after those of the chosen.
        bins = place + 2 * _MOST * (fate[row, slot] > NEGATIVE)
        for number, values in enumerate((np.ones(len(row)), judged, whole, query >= 0, relevant)):
            self._counts[:, number] += (
                np.bincount(bins, values, 4 * _MOST).astype(np.int64).reshape(2, -1)
            )

    def found(self) -> dict[str, Any] | None:
        """Return the counts and shares."""
        if not self._counts[:, 1].any() and not self._counts[:, 4].any():
            return None
        edges = (np.arange(-_MOST, _MOST + 1) * _STEP).round(2).tolist()
        return {"edges": edges} | {
            name: dict(zip(_COUNTS, _with_shares(counts), strict=True))
            for name, counts in zip(("chosen", "rejected"), self._counts, strict=True)
        }


def _with_shares(counts: Int64s) -> list[list[Any]]:
    candidates, judged, expected, known, relevant = counts.tolist()
    shares = [
        total / _WHOLE / count if count else None
        for total, count in zip(expected, judged, strict=True)
    ]
    return [candidates, judged, shares, known, relevant]


_SCORE_BINS: Final = 40
SCORE_COLUMNS: Final = ("dense", "bm25", "p_relevant", "elo")


class Distributions(Diagnosis):
    """Histograms of the scores of positives, kept and rejected candidates, between the ranges of :func:`ranges`.

    By column: ``edges`` and counts for ``positives`` (of the row), ``kept`` (passed every filter),
    ``negatives`` (the part of ``kept`` that was drawn) and ``rejected``, a dict by step.
    """

    def __init__(self, ranges: Mapping[str, tuple[float, float]]) -> None:
        self.columns = tuple(ranges)
        self._ranges = ranges
        self._counts: dict[str, dict[str, Any]] = {}

    def see(self, block: Candidates) -> None:
        """Count the values of a block."""
        fate = fate_of(block).ravel()
        order = np.argsort(fate, kind="stable")
        # Where the candidates of each verdict end, once they stand in the order of their fate,
        # padding first.
        ends = np.searchsorted(fate[order], np.arange(PADDING, len(block.legend)), side="right")
        for name, (low, high) in self._ranges.items():
            none = np.full(block.documents.shape, np.nan, np.float32)
            values = block.columns.get(name, none).ravel()[order]
            own = block.positive_columns.get(name, np.zeros((len(block), 0), np.float32))[:, :1]
            known = block.positives[:, : own.shape[1]] != PADDING
            parts = {
                "positives": own[known],
                "kept": values[ends[0] : ends[2]],
                "negatives": values[ends[1] : ends[2]],
            }
            rejected = {
                step: values[ends[code] : ends[code + 1]]
                for code, step in enumerate(block.legend)
                if code > 1
            }
            entry = self._counts.setdefault(name, {"rejected": {}})
            for target, groups in ((entry, parts), (entry["rejected"], rejected)):
                for group, found in groups.items():
                    counts = np.histogram(found[np.isfinite(found)], _SCORE_BINS, (low, high))[0]
                    target[group] = counts + target.get(group, 0)

    def found(self) -> dict[str, dict[str, Any]]:
        """Return the counts."""
        result = {}
        for name, entry in self._counts.items():
            rejected = {
                step: counts.tolist() for step, counts in entry["rejected"].items() if counts.any()
            }
            groups = {group: entry[group].tolist() for group in ("positives", "kept", "negatives")}
            edges = np.histogram_bin_edges(np.zeros(0), _SCORE_BINS, self._ranges[name])
            result[name] = {"edges": edges.tolist(), **groups, "rejected": rejected}
        return result


def ranges(
    shards: Iterable[Candidates], columns: Sequence[str] = SCORE_COLUMNS
) -> dict[str, tuple[float, float]]:
    """Return the least and the greatest finite value of measurements, of candidates and of positives.

    A measurement without any such value is left out.
    """
    found: dict[str, tuple[float, float]] = {}
    for block in shards.only(*columns) if isinstance(shards, CandidateShards) else shards:
        for name in columns:
            every = (
                block.columns.get(name),
                block.positive_columns.get(name, np.zeros((0, 1), np.float32))[:, :1],
            )
            for values in (part[np.isfinite(part)] for part in every if part is not None):
                if len(values):
                    low, high = found.get(name, (np.inf, -np.inf))
                    found[name] = min(low, float(values.min())), max(high, float(values.max()))
    return {name: (low, high if high > low else low + 1.0) for name, (low, high) in found.items()}
