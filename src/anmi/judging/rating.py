"""Elo and its standard error of candidates, from the pooled preferences of several judges."""

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
_NO_OPINION: Final = 0.02


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
    def _someone_judges(self) -> RatingOptions:
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
    """

    options: RatingOptions
    seed: int
    pairwise: Mapping[str, PairwiseJudge] = field(default_factory=dict)
    query_texts: Mapping[str, str] = field(default_factory=dict)
    document_texts: Sequence[str] = ()
    temperatures: dict[str, float] = field(default_factory=dict)
    slope: float = 1.0

    def fit(self, shards: CandidateShards) -> None:
        """Fit temperatures and the slope on (positive, candidate) pairs (methods §2).

        Raises
        ------
        AnmiError
            A judge whose column no candidate has, or no judge at all with a score.
        """
        scores = self._labelled_scores(shards)
        self.temperatures = {}
        wins = []
        for judge, (positive_scores, candidate_scores) in scores.items():
            difference = (positive_scores[:, None] - candidate_scores).astype(np.float64)
            difference[~np.isfinite(difference)] = np.nan
            if np.isnan(difference).all():
                log.warning(
                    "Elo: judge %s has no score of a positive and a candidate of one query;"
                    " left out",
                    judge,
                )
                continue
            temperature = self.options.temperature or preferences.fit_temperature(
                positive_scores, candidate_scores
            )
            self.temperatures[judge] = temperature
            wins.append(scipy.special.expit(difference / temperature))
            if np.nanmean(np.abs(wins[-1] - 0.5)) < _NO_OPINION:
                log.warning(
                    "Elo: judge %s tells positives from candidates no better than chance", judge
                )
        if scores and not any(self._weights.values()) and not self.options.pairwise_judges:
            raise AnmiError(
                f"elo.judges: none of {', '.join(scores)} has scores; judge the candidates first"
            )
        weights = list(self._weights.values())
        if sum(weight > 0 for weight in weights) > 1:
            pooled, _ = preferences.pool(wins, weights)
            self.slope = preferences.fit_slope(pooled)

    @property
    def _weights(self) -> dict[str, float]:
        weights = self.options.judges.items()
        return {judge: weight for judge, weight in weights if judge in self.temperatures}

    def _labelled_scores(self, shards: CandidateShards) -> dict[str, tuple[Float32s, Float32s]]:
        """Return the scores of each query's best positive [Q] and candidates [Q, M], by judge."""
        positives: dict[str, list[Float32s]] = {judge: [] for judge in self.options.judges}
        candidates: dict[str, list[Float32s]] = {judge: [] for judge in self.options.judges}
        has_blocks = False
        for block in shards:
            has_blocks = True
            for judge in self.options.judges:
                if judge not in block.columns or judge not in block.positive_columns:
                    raise AnmiError(
                        f'elo.judges: candidates have no column "{judge}";'
                        f" {nearest(judge, block.columns)}"
                    )
                positive_scores = block.positive_columns[judge]
                positives[judge].append(np.fmax.reduce(positive_scores, axis=1, initial=-np.inf))
                candidates[judge].append(block.columns[judge][:, : self.options.depth])
        if not has_blocks:
            return {}
        return {
            judge: (np.concatenate(positives[judge]), stacked(candidates[judge], np.nan))
            for judge in self.options.judges
        }

    def _nodes(self, block: Candidates) -> tuple[Int32s, dict[str, Floats], Ints]:
        """Return documents [Q, n] and their scores by judge, the first positive in front, and n."""
        sizes = 1 + block.filled[:, : self.options.depth].sum(axis=1)
        depth = int(sizes.max(initial=1)) - 1

        def nodes(positives: NDArray[Any], candidates: NDArray[Any]) -> NDArray[Any]:
            return np.concatenate([positives[:, :1], candidates[:, :depth]], axis=1)

        scores = {
            judge: nodes(block.positive_columns[judge], block.columns[judge]).astype(np.float64)
            for judge in self._weights
        }
        return nodes(block.positives, block.documents), scores, sizes

    def ask(
        self,
        block: Candidates,
        first: Ints,
        second: Ints,
        valid: Bools,
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
        preference
            P(first ≻ second) over all judges, [Q, E]; NaN where nobody answered.
        votes
            Observations that it counts for, [Q, E].
        """
        documents, scores, _ = self._nodes(block)
        answers = [
            self._compared(judge, block, (documents, first, second), valid)
            for judge in self.options.pairwise_judges
        ]
        votes = [np.full(first.shape, count) for count in self.options.pairwise_judges.values()]
        if self._weights:
            by_judge = [
                preferences.preference(scores[judge], first, second, self.temperatures[judge])
                for judge in self._weights
            ]
            mean, mass = preferences.pool(by_judge, list(self._weights.values()))
            answers.append(preferences.sharpen(mean, self.slope))
            # Together they count for one: all comparisons repeat the same scores.
            votes.append(mass / (sum(self._weights.values()) or 1.0))
        return preferences.pool([np.where(valid, answer, np.nan) for answer in answers], votes)

    def _compared(
        self,
        judge: str,
        block: Candidates,
        nodes: Sequence[NDArray[Any]],
        valid: Bools,
    ) -> Floats:
        """Return P(first ≻ second) by a pairwise judge, [Q, E]; a document and its copy are a tie.

        Half of the pairs are shown the other way round, so that a judge that favours what it reads
        first comes out even. Their texts alone say which, so that no order of them is asked about,
        and paid for, besides.
        """
        documents, first, second = nodes
        preference = np.where(valid, 0.5, np.nan)
        rows, slots = np.nonzero(valid)
        questions = list[tuple[str, str, str]]()
        is_swapped = list[bool]()
        is_asked = np.zeros(len(rows), bool)
        for number, (row, slot) in enumerate(zip(rows, slots, strict=True)):
            query = self.query_texts[str(block.query_ids[row])]
            left = self.document_texts[int(documents[row, first[row, slot]])]
            right = self.document_texts[int(documents[row, second[row, slot]])]
            if left == right:
                continue
            is_asked[number] = True
            pair = "\x1f".join((query, *sorted((left, right))))
            draw = seeds.key(self.seed, "elo/order", pair)[0] % 2
            is_swapped.append(bool(draw) != (left > right))
            questions.append((query, right, left) if is_swapped[-1] else (query, left, right))
        texts = zip(*questions, strict=True) if questions else ((), (), ())
        answers = np.asarray(self.pairwise[judge].prefer(*map(list, texts)))
        if answers.shape != (len(questions),):
            raise AnmiError(
                f"pairwise judge {judge} gave {answers.size} answers to {len(questions)}"
                " comparisons; one each"
            )
        if ((answers < 0) | (answers > 1)).any():
            raise AnmiError(
                f"pairwise judge {judge} gave a preference outside [0, 1]; it must return"
                " probabilities"
            )
        asked_pairs = rows[is_asked], slots[is_asked]
        preference[asked_pairs] = np.where(np.array(is_swapped, bool), 1.0 - answers, answers)
        return preference

    def __call__(self, block: Candidates) -> Candidates:
        """Return a block with ``elo``, ``elo_se``, ``gap_se`` and ``p_preferred``.

        Node 0 of each comparison graph is the query's first positive, the others its rated
        candidates; ``gap_se`` is the standard error of Elo(positive) − Elo(candidate), and
        ``p_preferred`` the model's P(candidate ≻ positive). A document that no chain of answered
        comparisons joins to the positive has no gap to it, and stays NaN.
        """
        sizes = self._nodes(block)[2]
        options = self.options
        keys = [
            f"{query}\x1f{positive}"
            for query, positive in zip(block.query_ids, block.positives[:, 0], strict=True)
        ]
        first, second, valid = preferences.comparisons(keys, sizes, options.comparisons, self.seed)
        preference, votes = self.ask(block, first, second, valid)
        answered = np.isfinite(preference)
        width = int(sizes.max(initial=1))
        # Those that hang together with node 0, the positive.
        groups = preferences.groups(first, second, answered, width)
        used = answered & (np.take_along_axis(groups, first, axis=1) == groups[:, :1])
        joined = preferences.touched(first, second, used, width)
        preference = np.where(used, preference, np.nan)
        if options.variant == "star":
            strengths = elo.fit(
                first,
                second,
                preference,
                sizes,
                options.prior_precision,
                votes,
                deviation=options.deviation,
            )
        else:
            strengths = elo.ascend(first, second, preference, sizes, deviation=options.deviation)
        judged = preferences.touched(first, second, answered, width)
        if unrated := int((judged & ~joined).sum()):
            log.warning(
                "Elo: %d judged documents have no rating, since no comparison joins them to their"
                " positive",
                unrated,
            )
        return _with_elo(block, strengths, joined, options.deviation)


def _with_elo(
    block: Candidates,
    strengths: elo.Strengths,
    joined: Bools,
    deviation: float,
) -> Candidates:
    columns = dict[str, NDArray[Any]]()
    positive_columns = dict[str, NDArray[Any]]()
    for column, values in strengths._asdict().items():
        # A document that was not compared has only its prior; its Elo is unknown, not average.
        ratings = np.where(joined, values, np.nan).astype(np.float32)
        columns[column] = widened(ratings[:, 1:], block.documents.shape[1])
        positive_columns[column] = widened(ratings[:, :1], block.positives.shape[1])
    lead = (columns["elo"] - positive_columns["elo"][:, :1]) / elo.ELO_SCALE
    columns["p_preferred"] = scipy.special.ndtr(lead / deviation)
    del positive_columns["gap_se"]
    return block.with_columns(columns, positive_columns)
