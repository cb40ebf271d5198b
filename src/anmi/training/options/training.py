"""What can be chosen about a training run; light to import, so that pipelines can check parameters early."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from anmi.training.options.curricula import CurriculumOptions, NoCurriculum, WindowOptions
from anmi.training.options.hardness import HansOptions, HardnessOptions, NoAdaptation
from anmi.training.options.losses import InfoNCEOptions, LossOptions
from anmi.training.options.sources import MinedSources, SourceOptions
from anmi.training.options.temperatures import LearnableTemperature, TemperatureOptions


class TrainingOptions(BaseModel):
    """Settings of :func:`anmi.training.trainer.train`, each with the reason of its default.

    Examples
    --------
    >>> TrainingOptions(loss={"debiased": {"tau_plus": 0.1}}).loss.tau_plus
    0.1
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
            description="Most tokens of a text and its prompt while training; None is the encoder's own limit. The "
            "encoder keeps its limit for encoding afterwards. Static encoders have none and ignore it.",
        ),
    ] = None
    loss: Annotated[
        LossOptions,
        Field(
            description="infonce, pooled, hybrid, entity, debiased, hard_debiased, triplet, distillation or "
            "margin_mse. infonce: on SciFact better than debiased by 0.03 to 0.04 on dev."
        ),
    ] = InfoNCEOptions()
    temperature: Annotated[
        TemperatureOptions,
        Field(
            description="fixed, learnable, dual or adaptive. learnable: the best value differs between collections "
            "and recipes, and a recipe should not win by fitting somebody else's temperature."
        ),
    ] = LearnableTemperature()
    sources: Annotated[
        SourceOptions,
        Field(
            description="Where the negatives of a step come from: mined or mixed. mined: what the recipe's steps chose."
        ),
    ] = MinedSources()
    curriculum: Annotated[
        CurriculumOptions, Field(description="In which order negatives are met. none: most recipes have none.")
    ] = NoCurriculum()
    hardness: Annotated[
        HardnessOptions,
        Field(description="Whether training adapts to the hardness of queries: none or hans. none: few recipes do."),
    ] = NoAdaptation()
    encoders: Annotated[
        Literal["shared", "two"],
        Field(
            description="shared: one encoder for queries and documents. two: separate copies of its weights (DPR). "
            "shared: half the memory, and what is learned about a word serves both sides."
        ),
    ] = "shared"
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
    draw: Annotated[
        Literal["first", "random"],
        Field(
            description="Where a row has more mined negatives than that: the first in every step, or others at random "
            "in each. first: the best are the best. A curriculum always draws, from its window."
        ),
    ] = "first"
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
            description="Gradient caching, with any loss: where a batch takes several passes, run them again for the "
            "gradient instead of keeping their activations. On: the same gradients for about a third more time, and "
            "memory is bounded by one pass, whatever the batch size and the number of negatives."
        ),
    ] = True
    keep_best: Annotated[
        bool,
        Field(
            description="Keep the weights of the epoch with the best dev metric. On: it costs one copy of the weights. "
            "Without a dev metric the last epoch stays."
        ),
    ] = True

    checkpoint_minutes: Annotated[
        float | None,
        Field(
            gt=0,
            description="Minutes between two checkpoints, from which a stopped training goes on. 10: at most so much "
            "is lost, and a shorter training writes none; one is four times the weights and takes a second. "
            "None: none by time.",
        ),
    ] = 10.0
    checkpoint_steps: Annotated[
        int | None,
        Field(ge=1, description="A checkpoint after every so many steps as well. None: by time, which costs alike."),
    ] = None
    checkpoints_kept: Annotated[
        int,
        Field(ge=1, description="The newest so many stay. 2: the one before remains should the newest be damaged."),
    ] = 2

    @model_validator(mode="after")
    def _counted(self) -> TrainingOptions:
        if self.sources.kind == "mixed" and self.negatives is None:
            raise ValueError("with mixed sources `negatives` says how many are drawn for a row, such as 7")
        return self

    @property
    def draws(self) -> bool:
        """Whether the negatives of a row are not the same in every step: which they were shows only afterwards."""
        varied = isinstance(self.hardness, HansOptions) and self.hardness.negatives.on
        by_window = isinstance(self.curriculum, WindowOptions)
        return self.sources.kind == "mixed" or by_window or self.draw == "random" or varied

    @property
    def reads(self) -> set[str]:
        """Judgments that the training rows must hold."""
        return {*self.loss.reads, *self.temperature.reads, *self.curriculum.reads}
