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

    max_tokens: int | None = Field(
        2048, ge=1, description="Length of the answer, which is a whole text. 2048: twice that of the longest text."
    )
    max_characters: int = Field(
        4000, ge=100, description="Longer texts are not edited. 4000: about 1,000 tokens, enough for a passage."
    )


class SelectionParams(BaseModel):
    """What becomes of the training rows besides training."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    exports: list[Export] = Field(
        [],
        description="Formats of other trainers to write, by name or as {name: {option: value}}, or names joined by a "
        "semicolon; none, since training here reads the rows themselves.",
    )

    variants: VariantParams = Field(
        VariantParams(),
        description="Which variants of documents are made, if the recipe trains with mixed sources. All kinds.",
    )
    generator: GeneratorOptions | None = Field(
        None,
        description="A chat endpoint that writes variants as well, one for each positive. None: every text is paid "
        "for, and rules and graph know what they make false.",
    )

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
