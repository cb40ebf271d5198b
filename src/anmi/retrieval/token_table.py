"""Static encoders run without PyTorch, whose start takes longer than encoding a small collection.

A static encoder is a table of token vectors, and most of its time goes to cutting texts into tokens. Where the
tokenizer looks at one word at a time, each word is cut once, however often it occurs: ten times as fast.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from anmi.engine.threads import in_threads
from anmi.fingerprint import hash_value
from anmi.retrieval.tokenize import runs_of

# Small enough that two threads share the new words of a batch.
_CUT_AT_ONCE: Final = 2048
_MOST_THREADS: Final = 4
_TABLE: Final = "StaticEmbedding"
_NORMALIZE: Final = "Normalize"
_WEIGHTS: Final = "embedding.weight"
_PLAIN_NORMALIZE: Final = {"module_input_name": "sentence_embedding", "module_output_name": "sentence_embedding"}
# Below which a vector has no direction, as torch has it.
_LEAST: Final = 1e-12
# Words whose tokens are remembered; more than most collections have.
_MOST_WORDS: Final = 1 << 20


class TokenTable:
    """A static encoder of sentence-transformers: the mean of the vectors of a text's tokens, at length 1.

    Parameters
    ----------
    tokenizer
        Of the library tokenizers.
    table
        float32 [V, D].
    normalised
        Whether the model has a module that normalises, too.
    settings
        ``prompts`` and ``default_prompt_name``, as sentence-transformers saves them.
    words
        What another table of the tokenizer remembers.
    """

    def __init__(
        self, tokenizer: Any, table: NDArray[np.float32], normalised: bool, settings: Mapping[str, Any],
        words: _Words | None = None,
    ) -> None:  # fmt: skip
        # Named as in sentence-transformers, for :mod:`anmi.retrieval.kinds`.
        self.prompts: dict[str, str] = dict(settings.get("prompts") or {})
        self.default_prompt_name: str | None = settings.get("default_prompt_name")
        self._tokenizer = tokenizer
        self._table = table
        self._normalised = normalised
        self._words = words or _words(tokenizer)

    def get_embedding_dimension(self) -> int:
        """Return D."""
        return int(self._table.shape[1])

    @cached_property
    def described(self) -> str:
        """A hash of all that changes a vector, besides the prompt."""
        tokenizer = json.loads(self._tokenizer.to_str()) | {"padding": None}
        weights = hashlib.blake2b(np.ascontiguousarray(self._table).data, digest_size=16).hexdigest()
        return hash_value([weights, list(self._table.shape), self._normalised, tokenizer])

    def encode(self, texts: Sequence[str], prompt: str = "") -> NDArray[np.float32]:
        """Return unit vectors, float32 [T, D]; 0 for a text without a known token."""
        texts = [prompt + text for text in texts] if prompt else texts
        tokens, lengths = self._cut(texts)
        starts = np.concatenate([[0], np.cumsum(lengths)])
        held = sparse.csr_matrix((np.ones(len(tokens), np.float32), tokens, starts), (len(texts), len(self._table)))
        # Tokens are added up in their order, as torch does, so that only the last bit of a length can differ.
        unit: NDArray[np.float32] = (held @ self._table) / np.maximum(lengths, 1).astype(np.float32)[:, None]
        # Once by the module, if any, and once because unit vectors are asked for.
        for _ in range(1 + self._normalised):
            unit /= np.maximum(np.linalg.norm(unit, axis=1, keepdims=True), np.float32(_LEAST))
        return unit

    def _cut(self, texts: Sequence[str]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Return the tokens of all texts one after the other, and how many each has."""
        if self._words is not None:
            return self._words.cut(texts)
        found = [encoding.ids for encoding in self._tokenizer.encode_batch(list(texts), add_special_tokens=False)]
        return np.array([*chain.from_iterable(found)], np.int32), np.array([*map(len, found)], np.int64)


class _Words:
    """The tokens of words, each cut when it is first met."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._longest = (tokenizer.truncation or {}).get("max_length")
        self._forget()

    def _forget(self) -> None:
        self._number: dict[str, int] = {}
        self._tokens = np.zeros(0, np.int32)
        self._starts = np.zeros(1, np.int64)

    def cut(self, texts: Sequence[str]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Return the tokens of all texts one after the other, and how many each has."""
        if len(self._number) > _MOST_WORDS:
            self._forget()
        runs, held, starts = runs_of(texts)
        self._learn(runs)
        words = np.fromiter(map(self._number.__getitem__, runs), np.int64, len(runs))[held]
        first, sizes = self._starts[words], np.diff(self._starts)[words]
        ends = np.cumsum(sizes)
        lengths = np.diff(np.concatenate([[0], ends])[starts])
        # Of each token where its word's begin among those known, and how far into the word it is.
        tokens = self._tokens[np.arange(sizes.sum()) + np.repeat(first - ends + sizes, sizes)]
        if self._longest is None or lengths.max(initial=0) <= self._longest:
            return tokens, lengths
        place = np.arange(len(tokens)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return tokens[place < self._longest], np.minimum(lengths, self._longest)

    def _learn(self, words: Sequence[str]) -> None:
        new = [word for word in words if word not in self._number]
        if not new:
            return
        parts = [new[start : start + _CUT_AT_ONCE] for start in range(0, len(new), _CUT_AT_ONCE)]
        found = list(chain.from_iterable(in_threads(self._cut, parts, min(_MOST_THREADS, len(parts)))))
        self._number.update(zip(new, range(len(self._number), len(self._number) + len(new)), strict=True))
        self._starts = np.concatenate([self._starts, self._starts[-1] + np.cumsum([*map(len, found)])])
        self._tokens = np.concatenate([self._tokens, np.array([*chain.from_iterable(found)], np.int32)])

    def _cut(self, words: list[str]) -> list[list[int]]:
        # The tokenizer lets other threads run; its own threads are off, as they do not survive a fork.
        return [encoding.ids for encoding in self._tokenizer.encode_batch_fast(words, add_special_tokens=False)]


def _words(tokenizer: Any) -> _Words | None:
    return _Words(tokenizer) if _cuts_words_alone(tokenizer) else None


def words_and_signs() -> Any:
    """Return a pre-tokenizer that cuts as BERT's does and at each emoji or other sign, ignoring its colour."""
    from tokenizers import Regex, pre_tokenizers

    return pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex("[\ufe0e\ufe0f\U0001f3fb-\U0001f3ff]"), "removed"),
        pre_tokenizers.Split(Regex("[\U0001f1e6-\U0001f1ff]{2}|\\p{So}"), "isolated"),
        pre_tokenizers.BertPreTokenizer(),
    ])  # fmt: skip


