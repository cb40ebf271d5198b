"""The recipes named as published, beside the code of the texts that specify them, from candidates to loss.

The code is cut out of the documents when the test runs. Each stage of it is given what ours made of
the stage before, so that a difference is found where it arises.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import pytest
import scipy.special
import torch
import yaml
from tests.mined import recipe_book
from tests.reports import class_of, classes

from anmi.judging import preferences
from anmi.pipelines.training.params import TrainingParams, merged_options
from anmi.training.losses import build_loss
from anmi.training.losses.common import Facts

pytestmark = pytest.mark.rare
ROOT: Final = Path(__file__).parents[2]
DATA: Final = Path(os.environ.get("ANMI_DATA", ROOT.parent / "shared" / "data"))
QUERIES: Final = 30
SEED: Final = 42


@pytest.fixture(scope="module")
def documents() -> dict[str, str]:
    """The texts of a small collection by id, in the order of its file."""
    file = DATA / "xquad" / "en" / "corpus.jsonl"
    if not file.is_file():
        pytest.skip(f"{file} is missing")
    corpus = pd.read_json(file, lines=True, dtype=str)
    texts = (corpus.title + " " + corpus.text).str.strip()
    return dict(zip(corpus._id, texts, strict=True))


@pytest.fixture(scope="module")
def mine(run_once: Any) -> Callable[..., Mined]:
    """Mine the collection by a recipe."""

    def run(recipe: str, setting: str) -> Mined:
        settings = f"recipe={recipe},collection=beir:{DATA / 'xquad' / 'en'},seed={SEED}"
        settings += f",ingestion.max_queries={QUERIES},ingestion.passages=none"
        settings += f",ingestion.new_queries=0,recipes.{recipe}.mining.{setting}"
        words = ("--pipelines", "mining", "--params", settings)
        return Mined.read(run_once(f"published-{recipe}", *words))

    return run


@dataclass(frozen=True)
class Query:
    """A query with its positive and its candidates, by document id, and their columns."""

    id: str
    text: str
    positive: str
    index: int
    own: pd.Series
    candidates: pd.DataFrame


@dataclass(frozen=True)
class Mined:
    """What mining left."""

    queries: list[Query]
    rows: pd.DataFrame

    @staticmethod
    def read(place: Any) -> Mined:
        """Read the candidates with the columns of all stages, and the training rows."""
        ids = place.table("ingestion", "corpus.parquet").document_id.to_numpy()
        texts = place.table("ingestion", "queries.parquet").set_index("query_id").text
        queries = []
        for block in place.with_stage_columns():
            for number, name in enumerate(block.query_ids):
                filled = block.filled[number]
                own = {name: values[number, 0] for name, values in block.positive_columns.items()}
                columns = {name: values[number][filled] for name, values in block.columns.items()}
                table = pd.DataFrame(columns, index=ids[block.documents[number][filled]])
                index = int(block.positives[number, 0])
                queries.append(
                    Query(str(name), texts[name], ids[index], index, pd.Series(own), table)
                )
        rows = place.table("selection", "training_rows.parquet").set_index("query_id")
        return Mined(queries, rows)


@pytest.fixture(scope="module")
def bm25(documents: dict[str, str]) -> Any:
    """rank_bm25 on words between white space, as both texts build it."""
    from rank_bm25 import BM25Okapi

    return BM25Okapi([text.lower().split() for text in documents.values()])


def nearest_by_bm25(bm25: Any, documents: dict[str, str], query: Query) -> list[str]:
    """Return the candidates of the notebooks: the first by BM25, without the positive."""
    scores = bm25.get_scores(query.text.lower().split())
    ids = [list(documents)[place] for place in np.argsort(scores)[::-1][:50]]
    return [name for name in ids if name != query.positive]


def test_anmi_2_0_is_its_notebook(mine: Any, documents: dict[str, str], bm25: Any) -> None:
    code = classes("001", "SparseELOEstimator", "ELOGapSelector")
    mined = mine("anmi_2_0_as_published", "elo.depth=50")
    estimator = code["SparseELOEstimator"](comparison_degree=4)
    selector = code["ELOGapSelector"]()
    for query in mined.queries:
        table = query.candidates
        assert {*table.index} == {*nearest_by_bm25(bm25, documents, query)}

        # Their comparisons are drawn at random, and so are ours: they get ours.
        keys = [f"{query.id}\x1f{query.index}"]
        first, second, valid = preferences.comparisons(keys, np.array([len(table) + 1]), 4, SEED)
        edges = list(zip(first[valid].tolist(), second[valid].tolist(), strict=True))
        scores = np.concatenate([[query.own.dense], table.dense])
        estimator._build_k_regular_graph = lambda n, edges=edges: edges
        elos = estimator.estimate(scores.astype(np.float64))
        np.testing.assert_allclose(np.concatenate([[query.own.elo], table.elo]), elos, atol=0.05)

        selected = selector.select_and_weight(query.own.elo, list(enumerate(table.elo)), 7)
        row = mined.rows.loc[query.id]
        assert list(row.negative_ids) == [table.index[place] for place, _ in selected]
        np.testing.assert_allclose(row.weights, [weight for _, weight in selected])


def test_anmi_2_1_is_its_integrated_system(mine: Any, documents: dict[str, str], bm25: Any) -> None:
    code = classes(
        "000",
        "CrossEncoderDenoiser",
        "PositiveRelativeSelector",
        "LearnableDebiasedLoss",
        "ProbabilisticNegativeWeighter",
        "SimANSNegativeSampler",
        "LearningProgressCurriculum",
        "LearnableTemperature",
        "ANMI_2_1",
    )
    mined = mine("anmi_2_1_as_published", "denoising.depth=50")
    teacher = _Teacher()
    system = code["ANMI_2_1"](pairwise_model=None, cross_encoder=teacher)
    for query in mined.queries:
        table = query.candidates
        assert {*table.index} == {*nearest_by_bm25(bm25, documents, query)}
        np.testing.assert_allclose(table.p_cross, scipy.special.expit(table.cross), rtol=1e-5)

        teacher.probabilities = table.p_cross
        names = list(table.index)
        negatives = system.select_and_weight_negatives(
            query.text, query.positive, names, query.own.dense, table.dense.tolist()
        )
        row = mined.rows.loc[query.id] if query.id in mined.rows.index else None
        if row is None:
            assert not negatives
            continue
        assert list(row.negative_ids) == [negative["doc"] for negative in negatives]
        expected = [negative["weight"] for negative in negatives]
        np.testing.assert_allclose(row.weights, expected, atol=1e-4)


class _Teacher:
    """A cross-encoder that says of a query's documents what ours said."""

    probabilities: pd.Series

    def predict(self, query: str, document: str) -> float:
        return float(self.probabilities[document])


