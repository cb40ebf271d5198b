"""A key-value store on LMDB for embeddings and judgments.

Keys are (fingerprint of whatever computed the value, hash of the text), so a changed model misses and a renamed
one does not. LMDB commits atomically and serialises writers, so two processes may share a store and a killed
writer loses at most its open batch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from anmi.errors import AnmiError

FORMAT = b"anmi-store-1"


def digest(*parts: str | bytes, size: int = 16) -> bytes:
    """Return a short hash of the parts; their borders count.

    Examples
    --------
    >>> digest("ab", "c") == digest("a", "bc")
    False
    """
    state = hashlib.blake2b(digest_size=size)
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        state.update(len(data).to_bytes(8, "little"))
        state.update(data)
    return state.digest()


class Store:
    """Vectors of float32 by (fingerprint, text).

    Parameters
    ----------
    path
        Folder of the database; created when absent.
    size_limit
        Upper bound of the database in bytes; address space, not disk, is reserved.

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
        self.path.mkdir(parents=True, exist_ok=True)
        try:
            self._database = lmdb.open(str(self.path), map_size=size_limit, subdir=True, lock=True)
        except lmdb.Error as error:
            raise AnmiError(
                f"the store in {self.path} could not be opened ({error}): delete the folder, it will be filled again"
            ) from error
        with self._database.begin(write=True) as transaction:
            found = transaction.get(b"format")
            if found is None:
                transaction.put(b"format", FORMAT)
        if found not in (None, FORMAT):
            self.close()
            raise AnmiError(
                f"the store in {self.path} was written as {found.decode(errors='replace')!r} and this version reads "
                f"{FORMAT.decode()!r}: delete the folder, it will be filled again"
            )

    def close(self) -> None:
        """Release the database; needed before the same process opens the folder again."""
        self._database.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the stored values in the order of ``keys``; None where there is none."""
        with self._database.begin() as transaction:
            found = dict(transaction.cursor().getmulti(list(dict.fromkeys(keys))))
        return [found.get(key) for key in keys]

    def write(self, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        """Store values; all of them or, when interrupted, none."""
        with self._database.begin(write=True) as transaction:
            transaction.cursor().putmulti(list(zip(keys, values, strict=True)))

    def missing(self, fingerprint: str, texts: Sequence[str]) -> int:
        """Return for how many distinct texts there is no value yet."""
        keys = {digest(fingerprint, text) for text in texts}
        return sum(value is None for value in self.read(list(keys)))

    def vectors(
        self,
        fingerprint: str,
        texts: Sequence[str],
        compute: Callable[[list[str]], NDArray[np.float32]],
        batch: int = 2048,
        bar: tqdm[Any] | None = None,
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

        Returns
        -------
        numpy.ndarray
            float32 [T, D].

        Raises
        ------
        AnmiError
            When ``compute`` returns the wrong number of rows or a NaN.
        """
        keys = [digest(fingerprint, text) for text in texts]
        values = self.read(keys)
        absent = {key: text for key, value, text in zip(keys, values, texts, strict=True) if value is None}
        # Longest first: batches of like length waste little padding, and too large a batch fails early.
        order = sorted(absent, key=lambda key: (-len(absent[key]), key))
        if bar is not None:
            bar.update(len(texts) - len(order))
        computed: dict[bytes, bytes] = {}
        for start in range(0, len(order), batch):
            chunk = order[start : start + batch]
            rows = np.ascontiguousarray(compute([absent[key] for key in chunk]), dtype=np.float32)
            if len(rows) != len(chunk) or np.isnan(rows).any():
                raise AnmiError(
                    f"the model returned {len(rows)} rows for {len(chunk)} texts"
                    f"{', some of them NaN' if np.isnan(rows).any() else ''}; nothing of this batch was stored"
                )
            data = [row.tobytes() for row in rows]
            self.write(chunk, data)
            computed.update(zip(chunk, data, strict=True))
            if bar is not None:
                bar.update(len(chunk))
        merged = [computed[key] if value is None else value for key, value in zip(keys, values, strict=True)]
        if not merged:
            return np.zeros((0, 0), np.float32)
        return np.frombuffer(b"".join(merged), dtype=np.float32).reshape(len(texts), -1)
