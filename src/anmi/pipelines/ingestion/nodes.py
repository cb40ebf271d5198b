"""The node reads, checks and splits a collection."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

from anmi.corpus.knowledge import Knowledge
from anmi.corpus.passages import cut_collection
from anmi.corpus.related import (
    COPY,
    families_of,
    find_related,
    new_documents,
    parents_of,
    why_none_is_new,
    with_copies_named,
)
from anmi.corpus.types import ReadingParams, counts_by_reason
from anmi.pipelines.params import IngestionParams

log = logging.getLogger(__name__)


def ingest(collection: str, params: IngestionParams, seed: int) -> dict[str, Any]:
    """Read, check and split the collection named by one string; find near-duplicates, siblings, what is to be new."""
    from anmi.corpus.marks import Mark, current_marks, file_of, questions, read_log, with_marks
    from anmi.corpus.sources import fingerprint, load_collection

    caps = [
        *filter(
            None, (params.max_queries, params.api_docs_queries if collection == "api_docs" else 0)
        )
    ]
    reading = {name: getattr(params, name) for name in ReadingParams.model_fields}
    found = load_collection(collection, seed=seed, subset=min(caps) if caps else None, **reading)
    if lost := counts_by_reason(found.quarantine[found.quarantine.kind == "document"]):
        told = ", ".join(f"{count:,} × {reason}" for reason, count in lost.items())
        log.warning(
            "Some documents are left out, or read in part: %s; the artifact quarantine lists them",
            told,
        )
    parents = parents_of(found.corpus, params.columns.get("parent"))
    families = families_of(found.corpus, parents)
    if params.parents == "ids":
        parents = families
    elif not families.equals(parents):
        log.info(
            "ids look like parts of %s documents, which stay apart: set ingestion.parents=ids to"
            " make them one document each",
            f"{families[families != parents].nunique():,}",
        )
    if parts := int((parents != found.corpus.document_id).sum()):
        found.notes["parts"] = (
            f"{parts:,} of {len(parents):,} documents are parts of {parents.nunique():,} documents"
        )
        log.info("%s: parts of one are no negatives of each other's queries", found.notes["parts"])
    whole = found.corpus
    found = cut_collection(found, params.passages, parents)
    log_of_marks = [
        Mark(query, document, 0) for query, document in found.judged.to_numpy().tolist()
    ]
    log_of_marks += read_log(file_of(params.marks, collection))
    asked = questions(log_of_marks)
    found, marks = with_marks(
        found, current_marks(log_of_marks), asked, seed=seed, dev_share=params.dev_share
    )
    if "marks" in found.notes:
        log.info("Marks: %s", found.notes["marks"])
    if "labels" in found.notes:
        log.info(
            'Collection "%s" has no training labels: nothing is mined, and training rests on'
            " pseudo-queries",
            collection,
        )
    info = {"documents": len(whole), "fingerprint": fingerprint(replace(found, corpus=whole))}
    family_of = dict(zip(parents, families, strict=True))
    related = find_related(
        found.corpus, found.forms, found.duplicates, found.corpus.parent.map(family_of)
    )
    found = replace(found, corpus=with_copies_named(found.corpus, related))
    new = new_documents(
        found.corpus, found.queries, found.qrels, related, wanted=params.new_queries, seed=seed
    )
    if params.new_queries and not (new.split == "test").any():
        found.notes["new_documents"] = why_none_is_new(found.queries, found.qrels)
        log.info(found.notes["new_documents"])
    held_out = new.assign(parent=new.document_id.map(found.corpus.set_index("document_id").parent))
    info |= {
        "collection": found.name,
        "language": found.language,
        "passages": len(found.corpus),
        "queries": found.queries.groupby("split").size().to_dict(),
        "new_documents": held_out.groupby("split").parent.nunique().to_dict(),
        "quarantined": counts_by_reason(found.quarantine),
        "related": related[related.kind != COPY].groupby("kind").size().to_dict(),
        **{
            name: len(getattr(found, name))
            for name in ("duplicates", "equivalents", "entities", "facts")
        },
        "notes": found.notes,
    }
    return {
        "corpus": found.corpus,
        "queries": found.queries,
        "qrels": found.qrels,
        "marks": marks,
        "equivalents": found.equivalents,
        "given_runs": found.runs,
        "knowledge": Knowledge(found.entities, found.graph, found.facts),
        "related_documents": related,
        "new_documents": new,
        "quarantine": found.quarantine,
        "collection_info": info,
    }