@pytest.mark.parametrize("recipe", ["anmi_2_0_as_published", "anmi_2_1_as_published"])
def test_a_recipe_as_published_has_the_loss_of_its_text(recipe: str) -> None:
    book = yaml.safe_load((ROOT / "conf/base/recipes.yml").read_text(encoding="utf-8"))["recipes"]
    options = merged_options(recipe_book(book).get(recipe), TrainingParams())
    ours = build_loss(options, 16)
    generator = torch.Generator().manual_seed(3)
    query, positive = (_unit(torch.randn(8, 16, generator=generator)) for _ in range(2))
    negatives = _unit(torch.randn(8, 7, 16, generator=generator))
    weights = torch.tensor([1.0, 0.7, 0.5, 0.3, 1.0, 0.5, 1.0]).expand(8, 7)
    elo = 1000 + 200 * torch.randn(8, 8, generator=generator)
    similarity = (query * positive).sum(1), torch.einsum("qd,qnd->qn", query, negatives)
    facts = Facts(positive_judged={"elo": elo[:, 0]}, judged={"elo": elo[:, 1:]})
    loss = ours(*similarity, weights.log(), facts).mean()
    if options.loss.kind == "hybrid":
        theirs = class_of("001", "HybridLoss")()
        theirs.elo_head.load_state_dict(ours.head.state_dict())
        expected, _ = theirs(query, positive, negatives, weights, elo)
    else:
        theirs = class_of("000", "LearnableDebiasedLoss")()
        expected = theirs(*similarity, weights)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-4)


def _unit(vectors: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.normalize(vectors, dim=-1)
