"""Nodes of training."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from anmi.corpus.knowledge import Knowledge
from anmi.errors import AnmiError
from anmi.pipelines.dense.params import DenseParams
from anmi.pipelines.training.one import Training
from anmi.pipelines.training.params import TrainingParams, merged_options
from anmi.search.folder import COMPANION
from anmi.selection.recipe import RecipeBook
from anmi.store import Store
from anmi.store.room import room

if TYPE_CHECKING:
    from anmi.training.pseudo import PseudoRows
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


def check_dev_is_mined(rows: pd.DataFrame, queries: pd.DataFrame) -> None:
    """Make sure that a refit has rows of dev queries, or that there are no dev queries to train on.

    Raises
    ------
    AnmiError
        There are dev queries, and none was mined.
    """
    from anmi.corpus.mined import mined_dev
    from anmi.selection.rows import of_split

    if not of_split(rows, "dev").empty:
        return
    if (queries.split == "dev").any() and not mined_dev(queries):
        raise AnmiError(
            "training.refit trains on the dev queries as well, and they were not mined: run all stages again from "
            "ingestion on, or give training.refit=false"
        )
    log.info("Nothing to train again with: no dev query has a training row")


def train_retriever(
    *,
    rows: pd.DataFrame,
    corpus: pd.DataFrame,
    queries: pd.DataFrame,
    qrels: pd.DataFrame,
    knowledge: Knowledge,
    variants: pd.DataFrame,
    related_documents: pd.DataFrame,
    pseudo_queries: pd.DataFrame,
    encoder: str,
    recipe: str,
    recipes: RecipeBook,
    params: TrainingParams,
    dense: DenseParams,
    seed: int,
    store: Store,
    held_out: float,
    mining_seed: int | None = None,
) -> dict[str, Any]:
    """Train the encoder on the rows of training queries, epochs chosen on dev; for a refit again with those of dev.

    A companion, where the recipe asks for one, is trained in the same way on the same rows, and its folder lies in that
    of the first.

    Pseudo-queries are trained on beside them where the recipe says so, and stand in for dev queries where nobody
    labelled any. Documents held out of adaptation are then no negatives either: they are to be new to the model. Which
    they are goes by the seed of mining, where that is another than that of training.

    What documents state, and variants of them, is read only where the recipe draws negatives from mixed sources.
    """
    from anmi.adaptation.held_out import splits
    from anmi.adaptation.stand_in import unlabelled_splits, with_pseudo_tests
    from anmi.corpus.texts import document_texts
    from anmi.evaluation.retrieval import dev_metric
    from anmi.retrieval.encoders import short_name
    from anmi.selection.rows import of_split
    from anmi.training.checkpoint import CheckpointPlan, digest_tables

    rows = check_splits(rows, queries)
    merged = merged_options(recipes.get(recipe), params)
    if merged.companion is not None and merged.of_companion.retriever == recipe:
        raise AnmiError(
            f'the companion is reported as "{recipe}", and so would be the recipe of that name: rename the recipe'
        )
    refit = params.refit and bool(merged.labels)
    if refit:
        check_dev_is_mined(rows, queries)
    # A small share may leave dev queries of which none was mined.
    rows, queries = labels_used(rows, queries, merged.labels, seed)
    labelled = bool(len(of_split(rows, "train")))
    kinds = merged.pseudo_queries.kinds
    pseudo = _pseudo_rows(pseudo_queries, kinds, corpus, related_documents, labelled=labelled)
    if pseudo is not None:
        away = splits(document_texts(corpus), seed if mining_seed is None else mining_seed, held_out) != "train"
        rows = without_documents(rows, set(corpus.document_id[away]))
    dev_rows = of_split(rows, "dev") if refit else rows[:0]
    rows = of_split(rows, "train")
    lacking = [split for split in unlabelled_splits(queries, qrels) if split == "dev"]
    dev_tables = with_pseudo_tests(corpus, queries, qrels, pseudo_queries, lacking)
    measure = dev_metric(*dev_tables, params.dev_documents, dense.precision, seed)
    stock, known = _drawn_from(merged.sources.kind, corpus, knowledge, variants, related_documents)
    if pseudo is not None:
        known["pseudo-queries"] = digest_tables((pseudo_queries, related_documents))
    dev = digest_tables(dev_tables[1:])
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
    training = Training(
        rows, dev_rows, dev_tables, corpus, encoder, dense, store,
        {
            "pseudo": pseudo,
            "evaluate_dev": measure,
            "seed": seed,
            "stock": stock,
            "dev_loss": _dev_loss(corpus, queries, qrels, knowledge, related_documents, params, dense.precision, seed),
        },
    )  # fmt: skip
    # Gone with this process, however that ends, if nothing takes it over.
    folder = Path(tempfile.mkdtemp(dir=room("anmi-models-")))
    result, options = training.run(merged.alone, folder, plan)
    summary = result.summary | {
        "trained_on": ["train"] if dev_rows.empty else ["train", "dev"],
        "adapted": pseudo is not None,
        "dev_queries": "pseudo_queries" if lacking else "labels",
        "encoder": encoder,
        "recipe": recipe,
        "options": options.model_dump() | {"companion": merged.companion},
    }
    runs = [result.dev_run]
    if merged.companion is not None:
        log.info("Training the companion, which is %s", merged.of_companion.retriever)
        # A checkpoint that was named is of the first.
        second, options = training.run(merged.of_companion, folder / COMPANION, replace(plan, start=None))
        summary["companion"] = second.summary | {"options": options.model_dump()}
        runs.append(second.dev_run)
    return {
        "trained_model": folder,
        "training_log": result.log,
        "drawn_negatives": result.drawn,
        "latent_neighbours": result.neighbours,
        "dev_run": pd.concat(runs, ignore_index=True),
        "training_summary": summary,
    }


def _drawn_from(
    kind: str, corpus: pd.DataFrame, knowledge: Knowledge, variants: pd.DataFrame, related_documents: pd.DataFrame
) -> tuple[Any, dict[str, str]]:
    """Return what a training draws negatives from beside its rows, and digests of it for its checkpoints."""
    from anmi.corpus.texts import document_texts
    from anmi.training.checkpoint import digest_tables
    from anmi.training.mixed import Stock
    from anmi.training.refreshed import Documents

    if kind == "refreshed":
        documents = Documents(corpus.document_id.tolist(), document_texts(corpus))
        return documents, {"corpus": digest_tables((corpus,))}
    if kind == "mixed":
        tables = (corpus, knowledge.graph, knowledge.entities, knowledge.facts, variants, related_documents)
        stock = Stock.from_tables(corpus, knowledge, variants, related_documents)
        return stock, {"graph and variants": digest_tables(tables)}
    return None, {}


def labels_used(
    rows: pd.DataFrame, queries: pd.DataFrame, share: float, seed: int
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the rows and queries that a share of the labels leaves; test queries all stay.

    A larger share contains every smaller one.
    """
    from anmi.corpus.duplicates import normalised
    from anmi.corpus.splits import position

    if share == 1:
        return rows, queries
    place = position(seed, "training/labels", [normalised(text) for text in queries.text])
    kept = queries[(queries.split == "test") | (place < share)]
    return rows[rows.query_id.isin(kept.query_id)].reset_index(drop=True), kept


