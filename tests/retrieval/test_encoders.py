"""Encoders by name, with and without PyTorch: prompts, fingerprints, the corpus's own."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer
from tokenizers.models import Unigram, WordLevel

from anmi.engine.threads import in_threads
from anmi.errors import AnmiError
from anmi.retrieval import encoders
from anmi.retrieval.bm25 import BM25Index
from anmi.retrieval.corpus_encoder import corpus_encoder, save
from anmi.retrieval.encoders import Encoder, EncoderSettings, Role, load_encoder
from anmi.retrieval.kinds import is_routed, is_static, prompts_of, quiet, two_encoders
from anmi.retrieval.model_folder import minilm_folder
from anmi.retrieval.spelling import spelling_of
from anmi.retrieval.terms import Terms
from anmi.retrieval.token_table import (
    TokenTable,
    lowered_words,
    lowering,
    table_of,
    token_table,
)
from anmi.retrieval.tokens import Tokeniser
from anmi.store import Store

WORDS = ["[UNK]", "[PAD]", "red", "fox", "blue", "whale", "den", "the"]


def encode(
    model: Any, texts: list[str], role: Role | None = None, store: Store | None = None
) -> NDArray[np.float32]:
    return Encoder.of(model, EncoderSettings(precision="float32"), store).encode(texts, role)


def opened(folder: Path, models: Path, store: Store | None = None) -> Encoder:
    settings = EncoderSettings(encoder=str(folder), precision="float32")
    return Encoder(settings, models, store)


@pytest.fixture(scope="module")
def minilm(tmp_path_factory):
    return encoders.load_encoder("minilm", tmp_path_factory.mktemp("none"), max_length=32)


LONG = ["red fox den the blue whale " * 3]


@pytest.fixture(scope="module")
def network(network_encoder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("network") / "network"
    network_encoder(WORDS[2:]).save(str(folder), create_model_card=False)
    return folder


def loaded(folder: Path, **options: Any) -> Any:
    from sentence_transformers import SentenceTransformer

    with quiet():
        return SentenceTransformer(str(folder), device="cpu", **options)


def copied(folder: Path, target: Path, file: str, **changes: Any) -> Path:
    """Copy a model, with changes of one of its files of settings."""
    shutil.copytree(folder, target)
    settings = json.loads((target / file).read_text())
    assert settings.keys() >= changes.keys()
    (target / file).write_text(json.dumps(settings | changes))
    return target


@pytest.mark.parametrize(
    "change",
    [
        lambda model: setattr(model, "truncate_dim", 4),
        lambda model: setattr(model.tokenizer, "truncation_side", "left"),
        lambda model: setattr(model[1], "pooling_mode", "max"),
        lambda model: setattr(model, "max_seq_length", 5),
    ],
    ids=["shorter", "from the left", "by maximum", "at most five"],
)
def test_a_setting_that_changes_the_vectors_changes_the_fingerprint(network, change):
    model = loaded(network)
    vectors, mark = model.encode(LONG), encoders.fingerprint(model)
    change(model)
    changed = model.encode(LONG)
    assert changed.shape != vectors.shape or not np.allclose(changed, vectors, atol=1e-3)
    assert encoders.fingerprint(model) != mark


@pytest.mark.parametrize("changes", [{"hidden_act": "relu"}, {"layer_norm_eps": 0.5}])
def test_the_configuration_of_a_network_changes_the_fingerprint(network, tmp_path, changes):
    before = loaded(network)
    after = loaded(copied(network, tmp_path / "changed", "config.json", **changes))
    assert not np.allclose(before.encode(LONG), after.encode(LONG), atol=1e-4)
    assert encoders.fingerprint(before) != encoders.fingerprint(after)


def test_what_does_not_change_the_vectors_does_not_change_the_fingerprint(network, tmp_path):
    model = loaded(network)
    mark = encoders.fingerprint(model)
    newer = {"transformers_version": "9.9.9", "architectures": ["BertForMaskedLM"]}
    copied(network, tmp_path / "newer", "config.json", **newer)
    model.save(str(tmp_path / "again"), create_model_card=False)
    same = [loaded(tmp_path / name) for name in ("newer", "again")]
    same.append(loaded(network, model_kwargs={"attn_implementation": "eager"}))
    assert {encoders.fingerprint(model) for model in same} == {mark}


def rewritten(folder: Path, target: Path, change: Callable[[str], str | None]) -> Path:
    """Copy a model, its weights by other names; those without a name are left out."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(folder, target)
    weights = load_file(target / "model.safetensors")
    renamed = {change(key): value for key, value in weights.items() if change(key)}
    save_file(renamed, target / "model.safetensors", {"format": "pt"})
    return target


