"""The module says which collection a string names, and which files belong to it."""

from __future__ import annotations

import logging
import math
import os
import re
from pathlib import Path
from typing import Final

from anmi.errors import AnmiError, nearest

log = logging.getLogger(__name__)
# Kind: module and function that read it, and what follows the colon (nothing for a built-in
# collection).
READERS: Final[dict[str, tuple[str, str]]] = {
    "api_docs": ("anmi.corpus.api_docs:read_api_docs", ""),
    "beir": ("anmi.corpus.beir:read_beir", "DIR"),
    "kg": ("anmi.corpus.knowledge:read_kg", "DIR"),
    "pairs": ("anmi.corpus.rows:read_pairs", "GLOB[;GLOB…]"),
    "docs": ("anmi.corpus.documents:read_docs", "GLOB[;GLOB…]"),
    "ir_datasets": ("anmi.corpus.beir:read_ir_datasets", "ID"),
    "hf": ("anmi.corpus.beir:read_hf", "PATH_OR_NAME[:CONFIG][:SPLIT]"),
}
ROW_FILES: Final = frozenset(
    {".jsonl", ".ndjson", ".csv", ".tsv", ".parquet", ".arrow", ".feather"}
)
_WILDCARD: Final = re.compile(r"[*?\[]")
_CAP: Final = re.compile(r"(.*)@(\d+)")


def kind_of(path: Path) -> str:
    """Return the ending of a file in lower case; where it is packed, the one before ``.gz``.

    Examples
    --------
    >>> kind_of(Path("a.jsonl.gz")), kind_of(Path("b.CSV"))
    ('.jsonl', '.csv')
    """
    return Path(path.stem if path.suffix.lower() == ".gz" else path).suffix.lower()


def kind_and_place(collection: str) -> tuple[str, str]:
    """Return the kind of a collection and its place.

    Raises
    ------
    AnmiError
        The kind is unknown, or the place is missing, or it is there and should not be.

    Examples
    --------
    >>> kind_and_place("beir:../shared/data/scifact"), kind_and_place("api_docs")
    (('beir', '../shared/data/scifact'), ('api_docs', ''))
    >>> kind_and_place("beir:")
    Traceback (most recent call last):
    anmi.errors.AnmiError: collection "beir:" lacks its place: write it as beir:DIR
    """
    kind, colon, place = collection.partition(":")
    if kind not in READERS:
        path = Path(collection)
        hint = (
            f'for what lies there write "{likely_kind(path)}:{collection}"'
            if path.exists()
            else None
        )
        raise AnmiError(f'there is no collection "{collection}": {hint or nearest(kind, READERS)}')
    argument = READERS[kind][1]
    if argument and not place.strip():
        raise AnmiError(f'collection "{collection}" lacks its place: write it as {kind}:{argument}')
    if colon and not argument:
        raise AnmiError(
            f'collection "{collection}" takes nothing after the name: write it as {kind}'
        )
    return kind, place.strip()


def likely_kind(place: Path) -> str:
    """Return what kind of collection a folder or file seems to be.

    Examples
    --------
    >>> likely_kind(Path("docs")), likely_kind(Path("pairs.csv"))
    ('docs', 'pairs')
    """
    if any(place.glob("corpus.*")):
        return "beir"
    if (place / "dataset_dict.json").exists() or (place / "state.json").exists():
        return "hf"
    return "pairs" if kind_of(place) in ROW_FILES else "docs"


def inside(path: Path, folder: Path) -> Path:
    """Return a file of a folder, which may be absent; refuse a link that leads out of the folder.

    Whoever packed a collection may have put a link to ``~/.aws/credentials`` in it; read as a
    document, that would appear in reports and go to judges. The folder itself may be a link: the
    user named it.

    Raises
    ------
    AnmiError
        It lies elsewhere.
    """
    try:
        leads_in = path.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError, ValueError) as error:
        raise AnmiError(f"{path} cannot be followed ({error}); put the file itself there") from None
    if not leads_in:
        raise AnmiError(
            f"{path} is a link that leads out of {folder}; a collection is read from its own folder"
            " alone, so put the file itself there"
        )
    return path


