"""The library's training loop with our batches, a record of its steps, and its checkpoints."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from accelerate.utils import send_to_device
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from torch import Tensor, nn
from torch.utils.data._utils.pin_memory import pin_memory
from transformers import TrainerCallback
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_callback import ExportableState, ProgressCallback

from anmi.errors import AnmiError, installed, is_out_of_memory
from anmi.fingerprint import hash_value
from anmi.ragged import Int64s
from anmi.retrieval.encoders import fingerprint
from anmi.retrieval.kinds import is_static
from anmi.training.batch import Batcher, NegativeSampler, Row
from anmi.training.curriculum import Curriculum
from anmi.training.mixed import DNHSampler, neighbour_table
from anmi.training.objective import not_finite
from anmi.training.options import TrainingOptions
from anmi.training.sampling import DrawnNegatives

log = logging.getLogger(__name__)
STATIC_LEARNING_RATE: Final = 1e-2
TRANSFORMER_LEARNING_RATE: Final = 2e-5
# What is added begins at 0, and is to reach in as many steps what all weights reach together.
ADAPTER_LEARNING_RATE: Final = 2e-4
# The newest so many stay, so that the one before remains should a kill have damaged the newest.
_CHECKPOINTS_KEPT: Final = 2
_PARTS: Final = ("encoder", "loss", "sampler")


@dataclass(frozen=True)
class CheckpointPlan:
    """Where the checkpoints of trainings lie.

    Attributes
    ----------
    folder
        Holds one folder per training that has not finished, named by a hash of what determines its
        result.
    facts
        What belongs to the training beside rows, options, encoder and seed, by name, such as
        digests of dev queries.
    """

    folder: Path
    facts: Mapping[str, str] = field(default_factory=dict)

    def of(self, rows: pd.DataFrame, encoder: Any, options: TrainingOptions, seed: int) -> Path:
        """Return the folder of a training; how often it makes checkpoints changes no weight."""
        chosen = options.model_dump(mode="json", exclude={"checkpoint_minutes"})
        parts = {
            **self.facts,
            "rows": digest_tables([rows]),
            "encoder": fingerprint(encoder),
            "seed": seed,
        }
        return self.folder / hash_value({"options": chosen, **parts}, 12)


def digest_tables(tables: Iterable[pd.DataFrame]) -> str:
    """Return a hash of the values of tables in their order, whatever made them.

    Examples
    --------
    >>> tables = [pd.DataFrame({"a": [value]}) for value in (["x"], ("x",))]
    >>> digest_tables(tables[:1]) == digest_tables(tables[1:])
    True
    """
    state = hashlib.blake2b(digest_size=16)
    for table in tables:
        content = pa.Table.from_pandas(table, preserve_index=False).replace_schema_metadata(None)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, content.schema) as stream:
            stream.write_table(content)
        state.update(sink.getvalue())
    return state.hexdigest()


def newest_checkpoint(folder: Path) -> Path | None:
    """Return the newest checkpoint of a training that is whole, None where there is none.

    The library writes the state of the trainer last, so that one without it was being written when
    it was stopped.
    """
    paths = folder.glob("checkpoint-*")
    for path in sorted(paths, key=lambda path: int(path.name.split("-")[1]), reverse=True):
        try:
            json.loads((path / TRAINER_STATE_NAME).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        return path
    return None


DEV_METRIC: Final = "dev_ndcg@10"
DEV_LOSS: Final = "dev_loss"
_SECONDS_BETWEEN_MESSAGES = 60.0
# Between two readings of what steps gave: each waits until the device has made them.
_STEPS_READ: Final = 32
# Below which a pass is not halved to fit into memory.
_MIN_TOKENS: Final = 32


class Recorder(TrainerCallback, ExportableState):  # type: ignore[misc]
    """Records every step, and dev queries when they are due; asks for a checkpoint when one is due.

    Parameters
    ----------
    loss
        Its ``report`` is logged, and that of its temperature.
    curriculum
        Told of every step.
    evaluate_dev
        Scores the model on the dev queries, larger is better; None where there are none.
    checkpoint_minutes
        Between two checkpoints; infinity asks for none.
    dev_every
        Steps between two measurements besides those at the start and after every epoch; None makes
        no others.
    dev_loss
        Loss of the model on the dev queries at a temperature, measured beside the metric; or None.
    """

    def __init__(
        self,
        loss: nn.Module,
        curriculum: Curriculum,
        evaluate_dev: Callable[[Any], float] | None,
        checkpoint_minutes: float = math.inf,
        dev_every: int | None = None,
        dev_loss: Callable[[Any, float], float] | None = None,
    ) -> None:
        self._loss = loss
        self._dev_every = dev_every
        self._dev_loss = dev_loss
        self.curriculum = curriculum
        self._evaluate_dev = evaluate_dev
        self._checkpoint_seconds = 60 * checkpoint_minutes
        self._last_checkpoint = time.monotonic()
        self._steps: list[dict[str, Any]] = []
        # Measured since the last step, for the curriculum to be told with the next.
        self.validation: float | None = None
        # What draws the negatives, whose ``report`` is logged.
        self.sampler = NegativeSampler()
        # Of the step that is being made; what was drawn counts once the step was.
        self.rows: Sequence[Row] = ()
        self.drawn = DrawnNegatives((), 0)
        # Encodes and compares; its ``report`` is logged.
        self.objective: Any = None
        self.loss = torch.tensor(math.nan)
        # None where the step was left out.
        self.grad_norm: Tensor | None = None
        # The queries of steps whose numbers are still on the device, and the losses of their rows.
        self._unread: list[tuple[Sequence[str], Tensor]] = []
        self._reads_each_step = type(curriculum) is not Curriculum
        self._start = time.monotonic()
        self._last_message = self._start
        self._earlier_seconds = 0.0
        self.resumed_from: int | None = None

    @property
    def seconds(self) -> float:
        """Time since it was made, and of the runs that it goes on from up to their checkpoints."""
        return self._earlier_seconds + time.monotonic() - self._start

    def read(self) -> None:
        """Read what the device has computed of the last steps.

        Raises
        ------
        AnmiError
            A loss or a gradient is not finite; names queries of the batch.
        """
        steps = self._steps[len(self._steps) - len(self._unread) :]
        cells = [
            (step, name) for step in steps for name, value in step.items() if torch.is_tensor(value)
        ]
        if cells:
            on_device = [step[name].detach().float() for step, name in cells]
            for (step, name), value in zip(cells, torch.stack(on_device).tolist(), strict=True):
                step[name] = value
        unread = self._unread
        self._unread = []
        for step, (query_ids, losses) in zip(steps, unread, strict=True):
            if not math.isfinite(step["loss"]):
                is_wrong = ~losses.isfinite().cpu().numpy()
                wrong_ids = np.array(query_ids, object)[is_wrong].tolist()
                raise not_finite("training loss", step["loss"], wrong_ids)
            # None is that of a step which overflowed in float16 and was left out.
            if step["grad_norm"] is None:
                step["grad_norm"] = math.nan
            elif not math.isfinite(step["grad_norm"]):
                raise not_finite("gradient", step["grad_norm"], query_ids)

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint holds as JSON values; tensors are saved beside."""
        self.read()
        values = {
            "validation": self.validation,
            "steps": pd.DataFrame(self._steps).to_dict("split"),
            "drawn": self.drawn.state_dict(),
            "curriculum": self.curriculum.state_dict(),
            "sampler": self.sampler.state_dict()[0],
            "seconds": self.seconds,
        }
        return {"args": {}, "attributes": values}

    def load(self, values: dict[str, Any], sampler_tensors: dict[str, torch.Tensor]) -> None:
        """Go on from the attributes of :meth:`state` and the tensors of the sampler."""
        names = values["steps"]["columns"]
        self._steps = [dict(zip(names, line, strict=True)) for line in values["steps"]["data"]]
        self.validation = values["validation"]
        self._earlier_seconds = values["seconds"]
        self.drawn.load_state_dict(values["drawn"])
        self.curriculum.load_state_dict(values["curriculum"])
        self.sampler.load_state_dict(values["sampler"], sampler_tensors)
        self.resumed_from = len(self._steps)

    def neighbours(self) -> pd.DataFrame:
        """Return what the sampler noted of its latent negatives."""
        sampler = self.sampler
        return sampler.neighbours() if isinstance(sampler, DNHSampler) else neighbour_table()

    def log(self) -> pd.DataFrame:
        """Return one row a step.

        Columns ``step, epoch, loss, grad_norm, temperature, learning_rate``, those of the loss and
        the curriculum, and last the dev metric, which stands in the steps after which it was
        measured, as does ``dev_loss``, and is NaN elsewhere.
        """
        self.read()
        no_steps = dict.fromkeys(("step", "epoch", "loss", DEV_METRIC), ())
        table = pd.DataFrame(self._steps or no_steps).astype({"step": np.int64})
        return table[[*table.columns.drop(DEV_METRIC), DEV_METRIC]]

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Measure what training begins with."""
        if self._evaluate_dev is not None and state.global_step == 0:
            self.validation = self._measure(kwargs["model"])

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Record the step while the learning rate is still the one it was made with."""
        self.drawn.add(self.rows)
        step = state.global_step + 1
        self._steps.append(
            {
                "step": step,
                "epoch": step * args.num_train_epochs / state.max_steps,
                "loss": self.loss,
                "grad_norm": self.grad_norm,
                **_report(getattr(self._loss, "temperature", None)),
                "learning_rate": kwargs["optimizer"].param_groups[0]["lr"],
                **_report(self._loss),
                **_report(self.curriculum.state),
                **self.sampler.report(),
                **self.objective.measures,
                **({} if self._dev_loss is None else {DEV_LOSS: np.nan}),
                DEV_METRIC: np.nan,
            }
        )
        query_ids = [row.query_id for row in self.rows]
        self._unread.append((query_ids, self.objective.losses))

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Tell the curriculum."""
        if self._reads_each_step or len(self._unread) >= _STEPS_READ:
            self.read()
        if self._reads_each_step:
            step = self._steps[-1]
            self.curriculum.observe(
                state.global_step,
                step["loss"],
                step["grad_norm"],
                self.validation,
                step.get("margin_violations"),
            )
        self.validation = None
        self._log_progress(state.global_step, state.max_steps)
        # At the end of an epoch a checkpoint waits for the dev metric.
        if state.global_step % (state.max_steps // args.num_train_epochs):
            if self._dev_every and state.global_step % self._dev_every == 0:
                self._measure_step(kwargs["model"])
            self._ask_for_checkpoint(control)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Measure on dev."""
        self._measure_step(kwargs["model"])
        if state.global_step < state.max_steps:
            self._ask_for_checkpoint(control)

    def _measure_step(self, model: nn.Module) -> None:
        """Note in the last step what dev queries say after it."""
        self.read()
        if self._evaluate_dev is None:
            return
        step = self._steps[-1]
        step[DEV_METRIC] = self.validation = self._measure(model)

    def _log_progress(self, step: int, steps: int) -> None:
        """Say once a minute how long it still takes, since a log file has no bar."""
        now = time.monotonic()
        if now - self._last_message >= _SECONDS_BETWEEN_MESSAGES and step < steps:
            self._last_message = now
            seconds_per_step = (now - self._start) / (step - (self.resumed_from or 0))
            minutes = max(seconds_per_step * (steps - step) / 60, 1)
            progress = f"{step:,} of {steps:,}"
            log.info("Training: step %s, about %.0f min left", progress, minutes)

    def _measure(self, model: nn.Module) -> float:
        was_training = model.training
        model.eval()
        assert self._evaluate_dev is not None
        value = float(self._evaluate_dev(model))
        if self._dev_loss is not None and self._steps:
            step = self._steps[-1]
            step[DEV_LOSS] = self._dev_loss(model, step.get("temperature", 1.0))
        model.train(was_training)
        return value

    def _ask_for_checkpoint(self, control: Any) -> None:
        if time.monotonic() - self._last_checkpoint >= self._checkpoint_seconds:
            self.read()
            control.should_save = True
            self._last_checkpoint = time.monotonic()


