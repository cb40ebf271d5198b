"""A language model as a generator: which texts it is asked about, and which answers are edits."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from anmi.retrieval.variants.build import edit_in, edited


class Model:
    """Answers as it was told, the last question first; of other texts it has a problem."""

    def __init__(self, answers: dict[str, str]) -> None:
        self.answers, self.asked = answers, list[str]()

    def __call__(self, questions: Sequence[tuple[str, str]]) -> Iterator[tuple[int, Any]]:
        for number, (_, question) in reversed(list(enumerate(questions))):
            text = question.removeprefix("<text>\n").removesuffix("\n</text>")
            self.asked.append(text)
            answer = self.answers.get(text)
            yield number, SimpleNamespace(text=answer or "", problem="" if answer else "it was cut off")


def test_edits_come_back_to_the_texts_they_are_of(caplog: pytest.LogCaptureFixture) -> None:
    texts = [f"The number of ships in port {i} is {i}." for i in range(20)]
    model = Model({text: text.replace("ships", "cars") for text in texts[:18]} | {texts[18]: texts[18]})
    with caplog.at_level(logging.WARNING):
        found = edited(model, 4000, texts)
    assert found == [[text.replace("ships", "cars")] for text in texts[:18]] + [[], []]
    assert sorted(model.asked) == sorted(texts)
    assert "2 of 20 texts were not edited (1 × " in caplog.text


def test_what_is_too_long_or_empty_is_not_asked() -> None:
    model = Model({"brief text": "short text"})
    assert edited(model, 20, ["brief text", "a" * 21, " "]) == [["short text"], [], []]
    assert model.asked == ["brief text"] and edited(model, 20, []) == []


@pytest.mark.parametrize(
    ("answer", "edit"),
    [
        ("It is green.", "It is green."),
        ("  It  is red. ", None),
        ("Sorry, I cannot make this text false, since it is true in all possible worlds.", None),
        ("", None),
        ("No", None),
    ],
)
def test_an_answer_that_is_no_edit_is_none(answer: str, edit: str | None) -> None:
    assert edit_in(answer, "It is red.") == edit
