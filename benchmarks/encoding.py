"""Documents, and pairs, per processor second by each way to run MiniLM, beside sentence-transformers; and nDCG@10.

The peer is ``SentenceTransformer.encode`` as it comes: torch in float32 and 32 texts a batch. All ways encode the same
random documents by turns, with the same threads. nDCG@10 is that of SciFact's test queries on a part of the corpus that
holds all relevant documents, with queries and documents encoded in the same way. Nothing was chosen by it.

Pairs are judged by the cross-encoder of the denoising stage before its training: three layers of MiniLM, 128 tokens.
Its peer is ``CrossEncoder.predict`` with the same network, 32 pairs a batch. With ``--mining`` a mining as a whole
process is put beside sentence-transformers encoding the same texts alone. Rows go to benchmarks/results/speed.json.

    OMP_NUM_THREADS=1 python benchmarks/encoding.py ../shared/data/scifact --times 3
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import re
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from anmi.judging.cross_encoder import CrossEncoderOptions, untrained
from anmi.judging.pointwise import logits
from anmi.retrieval.encoders import embed, load_encoder, load_table, minilm_folder
from anmi.retrieval.kinds import resolve_precision
from peer_mining import kedro, lines, measured
from speed import RESULT, ROOT, row, show, write

BENCHMARK: Final = Path(__file__).name
GOAL: Final = 2.0
MOST_LOST: Final = 0.003
MAX_LENGTH: Final = 256
CPUINFO: Final = Path("/proc/cpuinfo")
UNIT: Final = "documents / processor s"
PAIRS_UNIT: Final = "pairs / processor s"
PAIRS_PER_QUERY: Final = 4
ENCODED_ALONE: Final = 1.05
Ways = dict[str, Callable[[list[Any]], Any]]
FLAGS: Final = ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "avx512_bf16", "amx_int8")


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


def precisions() -> dict[str, str]:
    """Return by name what a network is run by on this machine."""
    torch = ("float32", "bfloat16") if resolve_precision("auto") == "bfloat16" else ("float32",)
    return {f"torch {each}": each for each in torch}


def encoders(model: Any, plain: Any) -> Ways:
    """Return what encodes texts in each way; the peer first."""
    return {"peer": plain.encode} | {
        name: lambda texts, way=way: embed(model, texts, way, 64, "document") for name, way in precisions().items()
    }


def cross_encoders() -> Ways:
    """Return what scores pairs in each way; the peer first."""
    options = CrossEncoderOptions(precision="float32")
    model, plain = untrained(options), untrained(options)
    return {"peer": lambda pairs: plain.predict(pairs, show_progress_bar=False)} | {
        name: lambda pairs, way=way: logits(model, pairs, options.model_copy(update={"precision": way}))
        for name, way in precisions().items()
    }


def speed(what: str, ways: Ways, texts: list[Any], times: int, unit: str, note: str) -> list[dict[str, Any]]:
    """Return a row for each way; by turns, so that what else the machine does meets all of them."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for encode in ways.values():
        encode(texts[:2])
    for turn in range(times):
        for name, encode in ways.items():
            seconds[name].append(timed(lambda encode=encode: encode(texts)))
            print(f"{turn + 1}/{times} {name}: {len(texts) / seconds[name][turn]:.1f}", flush=True)
    rates = {name: len(texts) / median(found) for name, found in seconds.items()}
    slow = "" if "vnni" in CPUINFO.read_text() else "; this processor has no VNNI, which multiplies 8 bits at once"
    return [
        row(
            f"{what}, {name}", rate, rates["peer"], GOAL if "int8" in name else 1.0, unit,
            note + (slow if "int8" in name else ""), BENCHMARK,
        )
        for name, rate in rates.items()
        if name != "peer"
    ]  # fmt: skip


def quality(ways: Ways, documents: list[str], queries: list[str], relevant: list[set[int]]) -> list[dict[str, Any]]:
    """Return what nDCG@10 each way of fewer bits has, beside the peer's."""
    made, exact = [], np.empty(0)
    for name, encode in ways.items():
        if not (name == "peer" or "int8" in name or "bfloat16" in name):
            continue
        by_query = ndcg(np.asarray(encode(queries)), np.asarray(encode(documents)), relevant)
        exact = by_query if name == "peer" else exact
        lost = exact - by_query
        print(f"{name}: nDCG@10 {by_query.mean():.4f}, lost {lost.mean():+.4f} ± {error(lost):.4f}", flush=True)
        if name != "peer":
            note = f"{len(queries)} test queries, {len(documents)} documents; standard error {error(lost):.4f}"
            goal = round(1 - MOST_LOST / float(exact.mean()), 4)
            found = row(f"MiniLM, {name}: nDCG@10", by_query.mean(), exact.mean(), goal, "nDCG@10", note, BENCHMARK)
            places = {key: round(float(each.mean()), 4) for key, each in (("ours", by_query), ("peer", exact))}
            made.append(found | places | {"ratio": round(float(by_query.mean() / exact.mean()), 4)})
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection", type=Path, help="folder of a BEIR collection with test labels")
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument(
        "--documents", type=int, default=600, help="part of the corpus that is searched; 0 measures time alone"
    )
    parser.add_argument("--timed", type=int, default=120, help="documents that are encoded for time")
    parser.add_argument("--mining", type=int, default=0, help="part of the corpus that is mined as a whole process")
    parser.add_argument("--result", type=Path, default=RESULT)
    parser.add_argument("--models", type=Path, default=ROOT / "data" / "store" / "models", help="of distilled encoders")
    parser.add_argument("--alone", action="store_true", help="only encode the collection, and say how long it took")
    asked = parser.parse_args()
    if asked.alone:
        alone(asked.collection)
    else:
        compare(asked)


