"""Recipes: ordered steps with settings of mining and training; what validates and runs them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from anmi.candidates import GRADE, MARKED, SHIFT, Candidates, CandidateShards, ColumnShards
from anmi.engine.threads import ahead
from anmi.errors import AnmiError, is_plain_name, nearest
from anmi.selection.steps import STEPS, Context, Params, StepType, named

# The candidates, and the columns that stages added to them. Here, so that who reads them imports no
# training.
STAGE_COLUMNS: Final = ("candidates", "consistency", "evidence", "judgments", "ratings")


def with_stage_columns(candidates: CandidateShards, **added: ColumnShards) -> CandidateShards:
    """Return the candidates of retrieval with the columns of all other :data:`STAGE_COLUMNS`."""
    return candidates.joined(*(added[name] for name in STAGE_COLUMNS[1:]))


def with_probabilities(block: Candidates) -> Candidates:
    """Return the block with ``p_relevant``, which is ``p_evidence`` without a cross-encoder.

    It is 0 for a candidate that a person marked as not relevant; ``p_judged`` then keeps what the
    judges said.
    """
    if "p_relevant" not in block.columns and "p_evidence" in block.columns:
        block = block.with_columns(
            {"p_relevant": block.columns["p_evidence"]},
            {"p_relevant": block.positive_columns["p_evidence"]},
        )
    is_marked = {MARKED, "p_relevant"} <= block.columns.keys()
    if not is_marked or "p_judged" in block.columns:
        return block
    judged = block.columns["p_relevant"]
    is_refused = block.columns[MARKED] == 0
    probability = np.where(is_refused, np.float32(0), judged)
    return block.with_columns({"p_relevant": probability, "p_judged": judged})


def needed(requires: Collection[str]) -> set[str]:
    """Return the stored columns behind those that are read, for ``CandidateShards.only``.

    Examples
    --------
    >>> sorted(needed({"dense", "p_relevant"}))
    ['dense', 'llm', 'llm_shift', 'marked', 'p_evidence', 'p_relevant']
    """
    stored = set(requires)
    if "p_relevant" in stored:
        stored |= {"p_evidence", MARKED}
    if "p_evidence" in stored:
        stored |= {GRADE, SHIFT}
    return stored


class Step(Params):
    """One step of a recipe: its kind and validated parameters."""

    name: str
    params: Any

    @classmethod
    def of(cls, name: str, params: Any) -> Step:
        """Validate the parameters of a step; raises ValueError, which names the step."""
        params_types = {step_name: kind.params for step_name, kind in STEPS.items()}
        name, params = named({name: params}, params_types, "step ")
        try:
            return cls(name=name, params=STEPS[name].params(**params))
        except ValidationError as error:
            raise ValueError(f'step "{name}", {_sentence(error)}') from error

    @property
    def type(self) -> StepType:
        """The registered kind of this step."""
        return STEPS[self.name]

    @property
    def threshold(self) -> str | None:
        """The step's threshold; of several that exclude each other the one that is set."""
        names = self.type.thresholds
        set_names = (name for name in names if getattr(self.params, name) is not None)
        return next(set_names, names[0] if names else None)

    @property
    def on_dev(self) -> bool:
        """Whether it is fitted on dev queries."""
        return getattr(self.params, "per", None) == "dev"


# The columns that each stage makes.
OF_BM25: Final = frozenset({"bm25", "bm25_rank", "consistent", "positive_rank", "fused"})
OF_ENCODER: Final = frozenset({"dense", "dense_rank", "fused"})
OF_ELO: Final = frozenset({"elo", "elo_se", "gap_se", "p_preferred"})
OF_CROSS_ENCODER: Final = OF_ELO | {"cross", "p_cross", "soft_label"}
OF_EVIDENCE: Final = frozenset(
    {"p_relevant", "p_evidence", "coverage", "match", "likeness", "likeness_terms"}
) | {"containment", "contained", "facts"}

Settings = TypeVar("Settings", bound=BaseModel)
# What a recipe may state settings of.
MINING_STAGES: Final = ("bm25", "dense", "consistency", "denoising", "elo")
_PROBABILITIES: Final = frozenset({"p_relevant", "p_evidence", "p_cross", "p_preferred"})


