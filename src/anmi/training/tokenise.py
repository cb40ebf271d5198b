"""Texts to an encoder's input features, as ``encode`` makes them but cut at the training length."""

from __future__ import annotations

from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from anmi.retrieval.kinds import is_routed, is_sparse, is_static
from anmi.retrieval.prompts import prompts_of


class Tokeniser:
    """Tokenises by role, with the encoder's prompt for that role.

    Parameters
    ----------
    encoder
        The encoder.
    max_length
        Most tokens of a prompt and its text, or None for the encoder's own limit. Static encoders have none and ignore
        it.
    """

    def __init__(self, encoder: SentenceTransformer, max_length: int | None) -> None:
        self._encoder = encoder
        static = is_static(encoder)
        # The roles whose features are tokens in a row, without padding.
        self._in_a_row = () if not static else ("document",) if is_sparse(encoder) else ("query", "document")
        self._routed = is_routed(encoder)
        self._cut = {} if max_length is None or static else {"max_length": max_length}
        self._prompts = prompts_of(encoder)
        # By role where each has an encoder of its own, whose tokenizers may differ.
        self._known: dict[str, dict[str, Tensor]] = {}

    def __call__(self, texts: list[str], role: str) -> dict[str, Any]:
        """Return the input features of ``texts``; ``role`` is ``query`` or ``document``."""
        prompt = self._prompts[role]
        # Read by the router, which sends queries and documents to encoders of their own.
        route = {"task": role} if self._routed else {}
        if role in self._in_a_row:
            return self._from_table([prompt + text for text in texts], route) | route
        features: dict[str, Any] = self._encoder.preprocess(texts, prompt=prompt or None, **route, **self._cut)
        return features

    def _from_table(self, texts: list[str], route: dict[str, str]) -> dict[str, Any]:
        """Tokenise every text once per run: for a static encoder it would be most of the training time."""
        known = self._known.setdefault(route.get("task", ""), {})
        new = list(dict.fromkeys(text for text in texts if text not in known))
        if new:
            features = self._encoder.preprocess(new, **route)
            parts = torch.tensor_split(features["input_ids"].to(torch.int32), features["offsets"][1:])
            known.update(zip(new, parts, strict=True))
        tokens = [known[text] for text in texts]
        lengths = torch.tensor([0, *(len(part) for part in tokens[:-1])])
        return {"input_ids": torch.cat(tokens).long(), "offsets": lengths.cumsum(0)}
