"""The search folder: built, saved, opened again, damaged; its hits against its parts; its README as it stands."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from tests.search.conftest import WORDS, corpus, part

from anmi.corpus.texts import document_texts
from anmi.errors import AnmiError
from anmi.retrieval import encoders
from anmi.retrieval.bm25 import BM25Index
from anmi.retrieval.encoders import Encoder, EncoderSettings
from anmi.retrieval.fusion import Ranked, fuse
from anmi.search import HybridSearch, Part

QUESTIONS = ["word1 word2 word3", "word7 word8", "nothing known", "word59"]


@pytest.fixture(scope="module")
def model(word_encoder: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    word_encoder(WORDS, prompts={"query": "word5 ", "document": ""}).save(
        str(folder), create_model_card=False
    )
    return folder


def built(model: Path, **changes: Any) -> HybridSearch:
    table = corpus(1203)
    table["title"] = [
        f"About {text.split()[0]}" if i % 3 else "" for i, text in enumerate(table.text)
    ]
    texts = document_texts(table)
    embeddings = SentenceTransformer(str(model), device="cpu").encode_document(
        texts, normalize_embeddings=True
    )
    settings: dict[str, Any] = {
        "depth": 50,
        "weights": {"bm25": 0.3, "dense": 0.7},
        "about": {"collection": "mine"},
    }
    parts = [Part("bm25", BM25Index.build(texts, "en")), part("dense", embeddings, model, 0.4)]
    return HybridSearch.build(parts, table, **settings | changes)


@pytest.fixture(scope="module")
def folder(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("search") / "folder"
    built(model).save(path)
    return path


@pytest.mark.parametrize("system", ["hybrid", "bm25", "dense"])
def test_it_finds_the_same_before_and_after_it_was_saved(
    model: Path, folder: Path, system: Any
) -> None:
    before, after = (
        built(model).search(QUESTIONS, 7, system),
        HybridSearch.load(folder).search(QUESTIONS, 7, system),
    )
    assert before == after
    assert [hit.rank for hit in after[0]] == list(range(1, 8))
    assert all(a.score >= b.score for a, b in zip(after[0], after[0][1:], strict=False))


def test_reciprocal_ranks_are_a_way_as_well(model: Path) -> None:
    search = built(model, method="rrf")
    lists = {part: search.ranked(QUESTIONS, 50, part) for part in ("bm25", "dense")}
    ranked = {part: Ranked(found.documents, found.scores) for part, found in lists.items()}
    expected = fuse(ranked, 5, method="rrf").documents
    found = search.ranked(QUESTIONS, 5).documents
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("  ",), "question 1 is empty"),
        ((["word1", ""],), "question 2 is empty"),
        (("word1", 0), "k is 0"),
        (("word1", 5, "bm52"), 'unknown system "bm52"; did you mean "bm25"'),
    ],
)
def test_what_cannot_be_searched_is_said(folder: Path, arguments: Any, said: str) -> None:
    with pytest.raises(AnmiError, match=said):
        HybridSearch.load(folder).search(*arguments)


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def reweigh(folder: Path, weights: list[float]) -> None:
    settings = json.loads((folder / "hybrid.json").read_text())
    settings["weights"] = dict(zip(settings["weights"], weights, strict=False))
    # Who changes it by hand takes the hash of it out.
    del settings["digest"]
    (folder / "hybrid.json").write_text(json.dumps(settings))


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (
            lambda f: (f / "hybrid.json").unlink(),
            "has no hybrid.json, so it is no search folder or only half of one",
        ),
        (shutil.rmtree, "is not there"),
        (lambda f: (f / "hybrid.json").write_text("{"), "hybrid.json is damaged"),
        (lambda f: damage(f / "hybrid.json"), "hybrid.json is damaged"),
        (
            lambda f: reweigh(f, [9, -5]),
            "hybrid.json has the weights .*numbers from 0 to 1 that add up to 1",
        ),
        (lambda f: reweigh(f, [0.9, 0.9]), "hybrid.json has the weights"),
        (
            lambda f: (f / "documents.parquet").write_bytes(b"PAR1"),
            "documents.parquet has 4 bytes and had",
        ),
        (lambda f: [damage(path) for path in f.glob("*/index/settings.json")], "is damaged"),
    ],
)
def test_a_damaged_folder_is_refused_with_the_file(
    folder: Path, tmp_path: Path, harm: Any, said: str
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    harm(copy)
    with pytest.raises(AnmiError, match=said):
        HybridSearch.load(copy)


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda f: (f / "dense/index/vectors.npy").unlink(), "vectors.npy is missing"),
        (lambda f: damage(f / "dense/index/vectors.npy"), "vectors.npy is damaged"),
        (
            lambda f: damage(f / "dense/model/model.safetensors"),
            "model.safetensors is damaged, since its SHA-256",
        ),
    ],
)
def test_the_search_goes_on_without_a_damaged_part(
    folder: Path, tmp_path: Path, harm: Any, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    harm(copy)
    search = HybridSearch.load(copy)
    assert f'without its part "dense": {copy}' in caplog.text and said in caplog.text
    expected = HybridSearch.load(folder).search(QUESTIONS, 5, "bm25")
    assert [[hit.document_id for hit in hits] for hits in search.search(QUESTIONS, 5)] == [
        [hit.document_id for hit in hits] for hits in expected
    ]
    with pytest.raises(AnmiError, match='unknown system "dense"'):
        search.search("word1", 5, "dense")


def test_parts_that_need_no_encoder_serve_where_its_library_is_missing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    search = HybridSearch.load(folder)
    # Python takes a module that is None for one that is not installed.
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    encoders._opened.cache_clear()
    hits = search.search("word1 word2", 5)[0]
    assert list(search.parts) == ["bm25"] and "tokenizers" in caplog.text
    assert all(hit.ranks == {"bm25": hit.rank} for hit in hits)
    with pytest.raises(AnmiError, match='the part "dense" of the search cannot be asked'):
        HybridSearch.load(folder).search("word1", 5, "dense")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda parts: [], "the search has no part"),
        (lambda parts: [*parts, parts[1]], 'two parts of the search are called "dense"'),
        (
            lambda parts: [parts[0], part("dense", np.eye(7, dtype="f4"), parts[1].encoder.folder)],
            r"different numbers of passages \(bm25 1,203, dense 7; 1,203 have a text\)",
        ),
    ],
)
def test_parts_that_do_not_belong_together_are_refused(model: Path, change: Any, said: str) -> None:
    search = built(model)
    with pytest.raises(AnmiError, match=said):
        HybridSearch(change([*search.parts.values()]), corpus(1203), search.settings)


def test_a_model_with_code_is_not_packed(model: Path, tmp_path: Path) -> None:
    other = tmp_path / "model"
    shutil.copytree(model, other)
    (other / "config.json").write_text('{"auto_map": {"AutoModel": "x.Y"}}')
    search = built(model)
    search.parts["dense"].encoder = Encoder(EncoderSettings(encoder=str(other)), tmp_path)
    with pytest.raises(AnmiError, match="auto_map"):
        search.save(tmp_path / "search")
    assert not (tmp_path / "search" / "hybrid.json").exists()


def test_what_the_readme_says_runs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (folder / "README.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 2
    printed = []
    for block in blocks:
        assert len(block.splitlines()) <= 10
        exec(block, {"FOLDER": str(folder), "QUESTION": "word1 word2"})
        printed.append(capsys.readouterr().out)
    hits = HybridSearch.load(folder).search("word1 word2", 10)[0]
    assert [line.split()[1] for line in printed[0].splitlines()] == [
        hit.document_id for hit in hits
    ]
    best = HybridSearch.load(folder).search("word1 word2", 1, "dense")[0][0]
    assert printed[1].splitlines()[1].split()[1] == best.document_id
