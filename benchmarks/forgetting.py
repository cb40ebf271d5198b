"""What keeps a network from forgetting documents that training did not see, each beside alpha.

MiniLM is trained on labels; dev queries measure it at several alphas, apart for documents with a
training label, other documents, and new ones, of which neither mining nor training knows. What is
tried: a pull towards the similarities of the start (the batch's and those of random documents),
a moving average of the weights, smaller rates for lower layers, and low-rank additions. Collections
of short texts, since two cores have no time for others; ``--rows`` and ``--collections`` for more.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import torch
from torch.nn.functional import kl_div, log_softmax

import common
from anmi.corpus.related import hits_of
from anmi.corpus.texts import document_texts
from anmi.evaluation.generalisation import buckets
from anmi.evaluation.metrics import of_documents
from anmi.evaluation.retrieval import DevQueries, dev_collection
from anmi.pipelines.params import DenseParams
from anmi.ragged import Float64s
from anmi.retrieval.encoders import load_encoder
from anmi.training import trainer
from anmi.training.objective import ContrastiveObjective
from anmi.training.options import START, Alpha, TrainingOptions
from common import DATA, MODELS, STORE, kedro, mean, paired, table

WORK: Final = common.WORK / "forgetting"
COLLECTIONS: Final = ("hinglish_top", "kg_webnlg/beir_en", "sae4k_ko")
VARIANTS: Final = ("labels", "pull", "moving_average", "layer_rates", "adapter")
ALPHAS: Final[tuple[Alpha, ...]] = (START, 0.5, 1.0)
BUCKETS: Final = ("labelled", "unlabelled", "new")
# A higher rate than usual, so that few steps forget something.
OPTIONS: Final[dict[str, Any]] = {"epochs": 2, "batch_size": 32, "negatives": 1}
RATES: Final = {"adapter": 5e-4}
RATE: Final = 5e-5
MAX_LENGTH: Final = 128
DEV_DOCUMENTS: Final = 2000
TEMPERATURE: Final = 0.05
RANDOM: Final = 32
PULL: Final = 0.3
# Of what was there before, of each step.
MOVING_AVERAGE: Final = 0.95
# Rate of a layer, as a share of that of the layer above.
LAYER_RATE: Final = 0.7


class Pulled(ContrastiveObjective):
    """Adds the divergence of the similarities of queries and documents from those of the start."""

    def __init__(self, start: Any, texts: Sequence[str], *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        # In a tuple, since it is no part of what is trained.
        self._start = (start,)
        self._texts = texts

    def forward(self, batch: dict[str, Any]) -> torch.Tensor:
        """Return the loss of the batch, which the pull is part of."""
        loss = super().forward(batch)
        draw = np.random.default_rng(batch["step"])
        texts = [self._texts[place] for place in draw.integers(len(self._texts), size=RANDOM)]
        trained = self.model
        now = self._log_shares(batch, texts)
        (self.model,) = self._start
        with torch.no_grad():
            before = self._log_shares(batch, texts)
        self.model = trained
        pull = kl_div(now, before, reduction="batchmean", log_target=True)
        return loss + PULL * pull

    def _log_shares(self, batch: dict[str, Any], texts: list[str]) -> torch.Tensor:
        queries, documents = self._encode_both(batch["queries"], batch["documents"])
        random = self._encode_group(self.model.tokenize(texts))
        random = torch.nn.functional.normalize(random, dim=1)
        similarity = torch.cat([queries, random]) @ torch.cat([documents, random]).T
        return log_softmax(similarity / TEMPERATURE, dim=1)


def by_layer(model: Any, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """Return an optimizer with smaller rates for lower layers, the smallest for embeddings."""
    names = {id(weight): name for name, weight in model.named_parameters()}
    highest = max(map(layer_of, names.values()))
    groups = []
    for group in optimizer.param_groups:
        for weight in group["params"]:
            below = highest - layer_of(names[id(weight)]) if id(weight) in names else 0
            rate = group.get("lr", optimizer.defaults["lr"])
            groups.append({"params": [weight], "lr": rate * LAYER_RATE**below, "weight_decay": 0.0})
    return torch.optim.AdamW(groups)


def layer_of(name: str) -> int:
    """Return the number of a weight's layer, -1 of embeddings."""
    number = re.search(r"layer\.(\d+)\.", name)
    return int(number[1]) if number else -1


def averaged(optimizer: torch.optim.Optimizer, steps: int) -> torch.optim.Optimizer:
    """Return an optimizer whose last step replaces the weights by their moving average."""
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    averages = [weight.detach().clone() for weight in weights]
    step = itertools.count(1)

    @torch.no_grad()
    def follow(*_: Any) -> None:
        for average, weight in zip(averages, weights, strict=True):
            average.lerp_(weight, 1 - MOVING_AVERAGE)
        if next(step) == steps:
            for average, weight in zip(averages, weights, strict=True):
                weight.copy_(average)

    optimizer.register_step_post_hook(follow)
    return optimizer


