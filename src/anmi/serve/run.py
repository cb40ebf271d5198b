"""The page reads what it shows of a run when it is asked for."""

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
from anmi.ragged import Float32s
from anmi.report.explanation import explain
from anmi.retrieval.encoders import Encoder
from anmi.retrieval.fusion import Ranked, best_documents, fuse
from anmi.retrieval.index import DenseIndex
from anmi.search import Hit, HybridSearch
from anmi.search.hybrid import with_passages
from anmi.seeds import position

_DOUBTED: Final = ("unsafe", "uncertain")
# All that is read of the shards.
UNCERTAINTY_COLUMNS: Final = ("p_relevant", MARKED)


def uncertainty(block: Candidates) -> Float32s:
    """Return how much a mark of each candidate may change, in [0, 1], float32 [Q, M]; 0 where nothing is judged.

    Of a negative it is the probability that it is relevant, and so a false negative. Of what was
    rejected as perhaps relevant it is 2 · min(p, 1 - p), which is 1 where the judges cannot tell.
    Others decide on nothing.

    Examples
    --------
    >>> documents = np.array([[3, 1]], np.int32)
    >>> block = Candidates(np.array(["q"]), documents[:, :1] + 9, documents, np.ones((1, 2), np.uint8),
    ...                    {"p_relevant": np.array([[0.4, 0.9]], np.float32)}, verdict=np.array([[1, 0]], np.int16))
    >>> uncertainty(block).round(2).tolist()
    [[0.4000000059604645, 0.0]]
    """
    chance = block.columns.get("p_relevant")
    if chance is None:
        return np.zeros(block.documents.shape, np.float32)
    # A mark that was made before this run settles it.
    settled = (
        block.columns[MARKED] == 0
        if MARKED in block.columns
        else np.zeros(block.documents.shape, bool)
    )
    chance = np.where((block.documents == PADDING) | settled, 0, np.nan_to_num(chance))
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

    def hits(self, question: str, k: int, search: HybridSearch) -> list[Hit]:
        """Return the best documents of a question, with their texts out of another search of the same corpus."""
        vectors = self.encoder.encode([question], "query")
        ranked, passages = best_documents(
            lambda count: Ranked(*self.index.search(vectors, count)), search.first, k
        )
        fused = fuse({"zero_shot": ranked}, k)
        return search.hits(with_passages(fused, {"zero_shot": passages}))[0]