def learn_pieces(tokenizer: Any, texts: Iterable[str], size: int, special: Sequence[str]) -> None:
    """Train a Unigram tokenizer (Kudo 2018, arXiv 1804.10959), the same in every process; one special is ``[UNK]``."""
    from tokenizers import models, trainers

    given = {"special_tokens": list(special), "unk_token": "[UNK]", "show_progress": False}
    tokenizer.train_from_iterator(texts, trainers.UnigramTrainer(vocab_size=size, **given))
    found = json.loads(tokenizer.to_str())["model"]["vocab"]
    # Sums differ in their last digits from process to process, and with them the order.
    pieces = sorted(
        ((piece, round(score, 3)) for piece, score in found[len(special) :]), key=lambda one: (-one[1], one)
    )
    tokenizer.model = models.Unigram([*map(tuple, found[: len(special)]), *pieces], list(special).index("[UNK]"))


def _cuts_words_alone(tokenizer: Any) -> bool:
    """Tell whether what lies between blanks gets the same tokens whatever stands around it, as in BERT's tokenizer."""
    kinds = [type(part).__name__ for part in (tokenizer.normalizer, tokenizer.pre_tokenizer, tokenizer.model)]
    if kinds[0] == "Sequence":
        kinds[0] = " ".join(type(part).__name__ for part in tokenizer.normalizer)
    added = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
    cut = tokenizer.truncation or {"direction": "right", "stride": 0}
    return (
        kinds[0] in ("BertNormalizer", "NFC BertNormalizer")
        and (kinds[1] == "BertPreTokenizer" or repr(tokenizer.pre_tokenizer) == repr(words_and_signs()))
        and kinds[2] in ("WordPiece", "Unigram")
        and not any(" " in content or "\n" in content for content in added)
        and (cut["direction"], cut["stride"]) == ("right", 0)
    )


def token_table(folder: Path) -> TokenTable | None:
    """Read the folder of a sentence-transformers model as a table of token vectors; None where it is anything else."""
    try:
        modules = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
        settings = json.loads((folder / "config_sentence_transformers.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    kinds = [str(module["type"]).rpartition(".")[2] for module in modules]
    if kinds not in ([_TABLE], [_TABLE, _NORMALIZE]) or settings.get("truncate_dim"):
        return None
    others = [folder / module["path"] / "config.json" for module in modules[1:]]
    if any(json.loads(file.read_text(encoding="utf-8")) != _PLAIN_NORMALIZE for file in others if file.exists()):
        return None
    from safetensors import safe_open
    from tokenizers import Tokenizer

    place = folder / modules[0]["path"]
    with safe_open(place / "model.safetensors", "numpy") as file:
        table = file.get_tensor(_WEIGHTS) if list(file.keys()) == [_WEIGHTS] else None
    if table is None or table.dtype != np.float32:
        return None
    tokenizer = Tokenizer.from_file(str(place / "tokenizer.json"))
    tokenizer.no_padding()
    return TokenTable(tokenizer, table, len(kinds) > 1, settings)


def table_of(model: Any) -> TokenTable | None:
    """Return an open static encoder as a table, None where it is anything else; words are cut once for all its states.

    Tables of one tokenizer share what they remember, so only one thread may use them.
    """
    kinds = [type(part).__name__ for part in model.children()]
    if kinds not in ([_TABLE], [_TABLE, _NORMALIZE]) or model.truncate_dim or not hasattr(model.tokenizer, "to_str"):
        return None
    settings = {"prompts": model.prompts, "default_prompt_name": model.default_prompt_name}
    table = model[0].embedding.weight.detach().cpu().float().numpy()
    return TokenTable(model.tokenizer, table, len(kinds) > 1, settings, _remembered(model.tokenizer.to_str()))


@lru_cache(maxsize=1)
def _remembered(tokenizer: str) -> _Words | None:
    from tokenizers import Tokenizer

    return _words(Tokenizer.from_str(tokenizer))
