"""Reading lines of text and JSON so that every mistake is reported with its file and line."""

from __future__ import annotations

import gzip
import json
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import orjson
import pandas as pd
import pyarrow as pa

from anmi.corpus.texts import column
from anmi.errors import AnmiError

_BAR_FROM_BYTES: Final = 50_000_000
_OWN_KEYS: Final = frozenset({"_id", "title", "text"})
# Rows that are strings of Python at a time.
_CHUNK: Final = 20_000


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line number and text of every line that is not blank.

    A byte-order mark and Windows line ends are accepted.

    Raises
    ------
    AnmiError
        If the file is missing, empty or not UTF-8.
    """
    found = False
    for number, line in raw_lines(path):
        if (text := decoded(path, number, line)).strip():
            found = True
            yield number, text
    if not found:
        raise AnmiError(f"{path} is empty; at least one line was expected")


def raw_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield number and bytes of every line, of what is packed where the name ends in ``.gz``."""
    if not path.is_file():
        raise AnmiError(f"{path} does not exist; check the folder's name and its layout")
    from tqdm import tqdm

    packed = path.suffix == ".gz"
    size, read = path.stat().st_size, 0
    with (
        gzip.open(path) if packed else path.open("rb") as file,
        tqdm(
            total=size, unit="B", unit_scale=True, desc=path.name, disable=packed or size < _BAR_FROM_BYTES or None
        ) as bar,
    ):
        for number, line in enumerate(file, start=1):
            read += len(line)
            if not number % 1000:
                bar.update(read - bar.n)
            yield number, line


def decoded(path: Path, number: int, line: bytes) -> str:
    """Return a line as text, without its end."""
    try:
        return line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise AnmiError(
            f"{path} line {number} is not UTF-8 (byte {error.object[error.start]:#04x} at position "
            f"{error.start}); convert the file to UTF-8"
        ) from None


def _object(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else "too large or nested too deep"
        raise AnmiError(
            f"{path} line {number} is not valid JSON ({reason}); one JSON object a line was expected"
        ) from None
    if not isinstance(value, dict):
        raise AnmiError(f"{path} line {number} holds {type(value).__name__}; a JSON object was expected")
    return value


def read_objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield line number and object of every line of a JSONL file.

    What orjson refuses or reads otherwise, such as halves of surrogate pairs and large numbers, is read once more.

    Raises
    ------
    AnmiError
        A line is no JSON object, or not UTF-8; or there is none.
    """
    found = False
    for number, line in raw_lines(path):
        try:
            value = orjson.loads(line)
        except ValueError:
            value = None
        if not isinstance(value, dict) or not _plain(value, nested=True):
            if not (text := decoded(path, number, line)).strip():
                continue
            value = _object(path, number, text)
        found = True
        yield number, value
    if not found:
        raise AnmiError(f"{path} is empty; at least one line was expected")


def _plain(value: dict[str, Any], nested: bool = False) -> bool:
    """Say whether a JSON object holds only texts, lists or objects of them: these are read and written alike by all."""
    for item in value.values():
        kind = type(item)
        if kind is list:
            for part in item:
                if type(part) is not str:
                    return False
        elif kind is not str and not (nested and kind is dict and _plain(item)):
            return False
    return True


def string(value: dict[str, Any], key: str, path: Path, number: int, name: str = "") -> str:
    """Return a field that must be a string; ids may be whole numbers.

    Raises
    ------
    AnmiError
        If it is absent or something else.
    """
    found = value.get(key)
    if isinstance(found, int) and not isinstance(found, bool) and key == "_id":
        found = str(found)
    if not isinstance(found, str) or (key == "_id" and not found.strip()):
        what = f'has no "{key}"' if found is None else f'has a "{key}" that is no text'
        raise AnmiError(f'{path} line {number}{name} {what}; every line needs a "{key}" that is a string')
    return clean(found)


def clean(text: str) -> str:
    r"""Replace halves of surrogate pairs, which JSON can hold and no UTF-8 file can.

    Examples
    --------
    >>> clean("a\ud800")
    'a�'
    """
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def to_json(value: Any) -> str:
    """Return compact JSON with its characters as they are."""
    if isinstance(value, dict) and _plain(value):
        with suppress(TypeError):  # Halves of surrogate pairs.
            return orjson.dumps(value).decode()
    return clean(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def read_texts(path: Path, id_column: str, rows: Iterable[tuple[int, dict[str, Any]]] | None = None) -> pd.DataFrame:
    """Read ``corpus.jsonl`` or ``queries.jsonl``, or rows like theirs.

    Keys that the format does not know are kept beside the metadata.

    Parameters
    ----------
    path
        Lines with ``_id``, ``text``, maybe ``title`` and ``metadata``.
    id_column
        What the id is called in the result.
    rows
        Numbers and values, where they are no lines of a JSONL file. Their ids may be called ``id``.

    Returns
    -------
    pandas.DataFrame
        ``<id_column>, title, text, metadata, file, line``.

    Raises
    ------
    AnmiError
        If ``_id`` or ``text`` is missing, an id occurs twice, or there is no row.
    """
    lines: dict[str, int] = {}
    names = ("title", "text", "metadata")
    read: list[tuple[str, str, str]] = []
    chunks: list[list[pa.LargeStringArray]] = [[] for _ in names]

    def stow() -> None:
        for chunk, values in zip(chunks, zip(*read, strict=True), strict=False):
            chunk.append(pa.array(values, pa.large_string()))
        read.clear()

    for number, value in read_objects(path) if rows is None else rows:
        if "_id" not in value and "id" in value:
            value["_id"] = value.pop("id")
        identifier = string(value, "_id", path, number)
        if lines.setdefault(identifier, number) != number:
            raise AnmiError(
                f'{path} line {number} repeats the id "{identifier}" of line {lines[identifier]}; ids must be unique'
            )
        text = string(value, "text", path, number, f' (id "{identifier}")')
        title = value.get("title")
        read.append((clean(title) if isinstance(title, str) else "", text, to_json(metadata_of(value, _OWN_KEYS))))
        if len(read) == _CHUNK:
            stow()
    if not lines:
        raise AnmiError(f"{path} has no row; at least one was expected")
    stow()
    ids = {id_column: column(list(lines))}
    rest = {name: column(pa.chunked_array(chunk)) for name, chunk in zip(names, chunks, strict=True)}
    where = {"file": column(pa.repeat(pa.scalar(str(path), pa.large_string()), len(lines)))}
    return pd.DataFrame(ids | rest | where | {"line": list(lines.values())})


def metadata_of(value: dict[str, Any], used: Collection[str]) -> dict[str, Any]:
    """Return the metadata of a row, with the keys that are not used for something else."""
    own = value.get("metadata") if "metadata" not in used else None
    if isinstance(own, str) and own.startswith("{"):  # In a table, JSON is a text.
        with suppress(ValueError):
            own = json.loads(own)
    rest = {key: item for key, item in value.items() if key not in used and key != "metadata"}
    return rest | (own if isinstance(own, dict) else {} if own is None else {"metadata": own})
