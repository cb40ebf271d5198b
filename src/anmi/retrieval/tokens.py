"""Each text is tokenised once a run, and a pass through a network holds a number of tokens, not of texts."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from anmi.fingerprint import hash_value
from anmi.ragged import Int32s, Int64s
from anmi.retrieval.kinds import estimated_lengths, is_routed, is_static, prompts_of

# What a network reads of several texts, and what a table of token vectors does.
_PADDED: Final = ("input_ids", "attention_mask")
_IN_A_ROW: Final = ("input_ids", "offsets")
# Texts tokenised at once, of like length: enough for several threads, and little padding.
_TEXTS: Final = 2048
# Of all texts that are remembered: a gigabyte.
_MOST_NUMBERS: Final = 1 << 28
# Tokenisers refuse two threads at once.
_ALONE: Final = threading.Lock()
# On a card lengths are multiples of it, so that shapes, and kernels made for them, come again.
_LENGTHS: Final = 32


class _Remembered:
    """What networks read of texts, by text: numbers of tokens and whatever stands beside each, int32 [K, L].

    Attributes
    ----------
    names
        Of the K features; None before the first text, and empty where features are not one number
        a token, so that texts are tokenised anew for each pass.
    constants
        Features that are the same for all texts, such as the length of the prompt.
    """

    def __init__(self) -> None:
        self.rows: dict[str, Int32s] = {}
        self.names: tuple[str, ...] | None = None
        self.constants: dict[str, Any] = {}
        self.numbers = 0


@lru_cache(maxsize=8)
def _remembered(key: str) -> _Remembered:
    """Return one object for all models that cut texts alike, such as an encoder before and after training."""
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

        It is estimated where the first module of the model gives other features than numbers by
        token.
        """
        remembered = self._of_role(role)
        rows = self._rows(texts, role)
        if not remembered.names:
            return estimated_lengths(texts, self._model.max_seq_length)
        return np.array([row.shape[1] for row in rows], np.int64)

    def features(self, texts: Sequence[str], role: str | None) -> dict[str, Any]:
        """Return what the model reads of the texts in one pass, as its ``preprocess`` does, on the processor."""
        remembered = self._of_role(role)
        rows = self._rows(texts, role)
        if not remembered.names:
            return self._preprocess(texts, role)
        if remembered.names == _IN_A_ROW[:1]:
            lengths = np.array([row.shape[1] for row in rows])
            tokens = np.concatenate(rows, axis=1)[0]
            values = [tokens, np.cumsum(lengths) - lengths]
            features = dict(zip(_IN_A_ROW, map(_tensor, values), strict=True))
        else:
            features = dict(
                zip(remembered.names, map(_tensor, self._padded(rows, role)), strict=True)
            )
        return {**features, **remembered.constants}

    def _padded(self, rows: Sequence[Int32s], role: str | None) -> Int64s:
        """Return features as one block, [K, T, L]."""
        first = self._first(role)
        names = self._of_role(role).names or ()
        longest = max(row.shape[1] for row in rows)
        if self._model.device.type != "cpu":
            most = max(longest, self._model.max_seq_length or longest)
            longest = min(-(-longest // _LENGTHS) * _LENGTHS, most)
        padding = {
            "input_ids": getattr(first.tokenizer, "pad_token_id", 0),
            "token_type_ids": getattr(first.tokenizer, "pad_token_type_id", 0),
        }
        values = np.empty((len(names), len(rows), longest), np.int64)
        for place, name in enumerate(names):
            values[place] = padding.get(name, 0)
        is_left = getattr(first.tokenizer, "padding_side", "right") == "left"
        for place, row in enumerate(rows):
            start = longest - row.shape[1] if is_left else 0
            values[:, place, start : start + row.shape[1]] = row
        return values

    def _rows(self, texts: Sequence[str], role: str | None) -> list[Int32s]:
        remembered = self._of_role(role)
        if remembered.names == ():
            return []
        absent = dict.fromkeys(text for text in texts if text not in remembered.rows)
        by_length = sorted(absent, key=len)
        new_rows: dict[str, Int32s] = {}
        for start in range(0, len(by_length), _TEXTS):
            some = by_length[start : start + _TEXTS]
            new_rows.update(zip(some, self._cut_rows(some, role), strict=False))
        if remembered.names == ():
            return []
        if new_rows and remembered.numbers < _MOST_NUMBERS:
            remembered.rows.update(new_rows)
            remembered.numbers += sum(row.size for row in new_rows.values())
        return [new_rows[text] if text in new_rows else remembered.rows[text] for text in texts]

    def _cut_rows(self, texts: Sequence[str], role: str | None) -> list[Int32s]:
        """Tokenise texts, and note what their features are called."""
        features = self._preprocess(texts, role)
        tensors = {name: value for name, value in features.items() if torch.is_tensor(value)}
        remembered = self._of_role(role)
        remembered.constants = {
            name: value for name, value in features.items() if name not in tensors
        }
        if set(tensors) == {*_IN_A_ROW}:
            remembered.names = _IN_A_ROW[:1]
            tokens = tensors["input_ids"].to(torch.int32).numpy()
            return np.split(tokens[None], tensors["offsets"][1:].numpy(), axis=1)
        shape = (len(texts), tensors["input_ids"].shape[-1])
        if not {*_PADDED} <= {*tensors} or any(t.shape != shape for t in tensors.values()):
            remembered.names = ()
            return []
        remembered.names = tuple(tensors)
        block = torch.stack([*tensors.values()]).to(torch.int32).numpy()
        is_token = tensors["attention_mask"].bool().numpy()
        return [block[:, place, is_token[place]] for place in range(len(texts))]

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
        if role not in self._by_role:
            self._by_role[role] = self._shared(role) or _Remembered()
        return self._by_role[role]

    def _shared(self, role: str | None) -> _Remembered | None:
        """Return what is remembered in this process for models that cut as this one; None where that cannot be told."""
        first = self._first(role)
        tokenizer = getattr(first, "tokenizer", None)
        backend: Any = getattr(tokenizer, "backend_tokenizer", tokenizer)
        if not hasattr(backend, "to_str"):
            return None
        settings = first.get_config_dict() if hasattr(first, "get_config_dict") else {}
        return _remembered(
            hash_value(
                [
                    # A call leaves its truncation and padding behind.
                    json.loads(backend.to_str()) | {"truncation": None, "padding": None},
                    [getattr(tokenizer, name, None) for name in ("chat_template", "padding_side")],
                    [type(first).__name__, settings, first.max_seq_length, self._cut],
                    [self._prompts[role] if role else "", role if self._is_routed else None],
                ]
            )
        )


def _tensor(values: Any) -> Tensor:
    return torch.from_numpy(np.asarray(values, np.int64))
