"""Which texts share a forward pass: every one once, of like length, and the same ones wherever they are computed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anmi.retrieval import kinds as module
from anmi.retrieval.kinds import passes

TEXTS = st.lists(st.integers(0, 3000).map(lambda size: "ab ü" * (size // 4)), max_size=60)


@given(TEXTS, st.integers(1, 20), st.sampled_from([None, 1, 64, 512]))
def test_every_text_is_in_one_pass_of_like_length_and_bounded_tokens(
    texts: list[str], most: int, longest: int | None
) -> None:
    groups = passes(texts, most, longest)
    places = [int(place) for group in groups for place in group]
    assert sorted(places) == list(range(len(texts)))
    sizes = [len(texts[place]) for place in places]
    assert sizes == sorted(sizes, reverse=True)
    for group in groups:
        tokens = min(len(texts[group[0]].encode()) // 3 + 2, longest or 10**9)
        assert 1 <= len(group) <= most
        assert len(group) == 1 or len(group) * tokens <= module.TOKENS


@given(TEXTS, st.integers(1, 8), st.integers(1, 4))
def test_a_part_that_workers_are_sent_has_the_passes_of_the_whole(texts: list[str], most: int, batches: int) -> None:
    ordered = sorted(texts, key=len, reverse=True)
    whole = [group.tolist() for group in passes(ordered, most, 256)]
    size = most * batches
    parts = [
        [place + start for place in group]
        for start in range(0, len(ordered), size)
        for group in passes(ordered[start : start + size], most, 256)
    ]
    assert parts == whole


def test_a_gpu_takes_as_many_as_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["word " * 400] * 50
    assert [len(group) for group in passes(texts, 32, 256)] == [8, 8, 8, 8, 8, 8, 2]
    monkeypatch.setattr(module, "device", lambda: "cuda")
    assert [len(group) for group in passes(texts, 32, 256)] == [32, 18]
    assert np.concatenate(passes(texts, 32, 256)).tolist() == list(range(50))
