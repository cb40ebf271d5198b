"""Parameters of the stages; those of training are in `pipelines.training.params`."""

from __future__ import annotations

import math
import re
from collections.abc import Sized
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from anmi.adaptation.kinds import QuestionOptions
from anmi.adaptation.make import FilterOptions
from anmi.candidates import MEASURED
from anmi.corpus.hardness import HardnessParams
from anmi.corpus.types import ReadingParams
from anmi.errors import nearest
from anmi.evaluation.audit import Hide, Kinds
from anmi.evaluation.promotion import PromotionRule
from anmi.judging.cross_encoder import CrossEncoderOptions
from anmi.judging.endpoint import EndpointOptions
from anmi.judging.fusing import FusedOptions
from anmi.judging.llm import LLMOptions
from anmi.judging.rating import RatingOptions
from anmi.retrieval.kinds import EncoderSettings
from anmi.retrieval.tokenize import TokenizerName
from anmi.retrieval.variants.build import VariantParams


class Params(BaseModel):
    """Base of the parameters of a stage."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def sentence(error: ValidationError, model: Any, noun: str, name: str = "") -> str:
    """Return what is wrong with settings that a model does not accept, with the nearest name.

    ``noun`` is what they are called, and ``name`` the dotted name of all of them.
    """
    first = error.errors(include_url=False)[0]
    location = first["loc"]
    path = ".".join(filter(None, [name, *map(str, location)]))
    # The model in which the last part of the path is a field; None where that is no model's.
    for step in location[:-1]:
        field = getattr(model, "model_fields", {}).get(step)
        model = None if field is None else field.annotation
    if first["type"] == "extra_forbidden":
        fields = getattr(model, "model_fields", None)
        hint = nearest(str(location[-1]), fields) if fields else "its model has no such field"
        return f'there is no {noun} "{path}": {hint}'
    problem = first["msg"].removeprefix("Value error, ")
    if first["type"] in ("model_type", "dict_type"):
        problem = f"settings by name were expected, as in {path}.NAME=VALUE"
    if not path:
        # What settings do not allow together is about none of them alone.
        return problem
    value = first["input"]
    shown = f", not {value!r}" if isinstance(value, (str, int, float, list)) else ""
    return f'{noun} "{path}": {problem}{shown}'


class IngestionParams(ReadingParams):
    """How a collection is read, split and checked."""

    api_docs_queries: int = Field(500, ge=0)
    max_queries: int = Field(0, ge=0)
    passages: Literal["auto", "none"] | Annotated[int, Field(ge=20)] = "auto"
    parents: Literal["metadata", "ids"] = "metadata"
    new_queries: int = Field(100, ge=0)
    marks: str | None = Field(None, min_length=1)


class WriterOptions(EndpointOptions):
    """Which language model writes pseudo-queries of kind llm."""

    max_tokens: int | None = Field(512, ge=1)
    budget: int = Field(1000, ge=0)


class AdaptationParams(Params):
    """How documents ask for themselves; the recipe says by which kinds of pseudo-queries."""

    views: int = Field(5, ge=1, le=100)
    max_documents: int = Field(100_000, ge=1)
    question: QuestionOptions = QuestionOptions()
    llm: WriterOptions | None = None
    filters: FilterOptions = FilterOptions()


class BM25Params(Params):
    """How the corpus is indexed and how deep it is searched."""

    engine: Literal["bm25s", "rank_bm25"] = "bm25s"
    tokenizer: TokenizerName = "auto"
    k1: float = Field(0.9, ge=0)
    b: float = Field(0.4, ge=0, le=1)
    epsilon: float = Field(0.0, ge=0)
    depth: int = Field(100, ge=1, le=100_000)
    shard: int = Field(512, ge=1)

    @model_validator(mode="after")
    def _only_one_has_it(self) -> BM25Params:
        if self.epsilon and self.engine != "rank_bm25":
            raise ValueError(
                f'epsilon is a setting of rank_bm25, and the engine is "{self.engine}"; leave'
                " it out"
            )
        return self


class DenseParams(EncoderSettings):
    """How texts are encoded, indexed and searched; a trained encoder has its folder's prompts."""

    max_length: int = Field(256, ge=8)
    index: Literal["flat", "hnsw"] = "flat"
    depth: int = Field(100, ge=0, le=100_000)
    random: int = Field(32, ge=0, le=100_000)
    positives: int = Field(8, ge=1)


class ConsistencyParams(Params):
    """When a query and its positive agree."""

    top: int = Field(10, ge=1)


class DenoisingParams(Params):
    """Which candidates are judged, and by whom."""

    fused: FusedOptions = FusedOptions()
    llm: LLMOptions | None = None
    depth: int = Field(16, ge=1)
    cross_encoder: CrossEncoderOptions = CrossEncoderOptions()