def _report(part: Any) -> dict[str, float]:
    return part.report() if hasattr(part, "report") else {}


class Bar(ProgressCallback):  # type: ignore[misc]
    """The library's progress bar, without what it prints of the log."""

    def on_log(self, *args: Any, **kwargs: Any) -> None:
        """Print nothing."""


class Loop(SentenceTransformerTrainer):  # type: ignore[misc]
    """The library's trainer with our objective, which wants the whole batch, and no model card.

    The loader gives row numbers only. Negatives are chosen, and texts tokenised, when the step is
    made: a loader fetches ahead, and would choose by the state of a curriculum before the last step
    was observed.

    A checkpoint of the library holds optimizer, scheduler and random states; what the loss has
    learned and what the sampler remembers are saved beside the encoder's, and what the recorder and
    the curriculum know is in the state of the trainer.
    """

    batcher: Batcher
    recorder: Recorder
    options: TrainingOptions
    _batch: Mapping[str, Any] = {}

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """Return the loss of the rows whose numbers ``inputs`` holds."""
        step = self.state.global_step
        numbers = inputs["row"]
        sampler = self.recorder.sampler
        self.recorder.rows = sampler(numbers, step)
        self._batch = batch = self.batcher(self.recorder.rows)
        if self.args.device.type == "cuda":
            batch = pin_memory(batch)  # type: ignore[no-untyped-call]
        batch = send_to_device(batch, self.args.device, non_blocking=True)
        loss = self.loss(batch | {"step": step})
        self.recorder.loss = loss.detach()
        if isinstance(sampler, DNHSampler):
            queries, documents = (vectors.float().cpu().numpy() for vectors in self.loss.encoded)
            sampler.update_index(step + 1, numbers, queries, batch["document_ids"], documents)
        return (loss, {}) if return_outputs else loss

    def _clip_grad_norm(self, model: Any) -> Any:
        if self.accelerator.scaler is not None:
            self.accelerator.scaler.unscale_(self.optimizer.optimizer)
        # The objective holds the encoder and what the loss learns.
        return super()._clip_grad_norm(self.loss if self.options.single_rate else model)

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any:
        norm = super()._get_grad_norm(model, grad_norm)
        scaler = self.accelerator.scaler
        if scaler is not None and not bool(torch.isfinite(norm)) and scaler.get_scale() > 1:
            # The step is left out, and the next one scaled by half as much.
            self.recorder.grad_norm = None
            return norm
        # What the loss learns beside the encoder is small, and makes it NaN at most.
        of_loss = [p.grad.norm() for p in self.loss.loss.parameters() if p.grad is not None]
        self.recorder.grad_norm = norm + 0 * sum(of_loss)
        return norm

    def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
        """No card is written, and its callback would look for codecarbon."""

    def training_step(self, model: Any, inputs: dict[str, Any], *arguments: Any) -> Tensor:
        """Make a step; where a card has too little memory, with less of it."""
        while True:
            try:
                loss: Tensor = super().training_step(model, inputs, *arguments)
                return loss
            except torch.OutOfMemoryError:
                if not self._spare_memory():
                    raise
            # The error itself held what the step took until here.
            self.optimizer.zero_grad()
            torch.cuda.empty_cache()

    def _spare_memory(self) -> bool:
        """Take less memory where the options leave it open; return False where they do not."""
        batcher = self.batcher
        tokens = batcher.tokens_per_pass or 0
        if self.options.recompute is None and not self.loss.recompute:
            self.loss.recompute = True
            remedy = "passes are computed again for their gradients"
        elif self.options.tokens_per_pass is None and tokens > _MIN_TOKENS:
            batcher.tokens_per_pass = tokens // 2
            remedy = f"passes have {tokens // 2:,} tokens"
        else:
            return False
        log.info("A batch does not fit into the memory of the %s: %s", self.args.device, remedy)
        return True

    def run(self, options: TrainingOptions, checkpoints: Path | None) -> None:
        """Train, from the newest checkpoint on where there is one.

        Raises
        ------
        AnmiError
            Something became NaN or infinite, or memory did not suffice; says what to change.
        """
        start = checkpoints and newest_checkpoint(checkpoints)
        if start is not None:
            log.info("Going on from %s; remove it to start anew", start)
        try:
            self.train(resume_from_checkpoint=None if start is None else str(start))
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            device = "GPU" if self.args.device.type == "cuda" else "machine"
            raise out_of_memory(
                options, self._batch, device, static=is_static(self.model)
            ) from error

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        folder = Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}"
        try:
            super()._save_checkpoint(model, trial)
        except (OSError, SafetensorError, RuntimeError) as error:
            # Hours of work are not to be lost because the disk is full.
            log.warning("No checkpoint could be written: %s", error)
            shutil.rmtree(folder, ignore_errors=True)

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        folder = Path(output_dir or self.args.output_dir)
        folder.mkdir(parents=True, exist_ok=True)
        sampler_tensors = self.recorder.sampler.state_dict()[1]
        states = (self.model.state_dict(), self.loss.loss.state_dict(), sampler_tensors)
        for name, tensors in zip(_PARTS, states, strict=True):
            # A copy of each, since safetensors refuses tensors that share memory.
            copies = {
                key: tensor.detach().to("cpu", copy=True).contiguous()
                for key, tensor in tensors.items()
            }
            save_file(copies, folder / f"{name}.safetensors")

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        folder = Path(resume_from_checkpoint)
        encoder, loss, sampler_tensors = (
            load_file(folder / f"{name}.safetensors") for name in _PARTS
        )
        self.model.load_state_dict(encoder)
        self.loss.loss.load_state_dict(loss)
        state = json.loads((folder / TRAINER_STATE_NAME).read_text(encoding="utf-8"))
        values = state["stateful_callbacks"]["Recorder"]["attributes"]
        self.recorder.load(values, sampler_tensors)


