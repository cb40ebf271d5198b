"""A cross-encoder that judges (query, document) pairs, trained cross-fitted on the collection's own labels.

K models are trained, each on the queries of all folds but one; a query is only ever scored by the model that did
not see it. A part of the queries that a model may see is held out of its training and says when to stop.
"""

from __future__ import annotations

import hashlib
import json
import logging
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import Field

from anmi import seeds
from anmi.engine.threads import for_threads
from anmi.errors import AnmiError
from anmi.fingerprint import hash_text
from anmi.judging.pointwise import SEPARATOR, JudgeOptions, NetworkJudge, logits
from anmi.retrieval.encoders import MINILM_SHA256, minilm_folder, verify
from anmi.retrieval.kinds import device, quiet, resolve_precision
from anmi.retrieval.model_folder import LOADING

log = logging.getLogger(__name__)
_HEAD: Final = "head.safetensors"
_RECORD: Final = "training.json"
# Part of the fingerprint: a change of architecture or training must not meet old judgments.
_DESIGN: Final = "segment-similarity-2"


class TrainedOptions(JudgeOptions):
    """Which model scores pairs, and how it is trained if it is the one trained here."""

    layers: int = Field(3, ge=1, le=6)
    max_pairs: int = Field(480, ge=16)
    epochs: int = Field(1, ge=1, le=20)
    learning_rate: float = Field(5e-5, gt=0)
    held_out: float = Field(0.25, ge=0, lt=0.9)
    looks: int = Field(3, ge=1, le=50)
    patience: int = Field(2, ge=1)


class CrossEncoderOptions(TrainedOptions):
    """How pairs are judged: by which model, cross-fitted over how many folds."""

    folds: int = Field(3, ge=2, le=20)
    negatives: int = Field(3, ge=1, le=50)
    doubtful_ratio: float = Field(0.95, gt=0)
    doubtful_probability: float = Field(0.05, gt=0, le=1)


@dataclass(frozen=True)
class Pairs:
    """Training pairs: texts and labels, 1 relevant, 0 not or a chance between, and those that are held out of training.

    ``fold`` is the one that was left out, if any; it says what the pairs are for and is no part of them.
    """

    queries: list[str]
    documents: list[str]
    labels: NDArray[np.float32]
    held_out: Pairs | None = None
    fold: int | None = None

    def digest(self) -> str:
        """Return a hash of the contents."""
        state = hashlib.blake2b(self.labels.tobytes(), digest_size=16)
        for query, document in zip(self.queries, self.documents, strict=True):
            state.update(f"{query}{SEPARATOR}{document}\x1e".encode())
        state.update(b"" if self.held_out is None else self.held_out.digest().encode())
        return state.hexdigest()

    @property
    def mixed(self) -> bool:
        """True where both kinds of label occur."""
        return bool(len(np.unique(self.labels)) > 1)


def normalised(text: str) -> str:
    """Return a query's text without what does not make it another query."""
    return " ".join(text.lower().split())


def fold_of(texts: Sequence[str], folds: int, seed: int) -> NDArray[np.int64]:
    """Assign queries to folds by a hash of their text, so that queries of one text share a fold.

    Examples
    --------
    >>> fold = fold_of(["what is a mean", "what is a mean", "sort rows"], 3, seed=0)
    >>> bool(fold[0] == fold[1])
    True
    """
    return np.array([int(seeds.key(seed, "teacher/fold", normalised(text))[0]) % folds for text in texts], np.int64)


