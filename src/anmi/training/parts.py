"""Parts of a training that come in several kinds: losses, temperatures, sources, draws and more.

They are written as in recipes: a name, or one name with its parameters, ``debiased`` or
``{debiased: {tau_plus: 0.1}}``. What is the same in every recipe and benchmark is a constant of its
kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Literal, Self, get_args

from pydantic import BeforeValidator, Field, model_validator

from anmi.errors import AnmiError
from anmi.selection.steps.registry import Params, named

SOURCES: Final = ("random", "graph", "latent", "edit")
LOWEST_TEMPERATURE: Final = 0.01
HIGHEST_TEMPERATURE: Final = 1.0
HIGHEST_ADAPTIVE: Final = 0.5


class PartOptions(Params):
    """Base of the parameters of one kind."""

    kind: str

    @property
    def reads(self) -> tuple[str, ...]:
        """Judgments of the training rows that this kind cannot do without."""
        return ()


def read_kind(value: Any, union: Any) -> Any:
    """Return a name, or one name with its parameters, as the fields of a kind of a union."""
    if isinstance(value, PartOptions) or (isinstance(value, Mapping) and "kind" in value):
        return value
    kinds = {kind.model_fields["kind"].default: kind for kind in get_args(union)}
    name, parameters = named(value, kinds)
    return {"kind": name, **parameters}


def listed(value: Any) -> Any:
    """Return a list that a command line joins by +, as Kedro ends its settings at a comma."""
    return value.split("+") if isinstance(value, str) else value


class InfoNCEOptions(PartOptions):
    """Weighted InfoNCE."""

    kind: Literal["infonce"] = "infonce"


class HybridOptions(PartOptions):
    """Weighted InfoNCE and, through a small head, the squared error of predicted Elo (ANMI 2.0)."""

    kind: Literal["hybrid"] = "hybrid"
    learning_rate: ClassVar[float] = 1e-3
    alpha: float = Field(
        0.6, ge=0, le=1, description="Share of InfoNCE; the rest is the head's. 0.6: the report's."
    )
    targets: Literal["standardised", "raw"] = Field(
        "standardised", description="Elo to predict. raw: as reported."
    )

    @property
    def reads(self) -> tuple[str, ...]:
        """The target of the head."""
        return ("elo",)


class DebiasedOptions(PartOptions):
    """Subtracts an expected share of false negatives."""

    kind: Literal["debiased"] = "debiased"
    learning_rate: ClassVar[float] = 1e-2
    tau_plus: float | Literal["labelled", "judged"] = Field(
        "labelled",
        description=(
            "Share of positives among negatives, or how it is estimated: labelled positives per "
            "query over corpus size, or the share of mined negatives that judges call relevant."
        ),
    )
    form: Literal["source", "paraphrase"] = Field(
        "source",
        description=(
            "source: the paper's formula. paraphrase: the ANMI 2.1 report's, which subtracts 1,"
            " not N."
        ),
    )
    learned: bool = Field(
        False, description="Learn its logit. Off: the loss falls with any larger share."
    )
    prior_strength: float = Field(
        3.0, ge=0, description="Of a learned share's Beta prior. 3: at most 1.5 × the start."
    )

    @model_validator(mode="after")
    def _a_share(self) -> Self:
        if isinstance(self.tau_plus, float) and not 0.0 <= self.tau_plus < 1.0:
            raise ValueError(f"tau_plus {self.tau_plus:g} lies outside [0, 1)")
        return self


class TripletOptions(PartOptions):
    """Every negative is to stay a margin behind the positive."""

    kind: Literal["triplet"] = "triplet"
    margin: float = Field(
        0.2, gt=0, le=2, description="In cosine distance. 0.2: FaceNet's, for unit vectors."
    )


# The column of what the search of BM25, network and corpus encoder says.
TEACHER: Final = "teacher"
Teacher = Literal["bm25", "dense", "cross", "p_relevant", "elo"]


class DistillationOptions(PartOptions):
    """Learns the judges' soft labels, beside InfoNCE."""

    kind: Literal["distillation"] = "distillation"
    column: Literal["cross", "p_relevant", "elo", "teacher"] | tuple[Teacher, ...] = Field(
        "p_relevant",
        description=(
            "Whose judgment is learned. A list: the mean of judgments scaled in every row (arXiv"
            " 2411.04403)."
        ),
        min_length=1,
    )
    share: float = Field(
        0.5, ge=0, le=1, description="Of the distillation; the rest is InfoNCE. 0.5: both alike."
    )
    label_temperature: float | None = Field(
        None,
        gt=0,
        description=(
            "Of the soft labels. None: 0.1 for p_relevant, 0.5 for teacher, 1 for cross and elo,"
            " 1/30 for a list."
        ),
    )

    @property
    def reads(self) -> tuple[str, ...]:
        """The soft labels; the teacher's are not mined."""
        columns = (self.column,) if isinstance(self.column, str) else self.column
        return () if self.column == TEACHER else columns


