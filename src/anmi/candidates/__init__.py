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
    CandidateShards,
    Columns,
    ColumnShards,
    Rule,
    as_bytes,
    block_of,
    stacked,
    widened,
)  # fmt: skip

__all__ = [
    "GRADE", "MARKED", "MEASURED", "NEGATIVE", "OPEN", "PADDING", "SHIFT", "SOURCES", "CandidateShards", "Candidates",
    "ColumnShards", "Columns", "Rule", "as_bytes", "block_of", "stacked", "widened",
]  # fmt: skip
