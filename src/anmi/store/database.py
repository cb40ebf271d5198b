"""The LMDB file under the store: opening it, its errors in plain words, and replacing it by a smaller copy."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final

import lmdb

from anmi.errors import AnmiError
from anmi.locks import Users
from anmi.store.registry import Registry

FORMAT: Final = b"anmi-store-2"
_MAX_READERS: Final = 512
_META_PAGES: Final = 2
_TWICE: Final = "already open"
_REFILLED: Final = "it will be filled again"


class Database:
    """An open LMDB environment with two tables, ``entries`` and ``registry``, and a note of its format.

    Parameters
    ----------
    path
        Folder of the database; created when absent.
    size_limit
        Upper bound of the database in bytes; address space, not disk, is reserved.

    Raises
    ------
    AnmiError
        The folder cannot be made or locked, or holds something else or the store of another version.
    """

    def __init__(self, path: Path, size_limit: int) -> None:
        self.path = path
        self._size_limit = size_limit
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._users = Users(path)
        except OSError as error:
            raise AnmiError(
                f"the store in {path} cannot be made or locked ({error.strerror}): "
                "set ANMI_STORE to a folder on a local disk that can be written to"
            ) from error
        try:
            self._open()
        except BaseException:
            self._users.close()
            raise

    @property
    def file(self) -> Path:
        """The file that holds everything."""
        return self.path / "data.mdb"

    def _opened(self) -> Any:
        return lmdb.open(
            str(self.path), map_size=self._size_limit, max_dbs=2, max_readers=_MAX_READERS, subdir=True, lock=True
        )

    def _open(self) -> None:
        try:
            try:
                self._environment = self._opened()
            except lmdb.Error as error:
                if _TWICE not in str(error):
                    raise
                # One that nobody has any more is open until it is found to be garbage.
                gc.collect()
                self._environment = self._opened()
        except lmdb.Error as error:
            # Opened twice by one process, LMDB would lose its locks.
            twice = _TWICE in str(error)
            cure = "close it before opening it again" if twice else f"delete {self.file}, {_REFILLED}"
            raise AnmiError(f"the store in {self.path} could not be opened ({error}): {cure}") from error
        try:
            # A killed reader would keep the pages that it read from being used again.
            self._environment.reader_check()
            with self.writing() as transaction:
                found = transaction.get(b"format")
                if found is None and transaction.stat()["entries"] == 0:
                    transaction.put(b"format", found := FORMAT)
            self._check_format(found)
            with self._errors():
                self.entries = self._environment.open_db(b"entries")
                self.registry = Registry(self._environment.open_db(b"registry"))
        except BaseException:
            self._environment.close()
            raise

    def _check_format(self, found: bytes | None) -> None:
        if found != FORMAT:
            wrote = "by another program" if found is None else f"as {found.decode(errors='replace')!r}"
            raise AnmiError(
                f"the store in {self.path} was written {wrote} and this version reads {FORMAT.decode()!r}: "
                f"delete {self.file}, {_REFILLED}"
            )

    def close(self) -> None:
        """Release the file; needed before the same process opens the folder again."""
        self._environment.close()
        self._users.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except lmdb.MapFullError as error:
            raise AnmiError(
                f"the store in {self.path} is full, it may hold {self._size_limit:,} bytes: "
                "run `kedro anmi store prune`, or set ANMI_STORE to another folder"
            ) from error
        except lmdb.Error as error:
            raise AnmiError(
                f"the store in {self.path} could not be read or written ({error}): free space on its disk or set "
                f"ANMI_STORE to another folder, and if it is damaged delete {self.file}, {_REFILLED}"
            ) from error

    @contextmanager
    def reading(self) -> Iterator[Any]:
        """Open a transaction that sees one state of the database whatever others write."""
        with self._errors(), self._environment.begin(db=self.entries) as transaction:
            yield transaction

    @contextmanager
    def writing(self) -> Iterator[Any]:
        """Open a transaction that is stored as a whole or, after an error, not at all; one at a time."""
        with self._errors(), self._environment.begin(write=True) as transaction:
            yield transaction

    def file_size(self) -> int:
        """Bytes of the file."""
        return self.file.stat().st_size

    def free_size(self) -> int:
        """Bytes of the file that hold nothing and will be used again."""
        with self.reading() as transaction:
            # Without a table named, a transaction looks at the one it was opened with.
            tables = [transaction.stat(), self.registry.stat(transaction)]
        pages = sum(table["branch_pages"] + table["leaf_pages"] + table["overflow_pages"] for table in tables)
        # One more for the table of tables.
        return max(0, self.file_size() - (_META_PAGES + 1 + pages) * int(tables[0]["psize"]))

    def alone(self) -> AbstractContextManager[bool]:
        """Keep other processes out while the context lasts; False where one is in already."""
        return self._users.alone()

    def compact(self) -> None:
        """Replace the file by a copy without free pages; only inside :meth:`alone`.

        Raises
        ------
        AnmiError
            The disk has no room for the copy.
        """
        needed, free = self.file_size() - self.free_size(), shutil.disk_usage(self.path).free
        if free < needed:
            raise AnmiError(
                f"the store in {self.path} cannot be made smaller: its copy needs {needed:,} bytes and the disk has "
                f"{free:,}; what was removed makes room for new values all the same"
            )
        aside = Path(tempfile.mkdtemp(dir=self.path, prefix=".compact-"))
        try:
            with self._errors():
                self._environment.copy(str(aside), compact=True)
            copy = aside / "data.mdb"
            with copy.open("rb+") as written:
                os.fsync(written.fileno())
            self._environment.close()
            try:
                copy.replace(self.file)
            finally:
                self._open()
        finally:
            shutil.rmtree(aside, ignore_errors=True)
