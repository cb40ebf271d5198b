"""``kedro anmi search``, on the project's own catalog with a data root of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from sentence_transformers import SentenceTransformer
from tests.cli.conftest import anmi, save

from anmi.retrieval.bm25 import BM25Index
from anmi.retrieval.encoders import Encoder, EncoderSettings
from anmi.retrieval.index import build_index
from anmi.search import HybridSearch, Part

CORPUS = pd.DataFrame(
    {
        "document_id": ["fox", "whale", "tree"],
        "title": ["", "Sea [bold]", ""],
        "text": ["a red fox in the den", "a blue whale \x1b[2J", "a green tree"],
    }
)


pytestmark = pytest.mark.usefixtures("project")


@pytest.fixture
def saved(word_encoder: Any, tmp_path: Path) -> HybridSearch:
    model = tmp_path / "model"
    word_encoder(["red", "fox", "blue", "whale", "green"]).save(str(model), create_model_card=False)
    texts = CORPUS.text.tolist()
    vectors = SentenceTransformer(str(model), device="cpu").encode_document(
        texts, normalize_embeddings=True
    )
    index = build_index(vectors, CORPUS.document_id.tolist())
    settings = EncoderSettings(encoder=str(model), max_length=64, precision="float32")
    parts = [
        Part("bm25", BM25Index.build(texts, "en")),
        Part("dense", index, Encoder(settings, tmp_path), 0.3),
    ]
    search = HybridSearch.build(parts, CORPUS)
    save(search_index=search)
    return search


def test_hits_are_shown_with_what_each_part_says(saved: HybridSearch) -> None:
    done = anmi("search", "red fox", "--k", "2")
    assert done.exit_code == 0, done.output
    line = next(line for line in done.output.splitlines() if "fox in the den" in line)
    hit, *_ = saved.search("red fox", 2)[0]
    cells = [cell.strip() for cell in line.strip("│ ").split("│")]
    assert cells == [
        "1",
        "fox",
        "a red fox in the den",
        f"{hit.score:.3f}",
        "1",
        f"{hit.scores['bm25']:.3f}",
        "1",
        f"{hit.scores['dense']:.3f}",
    ]


def test_as_json_it_is_what_the_library_says(saved: HybridSearch) -> None:
    found = json.loads(anmi("search", "blue whale", "--json", "--system", "dense").output)
    expected = [hit.as_dict() for hit in saved.search("blue whale", 10, "dense")[0]]
    place = {name: found[0].pop(name) for name in ("collection", "recipe", "run", "date", "notice")}
    assert found == [{"question": "blue whale", "system": "dense", "hits": expected}]
    assert found[0]["hits"][0]["ranks"] == {"bm25": 1, "dense": 1}
    assert place["run"] in anmi("search", "blue whale").output.splitlines()[0] and place[
        "run"
    ].startswith("20")


def test_a_damaged_part_is_told_and_the_rest_serves(
    saved: HybridSearch, project: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (vectors,) = (project / "data").glob("**/dense/index/vectors.npy")
    vectors.unlink()
    done = anmi("search", "red fox", "--json")
    assert (
        'goes on without its part "dense"' in caplog.text
        and "vectors.npy is missing" in caplog.text
    )
    (answer,) = json.loads(done.stdout)
    assert answer["hits"][0]["ranks"] == {"bm25": 1}


def test_texts_give_the_terminal_no_commands(saved: HybridSearch) -> None:
    output = anmi("search", "whale", "--system", "bm25").output
    assert "\x1b[2J" not in output and "Sea [bold]" in output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("red", "--system", "both"), 'unknown system "both"'),
        (("   ",), "question 1 is empty"),
        ((), "there is no question"),
        (("red", "--k", "0"), "k is 0"),
    ],
)
def test_errors_are_one_sentence(
    saved: HybridSearch, arguments: tuple[str, ...], said: str
) -> None:
    done = anmi("search", *arguments)
    assert done.exit_code == 1 and said in done.output and "Traceback" not in done.output