class EntityOptions(PartOptions):
    """Weighted InfoNCE and, through a linear head, a query's entity (URI); needs mixed sources."""

    kind: Literal["entity"] = "entity"
    learning_rate: ClassVar[float] = 1e-2
    share: float = Field(
        0.2,
        ge=0,
        le=1,
        description="Of the head's cross-entropy. 0.2: at first as much as InfoNCE.",
    )


LossOptions = (
    InfoNCEOptions
    | HybridOptions
    | EntityOptions
    | DebiasedOptions
    | TripletOptions
    | DistillationOptions
)

_Value = Annotated[float, Field(ge=LOWEST_TEMPERATURE, le=HIGHEST_TEMPERATURE)]


class FixedTemperature(PartOptions):
    """One number."""

    kind: Literal["fixed"] = "fixed"
    value: _Value = Field(0.07, description="0.07: the customary value for cosines.")


class LearnableTemperature(PartOptions):
    """One number, learned as its logarithm, with a learning rate of 1e-2 and no weight decay."""

    kind: Literal["learnable"] = "learnable"
    learning_rate: ClassVar[float] = 1e-2
    initial: _Value = Field(
        0.07, description="Where it starts. 0.07: the customary value for cosines."
    )


class DualTemperature(PartOptions):
    """One for the positive and one for the negatives, both learned.

    The loss falls as the two drift apart, also where the encoder learns nothing: a recipe of it is
    for comparison.
    """

    kind: Literal["dual"] = "dual"
    learning_rate: ClassVar[float] = 1e-2
    positive: _Value = Field(
        0.07, description="Start of the positive's. 0.07: the customary value for cosines."
    )
    negative: _Value = Field(
        0.07, description="Start of the negatives'. 0.07: both begin as one temperature."
    )


class AdaptiveTemperature(PartOptions):
    """One per query, from its embedding, or those of query and positive, by a small network."""

    kind: Literal["adaptive"] = "adaptive"
    learning_rate: ClassVar[float] = 1e-3
    base: float = Field(
        0.07, ge=LOWEST_TEMPERATURE, le=HIGHEST_ADAPTIVE, description="At an offset of zero."
    )
    hidden: int = Field(16, ge=1, description="Width of the hidden layer. The report has 64.")
    sees: Literal["query", "query_and_positive"] = Field(
        "query",
        description=(
            "What the network sees. query_and_positive: both embeddings, as in the ANMI 2.1 report."
        ),
    )
    learned_base: bool = Field(False, description="Learn the base as well, as the report does.")


TemperatureOptions = FixedTemperature | LearnableTemperature | DualTemperature | AdaptiveTemperature


class MinedSources(PartOptions):
    """The negatives that mining chose for every row."""

    kind: Literal["mined"] = "mined"


class MixedSources(PartOptions):
    """Drawn in every step from four sources (methods §5); needs a collection that states facts.

    The shares are those at the end of a schedule, or of the whole training where there is none. A
    source that has nothing for a row is replaced: latent and edit by graph, graph by random.
    """

    kind: Literal["mixed"] = "mixed"
    random: float = Field(
        0.2, ge=0, le=1, description="Share drawn from the whole corpus. 0.2: methods."
    )
    graph: float = Field(
        0.5,
        ge=0,
        le=1,
        description="Share of variants of the document: entity swapped, facts shared.",
    )
    latent: float = Field(
        0.3, ge=0, le=1, description="Share of the nearest encoded of late, about another entity."
    )
    edit: float = Field(
        0.0, ge=0, le=1, description="Share of edits of the row's document. 0: optional in methods."
    )
    refresh: int = Field(50, ge=1, description="Steps between two indexes of latent negatives.")
    buffer: int = Field(
        2048,
        ge=1,
        description=(
            "Documents encoded last that latent negatives are among. Above 50,000 their index is"
            " made beside the training (HNSW), to be used from the next refresh on."
        ),
    )
    boost: float = Field(
        0.0, ge=0, description="Weight added to a row, times its share of hard negatives."
    )
    margin: float = Field(
        0.1, ge=0, le=2, description="A negative less far below the positive's cosine violates it."
    )
    adversary: float = Field(
        0.0,
        ge=0,
        lt=1,
        description=(
            "Length of the step of a negative's embedding up the loss's gradient. 0: optional."
        ),
    )

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if abs(sum(self.mix) - 1) > 1e-6:
            raise ValueError(
                f"the shares of {', '.join(SOURCES)} add up to 1, and not to {sum(self.mix):g}"
            )
        return self

    @property
    def mix(self) -> tuple[float, float, float, float]:
        """The shares in the order of :data:`SOURCES`."""
        return (self.random, self.graph, self.latent, self.edit)


