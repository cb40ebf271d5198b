import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anmi.training.curriculum import build_curriculum
from anmi.training.parts import BanditOptions, LearningProgressOptions, NoCurriculum, TiersOptions

STEPS = 60
KINDS = [
    TiersOptions(),
    TiersOptions(window="rank"),
    LearningProgressOptions(window_steps=3),
    LearningProgressOptions(window="rank", window_steps=3, every=2),
    BanditOptions(window_steps=3),
]
OBSERVATIONS = st.lists(
    st.tuples(
        st.floats(0, 20), st.one_of(st.floats(0, 1e6), st.just(float("nan"))), st.one_of(st.none(), st.floats(0, 1))
    ),
    min_size=STEPS,
    max_size=STEPS,
)


def make(options):
    return build_curriculum(options, STEPS, seed=3, negatives=5)


@pytest.mark.parametrize("options", KINDS, ids=repr)
@given(observations=OBSERVATIONS, cut=st.integers(0, STEPS - 1))
@settings(max_examples=15, deadline=None)
def test_a_curriculum_read_back_goes_on_as_if_nothing_had_happened(options, observations, cut):
    whole, first = make(options), make(options)
    for step, seen in enumerate(observations[:cut], start=1):
        assert whole.observe(step, *seen) == first.observe(step, *seen)
    second = make(options)
    second.load_state_dict(json.loads(json.dumps(first.state_dict(), allow_nan=False)))
    assert second.state == whole.state
    for step, seen in enumerate(observations[cut:], start=cut + 1):
        assert second.observe(step, *seen) == whole.observe(step, *seen)


@pytest.mark.parametrize("options", KINDS, ids=repr)
@given(observations=OBSERVATIONS)
@settings(max_examples=15, deadline=None)
def test_states_are_possible(options, observations):
    curriculum = make(options)
    for step, seen in enumerate(observations, start=1):
        state = curriculum.observe(step, *seen)
        assert 0 <= state.difficulty <= 1
        assert state.low < state.high
        assert 5 <= state.negatives <= 8
        if options.window == "elo":
            assert state.low >= 100
        else:
            assert state.low >= 0
            assert state.high <= 1


def test_none_is_none():
    assert make(NoCurriculum()) is None
