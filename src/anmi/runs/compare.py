"""Comparing an artifact of two runs: file by file, and what of the candidates differs."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from anmi.fingerprint import hash_file

_KEY = ["query", "positive", "document"]


@dataclass(frozen=True)
class Difference:
    """What tells two versions of an artifact apart.

    Attributes
    ----------
    files
        In words, one entry per file.
    counts
        Queries, candidates, verdicts and values that are not the same; empty where the artifact holds no candidates.
    """

    files: list[str]
    counts: dict[str, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.files)


def compare(one: Any, other: Any) -> Difference:
    """Compare what two datasets would load.

    Parameters
    ----------
    one, other
        Datasets with ``local_copy``: the earlier version, and the later.
    """
    from anmi.candidates import CandidateShards

    files = file_differences(one.local_copy(), other.local_copy())
    if not files:
        return Difference([])
    loaded = one.load(), other.load()
    if not all(isinstance(side, CandidateShards) for side in loaded):
        return Difference(files)
    return Difference(files, candidate_differences(*loaded))


def file_differences(one: Path, other: Path) -> list[str]:
    """Return in words which files differ.

    Examples
    --------
    >>> import tempfile
    >>> one, other = (Path(tempfile.mkdtemp()) for _ in range(2))
    >>> _ = (one / "a").write_text("x"), (other / "a").write_text("y"), (other / "b").write_text("")
    >>> file_differences(one, other)
    ['a has other bytes', 'b is new']
    """
    old, new = (_files(side) for side in (one, other))
    return [
        f"{name} is missing" if name not in new else f"{name} is new" if name not in old else f"{name} has other bytes"
        for name in sorted({**old, **new})
        if name not in old or name not in new or hash_file(old[name]) != hash_file(new[name])
    ]


def _files(place: Path) -> dict[str, Path]:
    if place.is_file():
        return {place.name: place}
    return {path.relative_to(place).as_posix(): path for path in sorted(place.rglob("*")) if path.is_file()}


def candidate_differences(one: Any, other: Any) -> dict[str, int]:
    """Count what differs between two collections of candidates.

    Parameters
    ----------
    one, other
        Candidates in shards, one row per (query, positive).

    Returns
    -------
    dict
        ``queries`` and ``candidates`` that only one of them has, ``verdicts`` that differ of those that both have, and
        ``values``: candidates that both have under the same verdict, with another weight or measurement.
    """
    tables = [_table(side) for side in (one, other)]
    old, new = tables
    both = old.merge(new, on=_KEY, how="outer", suffixes=("", " there"), indicator=True)
    shared = both[both._merge == "both"]
    same = shared.verdict == shared["verdict there"]
    columns = [name for name in old.columns if name in new.columns and name not in (*_KEY, "verdict")]
    unlike = np.zeros(len(shared), bool)
    for name in columns:
        values, others = shared[name].to_numpy(float), shared[f"{name} there"].to_numpy(float)
        unlike |= ~np.isclose(values, others, rtol=0, atol=0, equal_nan=True)
    return {
        "queries": len(set(old["query"]) ^ set(new["query"])),
        "candidates": len(both) - len(shared),
        "verdicts": int((~same).sum()),
        "values": int((same & unlike).sum()),
    }


def _table(shards: Any) -> pd.DataFrame:
    """Return a row per candidate."""
    parts = []
    for block in shards:
        rows, places = np.nonzero(block.documents >= 0)
        parts.append(
            pd.DataFrame(
                {
                    "query": np.asarray(block.query_ids)[rows],
                    "positive": block.positives[rows, 0] if block.positives.shape[1] else -1,
                    "document": block.documents[rows, places],
                    "verdict": np.asarray(block.legend, dtype=object)[block.verdict[rows, places]],
                    "weight": block.weight[rows, places],
                    **{f"column {name}": values[rows, places] for name, values in block.columns.items()},
                }
            )
        )
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=[*_KEY, "verdict", "weight"])
