"""The store keeps embeddings and judgments of texts, so that none is computed again.

It is a key-value store on LMDB. A key is a prefix that stands for the fingerprint of whatever
computed the value, and a hash of the text: a changed model misses, a renamed one does not, and what
belongs to one model lies together. LMDB commits atomically and serialises writers, so two processes
may share a store and a killed writer loses at most its open batch. Each value has a checksum of it
and its key; a damaged one is computed again.
"""

from __future__ import annotations

import gc
import hashlib
import json
import logging
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import groupby
from pathlib import Path
from typing import Any, Final, Literal

import lmdb
import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from anmi.errors import AnmiError
from anmi.files import remove
from anmi.fingerprint import digest
from anmi.ragged import Float32s

logger = logging.getLogger(__name__)

FORMAT: Final = b"anmi-store-3"
Number = Literal["float32", "float16"]
_PREFIX_SIZE: Final = 8
_TEXT_SIZE: Final = 16
_SUM_SIZE: Final = 4
# Applies a function to items one after the other, as ``map`` does.
Run = Callable[[Callable[[Any], Any], Iterable[Any]], Iterator[Any]]
_REMOVED_AT_ONCE: Final = 100_000
# Values whose bytes are in memory beside the array that they go to.
_READ_AT_ONCE: Final = 1 << 14
_MAX_READERS: Final = 512
_SAVED_AT_ONCE: Final = 64
_TWICE: Final = "already open"
_REFILLED: Final = "it will be filled again"
_DAY: Final = 86_400.0
# Folders beside the database that are made anew when they are missed; "." begins those that a
# killed process left.
_MADE_ANEW: Final = ("teacher-", "static-", ".")


