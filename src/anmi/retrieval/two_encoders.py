"""Two encoders with weights of their own, for queries and for documents, out of one (DPR)."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from anmi.retrieval.kinds import is_routed

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


def two_encoders(model: SentenceTransformer) -> SentenceTransformer:
    """Return a model that encodes queries and documents with weights of their own, copies of one.

    It is an ordinary sentence-transformers model with a ``Router`` as its first module: ``encode_query`` and
    ``encode_document``, or ``encode`` with a ``task``, choose the copy, and it is saved and loaded as any other.
    ``model`` stays as it is; one that has two encoders already is returned itself.

    References
    ----------
    Karpukhin et al., "Dense Passage Retrieval for Open-Domain Question Answering", arXiv 2004.04906.
    """
    if is_routed(model):
        return model
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Router

    router = Router.for_query_document(
        query_modules=[copy.deepcopy(module) for module in model.children()],
        document_modules=[copy.deepcopy(module) for module in model.children()],
    )
    return SentenceTransformer(
        modules=[router],
        device=str(model.device),
        prompts=dict(model.prompts),
        default_prompt_name=model.default_prompt_name,
        similarity_fn_name=model.similarity_fn_name,
        truncate_dim=model.truncate_dim,
    )
