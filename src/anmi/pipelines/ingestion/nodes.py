"""Nodes of ingestion."""

from __future__ import annotations

from typing import Any

from anmi.pipelines.ingestion.params import IngestionParams


def ingest(collection: str, params: IngestionParams, seed: int) -> dict[str, Any]:
    """Read, check and split the collection named by one string, and find which documents are kin."""
    from anmi.corpus.kin import find_kin
    from anmi.corpus.sources import fingerprint, load_collection
    from anmi.corpus.texts import document_texts

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
    kin = find_kin(
        found.corpus,
        document_texts(found.corpus),
        found.duplicates,
        similarity=params.near_similarity,
        name_share=params.name_share,
        least_words=params.near_least_words,
        sibling_keys=params.sibling_keys,
        show_progress=True,
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
        "kin": {str(kind): int(count) for kind, count in kin.groupby("kind").size().items()},
        "equivalents": len(found.equivalents),
        "entities": len(found.entities),
        "facts": len(found.facts),
        "notes": found.notes,
    }
    return {
        "corpus": found.corpus,
        "queries": found.queries,
        "qrels": found.qrels,
        "equivalents": found.equivalents,
        "graph": found.graph,
        "entities": found.entities,
        "facts": found.facts,
        "duplicates": found.duplicates,
        "kin": kin,
        "quarantine": found.quarantine,
        "collection_info": info,
    }
