"""The library's training loop with our batches and checkpoints in it."""

from __future__ import annotations

import dataclasses
import logging
import math
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformerTrainer
from torch.utils.data import BatchSampler
from transformers import TrainerCallback
from transformers.trainer import TRAINER_STATE_NAME

from anmi.errors import AnmiError
from anmi.retrieval.kinds import is_static
from anmi.training.batch import Batcher
from anmi.training.checkpoint import Checkpoints, number, read
from anmi.training.curriculum import Curriculum
from anmi.training.failures import (
    BatchSize,
    NotFiniteError,
    is_out_of_memory,
    not_finite,
    out_of_memory,
    with_checkpoint,
)
from anmi.training.observed import Observed
from anmi.training.options import TrainingOptions
from anmi.training.pseudo import Layout, OneKindBatches, PseudoRows, WithPseudoQueries
from anmi.training.recorder import Recorder
from anmi.training.snapshot import (
    optimizer_tensors,
    random_state,
    random_to_json,
    restore_optimizer,
    restore_random,
    restore_scheduler,
)

log = logging.getLogger(__name__)


class Loop(SentenceTransformerTrainer):  # type: ignore[misc]
    """The library's trainer with our objective, which wants the whole batch, and without its model card.

    The loader gives row numbers only. Negatives are chosen, and texts tokenised, when the step is made: a loader
    fetches ahead, and would choose by the state of a curriculum before the last step was observed.

    Its own checkpoints are pickled; here they are safetensors and JSON.
    """

    # None where nothing is labelled.
    sampler: Any = None
    batcher: Batcher
    recorder: Recorder
    curriculum: Curriculum | None = None
    checkpoints: Checkpoints | None = None
    size = BatchSize()
    # None for the library's own, at random.
    batches: BatchSampler | None = None
    _query_ids: Sequence[str] = ()
    # Of the step that is being made, until the optimizer begins to change the weights.
    _before_step: dict[str, Any] | None = None
    # To be put back right before the first step after resuming.
    _random_of_step: dict[str, Any] | None = None

    def add_pseudo_queries(self, labelled: int, pseudo: PseudoRows, layout: Layout) -> None:
        """Train on pseudo-queries behind the labelled rows, in batches of one kind; see :mod:`anmi.training.pseudo`."""
        self.sampler = self.recorder.sampler = WithPseudoQueries(self.sampler, labelled, pseudo, layout.steps)
        self.batches = OneKindBatches(
            layout.groups, layout.taken, layout.sizes, self.args.seed, lambda: self.state.global_step // layout.steps
        )

    def get_batch_sampler(self, dataset: Any, batch_size: int, *args: Any, **options: Any) -> Any:
        """Return what forms the batches."""
        if self.batches is not None:
            return self.batches
        return super().get_batch_sampler(dataset, batch_size, *args, **options)

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Return the loss of the rows whose numbers ``inputs`` holds."""
        if self._random_of_step is not None:
            restore_random(self._random_of_step)
            self._random_of_step = None
        if self.checkpoints is not None:
            self._before_step = random_state()
        step = self.state.global_step
        self.recorder.rows = self.sampler(inputs["row"].cpu().numpy(), step)
        batch = self.batcher(self.recorder.rows)
        self.size, self._query_ids = BatchSize.of(batch), batch["query_ids"]
        loss = self.loss(self._prepare_input(batch) | {"step": step})
        self.recorder.loss = loss.item()
        if hasattr(self.sampler, "observe"):
            queries, documents = (part.float().cpu().numpy() for part in self.loss.encoded)
            rows = inputs["row"].cpu().numpy()
            self.recorder.observed = Observed(rows, queries, batch["document_ids"], documents)
        return (loss, {}) if return_outputs else loss

    def training_step(self, *args: Any, **options: Any) -> Any:
        """Return the loss after its gradients, those of all devices, have been computed."""
        loss = super().training_step(*args, **options)
        if self.loss.team is not None:
            self.loss.team.reduce()
        return loss

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any:
        norm = float(super()._get_grad_norm(model, grad_norm))
        # The norm is that of the encoder; what the loss learns is small.
        of_loss = [p.grad for p in self.loss.loss.parameters() if p.grad is not None]
        if not math.isfinite(norm) or not all(bool(torch.isfinite(gradient).all()) for gradient in of_loss):
            shown = norm if not math.isfinite(norm) else float("nan")
            raise not_finite("gradient", shown, self._query_ids)
        self.recorder.grad_norm = norm
        # From here on the weights are neither those before the step nor those after it.
        self._before_step = None
        return norm

    def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
        """No card is written, and its callback would look for codecarbon."""

    def run(self, options: TrainingOptions, checkpoints: Checkpoints | None) -> None:
        """Train, from a checkpoint on where there is one.

        Raises
        ------
        AnmiError
            Something became NaN or infinite, or memory did not suffice; says what to change and how to go on.
        """
        failure: AnmiError | None = None
        with nullcontext() if checkpoints is None else checkpoints.held():
            start = None if checkpoints is None else checkpoints.begin()
            self.checkpoints = checkpoints if checkpoints is not None and checkpoints.owned else None
            try:
                self.train(resume_from_checkpoint=None if start is None else str(start))
            except NotFiniteError as error:
                failure = error
            except (MemoryError, RuntimeError) as error:
                if not is_out_of_memory(error):
                    raise
                device = "GPU" if self.args.device.type == "cuda" else "machine"
                failure = out_of_memory(options, self.size, device, static=is_static(self.model))
            # Outside of the handlers, whose error keeps the memory of the step that failed.
            if failure is not None:
                raise with_checkpoint(failure, self.rescue())

    def rescue(self) -> Path | None:
        """Return the newest checkpoint after an error, made now if the error came before the step changed a weight."""
        if self.checkpoints is None:
            return None
        newest, step = self.checkpoints.newest(), self.state.global_step
        if self._before_step is None or step == 0 or (newest is not None and number(newest) >= step):
            return newest
        try:
            return self._write_checkpoint(self._before_step, in_step=True)
        except (AnmiError, OSError, MemoryError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and not is_out_of_memory(error):
                raise
            return newest

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        if self.checkpoints is None:
            return
        try:
            self._write_checkpoint(random_state(), in_step=False)
        except OSError as error:
            # Hours of work are not to be lost because the disk is full.
            log.warning("No checkpoint could be written: %s", error)

    def _write_checkpoint(self, drawn: dict[str, Any], *, in_step: bool) -> Path:
        if self.checkpoints is None:
            raise ValueError("this training has no place for checkpoints")
        recorded, best = self.recorder.state_dict()
        tensors = {
            "encoder": self.model.state_dict(),
            "loss": self.loss.loss.state_dict(),
            "optimizer": optimizer_tensors(self.optimizer),
        }
        drawing, memory = self.sampler.state_dict() if hasattr(self.sampler, "state_dict") else (None, {})
        if memory:
            tensors["sampler"] = memory
        values = {
            # The library reads this file itself.
            Path(TRAINER_STATE_NAME).stem: dataclasses.asdict(self.state),
            "recorder": recorded,
            "curriculum": None if self.curriculum is None else self.curriculum.state_dict(),
            "sampler": drawing,
            "random": random_to_json(drawn) | {"in_step": in_step},
        }
        return self.checkpoints.write(
            self.state.global_step, tensors if best is None else tensors | {"best": best}, values
        )

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        tensors, values = read(Path(resume_from_checkpoint), "cpu")
        self.model.load_state_dict(tensors["encoder"])
        self.loss.loss.load_state_dict(tensors["loss"])
        self.recorder.load_state_dict(values["recorder"], tensors.get("best"))
        if self.curriculum is not None:
            self.curriculum.load_state_dict(values["curriculum"])
        if hasattr(self.sampler, "load_state_dict"):
            self.sampler.load_state_dict(values["sampler"], tensors.get("sampler", {}))
        self._loaded = tensors["optimizer"], values["random"]

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if checkpoint is not None:
            restore_optimizer(self.optimizer, self._loaded[0])
            restore_scheduler(self.lr_scheduler, self.optimizer, self.state.global_step)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        # A state from within a step is put back there: beginning an epoch draws from the same generators.
        if self._loaded[1]["in_step"]:
            self._random_of_step = self._loaded[1]
        else:
            restore_random(self._loaded[1])


class Timer(TrainerCallback):  # type: ignore[misc]
    """Asks for a checkpoint when one is due.

    At the end of an epoch it waits for what happens then, so the dev metric is measured before.

    Parameters
    ----------
    options
        With the minutes or steps between two checkpoints.
    """

    def __init__(self, options: TrainingOptions) -> None:
        self._seconds = math.inf if options.checkpoint_minutes is None else 60 * options.checkpoint_minutes
        self._steps = options.checkpoint_steps
        self._last = time.monotonic()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Ask within an epoch."""
        if state.global_step % _steps_per_epoch(args, state):
            self._ask(state, control)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Ask between epochs; after the last one the model itself is saved."""
        # The recorder, which comes first, has said by now whether a refit ends here.
        if state.global_step < state.max_steps and not control.should_training_stop:
            self._ask(state, control)

    def _ask(self, state: Any, control: Any) -> None:
        by_steps = self._steps is not None and state.global_step % self._steps == 0
        if by_steps or time.monotonic() - self._last >= self._seconds:
            control.should_save = True
            self._last = time.monotonic()


def _steps_per_epoch(args: Any, state: Any) -> int:
    return int(state.max_steps // args.num_train_epochs)


class RowNumbers:
    """Collates ``{"row": number}`` to one tensor."""

    # Read by the trainer when it builds its batch sampler; there are no labels here.
    valid_label_columns: tuple[str, ...] = ()

    def __call__(self, features: Sequence[dict[str, int]]) -> dict[str, torch.Tensor]:
        """Return the numbers of a batch, int64 [B]."""
        return {"row": torch.tensor([feature["row"] for feature in features])}