def train(variant: str, root: Path, dev: DevQueries, most_rows: int) -> dict[Alpha, Float64s]:
    """Train a variant; return nDCG@10 of dev queries by alpha."""
    rows = table(root, "training_rows")
    rows = rows.sample(min(most_rows, len(rows)), random_state=1)
    adapter = {} if variant == "adapter" else None
    rate = RATES.get(variant, RATE)
    options = TrainingOptions(**OPTIONS, adapter=adapter, learning_rate=rate)
    steps = options.epochs * math.ceil(len(rows) / options.batch_size)
    original = trainer.build_optimizer, trainer.ContrastiveObjective
    build = {
        "layer_rates": lambda model, *more: by_layer(model, original[0](model, *more)),
        "moving_average": lambda model, *more: averaged(original[0](model, *more), steps),
    }
    trainer.build_optimizer = build.get(variant, original[0])
    if variant == "pull":
        start = load_encoder("minilm", MODELS, max_length=MAX_LENGTH).eval()
        texts = document_texts(table(root, "corpus"))
        pulled: Any = partial(Pulled, start, texts)
        trainer.ContrastiveObjective = pulled
    scores: dict[Alpha, Float64s] = {}

    def measure(encoder_at: Callable[[Alpha], Any]) -> Alpha:
        scores.update({alpha: dev.scores(encoder_at(alpha)) for alpha in ALPHAS})
        return 1.0

    try:
        encoder = load_encoder("minilm", MODELS, max_length=MAX_LENGTH)
        more: dict[str, Any] = {"output": None, "choose_alpha": measure, "seed": 1}
        trainer.train(rows, encoder=encoder, options=options, **more)
    finally:
        trainer.build_optimizer, trainer.ContrastiveObjective = original
    return scores


def cells(collection: str, variants: Sequence[str], most_rows: int) -> Iterator[dict[str, Any]]:
    """Mine a collection once, train; yield a row for each variant, alpha and kind of documents."""
    root = WORK / collection.replace("/", "_")
    if not any(root.glob("*/training_rows.parquet")):
        words = f"collection=beir:{DATA / collection},encoder=minilm,recipe=anmi_labels_only"
        words += f",dense.max_length={MAX_LENGTH},ingestion.max_queries=3000"
        kedro("run", "--to-outputs", "training_rows", "--params", words, data=root, store=STORE)
    names = ("corpus", "queries", "qrels", "new_documents", "training_rows")
    corpus, queries, qrels, new, rows = (table(root, name) for name in names)
    settings = DenseParams(max_length=MAX_LENGTH)
    dev = DevQueries(*dev_collection(corpus, queries, qrels, DEV_DOCUMENTS, 1), settings)
    positives, held_out = (
        set(hits_of(corpus)[corpus.document_id.isin(ids)])
        for ids in (rows.positive_id, new.document_id)
    )
    labels = of_documents(qrels[qrels.query_id.isin(dev.query_ids)], corpus)
    kinds = buckets(dev.query_ids, labels, positives, held_out).to_numpy()
    plain: dict[Alpha, Float64s] = {}
    for variant in variants:
        scores = train(variant, root, dev, most_rows)
        plain = plain or scores
        for alpha, bucket in itertools.product(ALPHAS, BUCKETS):
            there = kinds == bucket
            if there.any():
                values = pd.Series(scores[alpha][there])
                facts = {"collection": collection, "variant": variant, "alpha": alpha}
                row = facts | {"documents": bucket} | mean(values)
                row["over_start"] = paired(values, pd.Series(scores[START][there]))
                row["over_labels"] = paired(values, pd.Series(plain[alpha][there]))
                yield row
        print(collection, variant, common.now(), flush=True)


def main() -> None:
    arguments = common.parser(__doc__)
    arguments.add_argument("--collections", nargs="+", default=list(COLLECTIONS))
    arguments.add_argument("--rows", type=int, default=640, help="training rows at most")
    options = arguments.parse_args()
    document = common.load("forgetting")
    for collection in options.collections:
        rows = [*cells(collection, VARIANTS, options.rows)]
        others = [row for row in document["rows"] if row["collection"] != collection]
        earlier = document if others else None
        document = common.about() | {"options": OPTIONS, "rows": others + rows}
        common.save("forgetting", document, earlier)
    shown = [row for row in document["rows"] if row["documents"] == "new"]
    lines = [
        [row["collection"], row["variant"], str(row["alpha"]), f"{row['ndcg_10']:.3f}"]
        + [f"{row[name]['difference']:+.3f}" for name in ("over_start", "over_labels")]
        for row in shown
    ]
    head = ["collection", "variant", "alpha", "new documents", "over the start", "over labels"]
    print(common.markdown(head, lines))


if __name__ == "__main__":
    main()
