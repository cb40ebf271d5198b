"""What a collection is made of, as a hash: tells whether it is still the one of an earlier run."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Final

# Collections that are no files of the user's: their contents change with a release of these packages.
_PACKAGES: Final = {
    "api_docs": ("numpy", "scipy", "pandas", "scikit-learn"),
    "ir_datasets": ("ir_datasets",),
}


def files_of(collection: str) -> list[Path]:
    """Return the files that a collection is read from, in the order in which they are read; empty where there are none.

    Parameters
    ----------
    collection
        ``api_docs`` | ``beir:DIR`` | ``kg:DIR`` | ``pairs:GLOB[;GLOB…]`` | ``ir_datasets:ID``.

    Raises
    ------
    AnmiError
        A pattern of ``pairs:`` matches no file.
    """
    scheme, _, location = collection.partition(":")
    if scheme == "pairs":
        from anmi.corpus.pairs import files_of_patterns

        return [path for _, _, files in files_of_patterns(location) for path in files]
    if scheme not in ("beir", "kg"):
        return []
    folder = Path(location.strip()).expanduser()
    files = files_in(folder)
    if scheme == "kg":
        from anmi.corpus.kg import graph_files

        # The graph may lie one folder above.
        files += [path for path in graph_files(folder) if path not in files]
    return files


def files_in(folder: Path) -> list[Path]:
    """Return all files below a folder in the order of their names, without hidden ones."""
    found = (path for path in folder.rglob("*") if path.is_file())
    return sorted(path for path in found if not any(p.startswith(".") for p in path.relative_to(folder).parts))


def contents(collection: str) -> str:
    """Return a hash of what a collection is read from: the contents of its files, or the packages that bring it.

    Parameters
    ----------
    collection
        As for :func:`files_of`.

    Returns
    -------
    str
        32 hexadecimal digits; another file under a pattern and another byte in a file both change it.
    """
    scheme = collection.partition(":")[0]
    found = []
    for name in _PACKAGES.get(scheme, ()):
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return hash_files(files_of(collection), *found)


def hash_files(files: Iterable[Path], *extra: str) -> str:
    """Return a hash over names and contents of files, in the order given, and of further texts."""
    digest = hashlib.blake2b("\x1f".join(extra).encode(), digest_size=16)
    for path in files:
        with path.open("rb") as file:
            content = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).digest()
        digest.update(path.as_posix().encode() + b"\0" + content)
    return digest.hexdigest()
