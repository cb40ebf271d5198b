"""What a miner gets, what it returns, and how that is scored; README.md says it in words."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from anmi import seeds
from anmi.corpus.sources import load_collection
from anmi.corpus.texts import document_texts, normalised
from anmi.errors import AnmiError
from anmi.evaluation.metrics import completed_judgments, evaluate
from anmi.evaluation.retrieval import Ranking
from anmi.evaluation.significance import share
from anmi.retrieval.encoders import Encoder, load_encoder
from anmi.retrieval.fusion import Ranked
from anmi.retrieval.index import DenseIndex
from anmi.seeds import position
from anmi.training.options import TrainingOptions
from anmi.training.trainer import train
from common import DATA, METRIC, MODELS, write_beir

NEGATIVES: Final = 7
MOST_QUERIES: Final = 3000
SEED: Final = 42
# By name: what is read. Truth beyond the labels is known of the first two, and made of further
# positives in the others.
COLLECTIONS: Final = {
    "kg_webnlg": f"beir:{DATA}/kg_webnlg/beir_en",
    "api_docs": "api_docs",
    "medquad": f"beir:{DATA}/medquad",
    "scifact": f"beir:{DATA}/scifact",
}


@dataclass(frozen=True)
class Task:
    """A collection as a miner sees it, and what only the score knows."""

    name: str
    corpus: pd.DataFrame
    # ``query_id, text`` of training.
    queries: pd.DataFrame
    # ``query_id, document_id``: the labels that a miner gets, one per query where further ones are
    # the truth.
    known: pd.DataFrame
    # The same of all documents that are relevant, known ones and copies included.
    relevant: pd.DataFrame
    # Queries that training never saw, and what is relevant to them by the collection's own truth.
    test_queries: pd.DataFrame
    test_judgments: pd.DataFrame

    @staticmethod
    def of(name: str) -> Task:
        """Read a collection."""
        if name not in COLLECTIONS:
            raise AnmiError(
                f'there is no collection "{name}" on the board: take one of'
                f" {', '.join(COLLECTIONS)}"
            )
        read = load_collection(COLLECTIONS[name], seed=SEED)
        queries = read.queries[["query_id", "text", "split"]]
        labels = read.qrels[read.qrels.relevance > 0]
        train, test = (
            queries[(queries.split == s) & queries.query_id.isin(labels.query_id)]
            for s in ("train", "test")
        )
        # One query of each text: a reader that merges equal queries would learn the labels of one
        # from the other.
        train = train[
            ~pd.Series([normalised(text) for text in train.text], index=train.index).duplicated()
        ]
        order = np.argsort(position(SEED, "board/queries", train.text.tolist()), kind="stable")[
            :MOST_QUERIES
        ]
        train = train.iloc[np.sort(order)]
        labels = labels[labels.query_id.isin(train.query_id)][["query_id", "document_id"]]
        equivalents = read.equivalents[read.equivalents.query_id.isin(train.query_id)][
            ["query_id", "document_id"]
        ]
        known = labels if len(read.equivalents) else one_each(labels)
        own = read.qrels[read.qrels.query_id.isin(test.query_id)]
        return Task(
            name,
            read.corpus,
            train[["query_id", "text"]].reset_index(drop=True),
            known.reset_index(drop=True),
            with_copies(pd.concat([labels, equivalents]), read.duplicates),
            test[["query_id", "text"]],
            completed_judgments(own, read.equivalents) if len(read.equivalents) else own,
        )

    def write(self, folder: Path) -> None:
        """Write what a miner gets as a BEIR folder: corpus, queries and known labels of training."""
        labels = self.known.assign(relevance=1, split="train")
        write_beir(folder, self.corpus, self.queries, labels)


def one_each(labels: pd.DataFrame) -> pd.DataFrame:
    """Return one label of each query, drawn by the ids, so that the others are a truth that no miner knows."""
    drawn = [
        seeds.key(SEED, "board/known", f"{q}\t{d}")[0] for q, d in labels.itertuples(index=False)
    ]
    return (
        labels.assign(drawn=drawn)
        .sort_values("drawn", kind="stable")
        .drop_duplicates("query_id")[labels.columns]
    )


def with_copies(pairs: pd.DataFrame, duplicates: pd.DataFrame) -> pd.DataFrame:
    """Return pairs with every copy of their documents beside them."""
    original = duplicates.set_index("document_id").duplicate_of
    firsts = pairs.assign(document_id=pairs.document_id.map(original).fillna(pairs.document_id))
    copies = firsts.merge(
        duplicates, left_on="document_id", right_on="duplicate_of", suffixes=("", "_copy")
    )
    copies = copies[["query_id", "document_id_copy"]].rename(
        columns={"document_id_copy": "document_id"}
    )
    return pd.concat([pairs, firsts, copies]).drop_duplicates().reset_index(drop=True)


def read_submission(path: Path, task: Task) -> pd.DataFrame:
    """Return ``query_id, rank, document_id`` of lines such as ``{"query_id": "q1", "negative_ids": ["d7"]}``."""
    queries, documents = set(task.queries.query_id), set(task.corpus.document_id)
    rows: list[tuple[str, int, str]] = []
    seen: set[str] = set()
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        where = f"{path}, line {number}"
        try:
            given = json.loads(line)
            query, negatives = given["query_id"], given["negative_ids"]
        except (ValueError, KeyError, TypeError):
            raise AnmiError(
                f'{where}: expected {{"query_id": …, "negative_ids": […]}}, as README.md shows'
            ) from None
        if query not in queries or query in seen:
            raise AnmiError(
                f'{where}: "{query}" is {"here twice" if query in seen else "no query of training"}'
            )
        if (
            not isinstance(negatives, list)
            or len(negatives) > NEGATIVES
            or len(set(negatives)) < len(negatives)
        ):
            raise AnmiError(
                f'{where}: "{query}" must have at most {NEGATIVES} negatives, all different'
            )
        if unknown := [document for document in negatives if document not in documents]:
            raise AnmiError(f'{where}: there is no document "{unknown[0]}" in {task.name}')
        seen.add(query)
        rows += [(query, rank, document) for rank, document in enumerate(negatives, start=1)]
    return pd.DataFrame(rows, columns=["query_id", "rank", "document_id"])


def score(task: Task, chosen: pd.DataFrame) -> dict[str, Any]:
    """Return how clean, how hard and how complete negatives are.

    False negatives are counted on queries that are known to have more relevant documents than the
    labels say; the interval is over queries. The gap is the mean over negatives of the positive's
    cosine minus the negative's by the untrained encoder: the smaller, the harder.
    """
    true = chosen.merge(task.relevant, on=["query_id", "document_id"]).groupby("query_id").size()
    known = task.known.groupby("query_id").size().reindex(task.queries.query_id, fill_value=0)
    more = task.relevant.groupby("query_id").size().reindex(known.index, fill_value=0) > known
    counted = chosen[chosen.query_id.isin(more.index[more])].groupby("query_id").size()
    rate = share(true.reindex(counted.index, fill_value=0).to_numpy(), counted.to_numpy(), seed=1)
    filled = chosen.groupby("query_id").size().reindex(task.queries.query_id, fill_value=0)
    return {
        "false_negative_rate": round(rate.value, 5),
        "low": round(rate.low, 5),
        "high": round(rate.high, 5),
        "gap": round(gap(task, chosen), 4),
        "coverage": round(float((filled == NEGATIVES).mean()), 4),
        "queries": len(task.queries),
        "counted_queries": rate.queries,
    }


def gap(task: Task, chosen: pd.DataFrame) -> float:
    """Return the mean over negatives of the nearest known positive's cosine minus the negative's."""
    model = load_encoder("static", MODELS)
    documents = Encoder.of(model).encode(document_texts(task.corpus), "document")
    queries = Encoder.of(model).encode(task.queries.text.tolist(), "query")
    row = dict(zip(task.queries.query_id, range(len(task.queries)), strict=True))
    place = dict(zip(task.corpus.document_id, range(len(task.corpus)), strict=True))

    def cosines(pairs: pd.DataFrame) -> NDArray[np.float64]:
        sides = queries[pairs.query_id.map(row)], documents[pairs.document_id.map(place)]
        return np.einsum("rd,rd->r", *sides).astype(np.float64)

    positive = task.known.assign(cosine=cosines(task.known)).groupby("query_id").cosine.max()
    return float((chosen.query_id.map(positive) - cosines(chosen)).mean())


def trained(task: Task, chosen: pd.DataFrame, seed: int = 1) -> float:
    """Return nDCG@10 on test queries of the encoder trained on the negatives with ANMI's defaults, no dev cut."""
    texts = pd.Series(document_texts(task.corpus), index=task.corpus.document_id)
    negatives = chosen.sort_values(["query_id", "rank"]).groupby("query_id").document_id.agg(list)
    labels = task.known.groupby("query_id").document_id.agg(list)
    rows = task.known.merge(task.queries, on="query_id").rename(
        columns={"text": "query", "document_id": "positive_id"}
    )
    rows["negative_ids"] = [negatives.get(query, []) for query in rows.query_id]
    rows = rows.assign(
        positive=rows.positive_id.map(texts),
        query_weight=1.0,
        positive_ids=rows.query_id.map(labels),
        negatives=[texts[ids].tolist() for ids in rows.negative_ids],
        weights=[[1.0] * len(ids) for ids in rows.negative_ids],
    )
    model = train(
        rows,
        encoder=load_encoder("static", MODELS),
        options=TrainingOptions(negatives=NEGATIVES),
        output=None,
        seed=seed,
    ).model
    ids = task.corpus.document_id.tolist()
    index = DenseIndex.build(Encoder.of(model).encode(texts.tolist(), "document"), ids)
    ranking = Ranking.of(task.test_queries, task.test_judgments, task.corpus, 10)
    queries = Encoder.of(model).encode(task.test_queries.text.tolist(), "query")
    run = ranking.run(lambda count: Ranked(*index.search(queries, count)))
    table = evaluate(task.test_judgments, run, (10,))
    return round(float(table[METRIC].mean()), 4)
