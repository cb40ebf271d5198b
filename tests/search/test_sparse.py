"""A search whose encoder is sparse: saved and opened, its README, its export, and what the report says of its terms."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from tests.search.conftest import WORDS, corpus, part

from anmi.corpus.texts import document_texts
from anmi.report.console import hits_table
from anmi.retrieval.bm25 import BM25Index
from anmi.retrieval.index import SHARE, pruned, spread_of_scores
from anmi.retrieval.sparse.model import inference_free, sparse_vectors
from anmi.search import HybridSearch, Part
from anmi.search.exports import export_vectors

QUESTIONS = ["word1 word2 word3", "word7 word8", "word59"]


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
    parts = [
        Part("bm25", BM25Index.build(texts, "en")),
        part("sparse", documents, place / "model", spread),
    ]
    made = HybridSearch.build(parts, table)
    made.save(place / "search")
    return place / "search"


@pytest.fixture(scope="module")
def three(retriever: Any, word_encoder: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A search with a dense and a sparse retriever."""
    place = tmp_path_factory.mktemp("three")
    dense = word_encoder(WORDS)
    for name, model in (("dense", dense), ("sparse", retriever)):
        model.save(str(place / name), create_model_card=False)
    table, texts = corpus(), document_texts(corpus())
    vectors = dense.encode_document(texts, normalize_embeddings=True)
    parts = [
        Part("bm25", BM25Index.build(texts, "en")),
        part("dense", vectors, place / "dense", 0.3),
        part("sparse", sparse_vectors(retriever, texts, "document"), place / "sparse", 0.8),
    ]
    weights = {"bm25": 0.25, "dense": 0.25, "sparse": 0.5}
    about = {
        "fit": {
            "of": "labels",
            "queries": 40,
            "kind": "all",
            "weights": weights,
            "low": weights,
            "high": weights,
            "ndcg@10": {"bm25": 0.5, "hybrid": 0.75},
        }
    }
    made = HybridSearch.build(parts, table, weights=weights, about=about)
    made.save(place / "search")
    return place / "search"


def test_three_parts_say_of_every_hit_what_they_say_alone(three: Path) -> None:
    search = HybridSearch.load(three)
    assert list(search.parts) == ["bm25", "dense", "sparse"]
    own = {
        name: [
            {hit.document_id: hit for hit in hits} for hits in search.search(QUESTIONS, 100, name)
        ]
        for name in ("bm25", "dense", "sparse")
    }
    spreads = search.lists(QUESTIONS, 1).spreads
    texts = corpus().set_index("document_id").text
    for place, hits in enumerate(search.search(QUESTIONS, 10)):
        for hit in hits:
            assert hit.text == texts[hit.document_id]
            total = 0.0
            for name, found in own.items():
                alone = found[place].get(hit.document_id)
                assert hit.ranks[name] == (alone.rank if alone else None)
                least = (
                    min(other.score for other in found[place].values())
                    if len(found[place]) == 100
                    else 0.0
                )
                score = alone.score if alone else least
                total += search.settings["weights"][name] * score / spreads[name][place]
            assert hit.score == pytest.approx(total, rel=1e-5)


def test_a_search_of_three_parts_exports_its_terms_and_says_what_it_holds(
    three: Path, tmp_path: Path
) -> None:
    text = (three / "README.md").read_text()
    assert "`sparse/model/` | a sentence-transformers" in text and "`sparse/index/*.npy`" in text
    HybridSearch.load(three).save(tmp_path / "again")
    again = HybridSearch.load(tmp_path / "again")
    assert again.search(QUESTIONS, 5) == HybridSearch.load(three).search(QUESTIONS, 5)
    heads = [
        str(column.header)
        for column in hits_table("", again.search("word1", 2)[0], again.parts).columns
    ]
    assert {"BM25", "dense", "sparse"} <= set(" ".join(heads).split())


def products(retriever: Any) -> Any:
    queries = sparse_vectors(retriever, QUESTIONS, "query")
    return (
        queries @ pruned(sparse_vectors(retriever, corpus().text.tolist(), "document"), SHARE).T
    ).toarray()


def test_searching_takes_no_pytorch(three: Path) -> None:
    """By a table of vectors and by one of terms."""
    code = (
        "import sys; from anmi.search import HybridSearch; "
        f"print(len(HybridSearch.load({str(three)!r}).search('word1')[0]), "
        "{'torch', 'transformers', 'sentence_transformers'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "10 set()\n"


def test_its_readme_finds_the_same_without_anmi(retriever: Any, folder: Path) -> None:
    blocks = re.findall(
        r"```python\n(.*?)```", (folder / "README.md").read_text(encoding="utf-8"), re.DOTALL
    )
    (alone,) = (
        block for block in blocks if "import anmi" not in block and "from anmi" not in block
    )
    variables: dict[str, Any] = {"FOLDER": str(folder), "QUESTION": QUESTIONS[0]}
    exec(alone, variables)
    np.testing.assert_allclose(variables["scores"], products(retriever)[0], rtol=1e-5)


def test_every_part_of_a_search_is_an_inner_product_of_vectors(three: Path, tmp_path: Path) -> None:
    search = HybridSearch.load(three)
    assert export_vectors(search, tmp_path / "files") == 300
    table = pd.read_parquet(tmp_path / "files" / "documents.parquet")
    terms = pd.read_parquet(tmp_path / "files" / "terms.parquet").set_index("term")["index"]
    assert table.id.tolist() == search.document_ids
    bm25: Any = search.parts["bm25"].index
    asked = {kind: search.parts[kind].encode(QUESTIONS) for kind in ("dense", "sparse")}
    for question in [*QUESTIONS[:2], "word1 word1 word5"]:
        question_terms = terms.reindex(bm25.tokenize([question])[0]).dropna().astype(int)
        weights = np.bincount(question_terms, minlength=len(terms))
        told = [
            values @ weights[places]
            for places, values in zip(table.bm25_indices, table.bm25_values, strict=True)
        ]
        ((_, expected),) = bm25.scored([question], 300)
        assert np.allclose(told, expected[0], atol=1e-5) and max(told) > 0
    for row in range(2):
        sparse = asked["sparse"][[row]].toarray()[0]
        found = {
            "dense": np.stack(table.dense.tolist()) @ asked["dense"][row],
            "sparse": [
                v @ sparse[i]
                for i, v in zip(table.sparse_indices, table.sparse_values, strict=True)
            ],
        }
        for kind, told in found.items():
            best = search.ranked([QUESTIONS[row]], 5, kind)
            assert np.allclose(np.sort(told)[::-1][:5], best.scores[0], atol=1e-4), kind
    readme = (tmp_path / "files" / "README.md").read_text()
    assert (
        '"en")' in readme
        and "300 documents" in readme
        and str(search.settings["weights"]) in readme
    )
