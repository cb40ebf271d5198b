"""How many documents are held out of mining and training, and how many test queries ask for nothing else.

Run from the repository's root: ``python benchmarks/right/new_documents.py``.
"""

from __future__ import annotations

from typing import Any

from anmi.pipelines.ingestion.nodes import ingest
from anmi.pipelines.params import IngestionParams

SHARED = "beir:../shared/data"
COLLECTIONS = (
    "api_docs",
    *(f"{SHARED}/{name}" for name in ("scifact", "medquad", "sae4k_ko", "xquad/de", "hinglish_top")),
)


def new_documents_share() -> list[dict[str, Any]]:
    """Return the rows: the mean share of the documents, and the smallest number of test queries about new ones."""
    told, shares, least = [], [], []
    for collection in COLLECTIONS:
        made = ingest(collection, IngestionParams(), 1)
        new, queries, qrels = (made[name] for name in ("new_documents", "queries", "qrels"))
        asked = qrels[qrels.query_id.isin(queries.query_id[queries.split == "test"]) & (qrels.relevance > 0)]
        wholly = asked.document_id.isin(new.document_id).groupby(asked.query_id).all()
        named = set(qrels.document_id[qrels.query_id.isin(queries.query_id[queries.split == "train"])])
        free = int((~asked.document_id.isin(named)).groupby(asked.query_id).all().sum())
        shares.append(len(new) / len(made["corpus"]))
        least.append(int(wholly.sum()))
        told.append(f"{collection.removeprefix(SHARED + '/')} {shares[-1]:.1%}, {least[-1]} of {free}")
    note = f"documents that are new, and test queries about them of those that no label names: {'; '.join(told)}"
    share, fewest = round(sum(shares) / len(shares), 4), "the fewest of these collections"
    return [
        {"case": "new_documents_share", "value": share, "unit": "of documents", "note": note},
        {"case": "new_test_queries", "value": min(least), "unit": "queries", "note": fewest},
    ]


if __name__ == "__main__":
    for row in new_documents_share():
        print(row)