def without(part: str) -> Callable[[str], str | None]:
    return lambda key: None if part in key else key


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda weights: weights[:9], 'has 9 vectors and none of the token ".*", which its'),
        (lambda weights: weights * np.nan, 'no finite vector of 1 of 1 texts, such as "a fox"'),
    ],
    ids=["fewer than tokens", "no numbers"],
)
def test_a_table_that_cannot_give_vectors_is_refused(table_folder, tmp_path, change, told):
    from safetensors.numpy import load_file, save_file

    folder = Path(shutil.copytree(table_folder, tmp_path / "model"))
    ((name, weights),) = load_file(folder / "model.safetensors").items()
    save_file({name: np.ascontiguousarray(change(weights))}, folder / "model.safetensors")
    with Store(tmp_path / "store") as store, pytest.raises(AnmiError, match=told):
        opened(folder, tmp_path, store).encode(["a fox"])


MISSING = [
    (without("query"), r"of 23 weights 2 \(encoder.*.query.bias, encoder.*.query.weight\) are"),
    (lambda key: f"foo.{key}", r"hold 23 \(foo.embeddings.*, …\) instead; they would be filled"),
]


@pytest.mark.parametrize(("change", "told"), MISSING, ids=["some", "under other names"])
def test_a_network_whose_files_lack_weights_is_refused(network, tmp_path, change, told):
    folder = rewritten(network, tmp_path / "model", change)
    with pytest.raises(AnmiError, match=told):
        load_encoder(str(folder), tmp_path)


def test_weights_of_another_shape_are_refused_by_name(network, tmp_path):
    folder = rewritten(network, tmp_path / "model", lambda key: key)
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(settings | {"max_position_embeddings": 7}))
    with pytest.raises(AnmiError, match=r": 1 \(.*position_emb.* another shape"):
        load_encoder(str(folder), tmp_path)


def test_weights_that_nobody_reads_may_be_missing_or_too_many(network, tmp_path, caplog):
    def prefixed(key: str) -> str:
        return key.replace("pooler", "cls.foo") if "pooler" in key else f"bert.{key}"

    folder = rewritten(network, tmp_path / "model", prefixed)
    marks = {encoders.fingerprint(load_encoder(str(folder), tmp_path)) for _ in range(2)}
    assert len(marks) == 1
    assert caplog.text.count("2 (cls.foo.dense.bias, cls.foo.dense.weight) that BertModel") == 1


