"""A training that was killed and goes on gives the weights, bit for bit, of one that was not."""

import importlib.util
import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import torch
from torch import nn

from anmi.errors import AnmiError
from anmi.training.checkpoint import CheckpointPlan, Checkpoints, identity
from anmi.training.options import TrainingOptions
from anmi.training.recorder import DEV_METRIC, Recorder

SCRIPT = Path(__file__).with_name("resuming.py")
spec = importlib.util.spec_from_file_location("resuming", SCRIPT)
resuming = importlib.util.module_from_spec(spec)
spec.loader.exec_module(resuming)


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """As in the trainings that were killed: on some processors the number of threads changes the last bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def left(killed, tmp_path):
    """A copy of what the killed training of the static encoder left: its checkpoints after 4 and 8 steps."""
    shutil.copytree(killed / "static", tmp_path / "checkpoints")
    (training,) = (tmp_path / "checkpoints").iterdir()
    return training


@pytest.fixture(scope="module")
def never_killed():
    return resuming.fit(resuming.static(), None, **resuming.STATIC)


def assert_same(result, expected):
    found, wanted = result.model.state_dict(), expected.model.state_dict()
    assert [name for name in wanted if not torch.equal(found[name], wanted[name])] == []
    pd.testing.assert_frame_equal(result.log, expected.log, check_exact=True)
    pd.testing.assert_frame_equal(result.drawn, expected.drawn)
    assert len(expected.drawn)


def go_on(training, start=None, resume=True, **changes):
    """Go on in the folder of a training's checkpoints."""
    plan = CheckpointPlan(training.parent, resume, start)
    return resuming.fit(resuming.static(), plan, **{**resuming.STATIC, **changes})


def test_killed_within_a_step(left, never_killed):
    assert sorted(path.name for path in left.glob("step-*")) == ["step-00000004", "step-00000008"]
    result = go_on(left)
    assert result.summary["resumed_from_step"] == 8
    assert_same(result, never_killed)
    assert len(set(result.log["difficulty"])) > 2, "the curriculum has to have something to remember"
    assert len(set(result.log["temperature"])) > 2
    assert not left.exists(), "a finished training removes its checkpoints"


@pytest.fixture(scope="module")
def bert_never_killed(tmp_path_factory):
    encoder = resuming.bert(tmp_path_factory.mktemp("model"))
    return resuming.fit(encoder, None, resuming.nearness(encoder), **resuming.BERT)


@pytest.mark.parametrize("after", [9, 6], ids=["within an epoch", "between epochs"])
def test_killed_while_an_epoch_was_measured(killed, bert_never_killed, tmp_path, after):
    shutil.copytree(killed / "bert", tmp_path / "bert")
    for newer in tmp_path.glob("bert/*/step-*"):
        if newer.name > f"step-{after:08d}":
            shutil.rmtree(newer)
    encoder = resuming.bert(tmp_path / "model")
    result = resuming.fit(encoder, CheckpointPlan(tmp_path / "bert"), resuming.nearness(encoder), **resuming.BERT)
    assert result.summary["resumed_from_step"] == after
    assert result.summary["best_epoch"] == 1, "the best weights are those from before the kill"
    assert_same(result, bert_never_killed)


def test_the_steps_before_the_checkpoint_are_not_made_again(left):
    encoder, passes = resuming.static(), []
    encoder[1].register_forward_hook(lambda *_: passes.append(1))
    resuming.fit(encoder, CheckpointPlan(left.parent), **resuming.STATIC)
    assert len(passes) == 2 * (resuming.EPOCHS * resuming.STEPS_PER_EPOCH - 8)


def test_nothing_is_pickled_and_every_file_is_in_the_manifest(left):
    (left / "step-00000008" / "manifest.json").read_text()
    files = {path.name for path in (left / "step-00000008").iterdir()} - {"manifest.json"}
    assert files == json.loads((left / "step-00000008" / "manifest.json").read_text())["files"].keys()
    assert {Path(name).suffix for name in files} == {".json", ".safetensors"}


