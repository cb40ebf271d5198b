"""How fast a GPU trains, and what share of its arithmetic that is: our trainer beside sentence-transformers' own.

Every cell makes the same steps on the same rows: a query, its positive and seven negatives each, all of one length at
most, taken from passages of SciFact where the collections are at hand and made of random words elsewhere. No text
occurs twice, so nobody saves any. Ours runs with and without recomputation of passes (cached gradients), theirs with
``MultipleNegativesRankingLoss`` and its cached form; all in bfloat16.

``flops_share`` is the share of the device's peak for dense bfloat16 that the model's arithmetic reaches: 6 FLOPs per
parameter outside of the embedding tables and token, and 12 · layers · width · length per token for attention, padding
and recomputation not counted (Chowdhery et al., "PaLM", 2022, appendix B). Run from the repository's root:

    python benchmarks/gpu_train.py --encoder FOLDER_OF_A_LARGER_MODEL

Without a GPU, ``--device cpu`` runs a tiny form, which shows that the script works and is not recorded.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import functools
import gc
import itertools
import json
import math
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer import losses
from transformers import Trainer
from transformers.trainer_callback import PrinterCallback

from anmi.errors import AnmiError
from anmi.pipelines.reporting.nodes import machine, versions
from anmi.retrieval.encoders import load_encoder, short_name
from anmi.retrieval.kinds import quiet
from anmi.training.loop import is_out_of_memory
from anmi.training.options import TrainingOptions
from anmi.training.trainer import train

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks" / "results" / "gpu_train.json"
DATA = Path(os.environ.get("ANMI_DATA") or ROOT.parent / "shared" / "data")
SYSTEMS = ("ours", "ours_recompute", "mnrl", "cached_mnrl")
# Dense bfloat16 with float32 sums, in TFLOP/s, from the makers' data sheets, by a part of the device's name.
PEAKS = {
    "B200": 2250.0, "H200": 989.4, "H100 PCIe": 756.0, "H100 NVL": 835.0, "H100": 989.4, "GH200": 989.4,
    "A100": 312.0, "L40S": 362.0, "L40": 181.0, "L4": 121.0, "A10G": 70.0, "A10": 125.0,
    "RTX 4090": 165.2, "RTX 3090": 71.0,
}  # fmt: skip
# Steps that are made and not timed: the first allocate memory and choose kernels.
UNTIMED = 2


@dataclass(frozen=True)
class Case:
    """One cell: rows in a step, most tokens of a text, negatives of a row, steps that are timed, texts of a pass."""

    batch: int
    length: int
    negatives: int
    steps: int
    per_pass: int
    precision: str


@functools.cache
def passages(length: int) -> tuple[list[str], list[str]]:
    """Return queries and passages of SciFact that fill about ``length`` tokens, or none where it is not at hand."""
    folder = DATA / "scifact"
    if not folder.is_dir():
        return [], []
    words = max(4, int(length * 0.62))
    corpus = pd.read_json(folder / "corpus.jsonl", lines=True).text.str.split()
    found = (" ".join(text[start : start + words]) for text in corpus for start in range(0, len(text) - words, words))
    queries = pd.read_json(folder / "queries.jsonl", lines=True).text.tolist()
    return queries, list(dict.fromkeys(found))


def make_rows(case: Case) -> tuple[pd.DataFrame, str]:
    """Return the rows of two steps, whose texts are all different, and what they are made of."""
    count, each = 2 * case.batch, 1 + case.negatives
    queries, texts = passages(case.length)
    source = "scifact"
    if len(texts) < count * each:
        generator = np.random.default_rng(1)
        vocabulary = np.array(["cell", "protein", "risk", "mice", "trial", "gene", "acid", "blood", "growth", "dose"])

        def text(words: int) -> str:
            return " ".join(generator.choice(vocabulary, words))

        source = "random words"
        queries = [f"{i} {text(12)}" for i in range(count)]
        texts = [f"{i} {text(case.length)}" for i in range(count * each)]
    table = pd.DataFrame({
        "query_id": [f"q{i}" for i in range(count)],
        "query": list(itertools.islice(itertools.cycle(queries), count)),
        "positive_id": [f"d{i * each}" for i in range(count)],
        "positive": texts[: count * each : each],
        "negative_ids": [[f"d{j}" for j in range(i * each + 1, (i + 1) * each)] for i in range(count)],
        "negatives": [texts[i * each + 1 : (i + 1) * each] for i in range(count)],
        "weights": [[1.0] * case.negatives] * count,
        "query_weight": 1.0,
        "positive_ids": [[f"d{i * each}"] for i in range(count)],
    })  # fmt: skip
    return table, source


def text_lengths(encoder: SentenceTransformer, rows: pd.DataFrame) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the number of tokens of every text of the rows, special ones included."""
    texts = [*rows["query"], *rows.positive, *itertools.chain.from_iterable(rows.negatives)]
    ids = encoder.tokenizer(texts, truncation=True, max_length=encoder.max_seq_length)["input_ids"]
    return np.array([len(each) for each in ids], np.int64)


