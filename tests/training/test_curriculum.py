"""Curricula: what they promise whatever happens, each by hand or against a plain loop, and trainings with them."""

import json
import logging
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.mined import mined
from tests.reports import class_of

from anmi.errors import AnmiError
from anmi.training import curriculum, parts
from anmi.training.curriculum import RANDOM_ONLY, Course, build_curriculum, stages
from anmi.training.options import TrainingOptions
from anmi.training.trainer import train

MIX = (0.2, 0.5, 0.3, 0.0)
EPOCH, EPOCHS = 6, 8
STEPS = EPOCH * EPOCHS
WINDOWS = [
    parts.TiersOptions(),
    parts.TiersOptions(window="rank"),
    parts.LearningProgressOptions(window_steps=3),
    parts.LearningProgressOptions(window="rank", window_steps=3, as_published=True),
    parts.LearningProgressOptions(window_steps=3, signals="validation+loss", every=2),
    parts.BanditOptions(as_published=True),
]
SCHEDULES = [
    parts.LinearOptions(),
    parts.LinearOptions(warm_up=0.4),
    parts.StepOptions(),
    parts.StepOptions(warm_up=1.5, latent_from=1.7),
    parts.TriggeredOptions(advance=0.1, retreat=0.3),
    parts.TriggeredOptions(measure="validation"),
]
UNKNOWN, SHARE = st.sampled_from([None, math.nan]), st.floats(0, 1)
# Loss, norm of the gradient, dev metric and violations of every step.
NORM = st.floats(0, 1e6) | st.just(math.nan)
OBSERVATION = st.tuples(st.floats(0, 20), NORM, st.none() | SHARE, UNKNOWN | SHARE)
OBSERVATIONS = st.lists(OBSERVATION, min_size=STEPS, max_size=STEPS)
PARTS = st.tuples(*[st.sampled_from([0, 0, 1, 2, 5])] * 4).filter(any)
MIXES = PARTS.map(lambda n: tuple(x / sum(n) for x in n))


def make(options, mix=MIX, epochs=EPOCHS, **more):
    mix = mix if options.kind in ("linear", "step", "triggered") else None
    more |= {"negatives": 5, "mix": mix, "epochs": epochs}
    return build_curriculum(options, EPOCH * epochs, seed=3, **more)


@pytest.mark.parametrize("options", [*WINDOWS, *SCHEDULES], ids=repr)
@given(observations=OBSERVATIONS, cut=st.integers(0, STEPS - 1), mix=MIXES)
@settings(max_examples=12)
def test_states_are_possible_and_one_read_back_goes_on_as_if_nothing_had_happened(
    options, observations, cut, mix
):
    whole, first, second = (make(options, mix) for _ in range(3))
    for step, seen in enumerate(observations, start=1):
        if step == cut + 1:
            second.load_state_dict(json.loads(json.dumps(first.state_dict(), allow_nan=False)))
            assert second.state == whole.state
        state = whole.observe(step, *seen)
        assert state == (first if step <= cut else second).observe(step, *seen)
        assert 0 <= state.difficulty <= 1
        if state.mix is None:
            assert state.low < state.high and 5 <= state.negatives <= 8
            assert state.low >= 100 if options.window == "elo" else 0 <= state.low < state.high <= 1
        else:
            assert sum(state.mix) == pytest.approx(1) and min(state.mix) >= 0
            assert state.difficulty == 1 - state.mix[0]
            pairs = zip(state.mix[1:], mix[1:], strict=True)
            assert all(share == 0 or final > 0 for share, final in pairs)
            assert state.report().keys() == {"difficulty"} | ({"stage"} if state.stage else set())
    assert second.transitions == whole.transitions
    # Stages last, forwards an epoch and backwards half of one, and one that changes nothing is left
    # out.
    begun, mixes = 0, stages(mix)
    for change in whole.transitions if options.kind == "triggered" else []:
        forwards = change["target"] > change["origin"]
        assert change["step"] - begun >= (EPOCH if forwards else EPOCH / 2)
        assert mixes[change["origin"] - 1] != mixes[change["target"] - 1]
        begun = change["step"]


