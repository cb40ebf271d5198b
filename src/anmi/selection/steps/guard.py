"""Near-duplicates and siblings of a positive are no negatives."""

from __future__ import annotations

from pydantic import Field

from anmi.candidates import Candidates
from anmi.selection.steps.registry import Context, Params, step


class DuplicateGuard(Params):
    """Which documents related to the query's positives are kept out."""

    near: bool = Field(True, description="Reject near-duplicates: what answers the query in one answers it in both.")
    siblings: bool = Field(
        True, description="Reject parts of the document a positive is a part of: labels often name one part of several."
    )


@step("duplicate_guard", DuplicateGuard, requires=lambda p: {"related"} if p.near or p.siblings else set())
def duplicate_guard(block: Candidates, params: DuplicateGuard, context: Context) -> Candidates:
    """Reject candidates that ingestion found to be near-duplicates or siblings of any positive of the query."""
    if params.near:
        rule = "almost the same text as a positive"
        block = block.rejected("near_duplicate", block.columns["related"] == 1, rule, "unsafe", in_batch=True)
    if params.siblings:
        rule = "part of the same document as a positive"
        block = block.rejected("sibling", block.columns["related"] == 2, rule, "unsafe", in_batch=True)
    return block
