"""A search as a model that MLflow's own server runs."""

from __future__ import annotations

import json
import os
import sysconfig
import urllib.request
from pathlib import Path

import pandas as pd
import pytest
from tests.commands import free_port, serving

from anmi.datasets.model_registry import search_folder
from anmi.retrieval.bm25 import BM25Index
from anmi.search import HybridSearch, Part

CORPUS = pd.DataFrame(
    {
        "document_id": ["fox", "whale", "tree"],
        "title": ["", "Sea", ""],
        "text": ["a red fox in the den", "a blue whale", "a green tree"],
    }
)


@pytest.mark.rare
def test_mlflow_models_serve_answers_questions_with_documents(tmp_path: Path) -> None:
    part = Part("bm25", BM25Index.build(CORPUS.text.tolist(), "en"))
    HybridSearch.build([part], CORPUS).save(tmp_path / "search")
    search = HybridSearch.load(tmp_path / "search")
    search_folder(search, tmp_path / "model")
    port = free_port()
    words = ["mlflow", "models", "serve", "-m", str(tmp_path / "model"), "--env-manager", "local"]
    words += ["--host", "127.0.0.1", "--port", str(port)]
    example = (tmp_path / "model" / "serving_input_example.json").read_bytes()
    question = {"inputs": ["whale", "red fox"], "params": {"documents": 1}}
    # MLflow starts uvicorn by its name.
    path = f"{sysconfig.get_path('scripts')}:{os.environ['PATH']}"
    with serving(*words, port=port, log=tmp_path / "log", PATH=path) as address:
        answers = []
        for body in (example, json.dumps(question).encode()):
            request = urllib.request.Request(
                f"{address}/invocations", body, {"content-type": "application/json"}
            )
            with urllib.request.urlopen(request, timeout=60) as response:
                answers.append(json.loads(response.read())["predictions"])
    assert len(answers[0]) == 1
    hits = [hit.as_dict() for hits in search.search(["whale", "red fox"], 1) for hit in hits]
    assert [answer["documents"][0]["document_id"] for answer in answers[1]] == ["whale", "fox"]
    for answer, hit in zip(answers[1], hits, strict=True):
        (document,) = answer["documents"]
        assert document == {name: hit[name] for name in document}