def test_tiers_follow_each_other_in_equal_parts_and_see_the_gaps_of_methods():
    tiers = build_curriculum(parts.TiersOptions(), 8, 1)
    for step, low in enumerate((600, 600, 400, 400, 200, 200, 100, 100), start=1):
        state = tiers.state
        assert (state.tier, state.low, state.high) == ((step + 1) // 2, low, math.inf)
        tiers.observe(step, 1.0, 1.0, None)


@pytest.mark.parametrize("as_published", [False, True])
def test_the_dev_metric_is_the_reward_of_the_arm_that_was_held(as_published):
    def posteriors():
        state = bandit.state_dict()
        return list(zip(state["alpha"], state["beta"], strict=True))

    bandit, step = make(parts.BanditOptions(as_published=as_published)), 0
    report = class_of("000", "MultiArmedBanditCurriculum")() if as_published else None
    for validation in (0.9, 0.25, 0.5):
        arm, before = round(bandit.state.difficulty * 3), posteriors()
        for seen in (validation, None, None):
            step += 1
            bandit.observe(step, 1.0, 1.0, seen)
        change = np.zeros((4, 2))
        change[arm] = 0 if step == 3 else (validation, 1 - validation)
        if report and step > 3:
            report.update(arm, validation)
        change = np.transpose([report.alphas, report.betas]) - before if report else change
        assert np.subtract(posteriors(), before) == pytest.approx(change)
    for options in (parts.BanditOptions(), parts.LearningProgressOptions(signals=["validation"])):
        with pytest.raises(AnmiError, match="no dev queries"):
            make(options, dev=False)


def change_by(progress):
    borders = ((0.05, 0.05), (0.01, 0.0), (-0.02, 0.02))
    return next((change for border, change in borders if progress > border), -0.1)


def relative(before, now):
    return (now - before) / abs(before)


def series(seed):
    """Losses, norms of gradients, and a dev metric by step."""
    random = np.random.default_rng(seed)
    losses = np.exp(random.normal(0, 0.1 + 0.2 * seed, 60)).cumprod()
    norms = random.uniform(0.1, 3, 60)
    return losses, norms, {step: random.uniform(0.4, 0.6) for step in range(3, 60, 7)}


@pytest.mark.parametrize("signals", [("loss", "gradient", "validation"), ("validation", "loss")])
@pytest.mark.parametrize("every", [4, 6])
@pytest.mark.parametrize("seed", range(4))
def test_learning_progress_is_that_of_a_plain_loop(signals, every, seed):
    losses, norms, dev = series(seed)
    size = 4
    options = parts.LearningProgressOptions(window_steps=size, signals=signals, every=every)
    found = build_curriculum(options, 60, 1)
    difficulty, stabilities, told, measured = 0.0, [], [], False
    for step in range(1, 61):
        told, measured = ([*told, dev[step]], True) if step in dev else (told, measured)
        state = found.observe(step, losses[step - 1], norms[step - 1], dev.get(step))
        if step % every == 0:
            before = losses[max(step - 2 * size, 0) : step - size]
            now = losses[step - size : step]
            window = norms[step - size : step]
            stability = 1 / (1 + window.std() / window.mean())
            progress = [-relative(before.mean(), now.mean())] if step >= 2 * size else []
            if "gradient" in signals:
                progress += [stability - np.mean(stabilities)] if stabilities else []
                stabilities.append(stability)
            count = min(len(told) // 2, 3)
            if measured and count:
                gain = relative(np.mean(told[-2 * count : -count]), np.mean(told[-count:]))
                progress.append(gain)
                measured = False
            difficulty += change_by(np.mean(progress)) if progress else 0.0
            difficulty = min(max(difficulty, 0.0), 1.0)
        assert state.difficulty == pytest.approx(difficulty), step


@pytest.mark.parametrize("signals", [None, ("validation",), ("loss", "validation")])
@pytest.mark.parametrize("every", [None, 3])
@pytest.mark.parametrize("seed", range(4))
def test_as_published_it_is_the_code_of_the_report(signals, every, seed):
    losses, norms, dev = series(seed)
    options = parts.LearningProgressOptions(
        window_steps=4, signals=signals, every=every, as_published=True
    )
    found = build_curriculum(options, 60, 1, negatives=7)
    report = class_of("000", "LearningProgressCurriculum")(4, signals or ["loss", "gradient"])
    for step, (loss, norm) in enumerate(zip(losses, norms, strict=True), start=1):
        state = found.observe(step, loss, norm, dev.get(step))
        report.validation_history += [dev[step]] if step in dev else []
        if step % (every or 1) == 0:
            report.update(loss, norm)
        assert state.difficulty == pytest.approx(report.difficulty), step
        assert (state.low, state.high) == pytest.approx(report.get_elo_gap_threshold())
        assert state.negatives == report.get_negative_count(7)


@pytest.mark.parametrize(
    ("second", "change"), [(0.8, 0.05), (1.2, 0.0), (1.0, 0.02), (1.01, 0.02), (0.97, 0.0)]
)
def test_norms_that_are_not_measured_leave_the_loss_to_decide_alone(second, change):
    found = build_curriculum(parts.LearningProgressOptions(window_steps=4), 100, 1)
    difficulties = [
        found.observe(i, 1.0 if i <= 4 else second, math.nan, None).difficulty for i in range(1, 9)
    ]
    assert difficulties == [0.0] * 7 + [change], "never below 0"


@pytest.mark.parametrize(("steps", "window"), [(20, 5), (200, 10), (20_000, 100)])
def test_a_window_is_a_twentieth_of_the_training(steps, window):
    found = build_curriculum(parts.LearningProgressOptions(), steps, 1)
    losses = enumerate([1.0] * window + [0.5] * window, start=1)
    difficulties = [found.observe(i, loss, 1.0, None).difficulty for i, loss in losses]
    assert difficulties.index(0.05) == 2 * window - 1


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        # 8.75 and 10.5 negatives, cut.
        ("elo", [(400, 600, 7), (250, 500, 8), (100, 400, 10)]),
        ("rank", [(0.5, 1.0, 7), (0.25, 0.75, 8), (0.0, 0.5, 10)]),
    ],
)
def test_harder_means_more_negatives_and_smaller_gaps(window, expected):
    options = parts.BanditOptions(window=window)
    states = [curriculum.sliding_state(options, difficulty, 7) for difficulty in (0.0, 0.5, 1.0)]
    assert [(state.low, state.high, state.negatives) for state in states] == expected


