"""A killed training that goes on gives the weights, bit for bit, of one that was not; what is said when it fails."""

import resource
import shutil
from typing import Any

import pandas as pd
import pytest
import torch
from filelock import FileLock
from tests.training import resuming
from torch import nn

from anmi.errors import AnmiError
from anmi.training.loop import CheckpointPlan, newest_checkpoint


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """As in the trainings that were killed: on some processors the number of threads changes the last bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("killed")
    resuming.killed_static(folder, 13)
    return folder


@pytest.fixture
def left(killed, tmp_path):
    """A copy of what a killed training left: its checkpoints after 11 and 12 steps, the last of an epoch."""
    shutil.copytree(killed, tmp_path / "checkpoints")
    return next(path for path in (tmp_path / "checkpoints").iterdir() if path.is_dir())


@pytest.fixture(scope="module")
def never_killed():
    return resuming.fit(resuming.static(), None, **resuming.STATIC)


def assert_same(result, expected):
    found, wanted = result.model.state_dict(), expected.model.state_dict()
    assert [name for name in wanted if not torch.equal(found[name], wanted[name])] == []
    pd.testing.assert_frame_equal(result.log, expected.log, check_exact=True)
    pd.testing.assert_frame_equal(result.drawn, expected.drawn)
    assert len(expected.drawn)


def test_killed_while_an_epoch_was_measured(tmp_path):
    """In the second epoch, so its dev metric is lost with it; that of the eighth step is not."""
    encoder, calls = resuming.bert(tmp_path / "model"), [0]
    measure = resuming.nearness(encoder)
    options = resuming.BERT | {"dev_every": 4}

    def evaluate(model):
        calls[0] += 1
        if calls[0] == 5:
            raise resuming.Killed
        return measure(model)

    with pytest.raises(resuming.Killed):
        resuming.fit(encoder, CheckpointPlan(tmp_path / "bert"), evaluate, **options)
    training = next(path for path in (tmp_path / "bert").iterdir() if path.is_dir())
    encoder = resuming.bert(tmp_path / "model")
    result = resuming.fit(
        encoder, CheckpointPlan(tmp_path / "bert"), resuming.nearness(encoder), **options
    )
    assert result.summary["resumed_from_step"] == 11
    encoder = resuming.bert(tmp_path / "model")
    assert_same(result, resuming.fit(encoder, None, resuming.nearness(encoder), **options))
    assert not training.exists()


def test_a_checkpoint_that_was_being_written_is_passed_over(left, never_killed):
    (left / "checkpoint-12" / "trainer_state.json").write_text('{"global_step": 12, "log_')
    assert newest_checkpoint(left) == left / "checkpoint-11"
    result = resuming.fit(resuming.static(), CheckpointPlan(left.parent), **resuming.STATIC)
    assert result.summary["resumed_from_step"] == 11
    assert_same(result, never_killed)


@pytest.mark.parametrize(
    "changes",
    [
        {"batch_size": 11},
        {"seed": 2},
        {"rows": resuming.table(query_weight=0.5)},
        {"facts": {"recipe": "anmi"}},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_another_training_finds_nothing(left, changes):
    facts, changes = (
        changes.get("facts", {}),
        {name: value for name, value in changes.items() if name != "facts"},
    )
    result = resuming.fit(
        resuming.static(), CheckpointPlan(left.parent, facts), **resuming.STATIC | changes
    )
    assert result.summary["resumed_from_step"] is None
    assert left.exists()


def test_two_processes_do_not_share_the_checkpoints_of_one_training(left, never_killed, caplog):
    with FileLock(left.with_suffix(".lock")):
        result = resuming.fit(resuming.static(), CheckpointPlan(left.parent), **resuming.STATIC)
    assert "Another process" in caplog.text
    assert_same(result, never_killed)
    assert (left / "checkpoint-12").exists()


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


def test_nan_gradient_is_named():
    encoder, evaluate = kinked(after_epoch=2)
    with pytest.raises(
        AnmiError, match=r"gradient became nan in the batch with the queries q\d+, q\d+"
    ):
        resuming.fit(encoder, None, evaluate, **PLAIN)


def test_a_full_disk_does_not_end_a_training(tmp_path, caplog):
    # The limit on the size of files stands for the disk.
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        result = resuming.fit(resuming.static(), CheckpointPlan(tmp_path), epochs=1, **PLAIN)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert result.summary["steps"] == 6
    assert "No checkpoint could be written" in caplog.text


@pytest.mark.parametrize("tokens_per_pass", [None, 2048])
def test_a_card_without_enough_memory_computes_passes_of_fewer_tokens(
    network_encoder, tokens_per_pass
):
    encoder = network_encoder([f"w{i}" for i in range(60)])
    sizes = []

    def fit_into_memory(_: Any, features: tuple[dict[str, Any]]) -> None:
        sizes.append(features[0]["input_ids"].numel())
        if sizes[-1] > 50:
            raise torch.OutOfMemoryError("CUDA out of memory")

    encoder.register_forward_pre_hook(fit_into_memory)
    options = {"batch_size": 22, "epochs": 1, "tokens_per_pass": tokens_per_pass} | PLAIN
    if tokens_per_pass is None:
        summary = resuming.fit(encoder, None, **options).summary
        assert summary["recompute"]
        assert summary["tokens_per_pass"] in (32, 64) and max(sizes[-4:]) <= 50
    else:
        with pytest.raises(AnmiError, match=r"lower tokens_per_pass \(now 2048\)"):
            resuming.fit(encoder, None, **options)


def test_out_of_memory_says_what_to_change():
    encoder = resuming.static()

    def fail(*_):
        raise RuntimeError(
            "[enforce fail at alloc_cpu.cpp:1] DefaultCPUAllocator: can't allocate memory"
        )

    encoder[1].register_forward_hook(fail)
    with pytest.raises(AnmiError) as caught:
        resuming.fit(encoder, None, batch_size=600, **PLAIN)
    said = str(caught.value)
    assert (
        "memory of the machine does not suffice for a batch of 22 queries and 22 documents: "
        in said
    )
    assert "lower negatives (now 2), or lower batch_size (now 600)" in said
    assert "max_length" not in said, "a static encoder has none"
