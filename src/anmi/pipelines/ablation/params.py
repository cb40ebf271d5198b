"""Parameters of the ablation: which sets there are, and what each collection needs to be told."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from anmi.errors import is_plain_name, nearest
from anmi.renamed import with_new_names
from anmi.seeds import Seed


class AblationCollection(BaseModel):
    """A collection as all cells of a set see it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    collection: str = Field(description="What it is read from, as the parameter `collection` says it.")
    note: str = Field("", description="How a subset is drawn, for the reader of the table; empty where all is used.")
    ingestion: dict[str, Any] = Field(
        default_factory=dict, description="Over those of `params:ingestion`; empty, as most collections need nothing."
    )
    fused: dict[str, Any] = Field(
        default_factory=dict, description="Over those of `denoising.fused`, such as `without` for a collection that "
        "the shipped coefficients were fitted on; empty for others.",
    )  # fmt: skip
    training: dict[str, Any] = Field(
        default_factory=dict, description="Training options for this collection only; empty, so that all train alike."
    )
    truth: Literal["equivalents", "none"] = Field(
        "none", description="equivalents: the collection knows what is relevant without a label, so judgments can be "
        "completed. none is right for all others: an unknown truth is not made up.",
    )  # fmt: skip
    false_negatives: Literal["auto", "none"] = Field(
        "auto", description="auto: counted by the equivalents where truth is known, else by an audit with hidden "
        "positives. none saves the audit's time.",
    )  # fmt: skip

    @model_validator(mode="before")
    @classmethod
    def _old_names(cls, given: Any) -> Any:
        return with_new_names(given, {"leak": "false_negatives"}, "ablation.collections")

    @model_validator(mode="after")
    def _is_mined_from_here(self) -> Self:
        from anmi.judging.fusing import FusedOptions
        from anmi.pipelines.ingestion.params import IngestionParams

        models: dict[str, type[BaseModel]] = {"ingestion": IngestionParams, "fused": FusedOptions}
        for branch, model in models.items():
            given = getattr(self, branch)
            if wrong := [name for name in given if name not in model.model_fields]:
                raise ValueError(f'{branch} has no parameter "{wrong[0]}"; {nearest(wrong[0], model.model_fields)}')
            try:
                model(**given)
            except ValidationError as error:
                first = error.errors(include_url=False)[0]
                place = ".".join([branch, *map(str, first["loc"])])
                raise ValueError(f"{place}: {first['msg'].removeprefix('Value error, ')}") from None
        return self


