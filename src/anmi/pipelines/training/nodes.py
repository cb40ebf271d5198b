"""Nodes of training."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from anmi.corpus.knowledge import Knowledge
from anmi.errors import AnmiError
from anmi.pipelines.dense.params import DenseParams
from anmi.pipelines.training.params import TrainingParams, complete_options, merged_options
from anmi.selection.recipe import RecipeBook
from anmi.store import Store

if TYPE_CHECKING:
    from anmi.training.recorder import DevLoss

log = logging.getLogger(__name__)


def check_splits(rows: pd.DataFrame, queries: pd.DataFrame) -> pd.DataFrame:
    """Return the rows, having made sure that no test query is among them, and no dev query among those of train.

    Nor may the text of one stand there under another id.
    """
    from anmi.corpus.duplicates import normalised
    from anmi.selection.rows import of_split

    for part, barred in ((of_split(rows, "train"), ("dev", "test")), (rows, ("test",))):
        held_out = queries[queries.split.isin(barred)]
        ids = set(part.query_id) & set(held_out.query_id)
        known = set(map(normalised, held_out.text))
        texts = {text for text in part["query"].unique() if normalised(text) in known}
        if ids or texts:
            found = sorted(ids or texts)[0]
            raise AnmiError(
                f'{len(ids or texts)} {" or ".join(barred)} queries stand in the training rows (first: "{found}"); '
                "run ingestion again and check the splits of the collection"
            )
    return rows


def rows_for_refit(rows: pd.DataFrame, queries: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of dev queries, none where there are no dev queries to train on.

    Raises
    ------
    AnmiError
        There are dev queries, and none was mined.
    """
    from anmi.corpus.mined import mined_dev
    from anmi.selection.rows import of_split

    found = of_split(rows, "dev")
    if found.empty and (queries.split == "dev").any() and not mined_dev(queries):
        raise AnmiError(
            "training.refit trains on the dev queries as well, and they were not mined: run all stages again from "
            "ingestion on, or give training.refit=false"
        )
    if found.empty:
        log.info("Nothing to train again with: no dev query has a training row")
    return found


def train_retriever(
    *,
    rows: pd.DataFrame,
    corpus: pd.DataFrame,
    queries: pd.DataFrame,
    qrels: pd.DataFrame,
    knowledge: Knowledge,
    variants: pd.DataFrame,
    related_documents: pd.DataFrame,
    encoder: str,
    recipe: str,
    recipes: RecipeBook,
    params: TrainingParams,
    dense: DenseParams,
    seed: int,
    store: Store,
) -> dict[str, Any]:
    """Train the encoder on the rows of training queries, epochs chosen on dev; for a refit again with those of dev.

    What documents state, and variants of them, is read only where the recipe draws negatives from mixed sources.
    """
    from anmi.evaluation.retrieval import dev_metric
    from anmi.retrieval.encoders import load_encoder, short_name
    from anmi.selection.rows import of_split
    from anmi.training.checkpoint import CheckpointPlan, digest_tables
    from anmi.training.refit import train_twice
    from anmi.training.trainer import train

    rows = check_splits(rows, queries)
    dev_rows = rows_for_refit(rows, queries) if params.refit else rows[:0]
    rows = of_split(rows, "train")
    options = complete_options(merged_options(recipes.get(recipe), params), rows, len(corpus))
    measure = dev_metric(corpus, queries, qrels, params.dev_documents, dense.precision, seed)
    folder = Path(tempfile.mkdtemp(prefix="anmi-model-"))
    stock: Any = None
    known: dict[str, str] = {}
    if options.sources.kind == "mixed":
        from anmi.training.mixed import Stock

        stock = Stock.from_tables(corpus, knowledge, variants, related_documents)
        tables = (corpus, knowledge.graph, knowledge.entities, knowledge.facts, variants, related_documents)
        known = {"graph and variants": digest_tables(tables)}
    dev = digest_tables((queries, qrels))
    plan = CheckpointPlan(
        folder=store.path / "checkpoints",
        resume=params.resume,
        start=None if params.checkpoint is None else Path(params.checkpoint).resolve(),
        facts={
            "recipe": recipe,
            "encoder": short_name(encoder),
            "dev queries": dev,
            "dev documents": str(params.dev_documents),
            **known,
        },
    )

    def load() -> Any:
        return load_encoder(encoder, store.path / "models", dense.max_length, dense.prompts)

    common: dict[str, Any] = {
        "options": options,
        "output": folder,
        "evaluate_dev": measure,
        "seed": seed,
        "checkpoints": plan,
        "stock": stock,
        "dev_loss": _dev_loss(corpus, queries, qrels, knowledge, related_documents, params, dense.precision, seed),
    }
    if dev_rows.empty:
        result = train(rows, encoder=load(), **common)
    else:
        result = train_twice(rows, dev_rows, load=load, **common)
    about = {
        "trained_on": ["train"] if dev_rows.empty else ["train", "dev"],
        "encoder": encoder,
        "recipe": recipe,
        "options": options.model_dump(),
    }
    return {
        "trained_model": folder,
        "training_log": result.log,
        "drawn_negatives": result.drawn,
        "training_summary": result.summary | about,
    }


def _dev_loss(
    corpus: pd.DataFrame,
    queries: pd.DataFrame,
    qrels: pd.DataFrame,
    knowledge: Knowledge,
    related_documents: pd.DataFrame,
    params: TrainingParams,
    precision: str,
    seed: int,
) -> DevLoss | None:
    """What measures the loss on dev, if it is asked for; copies and what states all that is asked are no negatives."""
    from anmi.evaluation.validation import dev_loss
    from anmi.retrieval.related import RelatedDocuments
    from anmi.training.recorder import DevLoss

    if params.dev_loss_steps is None:
        return None
    ids = corpus.document_id.tolist()
    graph = knowledge.of(ids)
    barred = graph.entailing if graph.stated.nnz else None
    known = RelatedDocuments.from_table(related_documents, ids)
    measure = dev_loss(corpus, queries, qrels, barred, params.dev_documents, precision, seed, related=known)
    return None if measure is None else DevLoss(measure, params.dev_loss_steps)