SourceOptions = MinedSources | MixedSources


class FirstDraw(PartOptions):
    """The best of the row, the same in every step."""

    kind: Literal["first"] = "first"


class SimAnsDraw(PartOptions):
    """By SimANS in every step, its a and b learned through a Gumbel-softmax (AdaptiveSimANS).

    They are learned by the loss that trains the encoder, as the report has it. That loss falls
    where negatives become easier, so look at a and b in the log.
    """

    kind: Literal["simans"] = "simans"
    learning_rate: ClassVar[float] = 1e-2
    form: Literal["score", "rank"] = Field(
        "score",
        description=(
            "Chances are exp(−a(s − s⁺ − b)²), as in the paper, or exp(−a·|rank − b·rank⁺|)."
        ),
    )

    @property
    def reads(self) -> tuple[str, ...]:
        """What chances go by."""
        return ("dense",) if self.form == "score" else ("dense_rank",)


DrawOptions = FirstDraw | SimAnsDraw


class NoFilter(PartOptions):
    """Every document of other rows that nobody knows to be relevant is a negative."""

    kind: Literal["none"] = "none"


class ScoreFilter(PartOptions):
    """Leaves out documents of other rows more similar than the positive (Qwen3-Embedding)."""

    kind: Literal["score"] = "score"
    margin: float = Field(
        0.1, ge=0, description="By how much, of cosines. 0.1: as in arXiv 2506.05176."
    )


class GuideFilter(PartOptions):
    """Leaves out those that a frozen guide scores above the positive (arXiv 2402.16829)."""

    kind: Literal["guide"] = "guide"
    by: Literal["start", "bm25", "corpus"] = Field(
        "start",
        description=(
            "The encoder before training, BM25 over sub-words, or the corpus's own encoder."
        ),
    )
    margin: float = Field(
        0.0, ge=0, description="By how much, of the guide's scores. 0: as in GISTEmbed."
    )


FilterOptions = NoFilter | ScoreFilter | GuideFilter


class NoCurriculum(PartOptions):
    """The best negatives of every row, in every step."""

    kind: Literal["none"] = "none"


class WindowOptions(PartOptions):
    """Base of the curricula that show a row a window of its pool."""

    window: Literal["elo", "rank"] = Field(
        "elo", description="In gaps of Elo, or in places of a pool, hardest first."
    )

    @property
    def reads(self) -> tuple[str, ...]:
        """The ratings that the gaps are of."""
        return ("elo",) if self.window == "elo" else ()


class TiersOptions(WindowOptions):
    """Four tiers of a quarter of the steps: easy negatives, then harder ones besides (ANMI 2.0)."""

    kind: Literal["tiers"] = "tiers"


class LearningProgressOptions(WindowOptions):
    """Harder while the model learns or rests, easier when it gets worse (Graves et al. 2017)."""

    kind: Literal["learning_progress"] = "learning_progress"
    window_steps: int | None = Field(
        None, ge=2, description="Of one decision. None: a share of all, 5 to 100."
    )
    signals: Annotated[
        tuple[Literal["loss", "gradient", "validation"], ...] | None, BeforeValidator(listed)
    ] = Field(
        None, min_length=1, description="Of progress. None: all; as published loss and gradient."
    )
    every: int | None = Field(
        None,
        ge=1,
        description=(
            "Steps between two decisions; as published the others are not looked at. None: a"
            " window, as published 1; the report advises 10."
        ),
    )
    as_published: bool = Field(
        False, description="Measure progress as the ANMI 2.1 report's code does."
    )


class BanditOptions(WindowOptions):
    """Thompson sampling among four difficulties, rewarded by the dev metric (ANMI 2.1)."""

    kind: Literal["bandit"] = "bandit"
    arms: ClassVar[int] = 4
    as_published: bool = Field(
        False, description="Reward 1 above 0.5 and else 0, as the ANMI 2.1 report's code does."
    )


class ScheduleOptions(PartOptions):
    """Base of the schedules of mixed sources (methods §5).

    They end with the shares that ``sources: mixed`` names, and there is no schedule without it.
    """


class LinearOptions(ScheduleOptions):
    """From random negatives only to the final shares of the sources, in a straight line."""

    kind: Literal["linear"] = "linear"
    warm_up: float = Field(
        2.0, ge=0, description="Epochs in which random falls to its final share. 2: methods."
    )


