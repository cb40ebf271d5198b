"""Judges that score one (query, document) pair at a time, behind one interface.

The ready-made cross-encoder is here, the one that is trained on the collection in :mod:`anmi.judging.cross_encoder`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Generic, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field
from tqdm import tqdm

from anmi.engine.threads import for_threads, with_torch
from anmi.errors import AnmiError
from anmi.retrieval.encoders import (
    fingerprint,
    short_name,
)
from anmi.retrieval.kinds import autocast, device, passes, resolve_precision
from anmi.retrieval.model_folder import checked_model, loading
from anmi.store import Store

SEPARATOR: Final = "\x1f"
# Pairs per commit to the store, and per item of an engine.
AT_ONCE: Final = 256


class PointwiseJudge(Protocol):
    """A judge of single documents; the same for every source of its scores."""

    @property
    def fingerprint(self) -> str:
        """A hash of everything that changes a score."""

    def score(self, pairs: Sequence[str], store: Store, bar: tqdm[Any] | None = None) -> NDArray[np.float32]:
        """Return a raw score for each pair, higher for more relevant, on a scale of the judge's own.

        Parameters
        ----------
        pairs
            n texts made by :func:`join`; of any number of queries, for they are batched by length across queries.
        store
            Cache; a pair that it holds is not computed again.
        bar
            Progress bar that counts pairs.

        Returns
        -------
        numpy.ndarray
            float32 [n].

        Raises
        ------
        AnmiError
            The model returned too few scores, or something that is no number.
        """

    def describe(self) -> dict[str, Any]:
        """Return what is worth keeping about the judge, as JSON values."""


class JudgeOptions(BaseModel):
    """Which model scores pairs."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    base: str = "minilm"
    batch_size: int = Field(32, ge=2)
    max_length: int = Field(128, ge=16, le=512)
    precision: Literal["auto", "float32", "bfloat16"] = "auto"

    @property
    def trained(self) -> bool:
        """True where the judge is trained on the collection's own labels."""
        return self.base == "minilm"


def join(query: str, document: str) -> str:
    """Return the text under which the pair is stored and scored.

    Examples
    --------
    >>> split(join("sort rows", "Order a table."))
    ('sort rows', 'Order a table.')
    """
    return f"{query.replace(SEPARATOR, ' ')}{SEPARATOR}{document}"


def split(pair: str) -> tuple[str, str]:
    """Take apart what :func:`join` put together."""
    query, _, document = pair.partition(SEPARATOR)
    return query, document


def checked(values: Any, count: int, judge: str) -> NDArray[np.float32]:
    """Return a judge's values as float32 with ``count`` rows, or say what is wrong with them.

    Examples
    --------
    >>> checked([0.5, float("nan")], 2, 'cross-encoder "m"')
    Traceback (most recent call last):
    anmi.errors.AnmiError: cross-encoder "m" gave 1 of 2 scores that are no numbers; its weights are damaged or it \
overflows: try precision float32 or another model
    """
    rows: NDArray[np.float32] = np.asarray(values, np.float32)
    found = len(rows) if rows.ndim else 0
    if found != count:
        raise AnmiError(f"{judge} gave {found} scores for {count} pairs; it cannot be used as a judge")
    broken = int((~np.isfinite(rows.reshape(count, -1))).any(axis=1).sum()) if count else 0
    if broken:
        raise AnmiError(
            f"{judge} gave {broken} of {count} scores that are no numbers; its weights are damaged or it overflows: "
            "try precision float32 or another model"
        )
    return rows


def logits(model: Any, pairs: Sequence[tuple[str, str]], options: JudgeOptions) -> NDArray[Any]:
    """Run a CrossEncoder without its activation, [n] or [n, labels]; it batches by length."""
    import torch

    groups = passes([" ".join(pair) for pair in pairs], options.batch_size, model.max_seq_length)
    with torch.inference_mode(), autocast(options.precision):
        found = [
            model.predict(
                [pairs[place] for place in group], batch_size=len(group), show_progress_bar=False,
                activation_fn=torch.nn.Identity(),
            )
            for group in groups
        ]  # fmt: skip
    # As many as there are places, or the caller will say so.
    result = np.concatenate(found)
    return result[np.argsort(np.concatenate(groups), kind="stable")] if len(result) == len(pairs) else result


