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
