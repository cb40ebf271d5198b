"""A cross-encoder that judges (query, document) pairs, trained cross-fitted on the collection's own labels.

K models are trained, each on the queries of all folds but one; a query is only ever scored by the model that did
not see it. A ready-made cross-encoder may take their place.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field
from tqdm import tqdm

from anmi import seeds
from anmi.errors import AnmiError
from anmi.retrieval.encoders import (
    MINILM_SHA256,
    autocast,
    device,
    fingerprint,
    minilm_folder,
    quiet,
    resolve_precision,
    verify,
)
from anmi.store import Store

log = logging.getLogger(__name__)
_PAIR: Final = "\x1f"
_HEAD: Final = "head.safetensors"
# Part of the fingerprint: a change of architecture or training must not meet old judgments.
_DESIGN: Final = "segment-similarity-1"


class TeacherOptions(BaseModel):
    """How the cross-encoder is made."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    base: str = Field(
        "minilm",
        description="`minilm` is trained here, cross-fitted; any CrossEncoder name or folder is used as it is.",
    )
    layers: int = Field(
        3,
        ge=1,
        le=6,
        description="Lower layers of MiniLM that are kept; all 6 tell more apart at twice the cost.",
    )
    folds: int = Field(
        3, ge=2, le=20, description="3 train on two thirds of the queries each, at three times the cost."
    )
    max_pairs: int = Field(
        480, ge=16, description="Training pairs per fold; a small budget, some 10 s each on two cores."
    )
    negatives: int = Field(
        3, ge=1, le=50, description="Negatives per positive in training; more adds cost than signal."
    )
    epochs: int = Field(
        1, ge=1, le=20, description="Passes over the pairs; more fits the unlabelled positives as negatives."
    )
    learning_rate: float = Field(5e-5, gt=0, description="Customary for fine-tuning a small transformer in few steps.")
    batch_size: int = Field(32, ge=2, description="Pairs per step in training and scoring.")
    max_length: int = Field(128, ge=16, le=512, description="Tokens of query and document together.")
    doubtful_ratio: float = Field(
        0.95,
        gt=0,
        description="Candidates above this share of the positive's similarity are not trained on as negatives: "
        "a teacher that saw false negatives as negatives cannot find them.",
    )
    precision: Literal["auto", "float32", "bfloat16"] = Field(
        "auto", description="bfloat16 where the processor multiplies it in hardware: twice as fast."
    )


@dataclass(frozen=True)
class Pairs:
    """Labelled training pairs: row of the query table, texts and labels (1 relevant, 0 not)."""

    queries: list[str]
    documents: list[str]
    labels: NDArray[np.float32]

    def digest(self) -> str:
        """Return a hash of the contents."""
        state = hashlib.blake2b(self.labels.tobytes(), digest_size=16)
        for query, document in zip(self.queries, self.documents, strict=True):
            state.update(f"{query}{_PAIR}{document}\x1e".encode())
        return state.hexdigest()


def fold_of(texts: Sequence[str], folds: int, seed: int) -> NDArray[np.int64]:
    """Assign queries to folds by a hash of their text, so that queries of one text share a fold.

    Examples
    --------
    >>> fold = fold_of(["what is a mean", "what is a mean", "sort rows"], 3, seed=0)
    >>> bool(fold[0] == fold[1])
    True
    """
    keys = (seeds.key(seed, "teacher/fold", " ".join(text.lower().split()))[0] for text in texts)
    return np.array([int(key) % folds for key in keys], np.int64)


