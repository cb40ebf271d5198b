"""The catalogue of ir_datasets, offline: datasets registered from local files."""

from __future__ import annotations

import sys
import uuid

import pytest

from anmi.corpus.sources import load_collection
from anmi.errors import AnmiError

ir_datasets = pytest.importorskip("ir_datasets")


@pytest.fixture
def register(tmp_path):
    from ir_datasets.datasets.base import Dataset
    from ir_datasets.formats import JsonlDocs, TrecQrels, TsvQueries
    from ir_datasets.util import LocalDownload

    base = f"local-{uuid.uuid4().hex[:8]}"

    def local(name, text):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return LocalDownload(path)

    def add(split, first, last, *, qrels=None):
        documents = "".join(f'{{"doc_id": "d{i}", "text": "the document number {i}"}}\n' for i in range(40))
        docs = JsonlDocs(local("docs.jsonl", documents), lang="en", docstore_path=str(tmp_path / "docs.pklz4"))
        queries = TsvQueries(local(f"{split}.tsv", "".join(f"q{i}\tthe query {i}\n" for i in range(first, last))))
        lines = qrels or "".join(f"q{i} 0 d{i} 1\n" for i in range(first, last))
        name = f"{base}/{split}" if split else base
        ir_datasets.registry.register(
            name, Dataset(docs, queries, TrecQrels(local(f"{split}.qrels", lines), {1: "yes"}))
        )
        return name

    yield add
    for name in [name for name in ir_datasets.registry if name.startswith(base)]:
        del ir_datasets.registry._registered[name]


def test_siblings_become_dev_and_test(register):
    name = register("train", 0, 20)
    register("validation", 20, 30)
    register("test", 30, 40)
    found = load_collection(f"ir_datasets:{name}")
    assert found.queries["split"].value_counts().to_dict() == {"train": 20, "dev": 10, "test": 10}
    assert found.corpus["text"][3] == "the document number 3"
    assert found.language == "en"
    assert found.notes["ir_datasets"]["dev"].endswith("/validation")
    parent = load_collection(f"ir_datasets:{name.removesuffix('/train')}")
    assert parent.queries.equals(found.queries)


def test_a_dataset_without_splits_is_cut(register):
    found = load_collection(f"ir_datasets:{register('', 0, 40)}", dev_share=0.25, test_share=0.25)
    assert set(found.queries["split"]) == {"train", "dev", "test"}
    assert len(found.queries) == 40


def test_a_test_split_is_refused(register):
    register("train", 0, 20)
    with pytest.raises(AnmiError, match="no training split"):
        load_collection(f"ir_datasets:{register('test', 20, 40)}")


def test_unknown_name_has_a_hint():
    with pytest.raises(AnmiError, match=r'"beir/scifcat/train".*did you mean "beir/scifact/train"'):
        load_collection("ir_datasets:beir/scifcat/train")


def test_whatever_goes_wrong_is_said_in_one_sentence(register):
    name = register("train", 0, 20, qrels="q0 d0\n")
    with pytest.raises(AnmiError, match=r"cannot be read \(RuntimeError: expected 4 columns.*network"):
        load_collection(f"ir_datasets:{name}")


def test_absent_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ir_datasets", None)
    with pytest.raises(AnmiError, match=r'pip install "anmi\[ir-datasets\]"'):
        load_collection("ir_datasets:beir/scifact/train")
