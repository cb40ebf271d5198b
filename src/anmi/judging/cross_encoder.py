"""A cross-encoder judges (query, document) pairs: a ready-made one, or one trained on own labels.

The latter is cross-fitted: each of K models learns from the queries of all folds but one and scores
the queries of that fold. Some of the queries that a model may see are held out of its training and
say when to stop.
"""

from __future__ import annotations

import hashlib
import json
import logging
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field
from tqdm import tqdm

from anmi import seeds
from anmi.engine.threads import for_threads
from anmi.errors import AnmiError, enough_memory
from anmi.fingerprint import hash_text
from anmi.judging.calibration import fit_platt
from anmi.ragged import Float32s, Int64s
from anmi.retrieval.encoders import fingerprint, short_name
from anmi.retrieval.kinds import (
    autocast,
    default_tokens_per_pass,
    device,
    estimated_lengths,
    in_float32,
    pad_by_end,
    passes,
    quiet,
    resolve_precision,
    texts_per_block,
)
from anmi.retrieval.model_folder import (
    LOADING,
    MINILM_SHA256,
    check_memory,
    check_text_model,
    checked_model,
    loading,
    minilm_folder,
    verify,
)
from anmi.store import Store

log = logging.getLogger(__name__)
# The model that is trained on the collection's own labels.
TRAINED: Final = "minilm"
SEPARATOR: Final = "\x1f"
# Pairs per commit to the store, and per item of an engine.
_PAIRS_PER_COMMIT: Final = 256
_HEAD: Final = "head.safetensors"
_RECORD: Final = "training.json"
# By which logits are scaled, at least.
_LOWEST_SLOPE: Final = 1e-3
# Part of the fingerprint: a change of architecture or training must not meet old judgments.
_DESIGN: Final = "segment-similarity-3"


class CrossEncoderOptions(BaseModel):
    """Which model judges pairs, how it is trained, and how many folds it is cross-fitted over."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str | Annotated[tuple[str, ...], Field(min_length=1)] = TRAINED
    probability: Literal["corrected", "sigmoid"] = "corrected"
    batch_size: int = Field(32, ge=2)
    max_length: int = Field(128, ge=16, le=8192)
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    layers: int = Field(6, ge=1, le=6)
    max_pairs: int = Field(480, ge=16)
    epochs: int = Field(1, ge=1, le=20)
    learning_rate: float = Field(5e-5, gt=0)
    held_out: float = Field(0.25, ge=0, lt=0.9)
    looks: int = Field(3, ge=1, le=50)
    folds: int = Field(3, ge=2, le=20)

    @property
    def models(self) -> tuple[str, ...]:
        """The models from small to large, of which there is often one."""
        return (self.model,) if isinstance(self.model, str) else self.model


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


def checked(values: Any, count: int, judge: str) -> Float32s:
    """Return a judge's values as float32 with ``count`` rows, or say what is wrong with them.

    Examples
    --------
    >>> checked([0.5, float("nan")], 2, 'cross-encoder "m"')
    Traceback (most recent call last):
    anmi.errors.AnmiError: cross-encoder "m" gave 1 of 2 scores that are no numbers; its weights \
