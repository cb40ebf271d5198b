"""Adding Elo and its standard error to candidates, from the pooled preferences of several judges."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np
import scipy
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, model_validator

from anmi import seeds
from anmi.candidates import Candidates, CandidateShards, stacked, widened
from anmi.errors import AnmiError, nearest
from anmi.judging import elo, preferences
from anmi.judging.preferences import Floats, Ints, PairwiseJudge
from anmi.ragged import Bools, Float32s, Int32s

log = logging.getLogger(__name__)
_LEAST_RELIABILITY: Final = 0.05
_AGREEMENT_QUERIES: Final = 4000
_NO_OPINION: Final = 0.02
# Share of a judge's error variance that is common to all judges, which their agreement cannot show.
# In simulation nominal 95 % intervals of gaps then cover 96–99 % if judges err independently, 92 %
# if a tenth of the error is common.
_COMMON_ERROR: Final = 0.1


@dataclass
class Agreement:
    """Sums over queries, from which the number of votes follows.

    Attributes
    ----------
    weights
        Of the judges, [J], more than one of them above 0.
    gap, claimed
        Variance of the gaps to the positive by the judges' disagreement, and as the model claims it
        at one vote.
    square
        Squares of the gaps.
    """

    weights: Sequence[float]
    gap: float = 0.0
    claimed: float = 0.0
    square: float = 0.0

    def add(
        self,
        first: Ints,
        second: Ints,
        judged: Sequence[Floats],
        slope: float,
        sizes: Ints,
        prior_precision: float,
    ) -> None:
        """Add a block of queries.

        Parameters
        ----------
        first, second
            Compared nodes, [Q, E].
        judged
            Preferences of each judge, J arrays [Q, E]; NaN where missing.
        slope
            Of :func:`~anmi.judging.preferences.sharpen`.
        sizes
            Nodes per query, [Q].
        prior_precision
            Of the fit.
        """
        pooled = preferences.pool(judged, self.weights)
        pooled = np.where(_joined(first, second, np.isfinite(pooled), sizes.max()), pooled, np.nan)
        fitted = elo.fit(first, second, preferences.sharpen(pooled, slope), sizes, prior_precision)
        problem = elo.Problem.of(first, second, pooled, sizes, prior_precision)
        strengths = np.nan_to_num((fitted.elo - elo.ELO_MEAN) / elo.ELO_SCALE)
        # Change of each comparison's gradient by its pooled preference.
        z = problem.z(strengths)
        sharp = preferences.sharpen(problem.share, slope)
        push = slope * sharp * (1 - sharp) / np.maximum(problem.share * (1 - problem.share), 1e-12)
        push *= (elo.hazard(z) + elo.hazard(-z)) / np.sqrt(2.0)
        weights = np.array(self.weights)
        push /= np.maximum(np.tensordot(weights, np.isfinite(judged), axes=1), 1e-12)
        known = problem.mass > 0
        slopes = [
            problem.spread(
                np.where(known & np.isfinite(each), weight * (each - pooled) * push, 0.0)
            )
            for weight, each in zip(weights, judged, strict=True)
        ]
        moves = np.linalg.solve(problem.information(strengths), np.stack(slopes, axis=2))
        share = weights / weights.sum()
        squares = (share**2).sum()
        # Of J judges, the moves scatter around their own mean: for equal weights the usual J/(J −
        # 1).
        factor = squares / (share**2 * (1 - 2 * share + squares)).sum()
        # Gaps count where the positive (node 0) was compared too.
        others = problem.voted & problem.voted[:, :1] & (np.arange(problem.width) > 0)
        self.gap += float(factor * ((moves[:, :1] - moves)[others] ** 2).sum())
        self.claimed += float(((fitted.gap_se / elo.ELO_SCALE)[others] ** 2).sum())
        self.square += float(((strengths[:, :1] - strengths)[others] ** 2).sum())

    def votes(self) -> float:
        """Return the number of independent observations that a comparison of all judges counts for.

        It is 1 where there is nothing to learn from, and at most 100: copies of one judge know no
        more than it does.
        """
        if self.gap <= 0 or self.claimed <= 0:
            return 1.0
        # The effective number of judges is (Σw)²/Σw².
        judges = sum(self.weights) ** 2 / sum(w**2 for w in self.weights)
        wider = (1 + (judges - 1) * _COMMON_ERROR) / (1 - _COMMON_ERROR)
        reliability = max(1 - wider * self.gap / max(self.square, 1e-12), _LEAST_RELIABILITY)
        return float(min(reliability * self.claimed / (wider * self.gap), 100.0))


class RatingOptions(BaseModel):
    """How preferences are pooled and strengths are fitted."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    judges: dict[str, NonNegativeFloat] = Field(default={"bm25": 1.0, "dense": 1.0, "cross": 1.0})
    pairwise_judges: dict[str, NonNegativeFloat] = Field(default={})
    variant: Literal["star", "paraphrase"] = "star"
    degree: int | None = Field(None, ge=2, multiple_of=2)
    depth: int = Field(16, ge=2)
    temperature: float | None = Field(None, gt=0)
    difference: Literal["case_v", "unit"] = "case_v"
    prior_precision: float = Field(0.01, gt=0)

    @model_validator(mode="after")
    def _somebody_judges(self) -> RatingOptions:
        if not any(self.judges.values()) and not any(self.pairwise_judges.values()):
            raise ValueError(
                "nobody judges; give weight to a score column in judges or to one of"
                " pairwise_judges"
            )
        return self

    @property
    def comparisons(self) -> int:
        """Comparisons per document, resolved."""
        return self.degree or (4 if self.variant == "paraphrase" else 8)

    @property
    def deviation(self) -> float:
        """Deviation of a difference of strengths: s of P = Φ(Δ/s)."""
        return 1.0 if self.difference == "unit" else elo.CASE_V