def test_the_order_of_a_set_does_not_change_the_fingerprint():
    """Every process orders sets in its own way."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, WordEmbeddings
    from sentence_transformers.sentence_transformer.modules.tokenizer import WhitespaceTokenizer

    class Turned(set[str]):
        turned = False

        def __iter__(self) -> Iterator[str]:
            return iter(sorted(super().__iter__(), reverse=self.turned))

    prints = set()
    for Turned.turned in (False, True):
        words = WhitespaceTokenizer(WORDS)
        words.stop_words = Turned({"the", "a", "an"})
        modules = [WordEmbeddings(words, np.ones((len(WORDS), 6), np.float32)), Pooling(6)]
        prints.add(encoders.fingerprint(SentenceTransformer(modules=modules, device="cpu")))
    assert len(prints) == 1


def test_a_second_call_computes_nothing(word_encoder, tmp_path, monkeypatch):
    model, texts = word_encoder(WORDS[1:]), ["red fox", "blue whale", "red fox"]
    with Store(tmp_path) as store:
        first = encode(model, texts, store=store)
        assert None not in store.read(store.keys(encoders.fingerprint(model, "float32", ""), texts))

        def fail(*_: object, **__: object) -> None:
            raise AssertionError("computed again")

        monkeypatch.setattr(Encoder, "embed", fail)
        second = encode(model, texts, store=store)
    assert (first == second).all()
    assert (first[0] == first[2]).all()


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_vectors_are_cut_as_sentence_transformers_do_and_stored_whole(
    word_encoder, tmp_path, monkeypatch, similarity
):
    model = word_encoder(WORDS[1:], normalise=False, similarity_fn_name=similarity)
    texts = ["red fox", "blue whale", "red fox"]
    cut = EncoderSettings(dimensions=3)
    with Store(tmp_path) as store:
        whole = encode(model, texts, store=store)
        monkeypatch.setattr(Encoder, "embed", None)
        found = Encoder.of(model, cut, store).encode(texts)
    by_cosine = similarity == "cosine"
    expected = model.encode(texts, truncate_dim=3, normalize_embeddings=by_cosine)
    assert whole.shape[1] == 8
    assert found == pytest.approx(expected, abs=2e-3)
    assert np.allclose(np.linalg.norm(found, axis=1), 1) == by_cosine
    assert Encoder.of(model, cut).encode([]).shape == (0, 3)
    assert Encoder.of(model, cut).fingerprint != Encoder.of(model).fingerprint
    with pytest.raises(AnmiError, match=r"dense\.dimensions is 9, .* have 8 dimensions"):
        Encoder.of(model, EncoderSettings(dimensions=9)).encode(texts)


def test_two_threads_ask_one_model_at_once(minilm):
    more = [" and more" * number for number in range(12)]
    texts = [[f"text of {thread}{ending}" for ending in more] for thread in (0, 1)]
    settings = EncoderSettings(precision="float32", tokens_per_pass=40)
    expected = [Encoder.of(minilm, settings).encode(part) for part in texts]
    shared = Encoder.of(minilm, settings)
    for _ in range(3):
        found = [*in_threads(shared.encode, texts, 2, 1)]
        assert all(
            np.allclose(one, other, atol=1e-6) for one, other in zip(found, expected, strict=True)
        )


def test_two_encoders_begin_alike_and_have_weights_of_their_own(word_encoder):
    shared = word_encoder([*"abcq"], dimension=6, prompts={"query": "q ", "document": ""})
    model = two_encoders(shared)
    texts = ["a b", "c", "b b a"]
    expected = {role: encode(shared, texts, role=role) for role in ROLES}
    for role, found in expected.items():
        assert np.allclose(encode(model, texts, role=role), found, atol=1e-6)
    assert is_routed(model) and is_static(model) and not is_routed(shared)
    assert model.prompts == shared.prompts and two_encoders(model) is model
    model[0].sub_modules["query"][0].embedding.weight.data += 1.0
    assert np.allclose(encode(model, texts, role="document"), expected["document"], atol=1e-6)
    assert not np.allclose(encode(model, texts, role="query"), expected["query"])
    assert np.allclose(encode(shared, texts, role="query"), expected["query"])


PROMPT_WORDS = ["query", "passage", ":", "find", "red", "fox", "blue", "whale"]
TEXTS = ["red fox", "blue whale fox", "whale"]
BOTH = {"query": "query: ", "document": "passage: "}
ROLES: tuple[Role, Role] = ("query", "document")


@pytest.fixture(params=["static", "two", "mean", "mean without its prompt", "cls", "lasttoken"])
def folder(request, word_encoder, network_encoder, tmp_path):
    """A model with two prompts: a table, two tables, and networks that pool in four ways."""
    if request.param in ("static", "two"):
        model = word_encoder(PROMPT_WORDS, prompts=BOTH)
        model = two_encoders(model) if request.param == "two" else model
        if request.param == "two":
            model[0].sub_modules["query"][0].embedding.weight.data += 1.0
    else:
        pooling, _, without = request.param.partition(" ")
        model = network_encoder(
            PROMPT_WORDS, include_prompt=not without, pooling=pooling, prompts=BOTH
        )
    model.save(str(tmp_path / "model"), create_model_card=False)
    return tmp_path / "model"


def as_told(model: Any, role: str, **options: Any) -> Any:
    """What sentence-transformers give for the role."""
    encoding = model.encode_query if role == "query" else model.encode_document
    return encoding(TEXTS, normalize_embeddings=True, **options)


@pytest.mark.parametrize("role", ROLES)
def test_every_way_to_encode_is_that_of_sentence_transformers(folder, tmp_path, role):
    plain = SentenceTransformer(str(folder), device="cpu")
    model = load_encoder(str(folder), tmp_path)
    expected = as_told(plain, role)
    assert not np.allclose(expected, as_told(plain, role, prompt=""), atol=1e-3)
    with Store(tmp_path / "store") as store:
        for found in (
            encode(model, TEXTS, role),
            encode(model, TEXTS, role, store),
            pickle.loads(pickle.dumps(opened(folder, tmp_path, store))).encode(TEXTS, role),
        ):
            # The store keeps half of the digits.
            np.testing.assert_allclose(found, expected, atol=2.5e-4)


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("longest", [None, 6])
def test_training_reads_the_tokens_that_are_encoded(folder, tmp_path, role, longest):
    model = load_encoder(str(folder), tmp_path, max_length=longest)
    features = Tokeniser(model, longest).features(TEXTS, role)
    expected = model.preprocess(TEXTS, prompt=BOTH[role], task=role)
    assert features["input_ids"].tolist() == expected["input_ids"].tolist()
    first = PROMPT_WORDS.index(BOTH[role][:-2])
    assert (
        first + (5 if "attention_mask" in features else 1)
        in features["input_ids"].flatten().tolist()
    )
    if "attention_mask" in features and longest:
        assert features["input_ids"].shape[1] == longest, "the prompt's tokens are among them"
    found = model(features)["sentence_embedding"].detach().numpy()
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    np.testing.assert_allclose(found, as_told(model, role), atol=1e-5)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"prompt_query": "find: "}, BOTH | {"query": "find: "}),
        ({"prompt_document": ""}, BOTH | {"document": ""}),
    ],
)
def test_what_is_set_wins_over_the_folder_and_an_empty_text_is_set(
    folder, tmp_path, given, expected
):
    plain = SentenceTransformer(str(folder), device="cpu")
    model = load_encoder(str(folder), tmp_path, **given)
    assert prompts_of(model) == expected
    model.save(str(tmp_path / "again"), create_model_card=False)
    again = SentenceTransformer(str(tmp_path / "again"), device="cpu")
    for role in ROLES:
        wanted = as_told(plain, role, prompt=expected[role])
        np.testing.assert_allclose(encode(model, TEXTS, role), wanted, atol=1e-5)
        np.testing.assert_allclose(as_told(again, role), wanted, atol=1e-5)


def test_a_document_prompt_by_another_name_is_used_and_told(word_encoder, tmp_path, caplog):
    prompts = {"query": "query: ", "passage": "passage: "}
    word_encoder(PROMPT_WORDS, prompts=prompts).save(str(tmp_path / "model"))
    model = load_encoder(str(tmp_path / "model"), tmp_path)
    assert prompts_of(model) == BOTH
    expected = as_told(model, "document", prompt="passage: ")
    np.testing.assert_allclose(as_told(model, "document"), expected)
    assert 'documents get the prompt "passage: "' in caplog.text
    without = load_encoder(str(tmp_path / "model"), tmp_path, prompt_document="")
    without.save(str(tmp_path / "without"))
    for bare in (without, load_encoder(str(tmp_path / "without"), tmp_path)):
        assert prompts_of(bare) == {"query": "query: ", "document": ""}


@pytest.mark.parametrize("similarity", ["dot", "euclidean", "manhattan"])
def test_a_similarity_makes_vectors_others_or_is_refused(word_encoder, tmp_path, similarity):
    for name in ("cosine", similarity):
        model = word_encoder(PROMPT_WORDS, normalise=False, similarity_fn_name=name)
        model.save(str(tmp_path / name), create_model_card=False)
    if similarity != "dot":
        with pytest.raises(AnmiError, match=f"compares vectors by {similarity} distance"):
            opened(tmp_path / similarity, tmp_path).encode(TEXTS)
        return
    keys = {opened(tmp_path / name, tmp_path).key("query") for name in ("cosine", "dot")}
    assert len(keys) == 2


def test_a_default_prompt_is_used_for_neither_role_as_in_sentence_transformers(
    word_encoder, tmp_path, caplog
):
    named = {"prompts": {"sts": "find: "}, "default_prompt_name": "sts"}
    word_encoder(PROMPT_WORDS, **named).save(str(tmp_path / "model"))
    word_encoder(PROMPT_WORDS).save(str(tmp_path / "plain"))
    plain, model = (load_encoder(str(tmp_path / name), tmp_path) for name in ("plain", "model"))
    for role in ROLES:
        np.testing.assert_allclose(encode(model, TEXTS, role=role), as_told(model, role), atol=1e-6)
        assert Encoder.of(model).key(role) == Encoder.of(plain).key(role)
    assert not np.allclose(model.encode(TEXTS), as_told(model, "query"))
    assert 'the default prompt "find: " of the model is not used' in caplog.text


def test_texts_of_unknown_role_are_refused_where_there_are_prompts(folder, tmp_path):
    with pytest.raises(AnmiError, match="not known what they are"):
        encode(load_encoder(str(folder), tmp_path), TEXTS)


AWKWARD = ["", " ", "two  blanks", "a line\nand a\ttab\r\n", "ÉCOLE e\u0301cole ﬁn", "x" * 300]
AWKWARD += ["中文字 mixed 日本", "un\x1cprint\u200bable", "[UNK] or [PAD]ding [MASK]"]
AWKWARD += ["don't stop-now!", "a\u00a0hard\u3000blank\u2028line", "\ufffd\x00"]


@pytest.fixture(scope="module", params=[None, 7], ids=["whole", "cut"])
def table_folder(request, tmp_path_factory):
    """A table over MiniLM's tokenizer, of random vectors; with and without a longest text."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, StaticEmbedding
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(minilm_folder() / "tokenizer.json"))
    tokenizer.no_truncation()
    if request.param is not None:
        tokenizer.enable_truncation(request.param)
    weights = (
        np.random.default_rng(1).normal(size=(tokenizer.get_vocab_size(), 8)).astype(np.float32)
    )
    place = tmp_path_factory.mktemp("table") / "model"
    modules = [StaticEmbedding(tokenizer, embedding_weights=weights), Normalize()]
    SentenceTransformer(modules=modules, device="cpu").save(str(place), create_model_card=False)
    return place


