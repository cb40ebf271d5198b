"""The module reads the layout of BEIR (folders, ir_datasets, `datasets`) and runs of TREC."""

from __future__ import annotations

import itertools
import math
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import pandas as pd

from anmi.corpus.places import inside, kind_of
from anmi.corpus.rows import Pair, Row, gather_pairs, numbered, read_lines, read_rows, read_texts
from anmi.corpus.texts import clean
from anmi.corpus.types import (
    LABEL_COLUMNS,
    QUERY_COLUMNS,
    RUN_COLUMNS,
    RUN_ENDINGS,
    Options,
    RawCollection,
    empty,
    table,
)
from anmi.errors import AnmiError, installed, nearest

# In order of preference; the first file that exists is taken.
SPLIT_NAMES: Final = {
    "train": ("train",),
    "dev": ("dev", "validation", "valid", "val"),
    "test": ("test",),
}
# What the columns of labels may be called, also with underscores.
_COLUMNS: Final = {
    "query-id": ("query-id", "qid", "query"),
    "corpus-id": ("corpus-id", "document-id", "doc-id", "docid", "passage-id", "pid", "document"),
    "score": ("score", "relevance", "label", "rel"),
}
_HEADER: Final = "<TAB>".join(_COLUMNS)
_TEXTS: Final = (".jsonl", ".jsonl.gz", ".parquet")
_LABELS: Final = (".tsv", ".parquet", ".txt", ".trec", ".qrels")


def read_beir(location: str, options: Options) -> RawCollection:
    """Read a folder in the BEIR layout.

    Labels of any split may be missing, of all as well: then there is nothing to mine, and training
    rests on pseudo-queries.

    Parameters
    ----------
    location
        The folder. Without any labels it needs no ``queries.jsonl``.
    options
        Of interest are ``columns``.

    Raises
    ------
    AnmiError
        If a file is missing, damaged, not in the layout, or a link out of the folder; or ``qrels``
        holds tables and none has the name of a split.
    """
    folder = Path(location).expanduser()
    if not folder.is_dir():
        raise AnmiError(
            f"{folder} is not a folder; one with corpus.jsonl, queries.jsonl and qrels/ was"
            " expected"
        )
    place = folder / "qrels"
    if place.is_file():
        raise AnmiError(
            f"{place} is a file; a folder with train.tsv, dev.tsv or test.tsv was expected"
        )
    corpus = inside(_first(folder, ["corpus"], _TEXTS) or folder / "corpus.jsonl", folder)
    documents = read_texts(corpus, "document", options.columns)
    tables: dict[str, pd.DataFrame] = {}
    for split, names in SPLIT_NAMES.items():
        path = _first(place, names, _LABELS)
        if path:
            tables[path.name] = read_qrels(inside(path, folder), split)
    others = sorted(path.name for path in place.glob("*.*") if path.suffix in _LABELS)
    if not tables and others:
        # Labels under another name are a slip: the run would train on pseudo-queries and never say
        # why.
        raise AnmiError(
            f"{place} has {others[0]} and no table of a split; call it train.tsv, dev.tsv or"
            " test.tsv"
        )
    qrels = pd.concat([empty(*LABEL_COLUMNS), *tables.values()], ignore_index=True)
    query_file = _first(folder, ["queries"], _TEXTS)
    queries = empty(*QUERY_COLUMNS)
    if query_file or len(qrels):
        query_file = inside(query_file or folder / "queries.jsonl", folder)
        queries = read_texts(query_file, "query", options.columns)
    run_paths = sorted((folder / "runs").glob("*"))
    run_files = [path for path in run_paths if path.suffix in RUN_ENDINGS]
    runs = [read_run(inside(run_file, folder)) for run_file in run_files]
    empty_files = [name for name, labels in tables.items() if labels.empty]
    return RawCollection(
        documents,
        queries,
        qrels,
        notes=dict.fromkeys(empty_files, "is empty, as if it were not there"),
        runs=pd.concat([empty(*RUN_COLUMNS), *runs], ignore_index=True),
    )


