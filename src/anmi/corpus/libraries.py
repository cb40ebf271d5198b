"""Collections that libraries read: the catalogue of ir_datasets, and what `datasets` reads from disk or its hub."""

from __future__ import annotations

import difflib
import itertools
import json
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd

from anmi.corpus.jsonl import read_texts
from anmi.corpus.kg import SPLIT_NAMES, labels_of
from anmi.corpus.pairs import Pairs
from anmi.corpus.raw import Options, RawCollection, inside, no_labels, no_queries
from anmi.corpus.tables import numbered
from anmi.corpus.types import empty
from anmi.errors import AnmiError, installed, nearest


def read_ir_datasets(location: str, options: Options) -> RawCollection:
    """Read a dataset of the catalogue with the splits beside it.

    ``NAME/train`` also takes ``NAME/dev`` and ``NAME/test``, and so does ``NAME`` where there is a ``NAME/train``. A
    dataset without splits counts as training data.

    Parameters
    ----------
    location
        An id of ir_datasets, for example ``beir/scifact/train``.
    options
        Not used; every reader takes them.

    Raises
    ------
    AnmiError
        If ir_datasets is not installed, the id is unknown or of another split than train, or it cannot be downloaded.
    """
    ir_datasets = installed("ir_datasets", "ir_datasets:ID", "ir-datasets")
    cure = "its first use downloads it, so check the network, or put the files where ir_datasets expects them"
    with _in_one_sentence(f"ir_datasets:{location}", cure), data_archives_only():
        return _read(_splits(location, ir_datasets))


@contextmanager
def _in_one_sentence(name: str, cure: str) -> Iterator[None]:
    try:
        yield
    except AnmiError:
        raise
    except Exception as error:  # downloads, archives, parsers and licence prompts: each raises something else
        message = " ".join(str(error).split())[:300]
        raise AnmiError(f"{name} cannot be read ({type(error).__name__}: {message}); {cure}") from error


@contextmanager
def data_archives_only() -> Iterator[None]:
    """Let nothing that is unpacked meanwhile leave its folder, be a device or keep special permissions (PEP 706).

    ir_datasets unpacks what it downloads with ``tarfile`` and says nothing of filters; before Python 3.14 the default
    is to trust an archive in everything.
    """
    before: Any = vars(tarfile.TarFile).get("extraction_filter")
    tarfile.TarFile.extraction_filter = staticmethod(tarfile.data_filter)
    try:
        yield
    finally:
        tarfile.TarFile.extraction_filter = before


def _splits(location: str, library: Any) -> dict[str, tuple[str, Any]]:
    """Return name and dataset of every split there is, train first."""

    def first(*names: str) -> tuple[str, Any] | None:
        for name in names:
            try:
                found = library.load(name)
                if found.has_qrels() and found.has_queries():
                    return name, found
            except KeyError:
                continue
        return None

    base, _, last = location.rpartition("/")
    if base and last in (*SPLIT_NAMES["dev"], "test"):
        raise AnmiError(f"ir_datasets:{location} is no training split; name {base}/train or a dataset without splits")
    base = base if last == "train" else location
    train = first(f"{base}/train", location)
    if train is None:
        close = difflib.get_close_matches(location, list(library.registry), n=1, cutoff=0.5)
        hint = f'did you mean "{close[0]}"?' if close and close[0] != location else "see ir-datasets.com for the ids"
        raise AnmiError(f'"{location}" is not known to ir_datasets, or has no queries with labels; {hint}')
    if not train[0].endswith("/train"):
        return {"train": train}
    dev = first(*(f"{base}/{name}" for name in SPLIT_NAMES["dev"]))
    found = {"train": train, "dev": dev, "test": first(f"{base}/test")}
    return {split: one for split, one in found.items() if one}


def _read(splits: dict[str, tuple[str, Any]]) -> RawCollection:
    name, train = splits["train"]
    # Splits may hand out one common list of queries; which split a query is in is for the labels to say.
    asked = {
        (values["_id"], values["text"]): (line, values)
        for _, part in splits.values()
        for line, values in _texts(part.queries_iter())
    }
    labels = [
        (str(label.query_id), str(label.doc_id), str(label.relevance), split, of, line)
        for split, (of, part) in splits.items()
        for line, label in enumerate(part.qrels_iter(), 1)
    ]
    return RawCollection(
        read_texts(Path(name), "document_id", _texts(train.docs_iter())),
        read_texts(Path(name), "query_id", asked.values()).drop(columns="title"),
        pd.DataFrame(labels, columns=["query_id", "document_id", "relevance", "split", "file", "line"]),
        empty("head", "relation", "tail"),
        language=train.docs_lang(),
        notes={"ir_datasets": {split: of for split, (of, _) in splits.items()}},
    )