def test_vectors_and_fingerprints_are_those_of_the_model_in_torch(table_folder):
    model = encoders.load_encoder(str(table_folder), table_folder.parent)
    table = opened(table_folder, table_folder.parent).model
    assert isinstance(table, TokenTable)
    texts = [*AWKWARD, *("word " * number + "end" for number in (3, 5, 40))]
    assert encode(table, texts) == pytest.approx(
        model.encode(texts, normalize_embeddings=True), abs=1e-5
    )
    assert encoders.fingerprint(table, "more") == encoders.fingerprint(model, "more")
    in_torch = Encoder(EncoderSettings(), Path())
    in_torch.model = model
    assert in_torch.key("query") == Encoder.of(table).key("query")


@given(texts=st.lists(st.text(max_size=40), max_size=6))
def test_words_cut_once_have_the_tokens_of_whole_texts(table_folder, texts):
    table = token_table(table_folder)
    assert table is not None and table.cutter.cuts_words_alone
    texts = [*texts, *AWKWARD]
    found = table.encode(texts)
    table.cutter.__dict__["cuts_words_alone"] = False
    np.testing.assert_array_equal(found, table.encode(texts))


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("modules.json", lambda found: [*found, found[1] | {"idx": 2, "name": "2"}]),
        ("config_sentence_transformers.json", lambda found: found | {"truncate_dim": 4}),
        ("1_Normalize/config.json", lambda _: {"module_input_name": "token_embeddings"}),
    ],
    ids=["modules", "dimensions", "normalisation"],
)
def test_what_is_more_than_a_table_is_none(table_folder, tmp_path, file, change):
    copied = Path(shutil.copytree(table_folder, tmp_path / "copied"))
    before = json.loads((copied / file).read_text()) if (copied / file).exists() else {}
    (copied / file).write_text(json.dumps(change(before)))
    assert token_table(copied) is None
    assert token_table(table_folder) is not None