# What is shown of a text; the page of the document has more, and no browser stands all of a very
# long one.
SHOWN: Final = 1_000
# Kinds of pseudo-queries that are offered as questions, those first that read most like one; and
# how many are tried.
_KINDS: Final = ("question", "llm", "heading", "title", "first", "cloze")
_TRIED: Final = 60
_LONGEST_OFFERED: Final = 300
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
    wanted
        Negatives the recipe asks for.
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
        None where nothing was trained yet.
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
    wanted: int | None = None
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
        known = self.queries[["query_id", "text", "split"]]
        table = known.merge(table, on="query_id", how="inner")
        return table.sort_values(
            ["uncertainty", "query_id"], ascending=[False, True], ignore_index=True
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
        """Return the query that has a text, and its split; for a new question the id that it gets, and None."""
        name = self._named.get(normalised(text)) or question_of(text)[0]
        return name, self._split.get(name)

    def labels_of(self, query_id: str | None) -> set[str]:
        """Return the documents that the run has as relevant to a query; of a passage its document, too."""
        found = self.qrels["document_id"][self.qrels["query_id"] == query_id]
        return {
            *found,
            *(self._parents[self._documents[name]] for name in found if name in self._documents),
        }

    @cached_property
    def _parents(self) -> list[str]:
        return self.corpus["parent" if "parent" in self.corpus else "document_id"].tolist()

    @cached_property
    def offered(self) -> list[str]:
        """Questions made from the corpus, those first on which the heaviest parts disagree most."""
        made = self.pseudo_queries
        if made.empty:
            from anmi.adaptation.make import make_pseudo_queries

            some = self.corpus.iloc[
                np.argsort(position(self.seed, "offered", self.corpus["document_id"].tolist()))
            ]
            some = some[:_TRIED]
            kinds = ("question", "title", "cloze")
            made = make_pseudo_queries(
                some, kinds, language=self.language, seed=self.seed, show_progress=False
            ).queries
        # Tables and code are no questions.
        made = made[made["text"].str.count(_MARKUP) <= _MOST_MARKUP * made["text"].str.len()]
        places = (
            made["kind"].map({kind: place for place, kind in enumerate(_KINDS)}).fillna(len(_KINDS))
        )
        order = np.lexsort(
            (
                position(self.seed, "offered", made["text"].tolist()),
                places,
                ~made["text"].str.endswith(("?", "？", "؟")),
            )
        )
        texts = (
            made.iloc[order].drop_duplicates("document_id")["text"].str[:_LONGEST_OFFERED].tolist()
        )
        texts = [text for text in dict.fromkeys(texts) if normalised(text) not in self._named][
            :_TRIED
        ]
        if self.search is None or not texts:
            return texts
        weights = self.search.settings["weights"]
        heaviest = sorted(self.search.parts, key=lambda part: -weights.get(part, 0))[:2]
        if len(heaviest) < 2:
            return texts
        with self._searching:
            both = [self.search.ranked(texts, 10, part).documents for part in heaviest]
        shared = [
            len({*one} & {*other} - {PADDING})
            for one, other in zip(*(d.tolist() for d in both), strict=True)
        ]
        return [texts[place] for place in np.argsort(shared, kind="stable")]

    def check_pair(self, query_id: str, document_id: str, asked: Collection[str] = ()) -> None:
        """Make sure that a pair may be marked; ``asked`` are the ids of questions that somebody asked here.

        Raises
        ------
        AnmiError
            There is no such query or document, or the query is one of test.
        """
        split = "train" if query_id in asked else self._split.get(query_id)
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
        """Return ``document_id, title, text`` of a passage or a document, and how many characters the text has.

        Raises
        ------
        AnmiError
            There is no such document.
        """
        if document_id in self._documents:
            return self._texts(self._documents[document_id], LONGEST)
        parts = [
            self._texts(place, LONGEST)
            for place, name in enumerate(self._parents)
            if name == document_id
        ]
        if not parts:
            raise AnmiError("the collection has no such document")
        text = "\n\n".join(part["text"] for part in parts)
        told = {"text": text[:LONGEST], "characters": len(text), "cut": len(text) > LONGEST}
        return parts[0] | {"document_id": document_id} | told

    def _texts(self, place: int, longest: int) -> dict[str, Any]:
        entry = self.corpus.iloc[place]
        text = str(entry["text"])
        found = {
            "document_id": str(entry["document_id"]),
            "title": str(entry["title"] or "")[:SHOWN],
        }
        found |= {"parent": self._parents[place]}
        return found | {"text": text[:longest], "characters": len(text), "cut": len(text) > longest}

    def explained(self, query_id: str) -> dict[str, Any]:
        """Return all that is known of a query's candidates.

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
        mined = self.overview["shard"][self.overview["query_id"] == query_id].tolist()
        if not mined:
            split = self._split.get(query_id)
            why = (
                "the collection has no such query" if split is None else f"it is a query of {split}"
            )
            raise AnmiError(f"nothing was mined for this query, since {why}")
        asked = self.queries[self.queries["query_id"] == query_id].iloc[0]
        block = self._block(mined[0])
        block = block.take(np.flatnonzero(block.query_ids == query_id))
        told = explain(block, self.corpus, self.fused, str(asked["text"]), self.seed, self.wanted)
        uncertainties = uncertainty(block)[0]
        for candidate in told["candidates"]:
            candidate["uncertainty"] = float(uncertainties[candidate["place"] - 1])
        for document in (*told["positives"], *told["candidates"]):
            document.update(self._texts(self._documents[document["document_id"]], SHOWN))
        return told | {
            "query_id": query_id,
            "text": str(asked["text"])[:LONGEST],
            "split": str(asked["split"]),
        }

    def _block(self, number: int) -> Candidates:
        files = self.selection.files
        if files:
            return next(iter(CandidateShards.read([files[number]])))
        return next(islice(iter(self.selection), number, None))

    def found(self, question: str, k: int) -> dict[str, list[Hit]]:
        """Return what each system finds, by its name."""
        if self.search is None:
            raise AnmiError("there is no trained search yet: `kedro run` makes one")
        # Indexes and models are not all made for several threads.
        with self._searching:
            hits = self.search.by_system(question, k)
            if self.zero_shot is None:
                return hits
            zero_shot = self.zero_shot.hits(question, k, self.search)
        return {"zero_shot": zero_shot, **hits}
