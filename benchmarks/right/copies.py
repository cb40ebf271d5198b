"""Whether a copy of a positive, or the query itself, is ever a negative, and whether equal texts move a split.

The in-batch cases lay all training rows of a collection out as one batch, as training does with each of its batches,
and count the queries that have a wrong document for a negative. The made collection is like ArguAna, where every query
is a document of the corpus. Run from the repository's root:

    python benchmarks/right/copies.py
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from anmi.candidates import Candidates, CandidateShards
from anmi.corpus.duplicates import normalised
from anmi.corpus.related import COPY
from anmi.corpus.sources import load_collection
from anmi.corpus.texts import document_texts
from anmi.corpus.types import Collection
from anmi.pipelines.bm25.nodes import build_bm25_index, cut_terms
from anmi.pipelines.bm25.params import BM25Params
from anmi.pipelines.dense.nodes import retrieve
from anmi.pipelines.dense.params import DenseParams
from anmi.pipelines.selection.nodes import make_training_rows
from anmi.retrieval import pool
from anmi.selection.recipe import recipe_book
from anmi.training.batch import Row, assemble, read_rows

ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared" / "data"
SEED = 42
BOOK = recipe_book({
    "in_batch": {"description": "Positives of other rows alone.", "negatives": 0, "steps": {}},
    "lexical": {"description": "The best of BM25.", "steps": {"top": {"by": "bm25"}}},
})  # fmt: skip
Positives = dict[str, set[str]]
# From a row, the normalised text of its query, those of the positives by that of their queries, and that of every
# document, to the normalised texts that must not be negatives of the row.
Wrong = Callable[[Row, str, Positives, dict[str, str]], set[str]]


def copies() -> list[dict[str, Any]]:
    """Return one row per case: ``case, value, unit, note``."""
    unit = "training queries"
    return [
        {
            "case": "hinglish_queries_with_copy_as_in_batch_negative",
            "value": _in_batch(_read("hinglish_top"), _copies),
            "unit": unit,
            "note": "the positive of another is equal to one of theirs up to case and punctuation; 98 before",
        },
        {
            "case": "medquad_queries_with_equal_query_positive_as_negative",
            "value": _in_batch(_read("medquad"), _of_equal_queries),
            "unit": unit,
            "note": "the positive of a query of the same normalised text; 64 before",
        },
        {
            "case": "self_as_negative",
            "value": _themselves(),
            "unit": unit,
            "note": "of 60 made ones that are documents: the query itself mined by BM25, or in its batch; 60 before",
        },
        {
            "case": "split_moves_after_equal_text",
            "value": _moves(),
            "unit": "of 200 queries",
            "note": "their split is another one after 40 queries of equal text and smaller ids came; 25 before",
        },
    ]


def _read(name: str) -> Collection:
    return load_collection(f"beir:{DATA / name}", seed=SEED)


def _rows(read: Collection) -> pd.DataFrame:
    """Training rows of all training queries without any mined negative."""
    train = read.queries[read.queries.split == "train"]
    ids, place = train.query_id.tolist(), dict(zip(read.corpus.document_id, range(len(read.corpus)), strict=True))
    nothing = np.full((len(ids), 1), -1, np.int32)
    positives = pool.Positives(read.qrels, place).of(ids)
    block = Candidates(np.array(ids), positives, nothing, np.zeros(nothing.shape, np.uint8))
    return make_training_rows(
        selection=CandidateShards.of([block]),
        corpus=read.corpus,
        queries=read.queries,
        qrels=read.qrels,
        related_documents=_related(read),
        recipe="in_batch",
        recipes=BOOK,
    ).to_pandas()


def _related(read: Collection) -> pd.DataFrame:
    return read.duplicates.rename(columns={"duplicate_of": "other_id"}).assign(kind=COPY)


def _in_batch(read: Collection, wrong: Wrong) -> int:
    """Queries with a wrong document among the others' positives."""
    rows = read_rows(_rows(read))
    texts = document_texts(read.corpus)
    form = {name: normalised(text) for name, text in zip(read.corpus.document_id, texts, strict=True)}
    asked = [normalised(row.query) for row in rows]
    batch = assemble(rows, "positives")
    columns: dict[str, list[int]] = {}
    for column, name in enumerate(batch.ids):
        columns.setdefault(form[name], []).append(column)
    positives: Positives = {}
    for row, text in zip(rows, asked, strict=True):
        positives.setdefault(text, set()).update(form[name] for name in row.positive_ids)
    found = set()
    for row, text, weights in zip(rows, asked, batch.weights, strict=True):
        places = [column for name in wrong(row, text, positives, form) for column in columns.get(name, ())]
        if (weights[places] > 0).any():
            found.add(row.query_id)
    return len(found)