are damaged or it overflows: try precision float32 or another model
    """
    scores: Float32s = np.asarray(values, np.float32)
    rows = len(scores) if scores.ndim else 0
    if rows != count:
        raise AnmiError(
            f"{judge} gave {rows} scores for {count} pairs; it cannot be used as a judge"
        )
    broken = int((~np.isfinite(scores.reshape(count, -1))).any(axis=1).sum()) if count else 0
    if broken:
        raise AnmiError(
            f"{judge} gave {broken} of {count} scores that are no numbers; its weights are damaged"
            " or it overflows: try precision float32 or another model"
        )
    return scores


@enough_memory(
    "judging pairs",
    "lower denoising.cross_encoder.batch_size or max_length, or give a smaller model",
)
def logits(
    model: Any,
    pairs: Sequence[tuple[str, str]],
    options: CrossEncoderOptions,
) -> NDArray[Any]:
    """Run a CrossEncoder without its activation, [n]; it batches by length."""
    import torch

    lengths = estimated_lengths([" ".join(pair) for pair in pairs], model.max_seq_length)
    groups = passes(lengths, default_tokens_per_pass(model), texts_per_block(model))
    with torch.inference_mode(), autocast(model, options.precision):
        scores = [
            model.predict(
                [pairs[number] for number in group],
                batch_size=len(group),
                show_progress_bar=False,
                activation_fn=torch.nn.Identity(),
            )
            for group in groups
        ]
    joined = np.concatenate(scores)
    # With too few scores for its pairs there is no order; the caller says so.
    if len(joined) != len(pairs):
        return joined
    return joined[np.argsort(np.concatenate(groups), kind="stable")]


def open_cross_encoder(name: str, max_length: int) -> Any:
    """Open a ready-made cross-encoder.

    Raises
    ------
    AnmiError
        It cannot be loaded, is more than data, has another number of labels, or has no scoring head
        (a bi-encoder, whose fresh random head would judge at random).
    """
    from sentence_transformers.cross_encoder import CrossEncoder

    with loading(f'cross-encoder "{name}"', "give `minilm`, a folder that holds a cross-encoder"):
        folder = checked_model(name)
        check_text_model(folder, name)
        check_memory(folder, name, device())
        model = CrossEncoder(str(folder), device=device(), trust_remote_code=False)
        model.max_seq_length = min(max_length, model.max_seq_length or max_length)
        network = type(model.model).__name__
        if network.endswith("ForSequenceClassification") and network not in (
            model.model.config.architectures or []
        ):
            raise AnmiError(
                f'"{name}" has no scoring head, so it is no cross-encoder; give another one'
            )
        in_float32(model)
    if model.num_labels != 1:
        raise AnmiError(
            f'cross-encoder "{name}" gives {model.num_labels} values for a pair where 1 is needed;'
            " give one that was trained to score"
        )
    pad_by_end(model)
    # Decoders look for the last token that is not padding.
    config: Any = getattr(model.model, "config", None)
    if getattr(config, "pad_token_id", 0) is None:
        config.pad_token_id = model.tokenizer.pad_token_id
    return model


class CrossEncoderJudge:
    """A ready-made cross-encoder scores (query, document) pairs by its logits.

    Attributes
    ----------
    fingerprint
        A hash of everything that changes a score.
    name, described
        What people call it, in the store and in errors.
    """

    fingerprint: str
    name: str
    described: str
    _model: Any = None
    _pairs: Pairs | None = None

    def __init__(self, options: CrossEncoderOptions) -> None:
        self.options = options
        self.name = short_name(options.models[0])
        self.described = f'cross-encoder "{options.models[0]}"'
        self.fingerprint = fingerprint(self._load(), resolve_precision(options.precision))

    def _load(self) -> Any:
        """Return the CrossEncoder, ready to be asked by several threads."""
        if self._model is None:
            self._model = for_threads(
                open_cross_encoder(self.options.models[0], self.options.max_length)
            )
        return self._model

    def score(
        self,
        pairs: Sequence[str],
        store: Store,
        bar: tqdm[Any] | None = None,
    ) -> Float32s:
        """Return the logits of n pairs made by :func:`join`, float32 [n], or those in the store.

        Raises
        ------
        AnmiError
            The model returned too few scores, or something that is no number.
        """
        if not len(pairs):
            return np.zeros(0, np.float32)
        if store.missing(self.fingerprint, pairs):
            # Here, before several threads or processes need it.
            self._load()
        return store.vectors(
            self.fingerprint,
            pairs,
            self._compute,
            _PAIRS_PER_COMMIT,
            bar,
            self.name,
            store.run,
        )[:, 0]

    def __getstate__(self) -> dict[str, Any]:
        """Leave behind the network, which another process opens from its folder, and the pairs."""
        return {**vars(self), "_model": None, "_pairs": None}

    def _compute(self, pairs: list[str]) -> Float32s:
        values = logits(self._load(), [split(pair) for pair in pairs], self.options)
        return checked(values, len(pairs), self.described).reshape(-1, 1)

    def describe(self) -> dict[str, Any]:
        """Return fingerprint, place, and what ran it."""
        precision = resolve_precision(self.options.precision)
        return {
            "fingerprint": self.fingerprint,
            "path": self.options.models[0],
            "computed_by": precision,
        }


@dataclass(frozen=True)
class Pairs:
    """Texts and labels, from 0 to 1 for relevant, and the pairs that are held out of training."""

    queries: list[str]
    documents: list[str]
    labels: Float32s
    held_out: Pairs | None = None

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
        return len(np.unique(self.labels)) > 1


def normalised(text: str) -> str:
    """Return a query's text without what does not make it another query."""
    return " ".join(text.lower().split())