def _first(
    folder: Path,
    names: Iterable[str],
    endings: Sequence[str],
) -> Path | None:
    """Return the first file that exists, or is a link."""
    places = (folder / f"{name}{ending}" for name in names for ending in endings)
    return next((path for path in places if path.is_symlink() or path.exists()), None)


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
    rows = []
    for number, line in read_lines(path):
        try:
            query, _, document, _, score, _ = line.split()
            if not math.isfinite(value := float(score)):
                raise ValueError
        except ValueError:
            raise AnmiError(
                f'{path} line {number} is "{line[:100]}"; six columns of TREC were expected: query,'
                " Q0, document, rank, score (a number), tag"
            ) from None
        rows.append((query, document, value, path.name))
    return table(rows, *RUN_COLUMNS)


def read_qrels(path: Path, split: str) -> pd.DataFrame:
    """Read one file of labels; that of dev may be empty.

    It is Parquet, or has a header and columns separated by tabs, or four of TREC (query, 0,
    document, relevance) separated by blanks and no header. Columns go by their names, or by their
    places where the header has other names.

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
    rows = [(number, line.split("\t")) for number, line in lines]
    places: tuple[int, ...] = (0, 1, 2)
    first_fields = " ".join(rows[0][1]).split() if rows else []
    if len(first_fields) == 4 and first_fields[3].lstrip("-").isdecimal():
        rows = [(number, " ".join(fields).split()) for number, fields in rows]
        places = (0, 2, 3)
        width = 4
    elif rows:
        number, header = rows.pop(0)
        width = len(header)
        named = _places(tuple(header))
        looks_like_label = width == 3 and header[2].strip(" -").replace(".", "").isdecimal()
        if not named and (width != 3 or looks_like_label):
            raise AnmiError(
                f"{path} line {number} is not the header; its columns should be {_HEADER},"
                " separated by tabs"
            )
        places = named or places
    for number, fields in rows:
        if len(fields) != width:
            raise AnmiError(
                f"{path} line {number} has {len(fields)} columns; {width} as in the first line were"
                " expected, separated by tabs, or by blanks in four columns of TREC"
            )
    chosen = []
    for number, fields in rows:
        chosen.append((number, [fields[place] for place in places]))
    return _table(path, chosen, split)


@lru_cache
def _places(header: tuple[str, ...]) -> tuple[int, ...]:
    """Return where query, document and label stand; nothing where names do not say so."""
    plain = [name.strip().lower().replace("_", "-") for name in header]
    places = []
    for names in _COLUMNS.values():
        present = [name for name in names if name in plain]
        if not present:
            return ()
        places.append(plain.index(present[0]))
    return tuple(places)


def labels_of(
    path: Path,
    rows: Iterable[Row],
    split: str,
) -> pd.DataFrame:
    """Return the labels of rows with the columns that :func:`read_qrels` knows."""
    labels = []
    for line, values in rows:
        names = tuple(values)
        if not (places := _places(names)):
            raise AnmiError(
                f"{path} has the columns {', '.join(names)}; {', '.join(_COLUMNS)} were expected"
            )
        labels.append((line, [values[names[place]] for place in places]))
    return _table(path, labels, split)


def _table(
    path: Path,
    rows: Sequence[tuple[int, Sequence[Any]]],
    split: str,
) -> pd.DataFrame:
    """Return labels whose ids have no blanks around them, as those of texts have none."""
    if not rows and split != "dev":
        raise AnmiError(f"{path} has a header and no rows; at least one label was expected")
    labels = []
    for line, fields in rows:
        texts = [clean(str(field)).strip() for field in fields]
        labels.append((*texts, split, str(path), line))
    return table(labels, *LABEL_COLUMNS)


@contextmanager
def _in_one_sentence(name: str, cure: str) -> Iterator[None]:
    try:
        yield
    except AnmiError:
        raise
    except Exception as error:
        # Downloads, archives, parsers and licence prompts: each raises something else.
        message = " ".join(str(error).split())[:300]
        raise AnmiError(
            f"{name} cannot be read ({type(error).__name__}: {message}); {cure}"
        ) from error


def read_ir_datasets(location: str, options: Options) -> RawCollection:
    """Read a dataset of the catalogue with the splits beside it.

    ``NAME/train`` also takes ``NAME/dev`` and ``NAME/test``, and so does ``NAME`` where there is a
    ``NAME/train``. A dataset without splits counts as training data.

    Parameters
    ----------
    location
        An id of ir_datasets, for example ``beir/scifact/train``.
    options
        Not used; every reader takes them.

    Raises
    ------
    AnmiError
        If ir_datasets is not installed, the id is unknown or of another split than train, or it
        cannot be downloaded.
    """
    library = installed("ir_datasets", "ir_datasets:ID", "ir-datasets")
    cure = (
        "its first use downloads it, so check the network, or put the files where ir_datasets"
        " expects them"
    )
    with _in_one_sentence(f"ir_datasets:{location}", cure):
        # It unpacks what it downloads and names no filter; before Python 3.14 the default trusts an
        # archive in everything. This one keeps archives in their folder, without devices or special
        # permissions (PEP 706).
        tarfile.TarFile.extraction_filter = staticmethod(tarfile.data_filter)
        splits = _splits(location, library)
        name, train = splits["train"]
        # Splits may hand out one common list of queries; the labels say which split a query is in.
        query_rows = {
            (values["_id"], values["text"]): (line, values)
            for _, part in splits.values()
            for line, values in _texts(part.queries_iter())
        }
        labels: list[tuple[Any, ...]] = []
        for split, (dataset_name, part) in splits.items():
            for line, label in enumerate(part.qrels_iter(), 1):
                pair = (str(label.query_id).strip(), str(label.doc_id).strip())
                labels.append((*pair, str(label.relevance), split, dataset_name, line))
        return RawCollection(
            read_texts(Path(name), "document", {}, _texts(train.docs_iter())),
            read_texts(Path(name), "query", {}, query_rows.values()),
            table(labels, *LABEL_COLUMNS),
            notes={"ir_datasets": _names(splits)},
        )


def _splits(location: str, library: Any) -> dict[str, tuple[str, Any]]:
    """Return name and dataset of every split there is, train first."""
    base, _, last = location.rpartition("/")
    if base and last in (*SPLIT_NAMES["dev"], "test"):
        raise AnmiError(
            f"ir_datasets:{location} is no training split; name {base}/train or a dataset without"
            " splits"
        )
    base = base if last == "train" else location
    splits: dict[str, tuple[str, Any]] = {}
    for split, names in SPLIT_NAMES.items():
        candidates = [f"{base}/{name}" for name in names]
        if split == "train":
            candidates.append(location)
        for name in candidates:
            with suppress(KeyError):
                part = library.load(name)
                if part.has_qrels() and part.has_queries():
                    splits.setdefault(split, (name, part))
    if "train" not in splits:
        hint = nearest(location, set(library.registry) - {location})
        raise AnmiError(
            f'"{location}" is not known to ir_datasets, or has no queries with labels; {hint}'
        )
    return splits if splits["train"][0].endswith("/train") else {"train": splits["train"]}


def _texts(items: Iterable[Any]) -> Iterator[Row]:
    """Yield documents or queries of a dataset, whose first field is the id."""
    for line, item in enumerate(items, 1):
        values = {"_id": str(item[0]), "metadata": getattr(item, "metadata", None) or {}}
        if isinstance(getattr(item, "text", None), str):
            values |= {"title": getattr(item, "title", None), "text": item.text}
        else:
            values |= {"title": "", "text": item.default_text() or ""}
        yield line, values


def read_hf(location: str, options: Options) -> RawCollection:
    """Read what `datasets` saved, a folder of files, or a dataset on its hub.

    Configurations called ``corpus``, ``queries`` and ``qrels`` (or ``default``) hold a collection
    as that of BEIR, also with ``CONFIG-`` in front; the labels may also be another dataset,
    ``NAME-qrels``. Anything else holds pairs.

    Parameters
    ----------
    location
        ``PATH_OR_NAME[:CONFIG][:SPLIT]``. A split that is named here is the training data, whatever
        it is called.
    options
        Of interest are ``columns``, for pairs.

    Raises
    ------
    AnmiError
        The dataset cannot be read, or has no such configuration or split.
    """
    name, _, config_and_split = location.partition(":")
    config, _, split = config_and_split.partition(":")
    cure = (
        "give a folder that `datasets` saved or that holds its files, each split with rows, or a"
        " name on the hub, with the environment variable ANMI_ONLINE=1"
    )
    with _in_one_sentence(f"hf:{location}", cure):
        folder = Path(name).expanduser()
        for path in folder.rglob("*") if folder.is_dir() else ():
            inside(path, folder)
        configs = _configs(folder, str(folder) if folder.is_dir() else name)
        corpus = _config(configs, config, "corpus")
        if corpus is None:
            languages = sorted(
                config_name.removesuffix("-corpus")
                for config_name in configs
                if config_name.endswith("-corpus")
            )
            if languages:
                raise AnmiError(
                    f"hf:{location} has a corpus for each of {', '.join(languages)}; name one:"
                    f" hf:{name}:{languages[0]}"
                )
            return _hf_pairs(
                location,
                name,
                _of_splits(location, _load(name, config), split),
                options,
            )

        def texts(config_name: str, kind: str) -> pd.DataFrame:
            rows = itertools.chain(*map(_rows, _load(name, config_name).values()))
            return read_texts(Path(name) / config_name, kind, options.columns, rows)

        queries = _config(configs, config, "queries")
        if queries is None:
            return RawCollection(texts(corpus, "document"), notes={"hf": {}})
        labels = _config(configs, config, "qrels") or _config(configs, config, "default")
        place = name if labels else f"{name}-qrels"
        splits = _of_splits(place, _load(place, labels), split)
        qrels = [
            labels_of(Path(place) / split_name, _rows(part), our_split)
            for our_split, (split_name, part) in splits.items()
        ]
        return RawCollection(
            texts(corpus, "document"),
            texts(queries, "query"),
            pd.concat(qrels, ignore_index=True),
            notes={"hf": _names(splits)},
        )


def _names(splits: Mapping[str, tuple[str, Any]]) -> dict[str, str]:
    """Return the dataset's own name of each split."""
    return {split: name for split, (name, _) in splits.items()}


