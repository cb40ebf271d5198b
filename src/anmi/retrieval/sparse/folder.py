"""Opens the folder of a sparse retriever."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from anmi.retrieval.model_folder import check_folder
from anmi.retrieval.sparse.document import LexicalExpansion
from anmi.retrieval.sparse.index import term_table

if TYPE_CHECKING:
    from sentence_transformers import SparseEncoder

_QUERY: Final = "query_0_SparseStaticEmbedding"
_DOCUMENT: Final = "document_0_LexicalExpansion"


def load_sparse(folder: Path, device: str) -> SparseEncoder:
    """Open what ``save`` of a model from :func:`inference_free` wrote, or another SparseEncoder.

    sentence-transformers itself opens a folder with :class:`LexicalExpansion` only with ``trust_remote_code=True``, as
    it does with every class that is not its own.
    """
    from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding

    check_folder(folder)
    # Refuses weights of another tokenizer's tokens in one sentence.
    term_table(folder)
    if not (folder / _DOCUMENT).is_dir():
        from sentence_transformers import SparseEncoder

        return SparseEncoder(str(folder), device=device, trust_remote_code=False, local_files_only=True)
    query = SparseStaticEmbedding.load(str(folder), subfolder=_QUERY, local_files_only=True)
    document = LexicalExpansion.load(str(folder), subfolder=_DOCUMENT, local_files_only=True)
    return routed(query, [document], device)


def routed(query: Any, document: list[Any], device: str) -> SparseEncoder:
    """Return a model that sends queries and documents through modules of their own."""
    from sentence_transformers import SparseEncoder
    from sentence_transformers.base.modules import Router

    router = Router.for_query_document(query_modules=[query], document_modules=document)
    return SparseEncoder(modules=[router], device=device, similarity_fn_name="dot")
