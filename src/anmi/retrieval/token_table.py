"""Static encoders run without PyTorch, whose start takes longer than encoding a small collection.

A static encoder is a table of token vectors, and most of its time goes to cutting texts into
tokens. Where the tokenizer looks at one word at a time, each word of many texts is cut once,
however often they hold it: 20,000 texts take 2.5 s on one thread, by model2vec's model 13.8 s.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np
from scipy import sparse

from anmi.corpus.texts import runs_of
from anmi.errors import AnmiError
from anmi.files import read_json
from anmi.fingerprint import hash_value
from anmi.ragged import Float32s, Int32s
from anmi.retrieval.terms import counted_texts

_TABLE: Final = "StaticEmbedding"
_NORMALIZE: Final = "Normalize"
WEIGHTS: Final = "embedding.weight"
_COSINE: Final = "cosine"
PLAIN_NORMALIZE: Final = {
    "module_input_name": "sentence_embedding",
    "module_output_name": "sentence_embedding",
}
# Below which a vector has no direction, as torch has it.
_LEAST: Final = 1e-12
# Words whose tokens are remembered; more than most collections have.
_MOST_WORDS: Final = 1 << 20
# What :func:`lowering` makes of printable ASCII, in a tenth of the time.
_ASCII_WORD: Final = re.compile(r"[a-z0-9]+|[!-/:-@\[-`{-~]")


class TokenTable:
    """A static encoder of sentence-transformers: the mean of the vectors of a text's tokens.

    It has length 1, unless the model compares by inner products and does not normalise.

    Parameters
    ----------
    tokenizer
        Of the library tokenizers.
    table
        float32 [V, D].
    normalised
        Whether the model has a module that normalises, too.
    settings
        ``prompts``, ``default_prompt_name`` and ``similarity_fn_name``, as sentence-transformers
        saves them.
    """

    def __init__(
        self,
        tokenizer: Any,
        table: Float32s,
        normalised: bool,
        settings: Mapping[str, Any],
    ) -> None:
        # Named as in sentence-transformers, for :mod:`anmi.retrieval.kinds`.
        self.prompts: dict[str, str] = dict(settings.get("prompts") or {})
        self.default_prompt_name: str | None = settings.get("default_prompt_name")
        self.similarity_fn_name: str = settings.get("similarity_fn_name") or _COSINE
        self.normalised = normalised
        self.cutter = Cutter(tokenizer)
        self._tokenizer = tokenizer
        self._table = table

    def get_embedding_dimension(self) -> int:
        """Return D."""
        return int(self._table.shape[1])

    @cached_property
    def described(self) -> str:
        """A hash of all that changes a vector, besides the prompt."""
        tokenizer = json.loads(self._tokenizer.to_str()) | {"padding": None}
        weights = hashlib.blake2b(np.ascontiguousarray(self._table).data, digest_size=16)
        shape = list(self._table.shape)
        return hash_value([weights.hexdigest(), shape, self.normalised, tokenizer])

    def encode(self, texts: Sequence[str], prompt: str = "") -> Float32s:
        """Return vectors, float32 [T, D]; 0 for a text without a known token."""
        return self.vectors(self.counts(texts, prompt))

    def vectors(self, counts: sparse.csr_matrix) -> Float32s:
        """Return the vectors of texts by their :meth:`counts`, float32 [T, D]."""
        lengths = np.asarray(counts.sum(axis=1), np.float32)
        vectors: Float32s = (counts @ self._table) / np.maximum(lengths, 1)
        # Once by the module, if any, and once because unit vectors are asked for.
        times = 1 + self.normalised if self.normalised or self.similarity_fn_name == _COSINE else 0
        for _ in range(times):
            vectors /= np.maximum(
                np.linalg.norm(vectors, axis=1, keepdims=True), np.float32(_LEAST)
            )
        return vectors

    def counts(self, texts: Sequence[str], prompt: str = "") -> sparse.csr_matrix:
        """Return how often each text holds each token, float32 [T, V]."""
        texts = [prompt + text for text in texts] if prompt else texts
        cutter = self.cutter
        alone = cutter.cuts_words_alone
        counts = self._counts(texts, cutter.words if alone else cutter.whole, alone=alone)
        lengths = np.asarray(counts.sum(axis=1)).ravel()
        long = np.flatnonzero(lengths > (cutter.longest or np.inf))
        if len(long) == 0:
            return counts
        beginnings = self._counts([texts[place] for place in long.tolist()], cutter, alone=False)
        row_numbers = np.arange(len(texts))
        row_numbers[long] = len(texts) + np.arange(len(long))
        return sparse.vstack([counts, beginnings], "csr")[row_numbers]

    def _counts(
        self, texts: Sequence[str], cut: Callable[..., Any], *, alone: bool
    ) -> sparse.csr_matrix:
        counts, columns = counted_texts(texts, cut, alone=alone)
        numbers = np.array([*columns] or [0])
        if (largest := int(numbers.max())) >= len(self._table):
            raise AnmiError(
                f"the static encoder has {len(self._table):,} vectors and none of the token"
                f' "{self._tokenizer.id_to_token(largest)}", which its tokenizer gives the number'
                f" {largest:,}: save tokenizer.json and model.safetensors of one model"
            )
        arrays = (counts.data, numbers[counts.indices], counts.indptr)
        tokens = sparse.csr_matrix(arrays, (len(texts), len(self._table)))
        # Added up in the order of their numbers, whatever other texts there are.
        tokens.sort_indices()
        return tokens


class Cutter:
    """Cuts texts into tokens; where words are cut alone, each word once in this process.

    Parameters
    ----------
    tokenizer
        Of the library tokenizers.

    Attributes
    ----------
    longest
        Most tokens of a text; None for any number.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.longest: int | None = (tokenizer.truncation or {}).get("max_length")

    def __call__(self, texts: Sequence[str]) -> list[Int32s]:
        """Return the numbers of the tokens of each text."""
        if not self.cuts_words_alone:
            return [np.array(row, np.int32) for row in self.whole(texts)]
        words, places, starts = runs_of(texts)
        rows = self.words(words)
        word_lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        tokens = np.fromiter(chain.from_iterable(rows), np.int32, int(word_lengths.sum()))
        lengths = word_lengths[places]
        ends = np.append(0, np.cumsum(lengths))
        # From where each word of the texts is copied, less where it is copied to.
        shifts = (np.cumsum(word_lengths) - word_lengths)[places] - ends[:-1]
        tokens = tokens[np.arange(ends[-1]) + np.repeat(shifts, lengths)]
        return [row[: self.longest] for row in np.split(tokens, ends[starts[1:-1]])]

    def whole(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the numbers of the tokens of each text, cut as a whole."""
        encodings = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def words(self, words: Sequence[str]) -> list[list[int]]:
        """Do what :meth:`whole` does to words that may come again."""
        tokens_of_word = self._known_words
        new = [word for word in words if word not in tokens_of_word]
        new_tokens = dict(zip(new, self.whole(new), strict=True))
        if len(tokens_of_word) < _MOST_WORDS:
            tokens_of_word.update(new_tokens)
        return [new_tokens[word] if word in new_tokens else tokens_of_word[word] for word in words]

    @cached_property
    def _known_words(self) -> dict[str, list[int]]:
        return _known_words(self._tokenizer.to_str())

    @cached_property
    def cuts_words_alone(self) -> bool:
        """Whether what lies between blanks gets the same tokens whatever stands around it."""
        steps = json.loads(self._tokenizer.to_str())
        normalizer = steps["normalizer"] or {"type": None}
        kinds = [step["type"] for step in normalizer.get("normalizers", [normalizer])]
        cutter = repr(self._tokenizer.pre_tokenizer)
        return (
            kinds in (["BertNormalizer"], ["NFC", "BertNormalizer"])
            and cutter in ("BertPreTokenizer()", repr(words_and_signs()))
            and steps["model"]["type"] in ("WordPiece", "Unigram")
            and not any(set(token["content"]) & {" ", "\n"} for token in steps["added_tokens"])
            and (steps["truncation"] or {"direction": "Right"})["direction"] == "Right"
        )


@lru_cache(maxsize=1)
def _known_words(tokenizer: str) -> dict[str, list[int]]:
    """Return what words were cut into, the same for all states of an encoder in training."""
    return {}


def words_and_signs() -> Any:
    """Return a pre-tokenizer that cuts as BERT's does and at each sign, ignoring its colour."""
    from tokenizers import Regex, pre_tokenizers

    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex("[\ufe0e\ufe0f\U0001f3fb-\U0001f3ff]"), "removed"),
            pre_tokenizers.Split(Regex("[\U0001f1e6-\U0001f1ff]{2}|\\p{So}"), "isolated"),
            pre_tokenizers.BertPreTokenizer(),
        ]
    )


