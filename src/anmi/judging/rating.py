"""Adding Elo and its standard error to candidates, from the pooled preferences of several judges."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from anmi.candidates import PADDING, Candidates, CandidateShards
from anmi.judging import elo, preferences


class RatingOptions(BaseModel):
    """How preferences are pooled and strengths are fitted."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    judges: dict[str, float] = Field(
        default={"bm25": 1.0, "dense": 1.0, "cross": 1.0},
        description="Score columns and their weights; equal, since which judge is right differs by collection.",
    )
    degree: int = Field(8, ge=2, multiple_of=2, description="Comparisons per document, as in zELO.")
    depth: int = Field(
        16, ge=2, description="Candidates rated per query, best by fused rank first; as many as are judged."
    )
    prior_precision: float = Field(
        0.01, gt=0, description="Of the Gaussian prior on strengths; weak, and keeps unanimous preferences finite."
    )
    votes: float = Field(
        1.0, gt=0, description="Observations one pooled preference counts for; one is the cautious reading."
    )


@dataclass
class Rater:
    """Fits temperatures on all shards, then rates block by block.

    Parameters
    ----------
    options
        Judges, graph and prior.
    seed
        Of the comparison graphs.
    """

    options: RatingOptions
    seed: int
    temperatures: dict[str, float] = field(default_factory=dict)

    def fit(self, shards: CandidateShards) -> None:
        """Fit the temperature of every judge's preferences on (positive, candidate) pairs; methods §2."""
        rows: dict[str, list[tuple[NDArray[Any], NDArray[Any]]]] = {name: [] for name in self.options.judges}
        for block in shards:
            for name, parts in rows.items():
                known = block.positives != PADDING
                best = np.nanmax(np.where(known, block.positive_columns[name], -np.inf), axis=1)
                parts.append((best, block.columns[name][:, : self.options.depth]))
        for name, parts in rows.items():
            width = max(others.shape[1] for _, others in parts)
            padded = [np.pad(o, ((0, 0), (0, width - o.shape[1])), constant_values=np.nan) for _, o in parts]
            best = np.concatenate([b for b, _ in parts])
            self.temperatures[name] = preferences.fit_temperature(best, np.concatenate(padded))

    def __call__(self, block: Candidates) -> Candidates:
        """Return one row per (query, positive) with ``elo``, ``elo_se`` and ``gap_se``.

        Node 0 of each comparison graph is the row's own positive, the others its rated candidates; ``gap_se`` is the
        standard error of Elo(own positive) − Elo(candidate).
        """
        block = block.by_positive()
        keys = [f"{query}\x1f{own}" for query, own in zip(block.query_ids, block.positives[:, 0], strict=True)]
        depth = min(self.options.depth, block.documents.shape[1])
        sizes = 1 + block.filled[:, :depth].sum(axis=1)
        first, second, valid = preferences.comparisons(keys, sizes, self.options.degree, self.seed)
        votes = []
        for name in self.options.judges:
            scores = np.concatenate([block.positive_columns[name][:, :1], block.columns[name][:, :depth]], axis=1)
            votes.append(preferences.preference(scores.astype(np.float64), first, second, self.temperatures[name]))
        pooled = preferences.pool(votes, list(self.options.judges.values()))
        pooled = np.where(valid, pooled, np.nan)
        fitted = elo.fit(first, second, pooled, sizes, self.options.prior_precision, self.options.votes)
        # A document without a single vote has only its prior; its Elo is unknown rather than average.
        voted = self._voted(first, second, pooled, fitted.elo.shape)
        columns, own = {}, {}
        for name, values in (("elo", fitted.elo), ("elo_se", fitted.se), ("gap_se", fitted.gap_se)):
            known = np.where(voted, values, np.nan)
            columns[name] = np.full(block.documents.shape, np.nan, np.float32)
            columns[name][:, : known.shape[1] - 1] = known[:, 1:]
            if name != "gap_se":
                own[name] = np.full(block.positives.shape, np.nan, np.float32)
                own[name][:, 0] = known[:, 0]
        return block.with_columns(columns, own)

    @staticmethod
    def _voted(
        first: NDArray[np.int64], second: NDArray[np.int64], pooled: NDArray[np.float64], shape: tuple[int, ...]
    ) -> NDArray[np.bool_]:
        row, place = np.nonzero(np.isfinite(pooled))
        voted = np.zeros(shape, bool)
        voted[row, first[row, place]] = True
        voted[row, second[row, place]] = True
        return voted
