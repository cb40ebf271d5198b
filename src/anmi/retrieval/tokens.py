"""Each text is tokenised once a run; what a network reads is laid out from that."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
import torch

from anmi.fingerprint import hash_value
from anmi.ragged import Int32s, Int64s
from anmi.retrieval.kinds import estimated_lengths, is_routed, is_static, prompts_of
from anmi.retrieval.token_table import Cutter

# Features that say no more of a text than its tokens: of tables of token vectors, and of networks.
_IN_A_ROW: Final = {"input_ids", "offsets"}
_PADDED: Final = {"input_ids", "attention_mask"}
_OF_ONE_KIND: Final = "token_type_ids"
# Texts tokenised at once, of like length: enough for several threads, and little padding.
_TEXTS: Final = 2048
# Of the texts that are remembered: a quarter of a gigabyte; others are tokenised again.
_MOST_TOKENS: Final = 1 << 26
# On a card lengths are multiples of it, so that shapes, and kernels made for them, come again.
_LENGTHS: Final = 32
# Tokenisers refuse two threads at once.
_ALONE: Final = threading.Lock()


class _Remembered:
    """Numbers of tokens by text.

    Attributes
    ----------
    names
        Of the features that are tensors; None before the first text.
    constants
        Features that are the same for all texts, such as the length of the prompt.
    cut
        Of a table of token vectors, what cuts each word once.
    """

    def __init__(self) -> None:
        self.rows: dict[str, Int32s] = {}
        self.names: set[str] | None = None
        self.constants: dict[str, Any] = {}
        self.cut: Cutter | None = None
        self.tokens = 0


@lru_cache(maxsize=8)
def _remembered(key: str) -> _Remembered:
    """Return one object for all models that cut texts alike, as before and after training."""
    return _Remembered()


class Tokeniser:
    """Tokenises texts by role, with the model's prompt for that role, each text once.

    Parameters
    ----------
    model
        Of sentence-transformers.
    max_length
        Most tokens of a prompt and its text, up to the model's own limit. Tables of token vectors
        have none and ignore it.
    """

    def __init__(self, model: Any, max_length: int | None = None) -> None:
        self._model = model
        self._is_routed = is_routed(model)
        self._prompts = prompts_of(model)
        self._cut = {}
        if max_length is not None and not is_static(model):
            self._cut = {"max_length": min(max_length, model.max_seq_length or max_length)}
        self._by_role: dict[str | None, _Remembered] = {}

    def lengths(self, texts: Sequence[str], role: str | None) -> Int64s:
        """Return the number of tokens of each text with its prompt, [T].

        It is estimated where the first module of the model reads more of a text than its tokens.
        """
        rows = self._rows(texts, role)
        if rows is None:
            return estimated_lengths(texts, self._model.max_seq_length)
        return np.array([len(row) for row in rows], np.int64)

    def features(self, texts: Sequence[str], role: str | None) -> dict[str, Any]:
        """Return what the model reads of texts in one pass, as its ``preprocess`` does."""
        rows = self._rows(texts, role)
        if rows is None:
            return self._preprocess(texts, role)
        remembered = self._of_role(role)
        lengths = np.array([len(row) for row in rows])
        tokens = np.concatenate(rows)
        if remembered.names == _IN_A_ROW:
            features = {"input_ids": tokens, "offsets": np.cumsum(lengths) - lengths}
        else:
            features = self._padded(tokens, lengths, role)
        tensors = {
            name: torch.from_numpy(values.astype(np.int64)) for name, values in features.items()
        }
        return tensors | remembered.constants

    def _padded(
        self,
        tokens: Int32s,
        lengths: Int64s,
        role: str | None,
    ) -> dict[str, Any]:
        """Return features [T, L] of the tokens of T texts in a row."""
        tokenizer = self._first(role).tokenizer
        longest = int(lengths.max())
        if self._model.device.type != "cpu":
            limit = max(longest, self._model.max_seq_length or longest)
            longest = min(-(-longest // _LENGTHS) * _LENGTHS, limit)
        is_token = np.arange(longest) < lengths[:, None]
        if tokenizer.padding_side == "left":
            is_token = is_token[:, ::-1]
        block = np.full(is_token.shape, tokenizer.pad_token_id, np.int64)
        block[is_token] = tokens
        features = {"input_ids": block, "attention_mask": is_token}
        if _OF_ONE_KIND in (self._of_role(role).names or ()):
            features[_OF_ONE_KIND] = np.zeros_like(block)
        return features

    def _rows(self, texts: Sequence[str], role: str | None) -> list[Int32s] | None:
        """Return numbers of the tokens of each text; None where the model reads more than these."""
        remembered = self._of_role(role)
        absent = {text for text in texts if text not in remembered.rows}
        by_length = sorted(absent, key=lambda text: (len(text), text))
        new_rows: dict[str, Int32s] = {}
        for start in range(0, len(by_length), _TEXTS):
            block = by_length[start : start + _TEXTS]
            rows = self._cut_rows(block, role)
            if rows is None:
                return None
            new_rows.update(zip(block, rows, strict=True))
        if remembered.tokens < _MOST_TOKENS:
            remembered.rows.update(new_rows)
            remembered.tokens += sum(map(len, new_rows.values()))
        return [new_rows[text] if text in new_rows else remembered.rows[text] for text in texts]

    def _cut_rows(self, texts: Sequence[str], role: str | None) -> list[Int32s] | None:
        remembered = self._of_role(role)
        if remembered.names is not None and not self._are_tokens(remembered.names):
            return None
        features = self._preprocess(texts[:1] if remembered.cut else texts, role)
        arrays = {}
        constants = {}
        for name, value in features.items():
            if torch.is_tensor(value):
                arrays[name] = value.numpy()
            else:
                constants[name] = value
        remembered.names = {*arrays}
        remembered.constants = constants
        if _OF_ONE_KIND in arrays and arrays[_OF_ONE_KIND].any():
            remembered.names = set()
        if not self._are_tokens(remembered.names):
            return None
        if remembered.cut:
            prompt = self._prompts[role] if role else ""
            return remembered.cut([prompt + text for text in texts])
        tokens = arrays["input_ids"].astype(np.int32)
        if remembered.names == _IN_A_ROW:
            return np.split(tokens, arrays["offsets"][1:])
        is_token = arrays["attention_mask"].astype(bool)
        ends = np.cumsum(is_token.sum(axis=1))
        return np.split(tokens[is_token], ends[:-1])

    @staticmethod
    def _are_tokens(names: set[str]) -> bool:
        return names == _IN_A_ROW or names - {_OF_ONE_KIND} == _PADDED

    def _preprocess(self, texts: Sequence[str], role: str | None) -> dict[str, Any]:
        prompt = self._prompts[role] if role else ""
        # Read by the router, which sends queries and documents to encoders of their own.
        route = {"task": role} if self._is_routed else {}
        options = {"prompt": prompt or None, **route, **self._cut}
        with _ALONE:
            return dict(self._model.preprocess(list(texts), **options)) | route

    def _first(self, role: str | None) -> Any:
        return self._model[0].sub_modules[role][0] if self._is_routed else self._model[0]

    def _of_role(self, role: str | None) -> _Remembered:
        """Return what this process remembers for all models that cut texts as this one."""
        if role not in self._by_role:
            self._by_role[role] = self._shared(role)
        return self._by_role[role]

    def _shared(self, role: str | None) -> _Remembered:
        first = self._first(role)
        tokenizer: Any = getattr(first, "tokenizer", None)
        backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
        if not hasattr(backend, "to_str"):
            return _Remembered()
        # A call leaves its truncation and padding behind.
        cutting = json.loads(backend.to_str()) | {"truncation": None, "padding": None}
        template = getattr(tokenizer, "chat_template", None)
        settings = first.get_config_dict() if hasattr(first, "get_config_dict") else {}
        module = [type(first).__name__, settings, first.max_seq_length, template]
        prompt = self._prompts[role] if role else ""
        route = role if self._is_routed else None
        remembered = _remembered(hash_value([cutting, module, self._cut, prompt, route]))
        if module[0] == "StaticEmbedding":
            remembered.cut = Cutter(tokenizer)
        return remembered