class StepOptions(ScheduleOptions):
    """Random negatives only, then graph and edited ones besides, then latent ones besides."""

    kind: Literal["step"] = "step"
    warm_up: float = Field(2.0, ge=0, description="Epochs of random negatives only. 2: methods.")
    latent_from: float = Field(
        5.0, ge=0, description="Epochs after which latent ones come besides. 5: methods."
    )

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.latent_from < self.warm_up:
            raise ValueError(
                f"latent_from ({self.latent_from:g}) is not before the end of warm_up"
                f" ({self.warm_up:g})"
            )
        return self


class TriggeredOptions(ScheduleOptions):
    """The stages of step, each until the model masters it, and back where it fails."""

    kind: Literal["triggered"] = "triggered"
    measure: Literal["violations", "validation"] = Field(
        "violations", description="Of the margin, or the dev metric."
    )
    advance: float = Field(
        0.05, ge=0, le=1, description="Violations below which the next stage begins."
    )
    retreat: float = Field(
        0.25, ge=0, le=1, description="Violations above which the last stage begins anew."
    )

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.advance < self.retreat:
            raise ValueError(
                f"advance ({self.advance:g}) must lie below retreat ({self.retreat:g})"
            )
        return self


CurriculumOptions = (
    NoCurriculum
    | TiersOptions
    | LearningProgressOptions
    | BanditOptions
    | LinearOptions
    | StepOptions
    | TriggeredOptions
)


class Adaptation(Params):
    """One setting of the training as a linear function of the hardness of a query.

    Examples
    --------
    >>> Adaptation(low=0.5, high=1.5, direction="falling").at(0.25)
    1.25
    """

    low: float = Field(ge=0, description="The smallest value it takes.")
    high: float = Field(ge=0, description="The largest value it takes.")
    direction: Literal["rising", "falling", "off"] = Field(
        description="With the hardness of queries."
    )

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.low > self.high:
            raise ValueError(
                f"low is {self.low:g} and must not exceed high, which is {self.high:g}"
            )
        return self

    @property
    def on(self) -> bool:
        """Whether it adapts anything."""
        return self.direction != "off"

    def at(self, hardness: Any) -> Any:
        """Return the value at a hardness in [0, 1]: a number, an array or a tensor."""
        change = (self.high - self.low) * hardness
        return self.low + change if self.direction == "rising" else self.high - change


def _of(low: float, high: float, direction: Literal["rising", "falling"] = "rising") -> Adaptation:
    return Adaptation(low=low, high=high, direction=direction)


class NoAdaptation(PartOptions):
    """Every query is trained alike."""

    kind: Literal["none"] = "none"


class HansOptions(PartOptions):
    """Harder queries get more negatives, weight and margin, and a lower temperature (HANS)."""

    kind: Literal["hans"] = "hans"
    learning_rate: ClassVar[float] = 1e-3
    negatives: Adaptation = Field(
        _of(1, 3), description="Mined negatives of a row, rounded at random."
    )
    weight: Adaptation = Field(
        _of(0.5, 1.5), description="Factor of a query's loss. The report's formula falls."
    )
    temperature: Adaptation = Field(
        _of(0.5, 1.0, "falling"), description="Temperature. The report's formula rises."
    )
    temperature_is: Literal["factor", "absolute"] = Field(
        "factor",
        description=(
            "factor: times the training's temperature. absolute: the temperature itself, as"
            " reported."
        ),
    )
    margin: Adaptation = Field(
        _of(0.1, 0.5), description="By which a positive wins. The report's falls."
    )
    margin_is: Literal["subtracted", "added"] = Field(
        "subtracted", description="added: the report's formula, which makes the task easier."
    )
    margin_on: Literal["logit", "similarity"] = Field(
        "logit",
        description="similarity: before it is divided by the temperature, as the report has it.",
    )
    detached: bool = Field(True, description="Whether the predictor leaves the embedding alone.")


HardnessOptions = NoAdaptation | HansOptions


def goes_by_dev(curriculum: PartOptions) -> bool:
    """Tell whether a curriculum goes by the dev metric."""
    by_validation = getattr(curriculum, "measure", "") == "validation"
    is_signal = "validation" in (getattr(curriculum, "signals", None) or ())
    return by_validation or is_signal or isinstance(curriculum, BanditOptions)


def check_sources(curriculum: PartOptions, *, mixed: bool) -> None:
    """Refuse a curriculum that does not go with where negatives come from, mined or ``mixed``."""
    if mixed and isinstance(curriculum, WindowOptions):
        raise AnmiError(
            f'training: curriculum "{curriculum.kind}" chooses among mined negatives, and `sources:'
            " mixed` takes none of them; choose a schedule (linear, step, triggered), or `sources:"
            " mined`"
        )
    if not mixed and isinstance(curriculum, ScheduleOptions):
        raise AnmiError(
            f'training: curriculum "{curriculum.kind}" says how large the share of each of the'
            " mixed sources is, and negatives are mined; set `sources: mixed`, or choose another"
            " curriculum"
        )
