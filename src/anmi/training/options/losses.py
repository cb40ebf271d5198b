"""What losses there are, and their parameters."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field, field_validator

from anmi.training.options.part import OneOf, PartOptions


class InfoNCEOptions(PartOptions):
    """Weighted InfoNCE."""

    kind = "infonce"


class PooledOptions(PartOptions):
    """Weighted InfoNCE and the same with the negatives of all rows in every denominator: one scale for all queries."""

    kind = "pooled"
    share: float = Field(
        0.5,
        ge=0,
        le=1,
        description="Of the pooled part; the rest is InfoNCE. 0.5: both. It makes room for a threshold on the "
        "similarity at the cost of the order of documents, see docs/methods.md.",
    )


class HybridOptions(PartOptions):
    """Weighted InfoNCE and, through a small head, the squared error of predicted Elo (ANMI 2.0)."""

    kind = "hybrid"
    alpha: float = Field(0.6, ge=0, le=1, description="Share of InfoNCE; the rest is the head's. 0.6: the report's.")
    hidden: int = Field(16, ge=1, description="Width of the head. 16: the report's.")
    learning_rate: float = Field(1e-3, gt=0, description="Of the head. 1e-3: AdamW's customary one.")

    @property
    def reads(self) -> tuple[str, ...]:
        """The target of the head."""
        return ("elo",)


class TauPlusOptions(PartOptions):
    """What the debiased losses share."""

    tau_plus: float | Literal["labelled", "judged"] = Field(
        "labelled",
        description="Share of positives among negatives, in [0, 1), or how to estimate it. labelled: labelled "
        "positives a query over corpus size, all that is known without judges. judged: the share of the mined "
        "negatives that the judges hold for relevant. The paper's 0.1 goes with a temperature of 0.5; at low ones it "
        "silences all negatives as soon as the positive leads.",
    )
    form: Literal["source", "paraphrase"] = Field(
        "source",
        description="source: the paper's formula. paraphrase: that of the ANMI 2.1 report, which subtracts the share "
        "of one positive instead of N.",
    )
    learned: bool = Field(
        False,
        description="Learn its logit. Off: the loss always falls with a larger share once the positive leads, so it "
        "says more about the loss than about the data.",
    )
    prior_strength: float = Field(
        3.0,
        ge=0,
        description="Strength k of the Beta prior around the start value, where it is learned, in judged negatives for "
        "every negative of a row. 3: the share cannot grow beyond k / (k - 1) times its start, that is one and a half "
        "times. 1 and less promise nothing; 0: none, to show why there is one.",
    )
    learning_rate: float = Field(1e-2, gt=0, description="Of the logit. 1e-2: as that of the temperature.")

    @field_validator("tau_plus")
    @classmethod
    def _a_share(cls, value: float | str) -> float | str:
        if isinstance(value, float) and not 0.0 <= value < 1.0:
            raise ValueError(f"{value:g} lies outside [0, 1)")
        return value


class DebiasedOptions(TauPlusOptions):
    """Subtracts an expected share of false negatives."""

    kind = "debiased"


class HardDebiasedOptions(TauPlusOptions):
    """Debiased, the harder negatives weighing more (HCL)."""

    kind = "hard_debiased"
    beta: float = Field(
        1.0,
        ge=0,
        description="How much more the harder weigh; 0 is debiased. 1: the paper's, at its temperature of 0.5. At 0.07 "
        "little but the hardest negative counts with it.",
    )


class TripletOptions(PartOptions):
    """Every negative is to stay a margin behind the positive."""

    kind = "triplet"
    margin: float = Field(0.2, gt=0, le=2, description="In cosine distance. 0.2: FaceNet's, for unit vectors.")


Teacher = Literal["bm25", "dense", "cross", "p_relevant", "elo"]


class DistillationOptions(PartOptions):
    """Learns the judges' soft labels, beside InfoNCE."""

    kind = "distillation"
    column: Literal["cross", "p_relevant", "elo"] | tuple[Teacher, ...] = Field(
        "p_relevant",
        description="Whose judgment. p_relevant: the fused, calibrated one. Of a list, such as [bm25, dense, "
        "p_relevant], each is scaled to between 0 and 1 in every row, and their mean is learned (arXiv 2411.04403).",
        min_length=1,
    )
    share: float = Field(0.5, ge=0, le=1, description="Of the distillation; the rest is InfoNCE. 0.5: both alike.")
    label_temperature: float | None = Field(
        None,
        gt=0,
        description="Softmax of the judgments is taken at this. None: 0.1 for p_relevant, that of methods §3.1; 1 for "
        "logits (cross) and strengths (of which Elo is 1000 + 200 e), which are spread far wider; 1/30 for a list.",
    )
    uncertain: int = Field(
        0,
        ge=0,
        description="Documents a row whose relevance is uncertain that are learned from besides, by p_relevant only. "
        "0: at a label temperature of 0.1 one of probability 0.4 gets 0.2 % of the positive's share, so it is learned "
        "as a negative. With some, take 0.25 or more.",
    )

    @property
    def reads(self) -> tuple[str, ...]:
        """The soft labels."""
        return (self.column,) if isinstance(self.column, str) else self.column


class EntityOptions(PartOptions):
    """Weighted InfoNCE and, through a linear head, which entity (URI) a query is about; needs mixed sources."""

    kind = "entity"
    share: float = Field(
        0.2,
        ge=0,
        le=1,
        description="Of the head's cross-entropy; the rest is InfoNCE. 0.2: with hundreds to thousands of entities it "
        "begins at 6 to 8, several times InfoNCE, so that both weigh about alike at first.",
    )
    learning_rate: float = Field(
        1e-2,
        gt=0,
        description="Of the head. 1e-2: it begins at 0, and its weights must grow to tens to tell unit vectors apart.",
    )


class MarginMSEOptions(PartOptions):
    """Learns the judges' margins between positive and negative (MarginMSE)."""

    kind = "margin_mse"
    column: Literal["p_relevant", "cross", "elo"] = Field(
        "p_relevant",
        description="Whose margins. p_relevant: they lie within [-1, 1], so that the margins of cosines can reach "
        "them; those of a cross-encoder's logits, the paper's, are far wider and want a `scale`.",
    )
    scale: float = Field(1.0, gt=0, description="Judgments are multiplied by it. 1: right for probabilities.")

    @property
    def reads(self) -> tuple[str, ...]:
        """The margins."""
        return (self.column,)


LOSSES: Final = (
    InfoNCEOptions, PooledOptions, HybridOptions, EntityOptions, DebiasedOptions, HardDebiasedOptions, TripletOptions,
    DistillationOptions, MarginMSEOptions,
)  # fmt: skip
_FORMER: Final = {
    "library": "losses of sentence-transformers are its own trainer's: export the rows and train with them as "
    "docs/training.md shows; margin_mse and triplet are here"
}
LossOptions = Annotated[PartOptions, OneOf(*LOSSES, former=_FORMER)]
