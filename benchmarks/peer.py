"""Mine by sentence-transformers alone, and print seconds by part as JSON: what peer_mining.py starts and times.

It imports nothing of ours, whose seconds would be counted as the peer's.

    python benchmarks/peer.py COLLECTION MODEL WRITTEN
"""

from __future__ import annotations

import json
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def main(collection: Path, model: str, written: str) -> None:
    began = time.perf_counter()
    seconds: dict[str, float] = defaultdict(float)

    @contextmanager
    def timed(part: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        seconds[part] += time.perf_counter() - start

    with timed("imports"):
        from datasets import Dataset
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.util import mine_hard_negatives
    with timed("loading"):
        encoder = SentenceTransformer(model, device="cpu")
        texts = {name: lines(collection / f"{name}.jsonl") for name in ("corpus", "queries")}
        labels = [
            line.split("\t")
            for line in (collection / "qrels" / "train.tsv").read_text().splitlines()[1:]
        ]
        pairs = [
            (texts["queries"][query], texts["corpus"][document]) for query, document, _ in labels
        ]
    encode = encoder.encode

    def counted(*args: Any, **kwargs: Any) -> Any:
        with timed("encoding"):
            return encode(*args, **kwargs)

    encoder.encode = counted
    with timed("mining"):
        data = Dataset.from_dict(
            {"anchor": [one for one, _ in pairs], "positive": [other for _, other in pairs]}
        )
        found = mine_hard_negatives(
            data,
            encoder,
            corpus=list(texts["corpus"].values()),
            relative_margin=0.05,
            range_max=100,
            num_negatives=7,
            sampling_strategy="top",
            output_format="n-tuple",
            batch_size=64,
            verbose=False,
        )
    seconds["mining"] -= seconds["encoding"]
    with timed("writing"):
        found.to_json(written)
    told = {"whole": time.perf_counter() - began, "rows": len(found), "pairs": len(pairs)}
    print(json.dumps(dict(seconds) | told))


def lines(file: Path) -> dict[str, str]:
    """Return title and text by id."""
    parsed = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    return {line["_id"]: f"{line.get('title', '')} {line['text']}".strip() for line in parsed}


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
