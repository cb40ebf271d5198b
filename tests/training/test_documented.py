"""What docs/training.md shows runs as it stands there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from anmi.selection.export import Collection, ExportOptions, make_export

WORDS = [f"w{i}" for i in range(40)]
ROWS = pd.DataFrame([
    {
        "query_id": f"q{i}", "query": f"w{i}", "query_weight": 1.0, "positive_id": f"d{i}", "positive": f"w{i + 10}",
        "positive_ids": [f"d{i}"], "negative_ids": [f"n{i}"], "negatives": [f"w{i + 20} w{i + 21}"], "weights": [1.0],
        "positive_p_relevant": 0.875, "negative_p_relevant": [0.25],
    }
    for i in range(10)
])  # fmt: skip


def test_any_loss_of_sentence_transformers_on_an_export(
    word_encoder: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (snippet,) = re.findall(r"```python\n(.*?)```", Path("docs/training.md").read_text(encoding="utf-8"), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    empty = Collection(pd.DataFrame(), pd.DataFrame(), "mine", "en")
    make_export(ROWS, "labeled-pair", ExportOptions(), empty).save(tmp_path / "pairs")
    word_encoder(WORDS).save("encoder")
    names: dict[str, Any] = {}
    exec(snippet, names)
    assert len(names["rows"]) == 20
    before = word_encoder(WORDS)[0].embedding.weight
    assert not before.equal(names["model"][0].embedding.weight.detach().cpu())
    assert (tmp_path / "trained" / "modules.json").is_file()
