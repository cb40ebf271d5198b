"""What was set aside, why, and when that is too much."""

from __future__ import annotations

from typing import Final

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
        """Fail where more than ``share`` of the rows of a kind are damaged.

        A single damaged row never fails, unless the share is 0.

        Raises
        ------
        AnmiError
            Naming the first damaged row.
        """
        damaged = pd.concat(self._damaged.get(kind, [pd.DataFrame(columns=list(COLUMNS))]))
        allowed = max(1.0, share * total) if share > 0 else 0.0
        if len(damaged) > allowed:
            first = damaged.iloc[0]
            raise AnmiError(
                f"{len(damaged)} of {total} {_PLURAL[kind]} are damaged, more than max_quarantine {share:.2%}; the "
                f'first is {first["file"]} line {first["line"]}, id "{first["id"]}": {first["reason"]}; '
                "correct the file or raise max_quarantine"
            )

    def table(self) -> pd.DataFrame:
        """Return ``kind, id, file, line, reason``; line 0 where the source has no lines."""
        if not self._parts:
            text = {column: pd.Series(dtype="str") for column in COLUMNS}
            return pd.DataFrame({**text, "line": pd.Series(dtype="int64")})
        table = pd.concat(self._parts, ignore_index=True)
        return table.astype({column: "int64" if column == "line" else "str" for column in COLUMNS})
