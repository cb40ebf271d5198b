"""The library's training loop with our batches in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from sentence_transformers import SentenceTransformerTrainer

from anmi.training.batch import Batcher
from anmi.training.recorder import Recorder
from anmi.training.sampler import NegativeSampler


class Loop(SentenceTransformerTrainer):  # type: ignore[misc]
    """The library's trainer with our objective, which wants the whole batch, and without its model card.

    The loader gives row numbers only. Negatives are chosen, and texts tokenised, when the step is made: a loader
    fetches ahead, and would choose by the state of a curriculum before the last step was observed.
    """

    sampler: NegativeSampler
    batcher: Batcher
    recorder: Recorder

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Return the loss of the rows whose numbers ``inputs`` holds."""
        step = self.state.global_step
        rows = self.sampler(inputs["row"].cpu().numpy(), step)
        loss = self.loss(self._prepare_input(self.batcher(rows)) | {"step": step})
        self.recorder.loss = loss.item()
        return (loss, {}) if return_outputs else loss

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any:
        self.recorder.grad_norm = float(super()._get_grad_norm(model, grad_norm))
        return self.recorder.grad_norm

    def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
        """No card is written, and its callback would look for codecarbon."""


class RowNumbers:
    """Collates ``{"row": number}`` to one tensor."""

    # Read by the trainer when it builds its batch sampler; there are no labels here.
    valid_label_columns: tuple[str, ...] = ()

    def __call__(self, features: Sequence[dict[str, int]]) -> dict[str, torch.Tensor]:
        """Return the numbers of a batch, int64 [B]."""
        return {"row": torch.tensor([feature["row"] for feature in features])}