def test_an_open_model_is_read_as_it_is_now(word_encoder):
    words = [f"w{i}" for i in range(50)]
    texts = ["", *(" ".join(row) for row in np.random.default_rng(0).choice(words, (40, 9)))]
    model = word_encoder(words)
    for _ in range(2):
        found = table_of(model)
        assert found is not None and found.encode([]).shape == (0, 8)
        assert found.encode(texts) == pytest.approx(
            model.encode(texts, normalize_embeddings=True), abs=1e-5
        )
        model[0].embedding.weight.data[3] += 1
    assert table_of(encoders.load_encoder("minilm", Path())) is None


CORPUS_TEXTS = st.lists(
    st.text(st.sampled_from("abc de"), max_size=12), min_size=1, max_size=8
).filter(lambda texts: any(text.split() for text in texts))


@given(CORPUS_TEXTS)
def test_terms_come_back_from_their_folder_as_they_were_cut(tmp_path_factory, texts):
    terms, folder = Terms.cut(texts, "en", "whitespace"), tmp_path_factory.mktemp("terms")
    terms.save(folder)
    again = Terms.load(folder)
    assert list(again.vocabulary.items()) == list(terms.vocabulary.items()), "numbered alike"
    assert again.settings == terms.settings
    for name in ("counts", "saturated", "unit"):
        one, other = getattr(terms, name), getattr(again, name)
        assert one.dtype == other.dtype == np.float32 and one.shape == other.shape
        np.testing.assert_array_equal(one.toarray(), other.toarray(), err_msg=name)
    for name in ("idf", "lengths", "mass"):
        np.testing.assert_array_equal(getattr(terms, name), getattr(again, name), err_msg=name)
    asked = [*texts, "unknown a"]
    np.testing.assert_array_equal(again.queries(asked).toarray(), terms.queries(asked).toarray())


