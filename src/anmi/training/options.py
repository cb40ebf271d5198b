"""What can be chosen about a training run; light to import, so that pipelines can check parameters early."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from anmi.training.parts import (
    CurriculumOptions,
    DrawOptions,
    FirstDraw,
    HansOptions,
    HardnessOptions,
    InfoNCEOptions,
    LearnableTemperature,
    LossOptions,
    MinedSources,
    NoAdaptation,
    NoCurriculum,
    SimAnsDraw,
    SourceOptions,
    TemperatureOptions,
    WindowOptions,
)


class PseudoQueryOptions(BaseModel):
    """Which pseudo-queries are trained on beside the labelled rows."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kinds: tuple[str, ...] = Field(
        (), description="Kinds of pseudo-queries (docs/adaptation.md); adaptation makes those. None: labels alone."
    )
    batch_size: int = Field(
        64, ge=2, description="Pseudo-queries of a step; their documents are each other's only negatives."
    )


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


class TrainingOptions(BaseModel):
    """Settings of :func:`anmi.training.trainer.train`, each with the reason of its default.

    Examples
    --------
    >>> TrainingOptions(loss={"debiased": {"tau_plus": 0.1}}).loss.tau_plus
    0.1
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    epochs: int = Field(
        5,
        ge=1,
        description="Passes over the rows. 5: on SciFact's dev queries ten gained 0.014 where the document had "
        "been seen in training, and nothing elsewhere.",
    )
    batch_size: int = Field(
        64,
        ge=1,
        description="Rows per step. 64: many in-batch negatives at little memory. With another size look at the "
        "learning rate again, since the number of steps changes with it.",
    )
    learning_rate: float | None = Field(
        None,
        gt=0,
        description="Peak learning rate of AdamW. None chooses by the kind of encoder: 1e-2 for static ones, 2e-5 for "
        "transformers, the customary value. 1e-2 serves the corpus's own encoder; tables distilled from MiniLM do "
        "better at 2e-2.",
    )
    max_length: int | None = Field(
        None,
        ge=4,
        description="Most tokens of a text and its prompt while training; None is the encoder's own limit. The "
        "encoder keeps its limit for encoding afterwards. Static encoders have none and ignore it.",
    )
    loss: LossOptions = Field(
        InfoNCEOptions(),
        description="infonce, hybrid, entity, debiased, hard_debiased, triplet or distillation. infonce: "
        "on SciFact better than debiased by 0.03 to 0.04 on dev.",
    )
    temperature: TemperatureOptions = Field(
        LearnableTemperature(),
        description="fixed, learnable, dual or adaptive. learnable: the best value differs between collections "
        "and recipes, and a recipe should not win by fitting somebody else's temperature.",
    )
    sources: SourceOptions = Field(
        MinedSources(),
        description="Where the negatives of a step come from: mined or mixed. mined: what the recipe chose.",
    )
    curriculum: CurriculumOptions = Field(
        NoCurriculum(), description="In which order negatives are met. none: most recipes have none."
    )
    hardness: HardnessOptions = Field(
        NoAdaptation(),
        description="Whether training adapts to the hardness of queries: none or hans. none: few recipes do.",
    )
    pseudo_queries: PseudoQueryOptions = Field(
        PseudoQueryOptions(), description="What is learned from the corpus itself, beside the labels."
    )
    retriever: Literal["dense", "sparse"] = Field(
        "dense",
        description="What is trained. dense: the encoder, by cosines. sparse: weights of terms for an inverted index, "
        "with queries that need no network; it starts from tables of a static encoder, whichever encoder mines, and "
        "has no temperature unless one is given. dense: the better on queries whose words the documents do not use.",
    )
    masked_lm: str | None = Field(
        None,
        description="Of a sparse retriever: folder or name of a masked language model, by which documents get their "
        "terms, as in arXiv 2411.04403. None: they get them from tables, since no such model is packaged. Empty: "
        "recipes as published, which have to be given one.",
    )
    sparsity: SparsityOptions = Field(
        SparsityOptions(), description="What terms of documents cost a sparse retriever; dense encoders ignore it."
    )
    companion: dict[str, Any] | None = Field(
        None,
        description="Train a second retriever of the other kind on the same rows, which becomes a third part of the "
        "hybrid: what differs in its options, such as `{retriever: sparse}`. On documents that training never saw the "
        "hybrid's nDCG@10 rose by .022 on MedQuAD (p .0002) and .010 on api_docs (p .05), and changed nothing "
        "measurable on SciFact and XQuAD (docs/sparse.md). None: training takes several times as long.",
    )
    labels: float = Field(
        1.0,
        ge=0,
        le=1,
        description="Share of the training and dev queries, chosen by a hash of their texts, whose labels are used. "
        "1; less shows what labels are worth, and 0 trains on pseudo-queries alone.",
    )
    encoders: Literal["shared", "two"] = Field(
        "shared",
        description="shared: one encoder for queries and documents. two: separate copies of its weights (DPR). "
        "shared: half the memory, and what is learned about a word serves both sides.",
    )
    in_batch: Literal["none", "positives", "all"] = Field(
        "all",
        description="In-batch negatives: none, the positives of the other rows, or all documents of the batch. "
        "all: they are encoded anyway, and gained 0.01 over positives alone on SciFact's dev queries.",
    )
    negatives: int | None = Field(
        None, ge=0, description="Use at most so many mined negatives of a row, best first. None: all the recipe gave."
    )
    draw: DrawOptions = Field(
        FirstDraw(),
        description="Where a row has more mined negatives than that: first or simans. first: the best are the best. A "
        "curriculum always draws, from its window.",
    )
    warmup: float = Field(
        0.1,
        ge=0,
        description="Share of the steps in which the learning rate rises, or from 1 on their number. 0.1: customary.",
    )
    weight_decay: float = Field(
        0.0,
        ge=0,
        description="Of AdamW, on matrices only. 0: similarities are cosines, so the length of vectors is free; "
        "0.01 changed no digit.",
    )
    precision: Literal["auto", "bfloat16", "float32"] = Field(
        "auto",
        description="Type of the encoder's matrix products. auto: bfloat16 where the hardware has it (2 to 3.5 "
        "times faster on such a CPU), float32 elsewhere and for static encoders. Weights, similarities and "
        "losses are always float32.",
    )
    texts_per_pass: int = Field(
        64,
        ge=1,
        description="Texts a transformer encodes at once, sorted by length so that little is padded. 64 keeps two "
        "cores busy. Static encoders take the whole batch at once.",
    )
    recompute: bool = Field(
        True,
        description="Gradient caching, with any loss: where a batch takes several passes, run them again for the "
        "gradient instead of keeping their activations. On: the same gradients for about a third more time, and "
        "memory is bounded by one pass, whatever the batch size and the number of negatives.",
    )
    keep_best: bool = Field(
        True,
        description="Keep the weights of the epoch with the best dev metric, or the start where none is better. On: it "
        "costs one copy of the weights. Without a dev metric the last epoch stays.",
    )
    checkpoint_minutes: float = Field(
        10.0,
        gt=0,
        description="Minutes between two checkpoints, from which a stopped training goes on. 10: at most so much "
        "is lost, and a shorter training writes none; one is four times the weights and takes a second.",
    )

    @model_validator(mode="before")
    @classmethod
    def _without_temperature(cls, value: Any) -> Any:
        """Inner products of terms have no temperature; that of cosines would make every difference a certainty."""
        if isinstance(value, dict) and value.get("retriever") == "sparse":
            return {"temperature": {"fixed": {"value": 1.0}}, **value}
        return value

    @field_validator("warmup")
    @classmethod
    def _whole_steps(cls, value: float) -> float:
        if value >= 1 and value != int(value):
            raise ValueError(f"a share below 1, or a whole number of steps, was expected, and not {value:g}")
        return value

    @model_validator(mode="after")
    def _go_together(self) -> Self:
        mixed = self.sources.kind == "mixed"
        if self.retriever == "sparse" and mixed:
            raise ValueError("mixed sources interpolate directions, and a sparse retriever has none; use mined ones")
        if self.retriever == "sparse" and self.encoders == "two":
            raise ValueError("a sparse retriever encodes queries and documents separately anyway; leave out encoders")
        if mixed and self.negatives is None:
            raise ValueError("with mixed sources `negatives` says how many are drawn, such as 7 a row")
        if isinstance(self.draw, SimAnsDraw):
            for name in ("sources", "curriculum", "hardness"):
                if (kind := getattr(self, name).kind) not in ("mined", "none"):
                    raise ValueError(
                        f"draw simans chooses the negatives of a step, and so does {name} {kind}; take one"
                    )
            if self.loss.kind == "triplet":
                raise ValueError(
                    f"draw simans learns by the weights of negatives, which {self.loss.kind} has no place for"
                )
        if self.pseudo_queries.kinds:
            self._go_with_pseudo_queries()
        for name in ("companion", "labels", "pseudo_queries"):
            if name in (self.companion or {}):
                raise ValueError(f"a companion learns from the same rows and has no {name} of its own; leave it out")
        if self.companion is not None:
            _ = self.of_companion
        return self

    def _go_with_pseudo_queries(self) -> None:
        """Refuse what needs negatives or judgments that pseudo-queries do not have."""
        wanted = {
            "loss": self.loss.reads or self.loss.kind in ("triplet", "entity"),
            "draw": self.draw.reads,
            "curriculum": not isinstance(self.curriculum, NoCurriculum),
            "hardness": not isinstance(self.hardness, NoAdaptation),
            "sources": not isinstance(self.sources, MinedSources),
        }
        for name in (name for name, needed in wanted.items() if needed):
            raise ValueError(
                f"pseudo-queries have neither mined negatives nor judgments, which {name} {getattr(self, name).kind} "
                f"needs; choose another {name}, or give pseudo_queries: {{kinds: []}}"
            )

    @property
    def alone(self) -> TrainingOptions:
        """The options without a companion."""
        return self.model_copy(update={"companion": None})

    @property
    def of_companion(self) -> TrainingOptions:
        """The options of the companion: those given here, but for what it has of its own."""
        # Cosines and inner products of terms need temperatures of their own.
        given = self.model_dump(exclude_unset=True, exclude={"companion", "temperature"})
        return TrainingOptions(**given | (self.companion or {}))

    @property
    def draws(self) -> bool:
        """Whether the negatives of a row are not the same in every step: which they were shows only afterwards."""
        varied = isinstance(self.hardness, HansOptions) and self.hardness.negatives.on
        by_window = isinstance(self.curriculum, WindowOptions)
        return self.sources.kind != "mined" or by_window or not isinstance(self.draw, FirstDraw) or varied

    @property
    def reads(self) -> set[str]:
        """Judgments that the training rows must hold."""
        own = {*self.loss.reads, *self.curriculum.reads, *self.draw.reads}
        return own if self.companion is None else own | self.of_companion.reads
