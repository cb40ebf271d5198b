"""How a row's negatives of a step are taken from all that were mined for it, and the parameters of each way."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from anmi.training.options.part import OneOf, PartOptions


class FirstDraw(PartOptions):
    """The best of the row, the same in every step."""

    kind = "first"


class RandomDraw(PartOptions):
    """Others in every step, all alike likely."""

    kind = "random"


class SimAnsDraw(PartOptions):
    """By SimANS, others in every step, with its a and b learned through a Gumbel-softmax (AdaptiveSimANS).

    They are learned by the loss that trains the encoder, as the report has it. That loss falls where negatives become
    easier, so look at a and b in the log.
    """

    kind = "simans"
    form: Literal["score", "rank"] = Field(
        "score",
        description="score: chances are in proportion to exp(−a(s − s⁺ − b)²), as in the paper; rank: to "
        "exp(−a·|rank − b·rank⁺|), as often retold.",
    )
    a: float | None = Field(
        None,
        gt=0,
        description="Where the sharpness starts; that of scores is divided by the variance of the gaps. None is 0.5, "
        "the paper's, or 1, the usual one for ranks.",
    )
    b: float | None = Field(
        None, description="Where the peak starts. None is 0, the paper's, or 1.5, the usual one for ranks."
    )
    relaxation: float = Field(
        0.5,
        gt=0,
        description="Temperature of the softmax: the lower, the nearer to the draw and the noisier the gradient. 0.5: "
        "customary for Gumbel-softmax; the draw itself is exact.",
    )
    learning_rate: float = Field(1e-2, gt=0, description="Of a and b. 1e-2: as that of the temperature.")

    @property
    def reads(self) -> tuple[str, ...]:
        """What chances go by."""
        return ("dense",) if self.form == "score" else ("dense_rank",)


DRAWS: Final = (FirstDraw, RandomDraw, SimAnsDraw)
DrawOptions = Annotated[PartOptions, OneOf(*DRAWS)]
