"""Nodes of ingestion."""

from __future__ import annotations

from typing import Any

from anmi.pipelines.ingestion.params import IngestionParams


def ingest(collection: str, params: IngestionParams, seed: int) -> dict[str, Any]:
    """Read, check and split the collection named by one string."""
    from anmi.corpus.sources import fingerprint, load_collection

    cap = params.api_docs_queries if collection == "api_docs" else 0
    caps = [value for value in (cap, params.max_queries) if value]
    found = load_collection(
        collection,
        seed=seed,
        subset=min(caps) if caps else None,
        max_quarantine=params.max_quarantine,
        dev_share=params.dev_share,
        test_share=params.test_share,
        language=params.language,
    )
    counts = found.queries.groupby("split").size().to_dict()
    info = {
        "collection": found.name,
        "language": found.language,
        "fingerprint": fingerprint(found),
        "documents": len(found.corpus),
        "queries": {str(split): int(count) for split, count in counts.items()},
        "quarantined": {str(k): int(v) for k, v in found.quarantine.groupby("reason").size().items()},
        "duplicates": len(found.duplicates),
        "equivalents": len(found.equivalents),
        "notes": found.notes,
    }
    return {
        "corpus": found.corpus,
        "queries": found.queries,
        "qrels": found.qrels,
        "equivalents": found.equivalents,
        "graph": found.graph,
        "duplicates": found.duplicates,
        "quarantine": found.quarantine,
        "collection_info": info,
    }
