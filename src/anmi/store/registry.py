"""What the store knows of each fingerprint: what it is called, how many values it has, when it was last used."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, Literal

from anmi.errors import AnmiError

PREFIX_SIZE: Final = 8
TEXT_SIZE: Final = 16
Number = Literal["float32", "float16"]
SIZES: Final[dict[Number, int]] = {"float32": 4, "float16": 2}


def now() -> str:
    """Return the time in UTC, ISO 8601 to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


@dataclass(frozen=True)
class Record:
    """One fingerprint.

    Attributes
    ----------
    fingerprint
        Of what computed the values.
    name
        What it is called; for people only, empty where nobody said.
    dimension
        Numbers per value; 0 before the first.
    entries
        Values stored.
    created, last_used
        Times in UTC, ISO 8601. The last use is noted once per opened store.
    number
        How a number is stored. Records of earlier versions do not say it; theirs are float32.
    """

    fingerprint: str
    name: str = ""
    dimension: int = 0
    entries: int = 0
    created: str = ""
    last_used: str = ""
    number: Number = "float32"

    @property
    def width(self) -> int:
        """Bytes of a value."""
        return SIZES[self.number] * self.dimension

    @property
    def kind(self) -> str:
        """``judgment`` for one number per text, else ``embedding``."""
        return "judgment" if self.dimension == 1 else "embedding"

    @property
    def size(self) -> int:
        """Bytes of the keys and values; pages of the file are not filled to the brim and take more.

        Examples
        --------
        >>> Record("f", dimension=384, entries=2).size
        3120
        """
        return self.entries * (PREFIX_SIZE + TEXT_SIZE + self.width)

    def used(self, name: str = "") -> Record:
        """Return the record of a fingerprint that is used now."""
        moment = now()
        return replace(self, name=name or self.name, created=self.created or moment, last_used=moment)


class Registry:
    """Records by the prefix of their fingerprint's keys; always changed together with the values they count.

    Parameters
    ----------
    handle
        LMDB's handle of the registry.
    """

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    def find(self, transaction: Any, prefix: bytes, fingerprint: str) -> Record | None:
        """Return the record of a fingerprint, or None.

        Raises
        ------
        AnmiError
            Another fingerprint has the same prefix.
        """
        data = transaction.get(prefix, db=self._handle)
        if data is None:
            return None
        record = Record(**json.loads(data))
        if record.fingerprint != fingerprint:
            raise AnmiError(
                f'the fingerprints "{fingerprint}" and "{record.fingerprint}" have the same prefix in the store: '
                f"remove one with `kedro anmi store prune --fingerprint {record.fingerprint}`"
            )
        return record

    def save(self, transaction: Any, prefix: bytes, record: Record) -> None:
        """Store a record."""
        transaction.put(prefix, json.dumps(asdict(record)).encode(), db=self._handle)

    def remove(self, transaction: Any, prefix: bytes) -> None:
        """Forget a fingerprint."""
        transaction.delete(prefix, db=self._handle)

    def stat(self, transaction: Any) -> Any:
        """Return LMDB's statistics of the registry's pages."""
        return transaction.stat(self._handle)

    def all(self, transaction: Any) -> Iterator[Record]:
        """Yield every record."""
        for _, data in transaction.cursor(self._handle):
            yield Record(**json.loads(data))
