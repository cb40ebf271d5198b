"""What a collection, a model and this package are made of, as hashes: tells whether they are as they were."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from anmi.corpus.marks import files_of_marks
from anmi.fingerprint import hash_file, hash_files

# Collections that are no files of the user's: their contents change with a release of these packages.
_PACKAGES: Final = {
    "api_docs": ("numpy", "scipy", "pandas", "scikit-learn"),
    "ir_datasets": ("ir_datasets",),
}
# How much is done at a time or at once, and where marks lie, whose contents count; none of it changes a result.
_WITHOUT_EFFECT: Final = frozenset({"shard", "concurrency", "requests_per_second", "marks"})


def files_of(collection: str) -> list[Path]:
    """Return the files that a collection is read from, in the order in which they are read; empty where there are none.

    Parameters
    ----------
    collection
        ``api_docs`` | ``beir:DIR`` | ``kg:DIR`` | ``pairs:GLOB[;GLOB…]`` | ``docs:GLOB[;GLOB…]`` | ``ir_datasets:ID``.

    Raises
    ------
    AnmiError
        A pattern of ``pairs:`` or ``docs:`` matches no file.
    """
    scheme, _, location = collection.partition(":")
    if scheme == "pairs":
        from anmi.corpus.pairs import files_of_patterns

        return [path for _, _, files in files_of_patterns(location) for path in files]
    if scheme == "docs":
        from anmi.corpus.files_source import files_of_docs

        return [path for _, path in files_of_docs(location)]
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


def contents(collection: str, marks: str | None = None) -> str:
    """Return a hash of what a collection is read from: the contents of its files, or the packages that bring it.

    Parameters
    ----------
    collection
        As for :func:`files_of`.
    marks
        The parameter ``ingestion.marks``.

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
    marked = [f"marks {hash_file(path)}" for path in files_of_marks(marks, collection)]
    return hash_all(files_of(collection), *found, *marked)


def hash_all(files: Iterable[Path], *extra: str) -> str:
    """Return a hash over names and contents of files, in the order given, and of further texts."""
    return hash_files(((path.as_posix(), path) for path in files), "\x1f".join(extra))


@lru_cache
def code_digest() -> str:
    """Return a hash of this package's files, wherever it is installed, as they were when it was first asked for."""
    import anmi

    root = Path(anmi.__file__).parent
    found = (path for path in files_in(root) if "__pycache__" not in path.parts)
    return hash_files(((path.relative_to(root).as_posix(), path) for path in found), anmi.__version__)


def with_effect(parameters: Any) -> Any:
    """Return mappings and lists of parameters without those that change no result.

    Examples
    --------
    >>> with_effect({"bm25": {"k1": 0.9, "shard": 512}})
    {'bm25': {'k1': 0.9}}
    """
    if isinstance(parameters, Mapping):
        return {key: with_effect(item) for key, item in parameters.items() if key not in _WITHOUT_EFFECT}
    return [with_effect(item) for item in parameters] if isinstance(parameters, (list, tuple)) else parameters


def models_in(parameters: Any, project: Path) -> dict[str, str]:
    """Return a hash of every model that a text among the parameters names.

    Parameters
    ----------
    parameters
        Mappings and lists of values; any text in them may name the folder of a model, or a model of the hub.
    project
        Folder that relative paths start from.

    Examples
    --------
    >>> models_in({"description": "a text that is too long for the name of a file " * 9}, Path())
    {}
    """
    return {name: found for name in sorted(set(_texts(parameters))) if (found := _model(name, project))}


def _texts(value: Any) -> Iterator[str]:
    """Yield every string among the parameters: any may name the folder of a model."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if key != "collection":
                yield from _texts(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, str) and value and "\n" not in value:
        yield value


def _model(name: str, project: Path) -> str:
    """Return a hash of a folder that looks like a model, the commit of a model of the hub, else nothing."""
    for folder in (Path(name).expanduser(), project / name):
        # A configuration tells a model from a folder that happens to be called like some setting.
        # Unlike pathlib's, this is false of a text that is too long for a name, such as a description.
        if any(os.path.isfile(folder / file) for file in ("config.json", "modules.json")):  # noqa: PTH113
            return hash_all(files_in(folder))
    if name.count("/") == 1:
        home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
        cache = Path(os.environ.get("HF_HUB_CACHE") or home / "hub")
        commit = cache / f"models--{name.replace('/', '--')}" / "refs" / "main"
        return commit.read_text(encoding="utf-8").strip() if commit.is_file() else ""
    return ""
