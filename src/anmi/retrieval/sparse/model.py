"""An inference-free sparse retriever is made of a static encoder or a masked language model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

import numpy as np
import torch
from scipy import sparse
from sentence_transformers import SentenceTransformer, SparseEncoder
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding, SpladePooling
from sentence_transformers.util import batch_to_device
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from tqdm import tqdm
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from anmi.errors import AnmiError
from anmi.retrieval.kinds import is_static, quiet
from anmi.retrieval.model_folder import check_base, checked_model, loading
from anmi.retrieval.sparse.document import NOTHING, LexicalExpansion, routed
from anmi.retrieval.terms import counted_columns, idf_of
from anmi.retrieval.token_table import learn_pieces

_SPECIAL: Final = ("[UNK]", "[PAD]", "[CLS]", "[SEP]", "[MASK]")
# Of the corpus's own sub-words. On the dev queries of sae4k_ko BM25 over 2,000 has nDCG@10 .811,
# over 4,000 .799, over 8,000 .785, over MiniLM's .605; more of them are closer to words, to which
# further terms can be near.
_SIZE: Final = 4000
# English has 1.1 times as many of MiniLM's tokens as of its own sub-words, Korean 3.6 times.
_MOST_TIMES: Final = 2.0
_SAMPLE: Final = 2000


def lexicon(
    encoder: SentenceTransformer, texts: Sequence[str]
) -> tuple[PreTrainedTokenizerBase, torch.Tensor]:
    """Return a tokenizer of V terms and their vectors, float32 [V, D].

    They are the static encoder's own, unless its tokenizer cuts the texts into more than twice as
    many pieces as sub-words of the corpus (unigram language model, Kudo 2018, arXiv 1804.10959), as
    it does where it was made for another language.
    """
    tokenizer = Tokenizer.from_str(encoder[0].tokenizer.to_str())
    tokenizer.no_truncation()
    tokenizer.no_padding()
    sample = list(texts[:: max(1, len(texts) // _SAMPLE)])
    if _length(tokenizer, sample) <= _MOST_TIMES * _length(_trained(sample), sample):
        return _as_transformers(tokenizer), encoder[0].embedding.weight.detach().cpu().float()
    tokenizer = _trained(texts)
    vectors = _from_documents(tokenizer, texts, encoder.get_embedding_dimension() or 256)
    return _as_transformers(tokenizer), vectors


def _trained(texts: Sequence[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    learn_pieces(tokenizer, texts, _SIZE, ["[PAD]", "[UNK]"])
    return tokenizer


def _from_documents(
    tokenizer: Tokenizer,
    texts: Sequence[str],
    dimension: int,
) -> torch.Tensor:
    """Return vectors of terms by latent semantic analysis (Deerwester et al. 1990)."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfTransformer

    counts = _counts(_ids(tokenizer, texts), tokenizer.get_vocab_size())
    weighted = TfidfTransformer(sublinear_tf=True).fit_transform(counts)
    width = max(1, min(dimension, *(size - 1 for size in counts.shape)))
    encoding = TruncatedSVD(width, random_state=0).fit(weighted).components_.T
    padded = np.pad(encoding, ((0, 0), (0, dimension - width)))
    return torch.from_numpy(padded.astype(np.float32))


def _ids(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    encodings = tokenizer.encode_batch(list(texts), add_special_tokens=False)
    return [encoding.ids for encoding in encodings]


def _length(tokenizer: Tokenizer, texts: Sequence[str]) -> int:
    return sum(map(len, _ids(tokenizer, texts)))


def _as_transformers(tokenizer: Tokenizer) -> PreTrainedTokenizerBase:
    special = [name for name in _SPECIAL if tokenizer.token_to_id(name) is not None]
    named = {f"{name[1:-1].lower()}_token": name for name in special}
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **named)
    if wrapped.pad_token is None:
        wrapped.pad_token = wrapped.convert_ids_to_tokens(0)
    return wrapped


# Share of all terms that a document begins with beside its own, by cosine. Many, because a term
# below the threshold has no gradient: training only takes terms away. On SciFact's dev queries
# 1,700 of 29,500 (290 after training) have an nDCG@10 of .746, 54 (then 16) .704.
FURTHER: Final = 0.05
_SAMPLED: Final = 200
# So that a term at a cosine of .1 above the threshold weighs .4, where one that stands in the
# document once weighs 1.
SCALE: Final = 5.0
# idf of tokens that stand in no document (the released code of the paper).
UNSEEN: Final = 1.0


