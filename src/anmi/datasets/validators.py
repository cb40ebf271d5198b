"""Kedro checks with these what another team may hand over in place of an artifact of ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from anmi.errors import AnmiError

if TYPE_CHECKING:
    import pandas as pd


class TableColumns:
    """Require columns of a table, and that none of some columns repeats a value or lacks one.

    Parameters
    ----------
    required
        Names that must be among the table's columns.
    unique
        Those of them whose values are ids: each stands in one row.

    Examples
    --------
    >>> import pandas as pd
    >>> queries = pd.DataFrame({"query_id": ["q1", "q1"], "text": ["a", "b"]})
    >>> TableColumns(["query_id", "text"], ["query_id"]).validate(queries)
    Traceback (most recent call last):
    anmi.errors.AnmiError: query_id "q1" stands in more than one row: give each row an id of its own
    """

    def __init__(self, required: Sequence[str], unique: Sequence[str] = ()) -> None:
        self.required = list(required)
        self.unique = list(unique)

    def validate(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return the table as it is.

        Raises
        ------
        AnmiError
            A column is not there, an id is empty, or one repeats.
        """
        absent = [column for column in self.required if column not in table.columns]
        if absent:
            raise AnmiError(
                f"the table has no column {', '.join(absent)} (it has {', '.join(table.columns)}):"
                " name its columns as this project writes them"
            )
        for column in self.unique:
            ids = table[column]
            if ids.isna().any():
                row = int(ids.isna().to_numpy().argmax())
                raise AnmiError(f"{column} is empty in row {row}: give each row an id")
            repeated = ids[ids.duplicated()]
            if len(repeated):
                raise AnmiError(
                    f'{column} "{repeated.iloc[0]}" stands in more than one row: give each row an'
                    " id of its own"
                )
        return table
