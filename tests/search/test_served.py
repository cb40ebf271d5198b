"""Terms and weights of a sparse retriever, as MLflow asks for them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from anmi.datasets.model_registry import model_folder
from anmi.retrieval.sparse.model import inference_free

TEXTS = ["mean of an array", "nan of an array", "sort"]


@pytest.fixture(scope="module")
def model(word_encoder: Callable[..., Any]) -> Any:
    return inference_free(
        word_encoder(["mean", "of", "an", "array", "nan", "sort", "list"]), [*TEXTS, "list of nan"]
    )


@pytest.fixture(scope="module")
def folder(model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(model, tmp_path_factory.mktemp("served") / "model", {}, None)


@pytest.fixture(scope="module")
def loaded(folder: Path) -> Any:
    import mlflow.pyfunc

    return mlflow.pyfunc.load_model(str(folder))


@pytest.mark.parametrize("role", ["document", "query"])
def test_mlflow_serves_it_by_its_example(role: str, folder: Path, loaded: Any) -> None:
    from mlflow.models import validate_serving_input

    example = json.loads((folder / "serving_input_example.json").read_text(encoding="utf-8"))
    asked = json.dumps(example | {"params": {"role": role}})
    assert validate_serving_input(str(folder), asked) == loaded.predict(
        example["inputs"], params={"role": role}
    )


def test_terms_multiplied_are_the_score_of_sentence_transformers(model: Any, loaded: Any) -> None:
    queries, documents = (
        loaded.predict(TEXTS, params={"role": role}) for role in ("query", "document")
    )
    expected = (
        model.similarity(model.encode_query(TEXTS), model.encode_document(TEXTS))
        .to_dense()
        .tolist()
    )
    for asked, row in zip(queries, expected, strict=True):
        weight = dict(zip(asked["terms"], asked["weights"], strict=True))
        for document, score in zip(documents, row, strict=True):
            product = zip(document["terms"], document["weights"], strict=True)
            assert sum(weight.get(term, 0.0) * value for term, value in product) == pytest.approx(
                score, rel=1e-5
            )


def test_the_heaviest_term_stands_first_and_texts_are_documents_by_default(loaded: Any) -> None:
    found = loaded.predict(TEXTS)
    assert (
        found
        == loaded.predict(TEXTS, params={"role": "document"})
        != loaded.predict(TEXTS, params={"role": "query"})
    )
    for row in found:
        assert row["weights"] == sorted(row["weights"], reverse=True)
        assert min(row["weights"], default=1.0) > 0
    assert found == loaded.predict(pd.DataFrame({"text": TEXTS})), "a table of one column, too"
