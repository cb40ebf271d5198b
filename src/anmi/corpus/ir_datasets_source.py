"""Collections of the ir_datasets catalogue; the first use downloads them."""

from __future__ import annotations

import difflib
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pandas as pd

from anmi.corpus.jsonl import clean, to_json
from anmi.corpus.raw import Options, RawCollection
from anmi.corpus.types import empty
from anmi.errors import AnmiError


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
    try:
        with data_archives_only():
            return _read(_splits(location, ir_datasets))
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
    if base and last in ("dev", "validation", "valid", "val", "test"):
        raise AnmiError(f"ir_datasets:{location} is no training split; name {base}/train or a dataset without splits")
    base = base if last == "train" else location
    train = first(f"{base}/train", location)
    if train is None:
        close = difflib.get_close_matches(location, list(library.registry), n=1, cutoff=0.5)
        hint = f'did you mean "{close[0]}"?' if close and close[0] != location else "see ir-datasets.com for the ids"
        raise AnmiError(f'"{location}" is not known to ir_datasets, or has no queries with labels; {hint}')
    if not train[0].endswith("/train"):
        return {"train": train}
    dev = first(*(f"{base}/{name}" for name in ("dev", "validation", "valid", "val")))
    found = {"train": train, "dev": dev, "test": first(f"{base}/test")}
    return {split: one for split, one in found.items() if one}


def _read(splits: dict[str, tuple[str, Any]]) -> RawCollection:
    name, train = splits["train"]
    # Splits may hand out one common list of queries; which split a query is in is for the labels to say.
    queries = pd.concat([_texts("query_id", of, part.queries_iter()) for of, part in splits.values()])
    labels = [
        (str(label.query_id), str(label.doc_id), str(label.relevance), split, of, line)
        for split, (of, part) in splits.items()
        for line, label in enumerate(part.qrels_iter(), 1)
    ]
    return RawCollection(
        _unique(_texts("document_id", name, train.docs_iter())),
        _unique(queries.drop_duplicates(["query_id", "text"]).drop(columns="title")),
        pd.DataFrame(labels, columns=["query_id", "document_id", "relevance", "split", "file", "line"]),
        empty("head", "relation", "tail"),
        language=train.docs_lang(),
        notes={"ir_datasets": {split: of for split, (of, _) in splits.items()}},
    )


def _texts(id_column: str, name: str, items: Iterable[Any]) -> pd.DataFrame:
    """Return the documents or queries of a dataset, whatever their fields are called; the id is the first."""
    rows = []
    for line, item in enumerate(items, 1):
        title, text, metadata = (getattr(item, field, None) for field in ("title", "text", "metadata"))
        if not isinstance(text, str):
            title, text = "", item.default_text()
        title, text = (clean(part) if isinstance(part, str) else "" for part in (title, text))
        extra = to_json(metadata if isinstance(metadata, dict) else {})
        rows.append((clean(str(item[0])), title, text, extra, name, line))
    return pd.DataFrame(rows, columns=[id_column, "title", "text", "metadata", "file", "line"])


def _unique(table: pd.DataFrame) -> pd.DataFrame:
    ids = table.iloc[:, 0]
    for again in ids[ids.duplicated()]:
        raise AnmiError(f'{table["file"].iloc[0]} has several texts for the id "{again}"; ids must be unique')
    if table.empty:
        raise AnmiError("ir_datasets found no document or no query; at least one was expected")
    return table.reset_index(drop=True)
