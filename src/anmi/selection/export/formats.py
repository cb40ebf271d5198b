"""The formats of exports: training rows laid flat, and the table that each format makes of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import Field

from anmi.errors import AnmiError, nearest
from anmi.ragged import Bools, Float64s, Int64s
from anmi.selection.rows import pair_rows
from anmi.selection.steps import Params

# The order in which a score is chosen where none is named: a cross-encoder's logits are what
# MarginMSE was made for.
PREFERRED: Final = ("cross", "p_relevant", "dense")
LEAST_KNOWN: Final = 0.95
_TEXTS: Final = ("query_id", "query", "positive_id", "positive")


class ExportOptions(Params):
    """What goes into an export."""

    negatives: int | None = Field(
        None,
        ge=1,
        le=1000,
        description="Of each row, best first; all it has when empty.",
    )
    score: str | None = Field(
        None,
        min_length=1,
        description=(
            "Which judgment becomes the score, such as cross or p_relevant. When empty, none;"
            " n-tuple-scores then takes the first of cross, p_relevant and dense that is known for"
            " 95 % of the documents."
        ),
    )
    prompt: str | None = Field(
        None, description="Prompt of the query in every line; the trainer's own when empty."
    )
    by_source: bool = Field(
        False, description="Files for each source of queries, as the BM25 notebook writes them."
    )


@dataclass(frozen=True)
class Collection:
    """The collection of training rows; some formats name its titles, types and language.

    Attributes
    ----------
    corpus
        ``document_id, title, text, metadata``.
    queries
        ``query_id, metadata``.
    name
        Such as ``beir:scifact``.
    language
        ISO 639-1 code.
    """

    corpus: pd.DataFrame
    queries: pd.DataFrame
    name: str
    language: str


@dataclass
class Flat:
    """R training rows and the P negatives that may be exported of them.

    Attributes
    ----------
    rows
        ``query_id, query, positive_id, positive`` of [R] rows, of type object, and ``score``: the
        positive's.
    negatives
        ``row`` (the place of its row, rising), ``id, text, score`` of [P] negatives.
    options, collection
        What goes into the export, and what the rows were made of, if that is known.
    score
        Name of the judgment in both scores; None for none, and they are NaN.
    left_out
        How many of what did not get this far.
    """

    rows: pd.DataFrame
    negatives: pd.DataFrame
    options: ExportOptions
    collection: Collection | None = None
    score: str | None = None
    left_out: dict[str, int] = field(default_factory=dict)

    @property
    def counts(self) -> Int64s:
        """Negatives of each row, int64 [R]."""
        return np.bincount(self.negatives["row"], minlength=len(self.rows)).astype(np.int64)

    def leave_out(self, reason: str, number: int) -> None:
        """Note that something was left out."""
        if number:
            self.left_out[reason] = self.left_out.get(reason, 0) + int(number)

    def drop(self, is_dropped: Bools, reason: str) -> None:
        """Leave some of the negatives out."""
        self.leave_out(reason, int(is_dropped.sum()))
        self.negatives = self.negatives[~is_dropped]


def flatten(
    rows: pd.DataFrame,
    options: ExportOptions,
    collection: Collection | None,
    score: str | None,
) -> Flat:
    """Lay the negatives of training rows flat.

    Left out and counted: rows of weight 0, negatives of weight 0 (our training would not see them
    either), negatives that are a positive of another row of their query, and what the score is
    missing for.

    Parameters
    ----------
    rows
        As :func:`anmi.selection.rows.training_rows` makes them; further columns are ignored.
    options, collection
        See :class:`Flat`.
    score
        Judgment to take along; None for none.

    Raises
    ------
    AnmiError
        A column is missing, or the score was measured for nothing.
    """
    if missing := [name for name in (*_TEXTS, "negative_ids", "negatives") if name not in rows]:
        raise AnmiError(
            f'this is no table of training rows: it has no column "{missing[0]}"; run selection'
            " again"
        )
    if score is not None and score not in (judgments := _scores(rows)):
        raise AnmiError(f'the training rows have no score "{score}"; {nearest(score, judgments)}')
    is_used = np.ones(len(rows), bool)
    if "query_weight" in rows:
        is_used = rows.query_weight.to_numpy() > 0
    table = rows[is_used].reset_index(drop=True)
    lengths = table.negative_ids.map(len).to_numpy(np.int64)

    def listed(column: str, kind: Any) -> NDArray[Any]:
        return np.fromiter(chain.from_iterable(table[column]), kind, count=int(lengths.sum()))

    positives = table_of({name: table[name].to_numpy(object) for name in _TEXTS})
    negatives = table_of(
        {
            "row": np.repeat(np.arange(len(table)), lengths),
            "id": listed("negative_ids", object),
            "text": listed("negatives", object),
        }
    )
    positives["score"] = np.nan if score is None else positive_scores(table, score)
    negatives["score"] = np.nan if score is None else listed(f"negative_{score}", np.float64)
    flat = Flat(positives, negatives, options, collection, score)
    flat.leave_out("rows of weight 0", int((~is_used).sum()))
    if "weights" in table:
        flat.drop(listed("weights", np.float64) <= 0, "negatives of weight 0")
    query_ids = flat.rows.query_id.to_numpy()[flat.negatives["row"]]
    labelled = pd.MultiIndex.from_frame(flat.rows[["query_id", "positive_id"]])
    is_positive = pd.MultiIndex.from_arrays([query_ids, flat.negatives["id"]]).isin(labelled)
    flat.drop(is_positive, "negatives that are a positive of the same query")
    if score is not None:
        flat.drop(flat.negatives.score.isna().to_numpy(), f"negatives without {score}")
    if options.negatives is not None:
        number = flat.negatives.groupby("row").cumcount()
        flat.negatives = flat.negatives[number < options.negatives]
    return flat


def table_of(columns: Mapping[str, Any]) -> pd.DataFrame:
    """Return a table whose texts are references; pandas would copy them into its own kind.

    Examples
    --------
    >>> table_of({"a": np.array(["x"], dtype=object), "b": np.array([1])}).dtypes.tolist()
    [dtype('O'), dtype('int64')]
    """
    typed = {}
    for name, values in columns.items():
        is_object = isinstance(values, np.ndarray | pd.Series) and values.dtype.kind == "O"
        typed[name] = pd.Series(values, dtype=object) if is_object else values
    return pd.DataFrame(typed)


def positive_scores(rows: pd.DataFrame, score: str) -> Float64s:
    """Return a judgment of each positive, [R]; of a probability a label that no judge read is 1.

    Examples
    --------
    >>> positive_scores(pd.DataFrame({"positive_p_relevant": [0.5, None]}), "p_relevant").tolist()
    [0.5, 1.0]
    """
    scores = rows[f"positive_{score}"].to_numpy(np.float64)
    if score.startswith("p_"):
        scores = np.where(np.isnan(scores), 1.0, scores)
    return scores


def _scores(table: pd.DataFrame) -> list[str]:
    """Return the names of the judgments that both positives and negatives may have."""
    names = []
    for column in map(str, table):
        name = column.removeprefix("positive_")
        is_of_positives = column.startswith("positive_") and name not in ("id", "ids")
        if is_of_positives and f"negative_{name}" in table:
            names.append(name)
    return names


def known_shares(rows: pd.DataFrame) -> dict[str, float]:
    """Return for every judgment the share of exported documents it is known for, 0 to 1.

    Examples
    --------
    >>> known_shares(pd.DataFrame({"positive_a": [1.0, 2.0], "negative_a": [[1.0, np.nan], []]}))
    {'a': 0.75}
    """
    shares = {}
    for name in _scores(rows):
        of_negatives = rows[f"negative_{name}"]
        values = np.concatenate([positive_scores(rows, name), *of_negatives])
        is_known = ~np.isnan(values.astype(np.float64))
        shares[name] = float(is_known.mean()) if len(values) else 0.0
    return shares


def preferred_score(rows: pd.DataFrame) -> str:
    """Return the judgment that is exported where none is named.

    Raises
    ------
    AnmiError
        None of them is known for enough documents; the message says how far each is.
    """
    shares = known_shares(rows)
    for name in PREFERRED:
        if shares.get(name, 0.0) >= LEAST_KNOWN:
            return name
    raise AnmiError(
        f"no score is known for {LEAST_KNOWN:.0%} of the documents; choose one with --score:"
        f" {share_text(shares)}"
    )


def share_text(shares: dict[str, float]) -> str:
    """Write shares for a message.

    Examples
    --------
    >>> share_text({"dense": 1.0, "cross": 0.3412})
    'dense (known for 100.0 %), cross (known for 34.1 %)'
    """
    largest_first = sorted(shares.items(), key=lambda item: -item[1])
    texts = [f"{name} (known for {100 * share:.1f} %)" for name, share in largest_first if share]
    return ", ".join(texts) or "none is measured"


def _grouped(flat: Flat) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the queries that have positives and negatives, and their documents.

    The queries are ``query_id, query``, and their documents, each once per query and positives
    first: ``group`` (the place of the query, rising), ``id, text, score, positive``.
    """
    rows = flat.rows
    query = pd.factorize(rows.query_id)[0]
    positives = {
        "group": query,
        "id": rows.positive_id,
        "text": rows.positive,
        "score": rows.score,
        "positive": True,
    }
    negatives = flat.negatives.assign(
        group=query[flat.negatives["row"]],
        positive=False,
    )
    documents = pd.concat(
        [table_of(positives), negatives[list(positives)]],
        ignore_index=True,
    )
    documents = documents.drop_duplicates(["group", "id"])
    if flat.score is not None:
        is_unknown = documents.score.isna()
        flat.leave_out(f"positives without {flat.score}", int(is_unknown.sum()))
        documents = documents[~is_unknown]
    _, first_rows = np.unique(query, return_index=True)
    queries = rows.iloc[first_rows]
    kinds = documents.groupby("group").positive.nunique()
    has_both = (kinds.reindex(range(len(queries))) == 2).to_numpy()
    flat.leave_out("queries without a positive or without negatives", int((~has_both).sum()))
    documents = documents[has_both[documents.group]]
    documents = documents.sort_values("group", kind="stable")
    groups, numbers = np.unique(documents.group, return_inverse=True)
    return queries.iloc[groups], documents.assign(group=numbers)


