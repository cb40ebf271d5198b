"""What a temperature may be."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from anmi.training.options.part import OneOf, PartOptions

LOWEST: Final = 0.01
HIGHEST: Final = 1.0
HIGHEST_ADAPTIVE: Final = 0.5
_LEARNING_RATE: Final = (
    "Peak learning rate, without weight decay. 1e-2: a single number needs larger steps than weights; in the 75 steps "
    "of SciFact it moved t from 0.07 to 0.05."
)
_Value = Annotated[float, Field(ge=LOWEST, le=HIGHEST)]


class FixedTemperature(PartOptions):
    """One number."""

    kind = "fixed"
    value: _Value = Field(0.07, description="0.07: the customary value for cosines.")


class LearnableTemperature(PartOptions):
    """One number, learned as its logarithm."""

    kind = "learnable"
    initial: _Value = Field(0.07, description="Where it starts. 0.07: the customary value for cosines.")
    learning_rate: float = Field(1e-2, gt=0, description=_LEARNING_RATE)


class DualTemperature(PartOptions):
    """One for the positive and one for the negatives, both learned.

    The loss falls as the two drift apart, also where the encoder learns nothing: a recipe of it is for comparison.
    """

    kind = "dual"
    positive: _Value = Field(0.07, description="Start of the positive's. 0.07: the customary value for cosines.")
    negative: _Value = Field(0.07, description="Start of the negatives'. 0.07: both begin as one temperature.")
    learning_rate: float = Field(1e-2, gt=0, description=_LEARNING_RATE)


class AdaptiveTemperature(PartOptions):
    """One per query, from its embedding, or those of query and positive, by a small network."""

    kind = "adaptive"
    base: float = Field(
        0.07, ge=LOWEST, le=HIGHEST_ADAPTIVE, description="What an offset of zero gives. 0.07: customary."
    )
    hidden: int = Field(
        16, ge=1, description="Width of the network's hidden layer. 16: it gives one number. The report has 64."
    )
    sees: Literal["query", "query_and_positive"] = Field(
        "query",
        description="What the network sees. query: what is known of a query before it is answered. query_and_positive: "
        "both embeddings one after the other, as the ANMI 2.1 report has it.",
    )
    learned_base: bool = Field(
        False,
        description="Learn the base as well, as the report does. Off: the network's last bias can do the same.",
    )
    learning_rate: float = Field(1e-3, gt=0, description="Of the network. 1e-3: AdamW's customary one.")


TEMPERATURES: Final = (FixedTemperature, LearnableTemperature, DualTemperature, AdaptiveTemperature)
TemperatureOptions = Annotated[PartOptions, OneOf(*TEMPERATURES)]
