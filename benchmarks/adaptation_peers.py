"""What stands beside ``anmi`` in benchmarks/results/adaptation.json: peers by sentence-transformers, and MiniLM.

``mine_hard_negatives``: the library's miner (top 5 below 95 % of the positive's score) with its
MultipleNegativesRankingLoss. ``simcse``: every document against itself under dropout, the same loss (arXiv 2104.08821);
it needs an encoder with dropout. ``anmi`` with MiniLM: one pass. Trained models stay in ``--work``, so the script may
be interrupted. From the repository's root, and afterwards ``python benchmarks/adaptation.py --collect``:

    ANMI_DATA_ROOT=data/peers/scifact kedro run --pipelines mining --params collection=beir:../shared/data/scifact
    python benchmarks/adaptation_peers.py mine_hard_negatives scifact static data/peers/scifact --seeds 1 2 3
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from anmi.adaptation.held_out import splits
from anmi.corpus.texts import document_texts
from anmi.evaluation import generalisation
from anmi.evaluation.metrics import completed_judgments, evaluate
from anmi.evaluation.retrieval import Ranking, vectors
from anmi.retrieval.bm25 import BM25Index
from anmi.retrieval.dense import DenseIndex
from anmi.retrieval.encoders import load_encoder
from anmi.retrieval.fusion import Ranked, fuse
from anmi.retrieval.index import spread_of_scores
from anmi.retrieval.related import RelatedDocuments
from anmi.search.fit import fit_on_dev
from anmi.training.options import TrainingOptions
from anmi.training.pseudo import PseudoRows
from anmi.training.trainer import save, train

ROOT = Path(__file__).parents[1]
WORK = ROOT / "data" / "benchmarks" / "ablation"
# As `adaptation.held_out` and `seed` are by default.
HELD_OUT, SEED = 0.1, 1
DEPTH = 100
EPOCHS = {"static": 5, "minilm": 1}
RATES = {"static": 2e-2, "minilm": 5e-5}
# Short texts and few negatives: an epoch of MiniLM takes half an hour of one core like this.
MINILM = {
    "pseudo_queries": {"kinds": ["title", "cloze"], "batch_size": 128}, "epochs": 1, "negatives": 3, "batch_size": 32,
    "max_length": 128, "recompute": False, "learning_rate": RATES["minilm"],
}  # fmt: skip


class Mined:
    """The artifacts of the last mining in a data root."""

    def __init__(self, root: Path) -> None:
        self._root = root
        for name in ("corpus", "queries", "qrels", "related_documents", "equivalents"):
            setattr(self, name, self.table(f"ingestion/{name}.parquet"))
        self.corpus: pd.DataFrame
        self.queries: pd.DataFrame
        self.qrels: pd.DataFrame
        self.texts = document_texts(self.corpus)
        self.document_ids = self.corpus.document_id.tolist()

    def newest(self, path: str) -> Path:
        """Return the newest version of an artifact."""
        return sorted((self._root / path).glob(f"*/{Path(path).name}"))[-1]

    def table(self, path: str) -> pd.DataFrame:
        """Return an artifact that is a table."""
        return pd.read_parquet(self.newest(path))

    def asked(self, split: str) -> pd.DataFrame:
        """Return the labelled queries of a split."""
        of = self.queries.split == split
        return self.queries[of & self.queries.query_id.isin(self.qrels.query_id)]

    def pairs(self, of: tuple[str, ...]) -> pd.DataFrame:
        """Return ``query_id, anchor, positive`` of splits."""
        found = self.qrels[self.qrels.relevance > 0].merge(self.queries[self.queries.split.isin(of)], on="query_id")
        texts = pd.Series(self.texts, index=self.document_ids)
        return pd.DataFrame({
            "query_id": found.query_id, "anchor": found.text, "positive": found.document_id.map(texts),
        })  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("system", choices=["mine_hard_negatives", "simcse", "anmi"])
    parser.add_argument("collection", help="its name in the table")
    parser.add_argument("encoder", choices=["static", "minilm"])
    parser.add_argument("mined", type=Path, help="data root of a mining of the collection with that encoder")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--work", type=Path, default=WORK)
    asked = parser.parse_args()
    mined = Mined(asked.mined)
    for seed in asked.seeds:
        folder = asked.work / "peers" / f"{asked.collection}-{asked.encoder}-{asked.system}-{seed}".replace("/", "_")
        began = time.monotonic()
        if not (folder / "model").is_dir():
            make = anmi if asked.system == "anmi" else peer
            save(make(mined, asked.system, asked.encoder, seed), folder / "model")
        trained = ("train",)
        measured = systems(mined, asked.system, asked.encoder, folder, trained)
        about = {"collection": asked.collection, "encoder": asked.encoder, "seed": seed}
        tables = [
            pd.DataFrame(columns).assign(**about, system=system, labels=labels, judgments=judgments)
            for system, labels, by_judgments in measured
            for judgments, columns in by_judgments.items()
        ]
        pd.concat(tables).to_parquet(folder / "queries.parquet", index=False)
        print(f"{folder.name}: {time.monotonic() - began:.0f} s", flush=True)


def fresh(name: str) -> Any:
    """Return an untrained encoder."""
    return load_encoder(name, ROOT / "data" / "store" / "models")


def peer(mined: Mined, system: str, encoder: str, seed: int) -> Any:
    """Train by sentence-transformers alone."""
    from datasets import Dataset
    from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
    from sentence_transformers.losses import MultipleNegativesRankingLoss
    from sentence_transformers.util import mine_hard_negatives

    model = fresh(encoder)
    if system == "simcse" and encoder == "static":
        raise SystemExit("a static encoder has no dropout, without which SimCSE compares every text with itself")
    if system == "simcse":
        data = Dataset.from_dict({"anchor": mined.texts, "positive": mined.texts})
        model.max_seq_length = MINILM["max_length"]
    else:
        pairs = mined.pairs(("train",))[["anchor", "positive"]]
        data = mine_hard_negatives(
            Dataset.from_pandas(pairs, preserve_index=False), model, corpus=mined.texts, relative_margin=0.05,
            range_max=100, num_negatives=5, sampling_strategy="top", output_format="n-tuple", batch_size=64,
        )  # fmt: skip
    arguments = SentenceTransformerTrainingArguments(
        output_dir=tempfile.mkdtemp(), num_train_epochs=EPOCHS[encoder], per_device_train_batch_size=64, seed=seed,
        learning_rate=RATES[encoder], warmup_steps=0.1, save_strategy="no", report_to="none", use_cpu=True,
        disable_tqdm=True, bf16=encoder == "minilm", batch_sampler="no_duplicates",
    )  # fmt: skip
    torch.manual_seed(seed)
    SentenceTransformerTrainer(
        model=model, args=arguments, train_dataset=data, loss=MultipleNegativesRankingLoss(model)
    ).train()
    if system == "simcse":
        model.max_seq_length = fresh(encoder).max_seq_length
    return model


def anmi(mined: Mined, system: str, encoder: str, seed: int) -> Any:
    """Train MiniLM on labels, mined negatives and pseudo-queries, once over."""
    options = TrainingOptions(**MINILM)
    pseudo, model = mined.table("02_intermediate/pseudo_queries.parquet"), fresh(encoder)
    kinds = [kind for kind in options.pseudo_queries.kinds if kind in set(pseudo.kind)]
    related = RelatedDocuments.from_table(mined.related_documents, mined.document_ids)
    rows = mined.table("05_model_input/training_rows.parquet")
    return train(
        rows, encoder=model, options=options, output=None, seed=seed,
        pseudo=PseudoRows(pseudo, kinds, related, mined.document_ids),
    ).model  # fmt: skip


def systems(mined: Mined, system: str, encoder: str, folder: Path, trained: tuple[str, ...]) -> list[Any]:
    """Return name, share of the labels and the measured queries of every system."""
    model = load_encoder(str(folder / "model"), folder)
    labels = 0.0 if system == "simcse" else 1.0
    if system != "anmi":
        return [(system, labels, measured(mined, vectors(model, mined.texts, "document"), model, trained)[1])]
    zero = measured(mined, vectors(fresh(encoder), mined.texts, "document"), fresh(encoder), trained)
    found = [("zero_shot", 0.0, zero[1]), ("bm25", 0.0, zero[3]), ("zero_shot_hybrid", 0.0, zero[2])]
    own = measured(mined, vectors(model, mined.texts, "document"), model, trained)
    found += [("anmi", 1.0, own[1]), ("anmi_hybrid", 1.0, own[2])]
    return found


def measured(mined: Mined, documents: Any, model: Any, trained: tuple[str, ...]) -> tuple[float, Any, Any, Any]:
    """Return nDCG@10 on dev, and by judgments the test queries of the encoder, of the hybrid, and of BM25."""
    bm25, index = BM25Index.load(mined.newest("03_primary/bm25_index")), DenseIndex.build(documents, mined.document_ids)

    def ranked(asked: pd.DataFrame) -> tuple[Ranking, Ranked]:
        ranking = Ranking.of(asked, mined.qrels, mined.document_ids, DEPTH)
        found = index.search(vectors(model, asked.text.tolist(), "query"), ranking.searched)
        return ranking, Ranked(*ranking.lists(*found))

    dev, asked = mined.asked("dev"), mined.asked("test")
    ranking, dense = ranked(dev)
    dev_run = ranking.run(dense.documents, dense.scores).assign(retriever="dense")
    on_dev = float(evaluate(mined.qrels[mined.qrels.query_id.isin(dev.query_id)], dev_run, (10,))["ndcg@10"].mean())
    spread = spread_of_scores(vectors(model, dev.text.tolist(), "query"), documents)
    positives = set(mined.qrels.document_id[mined.qrels.query_id.isin(mined.asked("train").query_id)])
    weights = fit_on_dev(
        dev_run, bm25, mined.corpus, mined.queries, mined.qrels, positives=positives, spreads={"dense": spread},
        depth=DEPTH, seed=1,
    ).weights  # fmt: skip
    ranking, dense = ranked(asked)
    lexical_found, lexical_scores, lexical_spread = bm25.search_and_spread(asked.text.tolist(), ranking.searched)
    lexical = Ranked(*ranking.lists(lexical_found, lexical_scores))
    fused = fuse({"bm25": lexical, "dense": dense}, DEPTH, {"bm25": lexical_spread, "dense": spread}, "convex", weights)
    away = set(np.array(mined.document_ids)[splits(mined.texts, SEED, HELD_OUT) != "train"])
    of = [
        by_judgments(ranking.run(*part), asked, mined, trained, away)
        for part in ((dense.documents, dense.scores), (fused.documents, fused.scores), tuple(lexical))
    ]
    return on_dev, *of


def by_judgments(
    run: pd.DataFrame, asked: pd.DataFrame, mined: Mined, trained: tuple[str, ...], away: set[str]
) -> dict[str, dict[str, list[Any]]]:
    """Return for original and, where truth is known, completed judgments the columns of a table of queries."""
    own = mined.qrels[mined.qrels.query_id.isin(asked.query_id)]
    judgments = {"original": own}
    if len(mined.equivalents):
        judgments["completed"] = completed_judgments(own, mined.equivalents)
    positives = generalisation.trained_positives(mined.qrels[["query_id", "split"]], mined.qrels, trained)
    bucket = generalisation.buckets(asked.query_id, mined.qrels, positives, away).tolist()
    ids = asked.query_id.tolist()
    return {
        name: {"query_id": ids, "documents": bucket}
        | {"ndcg@10": evaluate(labels, run, (10,), ignore_identical_ids=False).loc[ids, "ndcg@10"].tolist()}
        for name, labels in judgments.items()
    }


if __name__ == "__main__":
    main()
