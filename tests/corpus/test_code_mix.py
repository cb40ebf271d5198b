from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from anmi.corpus.code_mix import ENTRY, SWITCH, _explain, code_mix_share
from anmi.corpus.word_languages import _module, log_likelihoods, sound
from anmi.errors import AnmiError

# Three lists instead of twelve: a second instead of several.
FEW = {"LATIN": ("en", "es", "hi-Latn")}


def share(*texts: str, **more: Any) -> list[float]:
    return code_mix_share(texts, languages=FEW, **more).round(3).tolist()


def test_by_script_every_word_of_another_script_is_mixed_in() -> None:
    texts = ["what is कल का मौसम", "mausam kaisa hai", "12 34", "", "AB 中文字"]
    assert code_mix_share(texts, by="script").tolist() == [0.4, 0.0, 0.0, 0.0, 0.25]


def test_romanised_hindi_in_english_is_seen() -> None:
    mixed = share(
        "please 50 minutes ke liye timer ko set karen",
        "danny ko message karo aur dekho ke he wants to go to comic con",
        "Alex ko batao ki use ab baahar aane ki zaroorat hai , entrance par",
    )
    assert min(mixed) > 0.1
    assert share("please set timer for 50 minutes", "what ' s the weather in baltimore", "set alarm for 2 hours") == [
        0.0,
        0.0,
        0.0,
    ]


def test_two_languages_of_one_script() -> None:
    mixed, english, spanish = share(
        "How many points did la defensa de los Panteras surrender",
        "How many points did the Panthers defense surrender",
        "¿Cuántos puntos cedió la defensa de los Panteras?",
    )
    assert mixed == pytest.approx(5 / 10)
    assert english == spanish == 0.0


def test_names_and_rare_words_are_no_mixture() -> None:
    assert share("Josh Norman intercepted Luke Kuechly", "5'-nucleotidase metabolizes 6MP.") == [0.0, 0.0]


def test_with_a_given_main_language_a_text_all_in_another_one_differs() -> None:
    text = "kya aaj thand hone wali hai"
    assert share(text) == [0.0]
    assert share(text, main="en")[0] > 0.8
    assert share("क्या आज", main="en") == [1.0]


def test_an_unknown_main_language_is_named() -> None:
    with pytest.raises(AnmiError, match=r'"englsh".*Known: en, es, hi-Latn'):
        share("a word", main="englsh")


def test_a_missing_list_and_a_missing_package_say_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AnmiError, match='"xx"'):
        log_likelihoods(["word"], ["xx"])

    def refuse(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", refuse)
    with pytest.raises(AnmiError, match=r"pip install \"anmi\[code-mix\]\".*code_mix to script"):
        _module("wordfreq")


def test_the_order_and_company_of_texts_do_not_matter() -> None:
    texts = ["please alarm ko set kare", "set the alarm", "la casa is big and old", "मौसम today"]
    together = share(*texts)
    assert together == [share(text)[0] for text in texts]
    assert share(*texts[::-1]) == together[::-1]


def test_romanised_spellings_meet() -> None:
    assert len({sound(word) for word in ("bajaao", "bajao")}) == 1
    assert len({sound(word) for word in ("chaahie", "chahie", "caahie", "chahiye")}) == 1
    assert sound("hafte") != sound("haath")


def slow_count(likelihood: NDArray[np.float32], main: int | None) -> int:
    """The same for one text, by trying all pairs word by word."""
    best, foreign = -np.inf, [False] * len(likelihood)
    count = likelihood.shape[1]
    for a in range(count) if main is None else [main]:
        for b in range(count):
            value, second = -ENTRY if a != b else 0.0, []
            for word in likelihood:
                second.append(word[b] - SWITCH > word[a])
                value += word[b] - SWITCH if second[-1] else word[a]
            if value > best:
                best, foreign = value, second
    if main is None and sum(foreign) * 2 > len(foreign):
        foreign = [not f for f in foreign]
    return sum(foreign)


@pytest.mark.parametrize("main", [None, 1])
def test_the_best_pair_is_that_of_a_slow_search(main: int | None) -> None:
    draw = np.random.default_rng(3)
    lengths = draw.integers(1, 9, 40)
    likelihood = draw.uniform(-8, -1, (lengths.sum(), 4)).astype(np.float32)
    begins = np.cumsum(lengths) - lengths
    slow = [slow_count(likelihood[start : start + n], main) for start, n in zip(begins, lengths, strict=True)]
    # Where both languages have as many words, either may be called the second.
    assert np.add.reduceat(_explain(likelihood, begins, main), begins).tolist() == slow
