"""A second pass on train and dev, for the epochs that dev chose: the same as if dev had been there all along."""

import importlib.util
import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

from anmi.errors import AnmiError
from anmi.training.checkpoint import CheckpointPlan
from anmi.training.recorder import DEV_METRIC

SCRIPT = Path(__file__).with_name("resuming.py")
spec = importlib.util.spec_from_file_location("resuming", SCRIPT)
resuming = importlib.util.module_from_spec(spec)
spec.loader.exec_module(resuming)
EPOCHS = resuming.TWICE["epochs"]


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """As in the training that was killed: on some processors the number of threads changes the last bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def twice(tmp_path_factory):
    """A training in two passes, its folder, and how often dev was measured."""
    folder, calls = tmp_path_factory.mktemp("twice"), []
    return resuming.fit_twice(folder, calls), folder, calls


def assert_same_weights(found, wanted):
    assert [name for name in wanted if not torch.equal(found[name], wanted[name])] == []


def second(result):
    return result.log[result.log["pass"] == 2].reset_index(drop=True)


def test_it_has_the_weights_of_the_chosen_epoch_of_a_training_on_both(twice):
    result, _, _ = twice
    both = pd.concat([resuming.table(), resuming.dev_table()], ignore_index=True)
    # Told the same dev metric, it keeps its third epoch, too.
    whole = resuming.fit(resuming.static(), None, resuming.by_epoch([]), both, **resuming.TWICE)
    assert whole.summary["best_epoch"] == 3
    assert_same_weights(result.model.state_dict(), whole.model.state_dict())
    steps = 3 * -(-len(both) // resuming.BATCH)
    expected = whole.log.head(steps).assign(**{DEV_METRIC: float("nan"), "pass": 2})
    pd.testing.assert_frame_equal(second(result), expected, check_exact=True, check_dtype=False)
    assert expected.learning_rate.iloc[-1] > 0, "the schedule is that of the first pass, which went on"
    assert len(set(expected.difficulty)) > 1, "the curriculum has to go by something"


def test_dev_figures_are_those_of_the_first_pass_and_of_no_other(twice):
    result, folder, calls = twice
    alone = resuming.fit(resuming.static(), None, resuming.by_epoch([]), **resuming.TWICE)
    assert len(calls) == EPOCHS
    summary = result.summary
    assert (summary["rows"], summary["epochs"], summary["best_dev_ndcg@10"]) == (28, 3, None)
    first = summary["first_pass"]
    assert (first["rows"], first["best_epoch"], first["best_dev_ndcg@10"]) == (22, 3, 0.5)
    log = result.log
    pd.testing.assert_frame_equal(log[log["pass"] == 1].drop(columns="pass"), alone.log, check_exact=True)
    assert log.loc[log["pass"] == 1, DEV_METRIC].dropna().tolist() == list(resuming.DEV)
    assert second(result)[DEV_METRIC].isna().all()
    assert not list((folder / "checkpoints").iterdir()), "a finished training leaves nothing to go on from"
    assert_same_weights(load_file(folder / "model" / "model.safetensors"), result.model[0].state_dict())


def test_where_no_epoch_is_chosen_it_trains_for_all_of_them(tmp_path):
    result = resuming.fit_twice(tmp_path, [], keep_best=False)
    assert (result.summary["epochs"], result.summary["first_pass"]["best_epoch"]) == (EPOCHS, 3)
    assert len(second(result)) == EPOCHS * 7


def test_killed_in_the_second_pass_it_goes_on_there(killed, twice, tmp_path):
    shutil.copytree(killed / "twice", tmp_path, dirs_exist_ok=True)
    calls, passes = [], []

    def load():
        encoder = resuming.static()
        encoder[1].register_forward_hook(lambda *_: passes.append(1))
        return encoder

    result = resuming.fit_twice(tmp_path, calls, load)
    assert result.summary["resumed_from_step"] == 8
    assert (len(calls), len(passes)) == (0, 2 * (21 - 8)), "nothing that was done before is done again"
    assert_same_weights(result.model.state_dict(), twice[0].model.state_dict())
    pd.testing.assert_frame_equal(result.log, twice[0].log, check_exact=True)


def test_ended_between_the_passes_it_begins_the_second(twice, tmp_path):
    loads = []

    def load():
        loads.append(1)
        if len(loads) == 2:
            raise KeyboardInterrupt
        return resuming.static()

    with pytest.raises(KeyboardInterrupt):
        resuming.fit_twice(tmp_path, [], load)
    calls = []
    result = resuming.fit_twice(tmp_path, calls)
    assert calls == []
    assert_same_weights(result.model.state_dict(), twice[0].model.state_dict())
    pd.testing.assert_frame_equal(result.log, twice[0].log, check_exact=True)


def test_ended_before_the_model_was_saved_it_trains_no_further_epoch(twice, tmp_path, monkeypatch):
    def end(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("anmi.training.trainer.save", end)
        # Due at the end of every epoch of the second pass.
        resuming.fit_twice(tmp_path, [], checkpoint_steps=7)
    result = resuming.fit_twice(tmp_path, [], checkpoint_steps=7)
    assert result.summary["resumed_from_step"] == 14
    assert_same_weights(result.model.state_dict(), twice[0].model.state_dict())


def test_what_the_first_pass_came_to_counts_for_the_same_training_only(killed, tmp_path):
    shutil.copytree(killed / "twice", tmp_path, dirs_exist_ok=True)
    calls = []
    assert resuming.fit_twice(tmp_path, calls, learning_rate=0.04).summary["first_pass"]["learning_rate"] == 0.04
    assert len(calls) == EPOCHS
    calls.clear()
    result = resuming.fit_twice(tmp_path, calls, plan=CheckpointPlan(tmp_path / "checkpoints", resume=False))
    assert (len(calls), result.summary["resumed_from_step"]) == (EPOCHS, None)


def test_a_disk_that_takes_no_more_ends_no_training(twice, tmp_path, monkeypatch, caplog):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        # Checkpoints are due after 4 steps and are lost as well.
        patch.setattr(Path, "write_text", full)
        result = resuming.fit_twice(tmp_path, [])
    assert "will begin with the first again" in caplog.text
    assert_same_weights(result.model.state_dict(), twice[0].model.state_dict())


def test_a_damaged_outcome_is_passed_over(killed, tmp_path, twice):
    shutil.copytree(killed / "twice", tmp_path, dirs_exist_ok=True)
    (outcome,) = (tmp_path / "checkpoints").glob("*/outcome.json")
    outcome.write_text(outcome.read_text()[:-40])
    calls = []
    result = resuming.fit_twice(tmp_path, calls)
    assert len(calls) == EPOCHS
    assert_same_weights(result.model.state_dict(), twice[0].model.state_dict())


def test_one_may_go_on_from_a_checkpoint_of_the_second_pass_while_the_first_is_known(killed, tmp_path):
    shutil.copytree(killed / "twice", tmp_path, dirs_exist_ok=True)
    (start,) = (tmp_path / "checkpoints").glob("*/step-00000008")
    plan = CheckpointPlan(tmp_path / "checkpoints", start=start)
    calls = []
    lower = resuming.fit_twice(tmp_path, calls, plan=plan, learning_rate=0.01)
    assert (len(calls), lower.summary["resumed_from_step"], lower.summary["learning_rate"]) == (0, 8, 0.01)
    shutil.copytree(killed / "twice" / "checkpoints", tmp_path / "checkpoints", dirs_exist_ok=True)
    after = json.loads((start / "manifest.json").read_text())["identity"]["facts"]["refit after"]
    shutil.rmtree(tmp_path / "checkpoints" / after)
    with pytest.raises(AnmiError, match=f"is of a second pass, and what its first pass came to is not in .*{after}"):
        resuming.fit_twice(tmp_path, calls, plan=plan)


def test_where_dev_chose_an_epoch_before_the_rate_rose_the_model_is_the_untrained_one(tmp_path, monkeypatch, caplog):
    """With a single row the first epoch is the first step of the warm-up, whose learning rate is 0."""
    row, dev_row = resuming.table()[:1], resuming.dev_table()[:1]
    monkeypatch.setattr(resuming, "table", lambda: row)
    monkeypatch.setattr(resuming, "dev_table", lambda: dev_row)
    monkeypatch.setattr(resuming, "DEV", (0.5, 0.4, 0.3, 0.2))
    result = resuming.fit_twice(tmp_path, [], warmup=0.5)
    assert (result.summary["epochs"], result.summary["relative_weight_change"]) == (1, 0.0)
    assert "the model is the untrained one: dev chose epoch 1" in caplog.text.lower()
    assert_same_weights(result.model.state_dict(), resuming.static().state_dict())
