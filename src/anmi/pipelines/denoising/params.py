"""Parameters of denoising."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from anmi.judging.teacher import TeacherOptions


class DenoisingParams(BaseModel):
    """Which candidates are judged, and by whom."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    depth: int = Field(
        16, ge=1, description="Candidates judged per query, best by fused rank first; judging is the dear step."
    )
    teacher: TeacherOptions = Field(TeacherOptions(), description="The cross-encoder.")
