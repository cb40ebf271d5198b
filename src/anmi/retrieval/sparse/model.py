"""Makes an inference-free sparse retriever of a static encoder, and vectors by it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from anmi.errors import AnmiError
from anmi.retrieval.encoders import device, is_static
from anmi.retrieval.model_folder import check_folder
from anmi.retrieval.sparse.document import LexicalExpansion

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer, SparseEncoder
    from transformers import PreTrainedTokenizerBase

# Cosine between a document and a token from which on the token is added. Low, because a term below it has no gradient:
# training can only take terms away. On SciFact's dev queries 0.2 (1,700 further terms at first, 290 after training) has
# nDCG@10 .746, 0.4 (54, then 16) .704.
THRESHOLD: Final = 0.2
# So that a term at a cosine of .1 above the threshold weighs .4, where one that stands in the document once weighs 1.
SCALE: Final = 5.0
# idf of tokens that stand in no document (the released code of the paper).
UNSEEN: Final = 1.0
_QUERY: Final = "query_0_SparseStaticEmbedding"
_DOCUMENT: Final = "document_0_LexicalExpansion"
_SPECIAL: Final = ("[UNK]", "[PAD]", "[CLS]", "[SEP]", "[MASK]")


def inverse_document_frequency(frequency: NDArray[np.int64], documents: int) -> NDArray[np.float32]:
    """Return ln(1 + (N - df + 1/2) / (df + 1/2)) of every token, and 1 for one that stands in no document.

    Parameters
    ----------
    frequency
        df: how many documents hold the token, [V].
    documents
        N.

    Examples
    --------
    >>> [round(float(idf), 3) for idf in inverse_document_frequency(np.array([3, 1, 0]), 3)]
    [0.134, 0.981, 1.0]
    """
    found = np.log1p((documents - frequency + 0.5) / (frequency + 0.5))
    return np.where(frequency == 0, UNSEEN, found).astype(np.float32)


def inference_free(encoder: SentenceTransformer, texts: Sequence[str], *, max_length: int = 512) -> SparseEncoder:
    """Return an untrained sparse retriever of a corpus: BM25 over sub-words, and the terms nearest to each document.

    Queries are looked up: every token they hold weighs its idf on this corpus, special tokens nothing. Documents are
    :class:`LexicalExpansion`. The score is the inner product.

    Parameters
    ----------
    encoder
        A static encoder; its vectors of tokens are where both tables begin.
    texts
        Documents of the corpus.
    max_length
        Most tokens of a document.

    Raises
    ------
    AnmiError
        The encoder runs a network, or no document holds a token.
    """
    from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding

    if not is_static(encoder):
        raise AnmiError(
            "an inference-free sparse retriever begins with the table of a static encoder: give encoder=static"
        )
    tokenizer = _tokenizer(encoder[0].tokenizer)
    rows = [row[:max_length] for row in tokenizer(list(texts), add_special_tokens=False)["input_ids"]]
    lengths = np.array([len(row) for row in rows])
    if not lengths.sum():
        raise AnmiError("no document holds a token that the encoder knows, so there are no terms to search by")
    frequency = np.zeros(len(tokenizer), np.int64)
    for row in rows:
        frequency[np.unique(row).astype(np.int64)] += 1
    idf = torch.from_numpy(inverse_document_frequency(frequency, len(rows)))
    idf[tokenizer.all_special_ids] = 0
    table = encoder[0].embedding.weight.detach().cpu().float()
    document = LexicalExpansion(tokenizer, table.shape[1], float(lengths.mean()), max_seq_length=max_length)
    with torch.no_grad():
        document.token.copy_(table)
        document.expansion.copy_(torch.nn.functional.normalize(table, dim=1))
        document.threshold.fill_(THRESHOLD)
        # Marks such as [PAD] are nobody's terms.
        document.threshold[tokenizer.all_special_ids] = 2.0
        document.log_scale.fill_(np.log(SCALE))
    return _routed(SparseStaticEmbedding(tokenizer, weight=idf, frozen=False), document, str(encoder.device))


def load_sparse(folder: Path) -> SparseEncoder:
    """Open what ``save`` of a model from :func:`inference_free` wrote, or another SparseEncoder.

    sentence-transformers itself opens a folder with :class:`LexicalExpansion` only with ``trust_remote_code=True``, as
    it does with every class that is not its own.
    """
    from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding

    check_folder(folder)
    if not (folder / _DOCUMENT).is_dir():
        from sentence_transformers import SparseEncoder

        return SparseEncoder(str(folder), device=device(), trust_remote_code=False, local_files_only=True)
    query = SparseStaticEmbedding.load(str(folder), subfolder=_QUERY, local_files_only=True)
    document = LexicalExpansion.load(str(folder), subfolder=_DOCUMENT, local_files_only=True)
    return _routed(query, document, device())


def _routed(query: Any, document: LexicalExpansion, where: str) -> SparseEncoder:
    from sentence_transformers import SparseEncoder
    from sentence_transformers.base.modules import Router

    router = Router.for_query_document(query_modules=[query], document_modules=[document])
    return SparseEncoder(modules=[router], device=where, similarity_fn_name="dot")


def sparse_vectors(
    model: SparseEncoder,
    texts: Sequence[str],
    role: Literal["query", "document"],
    batch_size: int = 64,
    description: str = "",
) -> scipy.sparse.csr_matrix:
    """Encode texts: float32 [T, V], rows in the order of the texts, columns ascending; a progress bar if described."""
    parts = []
    model.eval()
    with torch.inference_mode():
        starts = range(0, len(texts), batch_size)
        for start in tqdm(starts, desc=description, unit="batch", disable=not description, delay=2):
            features: dict[str, Any] = model.preprocess(list(texts[start : start + batch_size]), task=role)
            features = {name: v.to(model.device) if torch.is_tensor(v) else v for name, v in features.items()}
            parts.append(scipy.sparse.csr_matrix(model({**features, "task": role})["sentence_embedding"].cpu().numpy()))
    if not parts:
        return scipy.sparse.csr_matrix((0, model.get_embedding_dimension() or 0), dtype=np.float32)
    return scipy.sparse.vstack(parts, format="csr", dtype=np.float32)


def _tokenizer(tokenizer: Any) -> PreTrainedTokenizerBase:
    """Return a tokenizer of the library tokenizers as one of transformers, uncut and without padding of its own."""
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    own = Tokenizer.from_str(tokenizer.to_str())
    own.no_truncation()
    own.no_padding()
    named = {f"{name[1:-1].lower()}_token": name for name in _SPECIAL if own.token_to_id(name) is not None}
    made = PreTrainedTokenizerFast(tokenizer_object=own, **named)
    if made.pad_token is None:
        made.pad_token = made.convert_ids_to_tokens(0)
    return made
