"""Pairs whose texts are equal, and ir_datasets."""

from __future__ import annotations

import json
import uuid

import ir_datasets
import pytest

from anmi.corpus.sources import load_collection
from anmi.errors import AnmiError


def chunk(start, stop):
    more = {"query_type": "phrase", "doc_type": "sentence", "language": "en"}
    return [{"query": f"the query {i}", "document": f"the document {i}", **more} for i in range(start, stop)]


def test_equal_texts_merge_and_chunks_are_read_in_the_order_of_their_numbers(tmp_path):
    more = [{"query": "the query 10", "document": "another"}, {"query": "a new one", "document": "the document 13"}]
    for number, rows in ((10, chunk(100, 120)), (2, chunk(20, 40)), (1, [*chunk(10, 20), *more])):
        (tmp_path / f"part_{number}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    found = load_collection(f"pairs:{tmp_path}/part_*.jsonl@42")
    texts = [*range(10, 20), *range(20, 40), *range(100, 110)]
    assert found.corpus["text"][found.corpus["text"] != "another"].tolist() == [f"the document {i}" for i in texts]
    assert (len(found.corpus), len(found.queries), len(found.qrels)) == (41, 41, 42)
    assert found.qrels.groupby("query_id").size().max() == found.qrels.groupby("document_id").size().max() == 2
    assert json.loads(found.queries["metadata"][0]) == {"query_type": "phrase", "language": "en"}
    assert json.loads(found.corpus["metadata"][0])["doc_type"] == "sentence"


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
    found = load_collection(f"ir_datasets:{register('', 0, 40)}", dev_share=0.6, test_share=0.2)
    assert set(found.queries["split"]) == {"train", "dev", "test"}
    assert len(found.queries) == 40


def test_whatever_goes_wrong_is_said_in_one_sentence(register):
    name = register("train", 0, 20, qrels="q0 d0\n")
    with pytest.raises(AnmiError, match=r"cannot be read \(RuntimeError: expected 4 columns.*network"):
        load_collection(f"ir_datasets:{name}")
