"""`mine_hard_negatives` beside that of sentence-transformers, on the same inputs."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets import Dataset, DatasetDict
from sentence_transformers import util

from anmi import mine_hard_negatives
from anmi.errors import AnmiError

QUERIES = 40
WORDS = [f"w{number}" for number in range(60)]
FORMATS = ("triplet", "n-tuple", "labeled-pair", "labeled-list")


@pytest.fixture(scope="module")
def texts() -> dict[str, list[str]]:
    """Queries of four words, a document that holds them, and further documents."""
    draw = np.random.default_rng(0)
    documents = [" ".join(draw.choice(WORDS, 9)) for _ in range(120)]
    queries = [" ".join(document.split()[:4]) for document in documents[:QUERIES]]
    return {
        "query": [*queries, *queries[:5]],
        "answer": [*documents[:QUERIES], *documents[QUERIES : QUERIES + 5]],
        "corpus": documents,
    }


@pytest.fixture(scope="module")
def pairs(texts: dict[str, list[str]]) -> Dataset:
    return Dataset.from_dict({name: texts[name] for name in ("query", "answer")})


@pytest.fixture(scope="module")
def model(word_encoder: Any) -> Any:
    return word_encoder(WORDS, dimension=16)


@pytest.fixture(scope="module")
def cross_encoder(tmp_path_factory: pytest.TempPathFactory) -> Any:
    import torch
    from sentence_transformers import CrossEncoder
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    folder = tmp_path_factory.mktemp("cross")
    vocabulary = {
        w: n for n, w in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS])
    }
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = BertConfig(vocab_size=len(vocabulary), intermediate_size=16, num_labels=1, **sizes)
    BertForSequenceClassification(config).save_pretrained(folder)
    BertTokenizerFast(vocab=vocabulary).save_pretrained(folder)
    return CrossEncoder(str(folder), device="cpu", max_length=32)


def rows(dataset: Dataset) -> list[dict[str, Any]]:
    return [
        {
            name: np.round(value, 4).tolist() if name.startswith("score") else value
            for name, value in row.items()
        }
        for row in dataset
    ]


def test_it_takes_what_that_of_sentence_transformers_takes() -> None:
    theirs = inspect.signature(util.mine_hard_negatives).parameters
    ours = inspect.signature(mine_hard_negatives).parameters
    assert list(ours)[: len(theirs)] == list(theirs)
    assert all(ours[name].default == theirs[name].default for name in theirs)


@pytest.mark.parametrize("output_format", FORMATS)
@pytest.mark.parametrize("output_scores", [False, True])
def test_rows_are_theirs_where_theirs_are_complete(
    pairs: Dataset,
    model: Any,
    texts: dict[str, list[str]],
    output_format: Any,
    output_scores: bool,
) -> None:
    settings: dict[str, Any] = {
        "corpus": texts["corpus"],
        "relative_margin": 0.05,
        "range_min": 1,
        "min_score": -0.5,
        "num_negatives": 2,
        "output_format": output_format,
        "output_scores": output_scores,
        "verbose": False,
    }
    theirs = util.mine_hard_negatives(pairs, model, **settings)
    ours = mine_hard_negatives(pairs, model, judge="none", **settings)
    assert ours.features == theirs.features
    if len(ours) == len(theirs):
        assert rows(ours) == rows(theirs)
    else:
        kept = rows(ours)
        assert all(row in kept for row in rows(theirs)) or output_format == "labeled-list"
    assert len(ours) >= len(theirs) > 0


def test_a_cross_encoder_scores_as_it_does_there(
    pairs: Dataset, model: Any, cross_encoder: Any, texts: dict[str, list[str]]
) -> None:
    settings: dict[str, Any] = {
        "corpus": texts["corpus"],
        "cross_encoder": cross_encoder,
        "max_score": 1.0,
        "range_max": 10,
        "num_negatives": 2,
        "output_format": "n-tuple",
        "output_scores": True,
        "verbose": False,
    }
    theirs = util.mine_hard_negatives(pairs, model, **settings)
    ours = mine_hard_negatives(pairs, model, judge="none", **settings)
    by_query = {row["query"]: row["scores"][0] for row in rows(theirs)}
    assert {row["query"]: row["scores"][0] for row in rows(ours)} == by_query
    # BM25's candidates were scored, too, so ours are at least as high.
    highest = {row["query"]: row["scores"][1] for row in rows(theirs)}
    assert all(row["scores"][1] >= highest[row["query"]] for row in rows(ours))


def test_positives_are_ranked_among_the_negatives(
    pairs: Dataset, model: Any, texts: dict[str, list[str]]
) -> None:
    settings: dict[str, Any] = {
        "corpus": texts["corpus"],
        "include_positives": True,
        "verbose": False,
    }
    theirs = util.mine_hard_negatives(pairs, model, num_negatives=5, **settings)
    ours = mine_hard_negatives(pairs, model, num_negatives=5, judge="none", **settings)
    assert rows(ours) == rows(theirs)


@pytest.fixture(scope="module")
def judged(
    pairs: Dataset, model: Any, texts: dict[str, list[str]], static_models: Path
) -> tuple[Dataset, Dataset]:
    """The same call twice, the second with vectors at hand and another relevant document known."""
    settings: dict[str, Any] = {"corpus": iter(texts["corpus"]), "store": static_models.parent}
    first = mine_hard_negatives(pairs, model, verbose=False, **settings)
    relevant = {first[0]["query"]: [first[0]["negative"]]}
    settings["corpus"] = texts["corpus"]
    return first, mine_hard_negatives(pairs, model, verbose=False, qrels=relevant, **settings)


def test_the_info_says_where_negatives_come_from_and_how_many_may_be_false(
    judged: tuple[Dataset, Dataset],
) -> None:
    mined, _ = judged
    info = mined.info
    assert info.coverage == 1.0
    assert sum(info.sources.values()) == 3 * QUERIES
    assert any("bm25" in source for source in info.sources)
    assert info.false_negatives["low"] <= info.false_negatives["share"]
    assert info.false_negatives["total"] == 3 * QUERIES
    assert info.rejected[0]["kind"] == "total"
    assert mined.select(range(3)).info.coverage == 1.0


def test_what_is_known_to_be_relevant_is_no_negative(judged: tuple[Dataset, Dataset]) -> None:
    without, with_qrels = judged
    query, negative = without[0]["query"], without[0]["negative"]
    negatives = [row["negative"] for row in with_qrels if row["query"] == query]
    assert len(negatives) == 6 and negative not in negatives
    positives = {(row["query"], row["answer"]) for row in with_qrels}
    assert not {(row["query"], row["negative"]) for row in with_qrels} & positives


def test_a_recipe_chooses_the_negatives(
    pairs: Dataset, model: Any, texts: dict[str, list[str]]
) -> None:
    settings: dict[str, Any] = {"corpus": texts["corpus"], "verbose": False, "judge": "none"}
    by_name = mine_hard_negatives(pairs, model, recipe="naive_top", **settings)
    steps = {"description": "A test.", "steps": {"duplicate_guard": {}, "top": {"by": "dense"}}}
    assert rows(mine_hard_negatives(pairs, model, recipe=steps, **settings)) == rows(by_name)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"anchor_column_name": "question"}, 'no column "question".*anchor_column_name.*query'),
        ({"corpus": ["a text", 3]}, "the corpus has 3 in row 1"),
        ({"corpus": "a text"}, "corpus is one text"),
        ({"dataset": DatasetDict(train=Dataset.from_dict({"a": []}))}, "DatasetDict: .* train"),
        ({"dataset": Dataset.from_dict({"a": ["b"]})}, "the columns a: two"),
        ({"dataset": Dataset.from_dict({"a": [], "b": []})}, "no rows"),
        ({"num_negatives": 0}, "num_negatives is 0"),
        ({"range_max": 2}, "num_negatives=3"),
        ({"output_format": "tuple"}, 'no output_format "tuple".*n-tuple'),
        ({"judge": "llm"}, 'no judge "llm".*fused, none'),
        ({"include_positives": True, "judge": "fused"}, 'judge="none"'),
        ({"recipe": "anmi"}, "reads the judge"),
        ({"recipe": "rocketqa"}, "p_cross.*kedro run"),
        ({"recipe": "nv_retriver"}, 'did you mean "nv_retriever"'),
        ({"recipe": {"steps": {}}}, "recipe: Field required"),
    ],
)
def test_wrong_arguments_are_named(
    pairs: Dataset, model: Any, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(AnmiError, match=message):
        mine_hard_negatives(
            **{"dataset": pairs, "model": model, "judge": "none", "verbose": False, **arguments}
        )


def test_the_import_is_light_and_changes_no_setting_of_libraries() -> None:
    code = (
        "import os, sys; before = dict(os.environ); import anmi;"
        " assert dict(os.environ) == before; print('torch' in sys.modules, 'kedro' in sys.modules);"
        " from anmi import mine_hard_negatives; print('kedro' in sys.modules, 'mlflow' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"] * 4


@pytest.mark.parametrize("module", ["anmi.cli", "anmi.settings"])
def test_commands_draw_no_bars_where_nobody_watches(module: str) -> None:
    code = f"import {module}; from tqdm import tqdm; print(tqdm([1], delay=9).disable)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True"]