class Teacher:
    """One fold's cross-encoder: trained when first needed, kept in ``models`` under its fingerprint.

    Parameters
    ----------
    options
        How it is made.
    models
        Folder where trained models are kept.
    pairs
        Training pairs; None for a ready-made model.
    seed
        Of the run.
    """

    def __init__(self, options: TeacherOptions, models: Path, pairs: Pairs | None, seed: int) -> None:
        self.options, self._models, self._pairs, self._seed = options, models, pairs, seed
        self._model: Any = None
        if pairs is None:
            self.path = Path(options.base)
            self.fingerprint = fingerprint(self._load(), self._precision())
        else:
            settings = _DESIGN + options.model_dump_json() + MINILM_SHA256 + str(seed) + self._precision()
            self.fingerprint = hashlib.blake2b((settings + pairs.digest()).encode(), digest_size=16).hexdigest()
            self.path = models / f"teacher-{self.fingerprint}"

    def _precision(self) -> str:
        return resolve_precision(self.options.precision)

    def score(self, pairs: Sequence[str], store: Store, bar: tqdm[Any] | None = None) -> NDArray[np.float32]:
        """Return the raw scores (logits) of joined pairs, float32 [n]; see :func:`join`."""
        return store.vectors(self.fingerprint, pairs, self._compute, bar=bar)[:, 0] if len(pairs) else np.zeros(0, "f4")

    def _compute(self, joined: list[str]) -> NDArray[np.float32]:
        import torch

        model = self._load()
        pairs = [tuple(text.split(_PAIR, 1)) for text in joined]
        with torch.inference_mode(), autocast(self.options.precision):
            scores = model.predict(
                pairs, batch_size=self.options.batch_size, show_progress_bar=False, activation_fn=torch.nn.Identity()
            )
        return np.asarray(scores, np.float32).reshape(-1, 1)

    def _load(self) -> Any:
        if self._model is None:
            if self._pairs is not None and not self.path.is_dir():
                self._train(self._pairs)
            own = self._pairs is not None
            self._model = (_own_cross_encoder if own else _cross_encoder)(self.path, self.options)
        return self._model

    def _train(self, pairs: Pairs) -> None:
        import torch
        from datasets import Dataset
        from safetensors.torch import save_file
        from sentence_transformers.cross_encoder import CrossEncoderTrainer, CrossEncoderTrainingArguments
        from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss
        from transformers import PrinterCallback

        verify(minilm_folder() / "model.safetensors", MINILM_SHA256)
        torch.manual_seed(self._seed)
        model = _own_cross_encoder(minilm_folder(), self.options)
        self._models.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(dir=self._models, prefix=".teacher-"))
        arguments = CrossEncoderTrainingArguments(
            output_dir=str(scratch),
            num_train_epochs=self.options.epochs,
            per_device_train_batch_size=self.options.batch_size,
            learning_rate=self.options.learning_rate,
            warmup_steps=0.1,
            bf16=self._precision() == "bfloat16",
            use_cpu=device() == "cpu",
            seed=self._seed,
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
            dataloader_pin_memory=False,
        )
        data = Dataset.from_dict({"query": pairs.queries, "document": pairs.documents, "label": pairs.labels.tolist()})
        share = float(pairs.labels.mean())
        if not 0 < share < 1:
            raise AnmiError(
                "the teacher has only one kind of training pair, positives or negatives: every candidate is doubtful, "
                "so raise denoising.teacher.doubtful_ratio or denoising.depth"
            )
        loss = BinaryCrossEntropyLoss(model, pos_weight=torch.tensor((1 - share) / share))
        with quiet():
            trainer = CrossEncoderTrainer(model=model, args=arguments, train_dataset=data, loss=loss)
            trainer.remove_callback(PrinterCallback)
            trainer.train()
            (scratch / "model").mkdir()
            model[0].save(str(scratch / "model"))
            save_file(model[1].state_dict(), scratch / "model" / _HEAD)
        try:
            (scratch / "model").rename(self.path)
        except OSError as error:
            if not self.path.is_dir():
                raise AnmiError(f"the teacher could not be saved to {self.path}: {error}") from error
        shutil.rmtree(scratch, ignore_errors=True)


def _cross_encoder(path: Path, options: TeacherOptions) -> Any:
    """Open a ready-made cross-encoder."""
    from sentence_transformers.cross_encoder import CrossEncoder

    with quiet():
        try:
            return CrossEncoder(str(path), num_labels=1, max_length=options.max_length, device=device())
        except (OSError, ValueError) as error:
            raise AnmiError(
                f'cross-encoder "{path}" could not be loaded ({str(error).splitlines()[0][:200]}); give `minilm`, '
                "a folder that holds a cross-encoder, or set ANMI_ONLINE=1 to fetch a name from the hub"
            ) from error


def _own_cross_encoder(path: Path, options: TeacherOptions) -> Any:
    """Put our head on MiniLM, or on a teacher that was trained from it; see :class:`SegmentSimilarity`."""
    from safetensors.torch import load_file
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.cross_encoder import CrossEncoder

    from anmi.judging.head import SegmentSimilarity

    with quiet():
        body = Transformer(
            str(path),
            max_seq_length=options.max_length,
            config_kwargs={"num_hidden_layers": options.layers, "num_labels": 1},
        )
        head = SegmentSimilarity(body.get_embedding_dimension())
        if (path / _HEAD).exists():
            head.load_state_dict(load_file(path / _HEAD))
        return CrossEncoder(modules=[body, head], device=device(), num_labels=1)


def join(query: str, document: str) -> str:
    """Return the text under which the pair is stored and scored."""
    return f"{query.replace(_PAIR, ' ')}{_PAIR}{document}"


def training_pairs(examples: pd.DataFrame, fold: int, options: TeacherOptions, seed: int) -> Pairs:
    """Take the training pairs of all folds but one, up to the budget, whole queries at a time.

    Parameters
    ----------
    examples
        ``query, document, label, fold, row`` with ``row`` numbering the queries.
    fold
        The fold that must not be seen.
    """
    seen = examples[examples.fold != fold]
    if seen.empty:
        raise AnmiError(
            f"the teacher has no queries to learn from outside fold {fold}: {examples.row.nunique()} are too few "
            f"for {options.folds} folds; lower denoising.teacher.folds or give more training queries"
        )
    rows = seen.row.unique()
    shuffled = seeds.stream(seed, "teacher/queries", str(fold)).permutation(rows)
    place = pd.Series(np.arange(len(shuffled)), index=shuffled)
    ordered = seen.assign(place=seen.row.map(place)).sort_values(
        ["place", "label"], ascending=[True, False], kind="stable"
    )
    within = ordered.groupby("place", sort=False).size().cumsum() <= max(options.max_pairs, 1)
    kept = ordered[ordered.place.map(within)]
    kept = ordered.head(options.max_pairs) if kept.empty else kept
    return Pairs(kept["query"].tolist(), kept.document.tolist(), kept.label.to_numpy(np.float32))


def settings_json(teachers: Sequence[Teacher]) -> dict[str, Any]:
    """Return what is worth keeping about the teachers, as JSON values."""
    options = json.loads(teachers[0].options.model_dump_json())
    folds = [{"fingerprint": teacher.fingerprint, "path": str(teacher.path)} for teacher in teachers]
    return {"options": options, "folds": folds}
