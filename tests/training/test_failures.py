"""What is said, and what is kept, when numbers or memory fail."""

import importlib.util
import re
import resource
from pathlib import Path

import pandas as pd
import pytest
import torch
from torch import nn

from anmi.errors import AnmiError
from anmi.training.checkpoint import CheckpointPlan, Checkpoints
from anmi.training.failures import BatchSize, NotFiniteError, out_of_memory
from anmi.training.options import TrainingOptions

SCRIPT = Path(__file__).with_name("resuming.py")
spec = importlib.util.spec_from_file_location("resuming", SCRIPT)
resuming = importlib.util.module_from_spec(spec)
spec.loader.exec_module(resuming)
PLAIN = {"learning_rate": 0.05}


class Kink(nn.Module):
    """Changes no embedding; when ``on``, its gradient is 0 · ∞."""

    on = False

    def forward(self, features):
        if self.on:
            embedding = features["sentence_embedding"]
            features["sentence_embedding"] = embedding + (embedding * 0).sqrt()
        return features


def kinked(*, after_epoch=None):
    """An encoder whose gradient fails from the end of an epoch on, and the metric that sees to it."""
    encoder, epochs, kink = resuming.static(), [0], Kink()
    encoder.append(kink)

    def evaluate(_):
        epochs[0] += 1
        kink.on = epochs[0] == after_epoch
        return 0.5

    return encoder, evaluate


def test_nan_gradient_is_named_and_the_training_goes_on_from_before_it(tmp_path):
    encoder, evaluate = kinked(after_epoch=2)
    with pytest.raises(NotFiniteError, match=r"gradient became nan in the batch with the queries q\d+, q\d+") as caught:
        resuming.fit(encoder, CheckpointPlan(tmp_path), evaluate, **PLAIN)
    start = Path(re.search(r"training\.checkpoint=([^ `]*)", str(caught.value))[1])
    assert start.name == "step-00000012", "the step that failed has changed nothing"

    encoder, evaluate = kinked()
    result = resuming.fit(encoder, CheckpointPlan(tmp_path, start=start), evaluate, **PLAIN)
    encoder, evaluate = kinked()
    expected = resuming.fit(encoder, None, evaluate, **PLAIN)
    assert result.summary["resumed_from_step"] == 12
    pd.testing.assert_frame_equal(result.log, expected.log, check_exact=True)
    assert torch.equal(result.model[0].embedding.weight, expected.model[0].embedding.weight)


def test_nan_weights_never_get_into_a_checkpoint(tmp_path):
    """Somebody breaks the weights between two epochs: the loss says so, and the last good checkpoint is older."""
    encoder = resuming.static()

    def evaluate(model):
        with torch.no_grad():
            model[0].embedding.weight[7] = float("nan")
        return 0.5

    with pytest.raises(NotFiniteError, match=r"training loss became nan in the batch with the queries .*step-00000004"):
        resuming.fit(encoder, CheckpointPlan(tmp_path), evaluate, checkpoint_steps=4, **PLAIN)
    assert [path.name for path in tmp_path.glob("*/step-*")] == ["step-00000004"]


def test_without_a_step_there_is_no_checkpoint_to_speak_of(tmp_path):
    encoder = resuming.static()
    with torch.no_grad():
        encoder[0].embedding.weight.fill_(float("nan"))
    with pytest.raises(NotFiniteError) as caught:
        resuming.fit(encoder, CheckpointPlan(tmp_path), **PLAIN)
    assert "checkpoint" not in str(caught.value)


def test_nothing_half_written_stays_where_writing_failed(tmp_path):
    checkpoints = Checkpoints(CheckpointPlan(tmp_path), {"seed": 1}, keep=1)
    with pytest.raises(NotFiniteError, match=r"first: b of the encoder"):
        checkpoints.write(3, {"encoder": {"a": torch.ones(2), "b": torch.tensor([1.0, float("inf")])}}, {})
    with pytest.raises(TypeError):
        checkpoints.write(3, {"encoder": {"a": torch.ones(2)}}, {"state": object()})
    assert not [path for path in tmp_path.rglob("*") if path.name.startswith((".step", "step"))]
    for step in (3, 4):
        checkpoints.write(step, {"encoder": {"a": torch.ones(2)}}, {})
    assert [path.name for path in checkpoints.folder.iterdir()] == ["step-00000004"]


def test_a_full_disk_does_not_end_a_training(tmp_path, caplog):
    # The limit on the size of files stands for the disk.
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        result = resuming.fit(resuming.static(), CheckpointPlan(tmp_path), checkpoint_minutes=1e-9, epochs=1, **PLAIN)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert result.summary["steps"] == 6
    assert "No checkpoint could be written" in caplog.text


def test_out_of_memory_says_what_to_change(killed):
    """A real allocation failed, in a process with little memory."""
    said = (killed / "starved.txt").read_text()
    assert (
        "memory of the machine does not suffice for a batch of 600 queries and 22 documents with 1,244 tokens" in said
    )
    assert "lower negatives (now 2), or lower batch_size (now 600)" in said
    assert "max_length" not in said, "a static encoder has none"


@pytest.mark.parametrize("recompute", [True, False])
def test_advice_on_memory_for_a_network(recompute):
    options = TrainingOptions(batch_size=32, max_length=256, recompute=recompute)
    said = str(out_of_memory(options, BatchSize(32, 200, 40_000), "GPU", static=False))
    assert ("recompute=true (cached gradients, now off)" in said) is not recompute
    for text in ("texts_per_pass (now 64)", "max_length (now 256)", "negatives (now all mined)", "batch_size (now 32)"):
        assert text in said


def test_an_error_of_another_kind_is_not_taken_for_memory():
    def evaluate(_):
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    with pytest.raises(RuntimeError, match="shapes") as caught:
        resuming.fit(resuming.static(), None, evaluate, **PLAIN)
    assert not isinstance(caught.value, AnmiError)
