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

    swaps: int = Field(6, ge=0)
    counterparts: int = Field(1, ge=0)
    neighbours: int = Field(6, ge=0)