def _lists(documents: pd.DataFrame, column: str, queries: int) -> Any:
    """Return a column of documents as one list per query."""
    if not queries:
        return []
    lengths = np.bincount(documents.group, minlength=queries)
    starts = np.cumsum(lengths)[:-1]
    parts = np.split(documents[column].to_numpy(), starts)
    return [values.tolist() for values in parts]


def flagembedding(flat: Flat) -> pd.DataFrame:
    """Return ``query, pos, neg, type``.

    With a score also ``pos_scores, neg_scores``, and ``prompt`` if there is one. ``type`` is what
    the in-context trainer asks for; the others take it or leave it.
    """
    queries, documents = _grouped(flat)
    table: dict[str, Any] = {"query": queries["query"].to_numpy()}
    suffixes = {"text": ""}
    if flat.score is not None:
        suffixes["score"] = "_scores"
    for column, suffix in suffixes.items():
        for is_positive, name in ((True, "pos"), (False, "neg")):
            rows = documents[documents.positive == is_positive]
            table[f"{name}{suffix}"] = _lists(rows, column, len(queries))
    if flat.options.prompt is not None:
        table["prompt"] = flat.options.prompt
    return table_of(table | {"type": "normal"})


def tevatron(flat: Flat) -> pd.DataFrame:
    """Return ``query_id, query, positive_passages, negative_passages`` of ``docid, title, text``.

    Tevatron joins title and text by a blank, as we do; so a known title is taken off the text's
    beginning.
    """
    queries, documents = _grouped(flat)
    titles: dict[Any, Any] = {}
    if flat.collection is not None:
        titles = flat.collection.corpus.set_index("document_id")["title"].to_dict()
    passages = []
    for document_id, text in zip(documents["id"], documents.text, strict=True):
        title = str(titles.get(document_id) or "").strip()
        title = title if text.startswith(f"{title} ") else ""
        body = text[len(title) + 1 :] if title else text
        passages.append({"docid": str(document_id), "title": title, "text": body})
    passage_column = pd.Series(passages, documents.index, dtype=object)
    documents = documents.assign(passage=passage_column)
    positives = documents[documents.positive]
    negatives = documents[~documents.positive]
    return table_of(
        {
            "query_id": queries.query_id.to_numpy(),
            "query": queries["query"].to_numpy(),
            "positive_passages": _lists(positives, "passage", len(queries)),
            "negative_passages": _lists(negatives, "passage", len(queries)),
        }
    )


