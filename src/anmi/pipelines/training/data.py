"""What a training reads: the artifact between preparing and training."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from anmi.files import read_json, write_json


@dataclass(frozen=True)
class TrainingData:
    """What a training reads beside its rows, as a folder of tables.

    Attributes
    ----------
    train_queries
        ``query_id`` of the training queries whose labels are used.
    positives
        ``query_id, document_id, text`` of queries with more positives than rows.
    pseudo_queries
        Those that are trained on.
    dev_documents, dev_queries, dev_labels
        See :func:`anmi.training.alpha.dev_tables`.
    facts
        ``pseudo_kinds``, in order, None where no pseudo-query is trained on; ``dev_queries``:
        ``labels`` or ``pseudo_queries``; ``tau_plus`` by how a loss wants it estimated.
    """

    train_queries: pd.DataFrame
    positives: pd.DataFrame
    pseudo_queries: pd.DataFrame
    dev_documents: pd.DataFrame
    dev_queries: pd.DataFrame
    dev_labels: pd.DataFrame
    facts: dict[str, Any]

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """All tables by their names."""
        return {name: value for name, value in vars(self).items() if name != "facts"}

    @property
    def dev_tables(self) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
        """What dev queries search, these, and their labels."""
        return self.dev_documents, self.dev_queries, self.dev_labels

    def save(self, folder: Path) -> None:
        """Write a Parquet file per table, and the facts as JSON."""
        for name, table in self.tables.items():
            table.to_parquet(folder / f"{name}.parquet", index=False, compression="zstd")
        write_json(folder / "facts.json", self.facts)

    @classmethod
    def load(cls, folder: Path) -> TrainingData:
        """Read what :meth:`save` wrote."""
        tables = {path.stem: pd.read_parquet(path) for path in folder.glob("*.parquet")}
        return cls(**tables, facts=read_json(folder / "facts.json"))
