"""The packaged network on a processor, a pass a core and in integers: passages a second, what is found.

Of each collection test queries, all documents with a label of one of them, and a sample of the
others, cut into passages as a search has them. Float32 and integers encode the same texts; speeds
are of the same passages in turns, the best of each counts, since the cores may have other work.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import torch

from anmi.corpus.passages import cut_collection
from anmi.corpus.sources import load_collection
from anmi.corpus.texts import document_texts
from anmi.engine.threads import in_threads
from anmi.evaluation.metrics import evaluate, of_documents
from anmi.evaluation.retrieval import ranked
from anmi.retrieval import encoders
from anmi.retrieval.encoders import embed, load_encoder
from anmi.store import Store
from common import DATA, METRIC, MODELS, STORE, about, paired, parser, save

COLLECTIONS: Final = ("scifact", "medquad")
WAYS: Final = (("float32", 256), ("int8", 256), ("int8", 128))
FEATURES: Final = ("avx2", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16")
ROUNDS: Final = 3


def features() -> list[str]:
    """Return what the processor offers that decides how it multiplies."""
    file = Path("/proc/cpuinfo")
    flags = set(file.read_text().split()) if file.exists() else set()
    return [name for name in FEATURES if name in flags]


def one_after_another(function: Any, items: Any, *_: int, **__: int) -> Any:
    return map(function, items)


def speeds(texts: list[str]) -> Iterator[dict[str, Any]]:
    """Yield how many texts each way encodes in a second, and in a second of one core."""
    models = {length: load_encoder("minilm", MODELS, length) for length in (128, 256)}
    ways = [(way, length) for length in models for way in ("float32, shared", "float32", "int8")]
    walls: dict[tuple[str, int], list[float]] = {way: [] for way in ways}
    cores: dict[tuple[str, int], list[float]] = {way: [] for way in ways}
    for _ in range(ROUNDS):
        for way, length in ways:
            # As it was: the cores share each pass.
            shared = way.endswith("shared")
            encoders.in_threads = one_after_another if shared else in_threads  # type: ignore[assignment]
            precision = way.removesuffix(", shared")
            embed(models[length], texts[:2], precision, 64, None)
            wall = time.perf_counter()
            core = time.process_time()
            embed(models[length], texts, precision, 64, None)
            walls[way, length].append(len(texts) / (time.perf_counter() - wall))
            cores[way, length].append(len(texts) / (time.process_time() - core))
    for precision, length in ways:
        yield {
            "precision": precision,
            "tokens": length,
            "passages_a_second": round(max(walls[precision, length]), 1),
            "median_passages_a_second": round(statistics.median(walls[precision, length]), 1),
            "passages_a_core_second": round(max(cores[precision, length]), 1),
        }


def found(
    name: str, documents: int, queries: int, store: Store
) -> tuple[list[str], list[dict[str, Any]]]:
    """Return passages of a collection, and what each way finds among them."""
    collection = load_collection(f"beir:{DATA / name}", seed=1)
    asked = collection.queries[collection.queries.split == "test"]
    asked = asked.sample(min(queries, len(asked)), random_state=1)
    labels = collection.qrels[collection.qrels.query_id.isin(asked.query_id)]
    cut = cut_collection(collection, "auto", collection.corpus.document_id)
    parents = pd.Series(cut.corpus.parent.unique())
    labelled = set(of_documents(labels, collection.corpus).document_id)
    others = parents[~parents.isin(labelled)]
    kept = labelled | set(others.sample(min(documents, len(others)), random_state=1))
    corpus = cut.corpus[cut.corpus.parent.isin(kept)].reset_index(drop=True)
    passage_labels = cut.qrels[cut.qrels.query_id.isin(asked.query_id)]
    scores: dict[tuple[str, int], pd.Series] = {}
    for precision, length in WAYS:
        model = load_encoder("minilm", MODELS, length)
        run = ranked(
            model,
            asked,
            passage_labels,
            corpus,
            100,
            store=store,
            precision=precision,
            description=f"{name}, {precision}, {length} tokens",
        )
        scores[precision, length] = evaluate(of_documents(passage_labels, corpus), run, (10,))[
            METRIC
        ]
    exact = scores[WAYS[0]]
    rows = []
    for (precision, length), values in scores.items():
        difference = paired(values.reindex(exact.index), exact)
        rows.append(
            {
                "collection": name,
                "queries": len(exact),
                "documents": len(kept),
                "passages": len(corpus),
                "precision": precision,
                "tokens": length,
                "ndcg_10": round(values.mean(), 4),
            }
            | difference
        )
    return document_texts(corpus), rows


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--collections", nargs="+", default=COLLECTIONS)
    options.add_argument("--documents", type=int, default=5_000, help="without a label, at most")
    options.add_argument("--queries", type=int, default=300)
    options.add_argument("--timed", type=int, default=400, help="passages that are timed")
    given = options.parse_args()
    rows: list[dict[str, Any]] = []
    passages: list[str] = []
    cores = torch.get_num_threads()
    # What is found does not depend on them, and they do not wait for each other.
    torch.set_num_threads(1)
    with Store(STORE) as store:
        for name in given.collections:
            texts, measured = found(name, given.documents, given.queries, store)
            passages += texts
            rows += measured
    chosen = np.random.default_rng(1).choice(len(passages), given.timed, replace=False)
    torch.set_num_threads(cores)
    document = about() | {"features": features(), "threads": cores}
    document |= {"load_before_timing": round(os.getloadavg()[0], 1)}
    document["speed"] = list(speeds([passages[place] for place in chosen]))
    document["found"] = rows
    save("network", document)
    print(pd.DataFrame(document["speed"]).to_string(index=False))
    print(pd.DataFrame(rows).to_string(index=False))


if __name__ == "__main__":
    main()
