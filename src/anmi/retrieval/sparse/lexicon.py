"""Which terms a sparse retriever has, and a vector of each: a static encoder's tokens, or sub-words of the corpus."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import scipy.sparse
import torch

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerBase

_SPECIAL: Final = ("[UNK]", "[PAD]", "[CLS]", "[SEP]", "[MASK]")
# Of the corpus's own sub-words. On the dev queries of sae4k_ko BM25 over 2,000 has nDCG@10 .811, over 4,000 .799, over
# 8,000 .785, over MiniLM's .605; more of them are closer to words, to which further terms can be near.
_SIZE: Final = 4000
# English has 1.1 times as many of MiniLM's tokens as of its own sub-words, Korean 3.6 times.
_MOST_TIMES: Final = 2.0
_SAMPLE: Final = 2000


def lexicon(encoder: SentenceTransformer, texts: Sequence[str]) -> tuple[PreTrainedTokenizerBase, torch.Tensor]:
    """Return a tokenizer of V terms and their vectors, float32 [V, D].

    They are the static encoder's own, unless its tokenizer cuts the texts into more than twice as many pieces as
    sub-words of the corpus (unigram language model, Kudo 2018, arXiv 1804.10959), as it does where it was made for
    another language.
    """
    own = _bare(encoder[0].tokenizer)
    sample = list(texts[:: max(1, len(texts) // _SAMPLE)])
    corpus = _trained(sample)
    if _length(own, sample) <= _MOST_TIMES * _length(corpus, sample):
        return _as_transformers(own), encoder[0].embedding.weight.detach().cpu().float()
    corpus = _trained(texts)
    return _as_transformers(corpus), _from_documents(corpus, texts, encoder.get_embedding_dimension() or 256)


def _trained(texts: Sequence[str]) -> Tokenizer:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

    made = Tokenizer(models.Unigram())
    made.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.UnigramTrainer(
        vocab_size=_SIZE, special_tokens=["[PAD]", "[UNK]"], unk_token="[UNK]", show_progress=False
    )
    made.train_from_iterator(texts, trainer)
    return made


def _from_documents(tokenizer: Tokenizer, texts: Sequence[str], dimension: int) -> torch.Tensor:
    """Return vectors of terms by the documents they share: latent semantic analysis (Deerwester et al. 1990)."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfTransformer

    rows = [np.asarray(found.ids) for found in tokenizer.encode_batch(list(texts), add_special_tokens=False)]
    starts = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    shape = len(rows), tokenizer.get_vocab_size()
    tokens = np.concatenate(rows).astype(np.int64)
    counts = scipy.sparse.csr_matrix((np.ones(len(tokens), np.float32), tokens, starts), shape=shape)
    counts.sum_duplicates()
    weighted = TfidfTransformer(sublinear_tf=True).fit_transform(counts)
    width = max(1, min(dimension, *(size - 1 for size in shape)))
    found = TruncatedSVD(width, random_state=0).fit(weighted).components_.T
    return torch.from_numpy(np.pad(found, ((0, 0), (0, dimension - width))).astype(np.float32))


def _length(tokenizer: Tokenizer, texts: Sequence[str]) -> int:
    return sum(len(found.ids) for found in tokenizer.encode_batch(list(texts), add_special_tokens=False))


def _bare(tokenizer: Any) -> Tokenizer:
    """Return a copy without truncation and padding of its own."""
    from tokenizers import Tokenizer

    own = Tokenizer.from_str(tokenizer.to_str())
    own.no_truncation()
    own.no_padding()
    return own


def _as_transformers(own: Tokenizer) -> PreTrainedTokenizerBase:
    from transformers import PreTrainedTokenizerFast

    named = {f"{name[1:-1].lower()}_token": name for name in _SPECIAL if own.token_to_id(name) is not None}
    made = PreTrainedTokenizerFast(tokenizer_object=own, **named)
    if made.pad_token is None:
        made.pad_token = made.convert_ids_to_tokens(0)
    return made