def model_flops(encoder: SentenceTransformer, lengths: np.ndarray[Any, np.dtype[np.int64]]) -> float:
    """Return the FLOPs that one forward and backward pass over texts of these lengths needs."""
    network: Any = encoder[0].auto_model
    tables = {id(m.weight) for m in network.modules() if isinstance(m, torch.nn.Embedding)}
    parameters = sum(p.numel() for p in network.parameters() if id(p) not in tables)
    config = network.config
    attention = 12 * config.num_hidden_layers * config.hidden_size * float((lengths.astype(float) ** 2).sum())
    return float(6 * parameters * lengths.sum() + attention)


def peak_flops(given: float | None) -> float | None:
    """Return the device's peak in FLOP/s, from the command line or by its name; None where nobody knows it."""
    if given is not None:
        return given * 1e12
    name = torch.cuda.get_device_name(0) if torch.cuda.is_available() else ""
    return next((peak * 1e12 for part, peak in PEAKS.items() if re.search(rf"\b{part}\b", name)), None)


@contextlib.contextmanager
def starts_of_steps() -> Iterator[list[float]]:
    """Note when each step of any trainer begins, all work of the one before it being done."""
    times: list[float] = []
    made = Trainer.training_step

    def training_step(self: Any, *arguments: Any, **named: Any) -> Any:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        times.append(time.perf_counter())
        return made(self, *arguments, **named)

    Trainer.training_step = training_step
    try:
        yield times
    finally:
        Trainer.training_step = made


def train_ours(encoder: SentenceTransformer, rows: pd.DataFrame, case: Case, epochs: int, *, recompute: bool) -> None:
    options = TrainingOptions(
        epochs=epochs, batch_size=case.batch, max_length=case.length, learning_rate=2e-5, precision=case.precision,
        texts_per_pass=case.per_pass, recompute=recompute, keep_best=False,
    )  # fmt: skip
    train(rows, encoder=encoder, options=options, output=None, seed=1, show_progress=False)


def train_theirs(encoder: SentenceTransformer, rows: pd.DataFrame, case: Case, epochs: int, *, cached: bool) -> None:
    columns = {"anchor": rows["query"], "positive": rows.positive}
    columns |= {f"negative_{i}": rows.negatives.str[i] for i in range(case.negatives)}
    loss = (
        losses.CachedMultipleNegativesRankingLoss(encoder, mini_batch_size=case.per_pass)
        if cached
        else losses.MultipleNegativesRankingLoss(encoder)
    )
    with tempfile.TemporaryDirectory() as folder, quiet():
        arguments = SentenceTransformerTrainingArguments(
            output_dir=folder, num_train_epochs=epochs, per_device_train_batch_size=case.batch, learning_rate=2e-5,
            bf16=case.precision == "bfloat16", use_cpu=encoder.device.type == "cpu", save_strategy="no",
            logging_strategy="no", report_to="none", disable_tqdm=True, seed=1, dataloader_pin_memory=False,
        )  # fmt: skip
        arguments._n_gpu = min(arguments.n_gpu, 1)
        dataset = Dataset.from_dict({name: list(values) for name, values in columns.items()})
        trainer = SentenceTransformerTrainer(model=encoder, args=arguments, train_dataset=dataset, loss=loss)
        trainer.remove_callback(PrinterCallback)
        trainer.train()


