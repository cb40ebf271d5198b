"""Parts of shards as files: where they lie, what they hold, and who writes them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

Source = bytes | Path
"""A part by its bytes, or by the file that holds them."""


@dataclass(frozen=True)
class Part:
    """What was written: the name of a file, its queries, and the hash of its bytes (that of :func:`hash_file`)."""

    name: str
    rows: int
    digest: str


def read(source: Source) -> bytes:
    """Return the bytes of a part.

    Examples
    --------
    >>> read(b"abc")
    b'abc'
    """
    return source if isinstance(source, bytes) else source.read_bytes()


def write(data: bytes, folder: Path, number: int) -> Part:
    """Write a part under its number."""
    name = f"part-{number:05d}.parquet"
    (folder / name).write_bytes(data)
    return Part(
        name, pq.read_metadata(pa.BufferReader(data)).num_rows, hashlib.blake2b(data, digest_size=16).hexdigest()
    )


def write_all(parts: Iterable[bytes], folder: Path) -> list[Part]:
    """Write parts as they come, in this process."""
    return [write(data, folder, number) for number, data in enumerate(parts)]