class AblationSet(BaseModel):
    """Recipes × seeds × collections, and what they are compared with."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    description: str = Field(description="One sentence for people who choose among sets.")
    recipes: list[str] = Field(min_length=1, description="Names of recipes; those of the baseline and the focus, too.")
    seeds: list[Seed] = Field([1, 2, 3], min_length=1, description="Of training; three show how much chance there is.")
    collections: list[str] = Field(min_length=1, description="Names under `ablation.collections`.")
    encoder: str = Field("static", description="Trained and mined with; static trains in seconds on a CPU.")
    baseline: str = Field("naive_top", description="Recipe that all others are tested against; the usual first choice.")
    focus: str | None = Field(None, description="Recipe that is also tested against each other one; None for none.")
    ours: list[str] = Field(
        [], description="Recipes that must earn their place; of one that does not, the tables say so. Empty: none."
    )
    training: dict[str, Any] = Field(
        default_factory=dict, description="Training options of all cells, over the recipes'; empty keeps those."
    )
    variants: dict[str, dict[str, Any]] = Field(
        default_factory=dict,
        description="Recipes of this set alone, by name: what they extend, and the training options that differ, such "
        "as `half: {extends: anmi, training: {labels: 0.5}}`. Empty: those of parameters_recipes.yml are enough.",
    )
    split: Literal["test", "dev"] = Field(
        "test", description="Queries that are measured. dev: to choose settings by, since test must not be looked at."
    )
    refit: bool | None = Field(
        None, description="As `ablation.refit`, for this set; none on dev. None: what `ablation.refit` says."
    )

    @field_validator("recipes", "seeds", "collections")
    @classmethod
    def _each_once(cls, value: list[Any]) -> list[Any]:
        if twice := [name for name in value if value.count(name) > 1]:
            raise ValueError(f'"{twice[0]}" stands twice; leave one out')
        return value

    @model_validator(mode="after")
    def _compares_what_it_runs(self) -> Self:
        asked = {"baseline": self.baseline, "focus": self.focus} | {f"ours[{i}]": x for i, x in enumerate(self.ours)}
        for field, name in asked.items():
            if name is not None and name not in self.recipes:
                raise ValueError(f'{field} "{name}" is none of its recipes; {nearest(name, self.recipes)}')
        if self.split == "dev" and self.refit:
            raise ValueError("a refit trains on the dev queries, which are to be measured; give refit: false")
        return self


class AblationParams(BaseModel):
    """Which set runs, and how."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    set: str = Field("smoke", description="Name of a set below; smoke takes a minute.")
    workers: int = Field(
        0, ge=0, description="Cells at once; 0 takes as many as there are cores for their threads. Changes no result."
    )
    threads: int = Field(
        1, ge=1, description="Threads of each cell. 1: for small models two cells with one thread each are faster than "
        "one with two. More can change the last digits, as sums are cut differently.",
    )  # fmt: skip
    refit: bool = Field(
        False,
        description="Train every cell again on train and dev, as `training.refit` does for a run, whose value does not "
        "count here. Off: what is compared is recipes, and a second pass doubles the hours for all of them alike.",
    )
    resamples: int = Field(
        10_000, ge=100, le=1_000_000, description="Of bootstrap and permutation; gives p-values to about 0.01."
    )
    confidence: float = Field(0.95, gt=0, lt=1, description="Of the intervals.")
    level: float = Field(0.05, gt=0, lt=1, description="Corrected p-value below which a difference counts; customary.")
    collections: dict[str, AblationCollection] = Field(
        default_factory=dict, description="By the names that sets and tables use; empty until the YAML fills it."
    )
    sets: dict[str, AblationSet] = Field(
        default_factory=dict, description="Named here, since Kedro splits `--params` at commas; filled by the YAML."
    )

    @field_validator("collections")
    @classmethod
    def _names_can_be_folders(cls, value: dict[str, Any]) -> dict[str, Any]:
        if wrong := [name for name in value if not all(map(is_plain_name, name.split("/")))]:
            raise ValueError(f'"{wrong[0]}" names a folder, so letters, digits, _, -, . and / inside are expected')
        return value

    @model_validator(mode="after")
    def _names_are_known(self) -> Self:
        if self.set not in self.sets:
            raise ValueError(f'there is no set "{self.set}": {nearest(self.set, self.sets)}')
        for name, chosen in self.sets.items():
            for collection in chosen.collections:
                if collection not in self.collections:
                    known = nearest(collection, self.collections)
                    raise ValueError(f'set "{name}" names the collection "{collection}", which is not below: {known}')
        return self

    @property
    def chosen(self) -> AblationSet:
        """The set that runs."""
        return self.sets[self.set]

    @property
    def refits(self) -> bool:
        """Whether the chosen set trains every cell again on train and dev."""
        given = self.chosen.refit
        return self.chosen.split == "test" and (self.refit if given is None else given)

    def check_recipes(self, known: Any) -> None:
        """Refuse a recipe of the chosen set that the book does not have.

        Raises
        ------
        AnmiError
            Naming the set, the recipe, and the nearest known one.
        """
        from anmi.errors import AnmiError

        for name in self.chosen.recipes:
            if name not in known:
                raise AnmiError(f'ablation set "{self.set}": there is no recipe "{name}": {nearest(name, known)}')
