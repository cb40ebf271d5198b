"""Between the untrained and the trained weights."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
import torch

from anmi.training.options import TrainingOptions
from anmi.training.trainer import train

WORDS = [f"w{i}" for i in range(20)]


def rows() -> pd.DataFrame:
    return pd.DataFrame({
        "query_id": [f"q{i}" for i in range(8)], "query": [f"w{i}" for i in range(8)],
        "positive_id": [f"d{i}" for i in range(8)], "positive": [f"w{i + 8}" for i in range(8)],
        "negative_ids": [[]] * 8, "negatives": [[]] * 8, "weights": [[]] * 8, "query_weight": 1.0,
        "positive_ids": [[f"d{i}"] for i in range(8)],
    })  # fmt: skip


def trained(word_encoder: Any, share: Any, evaluate_dev: Any = None) -> tuple[Any, torch.Tensor, torch.Tensor]:
    encoder = word_encoder(WORDS)
    before = next(encoder.parameters()).detach().clone()
    options = TrainingOptions(epochs=2, batch_size=4, learning_rate=0.05, trained_share=share, keep_best=False)
    result = train(
        rows(), encoder=encoder, options=options, output=None, evaluate_dev=evaluate_dev, seed=1, show_progress=False
    )
    return result, before, next(encoder.parameters()).detach()


@pytest.mark.parametrize("share", [0.25, 0.5, 1.0])
def test_the_model_lies_so_far_on_the_way_from_the_untrained_to_the_trained_weights(word_encoder, share):
    _, before, whole = trained(word_encoder, 1.0)
    result, _, after = trained(word_encoder, share)
    assert not torch.equal(before, whole)
    torch.testing.assert_close(after, before + share * (whole - before))
    assert result.summary["trained_share"] == share


@pytest.mark.parametrize("wanted", [1.0, 0.5, 0.25])
def test_dev_chooses_the_share_and_nothing_of_the_others_remains(word_encoder, wanted):
    _, before, whole = trained(word_encoder, 1.0)
    target = before + wanted * (whole - before)

    def near_the_target(model: Any) -> float:
        return -float((next(model.parameters()).detach() - target).norm())

    result, _, after = trained(word_encoder, "dev", near_the_target)
    torch.testing.assert_close(after, target)
    assert result.summary["trained_share"] == wanted
    assert len(result.summary["dev_by_trained_share"]) == 4


def test_without_dev_queries_the_trained_weights_stay(word_encoder):
    result, _, after = trained(word_encoder, "dev")
    assert torch.equal(after, trained(word_encoder, 1.0)[2])
    assert result.summary["trained_share"] == 1.0


@pytest.mark.parametrize("share", [0, 1.5, "test"])
def test_no_other_shares(share):
    with pytest.raises(ValueError, match="trained_share"):
        TrainingOptions(trained_share=share)
