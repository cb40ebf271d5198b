"""What was set aside, why, and when that is too much."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from anmi.errors import AnmiError

COLUMNS: Final = ("kind", "id", "file", "line", "reason")
_ID_COLUMN: Final = {"document": "document_id", "query": "query_id", "qrel": "query_id"}
_PLURAL: Final = {"document": "documents", "query": "queries", "qrel": "qrels"}


def counts_by_reason(table: pd.DataFrame) -> dict[str, int]:
    """Return how many rows were set aside for each reason; an id that ends one in quotes makes it no other.

    Examples
    --------
    >>> counts_by_reason(pd.DataFrame({"reason": ['as "a"', "empty", 'as "b"']}))
    {'as': 2, 'empty': 1}
    """
    reasons = table["reason"].str.replace(r' ".*"$', "", regex=True)
    return {str(reason): int(count) for reason, count in reasons.groupby(reasons).size().items()}


def table_of(rows: Iterable[tuple[str, str, str, int, str]] = ()) -> pd.DataFrame:
    """Return rows of ``kind, id, file, line, reason`` as a table."""
    return _typed(pd.DataFrame(list(rows), columns=list(COLUMNS)))


def _typed(table: pd.DataFrame) -> pd.DataFrame:
    return table.astype({column: "int64" if column == "line" else "str" for column in COLUMNS})


def check_share(damaged: pd.DataFrame, what: str, total: int, share: float) -> None:
    """Fail where more than a share of ``total`` is damaged; a single damaged row never fails, unless the share is 0.

    Raises
    ------
    AnmiError
        Naming the first damaged row.
    """
    allowed = max(1.0, share * total) if share > 0 else 0.0
    if len(damaged) > allowed:
        first: Any = damaged.iloc[0]
        raise AnmiError(
            f"{len(damaged)} of {total} {what} are damaged, more than ingestion.max_quarantine {share:.2%}; the first "
            f'is {first["file"]} line {first["line"]}, "{first["id"]}": {first["reason"]}; correct the file or raise '
            "ingestion.max_quarantine"
        )


class Quarantine:
    """Collects rows that were set aside.

    Only damage counts against the threshold. What follows from something else that is listed already, or is set aside
    on purpose, does not.
    """

    def __init__(self) -> None:
        self._parts: list[pd.DataFrame] = []
        self._damaged: dict[str, list[pd.DataFrame]] = {}

    def add(self, kind: str, rows: pd.DataFrame, reason: str | pd.Series, *, damage: bool) -> None:
        """Note rows of the kind ``document``, ``query`` or ``qrel``, with their ``file`` and ``line``.

        The reason is one for all rows, or a series of theirs.
        """
        if rows.empty:
            return
        identifiers = rows[_ID_COLUMN[kind]]
        if kind == "qrel":
            identifiers = identifiers + " " + rows["document_id"]
        part = pd.DataFrame({"kind": kind, "id": identifiers, "file": rows["file"], "line": rows["line"]})
        part = part.assign(reason=reason)[list(COLUMNS)].reset_index(drop=True)
        self._parts.append(part)
        if damage:
            self._damaged.setdefault(kind, []).append(part)

    def set_aside(
        self, kind: str, rows: pd.DataFrame, bad: pd.Series | NDArray[np.bool_], reason: str, *, damage: bool
    ) -> pd.DataFrame:
        """Note the bad rows and return the others."""
        mask = np.asarray(bad, dtype=bool)
        self.add(kind, rows[mask], reason, damage=damage)
        return rows[~mask]

    def check(self, kind: str, total: int, share: float) -> None:
        """Fail where more than ``share`` of the rows of a kind are damaged; see :func:`check_share`."""
        check_share(pd.concat(self._damaged.get(kind, [table_of()])), _PLURAL[kind], total, share)

    def table(self) -> pd.DataFrame:
        """Return ``kind, id, file, line, reason``; line 0 where the source has no lines."""
        return _typed(pd.concat([table_of(), *self._parts], ignore_index=True))
