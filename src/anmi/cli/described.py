"""What a collection holds: counts, language and a sample, as a run would read it."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any, Final

import click

from anmi.corpus.types import SPLITS

_SAMPLE: Final = 3
_LONGEST: Final = 160


def describe(collection: str, ingestion: Any, seed: int) -> dict[str, Any]:
    """Read a collection under the parameters of ingestion, and describe it for JSON.

    ``notes`` is what the reader noted, such as how splits were cut, and ``sample`` has documents and queries with the
    ids of their relevant documents.

    Raises
    ------
    AnmiError
        It cannot be read; the message says why.
    """
    from anmi.corpus.quarantine import counts_by_reason
    from anmi.corpus.raw import FieldNames
    from anmi.corpus.sources import load_collection

    found = load_collection(
        collection,
        seed=seed,
        max_quarantine=ingestion.max_quarantine,
        dev_share=ingestion.dev_share,
        test_share=ingestion.test_share,
        language=ingestion.language,
        fields=FieldNames(ingestion.id_column, ingestion.title_column, ingestion.text_column),
    )
    queries, labels = (table.groupby("split").size().to_dict() for table in (found.queries, found.qrels))
    return {
        "collection": found.name,
        "language": found.language,
        "documents": len(found.corpus),
        "queries": {split: int(queries.get(split, 0)) for split in SPLITS},
        "labels": {split: int(labels.get(split, 0)) for split in SPLITS},
        "facts": len(found.facts),
        "duplicates": len(found.duplicates),
        "quarantined": counts_by_reason(found.quarantine),
        "notes": found.notes,
        "sample": _sample(found),
    }


def _sample(found: Any) -> dict[str, list[dict[str, Any]]]:
    from anmi.corpus.texts import document_texts

    texts = document_texts(found.corpus.head(_SAMPLE))
    ids = found.corpus["document_id"].head(_SAMPLE)
    relevant = found.qrels.groupby("query_id")["document_id"].agg(list)
    asked = found.queries.head(_SAMPLE)
    return {
        "documents": [{"document_id": i, "text": _short(text)} for i, text in zip(ids, texts, strict=True)],
        "queries": [
            {"query_id": i, "text": _short(text), "relevant": list(relevant.get(i, []))}
            for i, text in zip(asked["query_id"], asked["text"], strict=True)
        ],
    }


def _short(text: str) -> str:
    return textwrap.shorten(text, _LONGEST, placeholder=" …")


def counts(found: Mapping[str, Any]) -> str:
    """Say in one line how much a collection holds.

    Examples
    --------
    >>> queries, labels = {"train": 1200, "dev": 0, "test": 30}, {"train": 1300, "dev": 0, "test": 31}
    >>> counts({"documents": 5000, "queries": queries, "labels": labels, "language": "en"})
    '5,000 documents in "en", queries: 1,200 train, 0 dev, 30 test, 1,331 labels'
    """
    queries = ", ".join(f"{number:,} {split}" for split, number in found["queries"].items())
    labels = sum(found["labels"].values())
    return f'{found["documents"]:,} documents in "{found["language"]}", queries: {queries}, {labels:,} labels'


def remarks(found: Mapping[str, Any]) -> list[str]:
    """Return what the user should know of a collection before a run of it, a sentence each; mostly nothing."""
    said = []
    queries = found["queries"]
    if not any(queries.values()):
        said.append("nobody labelled a query: training rests on pseudo-queries, and so does evaluation, a weaker proof")
    elif not queries["train"]:
        said.append("no training query has a label: nothing is mined, and training rests on pseudo-queries")
    missing = [split for split in ("dev", "test") if not queries[split]]
    if any(queries.values()) and missing:
        what = {"dev": "choose when to stop by", "test": "evaluate on"}
        said.append("; ".join(f"there is no {split} query to {what[split]}" for split in missing))
    small = [f"{split} has {queries[split]}" for split in ("dev", "test") if 0 < queries[split] < 50]
    if small:
        said.append(f"{' and '.join(small)} queries: with fewer than 50 trust no interval")
    if found["quarantined"]:
        reasons = ", ".join(f"{number:,} x {reason}" for reason, number in found["quarantined"].items())
        said.append(f"set aside when it was read: {reasons}")
    return said


def echo(found: Mapping[str, Any]) -> None:
    """Print the description of a collection."""
    from anmi.errors import visible

    click.echo(visible(f"{found['collection']}: {counts(found)}"))
    if found["duplicates"]:
        click.echo(f"duplicates: {found['duplicates']:,} documents have the text of another")
    if found["facts"]:
        click.echo(f"graph: the documents state {found['facts']:,} facts")
    for name, note in found["notes"].items():
        click.echo(visible(f"{name}: {note}"))
    for remark in remarks(found):
        click.echo(visible(f"note: {remark}"))
    for item in found["sample"]["documents"]:
        click.echo(visible(f"document {item['document_id']}: {item['text']}"))
    for item in found["sample"]["queries"]:
        click.echo(visible(f"query {item['query_id']}: {item['text']} → {', '.join(item['relevant'][:_SAMPLE])}"))
