"""Trains a sentence-transformers encoder on mined rows."""

from __future__ import annotations

import logging
import math
import shutil
import tempfile
import time
from collections.abc import Callable, Container, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import torch
from datasets import Dataset
from filelock import FileLock, Timeout
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from torch.nn.functional import normalize
from transformers.trainer_callback import PrinterCallback

from anmi.errors import AnmiError, installed
from anmi.files import aside, room
from anmi.ragged import Float32s
from anmi.retrieval import kinds
from anmi.retrieval.encoders import Encoder
from anmi.retrieval.tokens import Tokeniser
from anmi.training import sampling
from anmi.training.batch import Batcher, Frozen, NegativeSampler, Row, read_rows
from anmi.training.curriculum import Curriculum, build_curriculum
from anmi.training.loop import (
    Bar,
    CheckpointPlan,
    Loop,
    Recorder,
    RowNumbers,
    build_optimizer,
    training_arguments,
)
from anmi.training.losses import build_loss
from anmi.training.losses.common import Loss
from anmi.training.mixed import Stock
from anmi.training.objective import ContrastiveObjective, TokenMeans
from anmi.training.options import START, AdapterOptions, Alpha, TrainingOptions
from anmi.training.parts import FixedTemperature, HansOptions

logger = logging.getLogger(__name__)
# By how much numbers of a vector differ that was computed twice.
_TOLERANCE: Final = 1e-6
# Rows and pseudo-queries whose texts tell how long a training takes, and what a step costs in
# encodings of its texts.
_SAMPLE: Final = 8
_PASSES: Final = 3
# Fewer take a minute at most.
_FEW_TEXTS: Final = 500
Weights = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class TrainingResult:
    """What training gave.

    Attributes
    ----------
    model
        The trained encoder: the object that was passed in, or the two that were made from it.
    log
        ``step, epoch, loss, temperature, learning_rate, dev_ndcg@10``, one row a step; the dev
        metric is NaN except in the last step of an epoch, or as often as ``dev_every`` says.
    summary
        Plain values about the run: rows, steps, seconds, alpha, precision, what type weights are
        saved as, how far they moved.
    drawn
        ``query_id, document_id, count``: how often each document was drawn as a negative of a
        query, for at most 2,000 queries chosen by hash; empty where a row has the same negatives in
        every step.
    neighbours
        ``step, query_id, rank, document_id, uri, own_uri, usable``: the five nearest documents of
        at most 20 training queries each time the index of latent negatives was made; empty where
        there is none.
    """

    model: SentenceTransformer
    log: pd.DataFrame
    summary: dict[str, Any]
    drawn: pd.DataFrame
    neighbours: pd.DataFrame


