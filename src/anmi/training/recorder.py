"""What happens beside the steps: the log, the progress bar, the dev metric and the best weights so far."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import nn
from tqdm.auto import tqdm
from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState

from anmi.training.batch import NegativeSampler, Row
from anmi.training.curriculum import Curriculum
from anmi.training.sampling import DrawnNegatives

logger = logging.getLogger(__name__)
DEV_METRIC = "dev_ndcg@10"
# Between two lines of the log that say how long it still takes.
_TOLD_SECONDS = 60.0


class Recorder(TrainerCallback, ExportableState):  # type: ignore[misc]
    """Records every step, the dev metric at the start and after every epoch; asks for a checkpoint when one is due.

    Parameters
    ----------
    loss
        Whose ``report``, and whose temperature's, is logged.
    curriculum
        Told of every step; None where there is none.
    evaluate_dev
        Scores the model on the dev queries, larger is better; None where there are none.
    keep_best
        Remember the weights of the epoch with the best dev metric (the first of equals); epoch 0 is the start.
    checkpoint_minutes
        Between two checkpoints; None asks for none.
    """

    def __init__(
        self, loss: nn.Module, curriculum: Curriculum | None, evaluate_dev: Callable[[Any], float] | None, *,
        keep_best: bool, checkpoint_minutes: float | None = None,
    ) -> None:  # fmt: skip
        self._loss, self.curriculum = loss, curriculum
        self._evaluate_dev, self._keep_best = evaluate_dev, keep_best
        self._checkpoint_seconds = math.inf if checkpoint_minutes is None else 60 * checkpoint_minutes
        self._checkpoint = time.monotonic()
        self._bar: Any = None
        self.best_state: dict[str, torch.Tensor] | None = None
        self._steps: list[dict[str, float]] = []
        self.best_epoch: int | None = None
        self.best_dev: float | None = None
        # Measured since the last step, for the curriculum to be told with the next.
        self._validation: float | None = None
        # What draws the negatives, whose ``report`` is logged.
        self.sampler = NegativeSampler()
        # Of the step that is being made; what was drawn counts once the step was.
        self.rows: Sequence[Row] = ()
        self.drawn: DrawnNegatives | None = None
        # Encodes and compares; its ``report`` is logged.
        self.objective: Any = None
        self.loss = self.grad_norm = math.nan
        self._began = self._told = time.monotonic()
        self._earlier = 0.0
        # From the start of a step to what is observed of it, without dev.
        self.step_seconds = 0.0
        self._step_began = self._began
        self.resumed_from: int | None = None

    @property
    def seconds(self) -> float:
        """Time since it was made, and that of the runs that this one goes on from up to their checkpoints."""
        return self._earlier + time.monotonic() - self._began

    def sampling(self) -> dict[str, Any]:
        """Return what drawing the negatives took, and the changes of a schedule's stage.

        ``step_seconds`` are those of all steps, drawing included and dev not, ``sampling_seconds`` those of the drawing
        and of taking in what was encoded; ``transitions`` the changes. What nobody measures is not there.
        """
        changes, drawn = self.curriculum and self.curriculum.transitions, self.sampler.seconds
        found = {"step_seconds": round(self.step_seconds, 3)} | ({} if changes is None else {"transitions": changes})
        return found if math.isnan(drawn) else found | {"sampling_seconds": round(drawn, 3)}

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint holds as JSON values; tensors are saved beside."""
        values = {
            "steps": pd.DataFrame(self._steps).to_dict("split"),
            "best_epoch": self.best_epoch,
            "best_dev": self.best_dev,
            "validation": self._validation,
            "seconds": self.seconds,
            "step_seconds": self.step_seconds,
            "drawn": {} if self.drawn is None else self.drawn.state_dict(),
            "curriculum": None if self.curriculum is None else self.curriculum.state_dict(),
            "sampler": self.sampler.state_dict()[0],
        }
        return {"args": {}, "attributes": values}

    def load(self, values: dict[str, Any], best: dict[str, torch.Tensor], drawing: dict[str, torch.Tensor]) -> None:
        """Go on from the attributes of :meth:`state`, the best weights so far and the tensors of the sampler."""
        names, lines = values["steps"]["columns"], values["steps"]["data"]
        self._steps = [dict(zip(names, line, strict=True)) for line in lines]
        self.best_epoch, self.best_dev = values["best_epoch"], values["best_dev"]
        self._validation = values["validation"]
        self.best_state = best or None
        self._earlier, self.step_seconds = values["seconds"], values["step_seconds"]
        if self.drawn is not None:
            self.drawn.load_state_dict(values["drawn"])
        if self.curriculum is not None:
            self.curriculum.load_state_dict(values["curriculum"])
        self.sampler.load_state_dict(values["sampler"], drawing)
        self.resumed_from = len(self._steps)

    def log(self) -> pd.DataFrame:
        """Return one row a step.

        Columns ``step, epoch, loss, grad_norm, temperature, learning_rate``, those of the loss and the curriculum,
        and last the dev metric, which stands in the last step of its epoch and is NaN elsewhere.
        """
        none = dict.fromkeys(("step", "epoch", "loss", DEV_METRIC), ())
        table = pd.DataFrame(self._steps or none).astype({"step": np.int64})
        return table[[name for name in table.columns if name != DEV_METRIC] + [DEV_METRIC]]

    def restore_best(self, model: nn.Module) -> None:
        """Put the best weights back into ``model``, if they were asked for and a dev metric exists."""
        if self.best_state is not None:
            model.load_state_dict(self.best_state)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Open the progress bar."""
        done, of = state.global_step, state.max_steps
        self._bar = tqdm(total=of, initial=done, desc="training", unit="step", disable=None)
        if self._evaluate_dev is not None and state.global_step == 0:
            self._validation = self._measure(kwargs["model"], 0)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start the clock."""
        self._step_began = time.perf_counter()

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Record the step while the learning rate is still the one it was made with."""
        if self.drawn is not None:
            self.drawn.add(self.rows)
        step = state.global_step + 1
        self._steps.append({
            "step": step, "epoch": step * args.num_train_epochs / state.max_steps,
            "loss": self.loss, "grad_norm": self.grad_norm,
            **_report(getattr(self._loss, "temperature", None)),
            "learning_rate": kwargs["optimizer"].param_groups[0]["lr"],
            **_report(self._loss), **_report(self.curriculum and self.curriculum.state),
            **self.sampler.report(), **_report(self.objective), DEV_METRIC: np.nan,
        })  # fmt: skip

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Tell the curriculum, and move the progress bar."""
        if self.curriculum is not None:
            seen = (self.loss, self.grad_norm, self._validation, self.objective.violations)
            self.curriculum.observe(state.global_step, *seen)
            self._validation = None
        self.step_seconds += time.perf_counter() - self._step_began
        self._bar.update()
        self._bar.set_postfix(loss=f"{self.loss:.3f}", refresh=False)
        self._tell(state.global_step, state.max_steps)
        # At the end of an epoch a checkpoint waits for the dev metric.
        if state.global_step % (state.max_steps // args.num_train_epochs):
            self._ask_for_checkpoint(control)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Measure on dev, and remember the weights if they are the best so far."""
        if self._evaluate_dev is not None:
            self._steps[-1][DEV_METRIC] = self._validation = self._measure(kwargs["model"], round(state.epoch))
        if state.global_step < state.max_steps:
            self._ask_for_checkpoint(control)

    def _tell(self, step: int, steps: int) -> None:
        """Say once a minute how long it still takes, since a log file has no bar."""
        now = time.monotonic()
        if now - self._told >= _TOLD_SECONDS and step < steps:
            self._told = now
            left = (now - self._began) / (step - (self.resumed_from or 0)) * (steps - step)
            logger.info("Training: step %s of %s, about %.0f min left", f"{step:,}", f"{steps:,}", max(left / 60, 1))

    def _measure(self, model: nn.Module, epoch: int) -> float:
        was_training = model.training
        model.eval()
        assert self._evaluate_dev is not None
        value = float(self._evaluate_dev(model))
        model.train(was_training)
        if self.best_dev is None or value > self.best_dev:
            self.best_dev, self.best_epoch = value, epoch
            if self._keep_best:
                self.best_state = {name: t.detach().to("cpu", copy=True) for name, t in model.state_dict().items()}
        return value

    def _ask_for_checkpoint(self, control: Any) -> None:
        if time.monotonic() - self._checkpoint >= self._checkpoint_seconds:
            control.should_save = True
            self._checkpoint = time.monotonic()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Close the progress bar."""
        self.close()

    def close(self) -> None:
        """Close the progress bar, also when training stopped with an error."""
        if self._bar is not None:
            self._bar.close()


def _report(part: Any) -> dict[str, float]:
    report: dict[str, float] = part.report() if hasattr(part, "report") else {}
    return report
