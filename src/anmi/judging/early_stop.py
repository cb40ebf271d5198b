"""Training of a cross-encoder: its similarity of segments, and keeping the best state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn
from torch.nn import functional
from transformers import TrainerCallback

from anmi.ragged import Float32s


class SegmentSimilarity(nn.Module):
    """Similarity of query and document within their joint encoding: scale · Σ wₖ ûₖ v̂ₖ + bias.

    û and v̂ are the normalised means of the token vectors of either segment. Both were computed
    with the other one in sight, so this is a cross-encoder; but it starts where the bi-encoder's
    own mean pooling left off. A fresh classifier on [CLS], which MiniLM never trained, stays near
    chance after the few hundred pairs a small collection has. The start is what helps: whether
    training adds to it has not been shown.

    Parameters
    ----------
    width
        Dimensions of the token vectors.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.scale = nn.Parameter(torch.tensor(10.0))
        self.bias = nn.Parameter(torch.tensor(-3.0))

    def forward(self, features: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Add ``scores`` [B, 1] to features with ``token_embeddings`` [B, L, D] and segment ids."""
        tokens = features["token_embeddings"].float()
        mask = features["attention_mask"]
        segment = features["token_type_ids"]
        query = self._mean(tokens, mask * (segment == 0))
        document = self._mean(tokens, mask * (segment == 1))
        scores = self.scale * (self.weight * query * document).sum(dim=-1) + self.bias
        return features | {"scores": scores.unsqueeze(1)}

    @staticmethod
    def _mean(tokens: Tensor, mask: Tensor) -> Tensor:
        weights = mask.unsqueeze(-1).float()
        mean = (tokens * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1.0)
        return functional.normalize(mean, dim=-1)


class EarlyStop(TrainerCallback):  # type: ignore[misc]
    """Scores held-out pairs several times per epoch and stops when that no longer gets better.

    Parameters
    ----------
    model
        The model in training.
    score
        Returns its current scores of the held-out pairs, [n].
    labels
        Of those pairs, [n]; both kinds occur.
    every
        Steps between two looks; two of them without a new best end the training.

    Attributes
    ----------
    before, best
        Area under the ROC curve on the held-out pairs before training, and at its best.
    best_step, steps
        Step of the best state, 0 being the untrained one, and steps made.
    """

    def __init__(
        self,
        model: Any,
        score: Callable[[], Float32s],
        labels: Float32s,
        every: int,
    ) -> None:
        self._model = model
        self._score = score
        self._labels = labels
        self._every = max(every, 1)
        self.steps = self.best_step = self._worse = 0
        self.before = self.best = self._look()
        self._state = self._copy()

    def _look(self) -> float:
        return float(roc_auc_score(self._labels, self._score()))

    def _copy(self) -> dict[str, Any]:
        return {
            name: tensor.detach().cpu().clone() for name, tensor in self._model.state_dict().items()
        }

    def on_step_end(
        self,
        args: Any,
        state: Any,
        control: Any,
        **_: Any,
    ) -> None:
        """Look, if it is time to."""
        self.steps = state.global_step
        if self.steps % self._every and self.steps < state.max_steps:
            return
        auc = self._look()
        # A state that is only as good as the untrained one has learnt nothing worth its risks.
        if auc > self.best:
            self.best_step = self.steps
            self.best = auc
            self._state = self._copy()
            self._worse = 0
            return
        self._worse += 1
        control.should_training_stop |= self._worse >= 2

    def restore(self) -> dict[str, float | int]:
        """Put the best state back and return what was seen."""
        self._model.load_state_dict(self._state)
        return {
            "auc_before": self.before,
            "auc_after": self.best,
            "steps": self.steps,
            "best_step": self.best_step,
            "held_out_pairs": len(self._labels),
        }
