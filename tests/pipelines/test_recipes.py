"""Every shipped recipe, mined through the real nodes: what it does not read costs nothing."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from kedro.io import DataCatalog, MemoryDataset
from kedro.pipeline import Pipeline
from kedro.runner import SequentialRunner
from numpy.typing import NDArray
from tests.judging.conftest import save_classifier
from tests.mined import recipe_book
from tests.pipelines.tables import NO_MARKS, corpus_of, frame, labels_of

from anmi.candidates import SOURCES
from anmi.corpus.knowledge import Knowledge
from anmi.datasets import CandidateShardsDataset, ColumnsDataset, TrainingRowsDataset
from anmi.engine import IN_PROCESS
from anmi.pipelines.bm25 import pipeline as bm25
from anmi.pipelines.consistency import pipeline as consistency
from anmi.pipelines.denoising import pipeline as denoising
from anmi.pipelines.dense import pipeline as dense
from anmi.pipelines.elo import pipeline as elo
from anmi.pipelines.params import (
    BM25Params,
    ConsistencyParams,
    DenoisingParams,
    DenseParams,
    EloParams,
    IngestionParams,
    SearchParams,
    SelectionParams,
)
from anmi.pipelines.selection import pipeline as selection
from anmi.pipelines.training.params import TrainingParams
from anmi.report.console import expected_sentence, origins_table, rejections_table, source_table
from anmi.selection.recipe import with_stage_columns
from anmi.store import Store

ROOT = Path(__file__).parents[2]
BOOK = recipe_book(
    yaml.safe_load((ROOT / "conf/base/recipes.yml").read_text(encoding="utf-8"))["recipes"]
)
STAGES = (bm25, dense, consistency, denoising, elo, selection)
BLOCKS = ("candidates", "selection")
COLUMNS = ("consistency", "evidence", "judgments", "ratings")
NOUNS = ["river", "bridge", "garden", "violin", "engine"]
NOUNS += ["harbour", "library", "mountain", "island", "market"]
PLACES = ("north", "south", "old town", "valley", "coast")
# Sure of most that it is not relevant, or recipes that go by σ(logit) have no negatives.
JUDGE = save_classifier(Path(tempfile.mkdtemp()) / "judge", bias=-4)
MODELS = {
    "bm25": BM25Params,
    "dense": DenseParams,
    "elo": EloParams,
    "consistency": ConsistencyParams,
    "denoising": DenoisingParams,
}
DEPTHS = {"dense": "depth", "random": "random"}
SETTINGS: dict[str, Any] = {
    "bm25": {"depth": 12, "shard": 9},
    "dense": {"depth": 12, "random": 12, "precision": "float32"},
    "elo": {},
    "consistency": {},
    "denoising": {"cross_encoder": {"model": str(JUDGE), "precision": "float32"}, "depth": 10},
}


def collection() -> dict[str, pd.DataFrame]:
    """A document per noun and place, a query for most, of which some ask for two; one is a copy."""
    texts = [
        f"the {noun} of the {place} was opened in {1900 + 7 * i + j}"
        for i, noun in enumerate(NOUNS)
        for j, place in enumerate(PLACES)
    ]
    asked = [f"when was the {noun} of the {place} opened" for noun in NOUNS[:6] for place in PLACES]
    numbers = range(len(asked))
    queries = frame("query_id text", *((f"q{i}", asked[i]) for i in numbers), same_as="")
    labels = [*(f"q{i} d{i}" for i in numbers), *(f"q{i} d{i + 5}" for i in numbers if i % 5 == 0)]
    return {
        "corpus": corpus_of([*texts, texts[0]]),
        "queries": queries.assign(
            metadata="{}", split=["test" if i % 6 == 5 else "train" for i in numbers]
        ),
        "qrels": labels_of(*labels),
        "marks": NO_MARKS,
        "equivalents": frame("query_id document_id", ("q0", "d10"), ("q1", "d11")),
        "new_documents": frame("document_id split", ("d40", "test")),
        "related_documents": frame(
            "document_id other_id kind", ("d50", "d0", "copy"), ("d3", "d4", "near"), similarity=1.0
        ),
    }


class ByWords:
    """Compares documents by the words that they share with the query."""

    def prefer(
        self, queries: Sequence[str], first: Sequence[str], second: Sequence[str]
    ) -> NDArray[np.float64]:
        def shared(documents: Sequence[str]) -> NDArray[np.int64]:
            return np.array(
                [len({*q.split()} & {*d.split()}) for q, d in zip(queries, documents, strict=True)]
            )

        return 0.5 + 0.5 * np.sign(shared(first) - shared(second))


@pytest.fixture(autouse=True)
def _pairwise_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anmi.judging.pairwise.ChatJudge", lambda *_: ByWords())


class Kept(MemoryDataset):
    """Is there after the run, too."""

    def _release(self) -> None:
        pass


def knowledge() -> Knowledge:
    """Which noun stands where, for the recipes that draw from other sources."""
    uris = [f"u:{noun}" for noun in NOUNS]
    entities = pd.DataFrame({"uri": uris, "label": NOUNS, "types": '["thing"]'})
    stated = [
        (f"d{5 * i + j}", uris[i], "place", place)
        for i in range(len(NOUNS))
        for j, place in enumerate(PLACES)
    ]
    facts = pd.DataFrame(stated, columns=["document_id", "head", "relation", "tail"])
    return Knowledge(
        entities, facts[["head", "relation", "tail"]].drop_duplicates(ignore_index=True), facts
    )


@pytest.fixture(scope="module")
def mine(
    tmp_path_factory: pytest.TempPathFactory, new_store: Callable[[Path], Path]
) -> Callable[[str], DataCatalog]:
    """A function that mines the collection with a recipe, on artifacts as a run saves them."""
    params: dict[str, Any] = {
        "collection": "mine",
        "encoder": "static",
        "recipes": BOOK,
        "seed": 5,
        "engine": IN_PROCESS,
        "ingestion": IngestionParams(),
        "search": SearchParams(parts=("bm25", "trained")),
        "selection": SelectionParams(),
        "training": TrainingParams(),
    }
    params |= {name: model.model_validate(SETTINGS[name]) for name, model in MODELS.items()}
    given = {
        **collection(),
        "knowledge": knowledge(),
        "collection_info": {"collection": "mine", "language": "en"},
        "store": Store(new_store(tmp_path_factory.mktemp("store"))),
        **{f"params:{name}": value for name, value in params.items()},
    }

    def mine(recipe: str) -> DataCatalog:
        entries: dict[str, Any] = {
            name: MemoryDataset(value, copy_mode="assign")
            for name, value in (given | {"params:recipe": recipe}).items()
        }
        folder = tmp_path_factory.mktemp(recipe)
        entries |= {name: CandidateShardsDataset(filepath=str(folder / name)) for name in BLOCKS}
        entries |= {name: ColumnsDataset(filepath=str(folder / name)) for name in COLUMNS}
        entries["training_rows"] = TrainingRowsDataset(
            filepath=str(folder / "training_rows.parquet")
        )
        stages = Pipeline([stage.create_pipeline() for stage in STAGES])
        entries |= {
            name: Kept(copy_mode="assign") for name in stages.all_outputs() - entries.keys()
        }
        catalog = DataCatalog(entries)
        SequentialRunner().run(stages, catalog)
        return catalog

    return mine


@pytest.mark.parametrize("recipe", BOOK.names())
def test_a_recipe_is_mined_and_summarised_with_only_what_it_reads(
    mine: Callable[[str], DataCatalog], recipe: str
) -> None:
    catalog, chosen = mine(recipe), BOOK.get(recipe)
    candidates = catalog.load("candidates").whole()
    bits = np.bitwise_or.reduce(candidates.source, axis=None)
    left_out = {
        name
        for name in ("dense", "random")
        if chosen.mining.get("dense", {}).get(DEPTHS[name]) == 0
    }
    assert bits == sum(SOURCES[name] for name in {"random", *chosen.sources} - left_out)
    for name in ("bm25", "dense"):
        assert (name in candidates.columns) == (name in chosen.sources)
    width = 256 if "dense" in chosen.sources else 0
    assert catalog.load("document_embeddings").shape == (51, width)
    assert catalog.load("query_embeddings").shape == (25, width)
    added = {name: catalog.load(name) for name in COLUMNS}
    assert bool(added["consistency"]) == ("bm25" in chosen.sources)
    assert bool(added["evidence"]) == chosen.judged
    judges = EloParams.model_validate(chosen.mining.get("elo", {})).judges
    asked = {"cross", "p_cross", "soft_label"} | ({"elo", "gap_se"} if "cross" in judges else set())
    assert bool(added["judgments"]) == bool(chosen.requires & asked)
    assert bool(added["ratings"]) == bool(
        chosen.requires & {"elo", "elo_se", "gap_se", "p_preferred"}
    )
    block = with_stage_columns(catalog.load("candidates"), **added).whole()
    missing = chosen.requires - {"p_relevant"} - block.columns.keys() - block.query_columns.keys()
    assert missing <= {"facts"}, "all that the recipe reads is there"
    rows, summary = catalog.load("training_rows"), catalog.load("selection_summary")
    assert len(rows) == summary["rows"] and not rows.query_id.duplicated().all()
    assert (rows.negative_ids.map(len) <= (chosen.pool or chosen.negatives)).all()
    negatives = {
        (query, document)
        for query, found in zip(rows.query_id, rows.negative_ids, strict=True)
        for document in found
    }
    labelled = set(map(tuple, collection()["qrels"][["query_id", "document_id"]].to_numpy()))
    assert not negatives & (labelled | {("q0", "d50")}), "no positive and no copy of one"
    assert "d40" not in {document for _, document in negatives}, "no new document"
    made, mixed = catalog.load("variants"), chosen.training.get("sources") is not None
    positives = collection()["qrels"].document_id
    assert made.document_id.isin(positives).all() and {*made.kind} == (
        {"counterpart"} if mixed else set()
    )
    # What a user is shown of it.
    shown = [
        source_table(summary["by_source"]),
        rejections_table(summary["funnel"]),
        origins_table(summary["origins"]),
    ]
    assert all(table.row_count for table in shown[:2])
    assert (expected_sentence(summary["expected"]) != "") == (chosen.judged and bool(negatives))