def _config(
    configs: Sequence[str],
    prefix: str,
    part: str,
) -> str | None:
    """Return the configuration that holds a part of a collection, one with the prefix first."""
    candidates = (f"{prefix}-{part}", f"{part}-{prefix}", part)
    return next((candidate for candidate in candidates if candidate in configs), None)


def _hf_pairs(
    location: str,
    name: str,
    splits: Mapping[str, tuple[str, Any]],
    options: Options,
) -> RawCollection:
    rows: Iterator[Pair] = (
        (Path(name) / split_name, line, values, our_split)
        for our_split, (split_name, part) in splits.items()
        for line, values in _rows(part)
    )
    counts = {split_name: len(part) for split_name, part in splits.values()}
    return gather_pairs(f"hf:{location}", rows, options, {"pairs": counts})


def _saved(folder: Path) -> bool:
    return any((folder / name).is_file() for name in ("dataset_dict.json", "state.json"))


def _configs(folder: Path, place: str) -> list[str]:
    import datasets

    if _saved(folder):
        return []
    parts = [path for path in folder.glob("*") if path.is_dir()]
    plain = (folder / "corpus").is_dir() and not (folder / "README.md").is_file()
    if plain or any(map(_saved, parts)):
        return [path.name for path in parts]
    return list(datasets.get_dataset_config_names(place))


