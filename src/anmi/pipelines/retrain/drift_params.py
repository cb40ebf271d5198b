"""Parameters of the comparison with the champion's training data."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from anmi.corpus.hardness import ScriptHardnessParams
from anmi.evaluation.drift import DriftThresholds
from anmi.retrieval.tokenize import TokenizerName


class DriftParams(BaseModel):
    """What is kept of training data, and which difference counts."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tokenizer: TokenizerName = Field(
        "auto", description="What counts lengths and finds new terms. auto: as BM25 by default does for the language, "
        "but words between blanks for Korean, whose morphemes are expensive to find.",
    )  # fmt: skip
    terms: int = Field(
        200_000, ge=1, description="Terms kept at most, the rarest left out first. 200,000 take about a megabyte; "
        "medquad has 22,000.",
    )  # fmt: skip
    texts: int = Field(
        200_000, ge=1, description="Training queries and documents whose texts are read, chosen by hash of their ids. "
        "A share of them is known to 0.2 %, and memory and time are bounded.",
    )  # fmt: skip
    hardness: ScriptHardnessParams = Field(
        ScriptHardnessParams(),
        description="What makes a query hard. By script, as in an evaluation, which needs nothing installed.",
    )
    thresholds: DriftThresholds = Field(
        DriftThresholds(), description="Where verdicts begin; the defaults are those in use elsewhere."
    )