class Recipe(Params):
    """A complete, citable configuration of one way to choose negatives and train on them."""

    extends: str | None = Field(
        None, description="Recipe whose fields and settings hold where this one has none."
    )
    description: str = Field(description="One sentence for people who choose among recipes.")
    source: str = Field("", description="Paper, report or code the recipe follows.")
    encoder: str | None = Field(
        None, description="The encoder that it is made for, in the place of the run's."
    )
    negatives: int = Field(
        7,
        ge=0,
        le=1000,
        description="Negatives per row; 7 is what most published recipes use.",
    )
    pool: int | None = Field(
        None,
        ge=1,
        le=1000,
        description="Negatives kept per row, of which training draws `negatives` in every step.",
    )
    reads: tuple[str, ...] = Field(
        (), description="Judgments training reads, besides those the steps do."
    )
    steps: tuple[Step, ...] = Field((), description="Run in order on every block of candidates.")
    mining: dict[str, dict[str, Any]] = Field(
        default_factory=dict,
        description="Settings of bm25, dense, consistency, denoising and elo that it sets itself.",
    )
    training: dict[str, Any] = Field(
        default_factory=dict, description="Training options this recipe sets."
    )

    @model_validator(mode="before")
    @classmethod
    def _known(cls, value: Any) -> Any:
        for key in value if isinstance(value, dict) else ():
            if key not in cls.model_fields:
                raise ValueError(f'a recipe has no "{key}"; {nearest(str(key), cls.model_fields)}')
        return value

    @field_validator("steps", mode="before")
    @classmethod
    def _parsed(cls, value: Any) -> Any:
        steps = list(value.items()) if isinstance(value, Mapping) else value
        if not isinstance(steps, list):
            raise ValueError(
                f"steps are names with parameters, as in `steps: {{top: {{by: dense}}}}`: {value!r}"
            )
        return tuple(Step.of(name, params) for name, params in placed(steps))

    @field_validator("mining")
    @classmethod
    def _of_stages(cls, value: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        if wrong := [name for name in value if name not in MINING_STAGES]:
            raise ValueError(
                f'"{wrong[0]}" is no stage of mining with settings;'
                f" {nearest(wrong[0], MINING_STAGES)}"
            )
        return value

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Recipe:
        """Return the recipe itself, which never changes; Kedro copies all of them for each node."""
        return self

    def settings(self, stage: str, params: Settings) -> Settings:
        """Return the parameters of a stage of mining, overridden by this recipe's settings for it.

        Parameters
        ----------
        stage
            One of bm25, dense, consistency, denoising and elo.
        params
            Of the stage, as the run has them.

        Examples
        --------
        >>> class Shallow(BaseModel):
        ...     k1: float = 0.9
        ...     depth: int = 10
        >>> recipe = Recipe(description="Deep.", mining={"bm25": {"depth": 50}})
        >>> recipe.settings("bm25", Shallow(k1=1.2))
        Shallow(k1=1.2, depth=50)
        """
        stated = self.mining.get(stage)
        if not stated:
            return params
        settings = merged(params.model_dump(exclude_unset=True), stated)
        return type(params).model_validate(settings)

    @property
    def requires(self) -> set[str]:
        """Columns the recipe reads and does not make; other stages are passed through."""
        read = set(self.reads)
        makes: set[str] = set()
        for item in self.steps:
            read |= item.type.requires(item.params)
            makes.update(item.type.makes)
        return read - makes

    @property
    def judged(self) -> bool:
        """Whether the recipe reads any judgment, and so the evidence behind all of them."""
        return bool(self.requires & (OF_EVIDENCE | OF_CROSS_ENCODER))

    @property
    def splits(self) -> tuple[str, ...]:
        """Splits whose queries get candidates: ``train``, and ``dev`` if a step is fitted on it."""
        reads_dev = any(item.on_dev for item in self.steps)
        return ("train", "dev") if reads_dev else ("train",)

    @property
    def sources(self) -> frozenset[str]:
        """The retrievers of candidates: ``bm25``, ``dense``, both or neither; judges need both."""
        columns_by_source = {"bm25": OF_BM25, "dense": OF_ENCODER}
        if self.judged:
            return frozenset(columns_by_source)
        requires = self.requires
        return frozenset(name for name, columns in columns_by_source.items() if requires & columns)

    def deepest_rank(self, column: str) -> int:
        """Return the deepest rank that a step distinguishes; 0 without such a step."""
        ranks = [0]
        for item in self.steps:
            if column in item.type.requires(item.params):
                ranks.append(getattr(item.params, "last", 0))
        return max(ranks)

    @property
    def main_step(self) -> Step | None:
        """The step whose threshold an audit shows; None where no step has one.

        It is the last that goes by a probability of relevance, and without such a step the last
        that has a threshold.
        """
        steps = [item for item in self.steps if item.threshold]
        judging = []
        for item in steps:
            if getattr(item.params, "column", "") in _PROBABILITIES:
                judging.append(item)
        return next(reversed(judging or steps), None)


class RecipeBook(BaseModel):
    """All recipes by name."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Recipe]
    # Other systems in the tables of results.
    reserved: ClassVar[tuple[str, ...]] = (
        *("bm25", "zero_shot", "corpus", "network"),
        *("bm25_and_network", "hybrid", "final", "champion"),
    )
    every: ClassVar[str] = "*"

    @model_validator(mode="before")
    @classmethod
    def _inherit(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        # Its results would be taken for theirs.
        if reused := [name for name in cls.reserved if name in value]:
            raise ValueError(
                f"{reused[0]}: results use the name for another system; call the recipe otherwise"
            )
        return {name: inherited(name, value) for name in value}

    @model_validator(mode="after")
    def _consistent(self) -> RecipeBook:
        for name, recipe in self.__pydantic_extra__.items():
            if not is_plain_name(name):
                # Files are named by recipes.
                raise ValueError(f"{name}: a name has at most 100 letters, digits, _, - and .")
            if problem := _sampler_problem(recipe) or _order_problem(recipe.steps):
                raise ValueError(f"{name}: {problem}")
        return self

    def names(self) -> list[str]:
        """Return the names of the recipes, sorted."""
        return sorted(self.__pydantic_extra__)

    def get(self, name: str) -> Recipe:
        """Return a recipe; for ``*``, one that reads what any reads, so that judges run once.

        Raises
        ------
        AnmiError
            Unknown name, with the nearest known one.
        """
        if name == self.every:
            recipes = self.__pydantic_extra__.values()
            steps: list[Step] = []
            reads: set[str] = set()
            for recipe in recipes:
                steps.extend(recipe.steps)
                reads.update(recipe.reads)
            return Recipe.model_construct(
                description="The steps of all recipes; never run.",
                steps=tuple(steps),
                reads=tuple(reads),
            )
        if name not in self.__pydantic_extra__:
            raise AnmiError(f'unknown recipe "{name}"; {nearest(name, self.__pydantic_extra__)}')
        return self.__pydantic_extra__[name]


def placed(steps: Sequence[Any]) -> list[tuple[str, Any]]:
    """Return steps as names with parameters; one that says ``before`` stands before that one.

    Examples
    --------
    >>> placed([("top", {}), ("denoise", {"threshold": 0.3, "before": "top"})])
    [('denoise', {'threshold': 0.3}), ('top', {})]
    """
    pairs = [item if isinstance(item, tuple) else _pair(item) for item in steps]
    ordered = list(pairs)
    for name, params in pairs:
        if not isinstance(params, Mapping) or "before" not in params:
            continue
        ordered.remove((name, params))
        step_names = [step_name for step_name, _ in ordered]
        settings = dict(params)
        before = settings.pop("before")
        if before not in step_names:
            raise ValueError(
                f'step "{name}" stands before "{before}", which is no other step;'
                f" {nearest(str(before), step_names)}"
            )
        ordered.insert(step_names.index(before), (name, settings))
    return ordered


def _pair(item: Any) -> tuple[str, Any]:
    """Return name and parameters of an item of a list of steps."""
    if isinstance(item, Mapping) and len(item) == 1:
        return next(iter(item.items()))
    if isinstance(item, str):
        return item, {}
    raise ValueError(f"a list of steps has a name, or a name with its parameters: {item!r}")


def inherited(
    name: str,
    recipes: Mapping[str, Any],
    chain: tuple[str, ...] = (),
) -> Any:
    """Return a recipe as read, with the fields of those that it extends.

    What is no mapping is left as it is.

    Examples
    --------
    >>> base = {"description": "Base.", "steps": {"shift": {"skip": 3}, "top": {}}}
    >>> mine = {"extends": "base", "steps": {"shift": {"last": 50}}}
    >>> inherited("mine", {"base": base, "mine": mine})["steps"]
    {'shift': {'skip': 3, 'last': 50}, 'top': {}}
    """
    recipe = recipes[name]
    if not isinstance(recipe, Mapping) or recipe.get("extends") is None:
        return recipe
    parent = str(recipe["extends"])
    chain = (*chain, name)
    if parent in chain:
        circle = " → ".join((*chain, parent))
        raise ValueError(f"{name}: extends goes in a circle ({circle}); one must stand alone")
    if parent not in recipes:
        raise ValueError(
            f'{name}: extends "{parent}", which is no recipe; {nearest(parent, recipes)}'
        )
    base = inherited(parent, recipes, chain)
    if not isinstance(base, Mapping):
        raise ValueError(f'{name}: extends "{parent}", which has no fields to take')
    fields = {**base, **recipe}
    for key in ("steps", "mining", "training"):
        below = base.get(key)
        above = recipe.get(key)
        if isinstance(below, Mapping) and isinstance(above, Mapping):
            fields[key] = merged(below, above)
            if key == "training":
                fields[key] = {**below, **above}
    return fields


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Merge nested mappings; where both have a value, that of the second holds.

    Examples
    --------
    >>> merged({"bm25": {"k1": 1.5, "b": 0.75}}, {"bm25": {"b": 0.4}, "elo": {"depth": 50}})
    {'bm25': {'k1': 1.5, 'b': 0.4}, 'elo': {'depth': 50}}
    """
    united = {**below, **above}
    for name, upper in above.items():
        lower = below.get(name)
        if isinstance(lower, Mapping) and isinstance(upper, Mapping):
            united[name] = merged(lower, upper)
    return united


def _sentence(error: ValidationError) -> str:
    """The first thing that is wrong, and where, on one line."""
    problem = error.errors()[0]
    location = " → ".join(map(str, problem["loc"]))
    message = str(problem["msg"]).removeprefix("Value error, ")
    return f"{location}: {message}" if location else message


def _sampler_problem(recipe: Recipe) -> str | None:
    """Say what is wrong unless exactly one step draws the negatives, and it comes last."""
    drawing = [place for place, item in enumerate(recipe.steps) if item.type.sampler]
    names = [item.name for item in recipe.steps]
    if len(drawing) > 1:
        earlier, later = (f'{place + 1} "{names[place]}"' for place in drawing[:2])
        return f"steps {earlier} and {later} both draw the negatives; keep one"
    if not drawing and recipe.negatives:
        samplers = sorted(name for name, kind in STEPS.items() if kind.sampler)
        return (
            f"no step draws its {recipe.negatives} negatives; end the steps with one of"
            f" {', '.join(samplers)}"
        )
    if recipe.pool is not None and recipe.pool < recipe.negatives:
        return (
            f"a pool of {recipe.pool} cannot give {recipe.negatives} negatives a step; enlarge it,"
            " or leave it out"
        )
    if drawing and drawing[0] + 1 < len(names):
        sampler, late_step = names[drawing[0] : drawing[0] + 2]
        return (
            f'step "{late_step}" comes after "{sampler}", which draws the negatives, so it has no'
            f" effect; give it `before: {sampler}`"
        )
    return None


def _order_problem(steps: Sequence[Step]) -> str | None:
    """Say which step reads a column before the step that makes it."""
    makers: dict[str, str] = {}
    for name, kind in STEPS.items():
        makers |= dict.fromkeys(kind.makes, name)
    columns_made: set[str] = set()
    for place, item in enumerate(steps):
        for column in sorted(item.type.requires(item.params) - columns_made):
            if column in makers:
                return (
                    f'step {place + 1}, "{item.name}", reads {column}, which "{makers[column]}"'
                    f" makes; put that step before it, as with `before: {item.name}`"
                )
        columns_made.update(item.type.makes)
    return None


@dataclass
class Runner:
    """Applies a recipe to shards of candidates, one row per query.

    Parameters
    ----------
    recipe
        What to run.
    seed
        Of the run.
    """

    recipe: Recipe
    seed: int
    _fitted: dict[int, Any] = field(default_factory=dict)

    def run(self, shards: CandidateShards) -> CandidateShards:
        """Fit the steps that pool over queries; return the shards with verdicts and weights."""
        self._fitted.clear()
        self.fit(shards)
        return shards.map(self.apply)

    def fit(self, shards: CandidateShards, dev: CandidateShards | None = None) -> None:
        """Fit the steps that pool over queries, as far as they are not fitted yet.

        Those fitted on dev queries look at ``dev``, as retrieval left it; at all queries where
        there is none, as in an audit, whose queries belong to no split.
        """
        for place, item in enumerate(self.recipe.steps):
            if item.type.fit is not None and place not in self._fitted:
                blocks = self._before(place, shards)
                if item.on_dev and dev is not None:
                    blocks = dev
                context = self._context(place)
                self._fitted[place] = item.type.fit(blocks, item.params, context)

    def _before(self, place: int, shards: CandidateShards) -> CandidateShards:
        """Return the shards as a step finds them; the next one is read while one is looked at."""
        return CandidateShards(lambda: (self._apply(block, place) for block in ahead(shards)))

    def apply(self, block: Candidates) -> Candidates:
        """Return a block with verdicts and weights set; the steps must be fitted."""
        return self._apply(block, len(self.recipe.steps))

    def _context(self, place: int) -> Context:
        negatives = self.recipe.pool or self.recipe.negatives
        return Context(self.seed, negatives, self._fitted.get(place))

    def _apply(self, block: Candidates, stop: int) -> Candidates:
        missing = self.recipe.requires - set(block.columns) - set(block.query_columns)
        if missing:
            raise AnmiError(
                f"the recipe reads {', '.join(sorted(missing))}, which no stage has measured for"
                " these candidates; run the mining again with this recipe"
            )
        for place, item in enumerate(self.recipe.steps[:stop]):
            try:
                block = item.type.apply(block, item.params, self._context(place))
            except KeyError as error:
                raise AnmiError(
                    f'step {place + 1} of the recipe, "{item.name}", reads the column {error},'
                    " which no stage or earlier step makes;"
                    f" {nearest(str(error.args[0]), block.columns)}"
                ) from error
        return block
