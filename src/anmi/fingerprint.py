"""Hashes of texts, plain values, files and several of them by name.

Stores, checkpoints and manifests on disk hold them, so what is hashed stays as it is, byte for
byte.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, Literal

from anmi.errors import AnmiError

Kind = Literal["blake2b", "sha256"]


def digest(*parts: str | bytes, size: int = 16) -> bytes:
    """Return a short hash of the parts; their borders count.

    Lone surrogates, which JSON lets through and UTF-8 does not, are hashed as they are.

    Examples
    --------
    >>> digest("ab", "c") == digest("a", "bc")
    False
    """
    state = hashlib.blake2b(digest_size=size)
    for part in parts:
        data = part.encode(errors="surrogatepass") if isinstance(part, str) else part
        state.update(len(data).to_bytes(8, "little"))
        state.update(data)
    return state.digest()


def hash_text(text: str, size: int = 16) -> str:
    """Return a hash of a text, of ``2 * size`` hexadecimal digits.

    Examples
    --------
    >>> hash_text("a", size=4)
    'ca234c55'
    """
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=size).hexdigest()


def hash_value(value: Any, size: int = 16) -> str:
    """Return a hash of plain data; the order of names does not count.

    Examples
    --------
    >>> hash_value({"a": 1, "b": [2]}) == hash_value({"b": [2], "a": 1})
    True
    """
    return hash_text(json.dumps(value, sort_keys=True, ensure_ascii=False, default=str), size)


def hash_file(path: Path, kind: Kind = "blake2b") -> str:
    """Return a hash of a file: 32 hexadecimal digits of BLAKE2b, or 64 of SHA-256."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: _state(kind)).hexdigest()


_FOLDER_LIMIT: Final = 20_000


def files_in(folder: Path) -> list[Path]:
    """Return the files below a folder in order, by the names that links give.

    What guards, hashes, copies or reads a folder goes by this list, so that none sees what another
    does not. A link back to a folder that it lies in is not followed.

    Raises
    ------
    AnmiError
        Links make so many folders of a few that they cannot all be looked into.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "a.txt").write_text("a")
    >>> (folder / "again").symlink_to(folder)
    >>> [path.name for path in files_in(folder)]
    ['a.txt']
    """
    files: list[Path] = []
    waiting = [(folder, frozenset({os.path.realpath(folder)}))]
    for count, (place, above) in enumerate(waiting):
        if count > _FOLDER_LIMIT:
            raise AnmiError(
                f"{folder} has more than {_FOLDER_LIMIT:,} folders; links in it lead to each other:"
                " undo them"
            )
        for entry in os.scandir(place):
            path = place / entry.name
            if entry.is_file():
                files.append(path)
            elif entry.is_dir() and (real := os.path.realpath(path)) not in above:
                waiting.append((path, above | {real}))
    return sorted(files)


def hash_files(files: Iterable[tuple[str, Path]], kind: Kind = "blake2b") -> str:
    """Return a hash over names and contents of files, in the order given.

    Parameters
    ----------
    files
        Each with the name that counts.
    kind
        As for :func:`hash_file`.
    """
    return hash_named(((name, hash_file(path, kind)) for name, path in files), kind)


def hash_named(parts: Iterable[tuple[str, str]], kind: Kind = "blake2b") -> str:
    """Return a hash over hashes each with its name, in the order given."""
    state = _state(kind)
    for name, file_hash in parts:
        state.update(name.encode() + b"\0" + bytes.fromhex(file_hash))
    return state.hexdigest()


def _state(kind: Kind) -> Any:
    return hashlib.sha256() if kind == "sha256" else hashlib.blake2b(digest_size=16)