def fits(system: str, encoder: SentenceTransformer, rows: pd.DataFrame, case: Case, epochs: int) -> bool:
    """Train; False where memory does not suffice."""
    try:
        if system.startswith("ours"):
            train_ours(encoder, rows, case, epochs, recompute=system == "ours_recompute")
        else:
            train_theirs(encoder, rows, case, epochs, cached=system == "cached_mnrl")
    except AnmiError as error:
        if "does not suffice" not in str(error):
            raise
        return False
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return False
    return True


def measure(system: str, name: str, device: str, case: Case, peak: float | None) -> dict[str, Any]:
    """Return the row of one cell."""
    gc.collect()
    encoder = load_encoder(name, ROOT / "data" / "store" / "models", case.length).to(device)
    rows, source = make_rows(case)
    lengths = text_lengths(encoder, rows)
    on_gpu = device == "cuda"
    if on_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    # Two steps an epoch, so that the timed steps see every row equally often.
    with starts_of_steps() as starts:
        whole = fits(system, encoder, rows, case, (case.steps + UNTIMED) // 2 + 1)
    row = {
        "encoder": short_name(name), "system": system, "batch": case.batch, "negatives": case.negatives,
        "length": case.length, "texts_per_pass": case.per_pass, "precision": case.precision, "texts": source,
        "mean_length": round(float(lengths.mean()), 1), "fits": whole,
    }  # fmt: skip
    if not whole:
        return row
    durations = np.diff(starts)[UNTIMED : UNTIMED + case.steps]
    seconds = float(durations.mean())
    rate = model_flops(encoder, lengths) / 2 / seconds
    return row | {
        "steps": len(durations),
        "step_seconds": round(seconds, 5),
        "tokens_per_second": round(float(lengths.sum()) / 2 / seconds),
        "pairs_per_second": round(case.batch / seconds, 1),
        "tflops": round(rate / 1e12, 3),
        "flops_share": None if peak is None else round(rate / peak, 4),
        "peak_memory_gib": round(torch.cuda.max_memory_allocated() / 2**30, 3) if on_gpu else None,
    }


def main(argv: Sequence[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoder", nargs="*", default=[], help="folders of further models, besides minilm")
    parser.add_argument("--only", action="store_true", help="leave minilm out")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--batch", nargs="*", type=int, help="rows in a step")
    parser.add_argument("--length", type=int, help="most tokens of a text")
    parser.add_argument("--negatives", type=int, default=7)
    parser.add_argument("--steps", type=int, help="timed steps of a cell, an even number")
    parser.add_argument("--texts-per-pass", type=int, default=256)
    parser.add_argument("--peak", type=float, help="TFLOP/s of the device in dense bfloat16, where its name is unknown")
    parser.add_argument("--output", type=Path, help=f"where to write; on a GPU {RESULT.relative_to(ROOT)} by default")
    given = parser.parse_args(argv)
    on_gpu = given.device == "cuda"
    if on_gpu and not torch.cuda.is_available():
        sys.exit("There is no CUDA device here: run this where there is one, or try its tiny form with --device cpu.")
    if not on_gpu:
        print("On a CPU this only shows that the script works; its figures say nothing about a GPU.")
    encoders = [*([] if given.only else ["minilm"]), *given.encoder]
    batches = given.batch or ([64, 256, 1024] if on_gpu else [4])
    peak = peak_flops(given.peak) if on_gpu else None
    rows = []
    for name, batch, system in itertools.product(encoders, batches, SYSTEMS):
        case = Case(
            batch=batch, length=given.length or (128 if on_gpu else 16), negatives=given.negatives,
            steps=2 * math.ceil((given.steps or (20 if on_gpu else 2)) / 2), per_pass=given.texts_per_pass,
            precision="bfloat16" if on_gpu else "float32",
        )  # fmt: skip
        rows.append(measure(system, name, given.device, case, peak))
        print(json.dumps(rows[-1]), flush=True)
    output = given.output or (RESULT if on_gpu else None)
    if output is not None:
        document = {
            "date": datetime.date.today().isoformat(),
            "machine": machine() | {"device": torch.cuda.get_device_name(0) if on_gpu else "cpu"},
            "peak_tflops": None if peak is None else peak / 1e12,
            "versions": versions(),
            "rows": rows,
        }
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return rows


if __name__ == "__main__":
    main()
