"""Small models on disk, of the real kinds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Make = Callable[..., Path]


@pytest.fixture
def text_pair_classifier(tmp_path: Path) -> Make:
    """Save a BERT of one narrow layer with random weights that classifies pairs of texts, as its authors would."""

    def make(name: str, labels: int = 1, seed: int = 0, broken: bool = False) -> Path:
        import torch
        from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

        from anmi.retrieval.encoders import minilm_folder
        from anmi.retrieval.kinds import quiet

        torch.manual_seed(seed)
        config = BertConfig(
            hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, num_labels=labels,
            initializer_range=0.7,
        )  # fmt: skip
        model = BertForSequenceClassification(config)
        if broken:
            model.classifier.weight.data.fill_(float("nan"))
        with quiet():
            model.save_pretrained(tmp_path / name)
            AutoTokenizer.from_pretrained(minilm_folder()).save_pretrained(tmp_path / name)
        return tmp_path / name

    return make
