import logging
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anmi.errors import AnmiError
from anmi.training import curriculum
from anmi.training.curriculum import RANDOM_ONLY, Course, Triggered, build_curriculum, stages
from anmi.training.parts import BanditOptions, LinearOptions, NoCurriculum, StepOptions, TriggeredOptions

MIX = (0.2, 0.5, 0.3, 0.0)
EPOCH, EPOCHS = 6, 8
# A stage lasts an epoch of four steps at least, and two before it may be left backwards.
QUICK, SHORT = {"advance": 0.1, "retreat": 0.3}, 4
KINDS = [
    LinearOptions(), LinearOptions(warm_up=0.4), StepOptions(), StepOptions(warm_up=1.5, latent_from=1.7),
    TriggeredOptions(**QUICK), TriggeredOptions(measure="validation"),
]  # fmt: skip
UNKNOWN = st.sampled_from([None, math.nan])
OBSERVATIONS = st.lists(
    st.tuples(st.one_of(UNKNOWN, st.floats(0, 1)), st.one_of(UNKNOWN, st.floats(0, 1))),
    min_size=EPOCH * EPOCHS,
    max_size=EPOCH * EPOCHS,
)
MIXES = st.tuples(*[st.sampled_from([0, 0, 1, 2, 5])] * 4).filter(any).map(lambda n: tuple(x / sum(n) for x in n))


def make(options, mix=MIX, epochs=EPOCHS):
    return build_curriculum(options, EPOCH * epochs, seed=3, mix=mix, epochs=epochs)


def states(schedule, violations=(None,) * EPOCH * EPOCHS, validations=None):
    """The state in which each step is made."""
    found, validations = [], validations or {}
    for step, rate in enumerate(violations, start=1):
        found.append(schedule.state)
        schedule.observe(step, 1.0, 1.0, validations.get(step), rate)
    return found


def changes(schedule):
    return [(change["step"], change["origin"], change["target"]) for change in schedule.transitions]


@given(mix=MIXES)
def test_stages_add_one_source_after_the_other(mix):
    first, second, last = stages(mix)
    assert (first, last) == (RANDOM_ONLY, mix)
    assert sum(second) == pytest.approx(1)
    assert second[2] == 0 or second == mix
    # What they share stands in the same proportions as at the end.
    assert np.cross(np.delete(second, 2), np.delete(mix, 2)) == pytest.approx(0) or mix[2] == 1


def test_linear_falls_from_random_to_the_final_shares():
    shares = np.array([state.mix for state in states(make(LinearOptions()))])
    assert shares[0].tolist() == [1, 0, 0, 0]
    assert np.diff(shares[: 2 * EPOCH + 1], axis=0) == pytest.approx(
        (np.array(MIX) - RANDOM_ONLY) / (2 * EPOCH) * np.ones((2 * EPOCH, 1))
    )
    assert (shares[2 * EPOCH :] == MIX).all()


def test_step_adds_graph_after_two_epochs_and_latent_after_five():
    schedule = make(StepOptions())
    found = states(schedule)
    assert [state.stage for state in found] == [1] * 2 * EPOCH + [2] * 3 * EPOCH + [3] * 3 * EPOCH
    assert found[2 * EPOCH].mix == pytest.approx((0.2 / 0.7, 0.5 / 0.7, 0, 0))
    assert found[-1].mix == MIX
    assert changes(schedule) == [(2 * EPOCH, 1, 2), (5 * EPOCH, 2, 3)]


def test_triggered_goes_on_when_violations_are_rare_and_back_when_they_are_many(monkeypatch):
    monkeypatch.setattr(curriculum, "_HALF_LIFE", 2.0)
    schedule = Triggered(TriggeredOptions(**QUICK), Course(epoch=SHORT, mix=MIX))
    found = states(schedule, [0.05] * 12 + [0.2] * 12 + [0.9] * 6 + [0.2] * 6)
    # A stage lasts 4 steps at least; between the thresholds nothing happens; of 0.2 and 0.9 the mean is soon above 0.3.
    assert changes(schedule) == [(4, 1, 2), (8, 2, 3), (25, 3, 2), (27, 2, 1)]
    assert [state.stage for state in found] == [1] * 4 + [2] * 4 + [3] * 17 + [2] * 2 + [1] * 9
    assert [round(state.difficulty, 3) for state in found[::4]] == [0, 0.714, 0.8, 0.8, 0.8, 0.8, 0.8, 0, 0]
    assert schedule.transitions[0]["why"] == "margin violations 0.0500 are below 0.1"
    assert "are above 0.3" in schedule.transitions[2]["why"]


