"""Collections of the ir_datasets catalogue; the first use downloads them."""

from __future__ import annotations

import difflib
import tarfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pandas as pd

from anmi.corpus.jsonl import clean, to_json
from anmi.corpus.raw import Options, RawCollection
from anmi.corpus.types import empty
from anmi.errors import AnmiError

# Last parts of names of splits, in order of preference.
_SPLITS: Final = {"dev": ("dev", "validation", "valid", "val"), "test": ("test",)}


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
    try:
        import ir_datasets
    except ImportError as error:
        raise AnmiError('ir_datasets:ID needs the package ir_datasets: pip install "anmi[ir-datasets]"') from error
    names = _split_names(location, ir_datasets)
    try:
        with data_archives_only():
            parts = {split: ir_datasets.load(name) for split, name in names.items()}
            return _read(names, parts)
    except AnmiError:
        raise
    except Exception as error:  # downloads, archives, parsers and licence prompts: each raises something else
        message = " ".join(str(error).split())[:300]
        raise AnmiError(
            f"ir_datasets:{location} cannot be read ({type(error).__name__}: {message}); its first use downloads it, "
            "so check the network, or put the files where ir_datasets expects them"
        ) from error


@contextmanager
def data_archives_only() -> Iterator[None]:
    """Let nothing that is unpacked meanwhile leave its folder, be a device or keep special permissions (PEP 706).

    ir_datasets unpacks what it downloads with ``tarfile`` and says nothing of filters; before Python 3.14 the default
    is to trust an archive in everything.
    """
    if not hasattr(tarfile, "data_filter"):
        raise AnmiError("an archive cannot be unpacked safely by this Python: use 3.11.4 or newer")
    before: Any = vars(tarfile.TarFile).get("extraction_filter")
    tarfile.TarFile.extraction_filter = staticmethod(tarfile.data_filter)
    try:
        yield
    finally:
        tarfile.TarFile.extraction_filter = before


def _split_names(location: str, ir_datasets: Any) -> dict[str, str]:
    """Return the dataset of every split there is, train first."""

    def exists(name: str) -> bool:
        try:
            found = ir_datasets.load(name)
        except Exception:  # an unknown name is a KeyError, others depend on the dataset
            return False
        return bool(found.has_qrels() and found.has_queries())

    base, _, last = location.rpartition("/")
    if base and last in {"test", *_SPLITS["dev"]}:
        raise AnmiError(f"ir_datasets:{location} is no training split; name {base}/train or a dataset without splits")
    if last != "train":
        base = location
    train = f"{base}/train" if base and exists(f"{base}/train") else location
    if not exists(train):
        known = list(ir_datasets.registry)
        close = difflib.get_close_matches(location, known, n=1, cutoff=0.5)
        hint = f'; did you mean "{close[0]}"?' if close else "; see ir-datasets.com for the ids"
        what = "has no queries with labels" if location in known else "is not known to ir_datasets"
        raise AnmiError(f'"{location}" {what}{hint}')
    found = {"train": train}
    if train.endswith("/train"):
        for split, endings in _SPLITS.items():
            name = next((f"{base}/{ending}" for ending in endings if exists(f"{base}/{ending}")), None)
            if name:
                found[split] = name
    return found


def _read(names: dict[str, str], parts: dict[str, Any]) -> RawCollection:
    train = parts["train"]
    documents = _table("document_id", names["train"], train.docs_iter(), lambda item: item.doc_id)
    queries: dict[str, pd.DataFrame] = {}
    for split, part in parts.items():
        found = _table("query_id", names[split], part.queries_iter(), lambda item: item.query_id)
        queries[split] = found.drop(columns="title")
    # Splits may hand out one common list of queries; which split a query is in is for the labels to say.
    every = pd.concat(queries.values(), ignore_index=True).drop_duplicates(["query_id", "text"], ignore_index=True)
    twice = every[every.duplicated("query_id")]
    for again in twice["query_id"]:
        raise AnmiError(f'{names["train"]} has several texts for query "{again}"; ids must be unique')
    return RawCollection(
        documents,
        every,
        pd.concat([_qrels(split, names[split], part) for split, part in parts.items()], ignore_index=True),
        empty("head", "relation", "tail"),
        language=train.docs_lang(),
        notes={"ir_datasets": names},
    )


def _table(id_column: str, name: str, items: Iterable[Any], identify: Callable[[Any], Any]) -> pd.DataFrame:
    rows: dict[str, tuple[str, str, str]] = {}
    for item in items:
        identifier = clean(str(identify(item)))
        if identifier in rows:
            raise AnmiError(f'{name} repeats the id "{identifier}"; ids must be unique')
        rows[identifier] = _text(item)
    if not rows:
        raise AnmiError(f"{name} is empty; at least one row was expected")
    title, text, metadata = zip(*rows.values(), strict=True)
    frame = pd.DataFrame({id_column: list(rows), "title": title, "text": text, "metadata": metadata}, dtype="str")
    return frame.assign(file=name, line=range(1, len(rows) + 1))


def _text(item: Any) -> tuple[str, str, str]:
    """Return title, text and metadata of a document or query, whatever its fields are called."""
    metadata = getattr(item, "metadata", None)
    extra = to_json(metadata if isinstance(metadata, dict) else {})
    text = getattr(item, "text", None)
    if isinstance(text, str):
        title = getattr(item, "title", None)
        return clean(title) if isinstance(title, str) else "", clean(text), extra
    return "", clean(item.default_text()), extra


def _qrels(split: str, name: str, part: Any) -> pd.DataFrame:
    rows = [(str(label.query_id), str(label.doc_id), str(label.relevance)) for label in part.qrels_iter()]
    frame = pd.DataFrame(rows, columns=["query_id", "document_id", "relevance"], dtype="str")
    return frame.assign(split=split, file=name, line=range(1, len(rows) + 1))