def lowering(tokenizer: Any) -> Any:
    """Let a tokenizer cut texts into words in our way, in place, and return it."""
    from tokenizers import normalizers

    lowered = normalizers.BertNormalizer(
        handle_chinese_chars=False, strip_accents=False, lowercase=True
    )
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), lowered])
    tokenizer.pre_tokenizer = words_and_signs()
    return tokenizer


def lowered_words(texts: Sequence[str]) -> list[list[str]]:
    """Return the words and signs of each text in small letters, as a corpus's encoder has them."""
    from tokenizers import Tokenizer, models

    tokenizer = lowering(Tokenizer(models.Unigram()))
    normalize = tokenizer.normalizer.normalize_str
    cut = tokenizer.pre_tokenizer.pre_tokenize_str
    return [
        _ASCII_WORD.findall(text.lower())
        if text.isascii() and text.isprintable()
        else [word for word, _ in cut(normalize(text))]
        for text in texts
    ]


def learn_pieces(
    tokenizer: Any,
    texts: Iterable[str],
    size: int,
    special: Sequence[str],
) -> None:
    """Train a Unigram tokenizer (Kudo 2018, arXiv 1804.10959); one special is ``[UNK]``."""
    from tokenizers import models, trainers

    options = {"special_tokens": list(special), "unk_token": "[UNK]", "show_progress": False}
    tokenizer.train_from_iterator(texts, trainers.UnigramTrainer(vocab_size=size, **options))
    vocabulary = json.loads(tokenizer.to_str())["model"]["vocab"]
    # Sums differ in their last digits from process to process, and with them the order.
    scored = ((-round(score, 3), piece) for piece, score in vocabulary[len(special) :])
    pieces = [(piece, -cost) for cost, piece in sorted(scored)]
    specials = list(map(tuple, vocabulary[: len(special)]))
    tokenizer.model = models.Unigram(specials + pieces, list(special).index("[UNK]"))


