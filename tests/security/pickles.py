"""Pickled data told by its content: in a file of any name, an archive of torch, a table, an array or a database."""

from __future__ import annotations

import io
import pickletools
import re
import shutil
import sqlite3
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

# Whatever a pickle runs, it names first; among numbers at random operations without a name occur, too.
_NAMES = {"GLOBAL", "STACK_GLOBAL", "INST"}
# A protocol, and what stands at the start of any pickle of that protocol.
_FRAMED = re.compile(rb"\x80[\x04\x05]\x95(.{8})", re.DOTALL)
_PROTOCOL = re.compile(rb"\x80[\x02\x03]")


def found_in(path: Path) -> list[str]:
    """Return what of a file is pickled; each with its place in the file."""
    data = path.read_bytes()
    # The pages of a table are compressed: among so many bytes some look like a pickle by chance, so it is read instead.
    found = list(_in_parquet(path) if data.startswith(b"PAR1") else within(data))
    if data.startswith(b"SQLite format 3\x00"):
        found += _in_database(path)
    if path.name == "data.mdb":
        found += _in_lmdb(path.parent)
    return found


def within(data: bytes) -> Iterator[str]:
    """Yield what of some bytes is pickled."""
    for match in _FRAMED.finditer(data):
        # A frame is no longer than what follows; numbers at random nearly always claim more.
        end = match.end() + int.from_bytes(match[1], "little")
        if end <= len(data) and _is_pickle(data[match.start() : end], {"FRAME"}, whole=False):
            yield f"a pickle at byte {match.start()}"
    for match in _PROTOCOL.finditer(data):
        needed = _NAMES | ({"PROTO"} if match.start() == 0 else set())
        if _is_pickle(data[match.start() : match.start() + (1 << 20)], needed):
            yield f"a pickle of an old protocol at byte {match.start()}"
    if data.startswith(b"\x93NUMPY") and re.search(rb"'descr':\s*(?:'\|O'|\[.*'\|O')", data[:4096], re.DOTALL):
        yield "an array of Python objects"
    if data[:2] == b"PK" and zipfile.is_zipfile(io.BytesIO(data)):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for name in archive.namelist():
                yield from (f"{name}: {what}" for what in within(archive.read(name)))


def _is_pickle(data: bytes, needed: Iterable[str], *, whole: bool = True) -> bool:
    """Tell whether a machine of pickles would read the bytes, to the end of a pickle or of the bytes."""
    met: set[str] = set()
    try:
        for operation, _, _ in pickletools.genops(data):
            met.add(operation.name)
    except Exception as error:  # whatever is no pickle ends in some error
        if whole or "exhausted" not in str(error):
            return False
    return bool(met & set(needed))


def _in_parquet(path: Path) -> Iterator[str]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = pq.ParquetFile(path)
    schema = file.schema_arrow
    for place, metadata in (("schema", schema.metadata), *((field.name, field.metadata) for field in schema)):
        for key, value in (metadata or {}).items():
            yield from (f"metadata {key!r} of {place}: {what}" for what in within(value))
    binary = [field.name for field in schema if pa.types.is_binary(field.type) or pa.types.is_large_binary(field.type)]
    for batch in file.iter_batches(columns=binary) if binary else ():
        for name in binary:
            for value in batch.column(name).to_pylist():
                yield from (f"column {name}: {what}" for what in within(value or b""))


def _in_database(path: Path) -> Iterator[str]:
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as database:
        for (table,) in database.execute("select name from sqlite_master where type = 'table'").fetchall():
            for value in (value for row in database.execute(f'select * from "{table}"') for value in row):
                yield from (f"table {table}: {what}" for what in within(value if isinstance(value, bytes) else b""))


def _opened_copy(folder: Path, room: str) -> Any:
    """Open a copy: a process that has the database open may not open it twice."""
    import lmdb

    shutil.copyfile(folder / "data.mdb", Path(room) / "data.mdb")
    return lmdb.open(room, readonly=True, lock=False, max_dbs=8)


def _in_lmdb(folder: Path) -> Iterator[str]:
    import lmdb

    with tempfile.TemporaryDirectory() as room, _opened_copy(folder, room) as opened:
        with opened.begin() as transaction:
            entries = [(bytes(key), bytes(value)) for key, value in transaction.cursor()]
        for name, noted in entries:
            try:
                database = opened.open_db(name, create=False)
            except lmdb.IncompatibleError:
                # A note beside the tables.
                yield from (f"note {name!r}: {what}" for what in within(noted))
                continue
            with opened.begin(db=database) as transaction:
                for _, value in transaction.cursor():
                    yield from (f"table {name!r}: {what}" for what in within(bytes(value)))
