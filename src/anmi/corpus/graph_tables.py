"""A graph as two files: ``entities.jsonl`` and ``triples.tsv``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pandas as pd

from anmi.corpus.jsonl import clean, read_lines, read_objects, string, to_json
from anmi.corpus.names import is_quoted, last_segment
from anmi.corpus.quarantine import COLUMNS, table_of
from anmi.corpus.types import ENTITY_COLUMNS
from anmi.errors import AnmiError

_HEADER: Final = ("head", "relation", "tail")


@dataclass(frozen=True)
class GraphTables:
    """A graph as it was read.

    Attributes
    ----------
    entities
        ``uri, label, types, description``, types as a JSON list of different names; URIs are unique.
    graph
        ``head, relation, tail``, each once; every head is an entity.
    set_aside
        ``kind, id, file, line, reason``: lines that are no triple of an entity.
    size
        How many lines or triples were read.
    notes
        Counts of what was mended or left out.
    """

    entities: pd.DataFrame
    graph: pd.DataFrame
    set_aside: pd.DataFrame
    size: int
    notes: dict[str, Any] = field(default_factory=dict)


def read_tables(entities: Path, triples: Path) -> GraphTables:
    """Read both files.

    Parameters
    ----------
    entities
        Lines with ``uri`` and maybe ``label``, ``types`` (a list) and ``description``; other keys are left out.
    triples
        ``head, relation, tail`` and maybe ``split``, separated by tabs, below a header. A tail in quotation marks, or
        one that is no entity, is a literal.
    show_progress
        Whether a large file shows a bar.

    Raises
    ------
    AnmiError
        If a file is missing or not in this form, or an entity stands there twice. A damaged triple is set aside.
    """
    known, notes = read_entities(entities)
    found, aside = _read_triples(triples)
    unknown = ~found["head"].isin(known["uri"])
    reasons = [
        "the head is a literal" if is_quoted(head) else "the head is no entity" for head in found["head"][unknown]
    ]
    rows = found[unknown].assign(reason=reasons, kind="triple").rename(columns={"head": "id"})
    aside_all = pd.concat([aside, rows[list(COLUMNS)]], ignore_index=True).sort_values("line", kind="stable")
    graph = found.loc[~unknown, list(_HEADER)].drop_duplicates().reset_index(drop=True)
    foreign = int((graph["tail"].str.contains("://", regex=False) & ~graph["tail"].isin(known["uri"])).sum())
    if foreign:
        notes["tails that are URIs of no entity"] = foreign
    return GraphTables(known, graph, table_of(aside_all.itertuples(index=False)), len(found) + len(aside), notes)


def read_entities(path: Path) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Read ``entities.jsonl``.

    Returns
    -------
    pandas.DataFrame
        ``uri, label, types, description``, types as a JSON list.
    dict
        How many entities lack a label, or have types that are no list of names.

    Raises
    ------
    AnmiError
        If a line has no ``uri`` or one that an earlier line has.
    """
    lines: dict[str, int] = {}
    rows: list[tuple[str, str, str, str]] = []
    notes: Counter[str] = Counter()
    for number, value in read_objects(path):
        uri = string(value, "uri", path, number).strip()
        if not uri:
            raise AnmiError(f'{path} line {number} has an empty "uri"; every line needs a "uri" that is a string')
        if uri in lines:
            raise AnmiError(
                f'{path} line {number} repeats the entity "{uri}" of line {lines[uri]}; an entity may stand there once'
            )
        lines[uri] = number
        label, written, description = (value.get(key) for key in ("label", "types", "description"))
        types, sound = _types(written)
        notes["entities whose types are no list of names"] += not sound
        if not isinstance(label, str) or not label.strip():
            notes["entities without a label"] += 1
            label = last_segment(uri)
        rows.append((uri, clean(label).strip(), types, clean(description) if isinstance(description, str) else ""))
    return pd.DataFrame(rows, columns=list(ENTITY_COLUMNS), dtype="str"), {k: n for k, n in notes.items() if n}


def _types(written: Any) -> tuple[str, bool]:
    """Return the types as JSON, each once and without empty ones, and whether they were a list of names."""
    # One type is often written without its brackets.
    listed = written if isinstance(written, list) else [written] if isinstance(written, str) else []
    names = [clean(name).strip() for name in listed if isinstance(name, str) and name.strip()]
    sound = written is None or (isinstance(written, list) and len(names) == len(written))
    return to_json(list(dict.fromkeys(names))), sound


def _read_triples(path: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return ``head, relation, tail, file, line`` and the lines that are no triples."""
    rows: list[tuple[str, str, str, int]] = []
    bad: list[tuple[str, str, str, int, str]] = []
    header = False
    for number, line in read_lines(path):
        fields = [clean(value).strip() for value in line.split("\t")]
        if not header:
            _check_header(path, number, fields)
            header = True
        elif len(fields) not in (3, 4):
            reason = f"{len(fields)} columns where head, relation, tail and maybe split were expected"
            bad.append(("triple", fields[0], str(path), number, reason))
        elif not all(fields[:3]):
            bad.append(("triple", fields[0], str(path), number, "the head, the relation or the tail is empty"))
        else:
            rows.append((fields[0], fields[1], fields[2], number))
    if not rows and not bad:
        raise AnmiError(f"{path} has a header and no rows; at least one triple was expected")
    table = pd.DataFrame(rows, columns=[*_HEADER, "line"]).astype(dict.fromkeys(_HEADER, "str") | {"line": "int64"})
    return table.assign(file=str(path)), table_of(bad)


def _check_header(path: Path, number: int, fields: Sequence[str]) -> None:
    if tuple(fields) not in (_HEADER, (*_HEADER, "split")):
        raise AnmiError(
            f"{path} line {number} is not the header; put head<TAB>relation<TAB>tail, and maybe <TAB>split, in the "
            "first line"
        )
