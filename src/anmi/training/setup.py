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
        # The first warm-up step has a learning rate of 0; a run of one step must not consist of it.
        warmup_steps=min(math.ceil(options.warmup * steps), steps - 1),
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
