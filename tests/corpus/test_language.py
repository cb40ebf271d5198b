"""The language of a collection, as given, as a source names it, and as recognised."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from anmi.corpus.language import LANGUAGES, detect_language, language_code
from anmi.corpus.sources import load_collection
from anmi.errors import AnmiError
from anmi.pipelines.params import IngestionParams


@pytest.mark.parametrize(
    ("given", "code"),
    [("hi", "hi"), ("EN-us", "en"), ("pt_BR", "pt"), ("zh-Hant", "zh"), (" ta ", "ta"), ("nb", "no"), ("my", "my")],
)
def test_codes_with_region_and_in_capitals(given: str, code: str) -> None:
    assert language_code(given) == code
    assert IngestionParams(language=given).language == code


@pytest.mark.parametrize(("given", "nearest"), [
    ("hindi", '"hi" (Hindi)'), ("Hindī", '"hi" (Hindi)'), ("hin", '"hi" (Hindi)'), ("tamill", '"ta" (Tamil)'),
    ("nepalese", '"ne" (Nepali)'), ("Thai", '"th" (Thai)'), ("eng", '"en" (English)'),
])  # fmt: skip
def test_an_unknown_language_is_refused_with_the_nearest(given: str, nearest: str) -> None:
    with pytest.raises(AnmiError) as refused:
        language_code(given)
    assert f'there is no language "{given}"; did you mean {nearest}?' in str(refused.value)


def test_it_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(AnmiError, match='no language "hindi"; did you mean "hi"'):
        load_collection(f"beir:{tmp_path / 'missing'}", language="hindi")


def test_no_language_is_none() -> None:
    assert IngestionParams(language="").language is None
    assert IngestionParams().language is None


def test_every_iso_639_1_code_is_known() -> None:
    assert len(LANGUAGES) == 183
    assert all(len(code) == 2 and name for code, name in LANGUAGES.items())
    assert {"hi": "Hindi", "th": "Thai", "ne": "Nepali", "zu": "Zulu", "aa": "Afar"}.items() <= LANGUAGES.items()


def test_what_is_recognised_can_be_given() -> None:
    import py3langid

    assert all(language_code(code) for code, _ in py3langid.rank("Words"))
    assert language_code(detect_language(["यह हिन्दी में लिखा हुआ एक वाक्य है।"])) == "hi"


def test_a_source_may_name_its_language_wrongly(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    english = "the quick brown fox jumps over the lazy dog and runs into the forest number"
    for name, language in {"named": "KO-kr", "wrong": "korean"}.items():
        rows = [{"query": f"question {i}", "document": f"{english} {i}", "language": language} for i in range(10)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert load_collection(f"pairs:{tmp_path}/named.jsonl").language == "ko"
    with caplog.at_level(logging.WARNING):
        assert load_collection(f"pairs:{tmp_path}/wrong.jsonl").language == "en"
    assert 'no language "korean"; did you mean "ko" (Korean)?' in caplog.text
