"""Parameters of selection: the recipes themselves, what the rows are exported as, and variants of documents."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from anmi.judging.endpoint import EndpointOptions
from anmi.retrieval.variants.params import VariantParams
from anmi.selection.export import Export
from anmi.selection.recipe import Recipe, RecipeBook

__all__ = ["GeneratorOptions", "Recipe", "RecipeBook", "SelectionParams"]


class GeneratorOptions(EndpointOptions):
    """Which language model writes variants of documents."""

    max_tokens: int | None = Field(2048, ge=1)
    max_characters: int = Field(4000, ge=100)


class SelectionParams(BaseModel):
    """What becomes of the training rows besides training."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    exports: list[Export] = []

    variants: VariantParams = VariantParams()
    generator: GeneratorOptions | None = None

    @field_validator("exports", mode="before")
    @classmethod
    def _names(cls, value: Any) -> Any:
        """Kedro cuts ``--params`` at commas, so a list of names on the command line needs another separator."""
        return [name.strip() for name in value.split(";") if name.strip()] if isinstance(value, str) else value

    @field_validator("exports")
    @classmethod
    def _each_once(cls, value: list[Export]) -> list[Export]:
        """Each has the folder of its format's name."""
        names = [export.format for export in value]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f'the format "{twice[0]}" is asked for twice; leave one out')
        return value