def compare(asked: argparse.Namespace) -> None:
    """Measure everything and write the rows."""
    import torch
    from sentence_transformers import SentenceTransformer

    documents, queries, relevant = part(asked.collection, asked.documents)
    some = random.Random(1).sample(documents, min(asked.timed, len(documents)))
    with TemporaryDirectory() as models:
        plain = SentenceTransformer(str(minilm_folder()), device="cpu")
        plain.max_seq_length = MAX_LENGTH
        model = load_encoder("minilm", Path(models), MAX_LENGTH)
        ways = encoders(model, plain)
        note = f"sentence-transformers, torch float32, 32 a batch; {len(some)} abstracts"
        made = speed("MiniLM", ways, some, asked.times, UNIT, note)
        if asked.documents:
            made += quality(ways, documents, queries, relevant)
        made += judging(cross_encoders(), queries, documents, asked)
    if asked.mining:
        made.append(mining(asked.collection, asked.mining))
    made.append(static(list(lines(asked.collection / "corpus.jsonl").values()), asked.models, asked.times))
    processor = CPUINFO.read_text()
    name = re.search(r"^model name\s*: (.*)$", processor, re.MULTILINE)
    write(made, BENCHMARK, {
        "collection": asked.collection.name, "times": asked.times, "documents timed": len(some),
        "flags": [flag for flag in FLAGS if f" {flag} " in processor],
        "processor": name.group(1) if name else platform.processor(), "threads": torch.get_num_threads(),
    }, asked.result)  # fmt: skip
    show(made)


def judging(ways: Ways, queries: list[str], documents: list[str], asked: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the rows of the cross-encoder."""
    table = load_table("static", asked.models)
    assert table is not None
    some = random.Random(2).sample(queries, max(1, asked.timed * 2 // PAIRS_PER_QUERY))
    near = np.argsort(-(table.encode(some, "") @ table.encode(documents, "").T), axis=1)[:, :PAIRS_PER_QUERY]
    pairs = [(query, documents[place]) for query, row in zip(some, near, strict=True) for place in row]
    note = f"sentence-transformers' predict, torch float32, 32 a batch; {len(pairs)} of the nearest abstracts"
    return speed("cross-encoder", ways, pairs, asked.times, PAIRS_UNIT, note)


def mining(collection: Path, size: int) -> dict[str, Any]:
    """Return the row of a mining as a whole process beside encoding its texts alone, in float32 and with one thread."""
    with TemporaryDirectory() as place:
        folder = cut(collection, size, Path(place) / collection.name)
        environment = {"OMP_NUM_THREADS": "1", "ANMI_DATA_ROOT": f"{place}/data", "ANMI_STORE": f"{place}/store"}
        parameters = f"collection=beir:{folder},encoder=minilm,dense.precision=float32,recipe=nv_retriever"
        mined = measured([kedro(), "run", "--pipelines", "mining", "--params", parameters], environment)
        alone = measured([sys.executable, __file__, str(folder), "--alone"], environment)
        found = json.loads(alone["printed"].splitlines()[-1])
    note = (
        f"nv_retriever, whole process, beside sentence-transformers' encode of the same {found['texts']} texts alone, "
        f"{size:,} documents and the queries, processor seconds; all of a process that only encodes them: "
        f"{alone['cpu']:.1f}"
    )
    return row("MiniLM, mining", mined["cpu"], found["seconds"], ENCODED_ALONE, "s", note, BENCHMARK)


def cut(collection: Path, size: int, folder: Path) -> Path:
    """Write the part of a collection that holds so many documents, all of those that are relevant first."""
    folder.mkdir()
    (folder / "qrels").mkdir()
    labels = {file.name: file.read_text(encoding="utf-8") for file in (collection / "qrels").glob("*.tsv")}
    wanted = {line.split("\t")[1] for text in labels.values() for line in text.splitlines()[1:]}
    corpus = (collection / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
    kept = sorted(corpus, key=lambda line: json.loads(line)["_id"] not in wanted)[:size]
    ids = {json.loads(line)["_id"] for line in kept}
    (folder / "corpus.jsonl").write_text("\n".join(kept) + "\n", encoding="utf-8")
    (folder / "queries.jsonl").write_bytes((collection / "queries.jsonl").read_bytes())
    for name, text in labels.items():
        head, *rest = text.splitlines()
        left = [line for line in rest if line.split("\t")[1] in ids]
        (folder / "qrels" / name).write_text("\n".join([head, *left]) + "\n", encoding="utf-8")
    return folder


def alone(collection: Path) -> None:
    """Encode all documents and queries by sentence-transformers, and print the processor seconds of that as JSON."""
    from sentence_transformers import SentenceTransformer

    texts = [text for name in ("corpus", "queries") for text in lines(collection / f"{name}.jsonl").values()]
    model = SentenceTransformer(str(minilm_folder()), device="cpu")
    model.max_seq_length = MAX_LENGTH
    seconds = timed(lambda: model.encode(texts, show_progress_bar=False))
    print(json.dumps({"seconds": seconds, "texts": len(texts)}))


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
    return row("static", *rates, 1.0, UNIT, note, BENCHMARK)


def error(differences: NDArray[np.float64]) -> float:
    """Return the standard error of a mean."""
    return float(differences.std(ddof=1) / len(differences) ** 0.5)


if __name__ == "__main__":
    main()
