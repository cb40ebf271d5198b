"""What can be chosen about a training run; light to import, so that pipelines can check parameters early."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field


class TrainingOptions(BaseModel):
    """Settings of :func:`anmi.training.trainer.train`, each with the reason of its default.

    Examples
    --------
    >>> TrainingOptions(epochs=3).loss
    'infonce'
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    epochs: Annotated[int, Field(ge=1, description="Passes over the rows.")] = 5
    batch_size: Annotated[int, Field(ge=1, description="Rows per step.")] = 64
    learning_rate: Annotated[float | None, Field(gt=0, description="Peak learning rate.")] = None
    max_length: Annotated[int | None, Field(ge=4, description="Tokens per text while training.")] = None
    loss: Annotated[Literal["infonce", "debiased"], Field(description="Loss.")] = "infonce"
    debiased_form: Annotated[Literal["source", "paraphrase"], Field(description="Form.")] = "source"
    tau_plus: Annotated[float, Field(ge=0, lt=1, description="tau plus")] = 0.1
    temperature: Annotated[float, Field(ge=0.01, le=1, description="Temperature.")] = 0.07
    learnable_temperature: Annotated[bool, Field(description="Learn it.")] = True
    temperature_learning_rate: Annotated[float, Field(gt=0, description="lr of log t.")] = 1e-2
    in_batch: Annotated[Literal["none", "positives", "all"], Field(description="In-batch.")] = "all"
    negatives: Annotated[int | None, Field(ge=0, description="Mined negatives per row.")] = None
    warmup: Annotated[float, Field(ge=0, lt=1, description="Warm-up share.")] = 0.1
    scheduler: Annotated[Literal["linear", "cosine", "constant_with_warmup"], Field(description="Schedule.")] = "linear"
    weight_decay: Annotated[float, Field(ge=0, description="Weight decay.")] = 0.0
    max_grad_norm: Annotated[float, Field(ge=0, description="Clip.")] = 1.0
    precision: Annotated[Literal["auto", "bfloat16", "float32"], Field(description="Precision.")] = "auto"
    texts_per_pass: Annotated[int, Field(ge=1, description="Chunk.")] = 64
    recompute: Annotated[bool, Field(description="Recompute.")] = True
    keep_best: Annotated[bool, Field(description="Keep best epoch.")] = True