class RowNumbers:
    """Collates ``{"row": number}`` to one tensor."""

    # Read by the trainer when it builds its batch sampler; there are no labels here.
    valid_label_columns: tuple[str, ...] = ()

    def __call__(self, features: Sequence[dict[str, int]]) -> dict[str, Int64s]:
        """Return the numbers of a batch, int64 [B], of which a card has no need."""
        return {"row": np.array([feature["row"] for feature in features], np.int64)}


def training_arguments(
    options: TrainingOptions, encoder: SentenceTransformer, seed: int, folder: Path, steps: int
) -> SentenceTransformerTrainingArguments:
    """Return what the library's trainer is told; ``steps`` are those of the whole training."""
    usual_rate = STATIC_LEARNING_RATE if is_static(encoder) else TRANSFORMER_LEARNING_RATE
    usual_rate = ADAPTER_LEARNING_RATE if options.adapter else usual_rate
    # The recorder asks for checkpoints. The first of the steps of warm-up has a learning rate of 0,
    # so that a training of one step must not consist of it.
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(folder),
        num_train_epochs=options.epochs,
        per_device_train_batch_size=options.batch_size,
        learning_rate=options.learning_rate or usual_rate,
        warmup_steps=min(options.warmup, max(steps - 1, 0)),
        lr_scheduler_type="linear" if options.schedule == "linear" else "constant_with_warmup",
        seed=seed,
        data_seed=seed,
        use_cpu=encoder.device.type == "cpu",
        remove_unused_columns=False,
        save_strategy="no",
        save_total_limit=_CHECKPOINTS_KEPT,
        eval_strategy="no",
        logging_strategy="no",
        logging_nan_inf_filter=False,
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    # One process, one device: with more, the library would wrap the model in DataParallel; it takes
    # the first card, too, wherever the model is.
    arguments._n_gpu = min(arguments.n_gpu, 1)
    arguments.__dict__["_setup_devices"] = encoder.device
    if encoder.device.type == "cuda":
        torch.cuda.set_device(encoder.device)
    return arguments