def _copies(row: Row, query: str, positives: Positives, form: dict[str, str]) -> set[str]:
    return {form[name] for name in row.positive_ids}


def _of_equal_queries(row: Row, query: str, positives: Positives, form: dict[str, str]) -> set[str]:
    return positives[query] - _copies(row, query, positives, form)


def _itself(row: Row, query: str, positives: Positives, form: dict[str, str]) -> set[str]:
    return {query}


def _themselves() -> int:
    with tempfile.TemporaryDirectory() as folder:
        read = load_collection(f"beir:{arguments(Path(folder), 60)}", seed=SEED)
    params = BM25Params(depth=20)
    nothing: Any = None
    block = retrieve(
        bm25_index=build_bm25_index(cut_terms(read.corpus, {"language": "en"}, params), params),
        dense_index=nothing,
        document_embeddings=nothing,
        query_embeddings=np.zeros((len(read.queries), 0), np.float32),
        corpus=read.corpus,
        queries=read.queries,
        qrels=read.qrels,
        related_documents=_related(read),
        recipe="lexical",
        recipes=BOOK,
        bm25=params,
        dense=DenseParams(random=0),
        seed=SEED,
    ).whole()
    ids = read.corpus.document_id.to_numpy(dtype=object)
    mined = {q for q, row in zip(block.query_ids.tolist(), block.documents, strict=True) if q in ids[row[row >= 0]]}
    return max(len(mined), _in_batch(read, _itself))


def arguments(folder: Path, count: int) -> Path:
    """Write a collection like ArguAna: each query is a document of the same id, its answer the counter-argument."""
    rng = np.random.default_rng(0)
    words = [f"{a}{b}" for a in "bdfgklmnprst" for b in ("ana", "elo", "iri", "oro", "usu")]
    pro = [f"{' '.join(rng.choice(words, 12))}." for _ in range(count)]
    # A counter-argument takes up half of the argument's words.
    con = [f"not {' '.join([*text.split()[:6], *rng.choice(words, 6)])}" for text in pro]
    documents = [{"_id": f"a{i}-pro", "title": "", "text": text} for i, text in enumerate(pro)]
    documents += [{"_id": f"a{i}-con", "title": "", "text": text} for i, text in enumerate(con)]
    sides = (("pro", pro), ("con", con))
    queries = [{"_id": f"a{i}-{side}", "text": text} for side, texts in sides for i, text in enumerate(texts)]
    (folder / "qrels").mkdir(parents=True)
    for name, lines in (("corpus", documents), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    borders = {"train": (0, count // 2), "dev": (count // 2, 3 * count // 4), "test": (3 * count // 4, count)}
    for split, border in borders.items():
        rows = [f"a{i}-{a}\ta{i}-{b}\t1" for i in range(*border) for a, b in (("pro", "con"), ("con", "pro"))]
        lines = ["query-id\tcorpus-id\tscore", *rows]
        (folder / "qrels" / f"{split}.tsv").write_text("\n".join(lines), encoding="utf-8")
    return folder


def _moves() -> int:
    """Queries of another split after equal texts came under smaller ids."""
    with tempfile.TemporaryDirectory() as folder:
        before, after = (_splits(Path(folder) / name, more) for name, more in (("before", 0), ("after", 40)))
    return sum(after.get(name, split) != split for name, split in before.items())


def _splits(folder: Path, more: int) -> dict[str, str]:
    ids = [f"q{i:03}" for i in range(200)]
    queries = [{"_id": name, "text": f"what is thing {name}"} for name in ids]
    queries += [{"_id": f"a{name}", "text": f"What is thing {name}?"} for name in ids[::5][:more]]
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text(
        "\n".join(json.dumps({"_id": q["_id"], "text": f"About {q['_id']}."}) for q in queries), encoding="utf-8"
    )
    (folder / "queries.jsonl").write_text("\n".join(map(json.dumps, queries)), encoding="utf-8")
    rows = [f"{q['_id']}\t{q['_id']}\t1" for q in queries]
    (folder / "qrels" / "train.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *rows]), encoding="utf-8")
    found = load_collection(f"beir:{folder}", seed=SEED).queries
    splits = dict(zip(found.query_id, found.split, strict=True))
    return {name: splits[name] for name in ids if name in splits}


def main() -> None:
    """Print the rows."""
    for row in copies():
        print(f"{row['case']}: {row['value']} {row['unit']} ({row['note']})")


if __name__ == "__main__":
    main()
