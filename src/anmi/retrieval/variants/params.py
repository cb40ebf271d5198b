"""Parameters of variants, and what kinds there are; light to import, so that pipelines can check them early."""

from __future__ import annotations

from typing import Final

from pydantic import BaseModel, ConfigDict, Field

VARIANT_COLUMNS: Final = ("variant_id", "document_id", "kind", "text", "old", "new", "relation")
# Where one text comes about in several ways it is of the kind that stands first.
KINDS: Final = ("swap", "counterpart", "neighbour", "generated")


class VariantParams(BaseModel):
    """How many variants of a document are made, and of which kinds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    swaps: int = Field(
        6,
        ge=0,
        description="Texts with one entity replaced, at most. 6: a row with 7 negatives, half of them from the graph, "
        "seldom meets the same ones in two epochs.",
    )
    counterparts: int = Field(
        1,
        ge=0,
        description="Documents that state the same relations of another entity, at most. 1: they differ in all "
        "entities and are easily told apart.",
    )
    neighbours: int = Field(
        6,
        ge=0,
        description="Documents that state some of its facts and not all, at most. 6: as many as swaps, since training "
        "on swaps alone forgets which relations a query asks for.",
    )
