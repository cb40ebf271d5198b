"""What is new in a version of a collection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pandas as pd
import pyarrow as pa

from anmi.corpus.columns import arrow, column
from anmi.corpus.mined import to_mine
from anmi.fingerprint import hash_text

CONTENTS: Final = ("kind", "id", "digest")


def contents_of(corpus: pd.DataFrame, queries: pd.DataFrame, qrels: pd.DataFrame) -> pd.DataFrame:
    """Return digests of what mining reads: documents in their order, and the queries to mine with their labels.

    Parameters
    ----------
    corpus
        ``document_id, title, text, metadata``.
    queries
        ``query_id, text, split``, and ``mined`` as :func:`anmi.corpus.mined.to_mine` reads it.
    qrels
        ``query_id, document_id, relevance``.

    Returns
    -------
    pandas.DataFrame
        ``kind`` (``document`` or ``query``)``, id, digest``. The digest of a query is over its text, its labels and the
        labelled documents, so it changes with any of them.

    Examples
    --------
    >>> corpus = pd.DataFrame({"document_id": ["d"], "title": [""], "text": ["fox"], "metadata": ["{}"]})
    >>> queries = pd.DataFrame({"query_id": ["q"], "text": ["a fox?"], "split": ["train"]})
    >>> qrels = pd.DataFrame({"query_id": ["q"], "document_id": ["d"], "relevance": [1]})
    >>> contents_of(corpus, queries, qrels).kind.tolist()
    ['document', 'query']
    """
    names = ("document_id", "title", "text", "metadata")
    parts = zip(*(arrow(corpus[name]).to_pylist() for name in names), strict=True)
    documents = {identifier: _digest(*rest) for identifier, *rest in parts}
    labels: dict[str, list[str]] = {}
    labelled = zip(qrels.query_id.tolist(), qrels.document_id.tolist(), qrels.relevance.tolist(), strict=True)
    for query, document, relevance in labelled:
        labels.setdefault(query, []).append(f"{document} {relevance} {documents.get(document, '')}")
    asked = to_mine(queries)
    asked = asked[asked.query_id.isin(labels)]
    found = {
        query: _digest(text, *sorted(labels[query]))
        for query, text in zip(asked.query_id.tolist(), asked.text.tolist(), strict=True)
    }
    kinds = pa.array(["document"] * len(documents) + ["query"] * len(found), pa.large_string())
    digests = column([*documents.values(), *found.values()])
    return pd.DataFrame({"kind": column(kinds), "id": column([*documents, *found]), "digest": digests})


def _digest(*parts: object) -> str:
    return hash_text("\x1f".join(map(str, parts)))


@dataclass(frozen=True)
class Part:
    """What happened to the documents, or to the queries.

    Attributes
    ----------
    added, changed, removed
        Their ids, in order.
    total
        How many there are now.
    """

    added: list[str]
    changed: list[str]
    removed: list[str]
    total: int

    @staticmethod
    def between(before: Mapping[str, str], now: Mapping[str, str]) -> Part:
        """Compare digests by id.

        Examples
        --------
        >>> Part.between({"a": "1", "b": "1"}, {"b": "2", "c": "1"})
        Part(added=['c'], changed=['b'], removed=['a'], total=2)
        """
        return Part(
            [name for name in now if name not in before],
            [name for name in now if name in before and before[name] != now[name]],
            [name for name in before if name not in now],
            len(now),
        )

    @property
    def touched(self) -> int:
        """How many are new, changed or gone."""
        return len(self.added) + len(self.changed) + len(self.removed)

    def counts(self) -> dict[str, int]:
        """Return the numbers, for JSON."""
        return {"added": len(self.added), "changed": len(self.changed), "removed": len(self.removed)}


@dataclass(frozen=True)
class Difference:
    """What two versions of a collection differ in.

    Attributes
    ----------
    documents, queries
        What happened to them.
    """

    documents: Part
    queries: Part

    @staticmethod
    def between(before: pd.DataFrame, now: pd.DataFrame) -> Difference:
        """Compare two tables of :func:`contents_of`."""
        return Difference(*(Part.between(_by_id(before, kind), _by_id(now, kind)) for kind in ("document", "query")))


def _by_id(contents: pd.DataFrame, kind: str) -> dict[str, str]:
    rows = contents[contents.kind == kind]
    return dict(zip(rows.id, rows.digest, strict=True))
