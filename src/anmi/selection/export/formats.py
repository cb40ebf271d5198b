"""The registry of export formats."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd

from anmi.errors import AnmiError, nearest
from anmi.selection.export import tables
from anmi.selection.export.flat import (
    Collection,
    ExportOptions,
    FlatRows,
    coverage_text,
    flatten,
    known_shares,
    preferred_score,
)
from anmi.selection.export.writing import Exported

Make = Callable[[FlatRows, ExportOptions, Collection | None], pd.DataFrame]
_PARQUET: Final = 'datasets.load_dataset("parquet", data_files={path}, split="train")'
_JSON: Final = 'datasets.load_dataset("json", data_files={path}, split="train")'


@dataclass(frozen=True)
class Format:
    """A format: what makes it of flat rows, which options it takes, and how it is written and read.

    Attributes
    ----------
    description
        One sentence: what a line is, and who reads it.
    make
        Makes the table.
    takes
        Options it has a place for, besides ``negatives``.
    files, loading
        See :class:`anmi.selection.export.writing.Exported`.
    needs_score
        Whether a score is chosen where none is named.
    """

    description: str
    make: Make
    takes: frozenset[str] = frozenset()
    files: str = "train.parquet"
    loading: str = _PARQUET
    needs_score: bool = False


FORMATS: Final[dict[str, Format]] = {
    "triplet": Format(
        "Query, positive and one negative a line, for TripletLoss or MultipleNegativesRankingLoss of "
        "sentence-transformers.",
        tables.triplet,
    ),
    "n-tuple": Format(
        "Query, positive and n negatives a line, for MultipleNegativesRankingLoss of sentence-transformers.",
        tables.n_tuple,
    ),
    "n-tuple-scores": Format(
        "An n-tuple with the scores of its documents, for MarginMSELoss or DistillKLDivLoss of sentence-transformers.",
        tables.n_tuple_scores,
        frozenset({"score"}),
        needs_score=True,
    ),
    "labeled-pair": Format(
        "Query, document and a label of 1, 0 or a score, for CosineSimilarityLoss, ContrastiveLoss or CoSENTLoss of "
        "sentence-transformers, or BinaryCrossEntropyLoss of its CrossEncoder.",
        tables.labelled_pair,
        frozenset({"score"}),
    ),
    "labeled-list": Format(
        "Query, its documents and their labels, for LambdaLoss, ListNetLoss or RankNetLoss of the CrossEncoder of "
        "sentence-transformers.",
        tables.labelled_list,
        frozenset({"score"}),
    ),
    "flagembedding": Format(
        "JSON lines of query, positives and negatives, for the trainers of FlagEmbedding (BGE).",
        tables.flagembedding,
        frozenset({"score", "prompt"}),
        "train.jsonl",
        "torchrun --nproc_per_node 1 -m FlagEmbedding.finetune.embedder.encoder_only.base --train_data {path} …",
    ),
    "tevatron": Format(
        "JSON lines of query, positive and negative passages with ids and titles, for the trainers of Tevatron.",
        tables.tevatron,
        files="train.jsonl",
        loading="python -m tevatron.retriever.driver.train --dataset_name json --dataset_path {path} …",
    ),
    "pairs": Format(
        "Numbered chunks of JSON lines with hard_negatives, query_type, doc_type, source and language.",
        tables.pairs,
        frozenset({"by_source"}),
        files="part_*.jsonl",
        loading=_JSON,
    ),
}


def find_format(name: str, options: ExportOptions) -> Format:
    """Return a format that takes the options given.

    Raises
    ------
    AnmiError
        Unknown name, with the nearest known one; or an option that the format has no place for.
    """
    if name not in FORMATS:
        raise AnmiError(f'there is no format "{name}"; {nearest(name, FORMATS)}')
    found = FORMATS[name]
    for option, given in options.model_dump(include={"score", "prompt", "by_source"}).items():
        if given not in (None, False) and option not in found.takes:
            others = ", ".join(other for other, kind in FORMATS.items() if option in kind.takes)
            raise AnmiError(f'format "{name}" has no place for {option}; leave it out, or take one of {others}')
    return found


def make_export(
    rows: pd.DataFrame,
    name: str,
    options: ExportOptions | None = None,
    collection: Collection | None = None,
    encoder_info: Mapping[str, Any] | None = None,
    mined: Mapping[str, str] | None = None,
) -> Exported:
    """Turn training rows into a format.

    Parameters
    ----------
    rows
        As :func:`anmi.selection.rows.training_rows` makes them; further columns are ignored.
    name
        Of the format.
    options
        What goes into it.
    collection
        What the rows were made of; ``pairs`` needs it, ``tevatron`` takes titles from it.
    encoder_info
        What is known of the encoder that mined, ``prompts`` among it, for the README.
    mined
        What else the README says of how the rows were made.

    Raises
    ------
    AnmiError
        Unknown format or score, an option the format has no place for, or nothing is left to export.
    """
    options = options or ExportOptions()
    found = find_format(name, options)
    score = options.score or (preferred_score(rows) if found.needs_score and len(rows) else None)
    flat = flatten(rows, options.negatives, score)
    table = found.make(flat, options, collection)
    if not len(table):
        reasons = (
            ", ".join(f"{what} ({count})" for what, count in flat.left_out.items()) or "there are no training rows"
        )
        known = f"; scores of these rows: {coverage_text(known_shares(rows))}" if score else ""
        raise AnmiError(f'nothing is left to export as "{name}": {reasons}{known}')
    prompts = (encoder_info or {}).get("prompts") or {}
    parted = "source" if options.by_source else None
    about = {"Collection": f"{collection.name} ({collection.language})"} if collection else {}
    return Exported(
        name, found.description, found.files, found.loading, table, score, flat.left_out, prompts, parted,
        about | dict(mined or {}),
    )  # fmt: skip