@given(
    CORPUS_TEXTS, st.dictionaries(st.integers(0, 7), st.text(st.sampled_from("abf"), max_size=5))
)
def test_documents_that_change_alone_are_cut_again(texts, other):
    rows = np.array([row for row in other if row < len(texts)], int)
    found = Terms.cut(texts, "en", "whitespace").changed(rows, [other[row] for row in rows])
    after = [other.get(row, text) for row, text in enumerate(texts)]
    asked = [" ".join([*texts, *after, "a"])]
    one, same = (
        BM25Index.of_terms(terms).search(asked, 9)
        for terms in (found, Terms.build(after, found.tokenize))
    )
    np.testing.assert_array_equal(one, same)


ANIMALS = [
    f"{colour} {animal}"
    for colour in ("red", "grey", "white")
    for animal in ("fox", "wolf", "owl", "bear")
]
ENGLISH = [f"the {animal} sleeps near the river" for animal in ANIMALS] * 3
KOREAN = ["강가에서 여우가 잠을 잔다", "늑대는 숲에서 달린다"] * 5
KOREAN += ["여우를 본 사람이 있다", "숲으로 늑대가 갔다"] * 5
ODD = ["", " ", "🚀", "ไทย", "É e\u0301", "a\u00a0b", "x" * 300, "the fox-wolf, the OWL"]


def made(texts: list[str], minilm: Any, folder: Path) -> tuple[TokenTable, NDArray[np.float32]]:
    tokenizer, table = corpus_encoder(
        texts, 1, lambda words: encode(minilm, words), minilm.tokenizer.backend_tokenizer
    )
    save(tokenizer, table, folder)
    return opened(folder, folder.parent).model, table


@pytest.mark.parametrize("texts", [ENGLISH, KOREAN])
def test_it_is_a_plain_model_of_sentence_transformers(texts, minilm, tmp_path):
    table, _ = made(texts, minilm, tmp_path / "model")
    plain = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    asked = [*texts, *ODD]
    assert table.encode(asked) == pytest.approx(
        plain.encode(asked, normalize_embeddings=True), abs=1e-5
    )


@pytest.mark.parametrize(("texts", "spelled"), [(ENGLISH, True), (KOREAN, False)])
def test_what_minilm_says_weighs_half_where_it_spells_letters(texts, spelled, minilm):
    names, counts = np.unique(" ".join(texts).split(), return_counts=True)
    tokenizer = minilm.tokenizer.backend_tokenizer
    tokenizer.enable_padding(length=128)
    found = spelling_of(names.tolist(), counts, tokenizer)
    assert found.knows_script == spelled, "padding is no piece"


def test_one_half_is_the_decomposition_of_the_corpus(minilm):
    texts = ["a b c", "a b", "c d d", "d e", "e a"] * 4
    names, table = corpus_encoder(texts, 1, ones, silent())
    vocabulary = sorted(names.get_vocab(), key=names.get_vocab().get)
    counts = np.array([[text.split().count(word) for word in vocabulary] for text in texts], float)
    frequency = (counts > 0).sum(axis=0)
    idf = np.log1p((len(texts) - frequency + 0.5) / (frequency + 0.5))
    weighted = np.where(counts > 0, 1 + np.log(np.maximum(counts, 1)), 0) * idf
    right = np.linalg.svd(weighted / np.linalg.norm(weighted, axis=1, keepdims=True))[2].T[
        :, : len(vocabulary) - 1
    ]
    unit = right[1:] / np.linalg.norm(right[1:], axis=1, keepdims=True)
    found = table[1:, : right.shape[1]] / idf[1:, None]
    assert found @ found.T == pytest.approx(unit @ unit.T, abs=1e-3)


