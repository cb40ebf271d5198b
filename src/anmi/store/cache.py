"""A key-value store on LMDB for embeddings and judgments.

A key is a prefix that stands for the fingerprint of whatever computed the value, and a hash of the text: a changed
model misses, a renamed one does not, and what belongs to one model lies together. LMDB commits atomically and
serialises writers, so two processes may share a store and a killed writer loses at most its open batch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from anmi.errors import AnmiError
from anmi.fingerprint import digest
from anmi.store import upkeep
from anmi.store.database import Database
from anmi.store.registry import PREFIX_SIZE, SIZES, TEXT_SIZE, Number, Record

# Applies a function to items one after the other, as ``map`` does.
Run = Callable[[Callable[[Any], Any], Iterable[Any]], Iterator[Any]]
_REMOVED_AT_ONCE: Final = 100_000
# Values whose bytes are in memory besides the array that they go to.
_READ_AT_ONCE: Final = 1 << 14


class Store:
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
        The folder cannot be made or locked, or holds something else or the store of another version.

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
    >>> [(record.fingerprint, record.entries) for record in store.records()]
    [('length-v1', 2)]
    """

    def __init__(self, path: Path, size_limit: int = 1 << 38) -> None:
        self.path = Path(path)
        self.database = Database(self.path, size_limit)
        # Where judges and encoders that can work elsewhere compute what is not stored.
        self.run: Run = map
        # Fingerprint and name by prefix, for every fingerprint that keys were made for.
        self._known: dict[bytes, tuple[str, str]] = {}
        self._used: set[bytes] = set()
        # Values that were asked for since this was opened, and those of them that were there.
        self.asked = self.found = 0

    def close(self) -> None:
        """Release the database; needed before the same process opens the folder again."""
        self.database.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def keys(self, fingerprint: str, texts: Sequence[str], name: str = "") -> list[bytes]:
        """Return the key of each text; see :meth:`vectors` for the parameters."""
        prefix = digest(fingerprint, size=PREFIX_SIZE)
        self._known[prefix] = (fingerprint, name or self._known.get(prefix, ("", ""))[1])
        blake2b, size = hashlib.blake2b, TEXT_SIZE
        return [prefix + blake2b(text.encode("utf-8", "surrogatepass"), digest_size=size).digest() for text in texts]

    def read(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the stored values in the order of ``keys``; None where there is none."""
        values = self._values(keys)
        self.asked += len(values)
        self.found += sum(value is not None for value in values.values())
        return [values[key] for key in keys]

    def _values(self, keys: Sequence[bytes]) -> dict[bytes, bytes | None]:
        # In their order, keys that lie together are read together: decisive where the file is not in memory.
        wanted = sorted(set(keys))
        with self.database.reading() as transaction:
            return dict(zip(wanted, map(transaction.get, wanted), strict=True))

    def write(self, keys: Sequence[bytes], values: Sequence[bytes], number: Number = "float32") -> None:
        """Store values; all of them or, when interrupted, none. A value that is there already stays.

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
        with self.database.writing() as transaction:
            for prefix, group in groupby(items, key=lambda item: item[0][:PREFIX_SIZE]):
                if prefix not in self._known:
                    raise AnmiError("a key was not made by this store: use Store.keys(fingerprint, texts)")
                self._put(transaction, prefix, list(group), number)

    def _put(self, transaction: Any, prefix: bytes, items: list[tuple[bytes, bytes]], number: Number) -> None:
        fingerprint, name = self._known[prefix]
        entries, registry = self.database.entries, self.database.registry
        record = registry.find(transaction, prefix, fingerprint) or Record(fingerprint, number=number)
        dimension = record.dimension or len(items[0][1]) // SIZES[number]
        other = next((len(value) for _, value in items if len(value) != SIZES[number] * dimension), None)
        if other is not None:
            raise AnmiError(
                f'"{name or fingerprint}" gave {other // SIZES[number]} numbers for a text and {dimension} '
                "before: whatever changed must be part of its fingerprint; nothing of this batch was stored"
            )
        if record.number != number:
            items = [(key, np.frombuffer(value, number).astype(record.number).tobytes()) for key, value in items]
        before = transaction.stat(entries)["entries"]
        transaction.cursor(entries).putmulti(items, overwrite=False)
        count = record.entries + transaction.stat(entries)["entries"] - before
        updated = replace(record.used(name), entries=count, dimension=dimension)
        registry.save(transaction, prefix, updated)
        self._used.add(prefix)

    def _note_use(self, prefix: bytes) -> None:
        """Note the use of a fingerprint, once for this opened store."""
        if prefix in self._used:
            return
        self._used.add(prefix)
        fingerprint, name = self._known[prefix]
        registry = self.database.registry
        with self.database.reading() as transaction:
            if registry.find(transaction, prefix, fingerprint) is None:
                return
        # What is stored can be read where nothing can be written.
        with suppress(AnmiError), self.database.writing() as transaction:
            record = registry.find(transaction, prefix, fingerprint)
            if record is not None:
                registry.save(transaction, prefix, record.used(name))

    def missing(self, fingerprint: str, texts: Sequence[str]) -> int:
        """Return for how many distinct texts there is no value yet."""
        return list(self._values(self.keys(fingerprint, texts)).values()).count(None)

    def vectors(
        self,
        fingerprint: str,
        texts: Sequence[str],
        compute: Callable[[list[str]], NDArray[np.float32]],
        batch: int = 2048,
        bar: tqdm[Any] | None = None,
        name: str = "",
        run: Run = map,
        number: Number = "float32",
    ) -> NDArray[np.float32]:
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
            What people call the model; shown by ``kedro anmi store stats``, of no effect.
        run
            Applies ``compute`` to the batches, in their order: ``map``, or that of an engine with workers.
        number
            What numbers are rounded to, whether computed now or stored at any time, so that a value is the same the
            first time and ever after. float16 takes half the room.

        Returns
        -------
        numpy.ndarray
            float32 [T, D], read-only.

        Raises
        ------
        AnmiError
            When ``compute`` returns the wrong number of rows, rows of another length than those stored, a NaN or an
            infinite number, or when there is no space.
        """
        if not len(texts):
            return np.zeros((0, 0), np.float32)
        keys = self.keys(fingerprint, texts, name)
        self._note_use(keys[0][:PREFIX_SIZE])
        first: dict[bytes, int] = {}
        for row, key in enumerate(keys):
            first.setdefault(key, row)
        values, absent = self._stored(fingerprint, first, len(texts), number)
        self.asked += len(first)
        self.found += len(first) - len(absent)
        # Longest first: batches of like length waste little padding, and too large a batch fails early.
        order = sorted(absent, key=lambda key: (-len(texts[first[key]]), key))
        if bar is not None:
            bar.update(len(texts) - len(order))
        chunks = [order[start : start + batch] for start in range(0, len(order), batch)]
        results = run(compute, ([texts[first[key]] for key in chunk] for chunk in chunks))
        for chunk, rows in zip(chunks, results, strict=True):
            rounded = _checked(rows, len(chunk), number)
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

    def _stored(
        self, fingerprint: str, first: dict[bytes, int], texts: int, number: Number
    ) -> tuple[NDArray[np.float32] | None, list[bytes]]:
        """Read what there is to the rows ``first`` of an array for all texts; that array, and the keys not found.

        Values go from the file to the array some thousand at a time: a million of them are never in memory twice.
        """
        prefix = next(iter(first))[:PREFIX_SIZE]
        with self.database.reading() as transaction:
            record = self.database.registry.find(transaction, prefix, fingerprint)
            if record is None or not record.dimension:
                return None, list(first)
            values, absent = np.empty((texts, record.dimension), np.float32), []
            cursor = transaction.cursor()
            # In their order, keys that lie together are read together: decisive where the file is not in memory.
            wanted = sorted(first)
            for start in range(0, len(wanted), _READ_AT_ONCE):
                some = wanted[start : start + _READ_AT_ONCE]
                found = dict(cursor.getmulti(some))
                read = np.frombuffer(b"".join(found.values()), record.number).reshape(-1, record.dimension)
                values[[first[key] for key in found]] = read.astype(number, copy=False)
                if len(found) < len(some):
                    absent += [key for key in some if key not in found]
        return values, absent

    def records(self) -> list[Record]:
        """Return what is known of each fingerprint, the last used first."""
        with self.database.reading() as transaction:
            return sorted(self.database.registry.all(transaction), key=lambda record: record.last_used, reverse=True)

    def stats(self) -> upkeep.Stats:
        """Return what the store holds, by fingerprint, and the models beside it."""
        return upkeep.stats(self)

    def prune(
        self,
        older_than_days: float | None = None,
        fingerprints: Collection[str] = (),
        keep: Collection[str] = (),
        dry_run: bool = False,
    ) -> upkeep.Pruned:
        """Remove values and models that are no longer used, and give their space back to the disk.

        Without a condition only the leftovers of killed processes go, once they are a day old.

        Parameters
        ----------
        older_than_days
            Remove what was last used at least so many days ago, from 0.
        fingerprints
            Remove these, given by their start; with ``older_than_days`` those of them that are old enough.
        keep
            Fingerprints that stay, given by their start.
        dry_run
            Only tell what would go.

        Raises
        ------
        AnmiError
            A fingerprint that is not stored or not told apart by its start, or no space for the smaller copy.
        """
        return upkeep.prune(self, older_than_days, fingerprints, keep, dry_run)

    def remove(self, fingerprint: str) -> None:
        """Remove all values of a fingerprint, in transactions of bounded size."""
        prefix = digest(fingerprint, size=PREFIX_SIZE)
        while True:
            with self.database.writing() as transaction:
                record = self.database.registry.find(transaction, prefix, fingerprint)
                cursor, removed = transaction.cursor(self.database.entries), 0
                cursor.set_range(prefix)
                while removed < _REMOVED_AT_ONCE and cursor.key().startswith(prefix):
                    cursor.delete()
                    removed += 1
                if removed < _REMOVED_AT_ONCE:
                    self.database.registry.remove(transaction, prefix)
                    return
                if record is not None:
                    self.database.registry.save(transaction, prefix, replace(record, entries=record.entries - removed))


def _checked(rows: NDArray[np.float32], expected: int, number: Number) -> NDArray[np.float32 | np.float16]:
    """Return what was computed for a batch as it is to be stored."""
    with np.errstate(over="ignore"):
        rounded = np.ascontiguousarray(rows, dtype=number)
    finite = bool(np.isfinite(rounded).all())
    if len(rounded) != expected or rounded.size == 0 or not finite:
        shown = f"{len(rounded)} rows" if rounded.size else "no numbers"
        raise AnmiError(
            f"the model returned {shown} for {expected} texts"
            f"{'' if finite else ', some of them NaN or infinite'}; nothing of this batch was stored"
        )
    return rounded
