"""nDCG@10 of BM25 on Hindi questions, by the road a user takes.

Run from the repository's root:

python benchmarks/right/hindi.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[2].parent / "shared" / "data" / "xquad" / "hi"


def hindi_ndcg10() -> list[dict[str, Any]]:
    """Index xquad/hi with the tokeniser chosen for Hindi, and score the test queries."""
    from anmi.corpus.sources import document_texts, load_collection
    from anmi.evaluation.metrics import evaluate
    from anmi.evaluation.retrieval import run_table
    from anmi.retrieval.bm25 import BM25Index

    found = load_collection(f"beir:{DATA}")
    queries = found.queries[found.queries["split"] == "test"]
    index = BM25Index.build(document_texts(found.corpus), found.language)
    run = run_table(
        queries["query_id"].tolist(),
        found.corpus["document_id"].tolist(),
        *index.search(queries["text"].tolist(), 100),
    )
    table = evaluate(found.qrels[found.qrels["split"] == "test"], run, ks=(10,))
    kind = index.settings["tokenizer"]
    return [
        {
            "case": "hindi_ndcg10",
            "value": round(float(table["ndcg@10"].mean()), 4),
            "unit": "nDCG@10",
            "note": f"xquad/hi, test, {len(table)} queries, language {found.language}, tokenizer {kind}",
        }
    ]


if __name__ == "__main__":
    print(*hindi_ndcg10(), sep="\n")
