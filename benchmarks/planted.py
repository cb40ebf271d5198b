"""Collections with planted truth, for benchmarks: some relevant documents are known to us and not to any judge."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from numpy.typing import NDArray
from scipy import sparse

import common
from anmi import seeds
from anmi.candidates import PADDING, Candidates, CandidateShards
from anmi.corpus.related import COPY
from anmi.corpus.sources import load_collection
from anmi.corpus.texts import document_texts
from anmi.evaluation.significance import Share, share
from anmi.judging.evidence import Material, Terms, facts_of, gather
from anmi.judging.fused import features
from anmi.pipelines.dense.nodes import make_corpus_encoder
from anmi.pipelines.params import DenseParams
from anmi.retrieval import pool
from anmi.retrieval.bm25 import BM25Index
from anmi.retrieval.encoders import Encoder, Role, place_of
from anmi.retrieval.exact import similarities
from anmi.retrieval.index import DenseIndex
from anmi.retrieval.kinds import EncoderSettings
from anmi.retrieval.pool import RelatedDocuments
from anmi.retrieval.terms import counted
from anmi.retrieval.tokenize import tokenizer
from anmi.selection.recipe import Recipe, Runner
from anmi.store import Store
from common import DATA

WORK = common.WORK / "mining_quality"
DEBIAN = WORK / "debian"
SEED = 42
DEPTH = 100
TOKENS = 128
SUPERSETS = 4
# Name: collection, which truth is planted, most queries.
COLLECTIONS = {
    "kg_webnlg/beir_en": (f"beir:{DATA}/kg_webnlg/beir_en", "all", 3000),
    "api_docs": ("api_docs", "equivalents", 3000),
    "medquad": (f"beir:{DATA}/medquad", "hidden", 3000),
    "scifact": (f"beir:{DATA}/scifact", "hidden", 3000),
    "sae4k_ko": (f"beir:{DATA}/sae4k_ko", "hidden", 3000),
    "hinglish_top": (f"beir:{DATA}/hinglish_top", "hidden", 3000),
}
# Never looked at while the judge was made: for the test of what carries over. Made by
# debian_packages.py.
UNTUNED = {"debian_packages": (f"beir:{DEBIAN}", "hidden", 3000)}


def planted(
    names: Sequence[str], encoder: str, half: bool = False, work: Path = WORK
) -> list[Planted]:
    """Return collections, from ``work`` where an earlier script kept them.

    With ``half`` only half of what is relevant to a query is hidden, so that a judge can learn from
    the rest.
    """
    result = []
    for name in names:
        folder = work / "planted" / f"{name.replace('/', '-')}-{encoder}{'-half' if half else ''}"
        if not (folder / "truth.npz").exists():
            plant(name, "half" if half else (COLLECTIONS | UNTUNED)[name][1], encoder, work).save(
                folder
            )
        result.append(Planted.load(name, folder))
        print(
            f"{name} ({encoder}): {len(result[-1].block)} queries, {int(result[-1].truth.sum())}"
            " planted",
            flush=True,
        )
    return result


@dataclass(frozen=True)
class Planted:
    """A block with its evidence, which of its candidates are in truth relevant [Q, M], and made-up supersets [m, K]."""

    name: str
    block: Candidates
    truth: NDArray[np.bool_]
    supersets: NDArray[np.float32]

    def save(self, folder: Path) -> None:
        """Keep the collection for the next script."""
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(self.block.to_table(), folder / "block.parquet")
        np.savez(folder / "truth.npz", truth=self.truth, supersets=self.supersets)

    @staticmethod
    def load(name: str, folder: Path) -> Planted:
        """Open a kept collection."""
        arrays = np.load(folder / "truth.npz")
        block = Candidates.from_table(pq.read_table(folder / "block.parquet"))
        return Planted(name, block, arrays["truth"], arrays["supersets"])

    def select(
        self, negatives: int, steps: dict[str, Any], **columns: NDArray[Any]
    ) -> tuple[Candidates, Share]:
        """Choose negatives with columns of a judge; return them, and which share of them is relevant in truth."""
        runner = Runner(Recipe(description="", negatives=negatives, steps=steps), SEED)
        block = runner.run(CandidateShards.of([self.block.with_columns(columns)])).whole()
        return block, share((self.truth & block.negatives).sum(axis=1), block.negatives.sum(axis=1))

    @property
    def collection(self) -> str:
        """Where the queries come from."""
        return self.name.split(",")[0]

    @property
    def without(self) -> str | None:
        """Whose truth had no part in the coefficients; None where that of none of the six is asked about."""
        return self.collection if self.collection in COLLECTIONS else None


@cache
def kept_in(work: Path) -> Store:
    """Return the store of a folder, which a process may open but once."""
    return Store(work / "store")


@dataclass(frozen=True)
class Opened:
    """A collection that was read: its texts and what embeds them."""

    name: str
    read: Any
    texts: list[str]
    embed: Callable[[list[str], str], NDArray[np.float32]]

    @staticmethod
    def of(name: str, encoder: str, work: Path = WORK) -> Opened:
        """Read a collection; embeddings are kept in ``work``."""
        read, store = load_collection((COLLECTIONS | UNTUNED)[name][0], seed=SEED), kept_in(work)
        own = make_corpus_encoder(
            corpus=read.corpus,
            new_documents=read.corpus[:0],
            encoder=encoder,
            params=DenseParams(),
            seed=SEED,
            store=store,
        )
        settings = EncoderSettings(encoder=place_of(encoder, own), max_length=TOKENS)
        opened = Encoder(settings, store.path / "models", store)

        def embed(texts: list[str], role: Role) -> NDArray[np.float32]:
            return opened.encode(texts, role, f"{name}: {role}")

        return Opened(name, read, document_texts(read.corpus), embed)

    def material(self, ids: Sequence[str], more: Sequence[str] = ()) -> Material:
        """Return what evidence on the queries is gathered from; ``more`` are texts behind the corpus."""
        asked = self.read.queries.set_index("query_id").text
        vectors = self.embed(self.texts, "document")
        terms = Terms.build(self.texts, tokenizer("auto", self.read.language))
        if more:
            held = counted(terms.tokenize(more), terms.vocabulary, grow=False)
            own, terms = (
                terms,
                replace(terms, counts=sparse.vstack([terms.counts, held], format="csr")),
            )
            # Weighted by the statistics of the corpus.
            vars(terms).update(idf=own.idf, mean_length=own.mean_length)
            vectors = np.concatenate([vectors, self.embed(list(more), "document")])
        texts = {query: asked[query] for query in ids}
        return Material(terms, texts, vectors, facts_of(self.read.corpus, self.read.graph))


def plant(name: str, kind: str, encoder: str, work: Path) -> Planted:
    """Read a collection, hide some of its truth, and gather evidence on the dense top of every query.

    ``equivalents`` are queries whose equivalents the collection knows; ``all`` are all queries, and
    truth is the equivalents there are; ``hidden`` are queries with several positives, of which one
    stays known; ``half`` are queries with several documents that are relevant by labels or
    equivalents, of which half are hidden, rounded down.
    """
    opened = Opened.of(name, encoder, work)
    read, texts = opened.read, opened.texts
    train = read.queries[read.queries.split == "train"].set_index("query_id").text
    labels = read.qrels[read.qrels.query_id.isin(train.index) & (read.qrels.relevance > 0)]
    if kind == "half":
        found = read.equivalents[read.equivalents.query_id.isin(labels.query_id)].assign(
            relevance=1
        )
        labels = pd.concat([labels, found]).drop_duplicates(["query_id", "document_id"])
    ids = _queries(train, labels, read.equivalents, kind, (COLLECTIONS | UNTUNED)[name][2])
    number = {document: row for row, document in enumerate(read.corpus.document_id)}
    positives = pool.Positives(labels, number).of(ids)
    known, hidden = positives, np.full((len(ids), 0), PADDING)
    if kind in ("hidden", "half"):
        known, hidden = _split(ids, positives, half=kind == "half")
    relevant = (
        hidden
        if kind == "half"
        else np.concatenate([hidden, _equivalents(ids, read.equivalents, number)], axis=1)
    )
    copies = read.duplicates.rename(columns={"duplicate_of": "other_id"}).assign(kind=COPY)
    related = RelatedDocuments.from_table(copies, read.corpus.document_id.tolist())
    group = related.first_of_text

    queries = [train[query] for query in ids]
    vectors, asked = opened.embed(texts, "document"), opened.embed(queries, "query")
    excluded = related.same_text(known)
    found, _ = DenseIndex.build(vectors, read.corpus.document_id.tolist()).search(
        asked, DEPTH + excluded.shape[1]
    )
    documents = pool.compacted(pool.without(found, excluded))[0][:, :DEPTH].astype(np.int32)
    index = BM25Index.build(texts, read.language)
    # A copy of a relevant document is relevant too.
    truth = (
        group[np.maximum(documents, 0)][:, :, None] == _grouped(relevant, group)[:, None, :]
    ).any(axis=2)

    rows, made = supersets(ids, documents, known, texts)
    material = opened.material(ids, made)
    block = Candidates(
        query_ids=np.array(ids),
        positives=known.astype(np.int32),
        documents=documents,
        source=np.full(documents.shape, 2, np.uint8),
        columns={
            "dense": similarities(asked, vectors, documents),
            "bm25": index.search_and_look(queries, 1, documents)[2],
            "dense_rank": np.where(
                documents >= 0, np.arange(1, documents.shape[1] + 1, dtype=np.float32), np.nan
            ),
        },
        positive_columns={
            "dense": similarities(asked, vectors, known.astype(np.int32)),
            "bm25": index.search_and_look(queries, 1, known.astype(np.int32))[2],
        },
    )
    extra = _superset_inputs(block, rows, len(texts), asked, material)
    return Planted(name, gather(block, material), truth & block.filled, extra)


def _queries(
    train: pd.Series, labels: pd.DataFrame, equivalents: pd.DataFrame, kind: str, cap: int
) -> list[str]:
    count = labels.groupby("query_id").document_id.nunique().reindex(train.index).fillna(0)
    wanted = {
        "hidden": count >= 2,
        "half": count >= 2,
        "equivalents": (count >= 1) & train.index.isin(equivalents.query_id),
        "all": count >= 1,
    }[kind]
    ids = train.index[wanted.to_numpy()].tolist()
    keys = np.array([seeds.key(SEED, "benchmark/queries", query)[0] for query in ids], np.uint64)
    return [ids[i] for i in np.sort(np.argsort(keys, kind="stable")[:cap])]


def _split(
    ids: Sequence[str], positives: NDArray[np.int32], *, half: bool
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """One positive of each query stays known, or half of them rounded up; the query's own stream draws which."""
    draws = np.where(
        positives == PADDING, 2.0, seeds.uniform(SEED, "benchmark/known", list(ids), positives)
    )
    order = np.argsort(draws, axis=1, kind="stable")
    ordered = np.take_along_axis(positives, order, axis=1)
    if not half:
        return ordered[:, :1], ordered[:, 1:]
    stays = (
        np.arange(ordered.shape[1]) < (np.sum(positives != PADDING, axis=1, keepdims=True) + 1) // 2
    )
    known, hidden = (np.where(mask, ordered, PADDING) for mask in (stays, ~stays))
    return known[:, : (ordered.shape[1] + 1) // 2], hidden


def _equivalents(
    ids: Sequence[str], equivalents: pd.DataFrame, number: dict[str, int]
) -> NDArray[np.int32]:
    table = equivalents[equivalents.query_id.isin(set(ids))].assign(relevance=1)
    return pool.Positives(table, number).of(list(ids))


def _grouped(documents: NDArray[np.int32], group: NDArray[np.int32]) -> NDArray[np.int32]:
    return np.where(documents == PADDING, -2, group[np.maximum(documents, 0)])


def supersets(
    ids: Sequence[str], documents: NDArray[np.int32], known: NDArray[np.int32], texts: Sequence[str]
) -> tuple[NDArray[np.int64], list[str]]:
    """Made-up relevant documents: the known positive and one of the nearest 60 others in one text, either one first."""
    rng = seeds.stream(SEED, "benchmark/supersets", "rows")
    rows = np.sort(rng.choice(len(ids), min(400, len(ids)), replace=False))
    last = np.minimum((documents[rows] != PADDING).sum(axis=1), 60)
    picks = documents[
        rows[:, None], (rng.random((len(rows), SUPERSETS)) * last[:, None]).astype(int)
    ]
    first = rng.random(picks.shape) < 0.5
    pairs = [
        (texts[known[row, 0]], texts[other], lead)
        for row, others, leads in zip(rows, picks, first, strict=True)
        for other, lead in zip(others, leads, strict=True)
    ]
    return rows, [f"{own} {other}" if lead else f"{other} {own}" for own, other, lead in pairs]


def _superset_inputs(
    block: Candidates,
    rows: NDArray[np.int64],
    first: int,
    asked: NDArray[np.float32],
    material: Material,
) -> NDArray[np.float32]:
    """Inputs of the fused judge for the made-up documents, [m, K]."""
    made = (first + np.arange(len(rows) * SUPERSETS)).reshape(len(rows), SUPERSETS).astype(np.int32)
    part = block.take(rows)
    vectors = material.vectors
    those = Candidates(
        query_ids=part.query_ids,
        positives=part.positives,
        documents=made,
        source=np.zeros(made.shape, np.uint8),
        columns={"dense": similarities(asked[rows], vectors, made)},
        positive_columns={"dense": part.positive_columns["dense"]},
    )
    # The made-up ones state no fact of a graph, and no input of the judge is made of facts.
    without_facts = replace(material, facts=None)
    return features(gather(those, without_facts)).reshape(len(rows) * SUPERSETS, -1)
