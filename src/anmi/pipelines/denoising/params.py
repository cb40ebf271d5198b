"""Parameters of denoising."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from anmi.judging.cross_encoder import CrossEncoderOptions
from anmi.judging.fusing import FusedOptions


class DenoisingParams(BaseModel):
    """Which candidates are judged, and by whom."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    fused: FusedOptions = FusedOptions()
    depth: int = Field(16, ge=1)
    cross_encoder: CrossEncoderOptions = CrossEncoderOptions()