def pairs(flat: Flat) -> pd.DataFrame:
    """Return rows with negatives in the format of :func:`anmi.selection.rows.pair_rows`.

    Raises
    ------
    AnmiError
        The collection is not given, or it is not the one the rows were made of.
    """
    collection = flat.collection
    if collection is None:
        raise AnmiError(
            "the pair format names types and language, known from the collection alone; run"
            " ingestion first"
        )
    _note_empty(flat)
    for kind, collection_ids, row_ids in (
        ("document", collection.corpus.document_id, flat.rows.positive_id),
        ("query", collection.queries.query_id, flat.rows.query_id),
    ):
        unknown = row_ids[~row_ids.isin(collection_ids)]
        if len(unknown):
            raise AnmiError(
                f'the newest collection has no {kind} "{unknown.iloc[0]}" of the training rows, so'
                " these were made of another one; run mining again"
            )
    negatives = flat.negatives.rename(columns={"row": "group"})
    ids = _lists(negatives, "id", len(flat.rows))
    texts = _lists(negatives, "text", len(flat.rows))
    rows = flat.rows.assign(negative_ids=ids, negatives=texts)
    return pair_rows(
        rows,
        collection.corpus,
        collection.queries,
        collection.name,
        collection.language,
    )


# Column names and order follow ``sentence_transformers.util.mine_hard_negatives``. A loss reads
# columns by their order, and takes every one but ``scores`` for a text.
def n_tuple(flat: Flat) -> pd.DataFrame:
    """Return ``query, positive, negative_1, …, negative_n``, one line per row that has n negatives.

    With a score also ``scores``: the positive's, then those of the negatives. Scores and not their
    differences: MarginMSELoss takes both (Hofstätter et al. 2020, arXiv 2010.02666),
    DistillKLDivLoss only scores.
    """
    _note_empty(flat)
    counts = flat.counts
    if flat.score is not None:
        unknown = flat.rows.score.isna().to_numpy() & (counts > 0)
        flat.leave_out(f"rows whose positive has no {flat.score}", int(unknown.sum()))
        counts = np.where(unknown, 0, counts)
    length = flat.options.negatives or int(counts.max(initial=0))
    length = max(length, 1)
    full = counts >= length
    short = counts[(counts > 0) & ~full]
    if len(short):
        advice = f"--negatives {short.min()} keeps every row that has any"
        flat.leave_out(f"rows with fewer than {length} negatives ({advice})", len(short))
    rows = flat.rows[full]
    negatives = flat.negatives[full[flat.negatives["row"]]]
    texts = negatives["text"].to_numpy().reshape(len(rows), length)
    columns = {
        "query": rows["query"].to_numpy(),
        "positive": rows.positive.to_numpy(),
    }
    for number in range(length):
        columns[f"negative_{number + 1}"] = texts[:, number]
    if flat.score is None:
        return table_of(columns)
    scores = negatives["score"].to_numpy().reshape(len(rows), length)
    scores = np.column_stack([rows.score, scores]).astype(np.float32)
    return table_of(columns).assign(scores=list(scores))