class Store(AbstractContextManager["Store"]):
    """Vectors by (fingerprint, text).

    Parameters
    ----------
    path
        Folder of the database; created when absent.
    size_limit
        Upper bound of the database in bytes; address space, not disk, is reserved.

    Raises
    ------
    AnmiError
        The folder cannot be made or locked, or holds something else or the store of another
        version.

    Examples
    --------
    >>> import tempfile
    >>> store = Store(Path(tempfile.mkdtemp()))
    >>> calls = []
    >>> def length(texts):
    ...     calls.append(len(texts))
    ...     return np.array([[len(text)] for text in texts], dtype=np.float32)
    >>> store.vectors("length-v1", ["a", "bb", "a"], length)[:, 0].tolist()
    [1.0, 2.0, 1.0]
    >>> _ = store.vectors("length-v1", ["bb"], length)
    >>> calls
    [2]
    """

    def __init__(self, path: Path, size_limit: int = 1 << 38) -> None:
        self.path = Path(path)
        self._size_limit = size_limit
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise AnmiError(
                f"the store in {path} cannot be made ({error.strerror}): set ANMI_STORE to a folder"
                " on a local disk that can be written to"
            ) from error
        self._open()
        # Where judges and encoders that can work elsewhere compute what is not stored.
        self.run: Run = map
        # Fingerprint and name by prefix, for every fingerprint that keys were made for.
        self._known: dict[bytes, tuple[str, str]] = {}
        self._used: set[bytes] = set()

    def _open(self) -> None:
        def opened() -> Any:
            return lmdb.open(
                str(self.path),
                map_size=self._size_limit,
                max_dbs=2,
                max_readers=_MAX_READERS,
            )

        file = self.path / "data.mdb"
        try:
            try:
                self._environment = opened()
            except lmdb.Error as error:
                if _TWICE not in str(error):
                    raise
                # One that nobody has any more is open until it is found to be garbage.
                gc.collect()
                self._environment = opened()
        except lmdb.Error as error:
            # A process that opens LMDB twice loses its locks.
            cure = (
                "close it before opening it again"
                if _TWICE in str(error)
                else f"delete {file}, {_REFILLED}"
            )
            raise AnmiError(
                f"the store in {self.path} could not be opened ({error}): {cure}"
            ) from error
        try:
            # A killed reader would keep the pages that it read from being used again.
            self._environment.reader_check()
            with self._writing() as transaction:
                stored_format = transaction.get(b"format")
                if stored_format is None and transaction.stat()["entries"] == 0:
                    stored_format = FORMAT
                    transaction.put(b"format", FORMAT)
            if stored_format != FORMAT:
                raise AnmiError(
                    f"the store in {self.path} has the format {stored_format!r} and this version"
                    f" reads {FORMAT!r}: delete {file}, {_REFILLED}"
                )
            with self._errors():
                self._entries = self._environment.open_db(b"entries")
                self._registry = self._environment.open_db(b"registry")
        except BaseException:
            self._environment.close()
            raise

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except lmdb.MapFullError as error:
            raise AnmiError(
                f"the store in {self.path} is full, it may hold {self._size_limit:,} bytes: "
                "run `kedro anmi prune --keep 5 --unused 30`, or set ANMI_STORE to another folder"
            ) from error
        except lmdb.Error as error:
            raise AnmiError(
                f"the store in {self.path} could not be read or written ({error}): free space on"
                " its disk or set ANMI_STORE to another folder, and if it is damaged delete"
                f" {self.path / 'data.mdb'}, {_REFILLED}"
            ) from error

    @contextmanager
    def _reading(self) -> Iterator[Any]:
        """Open a transaction that sees one state of the database whatever others write."""
        with self._errors(), self._environment.begin(db=self._entries) as transaction:
            yield transaction

    @contextmanager
    def _writing(self) -> Iterator[Any]:
        """Open a transaction that is stored as a whole or, after an error, not at all."""
        with self._errors(), self._environment.begin(write=True) as transaction:
            yield transaction

    def close(self) -> None:
        """Release the database; needed before the same process opens the folder again."""
        self._environment.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        """Return the number of values."""
        with self._reading() as transaction:
            return int(transaction.stat(self._entries)["entries"])

    def keys(
        self,
        fingerprint: str,
        texts: Sequence[str],
        name: str = "",
    ) -> list[bytes]:
        """Return the key of each text; see :meth:`vectors` for the parameters."""
        prefix = digest(fingerprint, size=_PREFIX_SIZE)
        self._known[prefix] = (fingerprint, name or self._known.get(prefix, ("", ""))[1])
        blake2b = hashlib.blake2b
        size = _TEXT_SIZE
        return [
            prefix + blake2b(text.encode("utf-8", "surrogatepass"), digest_size=size).digest()
            for text in texts
        ]

    def read(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the stored values in the order of ``keys``; None where there is none."""
        values: dict[bytes, bytes | None] = dict.fromkeys(keys)
        for stored_values, _ in self._stored(values):
            values |= stored_values
        return [values[key] for key in keys]

    def knows(self, fingerprint: str) -> bool:
        """Return whether there is a value of this fingerprint."""
        with self._reading() as transaction:
            prefix = digest(fingerprint, size=_PREFIX_SIZE)
            return self._record(transaction, prefix) is not None

    def missing(self, fingerprint: str, texts: Sequence[str]) -> int:
        """Return for how many distinct texts there is no value yet."""
        keys = {*self.keys(fingerprint, texts)}
        return len(keys) - sum(len(values) for values, _ in self._stored(keys))

    def _stored(self, keys: Iterable[bytes]) -> Iterator[tuple[dict[bytes, bytes], dict[str, Any]]]:
        """Yield stored values, some thousand at a time, with the record of their fingerprint."""
        damaged: list[bytes] = []
        with self._reading() as transaction:
            # In their order, keys that lie together are read together: decisive where the file is
            # not in memory.
            for prefix, group in groupby(sorted(keys), key=lambda key: key[:_PREFIX_SIZE]):
                record = self._record(transaction, prefix)
                if record is None:
                    continue
                prefix_keys = list(group)
                for start in range(0, len(prefix_keys), _READ_AT_ONCE):
                    key_batch = prefix_keys[start : start + _READ_AT_ONCE]
                    items = transaction.cursor().getmulti(key_batch)
                    values, damaged_keys = _sound(items, record)
                    damaged += damaged_keys
                    yield values, record
        if damaged:
            logger.warning(
                "%d values in the store %s are damaged: they are computed again",
                len(damaged),
                self.path,
            )
            # They are removed, unless nothing can be written.
            with suppress(AnmiError), self._writing() as transaction:
                for key in damaged:
                    transaction.delete(key, db=self._entries)

    def write(
        self,
        keys: Sequence[bytes],
        values: Sequence[bytes],
        number: Number = "float32",
    ) -> None:
        """Store values; all of them or, when interrupted, none. A stored value stays.

        Parameters
        ----------
        keys
            From :meth:`keys`.
        values
            Equally many numbers for all keys of a fingerprint.
        number
            What the values are made of. Those of one fingerprint are all stored like the first.

        Raises
        ------
        AnmiError
            A value of another length than those stored, a key of unknown origin, or no space.
        """
        items = sorted(zip(keys, values, strict=True))
        with self._writing() as transaction:
            for prefix, group in groupby(items, key=lambda item: item[0][:_PREFIX_SIZE]):
                if prefix not in self._known:
                    raise AnmiError(
                        "a key was not made by this store: use Store.keys(fingerprint, texts)"
                    )
                self._put(transaction, prefix, list(group), number)

    def _put(
        self,
        transaction: Any,
        prefix: bytes,
        items: list[tuple[bytes, bytes]],
        number: Number,
    ) -> None:
        (fingerprint, name) = self._known[prefix]
        size = np.dtype(number).itemsize
        record = self._record(transaction, prefix) or {
            "number": number,
            "dimension": len(items[0][1]) // size,
        }
        wrong_sizes = {len(value) for _, value in items} - {size * record["dimension"]}
        if wrong_sizes:
            raise AnmiError(
                f'"{name or fingerprint}" gave {min(wrong_sizes) // size} numbers for a text and'
                f" {record['dimension']} before: whatever changed must be part of its fingerprint;"
                " nothing of this batch was stored"
            )
        if record["number"] != number:
            items = [
                (key, np.frombuffer(value, number).astype(record["number"]).tobytes())
                for key, value in items
            ]
        summed = [(key, value + _sum(value, key)) for key, value in items]
        transaction.cursor(self._entries).putmulti(summed, overwrite=False)
        self._note(transaction, prefix, record)

    def _record(self, transaction: Any, prefix: bytes) -> dict[str, Any] | None:
        """Return the record of a fingerprint: dimension, kind of number, time of the last use."""
        return _unpacked(transaction.get(prefix, b"", db=self._registry))

    def _note(
        self,
        transaction: Any,
        prefix: bytes,
        record: Mapping[str, Any],
    ) -> None:
        data = json.dumps({**record, "used": time.time()}).encode()
        transaction.put(prefix, data + b"\n" + _sum(data).hex().encode(), db=self._registry)
        self._used.add(prefix)

    def _note_use(self, prefix: bytes) -> None:
        """Note the use of a fingerprint, once for this opened store."""
        if prefix in self._used:
            return
        self._used.add(prefix)
        with self._reading() as transaction:
            if self._record(transaction, prefix) is None:
                return
        # What is stored can be read where nothing can be written.
        with suppress(AnmiError), self._writing() as transaction:
            if record := self._record(transaction, prefix):
                self._note(transaction, prefix, record)

    def vectors(
        self,
        fingerprint: str,
        texts: Sequence[str],
        compute: Callable[[list[str]], Float32s],
        batch: int = 2048,
        bar: tqdm[Any] | None = None,
        name: str = "",
        run: Run = map,
        number: Number = "float32",
        longest_first: bool = True,
    ) -> Float32s:
        """Return one vector per text, computing only those that are not stored.

        Parameters
        ----------
        fingerprint
            Names what computes the vectors: everything that changes a value must change it.
        texts
            T texts; repeated ones are computed once. A pair is given as one joined text.
        compute
            Maps a list of texts to a float32 array [len, D].
        batch
            Texts per commit; an interrupted run loses at most one batch.
        bar
            Progress bar that counts texts, those found in the store too.
        name
            What people call the model, for errors.
        run
            Applies ``compute`` to the batches, in their order: ``map``, or that of an engine with
            workers.
        number
            What numbers are rounded to, whether computed now or stored at any time, so that a value
            is the same the first time and ever after. float16 takes half the room.
        longest_first
            Batches of like length waste little padding, and too large a batch fails early. Without,
            texts come in the order of their keys, of which the database writes many faster.

        Returns
        -------
        numpy.ndarray
            float32 [T, D], read-only.

        Raises
        ------
        AnmiError
            When ``compute`` returns the wrong number of rows, rows of another length than those
            stored, a NaN or an infinite number, or when there is no space.
        """
        if not len(texts):
            return np.zeros((0, 0), np.float32)
        keys = self.keys(fingerprint, texts, name)
        self._note_use(keys[0][:_PREFIX_SIZE])
        first: dict[bytes, int] = {}
        for row, key in enumerate(keys):
            first.setdefault(key, row)
        values: Float32s | None = None
        absent = dict(first)
        # Values go from the file to the array some at a time: a million of them are never in memory
        # twice.
        for stored_values, record in self._stored(first):
            if values is None:
                values = np.empty((len(texts), record["dimension"]), np.float32)
            numbers = np.frombuffer(b"".join(stored_values.values()), record["number"])
            rows = [absent.pop(key) for key in stored_values]
            values[rows] = numbers.reshape(-1, record["dimension"]).astype(number, copy=False)
        order = sorted(absent)
        if longest_first:
            order.sort(key=lambda key: -len(texts[first[key]]))
        if bar is not None:
            bar.update(len(texts) - len(order))
        chunks = [order[start : start + batch] for start in range(0, len(order), batch)]
        results = run(compute, ([texts[first[key]] for key in chunk] for chunk in chunks))
        for chunk, result in zip(chunks, results, strict=True):
            rounded = _checked(result, len(chunk), number)
            self.write(chunk, [row.tobytes() for row in rounded], number)
            if values is None:
                values = np.empty((len(texts), rounded.shape[1]), np.float32)
            values[[first[key] for key in chunk]] = rounded
            if bar is not None:
                bar.update(len(chunk))
        assert values is not None
        if len(first) < len(keys):
            source = np.fromiter(map(first.__getitem__, keys), np.int64, len(keys))
            repeated = np.flatnonzero(source != np.arange(len(keys)))
            values[repeated] = values[source[repeated]]
        values.flags.writeable = False
        return values

    def answers(
        self,
        fingerprint: str,
        texts: Sequence[str],
        question: Callable[[str], tuple[str, str]],
        ask: Callable[[Sequence[tuple[str, str]]], Iterable[tuple[int, Any]]],
        value: Callable[[Any, str], bytes],
        name: str,
    ) -> tuple[list[bytes | None], Counter[str]]:
        """Return the answers of a language model, which is asked only what is not stored.

        Parameters
        ----------
        fingerprint
            Stands for whatever changes an answer.
        texts
            n texts to ask about, each once.
        question
            From a text to (system prompt, user prompt).
        ask
            Yields (number of the question, reply), as :meth:`anmi.judging.endpoint.Endpoint.ask`
            does; a reply has a ``text``, or a ``problem`` because of which there is none.
        value
            From a reply and its text to what is stored; a ValueError says why there is nothing.
        name
            The model's, for the progress bar.

        Returns
        -------
        tuple
            The value of each text or None, and how often there was none by the reason.
        """
        keys = self.keys(fingerprint, texts, name)
        stored = dict(zip(keys, self.read(keys), strict=True))
        unanswered = [
            (key, text) for key, text in zip(keys, texts, strict=True) if stored[key] is None
        ]
        fresh = dict[bytes, bytes]()
        problems = Counter[str]()
        description = f"asking {name}"
        replies = ask([question(text) for _, text in unanswered]) if unanswered else ()
        try:
            with tqdm(
                total=len(unanswered),
                desc=description,
                unit="question",
                delay=2,
                disable=None,
            ) as bar:
                for number, reply in replies:
                    bar.update()
                    try:
                        if reply.problem:
                            raise ValueError(reply.problem)
                        key, text = unanswered[number]
                        stored[key] = fresh[key] = value(reply, text)
                    except ValueError as error:
                        problems[str(error)] += 1
                    if len(fresh) >= _SAVED_AT_ONCE:
                        self.write([*fresh], [*fresh.values()])
                        fresh.clear()
        finally:
            self.write([*fresh], [*fresh.values()])
        return [stored[key] for key in keys], problems

    def prune(self, older_than_days: float) -> tuple[int, int]:
        """Remove values and folders of models that were not used for so many days.

        Returns
        -------
        tuple of int
            Fingerprints and folders that went.
        """
        oldest = time.time() - older_than_days * _DAY
        with self._reading() as transaction:
            records = [
                (bytes(key), _unpacked(data) or {})
                for key, data in transaction.cursor(self._registry)
            ]
        gone = [prefix for prefix, record in records if record.get("used", 0) <= oldest]
        for prefix in gone:
            self._remove(prefix)
        # Nothing takes a day that works in a folder of its own.
        oldest = min(oldest, time.time() - _DAY)
        beside = (
            folder
            for folder in (*self.path.iterdir(), *(self.path / "models").glob("*"))
            if folder.is_dir()
        )
        folders = [f for f in beside if f.name.startswith(_MADE_ANEW) and _last_used(f) <= oldest]
        remove(*folders, beside=self.path)
        return len(gone), len(folders)

    def _remove(self, prefix: bytes) -> None:
        """Remove all values of a fingerprint, in transactions of bounded size."""
        removed = _REMOVED_AT_ONCE
        while removed == _REMOVED_AT_ONCE:
            with self._writing() as transaction:
                cursor = transaction.cursor(self._entries)
                removed = 0
                cursor.set_range(prefix)
                while removed < _REMOVED_AT_ONCE and cursor.key().startswith(prefix):
                    cursor.delete()
                    removed += 1
                if removed < _REMOVED_AT_ONCE:
                    transaction.delete(prefix, db=self._registry)


def reasons(problems: Counter[str]) -> str:
    """Say why there was no answer, the most frequent reason first."""
    return ", ".join(f"{count} × {reason}" for reason, count in problems.most_common())


def _sum(data: bytes, key: bytes = b"") -> bytes:
    return zlib.crc32(data, zlib.crc32(key)).to_bytes(_SUM_SIZE, "little")


def _unpacked(data: bytes) -> dict[str, Any] | None:
    """Return a record of the registry; None where it is damaged."""
    text, _, noted = data.partition(b"\n")
    return dict(json.loads(text)) if noted == _sum(text).hex().encode() else None


def _sound(
    stored: Iterable[tuple[bytes, bytes]],
    record: Mapping[str, Any],
) -> tuple[dict[bytes, bytes], list[bytes]]:
    """Return the undamaged values without their checksums, and the keys of the others."""
    size = np.dtype(record["number"]).itemsize * record["dimension"]
    sound = {}
    damaged = []
    for key, data in stored:
        value = data[:size]
        if data[size:] == _sum(value, key) and len(value) == size:
            sound[key] = value
        else:
            damaged.append(key)
    return sound, damaged


def _last_used(folder: Path) -> float:
    """Return when a file of a folder was last read or written, in seconds."""
    times = [folder.stat().st_mtime]
    for path in folder.rglob("*"):
        if path.is_file():
            times += [path.stat().st_mtime, path.stat().st_atime]
    return max(times)


def _checked(
    rows: Float32s,
    expected: int,
    number: Number,
) -> NDArray[np.float32 | np.float16]:
    """Return the values of a batch as they will be stored."""
    with np.errstate(over="ignore"):
        rounded = np.ascontiguousarray(rows, dtype=number)
    finite = bool(np.isfinite(rounded).all())
    if len(rounded) != expected or rounded.size == 0 or not finite:
        shown = f"{len(rounded)} rows" if rounded.size else "no numbers"
        raise AnmiError(
            f"the model returned {shown} for {expected}"
            f" texts{'' if finite else ', some of them NaN or infinite'}; nothing of this batch was"
            " stored"
        )
    return rounded
