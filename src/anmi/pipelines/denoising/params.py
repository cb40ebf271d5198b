"""Parameters of denoising."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from anmi.judging.cross_encoder import CrossEncoderOptions
from anmi.judging.fusing import FusedOptions
from anmi.renamed import with_new_names


class DenoisingParams(BaseModel):
    """Which candidates are judged, and by whom."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    fused: FusedOptions = Field(FusedOptions(), description="The judge that fuses all cheap evidence.")
    depth: int = Field(
        16,
        ge=1,
        description="Candidates the cross-encoder judges per query, best by fused rank first; the expensive judge.",
    )
    cross_encoder: CrossEncoderOptions = Field(CrossEncoderOptions(), description="The cross-encoder.")

    @model_validator(mode="before")
    @classmethod
    def _old_names(cls, given: Any) -> Any:
        return with_new_names(given, {"teacher": "cross_encoder"}, "denoising")
