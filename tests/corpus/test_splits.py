"""Splits by hash."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from anmi.corpus.splits import choose, cut, position

NAMES = [f"q{i}" for i in range(4000)]


def test_positions_are_uniform():
    place = position(1, "split", NAMES)
    assert 0 <= place.min() < 0.01
    assert 0.99 < place.max() < 1
    assert abs(np.mean(place) - 0.5) < 0.02


def test_shares_are_met():
    split = cut(NAMES, 42, dev_share=0.15, test_share=0.2)
    # Four standard deviations of a share of 4,000 draws are below 0.03.
    assert abs(np.mean(split == "dev") - 0.15) < 0.03
    assert abs(np.mean(split == "test") - 0.2) < 0.03


@settings(max_examples=30)
@given(st.permutations(NAMES[:50]), st.integers(0, 2**31))
def test_order_does_not_matter(order, seed):
    expected = dict(zip(NAMES, cut(NAMES[:50], seed, dev_share=0.3, test_share=0.3), strict=False))
    assert [expected[name] for name in order] == cut(order, seed, dev_share=0.3, test_share=0.3).tolist()
    chosen = {name for name, kept in zip(NAMES, choose(NAMES[:50], 7, seed), strict=False) if kept}
    assert {name for name, kept in zip(order, choose(order, 7, seed), strict=True) if kept} == chosen


def test_the_same_in_another_process():
    code = (
        "from anmi.corpus.splits import cut; print(*cut([f'q{i}' for i in range(50)], 3, dev_share=.3, test_share=.2))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": "9"}
    )
    assert done.stdout.split() == cut(NAMES[:50], 3, dev_share=0.3, test_share=0.2).tolist()


@settings(max_examples=30)
@given(st.lists(st.sampled_from(NAMES[:20]), max_size=40), st.integers(0, 2**31))
def test_equal_texts_share_a_split_and_move_no_other(texts, seed):
    split = dict(zip(NAMES[:20], cut(NAMES[:20], seed, dev_share=0.3, test_share=0.3), strict=True))
    assert cut(texts, seed, dev_share=0.3, test_share=0.3).tolist() == [split[text] for text in texts]
