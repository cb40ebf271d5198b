"""What it costs to train the encoder of queries alone, and what it saves: query_only.json.

The default recipe with one encoder for both sides (``shared``) and with the queries' side alone
(``query_only``), against the encoder before training (``start``), by whether training had labels of
the documents or had seen them; seconds of training, and of encoding all documents afterwards with
the store that the run left. Cells that are there are kept. From the repository's root: ``python
benchmarks/query_only.py [ENCODER…]``.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pandas as pd

import common
from ablation import Matrix, ablate
from anmi.corpus.texts import document_texts
from anmi.retrieval.encoders import Encoder
from anmi.retrieval.kinds import EncoderSettings
from anmi.store import Store
from common import METRIC, STORE, about, artifact, mean, paired, save, table

WORK: Final = common.WORK / "query_only"
OPTION: Final = "training.options.encoders"
RECIPES: Final = {"corpus": "anmi"}
PLACES: Final = {"corpus": ["api_docs", "scifact"]}
# The network would take minutes to encode the documents, and is the same in all.
NO_NETWORK: Final = "search.minutes=0.1"
VARIANTS: Final = ("shared", "query_only")


def run(encoder: str) -> None:
    systems = [f"{name}={RECIPES[encoder]}:{OPTION}={name}" for name in VARIANTS]
    ablate(Matrix(systems, PLACES[encoder], "1", f"encoder={encoder},{NO_NETWORK}"), WORK / encoder)


def rows(encoder: str) -> Iterator[dict[str, Any]]:
    """Yield a row for each collection and bucket: the start, and what each variant adds to it."""
    for place in PLACES[encoder]:
        tables = [
            pd.read_parquet(WORK / encoder / place / name / "seed1" / "queries.parquet").assign(
                variant=name
            )
            for name in VARIANTS
        ]
        queries = pd.concat(tables)
        queries = queries[queries.judgments == "original"]
        queries = pd.concat([queries.assign(bucket="all"), queries])
        for bucket, metrics in queries.groupby("bucket", sort=False):
            by_system = metrics.pivot_table(METRIC, "query_id", ["variant", "system"])
            start = by_system["shared", "zero_shot"]
            row: dict[str, Any] = {"encoder": encoder, "collection": place}
            row["documents"] = bucket
            yield row | {"variant": "start"} | mean(start)
            for name in VARIANTS:
                trained = by_system[name, "trained"]
                row |= {"hybrid_ndcg_10": round(float(by_system[name, "hybrid"].mean()), 4)}
                row |= {"over_start": paired(trained, start), "variant": name}
                if name == "query_only":
                    row["over_shared"] = paired(trained, by_system["shared", "trained"])
                yield row | mean(trained)


def seconds(encoder: str) -> Iterator[dict[str, Any]]:
    """Yield for each training how long it took, and how long documents take to be encoded after."""
    for place in PLACES[encoder]:
        for name in VARIANTS:
            cell = WORK / encoder / place / name / "seed1"
            facts = json.loads((cell / "cell.json").read_text(encoding="utf-8"))["facts"]
            texts = document_texts(table(cell, "corpus"))
            encoding = seconds_of_encoding(artifact(cell, "trained_model"), texts)
            yield {
                "encoder": encoder,
                "collection": place,
                "variant": name,
                "documents": len(texts),
                "training": facts["train_seconds"],
                "encoding_documents": round(encoding, 2),
            }


def seconds_of_encoding(model: Path, texts: list[str]) -> float:
    with Store(STORE) as store:
        settings = EncoderSettings(encoder=str(model))
        encoder = Encoder(settings, common.MODELS, store, only_known=True)
        # Opens the model.
        encoder.embed(texts[:1], "document")
        began = time.perf_counter()
        encoder.encode(texts, "document")
        return time.perf_counter() - began


def main() -> None:
    for encoder in sys.argv[1:] or RECIPES:
        run(encoder)
    measured = [name for name in RECIPES if (WORK / name / "ablation.json").is_file()]
    document = {
        "recipes": RECIPES,
        "rows": [row for name in measured for row in rows(name)],
        "seconds": [row for name in measured for row in seconds(name)],
    }
    save("query_only", about() | document)


if __name__ == "__main__":
    main()
