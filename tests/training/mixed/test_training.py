"""Training on negatives of mixed sources."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import torch

from anmi.training.loop import CheckpointPlan
from anmi.training.options import TrainingOptions
from anmi.training.trainer import train

WORDS = [f"w{i}" for i in range(60)]
OPTIONS = {
    "epochs": 6,
    "batch_size": 4,
    "negatives": 3,
    "learning_rate": 0.05,
    "temperature": "learnable",
    "checkpoint_minutes": 1e-9,
    "sources": {"mixed": {"random": 0.1, "graph": 0.3, "latent": 0.4, "edit": 0.2, "refresh": 2, "boost": 0.5}},
}


def encoder():
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, StaticEmbedding
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    tokenizer = Tokenizer(WordLevel({word: i for i, word in enumerate(["[UNK]", *WORDS])}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    weights = torch.randn(len(WORDS) + 1, 8, generator=torch.Generator().manual_seed(0))
    modules = [StaticEmbedding(tokenizer, embedding_weights=weights), Normalize()]
    return SentenceTransformer(modules=modules, device="cpu")


def table(world):
    return pd.DataFrame(
        {
            "query_id": row.query_id, "query": row.query, "positive_id": row.positive_id, "positive": row.positive,
            "negative_ids": [], "negatives": [], "weights": [], "query_weight": 1.0, "positive_ids": [row.positive_id],
        }
        for row in world.rows
    )  # fmt: skip


def fit(world, plan=None, model=None, **changes):
    return train(
        table(world), encoder=model or encoder(), options=TrainingOptions(**OPTIONS | changes), output=None, seed=1,
        checkpoints=plan, stock=world.stock,
    )  # fmt: skip


@pytest.fixture(scope="module")
def undisturbed(made):
    return fit(made)


def test_all_sources_are_used_and_logged(undisturbed):
    log = undisturbed.log
    shares = log[[f"share_{name}" for name in ("random", "graph", "latent", "edit")]]
    assert (shares.sum(axis=1) - 1).abs().max() < 1e-9
    assert (shares.tail(10).mean() > 0).all()
    assert log.margin_violations.between(0, 1).all()
    assert log.latent_staleness.dropna().between(0, 30).all() and log.latent_hit_rate.dropna().between(0, 1).all()
    assert log.loss.tail(3).mean() < log.loss.head(3).mean()


def test_killed_and_resumed_equals_undisturbed(made, undisturbed, tmp_path):
    """A real SIGKILL in the middle of a step, in a process of its own."""
    done = subprocess.run([sys.executable, __file__, str(tmp_path)], timeout=900, check=False)
    assert done.returncode == -signal.SIGKILL
    resumed, expected = fit(made, CheckpointPlan(tmp_path)), undisturbed
    assert resumed.summary["resumed_from_step"] == 9
    assert len(expected.neighbours) and expected.neighbours.step.is_monotonic_increasing
    pd.testing.assert_frame_equal(resumed.neighbours, expected.neighbours)
    pd.testing.assert_frame_equal(resumed.log, expected.log, check_exact=True)
    pd.testing.assert_frame_equal(resumed.drawn, expected.drawn)
    assert expected.drawn.groupby("query_id")["count"].sum().eq(6 * 3).all(), "three in each of six epochs"
    assert torch.equal(resumed.model[0].embedding.weight, expected.model[0].embedding.weight)


def killed(folder: Path) -> None:
    sys.path.insert(0, str(Path(__file__).parent))
    from conftest import make_world

    model, passes = encoder(), [0]

    def count(*_):
        passes[0] += 1
        if passes[0] == 10:
            os.kill(os.getpid(), signal.SIGKILL)

    model[0].register_forward_hook(count)
    fit(make_world(), CheckpointPlan(folder), model)


if __name__ == "__main__":
    killed(Path(sys.argv[1]))
