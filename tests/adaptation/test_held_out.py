from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from anmi.adaptation.held_out import splits

MANY = [f"text {i}" for i in range(100)]


@given(texts=st.lists(st.text(), max_size=20), seed=st.integers(0, 2**32 - 1))
def test_a_document_has_its_split_whatever_else_the_corpus_holds(texts: list[str], seed: int) -> None:
    found = splits([*texts, *MANY], seed, 0.5).tolist()
    assert splits([*MANY, *texts[::-1]], seed, 0.5).tolist() == [*found[len(texts) :], *found[: len(texts)][::-1]]


@given(seed=st.integers(0, 2**32 - 1), count=st.integers(3, 30))
def test_of_a_few_documents_one_asks_for_dev_and_one_for_test(seed: int, count: int) -> None:
    assert {"train", "dev", "test"} == set(splits(MANY[:count], seed, 0.01).tolist())
    assert set(splits(MANY[:count], seed, 0.0).tolist()) == {"train"}


def test_the_share_is_held_out_half_of_it_for_dev() -> None:
    found = splits([f"text {i}" for i in range(20_000)], 1, 0.1).tolist()
    assert abs(found.count("dev") / 20_000 - 0.05) < 0.006
    assert abs(found.count("test") / 20_000 - 0.05) < 0.006


def test_a_smaller_share_holds_out_some_of_the_same_documents() -> None:
    texts = [f"text {i}" for i in range(1_000)]
    few, many = (splits(texts, 1, share) != "train" for share in (0.05, 0.2))
    assert few.any() and not (few & ~many).any()