class EloParams(RatingOptions):
    """Judges, comparison graph and prior."""

    pairwise: dict[str, EndpointOptions] = Field(default={})

    @model_validator(mode="after")
    def _every_judge_is_known(self) -> Self:
        if strange := sorted(set(self.judges) - MEASURED):
            raise ValueError(
                f'judges weighs "{strange[0]}", which no stage measures:'
                f" {nearest(strange[0], MEASURED)}"
            )
        if unknown := [name for name in self.pairwise_judges if name not in self.pairwise]:
            raise ValueError(
                f'pairwise_judges weighs "{unknown[0]}", which pairwise does not describe; describe'
                " it there"
            )
        if idle := [name for name in self.pairwise if name not in self.pairwise_judges]:
            raise ValueError(
                f'pairwise describes "{idle[0]}", which has no weight; name it in pairwise_judges'
            )
        return self


class GeneratorOptions(EndpointOptions):
    """Which language model writes variants of documents."""

    max_tokens: int | None = Field(2048, ge=1)


class SelectionParams(Params):
    """What becomes of the training rows besides training."""

    variants: VariantParams = VariantParams()
    generator: GeneratorOptions | None = None


PARTS: Final = ("bm25", "trained", "corpus", "network")


def _parts(value: Any) -> Any:
    if value == "auto":
        return PARTS
    if isinstance(value, str):
        # Kedro ends a setting of the command line at a comma.
        value = [name.strip() for name in value.split("+")]
    if not isinstance(value, list | tuple) or not value:
        raise ValueError(f"auto was expected, or a list of some of {', '.join(PARTS)}")
    for name in value:
        if name not in PARTS:
            raise ValueError(f'there is no part "{name}"; {nearest(str(name), PARTS)}')
        if value.count(name) > 1:
            raise ValueError(f'it names the part "{name}" twice: name each once')
    return tuple(value)


class SearchParams(Params):
    """Of which parts the search is made, and how they are fused."""

    parts: Annotated[tuple[str, ...], BeforeValidator(_parts)] = PARTS
    network: Literal["auto", "minilm", "e5"] = "auto"
    minutes: float = Field(10, ge=0)
    method: Literal["convex", "rrf"] = "convex"
    depth: int = Field(100, ge=1, le=100_000)
    weights: dict[str, Annotated[float, Field(ge=0, le=1)]] | None = None

    @model_validator(mode="after")
    def _weights_are_of_parts(self) -> Self:
        for name in self.weights or {}:
            if name not in self.parts:
                raise ValueError(
                    f'search.weights names "{name}", which is none of search.parts;'
                    f" {nearest(name, self.parts)}"
                )
        if self.weights is not None and not math.isclose(sum(self.weights.values()), 1):
            raise ValueError(
                f"search.weights add up to {sum(self.weights.values()):g}, and 1 was expected"
            )
        return self


class EvaluationParams(Params):
    """What is measured, and how sure one wants to be."""

    split: Literal["test", "dev"] = "test"
    cutoffs: tuple[Annotated[int, Field(ge=1, le=100_000)], ...] = Field(
        (1, 5, 10, 20, 50, 100), min_length=1
    )
    ranked: Literal["cutoffs", "all"] = "cutoffs"
    resamples: int = Field(10_000, ge=100, le=1_000_000)
    confidence: float = Field(0.95, gt=0, lt=1)
    hardness: HardnessParams = HardnessParams()
    factuality_queries: int = Field(2_000, ge=2)
    neighbours: int = Field(5, ge=1)

    def depth_of(self, corpus: Sized) -> int:
        """Return how deep systems rank a corpus."""
        return max(self.cutoffs) if self.ranked == "cutoffs" else len(corpus)

    @property
    def draws(self) -> dict[str, Any]:
        """How intervals are computed, but for the seed."""
        return {"resamples": self.resamples, "confidence": self.confidence}


TrainAgain = Literal["auto", "always", "never"]


class AuditParams(Params):
    """Which truth is planted, how much is audited, and how many false negatives are too many."""

    kinds: Kinds = "auto"
    hide: Hide = "half"
    queries: int = Field(500, ge=0)
    depth: int = Field(50, ge=1)
    max_false_negative_rate: float | None = Field(None, ge=0, le=1)
    recipe: str | None = None


class RetrainParams(Params):
    """Which registered model is retrained, and by which rule."""

    model: str | None = Field(None, pattern=r"^[A-Za-z0-9][\w.-]{0,99}$")
    rule: PromotionRule = PromotionRule()


def model_name(params: RetrainParams, collection: str) -> str:
    """Return the name of the registered model, by default made from the parameter ``collection``.

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
    # Of an identifier such as beir/scifact/train every part says something, of a path only the last
    # one does.
    last = place if scheme == "ir_datasets" else place.strip().rstrip("/").rpartition("/")[2]
    slug = re.sub(r"[^\w.]+", "-", last, flags=re.ASCII).strip("-.")
    return "-".join(part for part in ("anmi", scheme, slug) if part)[:100]
