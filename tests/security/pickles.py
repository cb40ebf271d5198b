"""Pickled data told by its content: in a file of any name, an archive of torch, a table, an array or a database."""

from __future__ import annotations

import io
import pickletools
import re
import shutil
import sqlite3
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

# Whatever a pickle runs, it names first, and newer ones say how long they are; other operations
# occur by chance.
_TOLD = {"GLOBAL", "STACK_GLOBAL", "INST", "FRAME"}


def found_in(path: Path) -> list[str]:
    """Return what of a file is pickled; each with its place in the file."""
    data = path.read_bytes()
    # The pages of a table are compressed: among so many bytes some look like a pickle by chance, so
    # it is read instead.
    found = list(_in_parquet(path) if data.startswith(b"PAR1") else within(data))
    if data.startswith(b"SQLite format 3\x00"):
        found += _in_database(path)
    if path.name == "data.mdb":
        found += _in_lmdb(path.parent)
    return found


def within(data: bytes) -> Iterator[str]:
    """Yield what of some bytes is pickled."""
    stream = io.BytesIO(data)
    for match in re.finditer(rb"\x80[\x02-\x05]", data):
        stream.seek(match.start())
        if _is_pickle(stream, len(data), _TOLD | ({"PROTO"} if match.start() == 0 else set())):
            yield f"a pickle at byte {match.start()}"
    if data.startswith(b"\x93NUMPY") and re.search(
        rb"'descr':\s*(?:'\|O'|\[.*'\|O')", data[:4096], re.DOTALL
    ):
        yield "an array of Python objects"
    if data[:2] == b"PK" and zipfile.is_zipfile(io.BytesIO(data)):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for name in archive.namelist():
                yield from (f"{name}: {what}" for what in within(archive.read(name)))


def _is_pickle(stream: io.BytesIO, size: int, needed: set[str]) -> bool:
    """Tell whether a machine of pickles would read the bytes, to the end of a pickle."""
    met: set[str] = set()
    try:
        for operation, argument, _ in pickletools.genops(stream):
            met.add(operation.name)
            # Numbers at random nearly always claim more than there is.
            if operation.name == "FRAME" and argument > size:
                return False
    except Exception:  # whatever is no pickle ends in some error
        return False
    return bool(met & needed)


def _in_parquet(path: Path) -> Iterator[str]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = pq.ParquetFile(path)
    schema = file.schema_arrow
    for place, metadata in (
        ("schema", schema.metadata),
        *((field.name, field.metadata) for field in schema),
    ):
        for key, value in (metadata or {}).items():
            yield from (f"metadata {key!r} of {place}: {what}" for what in within(value))
    binary = [
        field.name
        for field in schema
        if pa.types.is_binary(field.type) or pa.types.is_large_binary(field.type)
    ]
    for batch in file.iter_batches(columns=binary) if binary else ():
        for name in binary:
            for value in batch.column(name).to_pylist():
                yield from (f"column {name}: {what}" for what in within(value or b""))


def _in_database(path: Path) -> Iterator[str]:
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as database:
        for (table,) in database.execute(
            "select name from sqlite_master where type = 'table'"
        ).fetchall():
            for value in (
                value for row in database.execute(f'select * from "{table}"') for value in row
            ):
                yield from (
                    f"table {table}: {what}"
                    for what in within(value if isinstance(value, bytes) else b"")
                )


def _in_lmdb(folder: Path) -> Iterator[str]:
    import lmdb

    with tempfile.TemporaryDirectory() as room:
        # A copy: a process that has the database open may not open it twice.
        shutil.copyfile(folder / "data.mdb", Path(room) / "data.mdb")
        with (
            lmdb.open(room, readonly=True, lock=False, max_dbs=8) as opened,
            opened.begin() as transaction,
        ):
            for name, noted in transaction.cursor():
                # A table, or a note beside the tables.
                with suppress(lmdb.IncompatibleError):
                    table = opened.open_db(bytes(name), transaction, create=False)
                    for _, value in transaction.cursor(table):
                        yield from (f"table {name!r}: {what}" for what in within(bytes(value)))
                yield from (f"note {name!r}: {what}" for what in within(bytes(noted)))
