"""What is new in a version of a collection, and whether that can be mined alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, TypeVar

import pandas as pd

from anmi.corpus.mined import to_mine
from anmi.corpus.types import empty
from anmi.errors import AnmiError
from anmi.fingerprint import hash_text

Found = TypeVar("Found")

CONTENTS: Final = ("kind", "id", "digest")
# That all queries to mine are mined, as :func:`plan` says it.
EVERYTHING: Final[Mapping[str, Any]] = MappingProxyType({"mined": "all", "queries": None, "removed": []})


def still_there(found: Found | None, name: str) -> Found:
    """Return an artifact of the last mining that an update goes on with.

    Raises
    ------
    AnmiError
        It went between two stages, as by ``kedro anmi prune``.
    """
    if found is None or (isinstance(found, dict) and not found):
        raise AnmiError(
            f"{name} of the last mining, which this update was to go on with, is not there any more: run it again, and "
            "all is mined"
        )
    return found


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
    parts = zip(corpus.document_id, corpus.title, corpus.text, corpus.metadata, strict=True)
    documents = {identifier: _digest(*rest) for identifier, *rest in parts}
    labels: dict[str, list[str]] = {}
    for query, document, relevance in zip(qrels.query_id, qrels.document_id, qrels.relevance, strict=True):
        labels.setdefault(query, []).append(f"{document} {relevance} {documents.get(document, '')}")
    asked = to_mine(queries)
    asked = asked[asked.query_id.isin(labels)]
    found = {
        query: _digest(text, *sorted(labels[query])) for query, text in zip(asked.query_id, asked.text, strict=True)
    }
    rows = [*(("document", *each) for each in documents.items()), *(("query", *each) for each in found.items())]
    return pd.DataFrame(rows, columns=CONTENTS) if rows else empty(*CONTENTS)


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


def plan(
    asked: bool,
    earlier: Mapping[str, Any],
    before: pd.DataFrame | None,
    now: pd.DataFrame,
    settings: str,
    most: float,
    lacking: Callable[[], str],
    losers: Callable[[Difference], Iterable[str]],
) -> dict[str, Any]:
    """Decide which queries are to be mined.

    Parameters
    ----------
    asked
        Whether rows of the last mining may be kept.
    earlier
        What :func:`plan` returned then; empty where there was no such mining, or not all of it is there.
    before, now
        Of :func:`contents_of`.
    settings
        Hash of all settings that change what is mined.
    most
        Share of documents, or of queries, that may have changed since all was mined.
    lacking
        Says what of the last mining is not there any more; nothing where all is.
    losers
        Which queries lose a document that was chosen for them.

    Returns
    -------
    dict
        ``mined`` (``all`` or ``changed``), ``why`` (a sentence), ``queries`` (ids to mine; None for all), ``removed``
        (ids of queries that are gone), ``since_all`` (documents and queries that changed since all was mined) and
        ``settings``; where only what changed is mined, also ``counts`` and ``documents_changed`` (their ids).
    """
    found: dict[str, Any] = {"settings": settings, "since_all": {"documents": 0, "queries": 0}}
    everything = found | dict(EVERYTHING)
    if not asked:
        return everything | {"why": "rows of an earlier mining were not asked for"}
    if not earlier or before is None:
        return everything | {"why": "there is no earlier mining of which all is there"}
    difference = Difference.between(before, now)
    since = {
        "documents": earlier["since_all"]["documents"] + difference.documents.touched,
        "queries": earlier["since_all"]["queries"] + difference.queries.touched,
    }
    shares = {name: since[name] / max(part.total, 1) for name, part in _parts(difference)}
    known = now.id[now.kind == "query"].tolist()
    reasons = (
        "" if known else "there is no query to mine",
        "settings, code or models are others" if earlier["settings"] != settings else "",
        *(f"{share:.0%} of the {name} changed since all was mined" for name, share in shares.items() if share > most),
        lacking(),
    )
    why = next((reason for reason in reasons if reason), "")
    if why:
        return everything | {"why": why}
    mined = {*difference.queries.added, *difference.queries.changed, *losers(difference)}
    chosen = [query for query in known if query in mined]
    why = f"{len(chosen)} of {len(known)} queries are new, changed or lost a document"
    if not chosen:
        chosen, why = known[:1], "no query changed; one is mined, so that every stage has something to do"
    return found | {
        "mined": "changed",
        "why": why,
        "queries": chosen,
        "removed": difference.queries.removed,
        "counts": {name: part.counts() for name, part in _parts(difference)},
        "documents_changed": difference.documents.changed,
        "since_all": since,
    }


def _parts(difference: Difference) -> Sequence[tuple[str, Part]]:
    return (("documents", difference.documents), ("queries", difference.queries))
