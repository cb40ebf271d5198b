"""The real collections beside the project load as they are, with default settings."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from anmi.corpus.sources import load_collection

DATA = Path(os.environ.get("ANMI_DATA", Path(__file__).parents[2] / ".." / "shared" / "data"))
pytestmark = [pytest.mark.data, pytest.mark.skipif(not DATA.is_dir(), reason=f"{DATA} is absent")]

# Documents, (train, dev, test) queries as they come out, queries set aside because another query has their text.
EXPECTED = {
    "beir:scifact": (5183, (681, 126, 300), 2, "en"),
    "beir:medquad": (15807, (11365, 1435, 1529), 14, "en"),
    "beir:kg_webnlg/beir_en": (16528, (13208, 1663, 1779), 3, "en"),
    "beir:kg_webnlg/beir_es": (16528, (13206, 1663, 1779), 5, "en"),
    "kg:kg_webnlg/beir_en": (16528, (13208, 1663, 1779), 3, "en"),
    **{f"beir:xquad/{code}": (240, (749, 199, 242), 0, code) for code in ("en", "es", "de", "ar", "hi", "zh")},
    "beir:hinglish_top": (9693, (2906, 1029, 5832), 33, "en"),
    "beir:sae4k_ko": (28915, (20043, 2549, 2503), 0, "ko"),
    "beir:chatbot_ko": (7779, (9350, 1196, 1107), 9, "ko"),
    "pairs:ko_pairs/*.jsonl": (28915, (16280, 3789, 5026), 0, "ko"),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_counts(name):
    scheme, _, path = name.partition(":")
    found = load_collection(f"{scheme}:{DATA / path}")
    documents, queries, leaks, language = EXPECTED[name]
    assert len(found.corpus) == documents
    assert tuple((found.queries["split"] == split).sum() for split in ("train", "dev", "test")) == queries
    assert len(found.quarantine) == leaks
    assert found.language == language
    assert set(found.qrels["document_id"]) <= set(found.corpus["document_id"])
    assert set(found.qrels["query_id"]) == set(found.queries["query_id"])
    if "kg_webnlg" in name:
        assert found.equivalents["query_id"].nunique() > 5000
        assert len(found.entities) == (2463 if scheme == "kg" else 0)
