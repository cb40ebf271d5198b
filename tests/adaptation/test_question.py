from __future__ import annotations

import json

import pytest

from anmi.adaptation.kinds import TEMPLATES, Document, Material, QuestionOptions, View, question


def asked(metadata: dict[str, object], language: str = "en", most: int = 5, **keys: str) -> list[View]:
    document = Document("d", "Title", "Text.", language, json.dumps(metadata))
    return question(Material([document], language, QuestionOptions(**keys)))(document, most, 1)


def test_the_type_chooses_the_questions_and_the_focus_is_asked_for() -> None:
    found = asked({"focus": "Gout", "qtype": "Treatment"})
    assert {view.query for view in found} == {"How is Gout treated?", "What are the treatments for Gout?"}
    assert {view.positive for view in found} == {"Title Text."}
    assert asked({"focus": "Gout", "qtype": "treatment"}, most=1) == found[:1]


def test_the_entries_may_have_other_names() -> None:
    assert asked({"topic": "{} of\nall", "kind": "stages"}, focus="topic", type="kind") == [
        View("What are the stages of {} of all?", "Title Text.")
    ]


@pytest.mark.parametrize(
    "metadata",
    [{}, {"focus": "Gout"}, {"qtype": "stages"}, {"focus": "", "qtype": "stages"}, {"focus": "Gout", "qtype": "poems"},
     {"focus": None, "qtype": None}],
)  # fmt: skip
def test_what_is_not_known_is_not_asked(metadata: dict[str, object]) -> None:
    assert asked(metadata) == []


def test_other_languages_have_no_questions() -> None:
    assert asked({"focus": "Gicht", "qtype": "stages"}, language="de") == []


def test_no_type_stands_twice_and_every_template_has_a_place_for_the_focus() -> None:
    names = [name for row in TEMPLATES for name in row]
    assert len(names) == len(set(names)) and names == [name.casefold() for name in names]
    assert all(template.count("{}") == 1 for row in TEMPLATES.values() for template in row)