def train(
    rows: pd.DataFrame,
    *,
    encoder: SentenceTransformer,
    options: TrainingOptions,
    output: Path | None,
    evaluate_dev: Callable[[SentenceTransformer], float] | None = None,
    choose_alpha: Callable[[Callable[[Alpha], SentenceTransformer]], Alpha] | None = None,
    seed: int,
    checkpoints: CheckpointPlan | None = None,
    stock: Stock | None = None,
    pseudo: sampling.PseudoRows | None = None,
    positives: pd.DataFrame | None = None,
    teacher: Callable[[NegativeSampler], NegativeSampler] | None = None,
    guide: SentenceTransformer | None = None,
    documents: Encoder | None = None,
    dev_loss: Callable[[SentenceTransformer, float], float] | None = None,
) -> TrainingResult:
    """Train ``encoder`` in place, or two copies of it, and save the result.

    Parameters
    ----------
    rows
        One (query, positive) pair a row, with the columns ``query_id, query, positive_id, positive,
        negative_ids, negatives, weights, query_weight, positive_ids``. Negatives are ordered best
        first and may be empty lists; ``positive_ids`` are all documents known to be relevant to the
        query.
    encoder
        Trained on the device where it is, in float32, with its prompts, which are saved with it.
    options
        Settings.
    output
        Folder for the trained model (safetensors), replaced if it exists; None saves nothing.
    evaluate_dev
        Scores a model on the dev queries, larger is better; called at the start and the end of
        every epoch, for the log and for curricula that go by it.
    choose_alpha
        Chooses ``alpha``, see :class:`anmi.training.options.TrainingOptions`, where the options
        leave it open. It is called with a function that returns the encoder at an alpha. None keeps
        the last weights.
    seed
        The same seed gives the same weights on a CPU.
    checkpoints
        Where the library keeps its checkpoints while training, and finds the newest one to go on
        from; None keeps none. A training that went on gives the same weights on a CPU as one that
        was never stopped.
    stock
        What negatives of mixed sources are drawn from; None where the options ask for none.
    pseudo
        Pseudo-queries to train on beside ``rows``, of which there may then be none; None trains on
        ``rows`` alone.
    positives
        ``query_id, document_id, text``: all positives of queries that have more of them than rows;
        see :class:`anmi.training.sampling.InTurn`.
    teacher
        Adds scored documents to the rows of a sampler, for a loss that learns the scores; see
        :class:`anmi.training.sampling.WithCandidates`. Rows then keep their positives.
    guide
        Scores in-batch negatives for ``in_batch_filter: guide``; not trained.
    documents
        The encoder before training, by which documents are encoded where only the queries' side is
        trained: with a store, whose vectors need not be computed. None: without one.
    dev_loss
        Loss of a model on the dev queries at a temperature, for the log, where ``dev_every`` is
        set.

    Raises
    ------
    AnmiError
        Rows are missing or inconsistent, the loss or a gradient became NaN or infinite, memory did
        not suffice, no weight has changed, the encoder has fewer dimensions than are trained, or an
        adapter fits no layer or changed no vector.
    """
    kinds.settle_prompts(encoder)
    loaded_dtype = kinds.in_float32(encoder).saved_as
    options = by_inner_products(options, encoder, options.model_fields_set)
    # In one order, so that how the rows were written down changes no weight.
    rows = rows.sort_values(["query_id", "positive_id"], kind="stable", ignore_index=True)
    encoder = _trainable(encoder, options)
    loss = build_loss(options, encoder.get_embedding_dimension(), seed)
    data = [] if pseudo is not None and rows.empty else _read(rows, options, stock)
    loss.prepare(data)
    setup = _Training(
        encoder, loss, options, seed, data, stock, pseudo, positives, teacher, guide, documents
    )
    start_weights = _copied(encoder)
    with kinds.quieter("sentence_transformers", "accelerate", "transformers"), ExitStack() as stack:
        place = checkpoints.of(rows, encoder, options, seed) if checkpoints else None
        folder = _locked(stack, place) if place else None
        scratch = stack.enter_context(tempfile.TemporaryDirectory(dir=room("anmi-training-")))
        recorder = setup.recorder(evaluate_dev, dev_loss, makes_checkpoints=folder is not None)
        adapter = options.adapter and Adapter.of(encoder, options.adapter, seed)
        loop = setup.loop(folder or Path(scratch), recorder)
        if setup.steps:
            setup.announce()
            loop.run(options, folder)
    if adapter:
        adapter.merge()
    log = recorder.log()
    alpha, weight_change = _settle(encoder, start_weights, options.alpha, choose_alpha)
    unchanged_reason = setup.why_unchanged(start_weights, alpha, log, moved=weight_change != 0)
    # A folder whose weights have several types is saved in float32.
    saved_as = options.save_dtype or (loaded_dtype if hasattr(torch, loaded_dtype) else "float32")
    summary = setup.summary(loop, log, alpha, weight_change, unchanged_reason, saved_as)
    _save(encoder, output, saved_as)
    if adapter and unchanged_reason is None:
        adapter.check_vectors(saved_as)
    if folder:
        shutil.rmtree(folder, ignore_errors=True)
    return TrainingResult(encoder, log, summary, recorder.drawn.table(), recorder.neighbours())