def fold_of(texts: Sequence[str], folds: int, seed: int) -> Int64s:
    """Assign queries to folds by a hash of their text, so that queries of one text share a fold.

    Examples
    --------
    >>> fold = fold_of(["what is a mean", "what is a mean", "sort rows"], 3, seed=0)
    >>> bool(fold[0] == fold[1])
    True
    """
    keys = [int(seeds.key(seed, "teacher/fold", normalised(text))[0]) for text in texts]
    return np.array([key % folds for key in keys], np.int64)


class TrainedCrossEncoder(CrossEncoderJudge):
    """One fold's cross-encoder, trained when first needed and kept under its fingerprint.

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

    def __init__(
        self,
        options: CrossEncoderOptions,
        models: Path,
        pairs: Pairs,
        seed: int,
    ) -> None:
        self.options = options
        self.models = models
        self._pairs = pairs
        self._seed = seed
        # On the folds it depends through its pairs.
        settings = options.model_dump_json(exclude={"folds", "probability"})
        parts = (
            _DESIGN,
            settings,
            MINILM_SHA256,
            str(seed),
            resolve_precision(options.precision),
            pairs.digest(),
        )
        self.fingerprint = hash_text("".join(parts))
        self.path = models / f"teacher-{self.fingerprint}"
        self.name = f"cross-encoder {options.models[0]}, layers {options.layers}"
        self.described = f"the cross-encoder in {self.path}"

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

        pairs = self._pairs
        if pairs is None or not pairs.mixed:
            raise AnmiError(
                "the cross-encoder has only one kind of training pair, positives or negatives:"
                " every candidate is doubtful, so raise denoising.depth"
            )
        torch.manual_seed(self._seed)
        verify(minilm_folder() / "model.safetensors", MINILM_SHA256)
        model = _cross_encoder(minilm_folder(), self.options)
        self.models.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(
            dir=self.models, prefix=".teacher-", ignore_cleanup_errors=True
        ) as scratch:
            folder = Path(scratch, "model")
            folder.mkdir()
            with quiet():
                record = self._fit(model, pairs, scratch)
                self._calibrate(model, pairs.held_out or pairs)
                model[0].save(str(folder))
                save_file(model[1].state_dict(), folder / _HEAD)
            (folder / _RECORD).write_text(json.dumps(record), encoding="utf-8")
            try:
                folder.rename(self.path)
            except OSError as error:
                # Another process may have been faster; its model is the same.
                if not self.path.is_dir():
                    raise AnmiError(
                        f"the cross-encoder could not be saved to {self.path}: {error}"
                    ) from error

    def _fit(
        self,
        model: Any,
        pairs: Pairs,
        scratch: str,
    ) -> dict[str, float | int | None]:
        """Train the model in place up to its best state on the held-out pairs."""
        import torch
        from datasets import Dataset
        from sentence_transformers.cross_encoder import (
            CrossEncoderTrainer,
            CrossEncoderTrainingArguments,
        )
        from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss
        from transformers import PrinterCallback

        options = self.options
        data = Dataset.from_dict(
            {"query": pairs.queries, "document": pairs.documents, "label": pairs.labels.tolist()}
        )
        share = float(pairs.labels.mean())
        loss = BinaryCrossEntropyLoss(model, pos_weight=torch.tensor((1 - share) / share))
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
        trainer = CrossEncoderTrainer(model=model, args=arguments, train_dataset=data, loss=loss)
        trainer.remove_callback(PrinterCallback)
        if pairs.held_out is None:
            trainer.train()
            return {"auc_before": None, "auc_after": None, "steps": trainer.state.global_step}
        return self._train_to_best(trainer, model, pairs, pairs.held_out)

    def _train_to_best(
        self,
        trainer: Any,
        model: Any,
        pairs: Pairs,
        held_out: Pairs,
    ) -> dict[str, float | int | None]:
        from anmi.judging.early_stop import EarlyStop

        texts = list(zip(held_out.queries, held_out.documents, strict=True))
        steps = -(-len(pairs.queries) // self.options.batch_size)
        stop = EarlyStop(
            model,
            lambda: logits(model, texts, self.options),
            held_out.labels,
            -(-steps // self.options.looks),
        )
        trainer.add_callback(stop)
        trainer.train()
        record = stop.restore()
        if not record["best_step"]:
            log.warning(
                "training did not improve the cross-encoder on its %d held-out pairs (AUC %.3f"
                " before), so it is used untrained",
                len(texts),
                stop.before,
            )
        return {**record}

    def _calibrate(self, model: Any, pairs: Pairs) -> None:
        """Scale the head, so that the sigmoid of a logit is a chance at training's share."""
        import torch

        texts = list(zip(pairs.queries, pairs.documents, strict=True))
        platt = fit_platt(logits(model, texts, self.options), pairs.labels >= 0.5)
        # The order of the scores stays.
        slope = max(platt.slope, _LOWEST_SLOPE)
        head = model[1]
        with torch.no_grad():
            head.scale.mul_(slope)
            head.bias.mul_(slope).add_(platt.intercept)