def test_the_same_documents_give_the_same_bytes():
    texts = [
        " ".join(f"{'aeiou'[n * k % 5]}{n * k % 97}r{k % 7}" for k in range(1, 40))
        for n in range(1, 120)
    ]
    first, again = (corpus_encoder(texts, 1, ones, silent()) for _ in "ab")
    assert first[0].to_str() == again[0].to_str() and np.array_equal(first[1], again[1])


def ones(words: list[str]) -> NDArray[np.float32]:
    return np.ones((len(words), 4), np.float32)


def silent() -> Any:
    """Return a tokenizer that spells nothing, as MiniLM's spells no Tibetan."""
    return Tokenizer(WordLevel({"[UNK]": 0}, unk_token="[UNK]"))


@pytest.mark.parametrize(
    ("texts", "asked"),
    [
        (["red fox", "blue whale", "grey owl"], "owl"),
        (["rain"] * 40, "rain"),
        (["red fox red", "blue owl"] * 40, "red"),
        (["🚀 🎈", "🎈", "‼ 🇰🇷"], "🇰🇷"),
        (["🎈 up", "lift🚀off", "up"], "🚀"),
        (["", " ", "fox", "", "owl"], "fox"),
        (["x" * 300_000 + " fox", "owl"], "owl"),
        ([*map(" ".join, zip(ENGLISH, KOREAN * 2, strict=False)), "여우"], "wolf"),
        ([*KOREAN, "🚀 늑대🎈"], "🎈"),
    ],
)
def test_small_and_odd_corpora_have_one_as_well(texts, asked, minilm, tmp_path):
    table, weights = made(texts, minilm, tmp_path / "model")
    assert np.isfinite(weights).all() and weights.shape[1] <= min(256, len(set(texts))) + 256
    found = table.encode(texts) @ table.encode([asked])[0]
    assert asked in texts[found.argmax()] and found.max() > 1e-5
    assert not table.encode(["⛵", "ไทย", "⛵️", "👍🏽"]).any(), "what nobody knows"


def test_documents_without_a_word_are_an_error():
    with pytest.raises(AnmiError, match="the 2 documents hold no word"):
        corpus_encoder([" ", ""], 1, ones, silent())


SENTENCES = [f"The {animal} sleeps in the {place}." for animal in WORDS[2:] for place in WORDS[4:]]


def test_passes_on_cores_of_their_own_give_the_vectors_of_one_core(minilm):
    import torch

    texts = [f"{sentence} {'den ' * 20}" for sentence in SENTENCES] * 10
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        parallel = encode(minilm, texts)
        torch.set_num_threads(1)
        serial = encode(minilm, texts)
    finally:
        torch.set_num_threads(threads)
    np.testing.assert_allclose(parallel, serial, atol=1e-6)


def test_an_estimate_counts_what_the_store_lacks(minilm, tmp_path):
    with Store(tmp_path / "store") as store:
        encoder = Encoder.of(minilm, store=store)
        assert encoder.seconds(SENTENCES, sample=5) > 0
        assert store.missing(encoder.key(None), SENTENCES) == len(SENTENCES) - 5
        encoder.encode(SENTENCES)
        assert encoder.seconds(SENTENCES) == 0


def test_minilm_is_opened_for_what_the_store_lacks_alone(minilm, tmp_path, monkeypatch):
    settings = EncoderSettings(encoder="minilm", device="cpu", precision="float32")
    with Store(tmp_path / "store") as store:
        vectors = Encoder(settings, store.path / "models", store).encode(WORDS[2:4], "query")
        monkeypatch.setattr(encoders, "_opened", lambda *_: pytest.fail("it was opened"))
        again = Encoder(settings, store.path / "models", store)
        np.testing.assert_array_equal(again.encode(WORDS[3:1:-1], "query"), vectors[::-1])
        assert again.seconds(WORDS[2:4], "query") == 0
        monkeypatch.setattr(encoders, "_opened", lambda *_: minilm)
        assert again.encode(WORDS[4:5], "query").shape == (1, 384)


@given(st.text(st.characters(max_codepoint=127)))
def test_ascii_is_cut_as_by_the_tokenizer(text):
    tokenizer = lowering(Tokenizer(Unigram()))
    lowered = tokenizer.normalizer.normalize_str(text)
    pairs = tokenizer.pre_tokenizer.pre_tokenize_str(lowered)
    assert lowered_words([text]) == [[word for word, _ in pairs]]
