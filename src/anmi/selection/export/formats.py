"""The registry of export formats."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import pandas as pd

from anmi.errors import AnmiError, nearest
from anmi.selection.export import tables
from anmi.selection.export.tables import Collection, ExportOptions, Flat

Make = Callable[[Flat, ExportOptions, Collection | None], pd.DataFrame]
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
        ``train.parquet``, ``train.jsonl``, or ``part_*.jsonl`` for numbered files of 100,000 lines; and how they are
        read, with the place for the path as ``{path}``.
    needs_score
        Whether a score is chosen where none is named.
    """

    description: str
    make: Make
    takes: frozenset[str] = frozenset()
    files: str = "train.parquet"
    loading: str = _PARQUET
    needs_score: bool = False


_SCORE: Final = frozenset({"score"})
FORMATS: Final[dict[str, Format]] = {
    "triplet": Format(
        "Query, positive and one negative a line, for TripletLoss or MultipleNegativesRankingLoss of "
        "sentence-transformers.", tables.triplet,
    ),
    "n-tuple": Format(
        "Query, positive and n negatives a line, for MultipleNegativesRankingLoss of sentence-transformers.",
        tables.n_tuple,
    ),
    "n-tuple-scores": Format(
        "An n-tuple with the scores of its documents, for MarginMSELoss or DistillKLDivLoss of sentence-transformers.",
        tables.n_tuple, _SCORE, needs_score=True,
    ),
    "labeled-pair": Format(
        "Query, document and a label of 1, 0 or a score, for CosineSimilarityLoss, ContrastiveLoss or CoSENTLoss of "
        "sentence-transformers, or BinaryCrossEntropyLoss of its CrossEncoder.", tables.labelled_pair, _SCORE,
    ),
    "labeled-list": Format(
        "Query, its documents and their labels, for LambdaLoss, ListNetLoss or RankNetLoss of the CrossEncoder of "
        "sentence-transformers.", tables.labelled_list, _SCORE,
    ),
    "flagembedding": Format(
        "JSON lines of query, positives and negatives, for the trainers of FlagEmbedding (BGE).", tables.flagembedding,
        frozenset({"score", "prompt"}), "train.jsonl",
        "torchrun --nproc_per_node 1 -m FlagEmbedding.finetune.embedder.encoder_only.base --train_data {path} …",
    ),
    "tevatron": Format(
        "JSON lines of query, positive and negative passages with ids and titles, for the trainers of Tevatron.",
        tables.tevatron, files="train.jsonl",
        loading="python -m tevatron.retriever.driver.train --dataset_name json --dataset_path {path} …",
    ),
    "pairs": Format(
        "Numbered chunks of JSON lines with hard_negatives, query_type, doc_type, source and language.", tables.pairs,
        frozenset({"by_source"}), files="part_*.jsonl", loading=_JSON,
    ),
}  # fmt: skip


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