@dataclass
class Rater:
    """Fits temperatures on all shards, then rates block by block.

    Parameters
    ----------
    options
        Judges, graph and prior.
    seed
        Of the comparison graphs.
    pairwise
        The pairwise judges that the options name.
    query_texts, document_texts
        By query id and by document index, for the pairwise judges.
    temperatures
        By judge; set by :meth:`fit`, which leaves out a judge without any score.
    slope
        Sharpens the pooled preferences of several score columns; set by :meth:`fit`.
    votes
        Observations that such a preference counts for; set by :meth:`fit`.
    """

    options: RatingOptions
    seed: int
    pairwise: Mapping[str, PairwiseJudge] = field(default_factory=dict)
    query_texts: Mapping[str, str] = field(default_factory=dict)
    document_texts: Sequence[str] = ()
    temperatures: dict[str, float] = field(default_factory=dict)
    slope: float = 1.0
    votes: float = 1.0

    @property
    def summary(self) -> dict[str, Any]:
        """What was fitted, for the report."""
        return {"temperatures": self.temperatures, "slope": self.slope, "votes": self.votes}

    def fit(self, shards: CandidateShards) -> None:
        """Fit each judge's temperature on (positive, candidate) pairs, then what they are worth together (methods §2).

        Raises
        ------
        AnmiError
            A judge whose column no candidate has, or no judge at all with a score.
        """
        labelled = self._labelled(shards)
        self.temperatures = {}
        wins = {}
        for name, (best, others) in labelled.items():
            if not np.isfinite(best[:, None] - others).any():
                log.warning(
                    "Elo: judge %s has no score of a positive and a candidate of one query;"
                    " left out",
                    name,
                )
                continue
            temperature = self.options.temperature or preferences.fit_temperature(best, others)
            self.temperatures[name] = temperature
            difference = best[:, None].astype(np.float64) - others
            wins[name] = scipy.special.expit(
                np.where(np.isfinite(difference), difference, np.nan) / temperature
            )
            if np.nanmean(np.abs(wins[name] - 0.5)) < _NO_OPINION:
                log.warning(
                    "Elo: judge %s tells positives from candidates no better than chance", name
                )
        if labelled and not any(self._weights.values()) and not self.options.pairwise_judges:
            raise AnmiError(
                f"elo.judges: none of {', '.join(labelled)} has scores; judge the candidates first"
            )
        if sum(weight > 0 for weight in self._weights.values()) > 1:
            self.slope = preferences.fit_slope(
                preferences.pool(list(wins.values()), list(self._weights.values()))
            )
            if self.options.variant == "star":
                self.votes = self._agreement(shards, queries=len(next(iter(wins.values()))))

    @property
    def _weights(self) -> dict[str, float]:
        return {
            name: weight
            for name, weight in self.options.judges.items()
            if name in self.temperatures
        }

    def _labelled(self, shards: CandidateShards) -> dict[str, tuple[Float32s, Float32s]]:
        """Score of each query's best positive [Q] and of its candidates [Q, M], by judge."""
        rows: dict[str, list[tuple[NDArray[Any], NDArray[Any]]]] = {
            name: [] for name in self.options.judges
        }
        for block in shards:
            for name, parts in rows.items():
                if name not in block.columns or name not in block.positive_columns:
                    raise AnmiError(
                        f'elo.judges: candidates have no column "{name}";'
                        f" {nearest(name, block.columns)}"
                    )
                best = np.fmax.reduce(block.positive_columns[name], axis=1, initial=-np.inf)
                parts.append((best, block.columns[name][:, : self.options.depth]))
        found = {name: list(zip(*parts, strict=True)) for name, parts in rows.items() if parts}
        return {
            name: (np.concatenate(best), stacked(others, np.nan))
            for name, (best, others) in found.items()
        }

    def _agreement(self, shards: CandidateShards, queries: int) -> float:
        """Estimate what a pooled preference counts for, on a sample of queries that does not depend on the shards."""
        agreement = Agreement(list(self._weights.values()))
        for block in shards:
            draw = seeds.uniform(
                self.seed,
                "elo/agreement",
                list(block.query_ids),
                np.zeros((len(block), 1), np.int32),
            )
            sample = block.take(draw[:, 0] * queries < _AGREEMENT_QUERIES)
            if len(sample) == 0:
                continue
            _, scores, sizes = self._nodes(sample)
            first, second, valid = self._compared(sample, sizes)
            judged = [
                np.where(valid, each, np.nan) for each in self._preferences(scores, first, second)
            ]
            agreement.add(first, second, judged, self.slope, sizes, self.options.prior_precision)
        return agreement.votes()

    def _nodes(self, block: Candidates) -> tuple[Int32s, dict[str, Floats], Ints]:
        """Documents of the nodes and their scores by judge, [Q, n]: the first positive, then the candidates; and n."""
        sizes = 1 + block.filled[:, : self.options.depth].sum(axis=1)
        depth = int(sizes.max(initial=1)) - 1

        def nodes(own: NDArray[Any], others: NDArray[Any]) -> NDArray[Any]:
            return np.concatenate([own[:, :1], others[:, :depth]], axis=1)

        scores = {
            n: nodes(block.positive_columns[n], block.columns[n]).astype(np.float64)
            for n in self._weights
        }
        return nodes(block.positives, block.documents), scores, sizes

    def _compared(self, block: Candidates, sizes: Ints) -> tuple[NDArray[Any], ...]:
        keys = [
            f"{query}\x1f{own}"
            for query, own in zip(block.query_ids, block.positives[:, 0], strict=True)
        ]
        return preferences.comparisons(keys, sizes, self.options.comparisons, self.seed)

    def _preferences(self, scores: Mapping[str, Floats], first: Ints, second: Ints) -> list[Floats]:
        """Preferences of each score column, [Q, E] each; NaN where a score is missing."""
        return [
            preferences.preference(scores[n], first, second, self.temperatures[n])
            for n in self._weights
        ]

    def ask(
        self, block: Candidates, first: Ints, second: Ints, valid: Bools
    ) -> tuple[Floats, Floats]:
        """Put comparisons to all judges.

        Parameters
        ----------
        block
            Q queries.
        first, second, valid
            The comparisons, [Q, E].

        Returns
        -------
        share
            P(first ≻ second) over all judges, [Q, E]; NaN where nobody answered.
        votes
            Observations that it counts for, [Q, E].
        """
        documents, scores, _ = self._nodes(block)
        shares = []
        counts = []
        if self._weights:
            each = self._preferences(scores, first, second)
            weights = np.array(list(self._weights.values()))
            shares.append(preferences.sharpen(preferences.pool(each, weights.tolist()), self.slope))
            counts.append(
                self.votes
                * np.tensordot(weights / max(weights.sum(), 1e-12), np.isfinite(each), axes=1)
            )
        for name, observations in self.options.pairwise_judges.items():
            shares.append(self._prefer(name, block, (documents, first, second), valid))
            counts.append(np.full(first.shape, observations))
        share = np.stack(shares)
        count = np.stack(counts) * (np.isfinite(share) & valid)
        votes = count.sum(axis=0)
        total = (count * np.nan_to_num(share)).sum(axis=0)
        return np.where(votes > 0, total / np.where(votes > 0, votes, 1.0), np.nan), votes

    def _prefer(
        self, name: str, block: Candidates, nodes: Sequence[NDArray[Any]], valid: Bools
    ) -> Floats:
        """P(first ≻ second) by a pairwise judge, [Q, E]; a document and its copy are a tie.

        Half of the pairs are shown the other way round, so that a judge that favours what it reads
        first comes out even. Their texts alone say which, so that no order of them is asked about,
        and paid for, besides.
        """
        documents, first, second = nodes
        share = np.where(valid, 0.5, np.nan)
        asked = list[tuple[str, ...]]()
        turned = list[bool]()
        places = list[list[int]]()
        for row, place in np.argwhere(valid).tolist():
            query = self.query_texts[str(block.query_ids[row])]
            one, other = (
                self.document_texts[int(documents[row, each[row, place]])]
                for each in (first, second)
            )
            if one != other:
                drawn = (
                    seeds.key(self.seed, "elo/order", "\x1f".join((query, *sorted((one, other)))))[
                        0
                    ]
                    % 2
                )
                turned.append(bool(drawn) != (one > other))
                asked.append((query, other, one) if turned[-1] else (query, one, other))
                places.append([row, place])
        answers = np.asarray(
            self.pairwise[name].prefer(*([each[part] for each in asked] for part in range(3)))
        )
        if answers.shape != (len(asked),):
            raise AnmiError(
                f"pairwise judge {name} gave {answers.size} answers to {len(asked)} comparisons;"
                " one each"
            )
        if ((answers < 0) | (answers > 1)).any():
            raise AnmiError(
                f"pairwise judge {name} gave a preference outside [0, 1]; it must return"
                " probabilities"
            )
        rows, slots = np.array(places, np.int64).reshape(-1, 2).T
        share[rows, slots] = np.where(np.array(turned, bool), 1.0 - answers, answers)
        return share

    def __call__(self, block: Candidates) -> Candidates:
        """Return a block with ``elo``, ``elo_se``, ``gap_se`` and ``p_preferred``.

        Node 0 of each comparison graph is the query's first positive, the others its rated
        candidates; ``gap_se`` is the standard error of Elo(positive) − Elo(candidate), and
        ``p_preferred`` the model's P(candidate ≻ positive). A document that no chain of answered
        comparisons joins to the positive has no gap to it, and stays NaN.
        """
        sizes = self._nodes(block)[2]
        options = self.options
        first, second, valid = self._compared(block, sizes)
        share, votes = self.ask(block, first, second, valid)
        width = int(sizes.max(initial=1))
        used = _joined(first, second, np.isfinite(share), width)
        joined = preferences.touched(first, second, used, width)
        given = (first, second, np.where(used, share, np.nan), sizes)
        if options.variant == "star":
            fitted = elo.fit(*given, options.prior_precision, votes, deviation=options.deviation)
        else:
            fitted = elo.ascend(*given, deviation=options.deviation)
        if lost := int(
            (preferences.touched(first, second, np.isfinite(share), width) & ~joined).sum()
        ):
            log.warning(
                "Elo: %d judged documents have no rating, since no comparison joins them to their"
                " positive",
                lost,
            )
        return _with_elo(block, fitted, joined, self.options.deviation)


def _joined(first: Ints, second: Ints, answered: Bools, width: int) -> Bools:
    """Return which answered comparisons hang together with node 0, the positive, [Q, E]."""
    label = preferences.groups(first, second, answered, width)
    return answered & (np.take_along_axis(label, first, axis=1) == label[:, :1])


def _with_elo(
    block: Candidates, fitted: elo.Strengths, joined: Bools, deviation: float
) -> Candidates:
    # A document that was not compared has only its prior; its Elo is unknown rather than average.
    known = {
        name: np.where(joined, values, np.nan)
        for name, values in zip(("elo", "elo_se", "gap_se"), fitted, strict=True)
    }
    width = block.documents.shape[1]
    positives = block.positives.shape[1]
    columns = {
        name: widened(values[:, 1:].astype(np.float32), width) for name, values in known.items()
    }
    own = {
        name: widened(known[name][:, :1].astype(np.float32), positives)
        for name in ("elo", "elo_se")
    }
    ahead = (columns["elo"] - own["elo"][:, :1]) / elo.ELO_SCALE
    columns["p_preferred"] = scipy.special.ndtr(ahead / deviation)
    return block.with_columns(columns, own)
