"""How far the cross-encoder is trusted beside the other evidence."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, logit

from anmi.candidates import Candidates, CandidateShards
from anmi.judging.fused import combined, log_odds
from anmi.judging.judgments import Judgments
from anmi.judging.llm import Read

_LEAST: Final = 50
_TINY: Final = 1e-9


@dataclass(frozen=True)
class Stack:
    """Weight of a second judge's evidence, fitted on hidden positives.

    Attributes
    ----------
    weight
        ≥ 0, on the log-odds; 0 where too few positives can be hidden, so that the second judge has no say.
    prior
        Base rate of the second judge's probability.
    hidden
        Hidden positives the weight was fitted on.
    """

    weight: float
    prior: float
    hidden: int

    @staticmethod
    def fit(shards: CandidateShards) -> Stack:
        """Fit the weight by maximum likelihood of hidden positives against candidates.

        Parameters
        ----------
        shards
            With ``p_evidence`` and ``p_cross`` of candidates, ``p_heldout`` and ``p_cross`` of positives; both judges
            must be cross-fitted.
        """
        first, second, label, every = [], [], [], []
        for block in shards:
            own = block.positive_columns
            parts = ((own["p_heldout"], own["p_cross"], 1), (block.columns["p_evidence"], block.columns["p_cross"], 0))
            for fused, cross, tag in parts:
                every.append(cross[np.isfinite(cross)])
                known = np.isfinite(fused) & np.isfinite(cross)
                first.append(fused[known])
                second.append(cross[known])
                label.append(np.full(int(known.sum()), tag))
        prior = float(np.clip(np.concatenate(every).mean(), _TINY, 1 - _TINY))
        kind = np.concatenate(label)
        hidden = int((kind == 1).sum())
        if hidden < _LEAST or hidden == len(kind):
            return Stack(0.0, prior, 0)
        return Stack(_weight(np.concatenate(first), np.concatenate(second), kind, prior), prior, hidden)

    def __call__(self, block: Candidates) -> Candidates:
        """Return the block with ``p_relevant`` of candidates, and of positives that can be hidden."""
        own = block.positive_columns
        return block.with_columns(
            {"p_relevant": combined(block.columns["p_evidence"], block.columns["p_cross"], self.weight, self.prior)},
            {
                "p_relevant": (held := combined(own["p_heldout"], own["p_cross"], self.weight, self.prior)),
                "p_heldout": held,
            },
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the numbers."""
        return asdict(self)


@dataclass(frozen=True)
class Stacked:
    """Adds to a block what the second judge says and what follows from both, in a worker where need be.

    Attributes
    ----------
    judgments
        Of the second judge.
    stack
        Its weight.
    answers
        Of a language model, which come first.
    """

    judgments: Judgments
    stack: Stack
    answers: Read | None = None

    def __call__(self, block: Candidates) -> Candidates:
        """Return the block with all judgments and ``p_relevant``."""
        return self.stack(self.judgments(block if self.answers is None else self.answers(block)))


def _weight(first: NDArray[np.float64], second: NDArray[np.float64], label: NDArray[np.int64], prior: float) -> float:
    """Maximum-likelihood weight; the intercept absorbs that hidden positives are rarer or commoner than in truth."""
    base, more = log_odds(first), log_odds(second) - logit(prior)

    def objective(point: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        score = base + point[0] * more + point[1]
        error = (expit(score) - label) / len(label)
        return float((np.logaddexp(0, score) - label * score).mean()), np.array([error @ more, error.sum()])

    found = minimize(objective, np.zeros(2), jac=True, bounds=[(0, None), (None, None)], method="L-BFGS-B")
    return float(found.x[0])