@dataclass(frozen=True)
class _Training:
    """What a training is made of; see :func:`train`."""

    encoder: SentenceTransformer
    loss: Loss
    options: TrainingOptions
    seed: int
    rows: list[Row]
    stock: Stock | None
    pseudo: sampling.PseudoRows | None
    positives: pd.DataFrame | None
    teacher: Callable[[NegativeSampler], NegativeSampler] | None
    guide: SentenceTransformer | None
    documents: Encoder | None

    @cached_property
    def batches(self) -> sampling.OneKindBatches:
        """Which rows and pseudo-queries stand in a batch."""
        return sampling.OneKindBatches.of(len(self.rows), self.pseudo, self.options, self.seed)

    @property
    def steps(self) -> int:
        """Steps of all epochs."""
        return self.options.epochs * len(self.batches)

    def announce(self) -> None:
        """Say how long a network trains on a processor, by what some texts take to encode."""
        limit = self.options.negatives
        text_count = 2 * (len(self.rows) + len(self.pseudo or ()))
        text_count += sum(len(row.negatives[:limit]) for row in self.rows)
        text_count *= self.options.epochs
        on_processor = self.encoder.device.type == "cpu"
        if kinds.is_static(self.encoder) or not on_processor or text_count < _FEW_TEXTS:
            return
        rows = self.rows[:_SAMPLE]
        if self.pseudo:
            rows = [*rows, *self.pseudo.rows(np.arange(min(_SAMPLE, len(self.pseudo))), 0)]
        texts = [text for row in rows for text in (row.query, row.positive)]
        self.encoder.encode_document(texts[:1])
        start = time.perf_counter()
        self.encoder.encode_document(texts)
        seconds_per_text = (time.perf_counter() - start) / len(texts)
        minutes = _PASSES * seconds_per_text * text_count / 60
        if minutes >= 1:
            logger.info(
                "Training this network takes about %.0f min on this processor;"
                " `--params encoder=corpus,search.parts=bm25+network` searches by one untrained",
                minutes,
            )

    @cached_property
    def precision(self) -> str:
        """Type in which the encoder multiplies matrices."""
        return kinds.training_precision(self.encoder, self.options.precision)

    def recorder(
        self,
        evaluate_dev: Callable[[SentenceTransformer], float] | None,
        dev_loss: Callable[[SentenceTransformer, float], float] | None,
        *,
        makes_checkpoints: bool,
    ) -> Recorder:
        """Return what records the steps and tells the curriculum of them."""
        options = self.options
        curriculum = build_curriculum(
            options.curriculum,
            self.steps,
            self.seed,
            options.negatives,
            mix=getattr(options.sources, "mix", None),
            epochs=options.epochs,
            dev=evaluate_dev is not None,
        )
        recorder = Recorder(
            self.loss.to(self.encoder.device),
            curriculum,
            evaluate_dev,
            checkpoint_minutes=options.checkpoint_minutes if makes_checkpoints else math.inf,
            dev_every=options.dev_every,
            dev_loss=dev_loss if options.dev_every else None,
        )
        counted = [row.query_id for row in self.rows] if options.draws else []
        recorder.drawn = sampling.DrawnNegatives(counted, self.seed)
        return recorder

    def loop(self, folder: Path, recorder: Recorder) -> Loop:
        """Return the library's trainer with our objective, optimizer and batches."""
        encoder = self.encoder
        options = self.options
        objective = self._objective()
        arguments = training_arguments(options, encoder, self.seed, folder, self.steps)
        optimizer = build_optimizer(encoder, self.loss, options, arguments.learning_rate)
        row_count = len(self.rows) + len(self.pseudo or ())
        loop = Loop(
            model=encoder,
            args=arguments,
            train_dataset=Dataset.from_dict({"row": list(range(row_count))}),
            loss=objective,
            data_collator=RowNumbers(),
            optimizers=(optimizer, None),
            callbacks=[recorder, Bar()],
        )
        loop.remove_callback(PrinterCallback)
        if self.precision == "float16":
            loop.accelerator.scaler = torch.amp.GradScaler(encoder.device.type)
        # One pass over all texts of a batch where nothing is padded.
        tokens_per_pass = None
        if not kinds.is_static(encoder):
            tokens_per_pass = options.tokens_per_pass or kinds.default_tokens_per_pass(encoder)
        loop.batcher = Batcher(
            Tokeniser(encoder, options.max_length),
            options.in_batch,
            tokens_per_pass=tokens_per_pass,
            guide=self.guide and Frozen.guide(self.guide),
            frozen=self._frozen(),
            requested_tokens_per_pass=options.tokens_per_pass,
        )
        loop.options = options
        loop.recorder = recorder
        recorder.objective = objective
        if self.pseudo:
            batches = self.batches
            batches.current_epoch = lambda: loop.state.global_step // len(batches)
            arguments.batch_sampler = lambda *_, **__: batches
        recorder.sampler = self._sampler(recorder.curriculum)
        return loop

    def _frozen(self) -> Frozen | None:
        """Return what encodes documents where their side is not trained."""
        if self.options.encoders != "query_only":
            return None
        documents = self.documents or Encoder.of(self.encoder)
        return Frozen(documents.encode)

    def _objective(self) -> ContrastiveObjective:
        encoder = self.encoder
        options = self.options
        # CUDA raises when memory runs out; on the CPU the system kills the process.
        on_processor = encoder.device.type != "cuda"
        return ContrastiveObjective(
            encoder,
            self.loss,
            None if self.precision == "float32" else getattr(torch, self.precision),
            recompute=on_processor if options.recompute is None else options.recompute,
            margin=getattr(options.sources, "margin", None),
            adversary=getattr(options.sources, "adversary", 0.0),
            sparsity=options.sparsity if kinds.is_sparse(encoder) else None,
            by_dot=kinds.is_dot(encoder),
            filter_margin=getattr(options.in_batch_filter, "margin", None),
            dimensions=options.dimensions,
        )

    def _sampler(self, curriculum: Curriculum) -> NegativeSampler:
        """Return what gives a step its rows."""
        sampler = NegativeSampler()
        if self.rows:
            sampler = sampling.build_sampler(
                self.rows,
                self.options,
                curriculum,
                self.seed,
                stock=self.stock,
                dimension=self.encoder.get_embedding_dimension() or 0,
                loss=self.loss,
                positives=self.positives if self.teacher is None else None,
                steps_per_epoch=len(self.batches),
            )
        if self.pseudo:
            sampler = sampling.WithPseudoQueries(
                sampler, len(self.rows), self.pseudo, len(self.batches)
            )
        return sampler if self.teacher is None else self.teacher(sampler)

    def summary(
        self,
        loop: Loop,
        log: pd.DataFrame,
        alpha: Alpha,
        weight_change: float,
        unchanged_reason: str | None,
        saved_as: str,
    ) -> dict[str, Any]:
        """Return plain values about the training."""
        options = self.options
        recorder = loop.recorder
        mined_weights = [weight for row in self.rows for weight in row.weights[: options.negatives]]
        return {
            "rows": len(self.rows),
            "pseudo_queries": len(self.pseudo or ()),
            "mined_negatives": sum(weight > 0 for weight in mined_weights),
            "steps": len(log),
            "epochs": options.epochs,
            "alpha": alpha,
            "final_loss": float(log["loss"].iloc[-1]) if self.steps else None,
            "final_temperature": (
                float(log["temperature"].iloc[-1]) if "temperature" in log else None
            ),
            "learning_rate": loop.args.learning_rate,
            "precision": self.precision,
            "recompute": loop.loss.recompute,
            "tokens_per_pass": loop.batcher.tokens_per_pass,
            "weights_saved_as": saved_as,
            "device": str(self.encoder.device),
            "prompts": kinds.prompts_of(self.encoder),
            "relative_weight_change": weight_change,
            "unchanged": unchanged_reason,
            "resumed_from_step": recorder.resumed_from,
            "seconds": round(recorder.seconds, 2),
            "transitions": recorder.curriculum.transitions,
            "seed": self.seed,
        }

    def why_unchanged(
        self, start_weights: Weights, alpha: Alpha, log: pd.DataFrame, *, moved: bool
    ) -> str | None:
        """Return why the encoder is as before, None where it is not.

        Raises
        ------
        AnmiError
            Training should have changed a weight, or a layer, and did not.
        """
        if not moved:
            reason = self._why_unmoved(log)
        elif alpha == START:
            by_dev = self.options.alpha is None
            reason = "the start was better on dev queries" if by_dev else "alpha is set to start"
        else:
            _check_layers(self.encoder, start_weights)
            return None
        logger.warning("Training changed nothing: %s", reason)
        return reason

    def _why_unmoved(self, log: pd.DataFrame) -> str:
        if "grad_norm" in log and (log["grad_norm"] > 0).any():
            raise AnmiError(
                f"Training changed no weight of the encoder, as steps of"
                f" {log['learning_rate'].max():g} are lost in rounding: raise"
                " training.options.learning_rate"
            )
        if self.pseudo is None or log["loss"].any():
            raise AnmiError(
                "Training changed no weight of the encoder: are its parameters frozen, do all rows"
                " weigh 0, or does no row have a negative (batch size 1, or a handful of documents,"
                " without mined negatives)?"
            )
        if len(self.pseudo):
            return "documents are so few, or so alike, that none is a negative of another"
        return "there is no pseudo-query to train on"


