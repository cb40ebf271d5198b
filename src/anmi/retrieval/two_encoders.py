"""Two encoders with weights of their own, for queries and for documents, out of one (DPR)."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from anmi.errors import AnmiError
from anmi.retrieval.kinds import is_routed
from anmi.retrieval.prompts import prompts_of

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


def two_encoders(model: SentenceTransformer, documents: SentenceTransformer | None = None) -> SentenceTransformer:
    """Return a model that encodes queries and documents with weights of their own: copies of one, or of two models.

    It is an ordinary sentence-transformers model with a ``Router`` as its first module: ``encode_query`` and
    ``encode_document``, or ``encode`` with a ``task``, choose the copy, and it is saved and loaded as any other.
    Before it is trained it encodes queries as ``model`` does, and documents as ``documents`` does.

    Parameters
    ----------
    model
        Stays as it is. A model that has two encoders already is returned itself.
    documents
        As well; its prompt is put before documents. None for a copy of ``model``.

    Raises
    ------
    AnmiError
        ``documents`` are given to a model that has an encoder for them, or their embeddings have another dimension.

    References
    ----------
    Karpukhin et al., "Dense Passage Retrieval for Open-Domain Question Answering", arXiv 2004.04906.
    """
    if documents is not None:
        _check(model, documents)
    if is_routed(model):
        return model
    prompts = (
        dict(model.prompts)
        if documents is None
        else prompts_of(model) | {"document": prompts_of(documents)["document"]}
    )
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Router

    router = Router.for_query_document(
        query_modules=[copy.deepcopy(module) for module in model.children()],
        document_modules=[copy.deepcopy(module) for module in (model if documents is None else documents).children()],
    )
    return SentenceTransformer(
        modules=[router],
        device=str(model.device),
        prompts=prompts,
        default_prompt_name=model.default_prompt_name,
        similarity_fn_name=model.similarity_fn_name,
        truncate_dim=model.truncate_dim,
    )


def _check(model: SentenceTransformer, documents: SentenceTransformer) -> None:
    """Refuse two models whose embeddings cannot be compared."""
    if is_routed(model) or is_routed(documents):
        raise AnmiError(
            "a model with two encoders cannot be made one of two; give both start models without, or leave out "
            "training.options.context_encoder"
        )
    sizes = [each.get_embedding_dimension() for each in (model, documents)]
    if sizes[0] != sizes[1]:
        raise AnmiError(
            f"encoder gives embeddings of {sizes[0]} dimensions and training.options.context_encoder of {sizes[1]}, "
            "which cannot be compared; give two models of one dimension"
        )
