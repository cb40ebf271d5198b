"""Where the negatives of a step come from, and the parameters of each kind."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field, model_validator

from anmi.training.options.part import OneOf, PartOptions

SOURCES: Final = ("random", "graph", "latent", "edit")


class MinedSources(PartOptions):
    """The negatives that mining chose for every row."""

    kind = "mined"


class RefreshedSources(PartOptions):
    """The nearest documents by the encoder as it is, found anew every so many steps (ANCE); until then the mined ones.

    Nobody judges what is found: it is kept from what is known to be relevant, a copy of that, or was found unsafe when
    the rows were mined.
    """

    kind = "refreshed"
    every: int | None = Field(
        None,
        ge=1,
        description="Steps after which all queries and documents are encoded anew and negatives mined again. None: an "
        "epoch, so that every row meets what is mined; ANCE takes some thousand steps, at a far larger collection.",
    )
    top: int = Field(200, ge=1, description="Nearest documents that a step draws from, uniformly. 200: ANCE's.")
    max_ratio: float | None = Field(
        None,
        gt=0,
        description="Only documents below this share of the positive's similarity, both by the encoder as it is, as "
        "`max_ratio` of the steps; 0.95 is customary. None: ANCE has no such ceiling.",
    )


class MixedSources(PartOptions):
    """Drawn anew in every step from four sources (methods §5); needs a collection that states facts.

    The shares are those at the end of a schedule, or of the whole training where there is none. A source that has
    nothing for a row is replaced: latent and edit by graph, graph by random.
    """

    kind = "mixed"
    random: float = Field(0.2, ge=0, le=1, description="Share of documents drawn from the whole corpus. 0.2: methods.")
    graph: float = Field(
        0.5,
        ge=0,
        le=1,
        description="Share of variants of the row's document: an entity swapped for another of its type, or a document "
        "that states some of its facts, or the same relations of another entity. 0.5: methods.",
    )
    latent: float = Field(
        0.3,
        ge=0,
        le=1,
        description="Share of documents that are nearest to the query among those encoded last and are about another "
        "entity. 0.3: methods.",
    )
    edit: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Share of the row's document rewritten by a language model (selection.generator). 0: optional in "
        "methods; a model knows less of what it makes false than the graph does.",
    )
    refresh: int = Field(
        50, ge=1, description="Steps after which the index of latent negatives is made anew. 50: a quarter of an epoch."
    )
    buffer: int = Field(
        2048,
        ge=1,
        description="Documents encoded last that the index holds. 2048: what a few steps encode; every step searches "
        "all of it.",
    )
    top: int = Field(
        32, ge=1, description="Nearest documents looked at. 32: some are about the row's own entity, and are not taken."
    )
    index: Literal["flat", "hnsw", "pq"] = Field(
        "flat",
        description="flat is exact. hnsw: for large buffers. pq: product-quantised, a sixteenth of the memory, less "
        "exact. Both are made off the training thread.",
    )
    fact_filter: bool = Field(
        True,
        description="Never take a document that states all facts of a positive, neither as a row's own negative nor "
        "through another row of the batch. Off: only to measure what it brings.",
    )
    boost: float = Field(
        0.0,
        ge=0,
        description="Weight added to a row all of whose negatives are hard (not random), in proportion for others. 0: "
        "all rows weigh alike, as when nothing is known.",
    )
    margin: float = Field(
        0.1,
        ge=0,
        le=2,
        description="A negative violates it whose cosine similarity is above the positive's less so much. 0.1: half of "
        "the 0.2 that triplet losses take, whose distances are about twice as wide apart.",
    )

    adversary: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Length of the step by which the embedding of every negative is moved up the gradient of the loss "
        "before the loss is taken (fast gradient method), on the unit sphere. 0: optional in methods; 0.1 turns a "
        "negative by up to 6 degrees.",
    )

    @model_validator(mode="after")
    def _whole(self) -> MixedSources:
        if abs(sum(self.mix) - 1) > 1e-6:
            raise ValueError(f"the shares of {', '.join(SOURCES)} add up to 1, and not to {sum(self.mix):g}")
        return self

    @property
    def mix(self) -> tuple[float, float, float, float]:
        """The shares in the order of :data:`SOURCES`."""
        return (self.random, self.graph, self.latent, self.edit)


NEGATIVE_SOURCES: Final = (MinedSources, RefreshedSources, MixedSources)
SourceOptions = Annotated[PartOptions, OneOf(*NEGATIVE_SOURCES)]
