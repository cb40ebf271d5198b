"""Documents per processor second by each way to run MiniLM, and what nDCG@10 loses, beside sentence-transformers.

The peer is ``SentenceTransformer.encode`` as it comes: torch in float32 and 32 texts a batch. All ways encode the same
random documents by turns, with the same threads. nDCG@10 is that of SciFact's test queries on a part of the corpus that
holds all relevant documents, with queries and documents encoded in the same way. Nothing was chosen by it. Rows go to
benchmarks/results/speed.json.

    OMP_NUM_THREADS=1 python benchmarks/encoding.py ../shared/data/scifact --times 3
"""

from __future__ import annotations

import argparse
import platform
import random
import re
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from anmi.retrieval.encoders import embed, load_encoder, load_table, minilm_folder, resolve_precision
from anmi.retrieval.onnx import WAYS
from peer_mining import ROOT, lines, row, write

BENCHMARK: Final = Path(__file__).name
GOAL: Final = 2.0
MOST_LOST: Final = 0.003
MAX_LENGTH: Final = 256


def ndcg(queries: NDArray[Any], documents: NDArray[Any], relevant: list[set[int]]) -> NDArray[np.float64]:
    """Return nDCG@10 by query, [Q]."""
    top = np.argsort(-(queries @ documents.T), axis=1, kind="stable")[:, :10]
    gains = 1 / np.log2(np.arange(2, 12))
    hits = np.array([[number in wanted for number in row] for row, wanted in zip(top, relevant, strict=True)])
    ideal = np.array([gains[: len(wanted)].sum() for wanted in relevant])
    return (hits * gains).sum(axis=1) / ideal


def part(collection: Path, size: int) -> tuple[list[str], list[str], list[set[int]]]:
    """Return texts of documents and test queries, and which of the documents are relevant for each."""
    corpus, queries = (lines(collection / f"{name}.jsonl") for name in ("corpus", "queries"))
    labels = [line.split("\t") for line in (collection / "qrels" / "test.tsv").read_text().splitlines()[1:]]
    wanted: dict[str, set[str]] = defaultdict(set)
    for query, document, grade in labels:
        if int(grade) > 0:
            wanted[query].add(document)
    needed = set().union(*wanted.values())
    others = random.Random(0).sample(sorted(corpus.keys() - needed), max(0, size - len(needed)))
    ids = sorted(needed | set(others))
    place = {name: number for number, name in enumerate(ids)}
    relevant = [{place[name] for name in names} for names in wanted.values()]
    return [corpus[name] for name in ids], [queries[name] for name in wanted], relevant


