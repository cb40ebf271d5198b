"""What losses there are, and their parameters."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import Field

from anmi.training.options.part import OneOf, PartOptions


class InfoNCEOptions(PartOptions):
    """Weighted InfoNCE."""

    kind = "infonce"


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


class _TauPlusOptions(PartOptions):
    """What the debiased losses share."""

    tau_plus: float | Literal["labelled", "judged"] = Field(
        "labelled",
        description="Share of positives among negatives, in [0, 1), or how to estimate it. labelled: labelled "
        "positives a query over corpus size, all that is known without judges. judged: the share of the mined "
        "negatives that the judges hold for relevant. The paper's 0.1 goes with a temperature of 0.5; at low ones it "
        "silences all negatives as soon as the positive leads.",
    )
    learned: bool = Field(False, description="Learn its logit. Off: without a prior it runs to 1 (methods §3.3).")
    prior_strength: float = Field(
        100.0,
        ge=0,
        description="Pseudo-counts of the Beta prior around the start value, where it is learned. 100: a start value "
        "from about as many judged negatives. 0: none, to show why there is one.",
    )
    learning_rate: float = Field(1e-2, gt=0, description="Of the logit, as that of the temperature.")


class DebiasedOptions(_TauPlusOptions):
    """Subtracts an expected share of false negatives."""

    kind = "debiased"
    form: Literal["source", "paraphrase"] = Field(
        "source", description="source: the paper's formula. paraphrase: as often retold, without the factor N."
    )


class HardDebiasedOptions(_TauPlusOptions):
    """Debiased, the harder negatives weighing more (HCL)."""

    kind = "hard_debiased"
    beta: float = Field(1.0, ge=0, description="How much more the harder weigh; 0 is debiased. 1: the paper's.")


class TripletOptions(PartOptions):
    """Every negative is to stay a margin behind the positive."""

    kind = "triplet"
    margin: float = Field(0.2, gt=0, description="In cosine distance. 0.2: FaceNet's, for unit vectors.")


class DistillationOptions(PartOptions):
    """Learns the judges' soft labels, beside InfoNCE."""

    kind = "distillation"
    column: Literal["cross", "p_relevant", "elo"] = Field(
        "p_relevant", description="Whose judgment. p_relevant: the fused, calibrated one."
    )
    share: float = Field(0.5, ge=0, le=1, description="Of the distillation; the rest is InfoNCE. 0.5: both alike.")
    label_temperature: float = Field(
        0.1, gt=0, description="Softmax of the judgments is taken at this. 0.1: that of methods §3.1."
    )
    uncertain: int = Field(
        2, ge=0, description="Documents a row whose relevance is uncertain that are learned from besides. 2: few have "
        "more, and each costs a document's encoding.",
    )  # fmt: skip

    @property
    def reads(self) -> tuple[str, ...]:
        """The soft labels."""
        return (self.column,)


class MarginMSEOptions(PartOptions):
    """Learns the judges' margins between positive and negative (sentence-transformers' MarginMSELoss)."""

    kind = "margin_mse"
    column: Literal["cross", "p_relevant"] = Field("cross", description="Whose margins. cross: the paper's.")

    @property
    def reads(self) -> tuple[str, ...]:
        """The margins."""
        return (self.column,)


class LibraryOptions(PartOptions):
    """Any loss of sentence-transformers that takes (anchor, positive, negatives)."""

    kind = "library"
    name: str = Field("MultipleNegativesRankingLoss", description="Class in sentence_transformers' losses.")
    arguments: dict[str, Any] = Field(default_factory=dict, description="Its own arguments besides the model.")


LOSSES: Final = (
    InfoNCEOptions, HybridOptions, DebiasedOptions, HardDebiasedOptions, TripletOptions, DistillationOptions,
    MarginMSEOptions, LibraryOptions,
)  # fmt: skip
LossOptions = Annotated[PartOptions, OneOf(*LOSSES)]