def without_documents(rows: pd.DataFrame, documents: Collection[str]) -> pd.DataFrame:
    """Return the rows with these documents neither among their negatives nor among what is learned from otherwise.

    Positives stay: a document that somebody labelled is known.
    """
    made = rows.copy()
    for ids, beside in (
        ("negative_ids", [name for name in rows.columns if name in ("negatives", "weights", "sources")
                          or (name.startswith("negative_") and name != "negative_ids")]),
        ("uncertain_ids", [name for name in ("uncertain", "uncertain_p") if name in rows.columns]),
    ):  # fmt: skip
        if ids not in rows.columns:
            continue
        kept = [[document not in documents for document in line] for line in rows[ids]]
        for name in (ids, *beside):
            made[name] = pd.Series(
                [list(compress(line, chosen)) for line, chosen in zip(rows[name], kept, strict=True)],
                index=rows.index, dtype=object,
            )  # fmt: skip
    return made


def _pseudo_rows(
    pseudo_queries: pd.DataFrame,
    kinds: Sequence[str],
    corpus: pd.DataFrame,
    related_documents: pd.DataFrame,
    *,
    labelled: bool,
) -> PseudoRows | None:
    """Return the pseudo-queries to train on, None where the recipe asks for none.

    A kind that the collection's documents do not offer, such as titles, is left out; that none is offered is an error
    only where nothing is labelled either.
    """
    from anmi.retrieval.related import RelatedDocuments
    from anmi.training.pseudo import PseudoRows

    there = set(pseudo_queries.kind[pseudo_queries.split == "train"])
    found = [kind for kind in kinds if kind in there]
    if len(found) < len(kinds):
        lacking = ", ".join(kind for kind in kinds if kind not in there)
        log.warning("There is no pseudo-query of the kind %s to train on; pseudo_query_summary says why", lacking)
    if not (found or labelled):
        raise AnmiError(
            "there is nothing to train on: no training query has a label, and no pseudo-query could be made of the "
            "documents (the artifact pseudo_query_summary counts the reasons); add labels, or other kinds under "
            "training.options.pseudo_queries.kinds"
        )
    if not found:
        return None
    ids = corpus.document_id.tolist()
    return PseudoRows(pseudo_queries, found, RelatedDocuments.from_table(related_documents, ids), ids)


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
