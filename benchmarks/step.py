"""A step of training a table of token vectors, beside that of sentence-transformers: step.json.

Both train the corpus's own encoder of `api_docs` on the same pairs, each document's title and its
text, in batches of 256 with the positives of the others as negatives, in float32 on the processor.
They take turns; seconds and processor seconds are those of whole trainings, divided by their steps,
and nDCG@10 is that of the titles among all texts before and after. Four minutes on two cores.

    python benchmarks/step.py
"""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from datasets import Dataset

from anmi.corpus.sources import load_collection
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
OURS: Final = "anmi"
PEER: Final = "sentence-transformers"


def pairs() -> tuple[pd.DataFrame, list[str]]:
    """Return a row for each document with a title of its own, and the texts of all documents."""
    corpus = load_collection("api_docs", seed=SEED).corpus
    named = corpus[(corpus.title != "") & (corpus.text != "")]
    named = named.drop_duplicates("title").drop_duplicates("text")
    ids = named.document_id.tolist()
    columns = {"query_id": ids, "query": named.title, "positive_id": ids, "positive": named.text}
    rows = pd.DataFrame(columns).assign(query_weight=1.0, positive_ids=[[name] for name in ids])
    for name in ("negative_ids", "negatives", "weights"):
        rows[name] = [[] for _ in ids]
    return rows.reset_index(drop=True), named.text.tolist()


def train_ours(model: Any, rows: pd.DataFrame) -> None:
    options = {
        "epochs": EPOCHS,
        "batch_size": BATCH,
        "learning_rate": RATE,
        "temperature": {"fixed": {"value": TEMPERATURE}},
        "alpha": 1.0,
    }
    train(rows, encoder=model, options=TrainingOptions(**options), output=None, seed=SEED)


def train_theirs(model: Any, rows: pd.DataFrame) -> None:
    data = Dataset.from_dict({"anchor": rows["query"], "positive": rows.positive})
    settings = {"num_train_epochs": EPOCHS, "learning_rate": RATE, "warmup_steps": 0.1}
    train_peer(model, data, MNRL, BATCH, bf16=False, use_cpu=True, seed=SEED, **settings)


def ndcg(model: Any, rows: pd.DataFrame) -> float:
    """Return mean nDCG@10 of the titles, each of which has one text."""
    encoder = Encoder.of(model)
    near = (
        encoder.embed(rows["query"].tolist(), None) @ encoder.embed(rows.positive.tolist(), None).T
    )
    rank = (near >= near.diagonal()[:, None]).sum(axis=1)
    return float(np.where(rank <= 10, 1 / np.log2(1 + rank), 0).mean())


def processor_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def measured(
    make: Callable[[], Any], train_in_place: Callable[[Any, pd.DataFrame], None], rows: pd.DataFrame
) -> dict[str, float]:
    """Return what a step takes, and what the training gave."""
    model = make()
    started = (time.perf_counter(), processor_seconds())
    train_in_place(model, rows)
    ended = (time.perf_counter(), processor_seconds())
    steps = EPOCHS * -(-len(rows) // BATCH)
    wall, processor = ((end - start) / steps for start, end in zip(started, ended, strict=True))
    return {"seconds": wall, "processor_seconds": processor, "ndcg_10": ndcg(model, rows)}


def main() -> None:
    rows, texts = pairs()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "encoder"
        save_corpus_encoder(texts, place, SEED, Store(STORE), "cpu")

        def make() -> Any:
            return load_encoder(str(place), MODELS, device="cpu")

        before = ndcg(make(), rows)
        table_size = list(make()[0].embedding.weight.shape)
        turns: dict[str, list[dict[str, float]]] = {OURS: [], PEER: []}
        for _ in range(TURNS):
            turns[OURS].append(measured(make, train_ours, rows))
            turns[PEER].append(measured(make, train_theirs, rows))
    medians = {name: pd.DataFrame(values).median().to_dict() for name, values in turns.items()}
    lines = [
        {"by": name} | {key: plain(x, 4) for key, x in m.items()} for name, m in medians.items()
    ]
    ours, peer = medians.values()
    ratios = {name: plain(ours[name] / peer[name], 3) for name in ("seconds", "processor_seconds")}
    facts = {"pairs": len(rows), "batch": BATCH, "epochs": EPOCHS, "turns": TURNS}
    facts |= {"table": table_size, "ndcg_10_before": plain(before, 4)}
    save("step", {"about": about(), **facts, "rows": lines, "ours_over_peer": ratios})
    print(lines, ratios, facts)


if __name__ == "__main__":
    main()