def test_the_running_mean_halves_in_its_half_life_and_begins_anew_in_each_stage():
    schedule = Triggered(TriggeredOptions(**QUICK), Course(epoch=200, mix=MIX))
    rates = np.random.default_rng(0).uniform(0.1, 0.3, 20)
    for step, rate in enumerate(rates, start=1):
        schedule.observe(step, 1.0, 1.0, None, rate)
        weights = 0.5 ** (np.arange(step)[::-1] / 20)
        saved = schedule.state_dict()
        assert saved["sum"] / saved["weight"] == pytest.approx(np.average(rates[:step], weights=weights))
    schedule = Triggered(TriggeredOptions(**QUICK), Course(epoch=SHORT, mix=MIX))
    states(schedule, [0.0] * 4 + [0.9])
    saved = schedule.state_dict()
    assert saved["place"] == 1
    assert saved["sum"] / saved["weight"] == pytest.approx(0.9), "the zeros of the stage before are forgotten"


@given(observations=OBSERVATIONS, mix=MIXES)
@pytest.mark.parametrize("options", KINDS[4:], ids=repr)
def test_stages_last_and_follow_each_other(options, observations, mix):
    schedule = make(options, mix)
    for step, (validation, rate) in enumerate(observations, start=1):
        schedule.observe(step, 1.0, 1.0, validation, rate)
    begun, mixes = 0, stages(mix)
    for change in schedule.transitions:
        forwards = change["target"] > change["origin"]
        assert change["step"] - begun >= (EPOCH if forwards else EPOCH / 2)
        assert mixes[change["origin"] - 1] != mixes[change["target"] - 1], "a stage that changes nothing is left out"
        begun = change["step"]


def test_a_dev_metric_that_gains_no_more_goes_on_and_one_that_falls_goes_back():
    schedule = make(TriggeredOptions(measure="validation"))
    told = [0.5, 0.6, 0.601, 0.62, 0.61, 0.6, 0.55, 0.56]
    validations = {EPOCH * (epoch + 1) + 1: value for epoch, value in enumerate(told)}
    found = states(schedule, [None] * EPOCH * 9, validations)
    # The third gains nothing, the fourth does, the fifth does not; the sixth is far below, and then the best anew.
    assert [state.stage for state in found[1::EPOCH]] == [1, 1, 1, 2, 2, 3, 2, 1, 1]
    assert "0.6010 is no gain of 0.002 over 0.6000" in schedule.transitions[0]["why"]
    assert "0.6000 is more than 0.01 below 0.6200" in schedule.transitions[2]["why"]
    assert [change["target"] for change in schedule.transitions] == [2, 3, 2, 1]


@pytest.mark.parametrize("options", KINDS, ids=repr)
@given(observations=OBSERVATIONS, mix=MIXES)
@settings(max_examples=15)
def test_shares_are_shares_and_no_source_comes_that_is_not_asked_for(options, observations, mix):
    schedule = make(options, mix)
    for step, seen in enumerate(observations, start=1):
        state = schedule.observe(step, 1.0, 1.0, *seen)
        assert sum(state.mix) == pytest.approx(1)
        assert min(state.mix) >= 0
        assert all(share == 0 or final > 0 for share, final in zip(state.mix[1:], mix[1:], strict=True))
        assert state.difficulty == 1 - state.mix[0]
        assert state.report() == {
            "difficulty": state.difficulty, **({} if state.stage is None else {"stage": float(state.stage)})
        }  # fmt: skip


def test_a_schedule_without_mixed_sources_and_a_window_with_them_are_refused():
    with pytest.raises(AnmiError, match=r'curriculum "step" .* set `sources: mixed`'):
        make(StepOptions(), mix=None)
    with pytest.raises(AnmiError, match=r'curriculum "bandit" .* choose a schedule \(linear, step, triggered\)'):
        make(BanditOptions())
    assert make(NoCurriculum()).state is None


@pytest.mark.parametrize(
    ("options", "mix", "warned"),
    [
        (StepOptions(), MIX, True), (StepOptions(), (0.5, 0.5, 0.0, 0.0), False),
        (StepOptions(latent_from=4), MIX, False), (LinearOptions(warm_up=5), MIX, True), (LinearOptions(), MIX, False),
    ],
)  # fmt: skip
def test_a_training_too_short_for_its_schedule_is_warned_of(options, mix, warned, caplog):
    with caplog.at_level(logging.WARNING):
        make(options, mix, epochs=5)
    assert ("give it more epochs" in caplog.text) == warned
