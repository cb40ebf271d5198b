"""The server for agents of a search folder, as it stands there: with the client of mcp, and not with anmi."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from sentence_transformers import SentenceTransformer
from tests.search.conftest import WORDS, corpus, part

from anmi.corpus.texts import document_texts
from anmi.retrieval.bm25 import BM25Index
from anmi.retrieval.index import build_index
from anmi.retrieval.sparse.model import inference_free, sparse_vectors
from anmi.search import HybridSearch, Part

mcp = pytest.importorskip("mcp", reason='serve_mcp.py needs the extra "mcp"')

QUESTION = "word1 word2 word3"
WITHOUT_ANMI = (
    "import runpy, sys; sys.modules['anmi'] = None; runpy.run_path({!r}, None, '__main__')"
)


def written(folder: Path, kind: str, encoder: SentenceTransformer) -> HybridSearch:
    """A search whose documents have two passages each."""
    table = corpus()
    table["parent"] = [f"p{row // 2}" for row in range(len(table))]
    texts = document_texts(table)
    model = inference_free(encoder, texts) if kind == "sparse" else encoder
    model.save(str(folder / "model"), create_model_card=False)
    if kind == "sparse":
        retriever = part("sparse", sparse_vectors(model, texts, "document"), folder / "model")
    else:
        vectors = encoder.encode_document(texts, normalize_embeddings=True)
        retriever = part("dense", vectors, folder / "model")
        retriever.index = build_index(vectors, table.document_id.tolist(), kind=kind)
    search = HybridSearch.build([Part("bm25", BM25Index.build(texts, "en")), retriever], table)
    search.save(folder / "search")
    return search


def hits_of(server: Any, k: int) -> list[dict[str, Any]]:
    async def ask() -> Any:
        async with mcp.Client(server) as client:
            (tool,) = (await client.list_tools()).tools
            assert tool.annotations.read_only_hint
            assert (await client.call_tool("search", {"query": "a", "k": 10_000})).is_error
            return await client.call_tool("search", {"query": QUESTION, "k": k})

    return list(json.loads(anyio.run(ask).content[0].text)["hits"])


@pytest.mark.parametrize("kind", ["flat", "hnsw", "sparse"])
def test_an_agent_finds_what_the_part_finds(kind: str, word_encoder: Any, tmp_path: Path) -> None:
    search = written(tmp_path, kind, word_encoder(WORDS))
    script = str(tmp_path / "search" / "serve_mcp.py")
    server = runpy.run_path(script)["server"]
    if kind == "sparse":
        arguments = ["-c", WITHOUT_ANMI.format(script)]
        server = mcp.StdioServerParameters(command=sys.executable, args=arguments)
    hits = hits_of(server, 7)
    expected = search.search(QUESTION, 7, list(search.parts)[1])[0]
    assert [hit["score"] for hit in hits] == pytest.approx([hit.score for hit in expected])
    names = ("document_id", "passage_id", "text")
    for name in names:
        assert [hit[name] for hit in hits] == [getattr(hit, name) for hit in expected]


def test_the_script_may_be_changed_and_a_search_by_terms_alone_has_none(
    word_encoder: Any, tmp_path: Path
) -> None:
    written(tmp_path, "flat", word_encoder(WORDS))
    (tmp_path / "search" / "serve_mcp.py").write_text("")
    assert HybridSearch.load(tmp_path / "search").search(QUESTION)
    terms = BM25Index.build(document_texts(corpus()), "en")
    HybridSearch.build([Part("bm25", terms)], corpus()).save(tmp_path / "terms")
    assert not (tmp_path / "terms" / "serve_mcp.py").exists()
    assert "agents" not in (tmp_path / "terms" / "README.md").read_text()
