"""BM25 with several tokenisers, language by language: what lexical retrieval finds, and how fast texts are cut.

`before` is the pattern that dropped vowel signs, `after` is what the project chooses for the language; white-space and
sub-words are the plain alternatives. Two more rows are of languages that have no stemmer, of which there are no
judgments at hand: `words` and `ngram` treat a language as if it had none, and documents and queries without blanks
stand for scripts that are written without. What had to be chosen was chosen on train and dev queries, since BM25 learns
nothing from them and dev alone is few; test is here to be reported. Run from the repository's root:

    python benchmarks/lexical_languages.py
"""

from __future__ import annotations

import datetime
import json
import os
import re
import time
import unicodedata
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from anmi.corpus.sources import document_texts, load_collection
from anmi.corpus.types import Collection
from anmi.evaluation.metrics import evaluate
from anmi.evaluation.retrieval import run_table
from anmi.retrieval.bm25 import BM25Index, _index
from anmi.retrieval.tokenize import SNOWBALL, TOKENIZERS, Tokenize, resolve, tokenizer

ROOT = Path(__file__).parents[1]
DATA = ROOT.parent / "shared" / "data"
RESULT = ROOT / "benchmarks" / "results" / "lexical_languages.json"
XQUAD = ("en", "es", "de", "ar", "hi", "zh")
COLLECTIONS = (
    *(f"xquad/{language}" for language in XQUAD),
    "scifact",
    "api_docs",
    "hinglish_top",
    "chatbot_ko",
    "sae4k_ko",
)
# Of these dev is enough, and train long.
DEV_ONLY = ("hinglish_top", "chatbot_ko", "sae4k_ko")
WITHOUT_STEMMER = ("en", "es", "de", "ar", "hi")
DECOMPOSED = ("hi", "de", "es")
# A language may lose so much against the best of the tokenisers before.
ALLOWED = 0.01
_OLD_WORD = re.compile(r"(?u)\b\w\w+\b")


def before(language: str) -> Tokenize:
    """Return what cut texts until vowel signs were kept."""
    kind = resolve("auto", language)
    if kind != "snowball":
        return TOKENIZERS["subword" if kind == "ngram" else kind](language)
    import Stemmer
    from bm25s.tokenization import _infer_stopwords

    from anmi.retrieval.tokenize import _STOPWORDS

    stemmer = Stemmer.Stemmer(SNOWBALL[language], 0)
    stop = frozenset(_infer_stopwords(language)) if language in _STOPWORDS else frozenset()

    @lru_cache(1 << 20)
    def stem(word: str) -> str | None:
        return None if word in stop else str(stemmer.stemWord(word))

    def tokenize(texts: Sequence[str]) -> list[list[str]]:
        found = (map(stem, _OLD_WORD.findall(text.lower())) for text in texts)
        return [[term for term in row if term is not None] for row in found]

    return tokenize


def words(language: str) -> Tokenize:
    """Return words with their marks, but without stems and stop words."""
    from anmi.retrieval.tokenize import _composed, _lower, _words

    return lambda texts: [_words(_lower(_composed(text), language)) for text in texts]


MADE: dict[str, Callable[[str], Tokenize]] = {
    "before": before,
    "whitespace": TOKENIZERS["whitespace"],
    "subword": TOKENIZERS["subword"],
    "words": words,
    "ngram": lambda language: tokenizer("ngram", language),
    "after": lambda language: tokenizer("auto", language),
}
THREE = ("before", "whitespace", "subword")


