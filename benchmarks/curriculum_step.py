"""What a training step with a curriculum costs beside one of sentence-transformers' own loop.

Both train the same encoder on the same rows with equal batches, numbers of negatives, lengths, learning rate and
precision (float32): ours draws 7 of 50 negatives a row in every step by learning progress, theirs is
``SentenceTransformerTrainer`` with ``MultipleNegativesRankingLoss`` and 7 fixed negatives from the same pool. The pools
are random documents with random Elo gaps, so that whatever is drawn is as long. A step is timed from the start of its
forward pass to that of the next one, so it holds drawing, tokenising, the optimiser and all book-keeping. The two take
turns, and the processor's own time is compared besides the clock's, in case others use the machine; each repetition
starts from the same weights and tokenises all texts anew. Run from the repository's root:

    OMP_NUM_THREADS=1 python benchmarks/curriculum_step.py
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from transformers import Trainer
from transformers.trainer_callback import PrinterCallback

from anmi.corpus.texts import document_texts
from anmi.pipelines.reporting.nodes import machine, versions
from anmi.retrieval.encoders import load_encoder
from anmi.retrieval.kinds import quiet
from anmi.training.options import TrainingOptions
from anmi.training.trainer import train

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks" / "results" / "curriculum_step.json"
DATA = Path(os.environ.get("ANMI_DATA") or ROOT.parent / "shared" / "data")
MODELS = ROOT / "data" / "store" / "models"
POOL, NEGATIVES, TO_REACH = 50, 7, 1.05
# Encoder, collection, batch, steps, longest text in tokens, learning rate.
# Long texts are where tokenising and encoding cost most, short ones where the rest does.
CASES: dict[str, tuple[str, str, int, int, int | None, float]] = {
    "static_short": ("static", "kg_webnlg/beir_en", 64, 40, None, 8e-3),
    "static_long": ("static", "scifact", 64, 14, None, 8e-3),
    "minilm_long": ("minilm", "scifact", 8, 4, 64, 2e-5),
}


def rows_of(collection: str, count: int) -> pd.DataFrame:
    """Return the first labelled pairs of a collection, each with a pool of random documents."""
    folder = DATA / collection
    corpus = pd.read_json(folder / "corpus.jsonl", lines=True, dtype={"_id": str})
    queries = pd.read_json(folder / "queries.jsonl", lines=True, dtype={"_id": str}).set_index("_id").text
    qrels = pd.read_csv(folder / "qrels" / "train.tsv", sep="\t", dtype=str)
    texts = np.array(document_texts(corpus.rename(columns={"_id": "document_id"})), dtype=object)
    ids, place = corpus._id.to_numpy(), {name: i for i, name in enumerate(corpus._id)}
    random, rows = np.random.default_rng(0), []
    for query, own in zip(qrels["query-id"][:count], qrels["corpus-id"][:count], strict=True):
        drawn = random.choice(np.delete(np.arange(len(ids)), place[own]), POOL, replace=False)
        rows.append(
            {
                "query_id": query, "query": queries[query], "positive_id": own, "positive": texts[place[own]],
                "negative_ids": ids[drawn].tolist(), "negatives": texts[drawn].tolist(), "weights": [1.0] * POOL,
                "query_weight": 1.0, "positive_ids": [own], "positive_elo": 1500.0,
                "negative_elo": (1500 - random.uniform(100, 700, POOL)).tolist(),
            }
        )  # fmt: skip
    return pd.DataFrame(rows)


@contextmanager
def timed_steps() -> Iterator[list[tuple[float, float]]]:
    """Note when every training step begins, by the clock and by the processor's time."""
    begun: list[tuple[float, float]] = []
    original = Trainer.training_step

    def training_step(self: Any, *args: Any, **kwargs: Any) -> Any:
        begun.append((time.perf_counter(), time.process_time()))
        return original(self, *args, **kwargs)

    Trainer.training_step = training_step
    try:
        yield begun
    finally:
        Trainer.training_step = original


def seconds(begun: list[tuple[float, float]]) -> tuple[float, float]:
    """Return the mean seconds of a step, by the clock and by the processor."""
    (clock, processor), (clock_end, processor_end) = begun[0], begun[-1]
    return (clock_end - clock) / (len(begun) - 1), (processor_end - processor) / (len(begun) - 1)


