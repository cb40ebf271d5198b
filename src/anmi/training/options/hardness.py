"""How training may adapt to the hardness of queries."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from anmi.corpus.hardness import HardnessParams
from anmi.training.options.part import OneOf, PartOptions


class Adaptation(BaseModel):
    """One setting of the training as a linear function of the hardness of a query.

    Examples
    --------
    >>> Adaptation(low=0.5, high=1.5, direction="falling").at(0.25)
    1.25
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    low: float = Field(ge=0, description="The smallest value it takes. The methods name one for each adaptation.")
    high: float = Field(ge=0, description="The largest value it takes. The methods name one for each adaptation.")
    direction: Literal["rising", "falling", "off"] = Field(
        description="rising: larger for harder queries. falling: smaller. off: not adapted. The methods name one each."
    )

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"low is {self.low:g} and must not exceed high, which is {self.high:g}")
        return self

    @property
    def on(self) -> bool:
        """Whether it adapts anything."""
        return self.direction != "off"

    def at(self, hardness: Any) -> Any:
        """Return the value at a hardness in [0, 1]: a number, an array or a tensor."""
        span = self.high - self.low
        return self.low + span * hardness if self.direction == "rising" else self.high - span * hardness


class NoAdaptation(PartOptions):
    """Every query is trained alike."""

    kind = "none"


class HansOptions(PartOptions):
    """Harder queries get more negatives, a larger weight, a lower temperature and a larger margin (HANS)."""

    kind = "hans"
    negatives: Adaptation = Field(
        Adaptation(low=1, high=3, direction="rising"),
        description="Mined negatives of a row, rounded at random from the fraction in every step. 1 to 3, rising: the "
        "report's.",
    )
    weight: Adaptation = Field(
        Adaptation(low=0.5, high=1.5, direction="rising"),
        description="Factor of a query's loss. Rising: what the report intends; its formula falls.",
    )
    temperature: Adaptation = Field(
        Adaptation(low=0.5, high=1.0, direction="falling"),
        description="Temperature. Falling: what the report intends; its formula rises.",
    )
    temperature_is: Literal["factor", "absolute"] = Field(
        "factor",
        description="factor: times the training's temperature. absolute: the temperature itself, as the report has it, "
        "whatever temperature is set; on cosines 0.5 tells hardly any negative from another.",
    )
    margin: Adaptation = Field(
        Adaptation(low=0.1, high=0.5, direction="rising"),
        description="Margin by which the positive must win. Rising: what the report intends; its formula falls.",
    )
    margin_is: Literal["subtracted", "added"] = Field(
        "subtracted",
        description="What is done with the margin. subtracted: the positive must win by it. added: the report's "
        "formula, which makes the task easier.",
    )
    margin_on: Literal["logit", "similarity"] = Field(
        "logit",
        description="What the margin stands on. logit: the similarity divided by the temperature. similarity: before "
        "it is divided, as the report has it; at a temperature of 0.07 it is 14 times as much then.",
    )
    by: Literal["predicted", "heuristic"] = Field(
        "predicted",
        description="Which hardness weight, temperature and margin go by. predicted: the report's. The number of "
        "negatives has to be known before a query is encoded and always goes by the heuristic.",
    )
    predictor_weight: float = Field(0.1, ge=0, description="Of the predictor's squared error. 0.1: the report's.")
    detached: bool = Field(
        True,
        description="Whether the predictor leaves the embedding alone. On: how a text looks is no part of what it asks "
        "for, and with all adaptations off the training is that of the plain loss.",
    )
    learning_rate: float = Field(1e-3, gt=0, description="Of the predictor. 1e-3: AdamW's customary one.")
    pretrain: int = Field(
        0,
        ge=0,
        description="Passes over the training queries in which the predictor alone learns the heuristic, before the "
        "first step. 0: it learns beside the encoder only, and adapts by what it makes up in the first steps.",
    )
    easy_first: int = Field(
        0,
        ge=0,
        description="Epochs, from the first on, whose batches go from easy queries to hard ones; each row has its turn "
        "once, as in any epoch. 0: batches at random, since the in-batch negatives of a batch are alike otherwise.",
    )
    heuristic: HardnessParams = Field(
        HardnessParams(), description="What the predictor learns. The report's weights and scales."
    )


HARDNESS: Final = (NoAdaptation, HansOptions)
HardnessOptions = Annotated[PartOptions, OneOf(*HARDNESS)]