class TrainedCrossEncoder(NetworkJudge[TrainedOptions]):
    """One fold's cross-encoder: trained when first needed, kept in ``models`` under its fingerprint.

    Parameters
    ----------
    options
        How it is made.
    models
        Folder where trained models are kept.
    pairs
        Training pairs.
    seed
        Of the run.
    """

    def __init__(self, options: TrainedOptions, models: Path, pairs: Pairs, seed: int) -> None:
        self.options, self.models, self._pairs, self._seed = options, models, pairs, seed
        settings = options.model_dump_json(include=set(TrainedOptions.model_fields))
        parts = (_DESIGN, settings, MINILM_SHA256, str(seed), resolve_precision(options.precision), pairs.digest())
        self.fingerprint = hash_text("".join(parts))
        self._called(pairs.fold)

    def _called(self, fold: int | None) -> None:
        self.path = self.models / f"teacher-{self.fingerprint}"
        self.name = f"cross-encoder {self.options.base}, layers {self.options.layers}"
        self.name += "" if fold is None else f", fold {fold}"
        self.described = f"the cross-encoder in {self.path}"

    @property
    def _untrained(self) -> bool:
        return not self.path.is_dir()

    def __getstate__(self) -> dict[str, Any]:
        """Leave the training pairs behind as well."""
        return super().__getstate__() | {"_pairs": None}

    def describe(self) -> dict[str, Any]:
        """Return also what the held-out pairs said (None once the model's folder is gone)."""
        record = self.path / _RECORD
        training = json.loads(record.read_text(encoding="utf-8")) if record.exists() else None
        return super().describe() | {"path": str(self.path), "training": training}

    def _load(self) -> Any:
        with LOADING:
            if self._model is None:
                if not self.path.is_dir():
                    self._train()
                self._model = for_threads(_cross_encoder(self.path, self.options))
            return self._model

    def _train(self) -> None:
        import torch
        from safetensors.torch import save_file

        if not self._pairs.mixed:
            raise AnmiError(
                "the cross-encoder has only one kind of training pair, positives or negatives: every candidate is "
                "doubtful, so raise denoising.cross_encoder.doubtful_ratio (doubtful_probability where there is other "
                "evidence) or denoising.depth"
            )
        torch.manual_seed(self._seed)
        model = untrained(self.options)
        self.models.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.models, prefix=".teacher-", ignore_cleanup_errors=True) as scratch:
            folder = Path(scratch, "model")
            folder.mkdir()
            with quiet():
                record = self._fit(model, scratch)
                model[0].save(str(folder))
                save_file(model[1].state_dict(), folder / _HEAD)
            (folder / _RECORD).write_text(json.dumps(record), encoding="utf-8")
            try:
                folder.rename(self.path)
            except OSError as error:
                # Another process may have been faster; its model is the same.
                if not self.path.is_dir():
                    raise AnmiError(f"the cross-encoder could not be saved to {self.path}: {error}") from error

    def _fit(self, model: Any, scratch: str) -> dict[str, float | int | None]:
        """Train the model in place up to its best state on the held-out pairs."""
        import torch
        from datasets import Dataset
        from sentence_transformers.cross_encoder import CrossEncoderTrainer, CrossEncoderTrainingArguments
        from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss
        from transformers import PrinterCallback

        from anmi.judging.early_stop import EarlyStop

        pairs, options = self._pairs, self.options
        arguments = CrossEncoderTrainingArguments(
            output_dir=scratch,
            num_train_epochs=options.epochs,
            per_device_train_batch_size=options.batch_size,
            learning_rate=options.learning_rate,
            warmup_steps=0.1,
            bf16=resolve_precision(options.precision) == "bfloat16",
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
        loss = BinaryCrossEntropyLoss(model, pos_weight=torch.tensor((1 - share) / share))
        trainer = CrossEncoderTrainer(model=model, args=arguments, train_dataset=data, loss=loss)
        trainer.remove_callback(PrinterCallback)
        held = pairs.held_out
        if held is None:
            trainer.train()
            return {"auc_before": None, "auc_after": None, "steps": trainer.state.global_step}
        unseen = list(zip(held.queries, held.documents, strict=True))
        steps = -(-len(pairs.queries) // options.batch_size)
        stop = EarlyStop(
            model, lambda: logits(model, unseen, options), held.labels, -(-steps // options.looks), options.patience
        )
        trainer.add_callback(stop)
        trainer.train()
        record = stop.restore()
        if not record["best_step"]:
            log.warning(
                "The cross-encoder did not get better at its %d held-out pairs by training (AUC %.3f before); "
                "it is used untrained",
                len(unseen),
                stop.before,
            )
        return {**record}


def _cross_encoder(path: Path, options: TrainedOptions) -> Any:
    """Put our head on MiniLM, or on one that was trained from it; see :class:`SegmentSimilarity`."""
    from safetensors.torch import load_file
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.cross_encoder import CrossEncoder

    from anmi.judging.early_stop import SegmentSimilarity

    with LOADING, quiet():
        body = Transformer(
            str(path),
            max_seq_length=options.max_length,
            config_kwargs={"num_hidden_layers": options.layers, "num_labels": 1},
        )
        head = SegmentSimilarity(body.get_embedding_dimension())
        if (path / _HEAD).exists():
            head.load_state_dict(load_file(path / _HEAD))
        return CrossEncoder(modules=[body, head], device=device(), num_labels=1)


def untrained(options: TrainedOptions) -> Any:
    """Return the CrossEncoder that a training begins with: the lower layers of MiniLM, and our head."""
    verify(minilm_folder() / "model.safetensors", MINILM_SHA256)
    return _cross_encoder(minilm_folder(), options)


def training_pairs(examples: pd.DataFrame, fold: int, options: TrainedOptions, seed: int) -> Pairs:
    """Take the training pairs of all folds but one, up to the budget, whole queries at a time.

    Parameters
    ----------
    examples
        ``query, document, label, fold, row`` with ``row`` numbering the queries.
    fold
        The fold that must not be seen, neither in training nor held out.
    options
        The budget and the share that is held out, by a hash of the query's text; nothing is where either part would
        lack positives or negatives.
    seed
        Of the run.
    """
    seen = examples[examples.fold != fold]
    if seen.empty:
        raise AnmiError(
            f"the cross-encoder has no queries to learn from outside fold {fold}: {examples.row.nunique()} are too "
            "few; lower denoising.cross_encoder.folds or give more training queries"
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
    limit = int(options.held_out * 2**64)
    unseen = {text for text in set(kept["query"]) if _hash(seed, text) < limit}
    aside = kept["query"].isin(unseen).to_numpy()
    # What says when to stop is told apart, so a chance counts as what is the likelier.
    learnt, held = _pairs(kept[~aside]), _pairs(kept[aside].assign(label=kept.label[aside] >= 0.5))
    if not (learnt.mixed and held.mixed):
        return replace(_pairs(kept), fold=fold)
    return replace(learnt, held_out=held, fold=fold)


def _hash(seed: int, text: str) -> int:
    return int(seeds.key(seed, "teacher/held_out", normalised(text))[0])


def _pairs(table: pd.DataFrame) -> Pairs:
    return Pairs(table["query"].tolist(), table.document.tolist(), table.label.to_numpy(np.float32))
