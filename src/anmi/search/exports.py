"""A search is exported as files for OpenSearch, Elasticsearch, and stores of dense and sparse vectors.

The first two take a sparse search: mapping, documents, the weights of queries. Documents are
``rank_features``, which both have. OpenSearch asks them by ``neural_sparse`` with ``query_tokens``,
both by a ``bool`` of linear ``rank_feature`` clauses; the two give the same score, the inner
product. Lucene keeps 9 bits of a weight, so that scores differ from ours by up to 0.4 %.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import scipy.sparse

from anmi.errors import AnmiError
from anmi.retrieval.bm25 import BM25Index
from anmi.retrieval.index import SparseIndex, TermTable
from anmi.search.folder import README, rendered
from anmi.search.hybrid import HybridSearch

FIELD: Final = "terms"
MAPPING: Final = {
    "mappings": {
        "properties": {
            "title": {"type": "text"},
            "text": {"type": "text"},
            FIELD: {"type": "rank_features"},
        }
    }
}
# Elasticsearch refuses a dot in the name of a feature, and OpenSearch takes it for a path.
_DOT: Final = "[dot]"
_AT_ONCE: Final = 1000


def export_opensearch(search: HybridSearch, folder: Path) -> int:
    """Write the files into an empty folder, and return the number of documents.

    ``index.json`` is the body that makes the index, ``documents.ndjson`` that of ``_bulk``,
    ``idf.json`` the weight of each term in queries.

    Parameters
    ----------
    search
        With a sparse encoder that needs no network for queries.
    folder
        Made if it is not there.

    Raises
    ------
    AnmiError
        The encoder is another.
    """
    retriever = search.parts.get("sparse")
    index, table = (retriever.index, retriever.encode) if retriever else (None, None)
    if not isinstance(index, SparseIndex) or not isinstance(table, TermTable):
        raise AnmiError(
            "the search has no sparse retriever whose queries need no network, and only the terms"
            " of one go into OpenSearch or Elasticsearch: run with recipe=sparse or"
            " recipe=anmi_and_sparse"
        )
    folder.mkdir(parents=True, exist_ok=True)
    idf = {feature(token): weight for token, weight in table.by_token().items()}
    for name, content in (("index", MAPPING), ("idf", idf)):
        (folder / f"{name}.json").write_text(
            json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )
    # What no query weighs is never looked up.
    vectors = index.vectors() @ scipy.sparse.diags_array((table.weights > 0).astype(np.float32))
    vectors.eliminate_zeros()
    names = np.array(
        [feature(table.tokenizer.id_to_token(token) or "") for token in range(vectors.shape[1])],
        object,
    )
    with (folder / "documents.ndjson").open("w", encoding="utf-8") as file:
        for rows, texts in _batches(search):
            for row, text in zip(rows, texts, strict=True):
                part = slice(vectors.indptr[row], vectors.indptr[row + 1])
                # More digits than Lucene keeps, and none of float32's noise.
                weights = [
                    max(round(weight, 5), 1e-5)
                    for weight in vectors.data[part].astype(float).tolist()
                ]
                terms = dict(zip(names[vectors.indices[part]].tolist(), weights, strict=True))
                source = {"title": text["title"], "text": text["text"], FIELD: terms}
                for line in ({"index": {"_id": index.document_ids[row]}}, source):
                    file.write(json.dumps(line, ensure_ascii=False) + "\n")
    return len(index.document_ids)


def feature(token: str) -> str:
    """Return the name of a token as a feature.

    Examples
    --------
    >>> feature("e.g.")
    'e[dot]g[dot]'
    """
    return token.replace(".", _DOT)


def _batches(search: HybridSearch) -> Iterator[tuple[range, list[dict[str, str]]]]:
    count = len(search.document_ids)
    for start in range(0, count, _AT_ONCE):
        rows = range(start, min(start + _AT_ONCE, count))
        texts = search.texts(list(rows))
        yield rows, [texts[row] for row in rows]


def export_vectors(search: HybridSearch, folder: Path) -> int:
    """Write ids, texts, and vectors of all parts of a search as Parquet; return the number of documents.

    ``README.md`` tells how a question is asked: a part's score is the inner product of vectors, of
    BM25 as well.

    The folder is made if it is not there.
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
        numbered = pa.table({"index": pa.array(range(len(terms)), pa.uint32()), "term": terms})
        pq.write_table(numbered, folder / "terms.parquet")
    ids = search.document_ids
    writer = None
    for rows, texts in _batches(search):
        columns = {"id": ids[rows.start : rows.stop]} | {
            name: pa.array([text[name] for text in texts], pa.string())
            for name in ("title", "text")
        }
        for name, vectors in matrices.items():
            some = vectors[rows.start : rows.stop]
            if isinstance(some, np.ndarray):
                columns[name] = pa.FixedSizeListArray.from_arrays(
                    some.astype(np.float32).ravel(), some.shape[1]
                )
                continue
            for half, values in (
                ("indices", some.indices.astype(np.uint32)),
                ("values", some.data.astype(np.float32)),
            ):
                columns[f"{name}_{half}"] = pa.ListArray.from_arrays(
                    some.indptr.astype(np.int32), values
                )
        table = pa.table(columns)
        writer = writer or pq.ParquetWriter(folder / "documents.parquet", table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()
    about = {name: part.about for name, part in search.parts.items()}
    text = rendered("vectors", **search.settings, count=len(ids), about=about, bm25=bm25_settings)
    (folder / README).write_text(text, encoding="utf-8")
    return len(ids)
