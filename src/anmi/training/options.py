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

    epochs: Annotated[
        int,
        Field(
            ge=1,
            description="Passes over the rows. 5: on SciFact's dev queries ten gained 0.014 where the document had "
            "been seen in training, and nothing elsewhere.",
        ),
    ] = 5
    batch_size: Annotated[
        int,
        Field(
            ge=1,
            description="Rows per step. 64: many in-batch negatives at little memory. With another size look at the "
            "learning rate again, since the number of steps changes with it.",
        ),
    ] = 64
    learning_rate: Annotated[
        float | None,
        Field(
            gt=0,
            description="Peak learning rate of AdamW. None chooses by the kind of encoder: 8e-3 for static ones "
            "(chosen on dev; 2e-3 had not converged after 5 epochs), 2e-5 for transformers, the customary value.",
        ),
    ] = None
    max_length: Annotated[
        int | None,
        Field(
            ge=4,
            description="Most tokens of a text while training; None is the encoder's own limit. The encoder keeps its "
            "limit for encoding afterwards. Static encoders have none and ignore it.",
        ),
    ] = None
    loss: Annotated[
        Literal["infonce", "debiased"],
        Field(
            description="infonce: weighted InfoNCE; on SciFact better than debiased by 0.03 to 0.04 on dev. "
            "debiased: subtracts an expected share tau_plus of false negatives."
        ),
    ] = "infonce"
    debiased_form: Annotated[
        Literal["source", "paraphrase"],
        Field(description="source: the formula of the paper. paraphrase: as often retold, without the factor N."),
    ] = "source"
    tau_plus: Annotated[
        float | None,
        Field(
            ge=0,
            lt=1,
            description="Debiased loss: share of positives among negatives. None estimates it as labelled positives a "
            "query over corpus size. The paper's 0.1 goes with a temperature of 0.5; at low ones it silences all "
            "negatives as soon as the positive leads.",
        ),
    ] = None
    temperature: Annotated[
        float, Field(ge=0.01, le=1, description="Temperature, or its start. 0.07: the customary value for cosines.")
    ] = 0.07
    learnable_temperature: Annotated[
        bool,
        Field(
            description="Learn log t with the encoder. On: the best fixed value differs between collections and "
            "recipes, and a recipe should not win by fitting somebody else's temperature."
        ),
    ] = True
    temperature_learning_rate: Annotated[
        float,
        Field(
            gt=0,
            description="Peak learning rate of log t, without weight decay. 1e-2: a single number needs larger steps "
            "than weights; in the 75 steps of SciFact it moved t from 0.07 to 0.05.",
        ),
    ] = 1e-2
    in_batch: Annotated[
        Literal["none", "positives", "all"],
        Field(
            description="In-batch negatives: none, the positives of the other rows, or all documents of the batch. "
            "all: they are encoded anyway, and gained 0.01 over positives alone on SciFact's dev queries."
        ),
    ] = "all"
    negatives: Annotated[
        int | None,
        Field(ge=0, description="Use at most so many mined negatives of a row, best first. None: all the recipe gave."),
    ] = None
    warmup: Annotated[
        float, Field(ge=0, lt=1, description="Share of the steps in which the learning rate rises. 0.1: customary.")
    ] = 0.1
    scheduler: Annotated[
        Literal["linear", "cosine", "constant_with_warmup"],
        Field(description="What the learning rate does after warm-up. linear: falls to 0 by the last step."),
    ] = "linear"
    weight_decay: Annotated[
        float,
        Field(
            ge=0,
            description="Of AdamW, on matrices only. 0: similarities are cosines, so the length of vectors is free; "
            "0.01 changed no digit.",
        ),
    ] = 0.0
    max_grad_norm: Annotated[
        float, Field(ge=0, description="Gradients are clipped to this norm; 0 does not clip. 1: guards against spikes.")
    ] = 1.0
    precision: Annotated[
        Literal["auto", "bfloat16", "float32"],
        Field(
            description="Type of the encoder's matrix products. auto: bfloat16 where the hardware has it (2 to 3.5 "
            "times faster on such a CPU), float32 elsewhere and for static encoders. Weights, similarities and "
            "losses are always float32."
        ),
    ] = "auto"
    texts_per_pass: Annotated[
        int,
        Field(
            ge=1,
            description="Texts a transformer encodes at once, sorted by length so that little is padded. 64 keeps two "
            "cores busy. Static encoders take the whole batch at once.",
        ),
    ] = 64
    recompute: Annotated[
        bool,
        Field(
            description="Where a batch takes several passes, run them again for the gradient instead of keeping their "
            "activations. On: the same gradients for about a third more time, and memory is bounded by one pass, "
            "whatever the number of negatives."
        ),
    ] = True
    keep_best: Annotated[
        bool,
        Field(
            description="Keep the weights of the epoch with the best dev metric. On: it costs one copy of the weights. "
            "Without a dev metric the last epoch stays."
        ),
    ] = True
