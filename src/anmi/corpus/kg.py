"""Folders in the BEIR layout with a graph beside them, whose documents state facts of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pandas as pd

from anmi.corpus.graph_tables import GraphTables, Names, Resolver, read_tables, stated_facts, triples_of
from anmi.corpus.jsonl import clean, read_lines, read_texts, to_json
from anmi.corpus.raw import Options, RawCollection, inside, kind_of, no_labels, no_queries
from anmi.corpus.rdf import SUFFIXES, read_rdf
from anmi.corpus.tables import read_rows
from anmi.corpus.types import RUN_COLUMNS, RUN_ENDINGS, check_share, empty, table_of
from anmi.errors import AnmiError

# In order of preference; the first file that exists is taken.
SPLIT_NAMES: Final = {"train": ("train",), "dev": ("dev", "validation", "valid", "val"), "test": ("test",)}
_COLUMNS: Final = ("query-id", "corpus-id", "score")
_HEADER: Final = "<TAB>".join(_COLUMNS)
_TEXTS: Final = (".jsonl", ".jsonl.gz", ".parquet")
_NUMBER: Final = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?", re.IGNORECASE)
_LABELS: Final = (".tsv", ".parquet", ".txt", ".trec", ".qrels")


def read_beir(location: str, options: Options) -> RawCollection:
    """Read a folder in the BEIR layout.

    Labels of any split may be missing, of all as well: then there is nothing to mine, and training rests on
    pseudo-queries.

    Parameters
    ----------
    location
        The folder. Without any labels it needs no ``queries.jsonl``.
    options
        Not used; every reader takes them.

    Raises
    ------
    AnmiError
        If a file is missing, damaged, not in the layout, or a link out of the folder; or ``qrels`` holds tables and
        none has the name of a split.
    """
    folder = Path(location).expanduser()
    if not folder.is_dir():
        raise AnmiError(f"{folder} is not a folder; beir:DIR expects one with corpus.jsonl, queries.jsonl and qrels/")
    documents = _read_texts(folder, "corpus", "document_id")
    if (folder / "qrels").is_file():
        raise AnmiError(f"{folder / 'qrels'} is a file; a folder with train.tsv, dev.tsv or test.tsv was expected")
    found = {
        split: next((path for name in names for path in _named(folder / "qrels", name, _LABELS) if path.exists()), None)
        for split, names in SPLIT_NAMES.items()
    }
    tables = {path.name: read_qrels(inside(path, folder), split) for split, path in found.items() if path}
    notes = {name: "is empty, as if it were not there" for name, table in tables.items() if table.empty}
    labelled = [table for table in tables.values() if len(table)]
    if not tables and (
        others := sorted(path.name for path in (folder / "qrels").glob("*.*") if path.suffix in _LABELS)
    ):
        # Labels under another name are a slip: the run would train on pseudo-queries and never say why.
        place = folder / "qrels"
        raise AnmiError(f"{place} has {others[0]} and no table of a split; call it train.tsv, dev.tsv or test.tsv")
    given = labelled or any(path.exists() for path in _named(folder, "queries", _TEXTS))
    queries = _read_texts(folder, "queries", "query_id").drop(columns="title") if given else no_queries()
    qrels = pd.concat(labelled, ignore_index=True) if labelled else no_labels()
    places = sorted(path for path in (folder / "runs").glob("*") if path.suffix in RUN_ENDINGS)
    runs = pd.concat([empty(*RUN_COLUMNS), *(read_run(inside(path, folder)) for path in places)], ignore_index=True)
    return RawCollection(documents, queries, qrels, empty("head", "relation", "tail"), notes=notes, runs=runs)


def read_run(path: Path) -> pd.DataFrame:
    """Read a run of TREC: query, Q0, document, rank, score and tag, separated by blanks.

    Returns
    -------
    pandas.DataFrame
        ``query_id, document_id, score, system``: the system has the name of the file.

    Raises
    ------
    AnmiError
        A line is no such line.
    """
    rows = [(number, line.split()) for number, line in read_lines(path)]
    for number, fields in rows:
        if len(fields) != 6 or not _NUMBER.fullmatch(fields[4]):
            raise AnmiError(f'{path} line {number} is "{" ".join(fields)[:100]}"; six columns of TREC were expected: '
                            "query, Q0, document, rank, score (a number), tag")  # fmt: skip
    found = [(fields[0], fields[2], float(fields[4]), path.name) for _, fields in rows]
    return pd.DataFrame(found, columns=list(RUN_COLUMNS))


def _named(folder: Path, name: str, endings: Sequence[str]) -> list[Path]:
    return [folder / f"{name}{ending}" for ending in endings]


def _read_texts(folder: Path, name: str, id_column: str) -> pd.DataFrame:
    places = _named(folder, name, _TEXTS)
    path = inside(next((path for path in places if path.exists()), places[0]), folder)
    return read_texts(path, id_column, read_rows(path))


def read_qrels(path: Path, split: str) -> pd.DataFrame:
    """Read one file of labels; that of dev may be empty.

    It is Parquet, or has a header and three columns separated by tabs, or four of TREC (query, 0, document, relevance)
    separated by blanks and no header.

    Returns
    -------
    pandas.DataFrame
        ``query_id, document_id, relevance, split, file, line``; relevance as it was written.

    Raises
    ------
    AnmiError
        If the header is missing or a line has not as many columns.
    """
    if kind_of(path) == ".parquet":
        return labels_of(path, read_rows(path), split)
    lines = read_lines(path) if split != "dev" or path.read_bytes().strip() else ()
    rows = [(number, [clean(value).strip() for value in line.split("\t")]) for number, line in lines]
    if rows and len(trec := " ".join(rows[0][1]).split()) == 4 and trec[3].lstrip("-").isdecimal():
        rows = [(number, " ".join(fields).split()) for number, fields in rows]
        wanted, what = 4, "four of TREC were expected: query, 0, document, relevance"
    else:
        wanted, what = 3, "three separated by tabs were expected"
        if rows:
            _check_header(path, *rows.pop(0))
    for number, fields in rows:
        if len(fields) != wanted:
            raise AnmiError(f"{path} line {number} has {len(fields)} columns; {what}")
    rows = [(number, [fields[0], *fields[-2:]]) for number, fields in rows]
    return _table(path, rows, split)


def labels_of(path: Path, rows: Iterable[tuple[int, Mapping[str, Any]]], split: str) -> pd.DataFrame:
    """Return the labels of rows with the columns ``query-id``, ``corpus-id`` and ``score``; see :func:`read_qrels`."""
    try:
        return _table(path, [(line, [str(values[name]) for name in _COLUMNS]) for line, values in rows], split)
    except KeyError as error:
        raise AnmiError(f"{path} has no column {error}; {', '.join(_COLUMNS)} were expected") from None


def _table(path: Path, rows: Sequence[tuple[int, Sequence[str]]], split: str) -> pd.DataFrame:
    if not rows and split != "dev":
        raise AnmiError(f"{path} has a header and no rows; at least one label was expected")
    labels = [fields for _, fields in rows]
    frame = pd.DataFrame(labels, columns=["query_id", "document_id", "relevance"], dtype="str")
    return frame.assign(split=split, file=str(path), line=[number for number, _ in rows])


def _check_header(path: Path, number: int, fields: list[str]) -> None:
    if len(fields) == 1 and len(fields[0].split()) > 1:
        raise AnmiError(f"{path} line {number} is not separated by tabs; its header should be {_HEADER}")
    try:
        float(fields[-1])
    except ValueError:
        if len(fields) == 3:
            return
        raise AnmiError(f"{path} line {number} has {len(fields)} columns; its header should be {_HEADER}") from None
    raise AnmiError(f"{path} line {number} is a label and not the header; put {_HEADER} in the first line")


_TABLES: Final = ("entities.jsonl", "triples.tsv")
_NAMED: Final = tuple(f"graph{suffix}" for suffix in SUFFIXES)
_MALFORMED: Final = "metadata.triples is no list of [head, relation, tail]; what is none was left out"


def read_kg(location: str, options: Options) -> RawCollection:
    """Read a folder in the BEIR layout with its graph.

    The graph is ``entities.jsonl`` with ``triples.tsv``, or else ``graph.ttl``, ``graph.nt`` or the only file of such a
    kind, in the folder or in the one above. A document's facts are its ``metadata.triples``, names written short or as
    URIs, and the triples whose head is its id.

    Parameters
    ----------
    location
        The folder.
    options
        Of interest are ``language`` (of labels) and ``max_quarantine`` (of damaged triples, too).

    Raises
    ------
    AnmiError
        If a file is missing, not in its form, or too much of the graph is damaged.
    """
    folder = Path(location).expanduser()
    if not folder.is_dir():
        raise AnmiError(
            f"{folder} is not a folder; kg:DIR expects one with corpus.jsonl, queries.jsonl and qrels/, and a graph "
            "there or one folder above"
        )
    files = _chosen(folder)
    raw = read_beir(location, options)
    found = _read_graph(files, raw.documents, options)
    check_share(found.set_aside, "triples", found.size, options.max_quarantine)
    malformed = _malformed(raw.documents)
    check_share(malformed, "documents", len(raw.documents), options.max_quarantine)

    entities, missing = with_ranges(found.entities, found.graph)
    facts, foreign = _facts(raw.documents, entities, found.graph)
    counts = missing | {"stated triples that the graph lacks": foreign}
    return RawCollection(
        raw.documents,
        raw.queries,
        raw.qrels,
        found.graph,
        notes={"graph": [str(path) for path in files], **found.notes, **{name: n for name, n in counts.items() if n}},
        entities=entities,
        facts=facts,
        runs=raw.runs,
        set_aside=pd.concat([found.set_aside, malformed], ignore_index=True),
    )


def graph_files(folder: Path) -> list[Path]:
    """Return the files that the graph of a folder is read from, or those there are to choose from; maybe none.

    Returns
    -------
    list of Path
        ``entities.jsonl`` and ``triples.tsv``, or one file of RDF; one of the first two alone, or several of RDF, are
        no graph yet.
    """
    places = (folder, _above(folder))
    tables = [next((place / name for place in places if (place / name).is_file()), None) for name in _TABLES]
    if all(tables):
        return [path for path in tables if path]
    for place in places:
        named = [place / name for name in _NAMED if (place / name).is_file()]
        other = sorted(path for path in place.glob("*") if path.suffix in SUFFIXES and path.is_file())
        if named or other:
            return named[:1] or other
    return [path for path in tables if path]


def _above(folder: Path) -> Path:
    # The parent of "." is "." to pathlib.
    return folder.parent if folder.name not in ("", "..") else folder.resolve().parent


def _chosen(folder: Path) -> list[Path]:
    files = [inside(path, path.parent) for path in graph_files(folder)]
    names = [path.name for path in files]
    if names == list(_TABLES) or (len(files) == 1 and files[0].suffix in SUFFIXES):
        return files
    if len(files) > 1:
        raise AnmiError(f"{files[0].parent} has {' and '.join(names)}; call the one to be read {' or '.join(_NAMED)}")
    lacking = " and ".join(name for name in _TABLES if name not in names)
    raise AnmiError(
        f"neither {folder} nor {_above(folder)} has {lacking}; put {'it' if files else 'them'} there, or the graph as "
        f"{' or '.join(_NAMED)}"
    )


def _read_graph(files: Sequence[Path], documents: pd.DataFrame, options: Options) -> GraphTables:
    if len(files) == len(_TABLES):
        return read_tables(*files)
    from anmi.corpus.language import detect_language
    from anmi.corpus.texts import document_texts

    language = options.language or detect_language(document_texts(documents))
    return read_rdf(files[0], language)


def with_ranges(entities: pd.DataFrame, graph: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, int]]:
    """Give entities without a type the ranges of the relations that they are the tail of.

    Parameters
    ----------
    entities
        ``uri, label, types, description``, types as a JSON list.
    graph
        ``head, relation, tail``.

    Returns
    -------
    pandas.DataFrame
        The entities.
    dict
        How many had no type, and how many have none even so.

    Examples
    --------
    >>> entities = pd.DataFrame({"uri": ["u:a", "u:b", "u:c"], "types": ['["city"]', "[]", "[]"]})
    >>> graph = pd.DataFrame({"head": ["u:a"], "relation": ["country"], "tail": ["u:b"]})
    >>> found, counts = with_ranges(entities, graph)
    >>> found.types.tolist(), counts
    (['["city"]', '["range:country"]', '[]'], {'entities without a type': 2, 'entities without a type or a range': 1})
    """
    bare = entities["types"] == "[]"
    tails = graph[graph["tail"].isin(entities.loc[bare, "uri"])].drop_duplicates(["relation", "tail"])
    ranges = ("range:" + tails["relation"]).groupby(tails["tail"], sort=False).agg(lambda names: to_json(list(names)))
    types = entities["types"].mask(bare, entities["uri"].map(ranges).fillna("[]")).astype("str")
    without = int((types == "[]").sum())
    counts = {"entities without a type": int(bare.sum()), "entities without a type or a range": without}
    return entities.assign(types=types), counts


def _facts(documents: pd.DataFrame, entities: pd.DataFrame, graph: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """Return what documents state, in the terms of the graph, and how much of that it does not hold."""
    known = set(zip(graph["head"], graph["relation"], graph["tail"], strict=True))
    # Relations are seldom URIs; those that are none have a name and no short one.
    relations = Names(name for name in graph["relation"].unique() if "://" in name)
    facts = stated_facts(documents, graph, Resolver(Names(entities["uri"]), relations, known))
    stated = zip(facts["head"], facts["relation"], facts["tail"], strict=True)
    return facts, sum(triple not in known for triple in stated)


def _malformed(documents: pd.DataFrame) -> pd.DataFrame:
    bad = [not triples_of(text)[1] for text in documents["metadata"]]
    rows = documents.loc[bad, ["document_id", "file", "line"]].itertuples(index=False)
    return table_of(("fact", name, file, line, _MALFORMED) for name, file, line in rows)
