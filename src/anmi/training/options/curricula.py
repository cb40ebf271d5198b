"""What curricula there are, and their parameters."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field, model_validator

from anmi.errors import AnmiError
from anmi.training.options.part import OneOf, PartOptions


class NoCurriculum(PartOptions):
    """The best negatives of every row, in every step."""

    kind = "none"


class WindowOptions(PartOptions):
    """What all curricula with a window share: which negatives of its pool a row is shown at a difficulty."""

    window: Literal["elo", "rank"] = Field(
        "elo",
        description="What the window is in. elo: gaps to the positive, as in methods §3.6; inside are rated candidates "
        "only, so let `elo.depth` rate as many as the pool holds. rank: the place in the row's pool as a share, 0 "
        "the first, for recipes that rate nobody; the pool is to be ordered by hardness.",
    )
    danger: float = Field(
        100.0, description="Gap in Elo below which no negative is ever shown; nothing by rank. 100: the danger zone."
    )
    fill: Literal["nearest", "none"] = Field(
        "nearest",
        description="What a row is shown where its window holds too few. nearest: those nearest to the window, so that "
        "the number of negatives does not change with the difficulty. none: just those inside.",
    )

    @property
    def reads(self) -> tuple[str, ...]:
        """The ratings that the gaps are of."""
        return ("elo",) if self.window == "elo" else ()


class TiersOptions(WindowOptions):
    """Fixed tiers: first easy negatives only, then harder ones besides (ANMI 2.0)."""

    kind = "tiers"
    shares: tuple[float, float, float, float] = Field(
        (0.25, 0.25, 0.25, 0.25),
        description="Share of the steps that each of tier 1 to 4 lasts. A quarter each: the report names none.",
    )

    @model_validator(mode="after")
    def _whole(self) -> TiersOptions:
        if min(self.shares) < 0 or abs(sum(self.shares) - 1) > 1e-6:
            raise ValueError(f"the shares of the tiers are not negative and add up to 1, and not to {sum(self.shares)}")
        return self


class SlidingOptions(WindowOptions):
    """What the curricula share that set a difficulty between 0 and 1."""

    growth: float = Field(
        0.5,
        ge=0,
        le=4,
        description="Share of negatives that come on top at difficulty 1; in between it is in proportion. 0.5: that of "
        "methods §3.6. The pool must be larger for it.",
    )
    window_steps: int | None = Field(
        None,
        ge=2,
        description="Steps that one decision looks at and lasts. None goes by the length of the training: a twentieth "
        "of it for learning progress, so that difficulty can rise from 0 to about 1, and a fortieth for the bandit, so "
        "that every arm is tried often; at least 5 and at most 100, the number in methods §3.6.",
    )


class LearningProgressOptions(SlidingOptions):
    """Harder while the model learns or has stopped to, easier when it gets worse (after Graves et al. 2017)."""

    kind = "learning_progress"
    start: float = Field(0.0, ge=0, le=1, description="Difficulty at first. 0: from easy to hard.")
    rising: float = Field(0.05, description="Progress above which difficulty rises by `up`. 0.05: that of the report.")
    falling: float = Field(-0.02, description="Progress below which it falls by `down`. −0.02: that of the report.")
    plateau: float = Field(
        0.01, description="Progress below which it rises by `push`, as nothing is learned here. 0.01: the report's."
    )
    up: float = Field(0.05, ge=0, le=1, description="See `rising`.")
    down: float = Field(0.1, ge=0, le=1, description="See `falling`.")
    push: float = Field(0.02, ge=0, le=1, description="See `plateau`.")
    every: int | None = Field(
        None,
        ge=1,
        description="Steps between two decisions. None: `window_steps`, so that none looks at the steps of another; "
        "with fewer, windows slide, and 100 by 10 is the ANMI 2.1 report's.",
    )
    signals: tuple[Literal["loss", "gradient", "validation"], ...] = Field(
        ("loss", "gradient", "validation"),
        min_length=1,
        description="What progress is the mean of: the fall of the loss, the steadiness of the gradient norm, and the "
        "gain of the dev metric. All: the report's.",
    )
    centred: bool = Field(
        True,
        description="Take the running mean off the stability of the gradient norm. On: it lies above 0 whatever "
        "happens, and uncentred keeps the progress above `rising`, so that difficulty only ever climbs.",
    )

    @model_validator(mode="after")
    def _ordered(self) -> LearningProgressOptions:
        if not self.falling <= self.plateau <= self.rising:
            raise ValueError(
                f"falling, plateau and rising are thresholds in this order, and not {self.falling:g}, {self.plateau:g} "
                f"and {self.rising:g}"
            )
        return self


class BanditOptions(SlidingOptions):
    """Thompson sampling among difficulties, rewarded by the fall of the loss and the rise of the dev metric."""

    kind = "bandit"
    arms: int = Field(
        5, ge=2, le=50, description="Difficulties to choose from, from 0 to 1. 5: the windows of neighbours overlap."
    )


class ScheduleOptions(PartOptions):
    """What the schedules share: from which of the mixed sources negatives come as the training goes on (methods §5).

    They end with the shares that ``sources: mixed`` names, and there is no schedule without it.
    """


class LinearOptions(ScheduleOptions):
    """From random negatives only to the final shares of the sources, in a straight line."""

    kind = "linear"
    warm_up: float = Field(
        2.0,
        ge=0,
        description="Epochs in which the share of random negatives falls from 1 to its final one, while those of the "
        "other sources rise from 0; then the final ones stay. 2: methods, which let random fall to 0; here it stops at "
        "what `sources` says, so that nothing jumps.",
    )


class StepOptions(ScheduleOptions):
    """Random negatives only, then graph and edited ones besides, then latent ones besides."""

    kind = "step"
    warm_up: float = Field(2.0, ge=0, description="Epochs of random negatives only. 2: methods.")
    latent_from: float = Field(
        5.0,
        ge=0,
        description="Epochs after which latent negatives come besides; until then the other shares make up for them. "
        "5: methods, so train for more epochs than that, or take less.",
    )

    @model_validator(mode="after")
    def _ordered(self) -> StepOptions:
        if self.latent_from < self.warm_up:
            raise ValueError(f"latent_from ({self.latent_from:g}) is not before the end of warm_up ({self.warm_up:g})")
        return self


class TriggeredOptions(ScheduleOptions):
    """The stages of step, each until the model masters it, and back where it fails."""

    kind = "triggered"
    measure: Literal["violations", "clustering", "validation"] = Field(
        "violations",
        description="What tells. violations: the running share of a step's negatives that violate the margin of "
        "`sources`. clustering: that of documents in the latent index whose nearest other document is about another "
        "entity, though one about theirs is there. validation: the dev metric, once an epoch. violations: it answers "
        "within a stage, many times an epoch, and also where there are no dev queries.",
    )
    advance: float = Field(
        0.05,
        ge=0,
        le=1,
        description="Share, of violations or by clustering, below which the next stage begins. 0.05: random negatives "
        "are soon far below it, swaps only once the model has learned something of them.",
    )
    retreat: float = Field(
        0.25,
        ge=0,
        le=1,
        description="Share above which the stage before begins again. 0.25: a quarter of the negatives "
        "is more than a model that is learning the stage leaves.",
    )
    half_life: float = Field(
        20.0,
        gt=0,
        description="Steps after which a share of violations counts half in the running mean, which begins anew with "
        "every stage. 20: about 60 steps count, at 64 rows of 7 negatives each 25,000, so that chance moves a share "
        "of 0.05 by less than a tenth of it.",
    )
    min_gain: float = Field(
        0.002,
        ge=0,
        description="Gain over the best dev metric so far that is one. 0.002: less could be chance.",
    )
    patience: int = Field(
        1, ge=1, description="Measurements without such a gain after which the next stage begins. 1: epochs are few."
    )
    max_drop: float = Field(
        0.01,
        ge=0,
        description="Fall of the dev metric below its best after which the stage before begins again. 0.01: five times "
        "`min_gain`, as some fall is the price of a harder stage at first.",
    )
    stay: int | None = Field(
        None,
        ge=1,
        description="Steps that a stage lasts at least before the next. None: an epoch, in which every row meets it.",
    )
    cool_down: int | None = Field(
        None,
        ge=1,
        description="Steps after a change before the stage before may begin again. None: half an epoch, as "
        "what is new violates the margin often at first.",
    )

    @model_validator(mode="after")
    def _ordered(self) -> TriggeredOptions:
        if not self.advance < self.retreat:
            raise ValueError(
                f"advance is below retreat, or the schedule would go to and fro: they are {self.advance:g} and "
                f"{self.retreat:g}"
            )
        return self


def check_sources(curriculum: PartOptions, *, mixed: bool) -> None:
    """Raise an AnmiError where a curriculum does not go with where negatives come from, mined or ``mixed``."""
    if mixed and isinstance(curriculum, WindowOptions):
        raise AnmiError(
            f'training: curriculum "{curriculum.kind}" chooses among mined negatives, and `sources: mixed` takes none '
            f"of them; choose a schedule ({', '.join(kind.kind for kind in SCHEDULES)}), or `sources: mined`"
        )
    if not mixed and isinstance(curriculum, ScheduleOptions):
        raise AnmiError(
            f'training: curriculum "{curriculum.kind}" says how large the share of each of the mixed sources is, and '
            "negatives are mined; set `sources: mixed`, or choose another curriculum"
        )


SCHEDULES: Final = (LinearOptions, StepOptions, TriggeredOptions)
CURRICULA: Final = (NoCurriculum, TiersOptions, LearningProgressOptions, BanditOptions, *SCHEDULES)
CurriculumOptions = Annotated[PartOptions, OneOf(*CURRICULA)]
