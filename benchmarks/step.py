"""A step of training a table of token vectors, beside that of sentence-transformers: step.json.

Both train the corpus's own encoder of `api_docs` on the same labelled pairs, in batches of 256 with the
positives of the others as negatives, in float32 on the processor, from one start. They take turns;
seconds and processor seconds are those of whole trainings, divided by their steps, and nDCG@10 is that
of test queries among all documents. Five minutes on two cores.

    python benchmarks/step.py
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from datasets import Dataset

from anmi.corpus.sources import load_collection
from anmi.retrieval import token_table, tokens
from anmi.retrieval.encoders import Encoder, load_encoder, save_corpus_encoder
from anmi.store import Store
from anmi.training.options import TrainingOptions
from anmi.training.trainer import train
from common import MODELS, STORE, about, plain, save
from gpu import MNRL, train_peer

SEED: Final = 1
TURNS: Final = 3
EPOCHS: Final = 3
BATCH: Final = 256
RATE: Final = 1e-2
TEMPERATURE: Final = 0.05


def pairs() -> pd.DataFrame:
    """Return a row for each query and its document, as training reads them, with the query's split."""
    read = load_collection("api_docs", seed=SEED)
    names = {"document_id": "positive_id", "text": "positive"}
    positives = read.corpus[[*names]].rename(columns=names)
    labels = read.qrels[["query_id", "document_id"]].rename(columns=names)
    queries = read.queries.rename(columns={"text": "query"})[["query_id", "query", "split"]]
    rows = labels.merge(queries, on="query_id").merge(positives, on="positive_id")
    rows = rows.drop_duplicates("positive", ignore_index=True).assign(query_weight=1.0)
    for name in ("negative_ids", "negatives", "weights"):
        rows[name] = [[] for _ in range(len(rows))]
    return rows.assign(positive_ids=[[name] for name in rows.positive_id])


def train_ours(model: Any, rows: pd.DataFrame) -> None:
    temperature = {"fixed": {"value": TEMPERATURE}}
    sizes = {"epochs": EPOCHS, "batch_size": BATCH, "learning_rate": RATE}
    options = TrainingOptions(**sizes, temperature=temperature, alpha=1.0)
    train(rows, encoder=model, options=options, output=None, seed=SEED)


def train_theirs(model: Any, rows: pd.DataFrame) -> None:
    data = Dataset.from_dict({"anchor": rows["query"], "positive": rows.positive})
    settings = {"num_train_epochs": EPOCHS, "learning_rate": RATE, "warmup_steps": 0.1}
    train_peer(model, data, MNRL, BATCH, bf16=False, use_cpu=True, seed=SEED, **settings)


TRAININGS: Final = {"anmi": train_ours, "sentence-transformers": train_theirs}


def ndcg(model: Any, rows: pd.DataFrame) -> float:
    """Return mean nDCG@10 of test queries, each of which has one document."""
    encoder = Encoder.of(model)
    is_test = (rows.split == "test").to_numpy()
    queries = encoder.embed(rows["query"][is_test].tolist(), "query")
    near = queries @ encoder.embed(rows.positive.tolist(), "document").T
    own = near[np.arange(len(near)), np.flatnonzero(is_test)]
    rank = (near >= own[:, None]).sum(axis=1)
    return float(np.where(rank <= 10, 1 / np.log2(1 + rank), 0).mean())


def measured(
    model: Any, train_in_place: Callable[[Any, pd.DataFrame], None], rows: pd.DataFrame
) -> dict[str, float]:
    """Return what a step takes where no text was tokenised before."""
    tokens._remembered.cache_clear()
    token_table._known_words.cache_clear()
    started = np.array([time.perf_counter(), time.process_time()])
    train_in_place(model, rows)
    ended = np.array([time.perf_counter(), time.process_time()])
    steps = EPOCHS * -(-len(rows) // BATCH)
    return dict(zip(("seconds", "processor_seconds"), (ended - started) / steps, strict=True))


def main() -> None:
    rows = pairs()
    train_rows = rows[rows.split == "train"].drop(columns="split")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "encoder"
        save_corpus_encoder(rows.positive.tolist(), place, SEED, Store(STORE), "cpu")
        start = load_encoder(str(place), MODELS, device="cpu")
        (table,) = start[0].parameters()
        facts = {"pairs": len(train_rows), "table": list(table.shape)}
        facts["ndcg_10_before"] = plain(ndcg(start, rows), 4)
        turns: dict[str, list[dict[str, float]]] = {name: [] for name in TRAININGS}
        for turn in range(-1, TURNS):
            for name, train_in_place in TRAININGS.items():
                model = load_encoder(str(place), MODELS, device="cpu")
                figures = measured(model, train_in_place, train_rows)
                # The first turn starts libraries.
                if turn >= 0:
                    turns[name].append(figures | {"ndcg_10": ndcg(model, rows)})
    medians = {name: pd.DataFrame(values).median().to_dict() for name, values in turns.items()}
    lines = [
        {"by": name} | {key: plain(x, 4) for key, x in m.items()} for name, m in medians.items()
    ]
    ours, peer = medians.values()
    ratios = {name: plain(ours[name] / peer[name], 3) for name in ("seconds", "processor_seconds")}
    facts |= {"batch": BATCH, "epochs": EPOCHS, "turns": TURNS}
    save("step", {"about": about(), **facts, "rows": lines, "ours_over_peer": ratios})
    print(lines, ratios, facts)


if __name__ == "__main__":
    main()