def _load(name: str, config: str | None) -> Mapping[str, Any]:
    """Return the splits of a configuration; a folder is read as it is now, not from a cache."""
    import datasets

    folder = Path(name).expanduser()
    place = folder / (config or "")
    if _saved(place):
        dataset = datasets.load_from_disk(place)
    else:
        options = {}
        if folder.is_dir():
            name = str(folder)
            options = {"download_mode": "force_redownload", "verification_mode": "no_checks"}
        dataset = datasets.load_dataset(name, config or None, **options)
    return dataset if isinstance(dataset, dict) else {"train": dataset}


def _rows(dataset: Any) -> Iterator[Row]:
    return numbered(dataset.with_format("arrow").iter(1000) if len(dataset) else ())


def _of_splits(
    location: str,
    dataset: Mapping[str, Any],
    split: str,
) -> dict[str, tuple[str, Any]]:
    """Return the splits by our names, each with the name that it has."""
    if split and split not in dataset:
        raise AnmiError(f'hf:{location} has no split "{split}"; {nearest(split, dataset)}')
    chosen = {
        ours: (name, dataset[name])
        for ours, names in SPLIT_NAMES.items()
        for name in reversed(names)
        if name in dataset
    }
    if split or (len(dataset) == 1 and not chosen):
        name = split or next(iter(dataset))
        return {"train": (name, dataset[name])}
    if not chosen:
        raise AnmiError(
            f"hf:{location} has the splits {', '.join(dataset)}; name the one to read:"
            " PATH_OR_NAME:CONFIG:SPLIT"
        )
    return chosen