def build_optimizer(
    encoder: SentenceTransformer, loss: nn.Module, options: TrainingOptions, learning_rate: float
) -> torch.optim.Optimizer:
    """AdamW; only under ``single_rate`` are biases, norms and what the loss has decayed as well.

    Raises
    ------
    AnmiError
        Moments of 8 bits are wanted, without a CUDA card or bitsandbytes.
    """
    trainable = [p for p in encoder.parameters() if p.requires_grad]
    decay_of_others = options.weight_decay if options.single_rate else 0.0
    groups: list[dict[str, Any]] = [
        {"params": [p for p in trainable if p.ndim > 1], "weight_decay": options.weight_decay},
        {"params": [p for p in trainable if p.ndim <= 1], "weight_decay": decay_of_others},
    ]
    grouped_ids: set[int] = set()
    modules = [
        (getattr(loss, "temperature", None), options.temperature),
        (getattr(loss, "predictor", None), options.hardness),
        (getattr(loss, "drawing", None), options.draw),
        (loss, options.loss),
    ]
    for module, module_options in modules:
        parameters = [p for p in (module or nn.Module()).parameters() if id(p) not in grouped_ids]
        grouped_ids |= {id(p) for p in parameters}
        rate = getattr(module_options, "learning_rate", learning_rate)
        rate = learning_rate if options.single_rate else rate
        groups.append({"params": parameters, "weight_decay": decay_of_others, "lr": rate})
    groups = [group for group in groups if group["params"]]
    if options.optimizer == "adamw_8bit":
        setting = "training.options.optimizer=adamw_8bit"
        if encoder.device.type != "cuda":
            raise AnmiError(f"{setting} needs a CUDA card, and none is used here: take adamw")
        bitsandbytes = installed("bitsandbytes", setting, "eight-bit", "take adamw")
        optimizer: torch.optim.Optimizer = bitsandbytes.optim.AdamW8bit(groups, lr=learning_rate)
        return optimizer
    # Fused is one pass over the memory instead of ten; for a table of token vectors they are a
    # third of the step.
    return torch.optim.AdamW(groups, lr=learning_rate, fused=True)


def out_of_memory(
    options: TrainingOptions, batch: Mapping[str, Any], device: str, *, static: bool
) -> AnmiError:
    """Return the error that says which options to change, most useful first.

    A static encoder is a table, which takes a batch in one pass and has no length limit.
    """
    advice = []
    if not static:
        if options.recompute is False:
            advice.append("set training.options.recompute=true (cached gradients, now off)")
        if not options.checkpoint_layers:
            advice.append("set training.options.checkpoint_layers=true")
        advice.append(f"lower tokens_per_pass (now {options.tokens_per_pass or 'chosen'})")
        advice.append(f"lower max_length (now {options.max_length or 'the limit of the encoder'})")
    negatives = "all mined" if options.negatives is None else options.negatives
    advice += [f"lower negatives (now {negatives})", f"lower batch_size (now {options.batch_size})"]
    queries = len(batch["queries"]["place"]) if batch else 0
    documents = len(batch["document_ids"]) if batch else 0
    return AnmiError(
        f"The memory of the {device} does not suffice for a batch of {queries:,} queries and"
        f" {documents:,} documents: {', or '.join(advice)}."
    )
