"""A search is exported as files for stores of dense and sparse vectors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from anmi.retrieval.bm25 import BM25Index
from anmi.search.folder import README, rendered
from anmi.search.hybrid import HybridSearch

if TYPE_CHECKING:
    import pyarrow as pa

_DOCUMENTS_A_BATCH: Final = 1000


def export_vectors(search: HybridSearch, folder: Path) -> int:
    """Write ids, texts and the vectors of all parts of a search as Parquet.

    ``README.md`` says how a question becomes vectors: a part's score, BM25's as well, is the inner
    product.

    Parameters
    ----------
    search
        The search to export.
    folder
        Made if it is not there.

    Returns
    -------
    int
        The number of documents.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True, exist_ok=True)
    matrices: dict[str, Any] = {}
    bm25_settings: dict[str, Any] = {}
    for name, part in search.parts.items():
        if not isinstance(part.index, BM25Index):
            matrices[name] = part.index.vectors()
            continue
        matrices[name], terms = part.index.vectors()
        bm25_settings = part.index.settings
        numbers = pa.array(range(len(terms)), pa.uint32())
        numbered = pa.table({"index": numbers, "term": terms})
        pq.write_table(numbered, folder / "terms.parquet")
    writer = None
    for rows, texts in _batches(search):
        columns = {"id": search.document_ids[rows.start : rows.stop]}
        for field in ("title", "text"):
            values = [text[field] for text in texts]
            columns[field] = pa.array(values, pa.string())
        for name, vectors in matrices.items():
            block = vectors[rows.start : rows.stop]
            columns |= _vector_columns(name, block)
        table = pa.table(columns)
        writer = writer or pq.ParquetWriter(folder / "documents.parquet", table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()
    count = len(search.document_ids)
    about = {name: part.about for name, part in search.parts.items()}
    text = rendered(
        "vectors.md",
        **search.settings,
        count=count,
        about=about,
        bm25=bm25_settings,
    )
    (folder / README).write_text(text, encoding="utf-8")
    return count


def _vector_columns(name: str, vectors: Any) -> dict[str, pa.Array]:
    """Return dense vectors as one column, sparse ones as their indices and values."""
    import pyarrow as pa

    if isinstance(vectors, np.ndarray):
        values = vectors.astype(np.float32).ravel()
        return {name: pa.FixedSizeListArray.from_arrays(values, vectors.shape[1])}
    offsets = vectors.indptr.astype(np.int32)
    halves = {
        "indices": vectors.indices.astype(np.uint32),
        "values": vectors.data.astype(np.float32),
    }
    return {
        f"{name}_{half}": pa.ListArray.from_arrays(offsets, values)
        for half, values in halves.items()
    }


def _batches(search: HybridSearch) -> Iterator[tuple[range, list[dict[str, str]]]]:
    """Yield rows of documents with their texts."""
    count = len(search.document_ids)
    for start in range(0, count, _DOCUMENTS_A_BATCH):
        rows = range(start, min(start + _DOCUMENTS_A_BATCH, count))
        texts = search.texts(list(rows))
        yield rows, [texts[row] for row in rows]