def token_table(folder: Path) -> TokenTable | None:
    """Read a folder of sentence-transformers as a table of token vectors; None of another model."""
    try:
        modules = read_json(folder / "modules.json")
        settings = read_json(folder / "config_sentence_transformers.json")
    except FileNotFoundError:
        return None
    kinds = [str(module["type"]).rpartition(".")[2] for module in modules]
    configs = [folder / module["path"] / "config.json" for module in modules[1:]]
    if (
        kinds not in ([_TABLE], [_TABLE, _NORMALIZE])
        or settings.get("truncate_dim")
        or settings.get("similarity_fn_name") not in (None, _COSINE, "dot")
        or any(read_json(file) != PLAIN_NORMALIZE for file in configs if file.exists())
    ):
        return None
    from safetensors import safe_open
    from tokenizers import Tokenizer

    place = folder / modules[0]["path"]
    with safe_open(place / "model.safetensors", "numpy") as file:
        table = file.get_tensor(WEIGHTS) if list(file.keys()) == [WEIGHTS] else None
    if table is None or table.dtype != np.float32:
        return None
    tokenizer = Tokenizer.from_file(str(place / "tokenizer.json"))
    tokenizer.no_padding()
    return TokenTable(tokenizer, table, len(kinds) > 1, settings)


def table_of(model: Any) -> TokenTable | None:
    """Return an open static encoder as a table, None where it is anything else."""
    if isinstance(model, TokenTable):
        return model
    kinds = [type(module).__name__ for module in model.children()]
    if (
        kinds not in ([_TABLE], [_TABLE, _NORMALIZE])
        or model.truncate_dim
        or not hasattr(model.tokenizer, "to_str")
    ):
        return None
    named = ("prompts", "default_prompt_name", "similarity_fn_name")
    settings = {name: getattr(model, name) for name in named}
    table = model[0].embedding.weight.detach().cpu().float().numpy()
    return TokenTable(model.tokenizer, table, len(kinds) > 1, settings)
