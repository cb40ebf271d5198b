"""`mine_hard_negatives` beside that of sentence-transformers, and audits that do not know the truth: doors.json.

Four collections, each with some of what is relevant hidden, as in planted.py. `mined` has both
functions on the same pairs, corpus and model: the share of negatives that are relevant in truth,
the share of queries with all seven, their mean similarity to the query, and seconds. `audits` has
negatives of five miners, and whether the truth lies in the interval that `audit_negatives` gives.
The judge's coefficients are fitted without the collection. A quarter of an hour on two cores; with
``--network`` rows of the packaged MiniLM on one of them are added (minutes more). With
``--pairs N`` only `scale` is measured: time and memory of both functions on N pairs.

    python benchmarks/doors.py [--network | --pairs N | --page]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final
from unittest.mock import patch

import numpy as np
from datasets import Dataset, disable_progress_bars
from sentence_transformers import SentenceTransformer, util

from anmi import audit_negatives, mine_hard_negatives
from anmi.api import collection
from anmi.corpus.sources import load_collection
from anmi.corpus.texts import document_texts
from anmi.evaluation.significance import share
from anmi.judging.fusing import FusedOptions
from anmi.retrieval import pool
from anmi.retrieval.encoders import Encoder
from anmi.retrieval.kinds import EncoderSettings
from common import MODELS, ROOT, STORE, WORK, about, fill, load, markdown, save
from made_collection import make
from peer_mining import measured
from planted import COLLECTIONS, SEED, _equivalents, _queries, _split

NAMES: Final = ("api_docs", "kg_webnlg/beir_en", "medquad", "scifact")
OF_NETWORK: Final = ("api_docs",)
NEGATIVES: Final = 7
PAGE: Final = ROOT / "docs" / "script.md"
BM25_TOP: Final = {
    "description": "The first by BM25.",
    "steps": {"source": {"source": "bm25"}, "top": {"by": "bm25"}},
}
RANDOM: Final = {"description": "Any.", "steps": {"source": {"source": "random"}, "random": {}}}


class Case:
    """Pairs of a collection, its corpus, and what is relevant in truth."""

    def __init__(self, name: str) -> None:
        place, kind, most = COLLECTIONS[name]
        read = load_collection(place, seed=SEED)
        train = read.queries[read.queries.split == "train"].set_index("query_id").text
        train = train[~train.duplicated()]
        labels = read.qrels[read.qrels.query_id.isin(train.index) & (read.qrels.relevance > 0)]
        ids = _queries(train, labels, read.equivalents, kind, most)
        numbers = {document: row for row, document in enumerate(read.corpus.document_id)}
        positives = pool.Positives(labels, numbers).of(ids)
        known, hidden = positives, np.full((len(ids), 0), -1)
        if kind == "hidden":
            known, hidden = _split(ids, positives, half=False)
        relevant = np.concatenate([hidden, _equivalents(ids, read.equivalents, numbers)], axis=1)
        self.name = name
        self.texts = document_texts(read.corpus)
        self.relevant = {
            train[query]: {self.texts[document] for document in row if document >= 0}
            for query, row in zip(ids, relevant, strict=True)
        }
        pairs = [
            (train[query], self.texts[document])
            for query, row in zip(ids, known, strict=True)
            for document in row[row >= 0]
        ]
        queries, documents = zip(*pairs, strict=True)
        self.pairs = Dataset.from_dict({"query": queries, "positive": documents})

    def truth(self, mined: Dataset) -> dict[str, Any]:
        """Return which share of the distinct negatives is relevant, and how many queries have all."""
        by_query: dict[str, set[str]] = {query: set() for query in self.relevant}
        for query, negative in zip(mined["query"], mined["negative"], strict=True):
            by_query[query].add(negative)
        false = [len(texts & self.relevant[query]) for query, texts in by_query.items()]
        counts = [len(texts) for texts in by_query.values()]
        measured = share(np.array(false), np.array(counts))
        return {
            "false": measured.value,
            "negatives": int(np.sum(counts)),
            "coverage": float(np.mean(np.array(counts) >= NEGATIVES)),
        }


def timed(function: Callable[..., Dataset], *inputs: Any, **settings: Any) -> tuple[Dataset, float]:
    """Call a function; return what it returns, and its seconds."""
    began = time.monotonic()
    return function(*inputs, **settings), time.monotonic() - began


def side_by_side(case: Case, encoder: str, model: SentenceTransformer) -> list[dict[str, Any]]:
    """Mine by both functions, ours after theirs.

    A table of tokens has nothing at hand; vectors of a network are kept, so seconds are without.
    """
    cache = {} if encoder == "static" else {"cache_folder": str(WORK / "doors")}
    ours = mine_hard_negatives
    functions: dict[str, Callable[..., Dataset]] = {
        "sentence-transformers": util.mine_hard_negatives,
        "sentence-transformers, relative_margin=0.05": partial(
            util.mine_hard_negatives, relative_margin=0.05
        ),
        'anmi, judge="none", relative_margin=0.05': partial(
            ours, judge="none", relative_margin=0.05
        ),
        "anmi": ours,
    }
    rows = []
    for name, function in functions.items():
        mined, seconds = timed(
            function, case.pairs, model, corpus=case.texts, **common_settings() | cache
        )
        similarity = [scores[1] for scores in mined["scores"]]
        rows.append(
            {"collection": case.name, "encoder": encoder, "miner": name, **case.truth(mined)}
            | {"similarity": float(np.mean(similarity))}
            | {"seconds": None if cache else round(seconds, 1)}
        )
        print(rows[-1], flush=True)
    return rows


def common_settings() -> dict[str, Any]:
    """Return what all calls have in common."""
    return {"num_negatives": NEGATIVES, "output_scores": True, "verbose": False}


def audits(case: Case, model: SentenceTransformer) -> list[dict[str, Any]]:
    """Audit the negatives of five miners."""
    mine = partial(mine_hard_negatives, case.pairs, model, corpus=case.texts, **common_settings())
    theirs = partial(
        util.mine_hard_negatives, case.pairs, model, corpus=case.texts, **common_settings()
    )
    miners: dict[str, Callable[[], Dataset]] = {
        "random": partial(mine, recipe=RANDOM),
        "BM25": partial(mine, judge="none", recipe=BM25_TOP),
        "nearest": theirs,
        "nearest, relative_margin=0.05": partial(theirs, relative_margin=0.05),
        "anmi": mine,
    }
    rows = []
    for name, miner in miners.items():
        mined = miner()
        audit = audit_negatives(mined, corpus=case.texts, store=STORE, verbose=False)
        truth = case.truth(mined)
        expected = audit.expected or {"share": None, "low": 0.0, "high": 1.0}
        rows.append(
            {"collection": case.name, "miner": name, **truth}
            | {key: expected.get(key) for key in ("share", "low", "high", "basis", "warning")}
            | {"holds": bool(expected["low"] <= truth["false"] <= expected["high"])}
        )
        print(rows[-1], flush=True)
    return rows


_SCRIPT: Final = """
import sys
from anmi.corpus.sources import load_collection
from anmi.corpus.texts import document_texts
from anmi.retrieval.encoders import Encoder
from anmi.retrieval.kinds import EncoderSettings
from datasets import Dataset
from pathlib import Path
folder, function, models = sys.argv[1:]
read = load_collection(f"beir:{folder}", seed=1)
queries = read.queries.set_index("query_id").text
texts = dict(zip(read.corpus.document_id, document_texts(read.corpus)))
pairs = Dataset.from_dict({
    "query": [queries[query] for query in read.qrels.query_id],
    "positive": [texts[document] for document in read.qrels.document_id],
})
model = Encoder(EncoderSettings(encoder="static"), Path(models)).trainable()
if function == "nothing":
    raise SystemExit