@dataclass(frozen=True)
class Adapter:
    """Low-rank weights that are trained in the place of an encoder's own, which are frozen.

    Attributes
    ----------
    encoder
        Holds them until they are merged.
    tuner
        Of peft.
    vectors
        What the encoder gave before.
    """

    encoder: SentenceTransformer
    tuner: Any
    vectors: Float32s

    @staticmethod
    def of(encoder: SentenceTransformer, options: AdapterOptions, seed: int) -> Adapter:
        """Put an adapter into the linear layers of an encoder.

        Raises
        ------
        AnmiError
            There are no such layers, or peft is not installed.
        """
        if kinds.is_static(encoder):
            raise AnmiError(
                "training.options.adapter adapts layers of a network, and the encoder is a table:"
                " leave it out"
            )
        peft = installed("peft", "training.options.adapter", "adapter")
        layers = [
            f".{name}"
            for name, module in encoder.named_modules()
            if isinstance(module, torch.nn.Linear)
        ]
        layer_names = sorted({layer.rpartition(".")[2] for layer in layers})
        for module_name in options.modules or ():
            if not any(layer.endswith(f".{module_name}") for layer in layers):
                raise AnmiError(
                    f'training.options.adapter.modules names "{module_name}", and no linear layer'
                    f" of the encoder is called so: choose among {', '.join(layer_names)}"
                )
        config = peft.LoraConfig(
            r=options.rank,
            lora_alpha=options.alpha,
            target_modules=list(options.modules or layer_names),
        )
        vectors = _probed(encoder)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            tuner = peft.LoraModel(encoder, {"default": config}, "default")
        return Adapter(encoder, tuner, vectors)

    def merge(self) -> None:
        """Add the adapter to the weights, and leave those that it was for trainable."""
        self.tuner.merge_and_unload()
        for layer in self.tuner.targeted_module_names:
            self.encoder.get_submodule(layer).weight.requires_grad_()

    def check_vectors(self, dtype: str) -> None:
        """Refuse a merged encoder that gives the vectors of before."""
        if np.allclose(self.vectors, _probed(self.encoder), rtol=0, atol=_TOLERANCE):
            raise AnmiError(
                f"the adapter changed no vector of the encoder, whose weights are saved in {dtype}:"
                " raise training.options.learning_rate, or set training.options.save_dtype=float32"
            )