def test_a_damaged_checkpoint_is_passed_over_and_refused_where_it_was_named(left, never_killed, caplog):
    file = left / "step-00000008" / "optimizer.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(AnmiError, match=r"optimizer\.safetensors is damaged"):
        go_on(left, start=file.parent)
    result = go_on(left)
    assert result.summary["resumed_from_step"] == 4
    assert_same(result, never_killed)
    assert "optimizer.safetensors is damaged" in caplog.text


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"batch_size": 11}, "option batch_size is 4 there and 11 here"),
        ({"temperature": "fixed"}, "option temperature"),
        ({"seed": 2}, "seed is 1 there and 2 here"),
        ({"rows": resuming.table(query_weight=0.5)}, "the training rows differ"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_checkpoint_of_another_training_is_refused(left, changes, named):
    with pytest.raises(AnmiError, match=named):
        go_on(left, start=left / "step-00000008", **changes)


def test_a_checkpoint_of_another_recipe_or_encoder_is_refused(left):
    encoder = resuming.static()
    with torch.no_grad():
        encoder[0].embedding.weight[0] += 1
    plan = CheckpointPlan(left.parent, start=left / "step-00000008", facts={"recipe": "anmi"})
    with pytest.raises(AnmiError, match='recipe is not set there and "anmi" here; the encoder'):
        resuming.fit(encoder, plan, **resuming.STATIC)


def test_what_is_no_checkpoint_is_refused(tmp_path):
    with pytest.raises(AnmiError, match=r"is no checkpoint: its manifest\.json is missing"):
        go_on(tmp_path / "training", start=tmp_path)


def test_another_learning_rate_may_be_given_with_a_checkpoint_and_holds_from_there(left, never_killed):
    start = shutil.copytree(left / "step-00000004", left.parent.parent / "elsewhere" / "step-00000004")
    result = go_on(left, start=start, learning_rate=0.005)
    assert result.summary["resumed_from_step"] == 4
    rate = result.log["learning_rate"] / never_killed.log["learning_rate"]
    assert rate.iloc[1:].round(6).tolist() == [1.0] * 3 + [0.1] * 14
    assert start.exists(), "what the user named is not ours to remove"
    assert (left / "step-00000008").exists(), "nor are those of the other training"


def test_an_older_checkpoint_of_its_own_may_be_named(left, never_killed):
    result = go_on(left, start=left / "step-00000004")
    assert result.summary["resumed_from_step"] == 4
    assert_same(result, never_killed)


def test_resuming_may_be_declined_and_another_training_finds_nothing(left, never_killed):
    result = go_on(left, resume=False)
    assert result.summary["resumed_from_step"] is None
    assert_same(result, never_killed)


def test_another_training_finds_nothing(left):
    assert go_on(left, epochs=1).summary["resumed_from_step"] is None
    assert left.exists()


def test_two_processes_do_not_share_the_checkpoints_of_one_training(left, never_killed, caplog):
    options = TrainingOptions(epochs=3, batch_size=4, negatives=2, **resuming.STATIC)
    wanted = identity(resuming.table(), resuming.static(), options, 1, {})
    other = Checkpoints(CheckpointPlan(left.parent), wanted, 2)
    assert other.folder == left
    with other.held():
        result = go_on(left)
    assert "Another process" in caplog.text
    assert_same(result, never_killed)
    assert (left / "step-00000008").exists()


def test_a_dev_metric_that_the_curriculum_was_not_told_yet_outlives_the_kill():
    told = []

    class Listener:
        by_clusters = False

        def observe(self, step, loss, grad_norm, validation, violations=None):
            told.append(validation)

    def recorder():
        made = Recorder(nn.Module(), Listener(), lambda _: 0.7, keep_best=False, show_progress=False)
        made.on_train_begin(None, SimpleNamespace(max_steps=2, global_step=1), None)
        return made

    before, after = recorder(), recorder()
    before._steps = [{"step": 1, DEV_METRIC: float("nan")}]
    before.on_epoch_end(None, SimpleNamespace(epoch=1.0), None, model=nn.Module())
    values, best = before.state_dict()
    after.load_state_dict(json.loads(json.dumps(values)), best)
    for step in (1, 2):
        after.on_step_end(None, SimpleNamespace(global_step=step), None)
    assert told == [0.7, None]
    assert after.log()[DEV_METRIC].tolist() == [0.7]
