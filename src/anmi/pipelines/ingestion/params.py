"""Parameters of ingestion."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from anmi.corpus.language import language_code
from anmi.errors import AnmiError


class IngestionParams(BaseModel):
    """How a collection is read, split and checked."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    api_docs_queries: int = Field(
        500, ge=0, description="Training queries of the built-in collection, chosen by hash; 0 takes all. 500 keep "
        "the default run within its six minutes on two cores.",
    )  # fmt: skip
    max_queries: int = Field(
        0,
        ge=0,
        description="Cap on training queries of any collection, chosen by hash; 0: none.",
    )
    max_quarantine: float = Field(
        0.01,
        ge=0,
        le=1,
        description="Share of damaged rows above which the run stops; 1 % is noise, more is a wrong file.",
    )
    dev_share: float = Field(0.15, gt=0, lt=1, description="Of train, where a collection has no dev split.")
    test_share: float = Field(0.2, gt=0, lt=1, description="Of train, where a collection has no test split.")
    language: str | None = Field(
        None, description="ISO 639-1 code, such as hi or pt-BR; recognised from a sample of documents when empty. It "
        "decides how texts are cut into terms.",
    )  # fmt: skip
    marks: str | None = Field(
        None, min_length=1, description="Folder with a file of marks for each collection, made in `kedro anmi serve`, "
        "or one such file, `*.jsonl`; they become labels of train and dev queries, see docs/labelling.md. A folder of "
        "the data root, so that what was marked counts in the next run; a file lies where you keep it under version "
        "control. null takes none.",
    )  # fmt: skip
    id_column: str | None = Field(
        None, min_length=1, description="Column of the ids in JSONL, CSV and TSV files that `docs:` reads. Empty takes "
        "`_id` or `id`, the usual names, and path and line where there is neither.",
    )  # fmt: skip
    title_column: str | None = Field(
        None, min_length=1, description="Column of the titles there; empty takes `title` where there is one."
    )
    text_column: str | None = Field(
        None, min_length=1, description="Column of the texts there; empty takes `text`, `body` or `content`."
    )
    near_similarity: float = Field(
        0.9, gt=0, le=1, description="Documents that share this much of their runs of three words are near-duplicates "
        "and never each other's negatives. Looked at by eye, pairs from 0.8 to 0.9 are about different things.",
    )  # fmt: skip
    near_least_words: int = Field(
        50, ge=1, description="Shorter documents are no near-duplicates of others: of such pairs in kg_webnlg, similar "
        "though they were, none stated the same facts.",
    )  # fmt: skip
    name_share: float = Field(
        0.01, ge=0, le=1, description="A word in a smaller share of the documents is taken for a name; documents that "
        "differ in a name or number are good hard negatives, not near-duplicates. 0 goes by similarity alone.",
    )  # fmt: skip
    sibling_keys: list[str] = Field(
        default=["parent_id", "parent"],
        description="Metadata keys that mean `part of the document with this identifier`; documents of one parent are "
        "never each other's negatives. These two are the usual names; an empty list looks for no parents.",
    )

    @field_validator("language")
    @classmethod
    def _is_known(cls, given: str | None) -> str | None:
        try:
            return language_code(given) if given else None
        except AnmiError as error:
            raise ValueError(str(error)) from None

    @model_validator(mode="after")
    def _something_to_train_on(self) -> Self:
        """Fail before a file is read."""
        if self.dev_share + self.test_share >= 1:
            raise ValueError(
                f"dev_share {self.dev_share:g} and test_share {self.test_share:g} leave nothing to train on; lower them"
            )
        return self
