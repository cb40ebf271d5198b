"""A search whose encoder is sparse: saved and opened, its README, its export, and what the report says of its terms."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from click.testing import CliRunner

from anmi.cli.opensearch import opensearch
from anmi.corpus.texts import document_texts
from anmi.errors import AnmiError
from anmi.evaluation.sparse_terms import sparse_terms
from anmi.report.sparse_terms import sparse_terms as section
from anmi.retrieval.bm25 import BM25Index
from anmi.retrieval.encoders import fingerprint, load_encoder
from anmi.retrieval.index import SHARE, spread_of_scores
from anmi.retrieval.kinds import is_sparse
from anmi.retrieval.sparse.index import pruned
from anmi.retrieval.sparse.model import inference_free, sparse_vectors
from anmi.search import HybridSearch
from anmi.search.opensearch import export_opensearch
from anmi.search.retriever import Encoded

WORDS = [f"word{i}" for i in range(60)]
QUESTIONS = ["word1 word2 word3", "word7 word8", "word59"]
SETTINGS: dict[str, Any] = {"encoder": {"max_length": 256, "precision": "float32", "batch_size": 8}}


def corpus(count: int = 300) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS, 6)) for _ in range(count)]
    ids = [f"d{i}" for i in range(count)]
    return pd.DataFrame({"document_id": ids, "title": "", "text": texts, "metadata": "{}"})


@pytest.fixture(scope="module")
def retriever(word_encoder: Any) -> Any:
    made = inference_free(word_encoder(WORDS), corpus().text.tolist())
    with torch.no_grad():
        made[0].sub_modules["document"][0].threshold.fill_(0.3)
    return made


@pytest.fixture(scope="module")
def folder(retriever: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("sparse")
    retriever.save(str(place / "model"), create_model_card=False)
    table = corpus()
    texts = document_texts(table)
    documents = sparse_vectors(retriever, texts, "document")
    spread = spread_of_scores(sparse_vectors(retriever, QUESTIONS, "query"), documents)
    parts = [Encoded(place / "model", documents, spread)]
    made = HybridSearch.build(BM25Index.build(texts, "en"), table, parts, **SETTINGS)
    made.save(place / "search")
    return place / "search"


def products(retriever: Any) -> Any:
    queries = sparse_vectors(retriever, QUESTIONS, "query")
    return (queries @ pruned(sparse_vectors(retriever, corpus().text.tolist(), "document"), SHARE).T).toarray()


def test_it_finds_what_the_model_says(retriever: Any, folder: Path) -> None:
    search, scores = HybridSearch.load(folder), products(retriever)
    assert list(search.retrievers) == ["sparse"]
    for row, hits in enumerate(search.search(QUESTIONS, 10, "sparse")):
        assert [hit.score for hit in hits] == pytest.approx(np.sort(scores[row])[::-1][:10], rel=1e-5)
        assert all(hit.score == pytest.approx(scores[row, int(hit.document_id[1:])], rel=1e-5) for hit in hits)
    assert len(search.search(QUESTIONS[0], 10)[0]) == 10
    with pytest.raises(AnmiError, match="sparse"):
        search.search(QUESTIONS, 10, "dense")


def test_the_folder_of_the_model_is_known_as_sparse(retriever: Any, folder: Path, tmp_path: Path) -> None:
    model = load_encoder(str(folder / "model"), tmp_path)
    assert is_sparse(model)
    assert fingerprint(model) == fingerprint(load_encoder(str(folder / "model"), tmp_path))
    found, expected = (sparse_vectors(each, QUESTIONS, "document").toarray() for each in (model, retriever))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_searching_takes_no_pytorch(folder: Path) -> None:
    code = (
        "import sys; from anmi.search import HybridSearch; "
        f"print(len(HybridSearch.load({str(folder)!r}).search('word1')[0]), 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["10", "False"]


def test_its_readme_finds_the_same_without_anmi(retriever: Any, folder: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    (alone,) = (block for block in blocks if "import anmi" not in block and "from anmi" not in block)
    variables: dict[str, Any] = {"FOLDER": str(folder), "QUESTION": QUESTIONS[0]}
    exec(alone, variables)
    np.testing.assert_allclose(variables["scores"], products(retriever)[0], rtol=1e-5)


def test_what_opensearch_is_given_scores_alike(retriever: Any, folder: Path, tmp_path: Path) -> None:
    assert export_opensearch(HybridSearch.load(folder), tmp_path, QUESTIONS[0]) == 300
    lines = [json.loads(line) for line in (tmp_path / "documents.ndjson").read_text(encoding="utf-8").splitlines()]
    idf, mapping = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("idf", "index"))
    assert mapping["mappings"]["properties"]["terms"] == {"type": "rank_features"}
    sources = {action["index"]["_id"]: source for action, source in zip(lines[::2], lines[1::2], strict=True)}
    features = {name for source in sources.values() for name in source["terms"]}
    # Their documentation: features are positive, their names without dots.
    assert min(weight for source in sources.values() for weight in source["terms"].values()) > 0
    assert not any("." in name for name in features)
    assert features <= set(idf)
    asked = json.loads((tmp_path / "query.json").read_text())["query"]["neural_sparse"]["terms"]["query_tokens"]
    clauses = json.loads((tmp_path / "query_elasticsearch.json").read_text())["query"]["bool"]["should"]
    assert {clause["rank_feature"]["field"]: clause["rank_feature"]["boost"] for clause in clauses} == {
        f"terms.{name}": weight for name, weight in asked.items()
    }
    scores = [sum(asked[name] * source["terms"].get(name, 0) for name in asked) for source in sources.values()]
    np.testing.assert_allclose(scores, products(retriever)[0], atol=1e-3)


def test_the_command_writes_it_and_refuses_what_it_cannot(folder: Path, tmp_path: Path, word_encoder: Any) -> None:
    target = tmp_path / "files"
    done = CliRunner().invoke(opensearch, [str(target), "--search", str(folder), "--question", "word1"])
    assert done.exit_code == 0, done.output
    assert {path.name for path in target.iterdir()} >= {"index.json", "documents.ndjson", "idf.json", "query.json"}
    again = CliRunner().invoke(opensearch, [str(target), "--search", str(folder)])
    assert "is not empty" in again.output
    unknown = CliRunner().invoke(opensearch, [str(tmp_path / "b"), "--search", str(folder), "--question", "zebra"])
    assert 'no term of "zebra"' in unknown.output
    assert not (tmp_path / "b").exists()
    word_encoder(WORDS).save(str(tmp_path / "dense"), create_model_card=False)
    table = corpus(20)
    parts = [Encoded(tmp_path / "dense", np.eye(20, dtype=np.float32), 1.0)]
    made = HybridSearch.build(BM25Index.build(table.text.tolist(), "en"), table, parts, **SETTINGS)
    with pytest.raises(AnmiError, match="recipe=sparse"):
        export_opensearch(made, tmp_path / "c")


def test_further_terms_are_told_from_a_documents_own(folder: Path) -> None:
    search = HybridSearch.load(folder)
    found = sparse_terms(search.main.index, search.main.encode, corpus().text.tolist(), seed=1)
    own = {row.document_id: set(row.text.split()) for row in corpus().itertuples()}
    vectors = search.main.vectors()
    assert found["terms_per_document"] == pytest.approx(vectors.nnz / 300)
    assert 0 < found["further_per_document"] < found["terms_per_document"]
    assert any(term["further"] for document in found["documents"] for term in document["terms"])
    for document in found["documents"]:
        for term in document["terms"]:
            assert term["further"] == (term["term"] not in own[document["document_id"]])
    heavy, light = ([term["weight"] for term in found[name]] for name in ("heaviest", "lightest"))
    assert heavy == sorted(heavy, reverse=True)
    assert heavy[-1] >= light[-1]
    shown = section(found)
    assert shown is not None
    assert found["documents"][0]["terms"][0]["term"] == shown["documents"][0]["terms"][0]["term"]
    assert section({}) is None
