"""A killed training that goes on gives the weights, bit for bit, of one that was not; what is said when it fails."""

import resource
import shutil
from typing import Any

import pandas as pd
import pytest
import torch
from filelock import FileLock
from tests.training import resuming

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
    resuming.killed_static(folder, 25)
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
    calls = [0]

    def run(plan, kill_at=0):
        encoder = resuming.bert(tmp_path / "model")
        measure = resuming.nearness(encoder)

        def evaluate(model):
            calls[0] += 1
            if calls[0] == kill_at:
                raise resuming.Killed
            return measure(model)

        return resuming.fit(encoder, plan, evaluate, **resuming.BERT, dev_every=4)

    plan = CheckpointPlan(tmp_path / "bert")
    with pytest.raises(resuming.Killed):
        run(plan, kill_at=5)
    training = next(path for path in (tmp_path / "bert").iterdir() if path.is_dir())
    result = run(plan)
    assert result.summary["resumed_from_step"] == 11
    assert_same(result, run(None))
    assert not training.exists()


def test_a_checkpoint_that_was_being_written_is_passed_over(left, never_killed):
    (left / "checkpoint-12" / "trainer_state.json").write_text('{"global_step": 12, "log_')
    assert newest_checkpoint(left) == left / "checkpoint-11"
    result = resuming.fit(resuming.static(), CheckpointPlan(left.parent), **resuming.STATIC)
    assert result.summary["resumed_from_step"] == 11
    assert_same(result, never_killed)


@pytest.mark.parametrize(
    ("facts", "changes"),
    [
        ({}, {"batch_size": 11}),
        ({}, {"seed": 2}),
        ({}, {"rows": resuming.table(query_weight=0.5)}),
        ({"recipe": "anmi"}, {}),
    ],
)
def test_another_training_finds_nothing(left, facts, changes):
    plan = CheckpointPlan(left.parent, facts)
    result = resuming.fit(resuming.static(), plan, **resuming.STATIC | changes)
    assert result.summary["resumed_from_step"] is None
    assert left.exists()


def test_two_processes_do_not_share_the_checkpoints_of_one_training(left, never_killed, caplog):
    with FileLock(left.with_suffix(".lock")):
        result = resuming.fit(resuming.static(), CheckpointPlan(left.parent), **resuming.STATIC)
    assert "Another process" in caplog.text
    assert_same(result, never_killed)
    assert (left / "checkpoint-12").exists()


PLAIN = {"learning_rate": 0.05}


def test_nan_gradient_is_named():
    """From the end of the second epoch on."""
    encoder, epochs = resuming.static(), [0]

    def add_nothing(module, _, features):
        if epochs[0] == 2:
            embedding = features["sentence_embedding"]
            # Its gradient is 0 · ∞.
            return features | {"sentence_embedding": embedding + (embedding * 0).sqrt()}
        return None

    def evaluate(_):
        epochs[0] += 1
        return 0.5

    encoder[2].register_forward_hook(add_nothing)
    with pytest.raises(AnmiError, match=r"gradient became nan .* queries q\d+, q\d+"):
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
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    encoder[1].register_forward_hook(fail)
    with pytest.raises(AnmiError, match="of 22 queries and 22 documents") as caught:
        resuming.fit(encoder, None, batch_size=600, **PLAIN)
    said = str(caught.value)
    assert "lower negatives (now 2), or lower batch_size (now 600)" in said
    assert "max_length" not in said, "a static encoder has none"
