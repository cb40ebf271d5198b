"""All judges of a block of queries, asked together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from anmi import seeds
from anmi.errors import AnmiError
from anmi.judging.preferences import PairwiseJudge, pool, preference, sharpen


@dataclass(frozen=True)
class Texts:
    """What pairwise judges read.

    Attributes
    ----------
    queries
        Text by query id.
    documents
        Text by document index.
    """

    queries: Mapping[str, str] = field(default_factory=dict)
    documents: Sequence[str] = ()


@dataclass(frozen=True)
class Panel:
    """The judges of Q comparison graphs with up to n nodes.

    Attributes
    ----------
    scores
        Of the pointwise judges by name, [Q, n]; NaN where missing.
    weights, temperatures
        Of the pointwise judges by name.
    slope
        Sharpens their pooled preference.
    votes
        Observations that a comparison of all of them counts for; of some of them, the share of their weights.
    pairwise, observations
        The pairwise judges by name, and the observations that a comparison of each counts for.
    keys, query_ids
        Q names of the random streams, and Q query ids.
    documents
        Document index of the nodes, [Q, n].
    texts
        Read by the pairwise judges.
    seed
        Of the order in which a pair is shown.
    """

    scores: Mapping[str, NDArray[np.float64]]
    weights: Mapping[str, float]
    temperatures: Mapping[str, float]
    slope: float
    votes: float
    pairwise: Mapping[str, PairwiseJudge]
    observations: Mapping[str, float]
    keys: Sequence[str]
    query_ids: Sequence[str]
    documents: NDArray[np.int32]
    texts: Texts
    seed: int

    @property
    def width(self) -> int:
        """Most nodes of a comparison graph here."""
        return self.documents.shape[1]

    def pointwise(self, first: NDArray[np.int64], second: NDArray[np.int64]) -> list[NDArray[np.float64]]:
        """Preferences of each pointwise judge, [Q, E] each; NaN where a score is missing."""
        return [preference(self.scores[name], first, second, self.temperatures[name]) for name in self.weights]

    def ask(
        self, first: NDArray[np.int64], second: NDArray[np.int64], valid: NDArray[np.bool_]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Put comparisons to the judges.

        Parameters
        ----------
        first, second, valid
            The comparisons, [Q, E].

        Returns
        -------
        share
            P(first ≻ second) over all judges, [Q, E]; NaN where nobody answered.
        votes
            Observations that it counts for, [Q, E].
        """
        shares, counts = [], []
        if self.weights:
            each = self.pointwise(first, second)
            weights = np.array(list(self.weights.values()))
            shares.append(sharpen(pool(each, weights.tolist()), self.slope))
            counts.append(self.votes * np.tensordot(weights / max(weights.sum(), 1e-12), np.isfinite(each), axes=1))
        if self.pairwise:
            order = self._order(first, second)
            shares += [self._prefer(name, judge, order, valid) for name, judge in self.pairwise.items()]
            counts += [np.full(first.shape, self.observations[name]) for name in self.pairwise]
        share = np.stack(shares)
        count = np.stack(counts) * (np.isfinite(share) & valid)
        votes = count.sum(axis=0)
        total = (count * np.nan_to_num(share)).sum(axis=0)
        return np.where(votes > 0, total / np.where(votes > 0, votes, 1.0), np.nan), votes

    def _order(
        self, first: NDArray[np.int64], second: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
        """Show half of the pairs the other way round: a judge may favour what it reads first."""
        low, high = np.minimum(first, second), np.maximum(first, second)
        pair = (high * (high - 1) // 2 + low).astype(np.int32)
        turned = seeds.uniform(self.seed, "elo/order", self.keys, pair) < 0.5
        shown_first = np.where(turned, high, low)
        return shown_first, low + high - shown_first, shown_first != first

    def _prefer(
        self,
        name: str,
        judge: PairwiseJudge,
        order: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]],
        valid: NDArray[np.bool_],
    ) -> NDArray[np.float64]:
        first, second, turned = order
        row, place = np.nonzero(valid)
        queries = [self.texts.queries[self.query_ids[int(r)]] for r in row]
        shown = (
            [self.texts.documents[int(d)] for d in self.documents[row, nodes[row, place]]] for nodes in (first, second)
        )
        answers = np.asarray(judge.prefer(queries, *shown), np.float64)
        if answers.shape != row.shape:
            raise AnmiError(f"pairwise judge {name} gave {answers.size} answers to {len(row)} comparisons; one each")
        if ((answers < 0) | (answers > 1)).any():
            raise AnmiError(f"pairwise judge {name} gave a preference outside [0, 1]; it must return probabilities")
        share = np.full(valid.shape, np.nan)
        share[row, place] = np.where(turned[row, place], 1.0 - answers, answers)
        return share