def states(schedule, violations=(None,) * STEPS, validations=None):
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
    shares = np.array([state.mix for state in states(make(parts.LinearOptions()))])
    assert shares[0].tolist() == [1, 0, 0, 0] and (shares[2 * EPOCH :] == MIX).all()
    fall = (np.array(MIX) - RANDOM_ONLY) / (2 * EPOCH)
    assert np.diff(shares[: 2 * EPOCH + 1], axis=0) == pytest.approx(fall * np.ones((2 * EPOCH, 1)))


def test_step_adds_graph_after_two_epochs_and_latent_after_five():
    schedule = make(parts.StepOptions())
    found = states(schedule)
    assert [state.stage for state in found] == [1] * 2 * EPOCH + [2] * 3 * EPOCH + [3] * 3 * EPOCH
    assert found[2 * EPOCH].mix == pytest.approx((0.2 / 0.7, 0.5 / 0.7, 0, 0))
    assert found[-1].mix == MIX
    assert changes(schedule) == [(2 * EPOCH, 1, 2), (5 * EPOCH, 2, 3)]


def triggered(epoch):
    options = parts.TriggeredOptions(advance=0.1, retreat=0.3)
    return curriculum.Triggered(options, Course(epoch=epoch, mix=MIX))


def test_triggered_goes_on_when_violations_are_rare_and_back_when_they_are_many(monkeypatch):
    monkeypatch.setattr(curriculum, "_HALF_LIFE", 2.0)
    schedule = triggered(4)
    found = states(schedule, [0.05] * 12 + [0.2] * 12 + [0.9] * 6 + [0.2] * 6)
    # A stage lasts 4 steps at least; between the thresholds nothing happens; of 0.2 and 0.9 the
    # mean is soon above 0.3.
    assert changes(schedule) == [(4, 1, 2), (8, 2, 3), (25, 3, 2), (27, 2, 1)]
    assert [state.stage for state in found] == [1] * 4 + [2] * 4 + [3] * 17 + [2] * 2 + [1] * 9
    assert schedule.transitions[0]["why"] == "margin violations 0.0500 are below 0.1"
    assert "are above 0.3" in schedule.transitions[2]["why"]


def test_the_running_mean_halves_in_its_half_life_and_begins_anew_in_each_stage():
    schedule, rates = triggered(200), np.random.default_rng(0).uniform(0.1, 0.3, 20)
    for step, rate in enumerate(rates, start=1):
        schedule.observe(step, 1.0, 1.0, None, rate)
        weights, saved = 0.5 ** (np.arange(step)[::-1] / 20), schedule.state_dict()
        mean = np.average(rates[:step], weights=weights)
        assert saved["sum"] / saved["weight"] == pytest.approx(mean)
    schedule = triggered(4)
    states(schedule, [0.0] * 4 + [0.9])
    saved = schedule.state_dict()
    # The zeros of the stage before are forgotten.
    assert saved["place"] == 1 and saved["sum"] / saved["weight"] == pytest.approx(0.9)


