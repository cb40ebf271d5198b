"""Tables alone say what a document's terms weigh and by which further terms it is found."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Final, Self

import torch
from sentence_transformers import SparseEncoder
from sentence_transformers.base.modules import Router
from sentence_transformers.base.modules.input_module import InputModule
from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from anmi.retrieval.index import term_table
from anmi.retrieval.model_folder import check_folder

# Logarithm of a factor that is taken for 0: an infinite one would make every difference of weights
# infinite.
NOTHING: Final = -30.0
_LEAST: Final = 1e-9


class LexicalExpansion(InputModule):  # type: ignore[misc]
    """Documents as sparse vectors over the tokenizer's V tokens, without a transformer.

    Document d with tf_t times token t among its |d| tokens, and the direction h of the mean of
    their vectors a_t, has

        d_t = g_t · (k1 + 1) tf_t / (tf_t + k1 (1 - b + b |d| / average)) + log(1 + relu(s · (h ·
        e_t - θ_t)))

    The first part is BM25's for the terms that the document holds (Robertson & Zaragoza 2009), each
    with a factor g_t that is learned. The second adds terms by a table of low rank, as an MLM head
    does from contextual vectors (SPLADE, arXiv 2107.05720). Without training it is BM25 over
    sub-words where θ is above every cosine, and with θ below all of them and queries of weight idf
    it would be BM25 and a static bi-encoder in one inverted index.

    Parameters
    ----------
    tokenizer
        Of V tokens.
    dimension
        D of the vectors.
    average
        Mean number of tokens of a document.
    k1, b
        As in BM25.
    """

    config_keys: ClassVar[list[str]] = ["dimension", "average", "k1", "b", "max_seq_length"]
    save_in_root = False

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        dimension: int,
        average: float,
        k1: float = 1.2,
        b: float = 0.75,
        max_seq_length: int = 512,
    ) -> None:
        super().__init__()
        self.tokenizer = tokenizer
        self.dimension = dimension
        self.average = average
        self.k1 = k1
        self.b = b
        self.max_seq_length = max_seq_length
        count = len(tokenizer)
        self.token = nn.Parameter(torch.zeros(count, dimension))
        self.expansion = nn.Parameter(torch.zeros(count, dimension))
        self.threshold = nn.Parameter(torch.ones(count))
        self.log_factor = nn.Parameter(torch.zeros(count))
        self.log_scale = nn.Parameter(torch.zeros(()))

    def get_embedding_dimension(self) -> int:
        """Return V."""
        return len(self.threshold)

    def preprocess(
        self,
        inputs: list[str],
        prompt: str | None = None,
        **_: Any,
    ) -> dict[str, Tensor]:
        """Return the tokens of all texts in a row and where each text begins."""
        if prompt:
            inputs = self._prepend_prompt(inputs, prompt)
        rows = self.tokenizer(list(inputs), add_special_tokens=False)["input_ids"]
        parts = [torch.tensor(row[: self.max_seq_length], dtype=torch.long) for row in rows]
        lengths = torch.tensor([0, *(len(part) for part in parts)])
        return {"input_ids": torch.cat(parts), "offsets": lengths.cumsum(0)[:-1]}

    def forward(self, features: dict[str, Any]) -> dict[str, Any]:
        """Add ``sentence_embedding``, float32 [B, V]; 0 for a text without tokens."""
        tokens = features["input_ids"]
        offsets = features["offsets"]
        ends = torch.cat([offsets[1:], offsets.new_tensor([len(tokens)])])
        lengths = ends - offsets
        direction = functional.normalize(
            functional.embedding_bag(tokens, self.token, offsets, mode="mean"), dim=1
        )
        similarity = direction @ self.expansion.T
        # Most terms are below their threshold, and so are looked at only once. A text without
        # tokens has no direction, and a threshold below 0 would give it terms.
        is_above = similarity.detach() > self.threshold.detach()
        is_near = is_above & (lengths > 0)[:, None]
        near = is_near.nonzero(as_tuple=True)
        excess = similarity[near] - self.threshold[near[1]]
        further = torch.log1p(self.log_scale.exp() * excess)
        text_numbers = torch.arange(len(offsets), device=tokens.device)
        places = torch.repeat_interleave(text_numbers, lengths)
        # As (document, token) pairs: most of [B, V] is 0.
        pairs, often = torch.unique(
            places * self.get_embedding_dimension() + tokens, return_counts=True
        )
        row = pairs // self.get_embedding_dimension()
        token = pairs % self.get_embedding_dimension()
        often = often.float()
        scale = self.k1 * (1 - self.b + self.b * lengths[row] / self.average)
        saturated = (self.k1 + 1) * often / (often + scale)
        factor = self.log_factor.exp()[token]
        of_terms = saturated * factor * (factor > _LEAST)
        rows = torch.cat([near[0], row])
        terms = torch.cat([near[1], token])
        weights = torch.cat([further, of_terms])
        embedding = torch.zeros_like(similarity)
        features["sentence_embedding"] = embedding.index_put(
            (rows, terms),
            weights,
            accumulate=True,
        )
        return features

    def save(
        self,
        output_path: str,
        *_: Any,
        safe_serialization: bool = True,
        **__: Any,
    ) -> None:
        """Write tokenizer, weights and settings."""
        self.save_tokenizer(output_path)
        self.save_torch_weights(output_path, safe_serialization=safe_serialization)
        self.save_config(output_path)

    @classmethod
    def load(
        cls,
        model_name_or_path: str,
        subfolder: str = "",
        **_: Any,
    ) -> Self:
        """Read what :meth:`save` wrote into a folder."""
        where = {"subfolder": subfolder, "local_files_only": True}
        tokenizer = AutoTokenizer.from_pretrained(model_name_or_path, **where)
        model = cls(tokenizer, **cls.load_config(model_name_or_path, **where))
        return cls.load_torch_weights(model_name_or_path, model=model, **where)


_QUERY: Final = "query_0_SparseStaticEmbedding"
_DOCUMENT: Final = "document_0_LexicalExpansion"


def load_sparse(folder: Path, device: str) -> SparseEncoder:
    """Open what ``save`` of a model from :func:`inference_free` wrote, or another SparseEncoder.

    sentence-transformers itself opens a folder with :class:`LexicalExpansion` only with
    ``trust_remote_code=True``, as it does with every class that is not its own.
    """
    check_folder(folder)
    # Refuses weights of another tokenizer's tokens in one sentence.
    term_table(folder)
    if not (folder / _DOCUMENT).is_dir():
        return SparseEncoder(
            str(folder), device=device, trust_remote_code=False, local_files_only=True
        )
    query = SparseStaticEmbedding.load(str(folder), subfolder=_QUERY, local_files_only=True)
    document = LexicalExpansion.load(str(folder), subfolder=_DOCUMENT)
    return routed(query, [document], device)


def routed(query: Any, document: list[Any], device: str) -> SparseEncoder:
    """Return a model that sends queries and documents through modules of their own."""
    router = Router.for_query_document(query_modules=[query], document_modules=document)
    return SparseEncoder(modules=[router], device=device, similarity_fn_name="dot")
