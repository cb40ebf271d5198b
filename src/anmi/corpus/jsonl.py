"""Reading lines of text and JSON so that every mistake is reported with its file and line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from anmi.errors import AnmiError

_BAR_FROM_BYTES: Final = 50_000_000
_OWN_KEYS: Final = frozenset({"_id", "title", "text", "metadata"})


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line number and text of every line that is not blank.

    A byte-order mark and Windows line ends are accepted.

    Raises
    ------
    AnmiError
        If the file is missing, empty or not UTF-8.
    """
    if not path.is_file():
        raise AnmiError(f"{path} does not exist; check the folder's name and its layout")
    from tqdm import tqdm

    size = path.stat().st_size
    found = False
    with (
        path.open("rb") as file,
        tqdm(total=size, unit="B", unit_scale=True, desc=path.name, disable=size < _BAR_FROM_BYTES) as bar,
    ):
        for number, line in enumerate(file, start=1):
            bar.update(len(line))
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                raise AnmiError(
                    f"{path} line {number} is not UTF-8 (byte {error.object[error.start]:#04x} at position "
                    f"{error.start}); convert the file to UTF-8"
                ) from None
            if text.strip():
                found = True
                yield number, text
    if not found:
        raise AnmiError(f"{path} is empty; at least one line was expected")


def read_objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield line number and object of every line of a JSONL file.

    Raises
    ------
    AnmiError
        Also if a line is no JSON object.
    """
    for number, line in read_lines(path):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            reason = error.msg if isinstance(error, json.JSONDecodeError) else "too large or nested too deep"
            raise AnmiError(
                f"{path} line {number} is not valid JSON ({reason}); one JSON object a line was expected"
            ) from None
        if not isinstance(value, dict):
            raise AnmiError(f"{path} line {number} holds {type(value).__name__}; a JSON object was expected")
        yield number, value


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
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def to_json(value: Any) -> str:
    """Return compact JSON with its characters as they are."""
    return clean(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def read_texts(path: Path, id_column: str) -> pd.DataFrame:
    """Read ``corpus.jsonl`` or ``queries.jsonl``.

    Keys that the format does not know are kept beside the metadata.

    Parameters
    ----------
    path
        Lines with ``_id``, ``text``, maybe ``title`` and ``metadata``.
    id_column
        What the id is called in the result.
    show_progress
        Whether a large file shows a bar.

    Returns
    -------
    pandas.DataFrame
        ``<id_column>, title, text, metadata, file, line``.

    Raises
    ------
    AnmiError
        If ``_id`` or ``text`` is missing or an id occurs twice.
    """
    lines: dict[str, int] = {}
    titles: list[str] = []
    texts: list[str] = []
    metadata: list[str] = []
    for number, value in read_objects(path):
        identifier = string(value, "_id", path, number)
        if identifier in lines:
            raise AnmiError(
                f'{path} line {number} repeats the id "{identifier}" of line {lines[identifier]}; ids must be unique'
            )
        lines[identifier] = number
        texts.append(string(value, "text", path, number, f' (id "{identifier}")'))
        title = value.get("title")
        titles.append(clean(title) if isinstance(title, str) else "")
        extra = {key: item for key, item in value.items() if key not in _OWN_KEYS}
        own = value.get("metadata")
        own = own if isinstance(own, dict) else {} if own is None else {"metadata": own}
        metadata.append(to_json({**extra, **own}))
    columns = {id_column: list(lines), "title": titles, "text": texts, "metadata": metadata}
    frame = pd.DataFrame(columns, dtype="str")
    return frame.assign(file=str(path), line=np.fromiter(lines.values(), np.int64, len(lines)))
