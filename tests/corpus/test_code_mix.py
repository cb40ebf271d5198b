"""The share of words of another script or language."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from anmi.corpus.hardness import HardnessParams, mixed_share, read_characters, split_words
from anmi.errors import AnmiError


def share(*texts: str, **more: Any) -> list[float]:
    characters = read_characters(texts)
    return mixed_share(characters, split_words(characters), **more).round(3).tolist()


def test_by_script_every_word_of_another_script_is_mixed_in() -> None:
    texts = ["what is कल का मौसम", "mausam kaisa hai", "12 34", "", "AB 中文字"]
    assert share(*texts, by="script") == [0.4, 0.0, 0.0, 0.0, 0.25]


def test_two_languages_of_one_script() -> None:
    mixed, english, spanish = share(
        "How many points did la defensa de los Panteras surrender",
        "How many points did the Panthers defense surrender",
        "¿Cuántos puntos cedió la defensa de los Panteras?",
    )
    assert mixed >= 0.4
    assert english == spanish == 0.0


def test_rare_words_are_no_mixture() -> None:
    assert share("5'-nucleotidase metabolizes 6MP.") == [0.0]


def test_a_missing_package_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wordfreq", None)
    with pytest.raises(AnmiError, match=r"pip install \"anmi\[code-mix\]\".*code_mix to script"):
        HardnessParams(code_mix="language").check_installed()


def test_the_order_and_company_of_texts_do_not_matter() -> None:
    texts = ["please alarm ko set kare", "set the alarm", "la casa is big and old", "मौसम today"]
    together = share(*texts)
    assert together == [share(text)[0] for text in texts]
    assert share(*texts[::-1]) == together[::-1]
