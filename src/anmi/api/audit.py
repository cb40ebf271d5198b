"""How many of anyone's negatives are expected to be relevant, which, and why."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

from anmi.api import collection
from anmi.api.collection import DEPTH, Collection, Judge
from anmi.api.examples import Examples, read_corpus, read_examples
from anmi.candidates import NEGATIVE, PADDING, Candidates
from anmi.errors import AnmiError
from anmi.evaluation.diagnostics import Expected
from anmi.judging.expected import share_sentence
from anmi.judging.fusing import contributions
from anmi.ragged import Float32s, Int32s, Int64s
from anmi.retrieval import pool
from anmi.selection.recipe import with_probabilities

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer

# From this probability of relevance on, mining leaves a candidate out.
DOUBTFUL: Final = 0.1
_SHOWN: Final = 20
_REFERENCES: Final = 8
_MANY: Final = 0.05
_ROWS: Final = 512
_REASONS: Final = {
    "dense": "its meaning is close to the query's",
    "match": "it holds the query's words",
    "coverage": "it holds nearly all words of the query",
    "likeness": "it is like a known positive",
    "likeness_terms": "its words are those of a known positive",
    "containment": "it holds most words of a known positive",
    "contained": "most of its words are in a known positive",
}
_JUDGMENT: Final = {
    "query": "int64",
    "document": "int64",
    "probability": "float64",
    "reason": "str",
}
_NO_JUDGMENTS: Final = pd.DataFrame({name: [] for name in _JUDGMENT}).astype(_JUDGMENT)
_NO_REASON: Final = "little speaks for it"
IS_POSITIVE: Final = "it is a known positive of the query"


@dataclass
class Audit:
    """What the judge expects of negatives.

    Attributes
    ----------
    queries, negatives
        How many, each pair of a query and a negative once.
    expected
        ``share`` of the negatives that are relevant, ``low`` and ``high`` of its 95 % interval,
        ``judged``, ``total``, ``basis`` and ``warning``, as
        :class:`anmi.evaluation.diagnostics.Expected` has them; None where nothing can be said.
    positives
        Negatives that are known positives of their query; not counted in ``expected``.
    unjudged
        Negatives of which nothing can be said.
    outside
        Negatives whose text the corpus lacks; None without a corpus.
    doubtful
        The most doubtful: ``query, negative, probability, reason``.
    examples
        What was audited.
    probabilities
        Of relevance, of each record's negatives; 1 of positives, NaN where nothing can be said.
    """

    queries: int
    negatives: int
    expected: dict[str, Any] | None
    positives: int
    unjudged: int
    outside: int | None
    doubtful: list[dict[str, Any]]
    examples: Examples = field(repr=False)
    probabilities: list[list[float]] = field(repr=False)

    def __str__(self) -> str:
        lines = [f"{self.negatives:,} negatives of {self.queries:,} queries"]
        if self.expected is None:
            lines.append("nothing can be said of them")
        else:
            share = [self.expected[name] for name in ("share", "low", "high")]
            lines.append(f"expected to be relevant: {share_sentence(*share)}")
            basis = self.expected["basis"]
            lines.append(f"the judge learned what is relevant from {basis or 'nothing'}")
            lines += [f"warning: {self.expected['warning']}"] if self.expected["warning"] else []
            high_share = self.expected["share"] >= _MANY
            lines += ["that is many: train on them without the doubtful ones"] if high_share else []
        counts = {
            "are known positives of their query": self.positives,
            "could not be judged": self.unjudged,
            "are not in the corpus, and were judged by their text": self.outside or 0,
        }
        lines += [f"{count:,} {label}" for label, count in counts.items() if count]
        for doubt in self.doubtful:
            lines.append(f"P = {doubt['probability']:.2f}: {doubt['reason']}")
            lines.append(f"    query     {_line(doubt['query'])}")
            lines.append(f"    negative  {_line(doubt['negative'])}")
        return "\n".join(lines)

    def summary(self) -> dict[str, Any]:
        """Return the figures and the doubtful negatives, ready for JSON."""
        names = ("queries", "negatives", "expected", "positives", "unjudged", "outside", "doubtful")
        return {name: getattr(self, name) for name in names}

    def cleaned(self, threshold: float = DOUBTFUL, weights: bool = False) -> list[dict[str, Any]]:
        """Return the records without negatives that are at least as likely to be relevant.

        With ``weights`` all stay, and a field ``weights`` has 1 − P of each negative.
        """
        if weights:
            return self.examples.weighted(
                np.nan_to_num(1.0 - np.array(values), nan=1.0).tolist()
                for values in self.probabilities
            )
        return self.examples.without(
            [value >= threshold for value in values] for values in self.probabilities
        )

    def dataset(self, threshold: float = DOUBTFUL, weights: bool = False) -> Dataset:
        """Return :meth:`cleaned` as a dataset."""
        return self.examples.dataset(self.cleaned(threshold, weights))

    def save(self, path: str | Path, threshold: float = DOUBTFUL, weights: bool = False) -> int:
        """Write :meth:`cleaned` as it was stored; return how many records there are."""
        records = self.cleaned(threshold, weights)
        self.examples.save(records, Path(path))
        return len(records)


def _line(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= 90 else words[:89] + "…"


def audit_negatives(
    dataset: Dataset | str | Path,
    corpus: Iterable[str] | Mapping[str, str] | str | Path | None = None,
    model: SentenceTransformer | None = None,
    *,
    qrels: Mapping[str, Iterable[str]] | None = None,
    store: str | Path | None = None,
    seed: int = 0,
    verbose: bool = True,
) -> Audit:
    """Say how many negatives are expected to be false, before anything is trained on them.

    Parameters
    ----------
    dataset
        Of the four formats of sentence-transformers, or the file or folder of one, or a file of
        FlagEmbedding, Tevatron, DPR or NeMo.
    corpus
        Documents: texts, or texts by id, or a JSONL or Parquet file. Without it those of the
        dataset. The judge looks at their nearest ones to see what is usual here.
    model
        Encoder that finds these; without it the packaged table of tokens does.
    qrels
        Further relevant documents by query.
    store
        Folder where vectors and the judge's encoder are kept.
    seed
        Of all that is drawn.
    verbose
        Whether the account is printed.

    Raises
    ------
    AnmiError
        The negatives or the corpus cannot be read.
    """
    texts_by_id = read_corpus(corpus)
    examples = read_examples(dataset, texts_by_id)
    text_pairs = _text_pairs(examples, list(texts_by_id.values()), qrels or {})
    models = collection.cache_folder(store) / "models"
    texts = Collection(text_pairs.queries, text_pairs.documents, text_pairs.relevant, seed, models)
    vectors = (
        texts.static_vectors
        if model is None
        else collection.text_vectors(model, text_pairs, store, {}, {})
    )
    depths = {"bm25": DEPTH, "dense": DEPTH}
    judge = texts.judge()
    with tempfile.TemporaryDirectory(prefix="anmi-audit-") as folder:
        judge.fit(texts.retrieve(vectors, Path(folder) / "candidates", depths, is_judged=True))
    expected = Expected(judge.fused.summary)
    judgments = [_NO_JUDGMENTS]
    for block in _blocks(texts, text_pairs.pairs):
        judgment = with_probabilities(judge(judge.view(block)))
        expected.add(judgment)
        judgments.append(_rows(judgment, judge))
    audit = _audit(
        examples, text_pairs, pd.concat(judgments, ignore_index=True), expected, bool(texts_by_id)
    )
    if verbose:
        print(audit)
    return audit


@dataclass(frozen=True)
class TextPairs:
    """Examples as numbers.

    Attributes
    ----------
    queries, documents
        Texts, each once.
    relevant
        Known positives: query and document, int64 [P, 2].
    negatives
        ``record, query, document, is_positive`` of each negative, as they stand in the records.
    pairs
        Query and document of each distinct negative that is no positive, int64 [n, 2], sorted.
    corpus
        How many of the documents, the first ones, are the corpus's.
    """

    queries: list[str]
    documents: list[str]
    relevant: Int64s
    negatives: pd.DataFrame
    pairs: Int64s
    corpus: int


def _text_pairs(
    examples: Examples, corpus: Sequence[str], qrels: Mapping[str, Iterable[str]]
) -> TextPairs:
    """Number the texts of examples, those of the corpus first."""
    queries: dict[str, int] = {}
    documents = {text: number for number, text in enumerate(dict.fromkeys(corpus))}
    corpus_size = len(documents)
    relevant_pairs = []
    negatives = []
    for number, record in enumerate(examples.records):
        query_text = examples.query(record)
        query = queries.setdefault(query_text, len(queries))
        for text in [*examples.positives(record), *qrels.get(query_text, ())]:
            relevant_pairs.append((query, documents.setdefault(text, len(documents))))
        for negative in examples.negatives(record):
            document = documents.setdefault(negative.text, len(documents))
            negatives.append((number, query, document))
    if not negatives:
        raise AnmiError(f"{examples.place} has no negatives: nothing can be audited")
    table = pd.DataFrame(negatives, columns=["record", "query", "document"])
    relevant = np.unique(np.reshape(np.array(relevant_pairs, np.int64), (-1, 2)), axis=0)
    positives = pd.MultiIndex.from_arrays(list(relevant.T))
    is_positive = pd.MultiIndex.from_frame(table[["query", "document"]]).isin(positives)
    table["is_positive"] = is_positive
    pairs = np.unique(table.loc[~is_positive, ["query", "document"]].to_numpy(np.int64), axis=0)
    return TextPairs([*queries], [*documents], relevant, table, pairs, corpus_size)


def _blocks(texts: Collection, pairs: Int64s) -> Iterator[Candidates]:
    """Yield blocks of queries whose candidates are the negatives."""
    queries, starts, counts = np.unique(pairs[:, 0], return_index=True, return_counts=True)
    for start in range(0, len(queries), _ROWS):
        rows = slice(start, start + _ROWS)
        ids = [texts.query_ids[query] for query in queries[rows].tolist()]
        is_filled = np.arange(counts[rows].max()) < counts[rows][:, None]
        documents = np.full(is_filled.shape, PADDING, np.int32)
        first = starts[rows][0]
        documents[is_filled] = pairs[first : first + counts[rows].sum(), 1]
        positives = pool.some_of(texts.seed, ids, texts.positives.of(ids), _REFERENCES)
        yield _block(ids, positives, documents)


def _block(query_ids: list[str], positives: Int32s, documents: Int32s) -> Candidates:
    """Return a block all of whose candidates are negatives."""
    unknown: Float32s = np.full(documents.shape, np.nan, np.float32)
    of_positives: Float32s = np.full(positives.shape, np.nan, np.float32)
    return Candidates(
        query_ids=np.array(query_ids, np.str_),
        positives=positives,
        documents=documents,
        source=np.zeros(documents.shape, np.uint8),
        columns={"dense": unknown},
        positive_columns={"dense": of_positives},
        verdict=np.where(documents == PADDING, 0, NEGATIVE).astype(np.int16),
    )


def _rows(block: Candidates, judge: Judge) -> pd.DataFrame:
    """Return ``query, document, probability, reason`` of each negative of a judged block."""
    row, slot = np.nonzero(block.filled)
    added = contributions(block, judge.fused.summary)
    kinds = [kind for kind in _REASONS if kind in added]
    by_kind = np.stack([added[kind][row, slot] for kind in kinds], axis=1)
    largest = np.argsort(-by_kind, axis=1)[:, :2]
    reasons = [
        [_REASONS[kinds[kind]] for kind in order if added_odds[kind] > 0]
        for order, added_odds in zip(largest, by_kind, strict=True)
    ]
    return pd.DataFrame(
        {
            "query": block.query_ids.astype(np.int64)[row],
            "document": block.documents[row, slot].astype(np.int64),
            "probability": block.columns["p_evidence"][row, slot].astype(np.float64),
            "reason": [", and ".join(words) or _NO_REASON for words in reasons],
        }
    )


def _audit(
    examples: Examples,
    text_pairs: TextPairs,
    judgments: pd.DataFrame,
    expected: Expected,
    has_corpus: bool,
) -> Audit:
    negatives = text_pairs.negatives.merge(judgments, "left", on=["query", "document"])
    negatives.loc[negatives.is_positive, "probability"] = 1.0
    negatives.loc[negatives.is_positive, "reason"] = IS_POSITIVE
    grouped = negatives.groupby("record").probability.agg(list)
    probabilities = grouped.reindex(range(len(examples.records))).tolist()
    distinct = negatives.drop_duplicates(["query", "document"])
    is_doubtful = distinct.probability.notna() & ~distinct.is_positive
    worst = distinct[is_doubtful].nlargest(_SHOWN, "probability")
    is_outside = distinct.document >= text_pairs.corpus
    return Audit(
        queries=len(text_pairs.queries),
        negatives=len(distinct),
        expected=expected.result(),
        positives=int(distinct.is_positive.sum()),
        unjudged=int(distinct.probability.isna().sum()),
        outside=int(is_outside.sum()) if has_corpus else None,
        doubtful=[
            {
                "query": text_pairs.queries[query],
                "negative": text_pairs.documents[document],
                "probability": probability,
                "reason": reason,
            }
            for query, document, probability, reason in zip(
                *(worst[name].tolist() for name in ("query", "document", "probability", "reason")),
                strict=True,
            )
        ],
        examples=examples,
        probabilities=[values if isinstance(values, list) else [] for values in probabilities],
    )
