"""Texts that a static encoder reads again and again are cut into tokens once.

Training measures the same documents after every epoch, and an ablation does so for one recipe after another; with a
table of token vectors the tokenizer is nearly all the work.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from anmi.retrieval.kinds import is_routed, is_static

# 4 bytes each, of all texts that are kept.
_MOST_TOKENS: Final = 25_000_000
_AT_ONCE: Final = 4096
_KEPT: Final[OrderedDict[str, tuple[Tensor, Tensor]]] = OrderedDict()


def is_readable(model: Any) -> bool:
    """Tell whether :func:`encode_static` knows the model's form."""
    return not is_routed(model) and is_static(model) and hasattr(model.tokenizer, "to_str")


def encode_static(model: Any, texts: Sequence[str]) -> NDArray[np.float32]:
    """Return what ``model.encode`` gives, normalised, without tokenising again what this process read before.

    Parameters
    ----------
    model
        A static encoder: a table of token vectors, and perhaps a normalisation.
    texts
        T texts, with their prompt.

    Returns
    -------
    numpy.ndarray
        float32 [T, D], rows of length 1 (0 for a text without a known token).
    """
    if not texts:
        return np.zeros((0, model.get_embedding_dimension() or 0), np.float32)
    model.eval()
    tokens, starts = _tokens(model, texts)
    ends = torch.cat([starts[1:], torch.tensor([len(tokens)])])
    parts = []
    for first in range(0, len(texts), _AT_ONCE):
        last = min(first + _AT_ONCE, len(texts)) - 1
        begin = int(starts[first])
        features = {
            "input_ids": tokens[begin : int(ends[last])].long().to(model.device),
            "offsets": (starts[first : last + 1] - begin).to(model.device),
        }
        with torch.inference_mode():
            vectors: Tensor = model(features)["sentence_embedding"]
        parts.append(functional.normalize(vectors, p=2, dim=1).float().cpu())
    result: NDArray[np.float32] = torch.cat(parts).numpy()
    return result


def _tokens(model: Any, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Token ids of all texts in a row, int32, and where each text begins, int64 [T]."""
    key = _digest(model, texts)
    if key in _KEPT:
        _KEPT.move_to_end(key)
        return _KEPT[key]
    features = [model.preprocess(list(part)) for part in _parts(texts)]
    tokens = torch.cat([part["input_ids"].to(torch.int32) for part in features])
    shifts = np.cumsum([0, *(len(part["input_ids"]) for part in features[:-1])])
    starts = torch.cat([part["offsets"] + int(shift) for part, shift in zip(features, shifts, strict=True)])
    if len(tokens) <= _MOST_TOKENS:
        _KEPT[key] = tokens, starts
        while sum(len(kept) for kept, _ in _KEPT.values()) > _MOST_TOKENS:
            _KEPT.popitem(last=False)
    return tokens, starts


def _parts(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    return (texts[first : first + _AT_ONCE] for first in range(0, len(texts), _AT_ONCE))


def _digest(model: Any, texts: Sequence[str]) -> str:
    state = hashlib.blake2b(model.tokenizer.to_str().encode(), digest_size=16)
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        state.update(len(data).to_bytes(8, "little"))
        state.update(data)
    return state.hexdigest()
