"""Two processes that train together, over gloo on the CPU: the gradient and the model are those of one."""

import copy
import os
import signal

import numpy as np
import pandas as pd
import psutil
import pytest
import torch
from torch import nn

from anmi.errors import AnmiError
from anmi.training.batch import Batcher, read_rows
from anmi.training.devices import working
from anmi.training.losses import WeightedInfoNCE
from anmi.training.objective import ContrastiveObjective
from anmi.training.options import TrainingOptions
from anmi.training.temperature import Temperature
from anmi.training.tokenise import Tokeniser
from anmi.training.trainer import train

pytestmark = pytest.mark.slow
WORDS = [f"w{i}" for i in range(60)]


def table(rows: int = 24, negatives: int = 2) -> pd.DataFrame:
    """Rows whose documents have between one and eleven words, so that their lengths differ."""

    def document(i: int) -> str:
        return " ".join(f"w{(i * 7 + j) % 60}" for j in range(1 + i % 11))

    return pd.DataFrame([
        {
            "query_id": f"q{i}", "query": f"w{i} w{i + 1}", "positive_id": f"d{i}", "positive": document(i),
            "negative_ids": [f"d{i + j}" for j in range(1, negatives + 1)],
            "negatives": [document(i + j) for j in range(1, negatives + 1)],
            "weights": [0.5] * negatives, "query_weight": 1.0, "positive_ids": [f"d{i}"],
        }
        for i in range(rows)
    ])  # fmt: skip


@pytest.fixture(scope="module", params=["static", "bert"])
def encoder(request, word_encoder, network_encoder):
    return word_encoder(WORDS) if request.param == "static" else network_encoder(WORDS)


def loss_and_gradients(encoder: nn.Module, devices: int, team=None) -> tuple[float, dict[str, torch.Tensor]]:
    """Return what one batch of 24 rows says of an encoder's weights and of the temperature."""
    encoder.zero_grad()
    loss = WeightedInfoNCE(Temperature(0.07))
    objective = ContrastiveObjective(encoder, loss, recompute=True)
    objective.team = team
    batch = Batcher(Tokeniser(encoder, None), "all", 8, devices)(read_rows(table()))
    value = objective(batch)
    value.backward()
    if team is not None:
        team.reduce()
    found = {name: p.grad.clone() for name, p in encoder.named_parameters() if p.grad is not None}
    return value.item(), found


def test_gradients_are_those_of_one_process_with_the_whole_batch(encoder) -> None:
    encoder.eval()
    expected_loss, expected = loss_and_gradients(encoder, 1)
    options = TrainingOptions(devices=2, recompute=True)
    with working(encoder, options, torch.float32, 1) as team:
        first = loss_and_gradients(encoder, 2, team)
        # The helper is to compute with the weights as they are now.
        with torch.no_grad():
            for parameter in encoder.parameters():
                parameter.mul_(1.01)
        second = loss_and_gradients(encoder, 2, team)
    changed_loss, changed = loss_and_gradients(encoder, 1)
    for (loss, found), (value, gradients) in [(first, (expected_loss, expected)), (second, (changed_loss, changed))]:
        assert loss == pytest.approx(value, abs=1e-6)
        assert found.keys() == gradients.keys()
        for name, gradient in gradients.items():
            torch.testing.assert_close(found[name], gradient, rtol=0, atol=1e-6)
    assert max(float(g.abs().max()) for g in expected.values()) > 1e-3, "zeros would be equal, too"
    assert not torch.equal(first[1][name], second[1][name])


def test_half_of_the_batch_alone_has_another_gradient(encoder) -> None:
    """Each process with the negatives of its own half would be what a plain average over processes gives."""
    encoder.eval()
    _, whole = loss_and_gradients(encoder, 1)
    halves = []
    for half in (table()[:12], table()[12:]):
        encoder.zero_grad()
        objective = ContrastiveObjective(encoder, WeightedInfoNCE(Temperature(0.07)))
        objective(Batcher(Tokeniser(encoder, None), "all", 8)(read_rows(half))).backward()
        halves.append({name: p.grad.clone() for name, p in encoder.named_parameters() if p.grad is not None})
    assert max(float((whole[n] - (halves[0][n] + halves[1][n]) / 2).abs().max()) for n in whole) > 1e-4


def trained(encoder, **changes):
    """Train a copy of an encoder without dropout, which would draw otherwise in another process."""
    own = copy.deepcopy(encoder)
    for module in own.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    options = TrainingOptions(**{"epochs": 2, "batch_size": 12, "learning_rate": 1e-3, "texts_per_pass": 8, **changes})
    seen: list[int] = []

    def dev(model) -> float:
        seen.append(os.getpid())
        return float(len(seen))

    result = train(
        table(), encoder=own, options=options, output=None, evaluate_dev=dev, seed=1, show_progress=False
    )  # fmt: skip
    return result, seen


def test_the_trained_model_is_that_of_one_process(encoder) -> None:
    one, _ = trained(encoder)
    two, measured_by = trained(encoder, devices=2)
    for (name, expected), found in zip(one.model.named_parameters(), two.model.parameters(), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}")
    np.testing.assert_allclose(two.log["loss"], one.log["loss"], atol=1e-5)
    assert one.summary["relative_weight_change"] > 1e-3, "an untrained model would be equal, too"
    # Dev is measured, and all else done that has a state, by the first process alone.
    assert measured_by == [os.getpid()] * 2
    assert not torch.distributed.is_initialized()


def test_a_helper_that_is_killed_ends_the_training_with_a_sentence(word_encoder) -> None:
    def kill_helpers(_) -> float:
        for child in psutil.Process().children():
            if "spawn_main" in " ".join(child.cmdline()):
                os.kill(child.pid, signal.SIGKILL)
        return 0.0

    options = TrainingOptions(epochs=2, batch_size=12, learning_rate=1e-3, devices=2)
    with pytest.raises(AnmiError, match="a process that helped to train was killed"):
        train(
            table(), encoder=word_encoder(WORDS), options=options, output=None, evaluate_dev=kill_helpers, seed=1,
            show_progress=False,
        )  # fmt: skip
    assert not torch.distributed.is_initialized()
