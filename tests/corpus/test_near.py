"""Near-duplicates against a comparison of all pairs."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from anmi.corpus import related as near
from anmi.corpus.texts import normalised_forms

FILLER = [f"w{chr(97 + i)}" for i in range(26)]


def near_duplicates(texts: list[str], *given: float, **named: float):
    return near.near_duplicates(normalised_forms(texts), *given, **named)


def essay(seed: int, length: int = 80) -> list[str]:
    return random.Random(seed).choices(FILLER, k=length)


def collection(seed: int, count: int = 60) -> list[str]:
    """Texts of which some are copies with a few words changed, moved or added; every word is in many of them."""
    rng = random.Random(seed)
    texts = [essay(seed * 1000 + i, rng.choice([0, 1, 2, 5, 30, 80])) for i in range(count // 2)]
    for _ in range(count - len(texts)):
        copy = list(rng.choice(texts))
        for _ in range(rng.randrange(3)):
            copy.insert(rng.randrange(len(copy) + 1), rng.choice([*FILLER, "x7", "rare"]))
        texts.append(copy)
    return [" ".join(words) for words in texts]


def by_all_pairs(texts: list[str], similarity: float, name_share: float) -> dict[tuple[int, int], float]:
    words = [text.split() for text in texts]
    runs = [{tuple(w[i : i + 3]) for i in range(max(1, len(w) - 2))} if w else set() for w in words]
    frequency = Counter(word for each in words for word in set(each))

    def telling(word: str) -> bool:
        few = frequency[word] < max(10, name_share * len(texts))
        return name_share > 0 and (few or len(word) == 1 or any(c.isdigit() for c in word))

    found = {}
    for j in range(len(texts)):
        for i in range(j):
            if not runs[i] or not runs[j]:
                continue
            jaccard = len(runs[i] & runs[j]) / len(runs[i] | runs[j])
            a, b = Counter(words[i]), Counter(words[j])
            if jaccard >= similarity and not any(telling(word) for word in (a - b) + (b - a)):
                found[i, j] = jaccard
    return found


@pytest.mark.parametrize("name_share", [0.0, 0.01, 0.5])
@pytest.mark.parametrize("similarity", [0.5, 0.8, 0.9, 1.0])
def test_near_duplicates_are_those_of_a_comparison_of_all_pairs(similarity: float, name_share: float) -> None:
    for seed in range(3):
        texts = collection(seed)
        expected = by_all_pairs(texts, similarity, name_share)
        found = {(i, j): share for i, j, share in near_duplicates(texts, similarity, name_share, least_words=1)}
        assert found == pytest.approx(expected)
    assert expected, "nothing was compared"


@pytest.mark.parametrize(
    ("changed", "near"),
    [("wa", True), ("x", False), ("7", False), ("Aspirin", False)],
    ids=["a common word", "a letter", "a number", "a name"],
)
def test_a_text_that_differs_in_a_name_or_number_is_no_near_duplicate(changed: str, near: bool) -> None:
    text = essay(0, 90)
    others = [" ".join(essay(i)) for i in range(1, 12)]
    found = near_duplicates([" ".join(text), *others, " ".join([*text[:40], changed, *text[40:]])])
    assert [pair[:2] for pair in found] == ([(0, 12)] if near else [])
    assert len(near_duplicates([" ".join(text), " ".join([*text, changed])], name_share=0)) == 1


def test_where_there_are_no_blanks_characters_are_words() -> None:
    characters = [chr(0x4E00 + i) for i in range(30)]
    base = "".join(random.Random(0).choices(characters, k=100))
    others = ["".join(random.Random(i).choices(characters, k=100)) for i in range(1, 15)]
    texts = [base, *others, f"{base[:50]}{characters[0]}{base[50:]}", f"{base[:50]}龜{base[50:]}"]
    ((i, j, share),) = near_duplicates(texts)
    assert (i, j) == (0, 15) and share > 0.9


def test_short_texts_are_not_compared() -> None:
    texts = [" ".join(essay(0, length)) for length in (49, 49, 50, 50)]
    assert near_duplicates(texts) == [(2, 3, 1.0)]


def test_forms_filled_in_alike_are_no_pairs() -> None:
    texts = [f"{' '.join(FILLER)} number {i}" for i in range(3000)]
    assert [pair[:2] for pair in near_duplicates([*texts, texts[7]], least_words=28)] == [(7, 3000)]