def _cross_encoder(path: Path, options: CrossEncoderOptions) -> Any:
    """Put :class:`SegmentSimilarity` on MiniLM, or on one that was trained from it."""
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


def training_pairs(
    examples: pd.DataFrame,
    fold: int,
    options: CrossEncoderOptions,
    seed: int,
) -> Pairs:
    """Take the training pairs of all folds but one, up to the budget, whole queries at a time.

    Parameters
    ----------
    examples
        ``query, document, label, fold, row`` with ``row`` numbering the queries.
    fold
        The fold that must not be seen, neither in training nor held out.
    options
        The budget and the share that is held out, by a hash of the query's text; nothing is where
        either part would lack positives or negatives.
    seed
        Of the run.
    """
    others = examples[examples.fold != fold]
    shuffled = seeds.stream(seed, "teacher/queries", str(fold)).permutation(others.row.unique())
    position = others.row.map(pd.Series(np.arange(len(shuffled)), index=shuffled))
    ordered = others.assign(position=position).sort_values(
        ["position", "label"],
        ascending=[True, False],
        kind="stable",
    )
    fits = ordered.groupby("position", sort=False).size().cumsum() <= options.max_pairs
    chosen = ordered[ordered.position.map(fits)]
    if chosen.empty:
        chosen = ordered.head(options.max_pairs)
    keys = {
        text: int(seeds.key(seed, "teacher/held_out", normalised(text))[0])
        for text in chosen["query"].unique()
    }
    is_aside = (chosen["query"].map(keys) < int(options.held_out * 2**64)).to_numpy()
    learned = _pairs(chosen[~is_aside])
    # What says when to stop is told apart, so a chance counts as what is the likelier.
    held_out = _pairs(chosen[is_aside].assign(label=chosen.label[is_aside] >= 0.5))
    if not (learned.mixed and held_out.mixed):
        return _pairs(chosen)
    return replace(learned, held_out=held_out)


def _pairs(table: pd.DataFrame) -> Pairs:
    return Pairs(table["query"].tolist(), table.document.tolist(), table.label.to_numpy(np.float32))
