"""Nodes of training."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from anmi.errors import AnmiError
from anmi.pipelines.dense.params import DenseParams
from anmi.pipelines.training.params import TrainingParams, complete_options, merged_options
from anmi.selection.recipe import RecipeBook
from anmi.store import Store

if TYPE_CHECKING:
    from anmi.training.recorder import DevLoss


def check_splits(rows: pd.DataFrame, queries: pd.DataFrame) -> pd.DataFrame:
    """Return the rows, having made sure that no dev or test query is among them, nor its text under another id."""
    from anmi.corpus.duplicates import normalised

    held_out = queries[queries.split != "train"]
    ids = set(rows.query_id) & set(held_out.query_id)
    known = set(map(normalised, held_out.text))
    texts = {text for text in rows["query"].unique() if normalised(text) in known}
    if ids or texts:
        found = sorted(ids or texts)[0]
        raise AnmiError(
            f'{len(ids or texts)} dev or test queries stand in the training rows (first: "{found}"); '
            "run ingestion again and check the splits of the collection"
        )
    return rows


def train_retriever(
    rows: pd.DataFrame,
    corpus: pd.DataFrame,
    queries: pd.DataFrame,
    qrels: pd.DataFrame,
    graph: pd.DataFrame,
    entities: pd.DataFrame,
    facts: pd.DataFrame,
    variants: pd.DataFrame,
    kin: pd.DataFrame,
    duplicates: pd.DataFrame,
    encoder: str,
    recipe: str,
    recipes: RecipeBook,
    params: TrainingParams,
    dense: DenseParams,
    seed: int,
    store: Store,
) -> dict[str, Any]:
    """Train the encoder on the rows; epochs are chosen on dev.

    What documents state, and variants of them, is read only where the recipe draws negatives from mixed sources.
    """
    from anmi.evaluation.retrieval import dev_metric
    from anmi.retrieval.encoders import load_encoder, short_name
    from anmi.training.checkpoint import CheckpointPlan, digest_tables
    from anmi.training.trainer import train

    rows = check_splits(rows, queries)
    options = complete_options(merged_options(recipes.get(recipe), params), rows, len(corpus))
    model = load_encoder(encoder, store.path / "models", dense.max_length, dense.prompts)
    measure = dev_metric(corpus, queries, qrels, params.dev_documents, dense.precision, seed)
    folder = Path(tempfile.mkdtemp(prefix="anmi-model-"))
    stock: Any = None
    known: dict[str, str] = {}
    if options.sources.kind == "mixed":
        from anmi.training.mixed import Stock

        drawn_from = (corpus, graph, entities, facts, variants, kin, duplicates)
        stock = Stock.from_tables(*drawn_from)
        known = {"graph and variants": digest_tables(drawn_from)}
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
    result = train(
        rows,
        encoder=model,
        options=options,
        output=folder,
        evaluate_dev=measure,
        seed=seed,
        checkpoints=plan,
        stock=stock,
        dev_loss=_dev_loss(
            corpus, queries, qrels, (entities, graph, facts), (kin, duplicates), params, dense.precision, seed
        ),
    )
    return {
        "trained_model": folder,
        "training_log": result.log,
        "drawn_negatives": result.drawn,
        "training_summary": result.summary | {"encoder": encoder, "recipe": recipe, "options": options.model_dump()},
    }


def _dev_loss(
    corpus: pd.DataFrame,
    queries: pd.DataFrame,
    qrels: pd.DataFrame,
    knowledge: tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame],
    alike: tuple[pd.DataFrame, pd.DataFrame],
    params: TrainingParams,
    precision: str,
    seed: int,
) -> DevLoss | None:
    """What measures the loss on dev, if it is asked for; copies and what states all that is asked are no negatives."""
    from anmi.corpus.knowledge import KnowledgeGraph
    from anmi.evaluation.validation import dev_loss
    from anmi.retrieval.kin import Kin
    from anmi.training.recorder import DevLoss

    if params.dev_loss_steps is None:
        return None
    ids, (kin, duplicates) = corpus.document_id.tolist(), alike
    graph = KnowledgeGraph.from_tables(*knowledge, ids)
    barred = graph.entailing if graph.stated.nnz else None
    known = Kin.from_table(kin, ids, duplicates)
    measure = dev_loss(corpus, queries, qrels, barred, params.dev_documents, precision, seed, kin=known)
    return None if measure is None else DevLoss(measure, params.dev_loss_steps)
