"""Options of the penalty on the terms of documents."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class SparsityOptions(BaseModel):
    """How much the terms of documents cost (FLOPS, Paria et al. 2020), and whether those of queries are learned."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    weight: float = Field(
        1e-4,
        ge=0,
        description="λ of the penalty: the sum over terms of their squared mean weight in a batch of documents. 1e-4: "
        "tables that begin as BM25 are sparse already, where the paper's networks (.05) are not.",
    )
    steps: int = Field(200, ge=1, description="Steps over which λ rises quadratically from 0. 200: the paper's.")
    each_place: bool = Field(
        False,
        description="Sum the penalties of positives, of first negatives, of second ones and so on, each by a mean of "
        "its own, as the paper's code does. Off: one mean of all documents of a batch, whatever their number.",
    )
    by_idf: bool = Field(
        False,
        description="Divide weights by their term's idf in the penalty, so that common terms cost more (an earlier "
        "reading of the paper). Off: idf stands in the score alone, as in its code, which favours rare terms as well.",
    )
    learned_queries: bool = Field(
        True,
        description="Learn the weights of terms in queries. On: a word that many questions hold and "
        "no answer, such as `how`, is of no use, however rare. Off: they stay the idf of this corpus.",
    )
    free_terms: int = Field(
        0,
        ge=0,
        description="Documents of at most so many terms cost nothing (arXiv 2504.14839), so that short ones are not "
        "emptied to make long ones cheap. 0: all cost.",
    )
