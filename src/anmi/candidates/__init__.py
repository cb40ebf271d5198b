"""Candidates are the central type: blocks of queries with them, the columns that stages add, and shards of both."""

from anmi.candidates.block import (
    GRADE,
    MARKED,
    MEASURED,
    NEGATIVE,
    OPEN,
    PADDING,
    SHIFT,
    SOURCES,
    Candidates,
    Kind,
    Rule,
    stacked,
    widened,
)  # fmt: skip
from anmi.candidates.shards import CandidateShards, Columns, ColumnShards, block_of

__all__ = [
    "GRADE", "MARKED", "MEASURED", "NEGATIVE", "OPEN", "PADDING", "SHIFT", "SOURCES", "CandidateShards",
    "Candidates", "ColumnShards", "Columns", "Kind", "Rule", "block_of", "stacked", "widened",
]  # fmt: skip