def measure(found: Collection, split: str, name: str, form: str = "as they are") -> dict[str, Any]:
    """Index the documents in one form, search the queries of some splits, and score what is found."""
    cut = MADE[name](found.language)
    texts = document_texts(found.corpus)
    queries = found.queries[found.queries["split"].isin(split.split("+"))]
    asked = queries["text"].tolist()
    if form == "NFD":
        texts = [unicodedata.normalize("NFD", text) for text in texts]
    if form == "without blanks":
        texts, asked = (["".join(text.split()) for text in side] for side in (texts, asked))
    settings = {"documents": len(texts), "engine": "bm25s", "k1": 0.9, "b": 0.4}
    index = BM25Index(_index(cut(texts), settings), settings, cut)
    run = run_table(queries["query_id"].tolist(), found.corpus["document_id"].tolist(), *index.search(asked, 100))
    table = evaluate(found.qrels[found.qrels["query_id"].isin(queries["query_id"])], run, ks=(10, 100))
    return {
        "case": "retrieval",
        "collection": found.name.removeprefix(f"beir:{DATA}/"),
        "language": found.language,
        "split": split,
        "documents": form,
        "tokenizer": name,
        **({"is": resolve("auto", found.language)} if name == "after" else {}),
        "ndcg@10": round(float(table["ndcg@10"].mean()), 4),
        "recall@100": round(float(table["recall@100"].mean()), 4),
        "queries": len(table),
    }


def rows_of(name: str) -> list[dict[str, Any]]:
    """Measure all tokenisers on one collection, and state whether the rule holds."""
    found = load_collection(name if name == "api_docs" else f"beir:{DATA / name}")
    language = name.removeprefix("xquad/")
    rows = []
    for split in ("dev" if name in DEV_ONLY else "train+dev", "test"):
        of_split = [measure(found, split, kind) for kind in (*THREE, "after")]
        best = max(row["ndcg@10"] for row in of_split[:-1])
        of_split[-1]["lost_against_best"] = round(best - of_split[-1]["ndcg@10"], 4)
        of_split[-1]["rule_holds"] = best - of_split[-1]["ndcg@10"] <= ALLOWED
        if name.startswith("xquad/") and language in WITHOUT_STEMMER:
            of_split += [measure(found, split, kind) for kind in ("words", "ngram")]
            of_split += [measure(found, split, kind, "without blanks") for kind in ("subword", "ngram")]
        if name.startswith("xquad/") and language in DECOMPOSED:
            of_split += [measure(found, split, kind, "NFD") for kind in ("before", "after")]
        rows += of_split
    texts = document_texts(found.corpus)
    was, now = (MADE[kind](found.language)(texts) for kind in ("before", "after"))
    changed = sum(a != b for a, b in zip(was, now, strict=True))
    return [*rows, {"case": "tokens", "collection": name, "documents": len(texts), "with_other_tokens": changed}]


def speed_rows(times: int = 5) -> list[dict[str, Any]]:
    """Time the cutting of a large English collection, all tokenisers in turn, the fastest of several times.

    What words were cut into is remembered, so that it is the steady state that is timed.
    """
    texts = document_texts(load_collection(f"beir:{DATA / 'medquad'}").corpus)
    seconds: dict[str, list[float]] = {"before": [], "after": [], "ngram": []}
    cuts = {name: MADE[name]("en") for name in seconds}
    for _ in range(times):
        for name, measured in seconds.items():
            started = time.process_time()
            cuts[name](texts)
            measured.append(time.process_time() - started)
    return [
        {
            "case": "speed",
            "collection": "medquad",
            "documents": len(texts),
            "tokenizer": name,
            "processor_seconds": round(min(measured), 2),
            "times_before": round(min(measured) / min(seconds["before"]), 2),
        }
        for name, measured in seconds.items()
    ]


def main() -> None:
    """Measure everything and write the result."""
    from anmi.pipelines.reporting.nodes import machine, versions

    os.chdir(ROOT)
    rows = []
    for name in COLLECTIONS:
        rows += rows_of(name)
        print(f"{name}: {sum(row.get('rule_holds') is False for row in rows)} rows missed so far", flush=True)
    rows += speed_rows()
    document = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": machine(),
        "versions": versions(),
        "allowed_loss": ALLOWED,
        "rows": rows,
    }
    RESULT.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