def timed(function: Callable[[], Any]) -> float:
    start = time.process_time()
    function()
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection", type=Path, help="folder of a BEIR collection with test labels")
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--documents", type=int, default=600, help="part of the corpus that is searched")
    parser.add_argument("--timed", type=int, default=120, help="those of them that are encoded for time")
    parser.add_argument("--models", type=Path, default=ROOT / "data" / "store" / "models", help="of distilled encoders")
    asked = parser.parse_args()
    import torch
    from sentence_transformers import SentenceTransformer

    documents, queries, relevant = part(asked.collection, asked.documents)
    some = random.Random(1).sample(documents, min(asked.timed, len(documents)))
    with TemporaryDirectory() as models:
        model = load_encoder("minilm", Path(models), MAX_LENGTH)
        plain = SentenceTransformer(str(minilm_folder()), device="cpu")
        plain.max_seq_length = MAX_LENGTH
        hardware = resolve_precision("auto") == "bfloat16"
        ways: dict[str, Callable[[list[str]], Any]] = {"peer": plain.encode}
        for name, precision, size in (
            ("torch float32, 64 texts", "float32", 64), ("torch float32, 8 texts", "float32", 8),
            *([("torch bfloat16, 64 texts", "bfloat16", 64)] if hardware else []),
            *((f"ONNX Runtime {way.removeprefix('onnx-')}, 1 text", way, 1) for way in WAYS),
        ):  # fmt: skip
            ways[name] = lambda texts, precision=precision, size=size: embed(model, texts, precision, size, "document")
        for encode in ways.values():
            encode(some[:2])
        # Alternating, so that what else the machine does meets all of them.
        seconds = {name: [0.0] * asked.times for name in ways}
        for turn in range(asked.times):
            for name, encode in ways.items():
                seconds[name][turn] = timed(lambda encode=encode: encode(some))
                print(f"{turn + 1}/{asked.times} {name}: {len(some) / seconds[name][turn]:.1f}", flush=True)
        rates = {name: len(some) / median(found) for name, found in seconds.items()}
        exact: NDArray[np.float64] | None = None
        made = []
        for name, encode in ways.items():
            by_query = (
                ndcg(*(np.asarray(encode(texts)) for texts in (queries, documents)), relevant) if needs(name) else exact
            )
            if by_query is None:
                continue
            exact = by_query if exact is None else exact
            lost = exact - by_query
            print(f"{name}: nDCG@10 {by_query.mean():.4f}, lost {lost.mean():+.4f} ± {error(lost):.4f}", flush=True)
            if name == "peer":
                continue
            goal = GOAL if "int8" in name else 1.0
            made.append(row(f"MiniLM, {name}", rates[name], rates["peer"], goal, "documents / processor s",
                            "sentence-transformers, torch float32, 32 texts", BENCHMARK))  # fmt: skip
            if needs(name):
                note = f"{len(queries)} test queries, {len(documents)} documents; standard error {error(lost):.4f}"
                means = [round(float(each.mean()), 4) for each in (by_query, exact)]
                found = row(f"MiniLM, {name}: nDCG@10", *means, None, "nDCG@10", note, BENCHMARK)
                made.append(found | {"ours": means[0], "peer": means[1], "goal": round(1 - MOST_LOST / means[1], 4)})
    made.append(static(list(lines(asked.collection / "corpus.jsonl").values()), asked.models, asked.times))
    cpu = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    flags = [
        flag
        for flag in ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "avx512_bf16", "amx_int8")
        if f" {flag} " in Path("/proc/cpuinfo").read_text()
    ]
    write(made, BENCHMARK, {
        "collection": asked.collection.name, "times": asked.times, "documents timed": len(some), "flags": flags,
        "processor": cpu.group(1) if cpu else platform.processor(), "threads": torch.get_num_threads(),
    })  # fmt: skip
    for each in made:
        print(each["case"], each["ours"], each["peer"], each["ratio"], "goal", each["goal"], each["unit"])


def static(texts: list[str], models: Path, times: int) -> dict[str, Any]:
    """Return the row of the static encoder, beside its own tokenizer alone."""
    from tokenizers import Tokenizer

    folder = next(models.glob("static-*"))
    tokenizer = Tokenizer.from_file(str(next(folder.rglob("tokenizer.json"))))
    tokenizer.no_padding()
    ours, peer = [], []
    for _ in range(times):
        # Opened anew, since it remembers the words of what it read.
        table = load_table("static", models)
        assert table is not None
        ours.append(timed(lambda table=table: table.encode(texts)))
        peer.append(timed(lambda: tokenizer.encode_batch_fast(texts, add_special_tokens=False)))
    rates = [len(texts) / median(seconds) for seconds in (ours, peer)]
    note = f"its tokenizer's encode_batch_fast alone; {len(texts)} documents"
    return row("static", *rates, 1.0, "documents / processor s", note, BENCHMARK)


def needs(name: str) -> bool:
    """Tell whether nDCG is measured: batches of torch do not change it beyond the last digits."""
    return name == "peer" or "int8" in name or "bfloat16" in name


def error(differences: NDArray[np.float64]) -> float:
    """Return the standard error of a mean."""
    return float(differences.std(ddof=1) / len(differences) ** 0.5)


if __name__ == "__main__":
    main()