def ours(
    rows: pd.DataFrame, encoder: SentenceTransformer, batch: int, rate: float, curriculum: bool
) -> tuple[float, float]:
    """Seconds a step of ours, with a curriculum or with the first negatives of every row."""
    # The same number of negatives at any difficulty, for equal shapes.
    chosen = {"learning_progress": {"growth": 0.0}} if curriculum else "none"
    options = TrainingOptions(
        epochs=1, batch_size=batch, learning_rate=rate, negatives=NEGATIVES, curriculum=chosen, precision="float32",
        temperature={"fixed": {"value": 0.05}}, recompute=False,
    )  # fmt: skip
    with timed_steps() as begun:
        train(rows, encoder=encoder, options=options, output=None, seed=1, show_progress=False)
    return seconds(begun)


def theirs(rows: pd.DataFrame, encoder: SentenceTransformer, batch: int, rate: float) -> tuple[float, float]:
    """Seconds a step of the library's loop with its loss."""
    columns = {"anchor": rows["query"].tolist(), "positive": rows.positive.tolist()}
    columns |= {f"negative_{i}": [texts[i] for texts in rows.negatives] for i in range(NEGATIVES)}
    with tempfile.TemporaryDirectory() as scratch, quiet():
        arguments = SentenceTransformerTrainingArguments(
            output_dir=scratch, num_train_epochs=1, per_device_train_batch_size=batch, learning_rate=rate,
            warmup_ratio=0.1, seed=1, use_cpu=True, save_strategy="no", logging_strategy="no", report_to="none",
            disable_tqdm=True, dataloader_pin_memory=False,
        )  # fmt: skip
        trainer = SentenceTransformerTrainer(
            model=encoder,
            args=arguments,
            train_dataset=Dataset.from_dict(columns),
            loss=MultipleNegativesRankingLoss(encoder),
        )
        trainer.remove_callback(PrinterCallback)
        with timed_steps() as begun:
            trainer.train()
    return seconds(begun)


def measure(name: str, repeats: int) -> dict[str, Any]:
    """Let both take turns and return the medians."""
    model, collection, batch, steps, longest, rate = CASES[name]
    rows = rows_of(collection, batch * steps)
    encoder = load_encoder(model, MODELS, longest)
    start = {key: value.clone() for key, value in encoder.state_dict().items()}
    found: dict[str, list[tuple[float, float]]] = {"library": [], "curriculum": [], "first": []}
    for repeat in range(repeats):
        # Each side comes first, second and third in turn: what memory a process has already got changes the times.
        turn = repeat % len(found)
        for side in [*found, *found][turn : turn + len(found)]:
            encoder.load_state_dict(start)
            encoder.train()
            found[side].append(
                theirs(rows, encoder, batch, rate)
                if side == "library"
                else ours(rows, encoder, batch, rate, side == "curriculum")
            )
            print(name, side, found[side][-1], flush=True)
    clock, processor = ({side: [pair[i] for pair in values] for side, values in found.items()} for i in (0, 1))
    ratios, worked = (
        [a / b for a, b in zip(times["curriculum"], times["library"], strict=True)] for times in (clock, processor)
    )
    medians = {f"{side}_seconds": round(statistics.median(values), 4) for side, values in clock.items()}
    return {
        "case": name, "encoder": model, "collection": collection, "batch": batch, "negatives": NEGATIVES, "pool": POOL,
        "steps": len(rows) // batch, "repeats": repeats, "threads": torch.get_num_threads(), **medians,
        "ratio": round(statistics.median(ratios), 3), "ratio_low": round(min(ratios), 3),
        "ratio_high": round(max(ratios), 3), "processor_ratio": round(statistics.median(worked), 3),
        "to_reach": TO_REACH,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    old = json.loads(RESULT.read_text(encoding="utf-8"))["rows"] if RESULT.exists() else []
    rows = [row for row in old if row["case"] not in arguments.cases]
    for name in arguments.cases:
        rows.append(measure(name, arguments.repeats))
        print(rows[-1], flush=True)
        date = datetime.datetime.now(datetime.UTC).date().isoformat()
        document = {"date": date, "machine": machine(), "versions": versions(), "rows": rows}
        RESULT.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