def _patterns(location: str) -> list[str]:
    return [part.strip() for part in location.split(";") if part.strip()]


def files_of_pairs(location: str) -> list[tuple[str, float, list[Path]]]:
    """Return the patterns of a location, each with its cap (or infinity) and its files.

    Raises
    ------
    AnmiError
        If a pattern matches none.
    """
    capped = ((pattern, _CAP.fullmatch(pattern)) for pattern in _patterns(location))
    return [
        (of, int(cap[2]) if cap else math.inf, find_files(cap[1] if cap else of))
        for of, cap in capped
    ]


def files_of_docs(location: str) -> list[tuple[str, Path]]:
    """Return the files that patterns match, each once, named by the path below the shared folder.

    Parameters
    ----------
    location
        Patterns separated by semicolons. ``**`` stands for any number of folders, and a folder for
        all files below it. Hidden files and folders match only where a pattern names them, as in a
        shell.

    Returns
    -------
    list of (str, Path)
        In the order of the patterns, and of the names under each.

    Raises
    ------
    AnmiError
        If a pattern matches none.
    """
    patterns = _patterns(location)
    # ``**`` alone would match folders only.
    patterns = [f"{pattern}/*" if Path(pattern).name == "**" else pattern for pattern in patterns]
    patterns = [
        f"{part.rstrip('/')}/**/*" if Path(part).expanduser().is_dir() else part
        for part in patterns
    ]
    shared = os.path.commonpath([root_of(pattern).absolute() for pattern in patterns])
    named_files: dict[Path, tuple[str, Path]] = {}
    for pattern in patterns:
        root = root_of(pattern)
        names_hidden = "/." in f"/{pattern.removeprefix(root.as_posix())}"
        files = [
            path
            for path in find_files(pattern)
            if names_hidden or "/." not in f"/{path.relative_to(root).as_posix()}"
        ]
        if not files:
            raise AnmiError(
                f'no file matches "{pattern}" but hidden ones; name them, or check the path'
            )
        for path in files:
            # A link keeps the name that it has where the user sees it.
            named_files.setdefault(
                path.resolve(), (Path(os.path.relpath(path.absolute(), shared)).as_posix(), path)
            )
    return list(named_files.values())


def find_files(pattern: str) -> list[Path]:
    """Return the files a pattern matches, numbers in their names sorted as numbers.

    Raises
    ------
    AnmiError
        If there are none.
    """
    path = Path(pattern).expanduser()
    root = root_of(pattern)
    # Brackets in the name of what is there are no wildcard.
    wild = not path.exists() and bool(_WILDCARD.search(pattern))
    items = [*root.glob(path.relative_to(root).as_posix())] if wild else [path]
    for item in items:
        if "**" in pattern and item.is_symlink() and item.is_dir():
            log.warning(
                "%s is a link to a folder, which ** does not follow: name it to read it", item
            )
    files = sorted((item for item in items if item.is_file()), key=_natural)
    if not files:
        raise AnmiError(f'no file matches "{pattern}"; check the path (now in {Path.cwd()})')
    # A file that is named in full may be a link, since the user named it; nobody named what a
    # wildcard finds.
    return [inside(item, root) for item in files] if wild else files


def root_of(pattern: str) -> Path:
    """Return the folder in front of a pattern's first wildcard, or that of a file named in full.

    A name with wildcards of a file or folder that is there is a name.

    Examples
    --------
    >>> root_of("notes/**/*.md").as_posix(), root_of("notes/a.md").as_posix()
    ('notes', 'notes')
    """
    parts = Path(pattern).expanduser().parts
    fixed = next(
        (
            place
            for place, part in enumerate(parts)
            if _WILDCARD.search(part) and not Path(*parts[: place + 1]).exists()
        ),
        len(parts) - 1,
    )
    return Path(*parts[:fixed])


def _natural(path: Path) -> list[tuple[int, int, str]]:
    parts = re.split(r"(\d+)", path.as_posix())
    return [(1, int(part), "") if part.isdecimal() else (0, 0, part) for part in parts if part]
