"""A sparse search as files for OpenSearch or Elasticsearch: mapping, documents, the weights of queries.

Documents are ``rank_features``, which both have. OpenSearch asks them by ``neural_sparse`` with ``query_tokens``, both
by a ``bool`` of linear ``rank_feature`` clauses; the two give the same score, the inner product. Lucene keeps 9 bits of
a weight, so that scores differ from ours by up to 0.4 %.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import scipy.sparse

from anmi.errors import AnmiError
from anmi.retrieval.sparse import SparseIndex, TermTable
from anmi.search.hybrid import HybridSearch

FIELD: Final = "terms"
MAPPING: Final = {
    "mappings": {"properties": {"title": {"type": "text"}, "text": {"type": "text"}, FIELD: {"type": "rank_features"}}}
}
# Elasticsearch refuses a dot in the name of a feature, and OpenSearch takes it for a path.
_DOT: Final = "[dot]"
_AT_ONCE: Final = 1000


def export_opensearch(search: HybridSearch, folder: Path) -> int:
    """Write the files into an empty folder, and return the number of documents.

    ``index.json`` is the body that makes the index, ``documents.ndjson`` that of ``_bulk``, ``idf.json`` the weight of
    each term in queries.

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
    retriever = search.retrievers.get("sparse")
    index, table = (retriever.index, retriever.encode) if retriever else (None, None)
    if not isinstance(index, SparseIndex) or not isinstance(table, TermTable):
        raise AnmiError(
            "the search has no sparse retriever whose queries need no network, and only the terms of one go into "
            "OpenSearch or Elasticsearch: run with recipe=sparse or recipe=anmi_and_sparse"
        )
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / "index.json", MAPPING)
    _write(folder / "idf.json", {feature(token): weight for token, weight in table.by_token().items()})
    with (folder / "documents.ndjson").open("w", encoding="utf-8") as file:
        for document_id, source in _documents(search, index, table):
            file.write(json.dumps({"index": {"_id": document_id}}, ensure_ascii=False) + "\n")
            file.write(json.dumps(source, ensure_ascii=False) + "\n")
    return len(index.document_ids)


def feature(token: str) -> str:
    """Return the name of a token as a feature.

    Examples
    --------
    >>> feature("e.g.")
    'e[dot]g[dot]'
    """
    return token.replace(".", _DOT)


def _documents(search: HybridSearch, index: SparseIndex, table: TermTable) -> Iterator[tuple[str, dict[str, Any]]]:
    # What no query weighs is never looked up.
    vectors = index.vectors() @ scipy.sparse.diags_array((table.weights > 0).astype(np.float32))
    vectors.eliminate_zeros()
    names = np.array([feature(table.tokenizer.id_to_token(token) or "") for token in range(vectors.shape[1])], object)
    for start in range(0, vectors.shape[0], _AT_ONCE):
        rows = list(range(start, min(start + _AT_ONCE, vectors.shape[0])))
        texts = search.texts(rows)
        for row in rows:
            part = slice(vectors.indptr[row], vectors.indptr[row + 1])
            terms = dict(zip(names[vectors.indices[part]].tolist(), _rounded(vectors.data[part]), strict=True))
            yield index.document_ids[row], {
                "title": texts[row]["title"], "text": texts[row]["text"], FIELD: terms,
            }  # fmt: skip


def _rounded(values: Any) -> list[float]:
    # More digits than Lucene keeps, and none of float32's noise.
    return [max(round(float(value), 5), 1e-5) for value in values]


def _write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
