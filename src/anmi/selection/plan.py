"""What a run mines: all queries, or only those that a change of the collection concerns."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from anmi.corpus.difference import Difference


@dataclass(frozen=True)
class MiningPlan:
    """Which queries a run mines, and what it takes over from the mining before.

    Attributes
    ----------
    why
        One sentence.
    queries
        Ids to mine; None for all. Rows of all others are taken over.
    removed
        Ids of queries that are gone.
    documents_changed
        Ids of documents that are there under the same name and say something else.
    fits
        What stages fitted then, by artifact, for them to go by again; empty where they fit anew. All rows of a
        selection are chosen by the same bars.
    judges
        What was noted of the cross-encoders of the mining before, for those that may be kept; empty for none.
    settings
        Hash of all settings that change what is mined.
    since_all
        Documents and queries that changed since all was mined.
    counts
        Of documents and queries, how many are new, changed and gone.
    """

    why: str = "rows of an earlier mining were not asked for"
    queries: tuple[str, ...] | None = None
    removed: tuple[str, ...] = ()
    documents_changed: tuple[str, ...] = ()
    fits: Mapping[str, Any] = field(default_factory=dict)
    judges: Mapping[str, Any] = field(default_factory=dict)
    settings: str = ""
    since_all: Mapping[str, int] = field(default_factory=lambda: {"documents": 0, "queries": 0})
    counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @staticmethod
    def of(raw: Mapping[str, Any]) -> MiningPlan:
        """Rebuild a plan from :meth:`as_dict`.

        Examples
        --------
        >>> MiningPlan.of(MiningPlan(queries=("q",)).as_dict()).queries
        ('q',)
        """
        listed = {
            name: None if raw[name] is None else tuple(raw[name])
            for name in ("queries", "removed", "documents_changed")
        }
        return MiningPlan(**{**raw, **listed})

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as plain data."""
        return asdict(self)

    @property
    def mines_all(self) -> bool:
        """Whether nothing is taken over."""
        return self.queries is None


@dataclass(frozen=True)
class MiningRecord:
    """What a finished mining leaves for the next one.

    Attributes
    ----------
    contents
        Of the collection, see :func:`anmi.corpus.difference.contents_of`.
    settings, since_all
        See :class:`MiningPlan`.
    fits
        What its stages fitted, by artifact.
    """

    contents: pd.DataFrame
    settings: str
    since_all: Mapping[str, int]
    fits: Mapping[str, Any]

    @property
    def documents(self) -> list[str]:
        """Ids of the documents, in the order of the corpus."""
        return self.contents.id[self.contents.kind == "document"].tolist()

    def save(self, path: Path) -> None:
        """Write the record into the folder ``path``."""
        self.contents.to_parquet(path / "contents.parquet", index=False)
        rest = {"settings": self.settings, "since_all": dict(self.since_all), "fits": dict(self.fits)}
        (path / "record.json").write_text(json.dumps(rest, allow_nan=False), encoding="utf-8")

    @staticmethod
    def load(path: Path) -> MiningRecord:
        """Read what :meth:`save` wrote."""
        rest = json.loads((path / "record.json").read_text(encoding="utf-8"))
        return MiningRecord(pd.read_parquet(path / "contents.parquet"), **rest)


def plan_mining(
    now: pd.DataFrame,
    settings: str,
    earlier: MiningRecord | None,
    most: float,
    lacking: Callable[[MiningRecord], str],
    losers: Callable[[MiningRecord, Difference], Iterable[str]],
) -> MiningPlan:
    """Decide which queries are to be mined where rows of the last mining may be kept.

    Parameters
    ----------
    now
        Of :func:`anmi.corpus.difference.contents_of`.
    settings
        Hash of all settings that change what is mined.
    earlier
        What the last mining left; None where there is none of which all is there.
    most
        Share of documents, or of queries, that may have changed since all was mined.
    lacking
        Says what of the last mining is not there any more; nothing where all is.
    losers
        Which queries lose a document that was chosen for them.
    """
    if earlier is None:
        return MiningPlan(why="there is no earlier mining of which all is there", settings=settings)
    difference = Difference.between(earlier.contents, now)
    parts = {"documents": difference.documents, "queries": difference.queries}
    since = {name: earlier.since_all[name] + part.touched for name, part in parts.items()}
    shares = {name: since[name] / max(part.total, 1) for name, part in parts.items()}
    known = now.id[now.kind == "query"].tolist()
    reasons = (
        "" if known else "there is no query to mine",
        "" if (earlier.contents.kind == "query").any() else "the last mining had no query to fit anything on",
        "settings, code or models are others" if earlier.settings != settings else "",
        *(f"{share:.0%} of the {name} changed since all was mined" for name, share in shares.items() if share > most),
        lacking(earlier),
    )
    why = next((reason for reason in reasons if reason), "")
    if why:
        return MiningPlan(why=why, settings=settings)
    mined = {*difference.queries.added, *difference.queries.changed, *losers(earlier, difference)}
    chosen = [query for query in known if query in mined]
    why = f"{len(chosen)} of {len(known)} queries are new, changed or lost a document"
    if not chosen:
        chosen, why = known[:1], "no query changed; one is mined, so that every stage has something to do"
    return MiningPlan(
        why=why,
        queries=tuple(chosen),
        removed=tuple(difference.queries.removed),
        documents_changed=tuple(difference.documents.changed),
        fits=earlier.fits,
        settings=settings,
        since_all=since,
        counts={name: part.counts() for name, part in parts.items()},
    )
