"""What can be chosen about a training; light to import, so that pipelines check it early."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, Self

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from anmi.selection.steps.registry import Params
from anmi.training import parts

START: Final = "start"
_OF_DENSE: Final = ("dimensions", "adapter")
Alpha = Annotated[float, Field(ge=0, le=1)] | Literal["start"]


class AdapterOptions(Params):
    """What is added to linear layers and trained in their place (LoRA, arXiv 2106.09685)."""

    rank: int = Field(16, ge=1, description="Rank of what is added to a matrix. 16: peft's guide.")
    alpha: float = Field(
        32, gt=0, description="What is added is multiplied by alpha / rank. 32: twice the rank."
    )
    modules: Annotated[tuple[str, ...] | None, BeforeValidator(parts.listed)] = Field(
        None,
        min_length=1,
        description="Linear layers by the ends of their names, as q_proj. None: all of them.",
    )


class PseudoQueryOptions(Params):
    """Which pseudo-queries are trained on beside the labelled rows."""

    kinds: tuple[str, ...] = Field((), description="Kinds of pseudo-queries (docs/training.md).")
    batch_size: int = Field(
        64, ge=2, description="Pseudo-queries of a step, without other negatives."
    )
    mixed: bool = Field(
        False,
        description=(
            "All kinds in a batch (arXiv 2505.19274). False: one, since looks tell kinds apart."
        ),
    )
    candidates: int = Field(
        0,
        ge=0,
        description=(
            "Documents of a row that BM25, network and corpus encoder score together, for the loss"
            " distillation with column teacher. 0: each is one more text to encode."
        ),
    )


class SparsityOptions(Params):
    """How much the terms of documents cost (FLOPS, Paria et al. 2020)."""

    weight: float = Field(
        1e-4,
        ge=0,
        description="λ. 1e-4: tables that begin as BM25 are sparse already; the paper: .05.",
    )
    steps: int = Field(
        200, ge=1, description="Steps over which λ rises quadratically from 0. 200: the paper's."
    )
    each_place: bool = Field(
        False, description="Sum the penalties of positives, first negatives, …, as in the paper."
    )
    by_idf: bool = Field(
        False, description="Divide weights by their term's idf, an earlier reading of the paper."
    )
    learned_queries: bool = Field(
        True, description="Learn the weights of terms in queries; else they stay the idf."
    )


class TrainingOptions(Params):
    """Settings of :func:`anmi.training.trainer.train`, each with the reason of its default.

    Examples
    --------
    >>> TrainingOptions(loss={"debiased": {"tau_plus": 0.1}}).loss.tau_plus
    0.1
    """

    epochs: int = Field(
        5, ge=1, description="Passes over the rows. 5: ten gained only on seen documents."
    )
    batch_size: int = Field(
        64, ge=1, description="Rows per step. 64: many in-batch negatives, little memory."
    )
    learning_rate: float | None = Field(
        None,
        gt=0,
        description=(
            "Peak of AdamW. None: 1e-2 for static encoders, 2e-5 for transformers, 2e-4 for"
            " adapters."
        ),
    )
    max_length: int | None = Field(
        None, ge=4, description="Most tokens of a text and its prompt. None: the encoder's."
    )
    loss: parts.LossOptions = Field(
        parts.InfoNCEOptions(),
        discriminator="kind",
        description=(
            "What is learned. infonce: on SciFact 0.03 to 0.04 better than debiased on dev."
        ),
    )
    temperature: parts.TemperatureOptions = Field(
        parts.LearnableTemperature(),
        discriminator="kind",
        description="learnable: the best value differs between collections and recipes.",
    )
    sources: parts.SourceOptions = Field(
        parts.MinedSources(),
        discriminator="kind",
        description="Where the negatives of a step come from.",
    )
    curriculum: parts.CurriculumOptions = Field(
        parts.NoCurriculum(),
        discriminator="kind",
        description="Which negatives come when. none: as most recipes.",
    )
    hardness: parts.HardnessOptions = Field(
        parts.NoAdaptation(),
        discriminator="kind",
        description="Whether hard queries train otherwise.",
    )
    draw: parts.DrawOptions = Field(
        parts.FirstDraw(),
        discriminator="kind",
        description="Which negatives, where a row has more than a step takes.",
    )
    pseudo_queries: PseudoQueryOptions = Field(
        PseudoQueryOptions(),
        description="What is learned from the corpus itself, beside the labels.",
    )
    retriever: Literal["dense", "sparse"] = Field(
        "dense",
        description=(
            "What is trained: the encoder, by cosines, or weights of terms for an inverted index. "
            "dense: the better on queries whose words the documents do not use."
        ),
    )
    masked_lm: str | None = Field(
        None,
        description=(
            "Masked language model of a sparse retriever's documents (arXiv 2411.04403). None:"
            " tables."
        ),
    )
    sparsity: SparsityOptions = Field(
        SparsityOptions(), description="Of a sparse retriever's documents."
    )
    companion: dict[str, Any] | None = Field(
        None,
        description=(
            "What differs in the options of a second retriever, of the other kind, on the same"
            " rows, as `{retriever: sparse}`, a third part of the hybrid. None: training takes"
            " several times as long."
        ),
    )
    dimensions: Annotated[tuple[int, ...] | None, BeforeValidator(parts.listed)] = Field(
        None,
        description=(
            "Prefixes of vectors to train beside one another, the longest first (Matryoshka, arXiv"
            " 2205.13147): the loss is the sum of theirs. None: whole vectors, which are then best."
        ),
    )
    adapter: AdapterOptions | None = Field(
        None,
        description=(
            "Trains low-rank additions to linear layers, merged when saved, for networks whose"
            " gradients and moments a card has no room for. None: all weights."
        ),
    )
    labels: float = Field(
        1.0,
        ge=0,
        le=1,
        description="Share of training and dev queries whose labels are used, by hash.",
    )
    encoders: Literal["shared", "two", "query_only"] = Field(
        "shared",
        description=(
            "One, or a copy each for queries and documents (DPR). query_only trains that of queries"
            " alone, so that no document is encoded again (arXiv 2601.04646). shared: the better,"
            " see docs/training.md."
        ),
    )
    in_batch: Literal["none", "positives", "all"] = Field(
        "all",
        description=(
            "In-batch negatives. all: on SciFact's dev queries 0.01 better than positives alone."
        ),
    )
    in_batch_filter: parts.FilterOptions = Field(
        parts.NoFilter(),
        discriminator="kind",
        description="Which in-batch negatives are left out as maybe relevant.",
    )
    negatives: int | None = Field(
        None, ge=0, description="Most mined negatives of a row. None: all."
    )
    warmup: float = Field(
        0.1, ge=0, description="Share of the steps, or from 1 on their number, of warm-up."
    )
    schedule: Literal["linear", "constant"] = Field(
        "linear",
        description="Of the learning rate after warm-up. constant: as in the ANMI reports.",
    )
    single_rate: bool = Field(
        False,
        description=(
            "Learn temperature, τ⁺ and heads at the encoder's rate; clip and decay all, as the"
            " reports do."
        ),
    )
    weight_decay: float = Field(0.0, ge=0, description="Of matrices. 0: 0.01 changed no digit.")
    precision: Literal["auto", "bfloat16", "float16", "float32"] = Field(
        "auto",
        description=(
            "Of the encoder's matrix products; weights are float32. auto: bfloat16 where the"
            " hardware has it, on other GPUs float16 with scaled gradients."
        ),
    )
    save_dtype: Literal["bfloat16", "float16", "float32"] | None = Field(
        None, description="Type of the trained model's weights. None: that of the encoder's folder."
    )
    tokens_per_pass: int | None = Field(
        None, ge=1, description="Tokens a transformer encodes at once. None: what its memory takes."
    )
    recompute: bool | None = Field(
        None,
        description=(
            "Gradient caching: a third more time, and memory is bounded by one pass. None: on a"
            " card only where a batch does not fit."
        ),
    )
    checkpoint_layers: bool = Field(
        False,
        description=(
            "Run each layer of a network again for its gradient: a third more time, and memory is"
            " that of one layer. False: recompute bounds what most batches take."
        ),
    )
    optimizer: Literal["adamw", "adamw_8bit"] = Field(
        "adamw",
        description=(
            "adamw_8bit: moments of 8 bits, by bitsandbytes, on CUDA cards that 8 bytes a weight do"
            " not fit. adamw: exact."
        ),
    )
    alpha: Alpha | None = Field(
        None,
        description=(
            "How much is kept: the share in [0, 1] of the way from the first weights to the last"
            " (WiSE-FT, arXiv 2109.01903), of a table that of directions, or start. None: dev"
            " queries choose it; 1: the last weights."
        ),
    )
    dev_every: int | None = Field(
        None,
        ge=1,
        description=(
            "Steps between two measurements of dev queries, then with a loss (dev_loss in the log)."
            " None: the metric after every epoch."
        ),
    )
    checkpoint_minutes: float = Field(
        10.0, gt=0, description="Between two checkpoints of a training."
    )

    @field_validator(
        "loss",
        "temperature",
        "sources",
        "curriculum",
        "hardness",
        "draw",
        "in_batch_filter",
        mode="before",
    )
    @classmethod
    def _named(cls, value: Any, info: ValidationInfo) -> Any:
        return parts.read_kind(value, cls.model_fields[str(info.field_name)].annotation)

    @model_validator(mode="before")
    @classmethod
    def _without_temperature(cls, value: Any) -> Any:
        """Inner products of terms have no temperature; that of cosines would decide every pair."""
        if isinstance(value, dict) and value.get("retriever") == "sparse":
            return {"temperature": {"fixed": {"value": 1.0}}, **value}
        return value

    @field_validator("dimensions")
    @classmethod
    def _falling(cls, value: tuple[int, ...] | None) -> tuple[int, ...] | None:
        if value is not None and (not value or [*value, 0] != sorted({*value, 0}, reverse=True)):
            raise ValueError(
                "falling numbers of dimensions above 0 were expected, as in [384, 128, 64]"
            )
        return value

    @field_validator("warmup")
    @classmethod
    def _whole_steps(cls, value: float) -> float:
        if value >= 1 and value != int(value):
            raise ValueError(
                f"a share below 1, or a whole number of steps, was expected, and not {value:g}"
            )
        return value

    @model_validator(mode="after")
    def _go_together(self) -> Self:
        if self.retriever == "sparse":
            self._go_with_sparse()
        if self.encoders == "query_only":
            self._go_with_frozen_documents()
        if self.sources.kind == "mixed" and self.negatives is None:
            raise ValueError(
                "with mixed sources `negatives` says how many are drawn, such as 7 a row"
            )
        if isinstance(self.draw, parts.SimAnsDraw):
            for name in ("sources", "curriculum", "hardness"):
                if (kind := getattr(self, name).kind) not in ("mined", "none"):
                    raise ValueError(
                        f"draw simans chooses the negatives of a step, and so does {name} {kind};"
                        " take one"
                    )
            if self.loss.kind == "triplet":
                raise ValueError(
                    "draw simans learns by the weights of negatives, which triplet has no place for"
                )
        if self.pseudo_queries.kinds or self.pseudo_queries.candidates:
            self._go_with_pseudo_queries()
        for name in ("companion", "labels", "pseudo_queries"):
            if name in (self.companion or {}):
                raise ValueError(
                    f"a companion learns from the same rows and has no {name} of its own; leave"
                    " it out"
                )
        if self.companion is not None:
            # Raises where its options do not go together.
            _ = self.of_companion
        return self

    def _go_with_sparse(self) -> None:
        if self.sources.kind == "mixed":
            raise ValueError(
                "mixed sources interpolate directions, and a sparse retriever has none; use mined"
                " ones"
            )
        if self.encoders != "shared":
            raise ValueError(
                "a sparse retriever encodes queries and documents separately anyway; leave out"
                " encoders"
            )
        for name in _OF_DENSE:
            if getattr(self, name) is not None:
                raise ValueError(
                    f"{name} is for dense retrievers, and a sparse one has weights of terms; leave"
                    f" out {name}"
                )

    def _go_with_frozen_documents(self) -> None:
        """Refuse what would change the documents' side."""
        for name in ("adapter", "save_dtype"):
            if getattr(self, name) is not None:
                raise ValueError(
                    f"{name} changes both sides, and query_only leaves the documents' as it is;"
                    f" leave out {name} or encoders"
                )

    def _go_with_pseudo_queries(self) -> None:
        """Refuse what needs negatives or judgments that pseudo-queries do not have."""
        is_needed = {
            "loss": self.loss.reads or self.loss.kind in ("triplet", "entity"),
            "draw": self.draw.reads,
            "curriculum": self.curriculum.kind != "none",
            "hardness": self.hardness.kind != "none",
            "sources": self.sources.kind != "mined",
        }
        for name in (name for name, needed in is_needed.items() if needed):
            raise ValueError(
                f"pseudo-queries have neither mined negatives nor judgments, which {name}"
                f" {getattr(self, name).kind} needs; choose another {name}, or give pseudo_queries:"
                " {kinds: []}"
            )

    @property
    def alone(self) -> TrainingOptions:
        """The options without a companion."""
        return self.model_copy(update={"companion": None})

    @property
    def of_companion(self) -> TrainingOptions:
        """The options of the companion: those given here, but for what it has of its own."""
        # Cosines and inner products of terms need temperatures of their own.
        separate = {"companion", "encoders", "temperature", *_OF_DENSE}
        shared = self.model_dump(exclude_unset=True, exclude=separate)
        return TrainingOptions(**shared | (self.companion or {}))

    @property
    def draws(self) -> bool:
        """Whether the negatives of a row are not the same in every step."""
        varied = isinstance(self.hardness, parts.HansOptions) and self.hardness.negatives.on
        by_window = isinstance(self.curriculum, parts.WindowOptions)
        return self.sources.kind != "mined" or by_window or self.draw.kind != "first" or varied

    @property
    def learns_teacher(self) -> bool:
        """Whether the loss learns the scores of the search that needs no training."""
        loss = self.loss
        return isinstance(loss, parts.DistillationOptions) and loss.column == parts.TEACHER

    @property
    def reads(self) -> set[str]:
        """Judgments that the mined rows must hold."""
        columns = {*self.loss.reads, *self.curriculum.reads, *self.draw.reads}
        return columns if self.companion is None else columns | self.of_companion.reads