def inference_free(
    encoder: SentenceTransformer,
    texts: Sequence[str],
    *,
    max_length: int = 512,
) -> SparseEncoder:
    """Return an untrained sparse retriever: BM25 over sub-words, and each document's nearest terms.

    Queries are looked up: every token they hold weighs its idf on this corpus, special tokens
    nothing. Documents are :class:`LexicalExpansion`. Tokens that more than half of the documents
    hold, where the idf of Robertson and Spärck Jones falls below 0, are no terms of a document
    because it holds them: on SciFact they are three quarters of the work and of no use. As further
    terms they remain, so that training can tell documents by "how" and "who". The score is the
    inner product.

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
    if not is_static(encoder):
        raise AnmiError(
            "an inference-free sparse retriever begins with the table of a static encoder: give"
            " encoder=static"
        )
    tokenizer, table = lexicon(encoder, texts)
    rows = _rows(tokenizer, texts, max_length)
    query = query_table(tokenizer, rows)
    document = LexicalExpansion(
        tokenizer,
        table.shape[1],
        float(np.mean([*map(len, rows)])),
        max_seq_length=max_length,
    )
    with torch.no_grad():
        document.token.copy_(table)
        document.expansion.copy_(torch.nn.functional.normalize(table, dim=1))
        document.threshold.fill_(_threshold(table, rows))
        # Marks such as [PAD] are nobody's terms.
        document.threshold[tokenizer.all_special_ids] = 2.0
        document.log_scale.fill_(np.log(SCALE))
        common = 2 * _counts(rows, len(tokenizer)).getnnz(axis=0) > len(rows)
        document.log_factor[torch.from_numpy(common)] = NOTHING
    return routed(query, [document], str(encoder.device))


def of_masked_lm(
    name: str,
    texts: Sequence[str],
    device: str = "cpu",
    *,
    max_length: int = 256,
) -> SparseEncoder:
    """Return an untrained sparse retriever of a masked language model (arXiv 2411.04403).

    Parameters
    ----------
    name
        Folder or name of a transformers model with a head that predicts masked tokens.
    texts
        Documents of the corpus, for the weights of queries.
    device
        Where it runs.
    max_length
        Most tokens of a document.

    Raises
    ------
    AnmiError
        The model has no such head, or cannot be loaded.
    """
    with loading(f'masked language model "{name}"', "give the folder of one"):
        folder = checked_model(name)
        check_base(str(folder))
        network = Transformer(
            str(folder), transformer_task="fill-mask", model_kwargs={"local_files_only": True}
        )
    _fit_head(network, name)
    network.max_seq_length = min(max_length, network.max_seq_length or max_length)
    query = query_table(network.tokenizer, _rows(network.tokenizer, texts, max_length))
    pooling = SpladePooling(pooling_strategy="max", embedding_dimension=len(query.weight))
    return routed(query, [network, pooling], device)


def _fit_head(network: Any, name: str) -> None:
    """Give the head as many logits as the tokenizer has tokens: many are padded, for speed."""
    tokens = len(network.tokenizer)
    logits = network.model.config.vocab_size
    if tokens > logits:
        raise AnmiError(
            f'the tokenizer of "{name}" has {tokens:,} tokens and its head predicts {logits:,}, so'
            " they are not of one model; give training.options.masked_lm a folder whose tokenizer"
            " belongs to its weights"
        )
    if tokens < logits:
        network.model.resize_token_embeddings(tokens)
        # Or a bias that stood for two may be saved once, and not be found by the other when the
        # model is opened.
        network.model.tie_weights()


def query_table(tokenizer: PreTrainedTokenizerBase, rows: Sequence[Sequence[int]]) -> Any:
    """Return the queries' side of a corpus: the learnable idf of every token, 0 for special ones.

    Parameters
    ----------
    tokenizer
        Of V tokens.
    rows
        The tokens of every document.

    Raises
    ------
    AnmiError
        No document holds a token.
    """
    counts = _counts(rows, len(tokenizer))
    if not counts.nnz:
        raise AnmiError(
            "no document holds a token that the encoder knows, so there are no terms to search by"
        )
    is_seen = counts.getnnz(axis=0) > 0
    weights = np.where(is_seen, idf_of(counts), UNSEEN)
    idf = torch.from_numpy(weights.astype(np.float32))
    idf[tokenizer.all_special_ids] = 0
    return SparseStaticEmbedding(tokenizer, weight=idf, frozen=False)


def _counts(rows: Sequence[Sequence[int]], width: int) -> sparse.csr_matrix:
    """Return how often documents hold each token, float32 [N, V]."""
    tokens = np.concatenate([np.zeros(0, np.int32), *rows])
    lengths = [*map(len, rows)]
    return counted_columns(tokens.astype(np.int32), lengths, width)


def _rows(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], max_length: int
) -> list[list[int]]:
    with quiet():
        rows = tokenizer(list(texts), add_special_tokens=False)["input_ids"]
    return [row[:max_length] for row in rows]


def _threshold(table: torch.Tensor, rows: Sequence[Sequence[int]]) -> float:
    """Return the cosine that :data:`FURTHER` of all pairs of a document and a term exceed."""
    nonempty = [row for row in rows if len(row)]
    sample = nonempty[:: max(1, len(nonempty) // _SAMPLED)]
    means = torch.stack([table[list(row)].mean(dim=0) for row in sample])
    normalize = torch.nn.functional.normalize
    cosines = normalize(means, dim=1) @ normalize(table, dim=1).T
    return float(np.quantile(cosines.numpy(), 1 - FURTHER))


def sparse_vectors(
    model: SparseEncoder,
    texts: Sequence[str],
    role: Literal["query", "document"],
    batch_size: int = 64,
    description: str = "",
) -> sparse.csr_matrix:
    """Encode texts, float32 [T, V], columns ascending; a progress bar if described."""
    shape = (0, model.get_embedding_dimension() or 0)
    blocks = [sparse.csr_matrix(shape, dtype=np.float32)]
    starts = range(0, len(texts), batch_size)
    is_hidden = not description or None
    model.eval()
    with torch.inference_mode():
        for start in tqdm(
            starts,
            desc=description,
            unit="batch",
            disable=is_hidden,
            delay=2,
        ):
            batch = list(texts[start : start + batch_size])
            features = batch_to_device(model.preprocess(batch, task=role), model.device)
            weights = model({**features, "task": role})["sentence_embedding"]
            blocks.append(sparse.csr_matrix(weights.cpu().numpy()))
    return sparse.vstack(blocks, format="csr", dtype=np.float32)
