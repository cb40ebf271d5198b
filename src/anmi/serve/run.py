"""The page reads a run, its collection and its search on demand."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from threading import Lock
from typing import Any, Final

import numpy as np
import pandas as pd

from anmi.candidates import MARKED, NEGATIVE, PADDING, Candidates, CandidateShards
from anmi.corpus.marks import COUNTED, question_of
from anmi.corpus.texts import normalised
from anmi.corpus.types import empty
from anmi.errors import AnmiError
from anmi.ragged import Float32s, Int32s
from anmi.report.explanation import explain
from anmi.retrieval.encoders import Encoder
from anmi.retrieval.fusion import Ranked, best_documents
from anmi.retrieval.index import DenseIndex
from anmi.search import Hit, HybridSearch
from anmi.seeds import position

_DOUBTED: Final = ("unsafe", "uncertain")
# All that is read of the shards.
UNCERTAINTY_COLUMNS: Final = ("p_relevant", MARKED)


def uncertainty(block: Candidates) -> Float32s:
    """Return how much a mark of each candidate may change, in [0, 1], float32 [Q, M].

    For a negative it is the probability that it is relevant, and so a false negative. For what was
    rejected as perhaps relevant it is 2 · min(p, 1 - p), which is 1 where the judges cannot tell.
    For all others, and where nothing is judged, it is 0.

    Examples
    --------
    >>> documents = np.array([[3, 1]], np.int32)
    >>> columns = {"p_relevant": np.array([[0.4, 0.9]], np.float32)}
    >>> verdict = np.array([[1, 0]], np.int16)
    >>> source = np.ones((1, 2), np.uint8)
    >>> block = Candidates(np.array(["q"]), documents[:, :1] + 9, documents, source, columns,
    ...                    verdict=verdict)
    >>> uncertainty(block).round(2).tolist()
    [[0.4000000059604645, 0.0]]
    """
    chance = block.columns.get("p_relevant")
    if chance is None:
        return np.zeros(block.documents.shape, np.float32)
    # A mark that was made before this run settles it.
    is_settled = np.zeros(block.documents.shape, bool)
    if MARKED in block.columns:
        is_settled = block.columns[MARKED] == 0
    chance = np.where((block.documents == PADDING) | is_settled, 0, np.nan_to_num(chance))
    doubted = [
        code
        for code, name in enumerate(block.legend)
        if name in block.rules and block.rules[name].kind in _DOUBTED
    ]
    unsure = np.where(np.isin(block.verdict, doubted), 2 * np.minimum(chance, 1 - chance), 0)
    return np.where(block.verdict == NEGATIVE, chance, unsure).astype(np.float32)


@dataclass(frozen=True)
class ZeroShot:
    """A search by the encoder that training began with.

    Attributes
    ----------
    index
        Of the documents' vectors by this encoder, in the order of the corpus.
    encoder
        The encoder.
    """

    index: DenseIndex
    encoder: Encoder

    def best(self, question: str, search: HybridSearch, k: int) -> tuple[Ranked, Int32s]:
        """Return the best documents of a question and their passages, as the search has them."""
        vectors = self.encoder.encode([question], "query")
        return best_documents(
            lambda count: Ranked(*self.index.search(vectors, count)),
            search.first,
            max(k, search.settings["depth"]),
        )


# What is shown of a text; the page of the document has more, and no browser stands all of a very
# long one.
SHOWN: Final = 1_000
# Kinds of pseudo-queries that are offered as questions, those first that read most like one, and
# not headings; how many are tried, and the most characters of each.
_KINDS: Final = ("question", "llm", "cloze", "first")
_TRIED: Final = 60
_LONGEST_OFFERED: Final = 150
_ENDINGS: Final = ("?", "？", "؟")
_WHOLE: Final = r"^[^\W\d_a-z].*[.?!。？！؟।]$"
_MARKUP: Final = r"[|=`<>{}\[\]*#~^+\\]"
_MOST_MARKUP: Final = 0.05
LONGEST: Final = 200_000


@dataclass(frozen=True)
class Run:
    """One run, its collection and its search.

    Attributes
    ----------
    where
        Collection, recipe, id and date of the run in one line.
    notice
        What became of a later run; empty where there is none.
    corpus, queries
        As ingestion left them.
    selection
        Rows per (query, positive), after selection.
    fused
        The artifact ``fused_judge``; empty without.
    negatives_wanted
        Negatives that the recipe asks for.
    seed
        Of the run.
    language
        Of the collection.
    qrels
        Its labels, ``query_id, document_id``.
    pseudo_queries
        That the run made, ``text, document_id, kind``; where there are none, some are made to be
        offered as questions.
    search
        The trained search; None where nothing was trained yet.
    zero_shot
        The encoder before training; None where the run encoded nothing, or its search is of other
        documents.
    """

    where: str
    notice: str
    corpus: pd.DataFrame
    queries: pd.DataFrame
    selection: CandidateShards
    fused: Mapping[str, Any] = field(default_factory=dict)
    negatives_wanted: int | None = None
    seed: int = 0
    language: str = "en"
    qrels: pd.DataFrame = field(default_factory=lambda: empty("query_id", "document_id"))
    pseudo_queries: pd.DataFrame = field(
        default_factory=lambda: empty("text", "document_id", "kind")
    )
    search: HybridSearch | None = None
    zero_shot: ZeroShot | None = None
    _searching: Lock = field(default_factory=Lock, repr=False, compare=False)

    @cached_property
    def overview(self) -> pd.DataFrame:
        """The mined queries, the most uncertain first.

        Columns: ``query_id, text, split, shard, uncertainty, negatives, candidates``.

        One pass over the selection, which takes about a second for 10,000 queries.
        """
        rows: list[tuple[Any, ...]] = []
        for number, block in enumerate(self.selection.only(*UNCERTAINTY_COLUMNS)):
            unsure = uncertainty(block).max(axis=1, initial=0.0)
            counts = block.negatives.sum(axis=1), block.filled.sum(axis=1)
            columns = (block.query_ids, np.full(len(block), number), unsure, *counts)
            rows += zip(*(column.tolist() for column in columns), strict=True)
        table = pd.DataFrame(
            rows, columns=["query_id", "shard", "uncertainty", "negatives", "candidates"]
        )
        table = table.groupby("query_id", sort=False).max().reset_index()
        texts = self.queries[["query_id", "text", "split"]]
        table = texts.merge(table, on="query_id", how="inner")
        return table.sort_values(
            ["uncertainty", "query_id"],
            ascending=[False, True],
            ignore_index=True,
        )

    @cached_property
    def _documents(self) -> dict[str, int]:
        return dict(zip(self.corpus["document_id"], range(len(self.corpus)), strict=True))

    @cached_property
    def _split(self) -> dict[str, str]:
        return dict(zip(self.queries["query_id"], self.queries["split"], strict=True))

    @cached_property
    def _named(self) -> dict[str, str]:
        """The first query of each normalised text."""
        rows = zip(self.queries["text"][::-1], self.queries["query_id"][::-1], strict=True)
        return {normalised(text): name for text, name in rows}

    def query_of(self, text: str) -> tuple[str, str | None]:
        """Return the query that has a text and its split; for a new question its id and None."""
        query_id = self._named.get(normalised(text)) or question_of(text)[0]
        return query_id, self._split.get(query_id)

    def labels_of(self, query_id: str | None) -> set[str]:
        """Return the relevant documents of a query; with a passage its document, too."""
        relevant = set(self.qrels["document_id"][self.qrels["query_id"] == query_id])
        numbers = [self._documents[name] for name in relevant if name in self._documents]
        return relevant | {self._parents[number] for number in numbers}

    @cached_property
    def _parents(self) -> list[str]:
        return self.corpus["parent" if "parent" in self.corpus else "document_id"].tolist()

    @cached_property
    def offered(self) -> list[str]:
        """Questions first, then sentences, each where the heaviest parts disagree most first."""
        texts = self._candidate_questions()
        if self.search is None or not texts:
            return texts
        weights = self.search.settings["weights"]
        heaviest = sorted(self.search.parts, key=lambda part: -weights.get(part, 0))[:2]
        if len(heaviest) < 2:
            return texts
        with self._searching:
            rankings = [self.search.ranked(texts, 10, part).documents for part in heaviest]
        shared = [
            len({*first} & {*second} - {PADDING})
            for first, second in zip(*(ranking.tolist() for ranking in rankings), strict=True)
        ]
        is_sentence = [not text.endswith(_ENDINGS) for text in texts]
        return [texts[number] for number in np.lexsort((shared, is_sentence))]

    def _candidate_questions(self) -> list[str]:
        """Return a pseudo-query a document, those first that read most like questions."""
        queries = self.pseudo_queries
        if queries.empty:
            from anmi.adaptation.make import make_pseudo_queries

            ranks = position(self.seed, "offered", self.corpus["document_id"].tolist())
            documents = self.corpus.iloc[np.argsort(ranks)[:_TRIED]]
            queries = make_pseudo_queries(
                documents,
                ("question", "title", "cloze"),
                language=self.language,
                seed=self.seed,
                show_progress=False,
            ).queries
        # Of a passage's title the last heading; tables, code and pieces of sentences ask nothing.
        queries = queries.assign(text=queries["text"].str.split(" › ").str[-1])
        is_question = queries["text"].str.endswith(_ENDINGS)
        is_whole = queries["text"].str.match(_WHOLE)
        markup = queries["text"].str.count(_MARKUP)
        length = queries["text"].str.len()
        is_readable = (markup <= _MOST_MARKUP * length) & (length <= _LONGEST_OFFERED)
        is_sentence = is_whole & queries["kind"].isin(_KINDS)
        queries = queries[is_readable & (is_question | is_sentence)]
        kinds = {kind: rank for rank, kind in enumerate(_KINDS)}
        order = np.lexsort(
            (
                position(self.seed, "offered", queries["text"].tolist()),
                queries["kind"].map(kinds).fillna(len(_KINDS)),
                ~queries["text"].str.endswith(_ENDINGS),
            )
        )
        ordered = queries.iloc[order].drop_duplicates("document_id")["text"]
        texts = dict.fromkeys(ordered.tolist())
        return [text for text in texts if normalised(text) not in self._named][:_TRIED]

    def check_pair(
        self,
        query_id: str,
        document_id: str,
        question_ids: Collection[str] = (),
    ) -> None:
        """Make sure that a pair may be marked; ``question_ids`` are of questions typed here.

        Raises
        ------
        AnmiError
            There is no such query or document, or the query is one of test.
        """
        split = "train" if query_id in question_ids else self._split.get(query_id)
        if split is None:
            raise AnmiError(
                "the collection has no such query: open the page again, the run may be another one"
            )
        if split not in COUNTED:
            raise AnmiError(
                f"it is a query of {split}, whose labels stay as they are, or figures could not be"
                " compared any more: mark queries of train and dev"
            )
        if document_id not in self._documents and document_id not in self._parents:
            raise AnmiError(
                "the collection has no such document: open the page again, the run may be"
                " another one"
            )

    def document(self, document_id: str) -> dict[str, Any]:
        """Return ``document_id, title, text, characters, cut`` of a passage or a document.

        Raises
        ------
        AnmiError
            There is no such document.
        """
        if document_id in self._documents:
            return self._texts(self._documents[document_id], LONGEST)
        passages = [
            self._texts(number, LONGEST)
            for number, parent in enumerate(self._parents)
            if parent == document_id
        ]
        if not passages:
            raise AnmiError("the collection has no such document")
        text = "\n\n".join(passage["text"] for passage in passages)
        return passages[0] | {"document_id": document_id} | _cut(text, LONGEST)

    def _texts(self, number: int, longest: int) -> dict[str, Any]:
        passage = self.corpus.iloc[number]
        return {
            "document_id": str(passage["document_id"]),
            "title": str(passage["title"] or "")[:SHOWN],
            "parent": self._parents[number],
            **_cut(str(passage["text"]), longest),
        }

    def explained(self, query_id: str) -> dict[str, Any]:
        """Return what judges and rules say of a query's candidates.

        Returns
        -------
        dict
            ``query_id, text, split``, and what :func:`anmi.report.explanation.explain` tells;
            positives and candidates have their ``title`` and the start of their ``text``,
            candidates their ``uncertainty``.

        Raises
        ------
        AnmiError
            The query was not mined.
        """
        shards = self.overview["shard"][self.overview["query_id"] == query_id].tolist()
        if not shards:
            split = self._split.get(query_id)
            reason = "the collection has no such query"
            if split is not None:
                reason = f"it is a query of {split}"
            raise AnmiError(f"nothing was mined for this query, since {reason}")
        query = self.queries[self.queries["query_id"] == query_id].iloc[0]
        text = str(query["text"])
        block = self._block(shards[0])
        block = block.take(np.flatnonzero(block.query_ids == query_id))
        decisions = explain(block, self.corpus, self.fused, text, self.seed, self.negatives_wanted)
        uncertainties = uncertainty(block)[0]
        for candidate in decisions["candidates"]:
            candidate["uncertainty"] = float(uncertainties[candidate["place"] - 1])
        for document in (*decisions["positives"], *decisions["candidates"]):
            document.update(self._texts(self._documents[document["document_id"]], SHOWN))
        query_facts = {"query_id": query_id, "text": text[:LONGEST], "split": str(query["split"])}
        return decisions | query_facts

    def _block(self, number: int) -> Candidates:
        files = self.selection.files
        if files:
            return next(iter(CandidateShards.read([files[number]])))
        return next(islice(iter(self.selection), number, None))

    def hits(self, question: str, k: int) -> dict[str, list[Hit]]:
        """Return the best documents of each system, by its name."""
        if self.search is None:
            raise AnmiError("there is no trained search yet: `kedro run` makes one")
        # Indexes and models are not all made for several threads.
        with self._searching:
            start = None
            if self.zero_shot is not None:
                start = self.zero_shot.best(question, self.search, k)
            return self.search.by_system(question, k, start)


def _cut(text: str, longest: int) -> dict[str, Any]:
    """Return the start of a text, its number of characters, and whether it is cut."""
    return {"text": text[:longest], "characters": len(text), "cut": len(text) > longest}