def _texts(items: Iterable[Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield documents or queries of a dataset, whatever their fields are called; the id is the first."""
    for line, item in enumerate(items, 1):
        title, text, metadata = (getattr(item, field, None) for field in ("title", "text", "metadata"))
        if not isinstance(text, str):
            title, text = "", item.default_text()
        yield line, {"_id": str(item[0]), "title": title, "text": text or "", "metadata": metadata or {}}


def read_hf(location: str, options: Options) -> RawCollection:
    """Read a dataset as the library `datasets` does: what it saved, a folder of files, or a name on its hub.

    Configurations called ``corpus``, ``queries`` and ``qrels`` (or ``default``) hold a collection as that of BEIR; the
    labels may also be another dataset, ``NAME-qrels``. Anything else holds pairs.

    Parameters
    ----------
    location
        ``PATH_OR_NAME[:CONFIG][:SPLIT]``. What a split is called that is named here, it is taken for training data.
    options
        Of interest are ``columns``, for pairs.

    Raises
    ------
    AnmiError
        The dataset cannot be read, or has no such configuration or split.
    """
    name, _, rest = location.partition(":")
    config, _, split = rest.partition(":")
    cure = ("give a folder that `datasets` saved or that holds its files, each split with rows, or a name on the hub, "
            "with the environment variable ANMI_ONLINE=1")  # fmt: skip
    with _in_one_sentence(f"hf:{location}", cure):
        folder = Path(name).expanduser()
        for path in folder.rglob("*") if folder.is_dir() else ():
            inside(path, folder)
        configs = _configs(folder, name)
        parts = {part: _called(part, config, configs) for part in ("corpus", "queries", "qrels")}
        if parts["corpus"]:
            return _read_parts(name, parts, _called("default", config, configs), split)
        pairs, counts = Pairs(options.columns), {}
        for ours, (found, part) in _of_splits(location, _load(name, config), split).items():
            counts[found] = len(part)
            for line, values in _rows(part):
                pairs.add(Path(name) / found, line, values, ours)
        return pairs.gathered(f"hf:{location}", {"pairs": counts})


def _saved(folder: Path) -> bool:
    return any((folder / name).is_file() for name in ("dataset_dict.json", "state.json"))


def _configs(folder: Path, name: str) -> list[str]:
    import datasets

    if _saved(folder):
        return []
    if (folder / "corpus").is_dir() and not (folder / "README.md").is_file():
        return [path.name for path in folder.iterdir() if path.is_dir()]
    return list(datasets.get_dataset_config_names(str(folder) if folder.is_dir() else name))


def _called(part: str, config: str, configs: list[str]) -> str | None:
    return next((name for name in (f"{config}-{part}", f"{part}-{config}", part) if name in configs), None)


def _load(name: str, config: str | None) -> Mapping[str, Any]:
    """Return the splits of a configuration; a folder as it is now, not what `datasets` read before under its name."""
    import datasets

    folder = Path(name).expanduser()
    place = folder / (config or "")
    options = {"download_mode": "force_redownload", "verification_mode": "no_checks"} if folder.is_dir() else {}
    if _saved(place):
        for path in place.rglob("state.json"):
            if not json.loads(path.read_text(encoding="utf-8")).get("_data_files"):
                raise AnmiError(f"{path.parent} has no rows, which `datasets` cannot read; save the dataset without it")
        found = datasets.load_from_disk(place)
    elif config and place.is_dir() and not (folder / "README.md").is_file():
        found = datasets.load_dataset(str(place), **options)
    else:
        found = datasets.load_dataset(str(folder) if folder.is_dir() else name, config or None, **options)
    return found if isinstance(found, dict) else {"train": found}


def _rows(dataset: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    return numbered(dataset.with_format("arrow").iter(1000) if len(dataset) else iter(()))


def _of_splits(location: str, found: Mapping[str, Any], split: str) -> dict[str, tuple[str, Any]]:
    """Return the splits by our names, each with the name that it has."""
    if split and split not in found:
        raise AnmiError(f'hf:{location} has no split "{split}"; {nearest(split, found)}')
    chosen = {
        ours: (name, found[name]) for ours, names in SPLIT_NAMES.items() for name in reversed(names) if name in found
    }
    if split or (len(found) == 1 and not chosen):
        name = split or next(iter(found))
        return {"train": (name, found[name])}
    if not chosen:
        raise AnmiError(
            f"hf:{location} has the splits {', '.join(found)}; name the one to read: PATH_OR_NAME:CONFIG:SPLIT"
        )
    return chosen


def _read_parts(name: str, parts: Mapping[str, str | None], default: str | None, split: str) -> RawCollection:
    """Read a collection in the layout of BEIR."""

    def texts(part: str, id_column: str) -> pd.DataFrame:
        rows = itertools.chain(*map(_rows, _load(name, part).values()))
        return read_texts(Path(name) / part, id_column, rows)

    labels = parts["qrels"] or default
    place = name if labels else f"{name}-qrels"
    found = _of_splits(place, _load(place, labels), split) if parts["queries"] else {}
    qrels = [labels_of(Path(place) / was, _rows(part), ours) for ours, (was, part) in found.items()]
    return RawCollection(
        texts(parts["corpus"] or "", "document_id"),
        texts(parts["queries"], "query_id").drop(columns="title") if parts["queries"] else no_queries(),
        pd.concat(qrels, ignore_index=True) if qrels else no_labels(),
        empty("head", "relation", "tail"),
        notes={"hf": {split: was for split, (was, _) in found.items()}},
    )
