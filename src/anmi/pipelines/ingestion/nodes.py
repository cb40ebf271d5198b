"""The node reads, checks and splits a collection."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pandas as pd

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
from anmi.corpus.types import Collection, ReadingParams, counts_by_reason
from anmi.pipelines.params import IngestionParams

log = logging.getLogger(__name__)


def ingest(collection: str, params: IngestionParams, seed: int) -> dict[str, Any]:
    """Read, check and split the collection that one string names.

    Near-duplicates, siblings and what is to be new are found as well.
    """
    from anmi.corpus.sources import load_collection

    caps = [params.max_queries, params.api_docs_queries if collection == "api_docs" else 0]
    subset = min(filter(None, caps), default=None)
    reading = {name: getattr(params, name) for name in ReadingParams.model_fields}
    read = load_collection(collection, seed=seed, subset=subset, **reading)
    if lost := counts_by_reason(read.quarantine[read.quarantine.kind == "document"]):
        reasons = ", ".join(f"{count:,} × {reason}" for reason, count in lost.items())
        log.warning(
            "Some documents are left out, or read in part: %s; the artifact quarantine lists them",
            reasons,
        )
    parents, family_of = _parents(read, params)
    cut, marks = _with_marks(
        cut_collection(read, params.passages, parents), collection, params, seed
    )
    families = cut.corpus.parent.map(family_of)
    related = find_related(cut.corpus, cut.forms, cut.duplicates, families)
    cut = replace(cut, corpus=with_copies_named(cut.corpus, related))
    new = new_documents(
        cut.corpus, cut.queries, cut.qrels, related, new_queries=params.new_queries, seed=seed
    )
    if params.new_queries and not (new.split == "test").any():
        cut.notes["new_documents"] = why_none_is_new(cut.queries, cut.qrels)
        log.info(cut.notes["new_documents"])
    return {
        "corpus": cut.corpus,
        "queries": cut.queries,
        "qrels": cut.qrels,
        "marks": marks,
        "equivalents": cut.equivalents,
        "given_runs": cut.runs,
        "knowledge": Knowledge(cut.entities, cut.graph, cut.facts),
        "related_documents": related,
        "new_documents": new,
        "quarantine": cut.quarantine,
        "collection_info": _info(read, cut, related, new),
    }


def _info(
    read: Collection, cut: Collection, related: pd.DataFrame, new: pd.DataFrame
) -> dict[str, Any]:
    """Return what is told of a collection, as it was read and as it is cut into passages."""
    from anmi.corpus.sources import fingerprint

    parent_of = cut.corpus.set_index("document_id").parent
    held_out = new.assign(parent=new.document_id.map(parent_of))
    tables = ("duplicates", "equivalents", "entities", "facts")
    return {
        "documents": len(read.corpus),
        "fingerprint": fingerprint(replace(cut, corpus=read.corpus)),
        "collection": cut.name,
        "language": cut.language,
        "passages": len(cut.corpus),
        "queries": cut.queries.groupby("split").size().to_dict(),
        "new_documents": held_out.groupby("split").parent.nunique().to_dict(),
        "quarantined": counts_by_reason(cut.quarantine),
        "related": related[related.kind != COPY].groupby("kind").size().to_dict(),
        **{name: len(getattr(cut, name)) for name in tables},
        "notes": cut.notes,
    }


def _parents(read: Collection, params: IngestionParams) -> tuple[pd.Series[str], dict[str, str]]:
    """Return the document that each one is a part of, and by these what ids say of families."""
    parents = parents_of(read.corpus, params.columns.get("parent"))
    families = families_of(read.corpus, parents)
    if params.parents == "ids":
        parents = families
    elif not families.equals(parents):
        log.info(
            "ids look like parts of %s documents, which stay apart: set ingestion.parents=ids to"
            " make them one document each",
            f"{families[families != parents].nunique():,}",
        )
    if parts := int((parents != read.corpus.document_id).sum()):
        read.notes["parts"] = (
            f"{parts:,} of {len(parents):,} documents are parts of {parents.nunique():,} documents"
        )
        log.info("%s: parts of one are no negatives of each other's queries", read.notes["parts"])
    return parents, dict(zip(parents, families, strict=True))


def _with_marks(
    cut: Collection, collection: str, params: IngestionParams, seed: int
) -> tuple[Collection, pd.DataFrame]:
    """Return the collection with what people marked, and the marks."""
    from anmi.corpus.marks import Mark, current_marks, file_of, questions, read_log, with_marks

    pairs = cut.judged.to_numpy().tolist()
    marks = [Mark(query, document, 0) for query, document in pairs]
    marks += read_log(file_of(params.marks, collection))
    marked, table = with_marks(
        cut, current_marks(marks), questions(marks), seed=seed, dev_share=params.dev_share
    )
    if "marks" in marked.notes:
        log.info("Marks: %s", marked.notes["marks"])
    if "labels" in marked.notes:
        log.info(
            'Collection "%s" has no training labels: nothing is mined, and training rests on'
            " pseudo-queries",
            collection,
        )
    return marked, table
