"""Parameters of denoising."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from anmi.judging.fusing import FusedOptions
from anmi.judging.teacher import TeacherOptions


class DenoisingParams(BaseModel):
    """Which candidates are judged, and by whom."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    fused: FusedOptions = Field(FusedOptions(), description="The judge that fuses all cheap evidence.")
    depth: int = Field(
        16,
        ge=1,
        description="Candidates the cross-encoder judges per query, best by fused rank first; it is the dear judge.",
    )
    teacher: TeacherOptions = Field(TeacherOptions(), description="The cross-encoder.")
    most_new: float = Field(
        0.1,
        ge=0,
        le=1,
        description="Where judges are kept: the share of queries new since the cross-encoder was trained, above which "
        "it is trained anew. A tenth is a compromise, not measured: training anew costs the judging of all pairs.",
    )
