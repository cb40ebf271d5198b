"""Static encoders without PyTorch give the vectors and the fingerprint that they have with it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anmi.retrieval import encoders
from anmi.retrieval.token_table import TokenTable, table_of, token_table

AWKWARD = [
    "", " ", "two  blanks", "a line\nand a\ttab\r\n", "ÉCOLE e\u0301cole ﬁn", "中文字 mixed 日本",
    "un\x1cprint\u200bable",
    "[UNK] or [PAD]ding [MASK]", "don't stop-now!", "a\u00a0hard\u3000blank\u2028line", "\ufffd\x00", "x" * 300,
]  # fmt: skip


@pytest.fixture(scope="module", params=[None, 7], ids=["whole", "cut"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table over MiniLM's tokenizer, of random vectors; with and without a longest text."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, StaticEmbedding
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(encoders.minilm_folder() / "tokenizer.json"))
    tokenizer.no_truncation()
    if request.param is not None:
        tokenizer.enable_truncation(request.param)
    weights = np.random.default_rng(1).normal(size=(tokenizer.get_vocab_size(), 8)).astype(np.float32)
    place = tmp_path_factory.mktemp("table") / "model"
    modules = [StaticEmbedding(tokenizer, embedding_weights=weights), Normalize()]
    SentenceTransformer(modules=modules, device="cpu").save(str(place), create_model_card=False)
    return place


def test_vectors_and_fingerprints_are_those_of_the_model_in_torch(folder: Path) -> None:
    model, table = (
        encoders.load_encoder(str(folder), folder.parent),
        encoders.cached_encoder(str(folder), folder.parent),
    )
    assert isinstance(table, TokenTable)
    texts = [*AWKWARD, *("word " * number + "end" for number in (3, 5, 40))]
    assert encoders.encode(table, texts) == pytest.approx(model.encode(texts, normalize_embeddings=True), abs=1e-5)
    assert encoders.fingerprint(table, "more") == encoders.fingerprint(model, "more")
    prints = [encoders.embedding_fingerprint(each, "auto", "query") for each in (model, table)]
    assert prints[0] == prints[1]


@given(texts=st.lists(st.text(max_size=40), max_size=6))
def test_words_cut_once_have_the_tokens_of_whole_texts(folder: Path, texts: list[str]) -> None:
    table = token_table(folder)
    assert table is not None and table._cuts_words_alone
    texts = [*texts, *AWKWARD]
    found = table.encode(texts)
    table.__dict__["_cuts_words_alone"] = False
    np.testing.assert_array_equal(found, table.encode(texts))


@pytest.mark.parametrize(("file", "change"), [
    ("modules.json", lambda found: [*found, found[1] | {"idx": 2, "name": "2"}]),
    ("config_sentence_transformers.json", lambda found: found | {"truncate_dim": 4}),
    ("1_Normalize/config.json", lambda _: {"module_input_name": "token_embeddings"}),
], ids=["modules", "dimensions", "normalisation"])  # fmt: skip
def test_what_is_more_than_a_table_is_none(folder: Path, tmp_path: Path, file: str, change: Any) -> None:
    copied = Path(shutil.copytree(folder, tmp_path / "copied"))
    before = json.loads((copied / file).read_text()) if (copied / file).exists() else {}
    (copied / file).write_text(json.dumps(change(before)))
    assert token_table(copied) is None
    assert token_table(folder) is not None


def test_an_open_model_is_read_as_it_is_now(word_encoder: Any) -> None:
    words = [f"w{i}" for i in range(50)]
    texts = ["", *(" ".join(row) for row in np.random.default_rng(0).choice(words, (40, 9)))]
    model = word_encoder(words)
    for _ in range(2):
        found = table_of(model)
        assert found is not None and found.encode([]).shape == (0, 8)
        assert found.encode(texts) == pytest.approx(model.encode(texts, normalize_embeddings=True), abs=1e-5)
        model[0].embedding.weight.data[3] += 1
    assert table_of(encoders.load_encoder("minilm", Path())) is None
