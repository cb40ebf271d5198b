"""Seconds and memory of the corpus's own encoder on a million documents of sixty words, with distillation, by part.

Documents are sentences of MedQuAD and SciFact in another order. Run from the repository's root.
"""

from __future__ import annotations

import json
import resource
import time
from pathlib import Path
from typing import Any, Final

import numpy as np

ROOT: Final = Path(__file__).parents[2]
DOCUMENTS, WORDS = 1_000_000, 60


def documents(count: int) -> list[str]:
    """Return texts of sixty words, made of sentences."""
    files = [ROOT / "../shared/data" / name / "corpus.jsonl" for name in ("medquad", "scifact")]
    texts = [json.loads(line)["text"] for file in files for line in file.open(encoding="utf-8")]
    known = [sentence for text in texts for sentence in text.split(". ")]
    rows = np.random.default_rng(1).integers(len(known), size=(count, 12)).tolist()
    return [" ".join(". ".join(known[place] for place in row).split()[:WORDS]) for row in rows]


def corpus_encoder_scale() -> list[dict[str, Any]]:
    """Return two rows: seconds, and the memory of the process at its most."""
    from anmi.retrieval import corpus_encoder as module
    from anmi.retrieval.encoders import encode, load_encoder

    spent: list[str] = []

    def timed(name: str, function: Any) -> Any:
        def called(*given: Any) -> Any:
            began, found = time.monotonic(), function(*given)
            spent.append(f"{name} {time.monotonic() - began:.0f} s ({gib():.1f} GiB so far)")
            return found

        return called

    texts = documents(DOCUMENTS)
    spent.append(f"the documents alone {gib():.1f} GiB")
    minilm: Any = load_encoder("minilm", ROOT / "data" / "store" / "models")
    for name in ("counted_once", "strangeness", "_of_words", "_latent"):
        setattr(module, name, timed(name.strip("_"), getattr(module, name)))
    distil = timed("distil", lambda words: encode(minilm, words, batch_size=512))
    began = time.monotonic()
    _, table = module.corpus_encoder(texts, 1, distil, minilm.tokenizer.backend_tokenizer)
    note = f"{DOCUMENTS:,} documents of {WORDS} words, {len(table):,} of them different; {'; '.join(spent)}"
    found = {"seconds": (round(time.monotonic() - began), "s"), "gib": (round(gib(), 2), "GiB")}
    return [{"case": f"corpus_encoder_{n}", "value": v, "unit": unit, "note": note} for n, (v, unit) in found.items()]


def gib() -> float:
    """Return the most memory that this process had so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


if __name__ == "__main__":
    print(*corpus_encoder_scale(), sep="\n")
