"""How well the code-mix share tells mixed queries from pure ones, and how long the hardness of a query takes.

Romanised Hindi-English requests (``hinglish_top``) against English texts: the requests they translate, and the
questions and claims of two English collections; and questions of ``xquad`` into which a third of their translation was
spliced, against the questions as they are, in all pairs of six languages. The numbers of the method (what a word and
what a second language must bring, and the spellings of a romanised word) were chosen on train splits, nothing on test.
The share by scripts alone, and by asking py3langid about every word, stand beside it. Run from the repository's root:

    python benchmarks/hardness.py
"""

from __future__ import annotations

import datetime
import itertools
import json
import os
import resource
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from anmi import seeds
from anmi.corpus.hardness import hardness, mixed_share, read_characters, split_words
from anmi.evaluation.buckets import EASY_BELOW, HARD_ABOVE

ROOT = Path(__file__).parents[1]
DATA = ROOT.parent / "shared" / "data"
RESULT = ROOT / "benchmarks" / "results" / "hardness.json"
LANGUAGES = ("ar", "de", "en", "es", "hi", "zh")
COLLECTIONS = (
    "hinglish_top",
    "scifact",
    "medquad",
    "kg_webnlg/beir_en",
    "chatbot_ko",
    *(f"xquad/{x}" for x in LANGUAGES),
)
SEED = 7
Share = Callable[[Sequence[str]], NDArray[np.float64]]


@cache
def read(name: str, kind: str) -> pd.DataFrame:
    """Return a file of a collection, by id."""
    return pd.read_json(DATA / name / f"{kind}.jsonl", lines=True, dtype={"_id": str}).set_index("_id")


def queries(name: str, split: str) -> pd.DataFrame:
    """Return the queries of a split, with the first document of each."""
    qrels = pd.read_csv(DATA / name / "qrels" / f"{split}.tsv", sep="\t", dtype=str)
    first = qrels.groupby("query-id", sort=False)["corpus-id"].first()
    return read(name, "queries").loc[first.index].assign(document=first)


def spliced(text: str, other: str, draw: np.random.Generator) -> str:
    """Return ``text`` with a third of its words replaced by as large a part of its translation ``other``."""
    parts = [words.split() if " " in words else list(words) for words in (text, other)]
    blank = " " if " " in text or " " in other else ""
    count = [max(1, round(len(part) / 3)) for part in parts]
    start = [int(draw.integers(len(part) - n + 1)) for part, n in zip(parts, count, strict=True)]
    middle = ("" if " " not in other else " ").join(parts[1][start[1] : start[1] + count[1]])
    inner = "" if " " not in text else " "
    before, after = inner.join(parts[0][: start[0]]), inner.join(parts[0][start[0] + count[0] :])
    return blank.join(part for part in (before, middle, after) if part)


def mixed(split: str, main: str, second: str) -> tuple[list[str], list[str]]:
    """Return the questions of ``main`` and the same with a part of their translation."""
    pure = queries(f"xquad/{main}", split).text
    translated = read(f"xquad/{second}", "queries").text[pure.index]
    pairs = zip(pure.index, pure, translated, strict=True)
    return pure.tolist(), [spliced(a, b, seeds.stream(SEED, f"{main}+{second}", q)) for q, a, b in pairs]


def by_py3langid(texts: Sequence[str]) -> NDArray[np.float64]:
    """Return the share of words that py3langid puts into another language than the whole text."""
    identifier = _identifier()
    characters = read_characters(texts)
    words = split_words(characters)
    whole = [identifier(text) for text in texts]
    lettered = np.flatnonzero(words.script >= 0)
    other = [
        identifier(characters.joined[words.start[i] : words.end[i]].lower()) != whole[words.text[i]] for i in lettered
    ]
    total = np.bincount(words.text[lettered], minlength=len(texts))
    return np.bincount(words.text[lettered], weights=other, minlength=len(texts)) / np.maximum(total, 1)


@cache
def _identifier() -> Callable[[str], str]:
    import py3langid

    return cache(lambda text: str(py3langid.classify(text)[0]))


def code_mix_share(texts: Sequence[str], **options: Any) -> NDArray[np.float64]:
    """Return the share of each text's words that are not of its main script or language."""
    characters = read_characters(texts)
    return mixed_share(characters, split_words(characters), **options)


