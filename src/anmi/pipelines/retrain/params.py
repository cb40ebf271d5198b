"""Parameters of retraining."""

from __future__ import annotations

import re

from pydantic import BaseModel, ConfigDict, Field

from anmi.evaluation.promotion import PromotionRule


class RetrainParams(BaseModel):
    """Which registered model is retrained, and by which rule."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str | None = Field(None, pattern=r"^[A-Za-z0-9][\w.-]{0,99}$")
    rule: PromotionRule = PromotionRule()


def model_name(params: RetrainParams, collection: str) -> str:
    """Return the name of the registered model, made from the parameter ``collection`` where none is given.

    Examples
    --------
    >>> model_name(RetrainParams(), "beir:../shared/data/scifact/")
    'anmi-beir-scifact'
    >>> model_name(RetrainParams(), "api_docs")
    'anmi-api_docs'
    >>> model_name(RetrainParams(model="faq"), "api_docs")
    'faq'
    """
    if params.model is not None:
        return params.model
    scheme, _, place = collection.partition(":")
    # Of an identifier such as beir/scifact/train every part says something, of a path only the last one does.
    last = place if scheme == "ir_datasets" else place.strip().rstrip("/").rpartition("/")[2]
    slug = re.sub(r"[^\w.]+", "-", last, flags=re.ASCII).strip("-.")
    return "-".join(part for part in ("anmi", scheme, slug) if part)[:100]