def test_a_dev_metric_that_gains_no_more_goes_on_and_one_that_falls_goes_back():
    schedule = make(parts.TriggeredOptions(measure="validation"))
    told = [0.5, 0.6, 0.601, 0.62, 0.61, 0.6, 0.55, 0.56]
    validations = {EPOCH * (epoch + 1) + 1: value for epoch, value in enumerate(told)}
    found = states(schedule, [None] * EPOCH * 9, validations)
    # The third gains nothing, the fourth does, the fifth does not; the sixth is far below, and then
    # the best anew.
    assert [state.stage for state in found[1::EPOCH]] == [1, 1, 1, 2, 2, 3, 2, 1, 1]
    assert "0.6010 is no gain of 0.002 over 0.6000" in schedule.transitions[0]["why"]
    assert "0.6000 is more than 0.01 below 0.6200" in schedule.transitions[2]["why"]


def test_a_schedule_without_mixed_sources_and_a_window_with_them_are_refused():
    with pytest.raises(AnmiError, match=r'curriculum "step" .* set `sources: mixed`'):
        build_curriculum(parts.StepOptions(), 8, 1)
    with pytest.raises(AnmiError, match=r'curriculum "bandit" .* choose a schedule'):
        build_curriculum(parts.BanditOptions(), 8, 1, mix=MIX)
    assert make(parts.NoCurriculum()).state is None


@pytest.mark.parametrize(
    ("options", "mix", "warned"),
    [
        (parts.StepOptions(), MIX, True),
        (parts.StepOptions(), (0.5, 0.5, 0.0, 0.0), False),
        (parts.StepOptions(latent_from=4), MIX, False),
        (parts.LinearOptions(warm_up=5), MIX, True),
        (parts.LinearOptions(), MIX, False),
    ],
)
def test_a_training_too_short_for_its_schedule_is_warned_of(options, mix, warned, caplog):
    with caplog.at_level(logging.WARNING):
        make(options, mix, epochs=5)
    assert ("give it more epochs" in caplog.text) == warned


WORDS = [f"w{i}" for i in range(40)]


@pytest.fixture
def fit(word_encoder):
    """Train where query w_i belongs to the document w_{i+20} and the others are in its pool, 40 Elo apart."""
    elo = {"positive_elo": 1500.0, "negative_elo": [1500.0 - 40 * j for j in range(1, 20)]}

    usual = {"epochs": 8, "batch_size": 8, "learning_rate": 0.05, "negatives": 4, "alpha": 1.0}

    def run(dev=lambda model: 0.5, drop=(), **options):
        rows = mined(WORDS[:20], WORDS[20:], 19, **elo).drop(columns=list(drop))
        options = TrainingOptions(**usual | {"in_batch": "none"} | options)
        arguments = {"output": None, "seed": 1, "evaluate_dev": dev}
        return train(rows, encoder=word_encoder(WORDS), options=options, **arguments)

    return run


@pytest.mark.parametrize(
    ("kind", "window"), [("tiers", "rank"), ("learning_progress", "elo"), ("bandit", "elo")]
)
def test_training_learns_under_each_curriculum_and_says_what_it_showed(fit, kind, window):
    result = fit(curriculum={kind: {"window": window}})
    log = result.log
    assert len(log) == 24 and {"low", "high", "negatives"} <= set(log.columns)
    assert log.difficulty.between(0, 1).all() and log.difficulty.min() < log.difficulty.max()
    assert (log.inside == 1).all(), "each pool has enough in every window"
    found = result.model.encode(WORDS[:20]) @ result.model.encode(WORDS[20:]).T
    assert (found.diagonal()[:, None] >= found).mean() > 0.85


def test_the_first_gain_is_over_the_dev_metric_before_the_first_step(fit):
    def after_two_windows(start):
        measured = iter([start, 0.5, 0.5, 0.5])
        options = {"curriculum": {"learning_progress": {"window_steps": 3}}, "learning_rate": 1e-6}
        return fit(epochs=3, dev=lambda model: next(measured), **options).log.difficulty[6]

    assert after_two_windows(0.1) == 0.05 and after_two_windows(0.9) == 0


def test_rows_without_elo_are_refused(fit):
    with pytest.raises(AnmiError, match="the judgments elo, which were not mined"):
        fit(drop=["positive_elo", "negative_elo"], curriculum="tiers")
