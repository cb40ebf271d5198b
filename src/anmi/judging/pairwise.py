"""Judges that read two documents side by side, behind :class:`anmi.judging.preferences.PairwiseJudge`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
import scipy
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from anmi.errors import AnmiError
from anmi.judging.chat import ASKED, ChatJudge, ChatOptions
from anmi.judging.pointwise import SEPARATOR, JudgeOptions, checked, logits, open_cross_encoder
from anmi.judging.preferences import PairwiseJudge
from anmi.retrieval.encoders import fingerprint, short_name
from anmi.retrieval.kinds import quiet, resolve_precision
from anmi.store import Store


class LocalPairwiseOptions(BaseModel):
    """A text-pair classifier that compares two documents."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    base: str = Field(
        description="Name or folder of a classifier of (query, `first [SEP] second`) with one label, the logit of "
        "`first is better`, or two, the second of which says so. Empty: recipes as published, which have to be given "
        "one."
    )
    batch_size: int = Field(32, ge=2, description="Comparisons per step.")
    max_length: int = Field(
        256, ge=32, le=8192, description="Tokens of query and both documents together; twice that of a pointwise judge."
    )
    precision: Literal["auto", "float32", "bfloat16"] = Field(
        "auto", description="bfloat16 where the processor multiplies it in hardware: twice as fast."
    )


class PairwiseOptions(BaseModel):
    """Who compares documents: a local model or a chat endpoint."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    local: LocalPairwiseOptions | None = Field(None, description="A classifier that runs here.")
    chat: ChatOptions | None = Field(None, description="A language model behind an OpenAI-compatible endpoint.")

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.local is None) == (self.chat is None):
            raise ValueError("a pairwise judge is either local or chat: give exactly one of the two")
        return self


class LocalPairwise:
    """P(first ≻ second) of a local classifier, the mean over both orders of showing the two.

    Parameters
    ----------
    options
        The model.
    store
        Cache of its logits.

    Raises
    ------
    AnmiError
        The model cannot be loaded or is no classifier with one or two labels.
    """

    def __init__(self, options: LocalPairwiseOptions, store: Store) -> None:
        self.options, self._store = options, store
        self._model = open_cross_encoder(options.base, options.max_length, labels=(1, 2))
        self.fingerprint = fingerprint(self._model, resolve_precision(options.precision), "pairwise")

    def describe(self) -> dict[str, Any]:
        """Return what is worth keeping about the judge, as JSON values."""
        return {"fingerprint": self.fingerprint, "path": self.options.base}

    def prefer(self, queries: Sequence[str], first: Sequence[str], second: Sequence[str]) -> NDArray[np.float64]:
        """Return P(first ≻ second), [n].

        Raises
        ------
        AnmiError
            The model returned something that is no number.
        """
        if not len(queries):
            return np.zeros(0)
        clean = [[text.replace(SEPARATOR, " ") for text in texts] for texts in (queries, first, second)]
        orders = [*zip(*clean, strict=True), *zip(clean[0], clean[2], clean[1], strict=True)]
        texts = [SEPARATOR.join(order) for order in orders]
        raw = self._store.vectors(self.fingerprint, texts, self._compute, name=short_name(self.options.base))[:, 0]
        forward, backward = scipy.special.expit(raw.astype(np.float64)).reshape(2, -1)
        return 0.5 * (forward + 1.0 - backward)

    def _compute(self, texts: list[str]) -> NDArray[np.float32]:
        options = JudgeOptions(
            base=self.options.base, batch_size=self.options.batch_size, precision=self.options.precision
        )
        with quiet():
            values = np.asarray(logits(self._model, self._pairs(texts), options), np.float32)
        rows = checked(values, len(texts), f'pairwise classifier "{self.options.base}"').reshape(len(texts), -1)
        return rows if rows.shape[1] == 1 else rows[:, 1:] - rows[:, :1]

    def _pairs(self, texts: Sequence[str]) -> list[tuple[str, str]]:
        """Cut the two documents to equal shares of the room that the query leaves, lest the second is lost."""
        tokenizer = self._model.tokenizer
        separator = tokenizer.sep_token or tokenizer.eos_token or "\n"
        room = self._model.max_seq_length - tokenizer.num_special_tokens_to_add(pair=True) - 1
        queries, *documents = (list(side) for side in zip(*(text.split(SEPARATOR, 2) for text in texts), strict=True))
        queries, lengths = _cut(tokenizer, queries, [room // 4] * len(texts))
        limits = [(room - length) // 2 for length in lengths]
        first, second = (_cut(tokenizer, side, limits)[0] for side in documents)
        joined = [f"{one} {separator} {other}" for one, other in zip(first, second, strict=True)]
        return list(zip(queries, joined, strict=True))


def _cut(tokenizer: Any, texts: list[str], limits: Sequence[int]) -> tuple[list[str], list[int]]:
    """The start of each text that holds at most so many tokens, and how many it holds."""
    offsets = tokenizer(texts, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    starts = [
        text if len(places) <= limit else text[: places[limit - 1][1]]
        for text, places, limit in zip(texts, offsets, limits, strict=True)
    ]
    return starts, [min(len(places), limit) for places, limit in zip(offsets, limits, strict=True)]


def check_given(judges: Mapping[str, PairwiseOptions]) -> None:
    """Refuse a judge that a recipe leaves to the user to name, and that nobody did.

    Parameters
    ----------
    judges
        By name, of ``elo.pairwise``.

    Raises
    ------
    AnmiError
        Names what is to be set.
    """
    for name, options in judges.items():
        place = f"elo.pairwise.{name}"
        if options.chat is not None and not (options.chat.base_url and options.chat.model):
            raise AnmiError(
                f"the recipe asks a language model, and no chat endpoint is given: set {place}.chat.base_url="
                f"https://HOST/v1 and {place}.chat.model=NAME, and {place}.chat.key_variable where it wants a key"
            )
        if options.local is not None and not options.local.base:
            raise AnmiError(
                "the recipe asks a classifier that compares two documents, and none is packaged: set "
                f"{place}.local.base to its folder or name"
            )


def answers_of(judges: Mapping[str, PairwiseJudge]) -> pd.DataFrame:
    """Return what chat endpoints were asked and answered, as :meth:`ChatJudge.asked`, with the ``judge`` by name."""
    asked = [judge.asked().assign(judge=name) for name, judge in judges.items() if isinstance(judge, ChatJudge)]
    empty = pd.DataFrame(columns=[*ASKED]).astype(ASKED).assign(judge=pd.Series(dtype="string"))
    return pd.concat(asked, ignore_index=True) if asked else empty


def load_pairwise(options: PairwiseOptions, store: Store, seed: int) -> PairwiseJudge:
    """Return the pairwise judge that the options name.

    Parameters
    ----------
    options
        A local model or a chat endpoint.
    store
        Cache of judgments.
    seed
        Of the run; draws the order in which the documents of a pair are shown to a chat model.
    """
    if options.chat is not None:
        return ChatJudge(options.chat, store, seed)
    if options.local is not None:
        return LocalPairwise(options.local, store)
    raise ValueError("the options name no judge")
