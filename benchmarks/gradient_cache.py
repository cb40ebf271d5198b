"""Gradient caching: memory and time of one MiniLM step of 1,024 rows, beside sentence-transformers' cached loss.

One step is forward, backward and AdamW, on 1,024 queries of about 16 tokens, their positives and one mined negative
each of 128 tokens, all documents of the batch being negatives. Both sides encode 64 texts at once in one precision.
Without caching the step is measured at smaller batches; what 1,024 rows would take is a straight line through them.
Every case runs in a process of its own, so that its peak memory is its own. Where other work shares the machine,
compare the seconds of the processor and not those of the clock. Run from the repository's root:

    python benchmarks/gradient_cache.py
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks" / "results" / "gradient_cache.json"
TOKENS = 128
QUERY_WORDS = 14
PER_PASS = 64
TEMPERATURE = 0.05
WORDS = "time year people way day man thing woman life child world school state family student"
CASES = {
    "anmi, recompute": ("anmi", 1024),
    "sentence-transformers, CachedMultipleNegativesRankingLoss": ("library", 1024),
    "anmi, not cached, 16 rows": ("anmi_uncached", 16),
    "anmi, not cached, 48 rows": ("anmi_uncached", 48),
}


def memory_mb(field: str) -> float:
    """Return a figure of this process; the peak is VmHWM, since ru_maxrss keeps what the parent had."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1]) / 1024


def texts(rows: int) -> dict[str, list[str]]:
    """Return texts of common words, every one different: queries short, documents longer than the cut."""
    import numpy as np

    words = np.array(WORDS.split())
    draw = np.random.default_rng(0)

    def some(length: int) -> list[str]:
        return [f"{i} {' '.join(draw.choice(words, length))}" for i in range(rows)]

    return {"query": some(QUERY_WORDS), "positive": some(TOKENS), "negative": some(TOKENS)}


def ours(model: Any, columns: dict[str, list[str]], precision: Any, *, recompute: bool) -> Callable[[], Any]:
    """Return what computes the loss of a batch laid out as in training."""
    from anmi.training.batch import Batcher, Row, Tokeniser
    from anmi.training.losses import WeightedInfoNCE
    from anmi.training.losses.temperature import Temperature
    from anmi.training.objective import ContrastiveObjective

    rows = [
        Row(f"q{i}", query, f"d{i}", positive, (f"n{i}",), (negative,), (1.0,), 1.0, frozenset({f"d{i}"}))
        for i, (query, positive, negative) in enumerate(zip(*columns.values(), strict=True))
    ]
    objective = ContrastiveObjective(model, WeightedInfoNCE(Temperature(TEMPERATURE)), precision, recompute=recompute)
    batcher = Batcher(Tokeniser(model, TOKENS), "all", PER_PASS)
    return lambda: objective(batcher(rows))


def theirs(model: Any, columns: dict[str, list[str]], precision: Any) -> Callable[[], Any]:
    """Return what computes the library's loss; the model encodes in ``precision``, also when it encodes again."""
    import torch
    from sentence_transformers.sentence_transformer.losses import CachedMultipleNegativesRankingLoss

    if precision is not None:
        model.forward = torch.autocast("cpu", dtype=precision)(model.forward)
    loss = CachedMultipleNegativesRankingLoss(model, scale=1 / TEMPERATURE, mini_batch_size=PER_PASS)
    return lambda: loss([model.preprocess(column) for column in columns.values()], None)


def one(kind: str, rows: int, threads: int) -> dict[str, Any]:
    """Measure one step, after one of 8 rows."""
    import torch
    from sentence_transformers import SentenceTransformer

    from anmi.retrieval.encoders import minilm_folder
    from anmi.retrieval.kinds import quiet, resolve_precision

    torch.set_num_threads(threads)
    with quiet():
        model = SentenceTransformer(str(minilm_folder()), device="cpu").train()
    model.max_seq_length = TOKENS
    name = resolve_precision("auto")
    precision = torch.bfloat16 if name == "bfloat16" else None
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
    before, seconds, processor, value = memory_mb("VmRSS"), 0.0, 0.0, 0.0
    for number in (8, rows):
        columns = texts(number)
        if kind == "library":
            step = theirs(model, columns, precision if number == 8 else None)
        else:
            step = ours(model, columns, precision, recompute=kind == "anmi")
        started, used = time.perf_counter(), time.process_time()
        loss = step()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        seconds, processor, value = time.perf_counter() - started, time.process_time() - used, float(loss.detach())
    return {
        "rows": rows, "seconds": round(seconds, 1), "processor_seconds": round(processor, 1),
        "peak_rss_mb": round(memory_mb("VmHWM")), "rss_before_mb": round(before), "loss": round(value, 4),
        "precision": name,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES), help="rows of others stay as they are")
    parser.add_argument("--one", nargs=2, metavar=("KIND", "ROWS"), help="measure this alone and print it")
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(one(arguments.one[0], int(arguments.one[1]), arguments.threads)))
        return
    saved = json.loads(RESULT.read_text(encoding="utf-8"))["rows"] if RESULT.exists() else []
    found = {row["case"]: row for row in saved if "threads" in row}
    for name in arguments.only:
        kind, rows = CASES[name]
        command = [sys.executable, __file__, "--threads", str(arguments.threads), "--one", kind, str(rows)]
        done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
        found[name] = {"case": name, **json.loads(done.stdout.splitlines()[-1]), "threads": arguments.threads}
        print(found[name], flush=True)
        save([found[case] for case in CASES if case in found])


def save(rows: list[dict[str, Any]]) -> None:
    """Write the result, with what 1,024 rows would take without caching, as soon as that can be told."""
    from anmi.pipelines.reporting.nodes import machine, versions

    small, large = (next((row for row in rows if row["case"] == name), None) for name in list(CASES)[-2:])
    if small and large:
        slope = (large["peak_rss_mb"] - small["peak_rss_mb"]) / (large["rows"] - small["rows"])
        peak = round(large["peak_rss_mb"] + slope * (1024 - large["rows"]))
        rows = [*rows, {"case": "anmi, not cached, 1,024 rows, extrapolated", "rows": 1024, "peak_rss_mb": peak}]
    saved = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"), "machine": machine(),
        "versions": versions(), "tokens": TOKENS, "texts_per_pass": PER_PASS, "rows": rows,
    }  # fmt: skip
    RESULT.write_text(json.dumps(saved, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