def _note_empty(flat: Flat) -> None:
    flat.leave_out("rows without negatives", int((flat.counts == 0).sum()))


Make = Callable[[Flat], pd.DataFrame]
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
        ``train.parquet``, ``train.jsonl``, or ``part_*.jsonl`` for numbered files of 100,000 lines;
        and how they are read, with the place for the path as ``{path}``.
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
    "n-tuple": Format(
        "Query, positive and n negatives a line, for MultipleNegativesRankingLoss of"
        " sentence-transformers.",
        n_tuple,
    ),
    "n-tuple-scores": Format(
        "An n-tuple with the scores of its documents, for MarginMSELoss or DistillKLDivLoss of"
        " sentence-transformers.",
        n_tuple,
        frozenset({"score"}),
        needs_score=True,
    ),
    "flagembedding": Format(
        "JSON lines of query, positives and negatives, for the trainers of FlagEmbedding (BGE).",
        flagembedding,
        frozenset({"score", "prompt"}),
        "train.jsonl",
        "torchrun --nproc_per_node 1 -m FlagEmbedding.finetune.embedder.encoder_only.base"
        " --train_data {path} …",
    ),
    "tevatron": Format(
        "JSON lines of query, positive and negative passages with ids and titles, for the trainers"
        " of Tevatron.",
        tevatron,
        files="train.jsonl",
        loading=(
            "python -m tevatron.retriever.driver.train --dataset_name json --dataset_path {path} …"
        ),
    ),
    "pairs": Format(
        "Numbered chunks of JSON lines with hard_negatives, query_type, doc_type, source and"
        " language.",
        pairs,
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
    export_format = FORMATS[name]
    stated = options.model_dump(exclude={"negatives"}, exclude_defaults=True)
    for option in sorted(stated.keys() - export_format.takes):
        takers = [taker for taker, kind in FORMATS.items() if option in kind.takes]
        raise AnmiError(
            f'format "{name}" has no place for {option}; leave it out, or take one of'
            f" {', '.join(takers)}"
        )
    return export_format
