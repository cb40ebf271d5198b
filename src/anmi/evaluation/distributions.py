"""Score distributions of the candidates, by what became of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow.parquet as pq

from anmi.candidates import PADDING, Candidates, CandidateShards
from anmi.candidates.parts import File
from anmi.evaluation.diagnostics import fate_of

_BINS: Final = 40
SCORE_COLUMNS: Final = ("dense", "bm25", "p_relevant", "elo")


class Distributions:
    """Histograms of the scores of positives, kept and rejected candidates, between the ranges of :func:`ranges`.

    By column: ``edges`` and counts for ``positives`` (of the row), ``kept`` (passed every filter), ``negatives`` (the
    part of ``kept`` that was drawn) and ``rejected``, a dict by step.
    """

    def __init__(self, ranges: Mapping[str, tuple[float, float]]) -> None:
        self.columns: tuple[str, ...] = tuple(ranges)
        self._ranges = ranges
        self._counts: dict[str, dict[str, Any]] = {}

    def see(self, block: Candidates) -> None:
        """Count the values of a block."""
        fate = fate_of(block).ravel()
        order = np.argsort(fate, kind="stable")
        # Where the candidates of each verdict end, once they stand in the order of their fate, padding first.
        ends = np.searchsorted(fate[order], np.arange(PADDING, len(block.legend)), side="right")
        for name, (low, high) in self._ranges.items():
            none = np.full(block.documents.shape, np.nan, np.float32)
            values = block.columns.get(name, none).ravel()[order]
            own = block.positive_columns.get(name, np.zeros((len(block), 0), np.float32))[:, :1]
            known = block.positives[:, : own.shape[1]] != PADDING
            parts = {"positives": own[known], "kept": values[ends[0] : ends[2]], "negatives": values[ends[1] : ends[2]]}
            rejected = {step: values[ends[code] : ends[code + 1]] for code, step in enumerate(block.legend) if code > 1}
            entry = self._counts.setdefault(name, {"rejected": {}})
            for target, groups in ((entry, parts), (entry["rejected"], rejected)):
                for group, found in groups.items():
                    counts = np.histogram(found[np.isfinite(found)], _BINS, (low, high))[0]
                    target[group] = counts + target.get(group, 0)

    def found(self) -> dict[str, dict[str, Any]]:
        """Return the counts."""
        result = {}
        for name, entry in self._counts.items():
            rejected = {step: counts.tolist() for step, counts in entry["rejected"].items() if counts.any()}
            groups = {group: entry[group].tolist() for group in ("positives", "kept", "negatives")}
            edges = np.histogram_bin_edges(np.zeros(0), _BINS, self._ranges[name])
            result[name] = {"edges": edges.tolist(), **groups, "rejected": rejected}
        return result


def ranges(shards: Iterable[Candidates], columns: Sequence[str] = SCORE_COLUMNS) -> dict[str, tuple[float, float]]:
    """Return the least and the greatest finite value of measurements, of candidates and of positives.

    Of stored shards they are noted in the files. A measurement without any such value is left out.
    """
    found: dict[str, tuple[float, float]] = {}
    files = shards.files if isinstance(shards, CandidateShards) else None
    noted = None if files is None else _noted(files, columns)
    if noted is not None:
        found = noted
    else:
        for block in shards.only(*columns) if isinstance(shards, CandidateShards) else shards:
            for name in columns:
                every = (block.columns.get(name), block.positive_columns.get(name, np.zeros((0, 1), np.float32))[:, :1])
                for values in (part[np.isfinite(part)] for part in every if part is not None):
                    if len(values):
                        low, high = found.get(name, (np.inf, -np.inf))
                        found[name] = min(low, float(values.min())), max(high, float(values.max()))
    return {name: (low, high if high > low else low + 1.0) for name, (low, high) in found.items()}


def _noted(files: Sequence[File], columns: Sequence[str]) -> dict[str, tuple[float, float]] | None:
    """Ranges by the statistics of Parquet files, which pass over NaN; None where an infinity hides them."""
    found: dict[str, tuple[float, float]] = {}
    of = {f"{kind}.{name}": name for name in columns for kind in ("c", "p")}
    for path in files:
        metadata = pq.read_metadata(path)
        for group in range(metadata.num_row_groups):
            for place in range(metadata.num_columns):
                part = metadata.row_group(group).column(place)
                name = of.get(part.path_in_schema.removesuffix(".list.element"))
                if name is None or part.statistics is None or not part.statistics.has_min_max:
                    continue
                low, high = found.get(name, (np.inf, -np.inf))
                # Parquet notes a least 0 as -0.
                found[name] = min(low, part.statistics.min + 0.0), max(high, part.statistics.max)
    if not all(np.isfinite(values).all() for values in found.values()):
        return None
    return {name: found[name] for name in columns if name in found}