def open_cross_encoder(base: str, max_length: int, labels: Sequence[int] = (1,)) -> Any:
    """Open a ready-made cross-encoder.

    Raises
    ------
    AnmiError
        It cannot be loaded, is more than data, has another number of labels, or has no scoring head (a bi-encoder,
        whose fresh random head would judge at random).
    """
    from sentence_transformers.cross_encoder import CrossEncoder

    with loading(f'cross-encoder "{base}"', "give `minilm`, a folder that holds a cross-encoder"):
        folder = str(checked_model(base))
        model = CrossEncoder(folder, max_length=max_length, device=device(), trust_remote_code=False)
    network = type(model.model).__name__
    if network.endswith("ForSequenceClassification") and network not in (model.model.config.architectures or []):
        raise AnmiError(f'"{base}" has no scoring head, so it is no cross-encoder; give another one')
    if model.num_labels not in labels:
        raise AnmiError(
            f'cross-encoder "{base}" gives {model.num_labels} values for a pair where '
            f"{' or '.join(map(str, labels))} is needed; give one that was trained to score"
        )
    return model


Options = TypeVar("Options", bound=JudgeOptions)


class NetworkJudge(ABC, Generic[Options]):
    """A judge that is a cross-encoder; scores are its logits.

    Attributes
    ----------
    options
        Which one, and how it is run.
    models
        Folder of models.
    fingerprint
        Of the model.
    name, described
        What people call it, in the store and in errors.
    """

    options: Options
    models: Path
    fingerprint: str
    name: str
    described: str
    _model: Any = None

    @abstractmethod
    def _load(self) -> Any:
        """Return the CrossEncoder, ready to be asked by several threads."""

    def score(self, pairs: Sequence[str], store: Store, bar: tqdm[Any] | None = None) -> NDArray[np.float32]:
        """Return the logits of joined pairs, float32 [n]."""
        if not len(pairs):
            return np.zeros(0, np.float32)
        if self._untrained and store.missing(self.fingerprint, pairs):
            # Trained once, before several processes need it.
            self._load()
        return store.vectors(self.fingerprint, pairs, self._compute, AT_ONCE, bar, self.name, store.run)[:, 0]

    @property
    def _untrained(self) -> bool:
        return False

    def __getstate__(self) -> dict[str, Any]:
        """Leave the network behind: another process opens it from where it lies."""
        return {**vars(self), "_model": None}

    @with_torch
    def _compute(self, pairs: list[str]) -> NDArray[np.float32]:
        values = logits(self._load(), [split(pair) for pair in pairs], self.options)
        return checked(values, len(pairs), self.described).reshape(-1, 1)

    def describe(self) -> dict[str, Any]:
        """Return fingerprint, place, and what ran it."""
        precision = resolve_precision(self.options.precision)
        return {"fingerprint": self.fingerprint, "path": self.options.base, "computed_by": precision}


class CrossEncoderJudge(NetworkJudge[JudgeOptions]):
    """Any ready-made CrossEncoder with one output."""

    def __init__(self, options: JudgeOptions) -> None:
        if options.trained:
            raise AnmiError("the judge `minilm` is trained on a collection; give a ready-made cross-encoder instead")
        self.options = options
        self.fingerprint = fingerprint(self._load(), resolve_precision(options.precision))
        self.name, self.described = short_name(options.base), f'cross-encoder "{options.base}"'

    def _load(self) -> Any:
        if self._model is None:
            self._model = for_threads(open_cross_encoder(self.options.base, self.options.max_length))
        return self._model
