"""From options to what the library's trainer is told, and to an optimizer."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Final

import torch
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainingArguments
from torch import nn

from anmi.retrieval.kinds import is_static
from anmi.training.options import TrainingOptions

STATIC_LEARNING_RATE: Final = 2e-2
TRANSFORMER_LEARNING_RATE: Final = 2e-5


def training_arguments(
    options: TrainingOptions, encoder: SentenceTransformer, seed: int, scratch: Path, steps: int
) -> SentenceTransformerTrainingArguments:
    """Return what the library's trainer is told; ``steps`` are those of the whole training."""
    by_kind = STATIC_LEARNING_RATE if is_static(encoder) else TRANSFORMER_LEARNING_RATE
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(scratch),
        num_train_epochs=options.epochs,
        per_device_train_batch_size=options.batch_size,
        learning_rate=options.learning_rate or by_kind,
        warmup_steps=warmup_steps(options.warmup, steps),
        lr_scheduler_type=options.scheduler,
        max_grad_norm=options.max_grad_norm,
        seed=seed,
        data_seed=seed,
        use_cpu=encoder.device.type == "cpu",
        save_strategy="no",
        eval_strategy="no",
        logging_strategy="no",
        logging_nan_inf_filter=False,
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=False,
        remove_unused_columns=False,
    )
    # One process, one device: with more, the library would wrap the model in DataParallel.
    arguments._n_gpu = min(arguments.n_gpu, 1)
    return arguments


def warmup_steps(warmup: float, steps: int) -> int:
    """Return in how many of the steps the learning rate rises, from a share of them or, from 1 on, their number.

    The first has a learning rate of 0; a run of one step must not consist of it.

    Examples
    --------
    >>> warmup_steps(0.1, 75), warmup_steps(100, 750), warmup_steps(100, 75), warmup_steps(0.5, 1)
    (8, 100, 74, 0)
    """
    return min(math.ceil(warmup * steps) if warmup < 1 else int(warmup), steps - 1)


def build_optimizer(
    encoder: SentenceTransformer, loss: nn.Module, options: TrainingOptions, learning_rate: float
) -> torch.optim.Optimizer:
    """AdamW; biases and norms (one-dimensional parameters), and what belongs to the loss, are not decayed."""
    trainable = [p for p in encoder.parameters() if p.requires_grad]
    groups: list[dict[str, Any]] = [
        {"params": [p for p in trainable if p.ndim > 1], "weight_decay": options.weight_decay},
        {"params": [p for p in trainable if p.ndim <= 1], "weight_decay": 0.0},
    ]
    temperature = {id(p) for p in getattr(loss, "temperature", nn.Module()).parameters()}
    predictor = {id(p) for p in getattr(loss, "predictor", nn.Module()).parameters()}
    drawing = {id(p) for p in getattr(loss, "drawing", nn.Module()).parameters()}
    own = list(loss.parameters())
    for parameters, of in (
        ([p for p in own if id(p) in temperature], options.temperature),
        ([p for p in own if id(p) in predictor], options.hardness),
        ([p for p in own if id(p) in drawing], options.draw),
        ([p for p in own if id(p) not in temperature | predictor | drawing], options.loss),
    ):
        rate = getattr(of, "learning_rate", learning_rate)
        groups.append({"params": parameters, "weight_decay": 0.0, "lr": rate})
    # Fused is one pass over the memory instead of ten; for a table of token vectors they are a third of the step.
    return torch.optim.AdamW([group for group in groups if group["params"]], lr=learning_rate, fused=True)