if function == "anmi":
    from anmi import mine_hard_negatives
else:
    from sentence_transformers.util import mine_hard_negatives
mined = mine_hard_negatives(
    pairs, model, corpus=list(texts.values()), relative_margin=0.05, num_negatives=7, verbose=False
)
print(len(pairs), len(mined))
"""


def scale(pairs: int) -> list[dict[str, Any]]:
    """Mine made pairs by both functions, and only read them, each in a process of its own.

    There are twice as many documents.
    """
    folder = WORK / f"made-{pairs}"
    if not folder.exists():
        make(folder, 2 * pairs, pairs)
    rows = []
    for function in ("nothing", "sentence-transformers", "anmi"):
        command = [sys.executable, "-c", _SCRIPT, str(folder), function, str(MODELS)]
        run = measured(command, {"ANMI_STORE": str(STORE)})
        rows.append(
            {"pairs": pairs, "function": function, "seconds": round(run["wall"], 1)}
            | {"mib": round(run["mib"]), "printed": run["printed"].splitlines()[-1:]}
        )
        print(rows[-1], flush=True)
    return rows


def fill_page(result: dict[str, Any]) -> None:
    """Write the tables of the page on scripts."""
    head = ["collection, encoder", "function", "false", "complete", "similarity", "s"]
    rows = [
        [
            f"{row['collection']}, {row['encoder']}",
            f"`{row['miner']}`" if "=" in row["miner"] else row["miner"],
            f"{row['false']:.1%}",
            f"{row['coverage']:.0%}",
            f"{row['similarity']:.2f}",
            "–" if row["seconds"] is None else f"{row['seconds']:.0f}",
        ]
        for row in result["mined"]
    ]
    fill(PAGE, "doors.py", markdown(head, rows))
    head = ["collection", "negatives of", "relevant in truth", "expected", "interval", "holds"]
    rows = [
        [
            row["collection"],
            row["miner"],
            f"{row['false']:.1%}",
            "–" if row["share"] is None else f"{row['share']:.1%}",
            f"{row['low']:.1%} to {row['high']:.1%}",
            "yes" if row["holds"] else "no",
        ]
        for row in result["audits"]
    ]
    fill(PAGE, "doors.py audits", markdown(head, rows))


def main() -> None:
    """Measure and save, or with ``--page`` only write the page anew."""
    if "--page" in sys.argv:
        fill_page(load("doors"))
        return
    if "--pairs" in sys.argv:
        rows = scale(int(sys.argv[sys.argv.index("--pairs") + 1]))
        result = load("doors")
        save("doors", result | {"scale": rows}, result)
        return
    disable_progress_bars()
    if "--network" in sys.argv:
        result = load("doors")
        result["mined"] = [row for row in result["mined"] if row["encoder"] == "static"]
        for name in OF_NETWORK:
            result["mined"] += measure(Case(name), "minilm")[0]
            save("doors", result, result)
        fill_page(result)
        return
    result = {**about(), "mined": [], "audits": []}
    for name in NAMES:
        mined, audited = measure(Case(name), "static")
        result["mined"] += mined
        result["audits"] += audited
    held = [row["holds"] for row in result["audits"]]
    result["intervals_that_hold"] = f"{sum(held)} of {len(held)}"
    save("doors", result)
    fill_page(result)


def measure(case: Case, encoder: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Mine with an encoder, and audit what a table of tokens mines."""
    settings = EncoderSettings(encoder=encoder, max_length=128)
    model = Encoder(settings, MODELS).trainable()
    with patch.object(collection, "FusedOptions", partial(FusedOptions, without=case.name)):
        mined = side_by_side(case, encoder, model)
        return mined, audits(case, model) if encoder == "static" else []


if __name__ == "__main__":
    main()