def _probed(encoder: SentenceTransformer) -> Float32s:
    settings = kinds.EncoderSettings(precision="float32")
    return Encoder.of(encoder, settings).embed(["Every weight takes part in a vector."], "query")


def by_inner_products(
    options: TrainingOptions, encoder: SentenceTransformer, chosen: Container[str]
) -> TrainingOptions:
    """Return options with a temperature of 1 for an encoder that compares by inner products.

    A temperature that was ``chosen`` stays. 1 is what sentence-transformers take beside
    ``dot_score``; .07 is for cosines.

    Raises
    ------
    AnmiError
        An adversary would move vectors that are no unit vectors.
    """
    if not kinds.is_dot(encoder):
        return options
    if getattr(options.sources, "adversary", 0.0):
        raise AnmiError(
            "training: sources.adversary moves unit vectors, and this encoder compares vectors of"
            " any length by inner products; set training.options.sources.adversary to 0"
        )
    if "temperature" in chosen:
        return options
    logger.info("The encoder compares by inner products, so its temperature is 1 and fixed")
    return options.model_copy(update={"temperature": FixedTemperature(value=1.0)})


def _copied(encoder: SentenceTransformer) -> Weights:
    weights = encoder.state_dict().items()
    return {name: weight.detach().to("cpu", copy=True) for name, weight in weights}


def _settle(
    encoder: SentenceTransformer,
    start_weights: Weights,
    alpha: Alpha | None,
    choose_alpha: Callable[[Callable[[Alpha], SentenceTransformer]], Alpha] | None,
) -> tuple[Alpha, float]:
    """Leave the encoder at alpha; return alpha, and the relative change of the parameters."""
    encoder.eval()
    last_weights = _copied(encoder)
    names = [name for name, _ in encoder.named_parameters()]
    changes = torch.stack([(last_weights[name] - start_weights[name]).norm() for name in names])
    lengths = torch.stack([start_weights[name].norm() for name in names])
    weight_change = float(changes.norm() / lengths.norm().clamp(min=1e-15))
    encoder_at = partial(_between, encoder, start_weights, last_weights)
    if alpha is None and choose_alpha is not None and weight_change:
        alpha = choose_alpha(encoder_at)
    if alpha is None:
        alpha = 1.0
    encoder_at(alpha)
    return alpha, weight_change


