"""Random streams: the vectorised cipher is NumPy's, and a draw depends on its own key alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anmi import seeds

DOCUMENTS = st.integers(0, 2**31 - 1)


@given(seed=st.integers(-(2**40), 2**40), query=st.text(max_size=8), document=DOCUMENTS)
def test_uniform_is_the_first_draw_of_numpys_philox(seed: int, query: str, document: int) -> None:
    # NumPy raises its 256-bit counter by one before the first block.
    words = [int(word) for word in seeds.key(seed, "step", query)]
    counter = (document - 1) % 2**256
    generator = np.random.Generator(
        np.random.Philox(key=words[0] | words[1] << 64, counter=counter)
    )
    drawn = seeds.uniform(seed, "step", [query], np.array([[document]], np.int32))
    assert drawn[0, 0] == generator.random()


@given(
    documents=st.lists(DOCUMENTS, min_size=1, max_size=12, unique=True),
    order=st.randoms(use_true_random=False),
)
def test_a_document_keeps_its_number_wherever_it_stands(
    documents: list[int], order: object
) -> None:
    shuffled = documents.copy()
    order.shuffle(shuffled)  # type: ignore[attr-defined]
    alone = {d: seeds.uniform(7, "s", ["q"], np.array([[d]], np.int32))[0, 0] for d in documents}
    block = seeds.uniform(
        7, "s", ["other", "q", "q"], np.array([[5] * len(shuffled), shuffled, shuffled], np.int32)
    )
    assert block[1].tolist() == [alone[d] for d in shuffled]
    assert (block[1] == block[2]).all()


@pytest.mark.parametrize(
    "other",
    [(2, "step", "q"), (1, "stepq", ""), (1, "step", "q2")],
    ids=["seed", "border", "query"],
)
def test_every_part_of_the_key_counts(other: tuple[int, str, str]) -> None:
    assert not (seeds.key(1, "step", "q") == seeds.key(*other)).all()
    assert seeds.stream(1, "step", "q").random() != seeds.stream(*other).random()