METHODS: dict[str, Share] = {
    "language": code_mix_share,
    "language_main_en": lambda texts: code_mix_share(texts, main="en"),
    "script": lambda texts: code_mix_share(texts, by="script"),
    "py3langid_by_word": by_py3langid,
}


def auc(positive: NDArray[np.float64], negative: NDArray[np.float64]) -> float:
    """Return how often a mixed query has the larger share, ties counting half."""
    truth = np.repeat([1, 0], [len(positive), len(negative)])
    return round(float(roc_auc_score(truth, np.concatenate([positive, negative]))), 4)


def hinglish_rows(split: str) -> list[dict[str, Any]]:
    requests = queries("hinglish_top", split)
    english = {
        "their English requests": read("hinglish_top", "corpus").text[requests.document.unique()].tolist(),
        "xquad/en questions": queries("xquad/en", split).text.tolist(),
        "scifact claims": queries("scifact", split).text.tolist(),
    }
    rows = []
    for method, share in METHODS.items():
        found = share(requests.text.tolist())
        for name, texts in english.items():
            pure = share(texts)
            rows.append({
                "case": "hinglish_top", "split": split, "method": method, "against": name,
                "mixed_queries": len(found), "pure_queries": len(texts), "auc": auc(found, pure),
                "mean_share_mixed": round(float(found.mean()), 4), "mean_share_pure": round(float(pure.mean()), 4),
            })  # fmt: skip
    return rows


def xquad_rows(split: str) -> list[dict[str, Any]]:
    rows = []
    for main, second in itertools.permutations(LANGUAGES, 2):
        pure, mix = mixed(split, main, second)
        for method in ("language", "script"):
            share = METHODS[method]
            a, b = share(mix), share(pure)
            rows.append({
                "case": "xquad", "split": split, "method": method, "main": main, "second": second,
                "queries": len(pure), "auc": auc(a, b),
                "mean_share_mixed": round(float(a.mean()), 4), "mean_share_pure": round(float(b.mean()), 4),
            })  # fmt: skip
    return rows


def speed_row(load_seconds: float) -> dict[str, Any]:
    texts = [*read("hinglish_top", "queries").text, *queries("xquad/en", "train").text][:10_000]
    hardness(texts)
    started, worked = time.perf_counter(), time.process_time()
    hardness(texts)
    seconds, processor = time.perf_counter() - started, time.process_time() - worked
    return {
        "case": "speed", "queries": len(texts), "seconds": round(seconds, 2),
        "processor_seconds": round(processor, 2), "load_average": round(os.getloadavg()[0], 1),
        "queries_per_second": round(len(texts) / seconds), "load_seconds": round(load_seconds, 1),
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }  # fmt: skip


def distribution_rows() -> list[dict[str, Any]]:
    """How hard the queries of real collections are, of all splits."""
    rows = []
    for name in COLLECTIONS:
        found = hardness(read(name, "queries").text.tolist())
        at = np.quantile(found.value, (0.05, 0.5, 0.95))
        rows.append({
            "case": "distribution", "collection": name, "queries": len(found.value),
            **{f"hardness_{p}": round(float(v), 3) for p, v in zip(("p5", "median", "p95"), at, strict=True)},
            "easy": round(float((found.value < EASY_BELOW).mean()), 4),
            "hard": round(float((found.value > HARD_ABOVE).mean()), 4),
            "mean_words": round(float(found.tokens.mean()), 2),
            "mean_entropy": round(float(found.entropy.mean()), 3),
            "mean_punctuation": round(float(found.punctuation.mean()), 4),
            "mean_code_mix": round(float(found.code_mix.mean()), 4),
        })  # fmt: skip
    return rows


def main() -> None:
    """Measure all of it and write the result."""
    from anmi.pipelines.reporting.nodes import machine, versions

    started = time.perf_counter()
    code_mix_share(["loads the lists of words"])
    rows = [speed_row(time.perf_counter() - started)]
    rows += distribution_rows()
    for split in ("train", "test"):
        rows += hinglish_rows(split) + xquad_rows(split)
    document = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": machine(),
        "versions": versions(),
        "chosen_on": "train",
        "rows": rows,
    }
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    table = pd.DataFrame(rows)
    print(table[table.case == "speed"].dropna(axis=1).to_string())
    print(table[table.case == "hinglish_top"].dropna(axis=1).to_string())
    found = table[table.case == "xquad"].groupby(["split", "method"]).auc
    print(found.describe().to_string())


if __name__ == "__main__":
    main()
