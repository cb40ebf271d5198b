"""The built-in collection, and the real ones beside the project, which load as they are with default settings."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from anmi.corpus.api_docs import public_objects, split_docstring
from anmi.corpus.sources import load_collection
from anmi.corpus.texts import normalised

DATA = Path(os.environ.get("ANMI_DATA", Path(__file__).parents[2] / ".." / "shared" / "data"))
# Documents, (train, dev, test) queries as they come out, queries set aside because another query
# has their text.
EXPECTED = {
    "beir:scifact": (5183, (664, 141, 300), 4, "en"),
    "beir:medquad": (15807, (11333, 1435, 1529), 46, "en"),
    "beir:kg_webnlg/beir_en": (16528, (13181, 1639, 1779), 54, "en"),
    "beir:kg_webnlg/beir_es": (16528, (13162, 1639, 1779), 73, "en"),
    "kg:kg_webnlg/beir_en": (16528, (13181, 1639, 1779), 54, "en"),
    "beir:xquad/en": (240, (744, 199, 242), 5, "en"),
    "beir:xquad/ar": (240, (746, 198, 242), 4, "ar"),
    "beir:xquad/zh": (240, (742, 197, 242), 9, "zh"),
    "beir:hinglish_top": (9693, (2888, 1029, 5832), 51, "en"),
    "beir:sae4k_ko": (28915, (20043, 2549, 2503), 0, "ko"),
    "beir:chatbot_ko": (7779, (9331, 1196, 1107), 28, "ko"),
    "pairs:ko_pairs/*.jsonl": (28915, (16445, 3607, 5043), 0, "ko"),
}


@pytest.mark.data
@pytest.mark.skipif(not DATA.is_dir(), reason=f"{DATA} is absent")
@pytest.mark.parametrize("name", EXPECTED)
def test_counts(name):
    scheme, _, path = name.partition(":")
    found = load_collection(f"{scheme}:{DATA / path}")
    documents, queries, leaks, language = EXPECTED[name]
    assert len(found.corpus) == documents
    counts = found.queries["split"].value_counts()
    assert tuple(counts[["train", "dev", "test"]]) == queries
    assert len(found.quarantine) == leaks
    assert found.language == language
    assert set(found.qrels["document_id"]) <= set(found.corpus["document_id"])
    assert set(found.qrels["query_id"]) == set(found.queries["query_id"])
    if "kg_webnlg" in name:
        assert found.equivalents["query_id"].nunique() > 5000
        assert len(found.entities) == (2463 if scheme == "kg" else 0)


@pytest.fixture(scope="module")
def api_docs():
    return load_collection("api_docs")


def test_size_and_shape(api_docs):
    assert 2900 < len(api_docs.corpus) < 3700
    assert len(api_docs.queries) == len(api_docs.corpus) == len(api_docs.qrels)
    assert api_docs.corpus["text"].str.split().str.len().min() > 29
    assert api_docs.queries["text"].str.split().str.len().min() > 3
    assert api_docs.language == "en"
    assert api_docs.quarantine.empty
    shares = api_docs.queries["split"].value_counts(normalize=True)
    assert shares["test"] == pytest.approx(0.2, abs=0.03)
    assert shares["dev"] == pytest.approx(0.15, abs=0.03)
    kinds = {json.loads(text)["kind"] for text in api_docs.corpus["metadata"]}
    assert kinds == {"class", "function", "method"}
    names = set(api_docs.corpus["document_id"])
    assert {"numpy.linalg.norm", "pandas.DataFrame.merge", "sklearn.pipeline.Pipeline"} <= names
    assert len({"numpy.abs", "numpy.absolute"} & names) == 1, "one object under two names"


def test_equivalents_share_summary_and_split(api_docs):
    queries = api_docs.queries.set_index("query_id")
    text, split = queries["text"].map(normalised), queries["split"]
    assert len(api_docs.equivalents) > 400
    for query, document in api_docs.equivalents.itertuples(index=False):
        assert query != document
        assert text[query] == text[document]
        assert split[query] == split[document]
    groups = text.value_counts()
    assert len(api_docs.equivalents) == int((groups * (groups - 1)).sum())


def test_graph(api_docs):
    names = set(api_docs.corpus["document_id"])
    edges = set(map(tuple, api_docs.graph.values.tolist()))
    assert ("numpy.linalg.norm", "module", "numpy.linalg") in edges
    assert ("pandas.DataFrame.merge", "kind", "method") in edges
    assert ("pandas.DataFrame.join", "see_also", "pandas.DataFrame.merge") in edges
    seen = api_docs.graph.query("relation == 'see_also'")
    assert len(seen) > 3000 and {*seen["head"], *seen["tail"]} <= names
    assert len(edges) == len(api_docs.graph)
    entity_types = map(json.loads, api_docs.entities["types"])
    types = dict(zip(api_docs.entities["uri"], entity_types, strict=True))
    names = api_docs.corpus["document_id"].tolist()
    modules = set(api_docs.graph.query("relation == 'module'")["tail"])
    assert list(types)[: len(names)] == names and set(types) - set(names) == modules
    assert {tuple(types[name]) for name in modules} == {("module",)}
    assert types["numpy.linalg.norm"] == types["numpy.linalg.det"] == ["function:numpy.linalg"]
    assert types["pandas.DataFrame.merge"] == ["method:pandas"]


def test_objects_are_merged_by_their_docstring(monkeypatch, tmp_path):
    package = tmp_path / "shop"
    package.mkdir()
    (package / "__init__.py").write_text(
        "from shop.things import Thing\n__all__ = ['Thing', 'buy', 'gone']\ndef buy():\n    'Doc of"
        " buy.'\ndef hidden():\n    'Doc of hidden.'\ndef gone():\n    'Short.'\n"
    )
    (package / "things.py").write_text(
        "from os.path import join\nfrom shop import *\nclass Base:\n    def keep(self):\n       "
        " 'Doc of keep.'\n    def _own(self):\n        'x'\nclass Thing(Base):\n    'Doc of"
        " Thing.'\n    @classmethod\n    def make(cls):\n        'Doc of make.'\n    build = make\n"
    )
    (package / "broken.py").write_text("raise OSError('no such device')\n")
    (package / "_private.py").write_text("def secret():\n    'Doc.'\n")
    for path in package.glob("*.py"):
        long = rf"'\1, which is long enough.\\n\\n{'word ' * 30}'"
        path.write_text(re.sub(r"'(Doc of \w+)\.'", long, path.read_text()))
    monkeypatch.syspath_prepend(str(tmp_path))
    found = {item.name: item for item in public_objects(["shop", "not_installed_at_all"])}
    assert set(found) == {"shop.buy", "shop.Thing", "shop.Thing.make", "shop.things.Base.keep"}
    assert list(found["shop.Thing"].aliases) == ["shop.Thing", "shop.things.Thing"]
    assert "shop.Thing.build" in found["shop.Thing.make"].aliases
    assert found["shop.Thing.make"].kind == "method"


def test_what_makes_a_query_and_a_document():
    body = "word " * 30
    assert split_docstring("Three words only.\n\n" + body) is None
    assert split_docstring("One sentence here. And a second one.\n\n" + body) is None
    assert split_docstring("A summary of four.\n\n" + "word " * 29) is None
    indented = "    A summary\n    of four.\n\n    "
    assert split_docstring(indented + body) == ("A summary of four.", body.strip())