def _between(
    encoder: SentenceTransformer, start_weights: Weights, last_weights: Weights, alpha: Alpha
) -> SentenceTransformer:
    """Return the encoder at alpha between its first and its last weights.

    A vector of a table has its last length, which says how much its token counts, and a direction
    between the two: on small collections lengths generalise, and directions hardly do.
    """
    if alpha == START:
        encoder.load_state_dict(start_weights)
        return encoder
    tables = {
        f"{name}.embedding.weight"
        for name, module in encoder.named_modules()
        if isinstance(module, StaticEmbedding)
    }
    weights = {}
    for name, weight in last_weights.items():
        if not weight.is_floating_point() or torch.equal(weight, start_weights[name]):
            weights[name] = weight
        elif name in tables and alpha < 1:
            start_directions = normalize(start_weights[name])
            directions = torch.lerp(start_directions, normalize(weight), alpha)
            weights[name] = normalize(directions) * weight.norm(dim=1, keepdim=True)
        else:
            weights[name] = torch.lerp(start_weights[name], weight, alpha)
    encoder.load_state_dict(weights)
    return encoder


def _trainable(encoder: SentenceTransformer, options: TrainingOptions) -> SentenceTransformer:
    """Return the encoder, or two of it, ready to be trained.

    All-zero token vectors stay zero.
    """
    size = encoder.get_embedding_dimension() or 0
    longest = max(options.dimensions or (0,))
    if longest > size:
        raise AnmiError(
            f"training.options.dimensions begins with {longest}, and vectors of the encoder have"
            f" {size} dimensions: begin with {size} or fewer"
        )
    if options.encoders != "shared":
        encoder = kinds.two_encoders(encoder)
    if options.encoders == "query_only":
        kinds.side_of(encoder, "document").requires_grad_(False)
    if not any(p.requires_grad for p in encoder.parameters()):
        raise AnmiError(
            "The encoder has no weight that may change: unfreeze its parameters before training."
        )
    if options.checkpoint_layers:
        encoder.gradient_checkpointing_enable({"use_reentrant": False})
    for module in encoder.modules():
        if isinstance(module, StaticEmbedding) and module.embedding.weight.requires_grad:
            table = module.embedding.weight
            if table.device.type == "cpu":
                module.embedding.forward = TokenMeans(table)
                continue
            silent_tokens = (table == 0).all(dim=1).nonzero().ravel()
            table.register_hook(partial(torch.index_fill, dim=0, index=silent_tokens, value=0))
    return encoder


def _read(rows: pd.DataFrame, options: TrainingOptions, stock: Stock | None) -> list[Row]:
    """Return the rows with all that the training asks of them."""
    data = read_rows(rows, sorted(options.alone.reads))
    if stock is not None:
        entities = dict(zip(stock.ids, stock.about.tolist(), strict=False))
        data = [replace(row, about=entities.get(row.positive_id, -1)) for row in data]
    return sampling.with_hardness(data) if isinstance(options.hardness, HansOptions) else data


def _check_layers(encoder: SentenceTransformer, start_weights: Weights) -> None:
    """Refuse a training that left a layer where it was, though one behind it moved."""
    checked_paths: tuple[str, ...] = ()
    for path, layers in encoder.named_modules():
        # Experts within a layer may get no token.
        if not isinstance(layers, torch.nn.ModuleList) or path.startswith(checked_paths):
            continue
        checked_paths = (*checked_paths, f"{path}.")
        still_layers: list[int] = []
        for number, layer in enumerate(layers):
            moved = [
                not torch.equal(weight.cpu(), start_weights[f"{path}.{number}.{name}"])
                for name, weight in layer.named_parameters()
                if weight.requires_grad
            ]
            if any(moved) and still_layers:
                raise AnmiError(
                    f"Training did not move layer {still_layers[0]} of {path}, though layer"
                    f" {number} behind it moved: its gradient is cut off, or its steps are lost in"
                    " rounding; mend the model, freeze that layer, or raise"
                    " training.options.learning_rate"
                )
            if moved and not any(moved):
                still_layers.append(number)


def _save(encoder: SentenceTransformer, output: Path | None, dtype: str) -> None:
    """Save an encoder with weights of a type, and leave it with these, as they are measured."""
    for weight in encoder.parameters():
        weight.data = weight.data.to(getattr(torch, dtype))
    if output is not None:
        with aside(output) as folder:
            encoder.save(str(folder), create_model_card=False, safe_serialization=True)
    for weight in encoder.parameters():
        weight.data = weight.data.float()


def _locked(stack: ExitStack, folder: Path) -> Path | None:
    """Return the folder of a training's checkpoints; None where another process writes into it."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        stack.enter_context(FileLock(folder.with_suffix(".lock"), timeout=0))
    except (Timeout, OSError):
        logger.warning(
            "Another process makes the checkpoints of this training; this one makes none"
        )
        return None
    return folder
