"""Mining where nothing is labelled for training: it comes through, finds nothing to mine, and says so."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from tests.e2e.bad_inputs import Collection

FOX = "The red fox is the largest of the true foxes and lives in most of the north."


@pytest.fixture
def mine(
    new_place: Callable[[Path], Any], in_process: Callable[..., Result], tmp_path: Path
) -> Callable[..., Any]:
    """Mine a collection and return the place, whose training rows have all columns and no row."""

    def invoke(collection: str, *parameters: str) -> Any:
        place = new_place(tmp_path / "place")
        given = ",".join([f"collection={collection}", *parameters])
        done = in_process(place, "run", "--pipelines", "mining", "--params", given)
        assert done.exit_code == 0, done.output + str(done.exception)
        rows = place.table("selection", "training_rows.parquet")
        assert not len(rows)
        assert {
            "query_id",
            "split",
            "positive_ids",
            "negative_ids",
            "weights",
            "negative_p_relevant",
        } <= {*rows}
        summary = place.json("selection", "selection_summary.json")
        assert (summary["rows"], summary["expected"], summary["by_source"]) == (0, None, [])
        assert all(row["candidates"] == 0 for row in summary["funnel"])
        assert place.exported() == []
        assert (
            place.json("ingestion", "collection_info.json")["notes"]["labels"]
            == "none for training"
        )
        return place

    return invoke


@pytest.mark.rare
@pytest.mark.parametrize(
    "texts",
    [
        {"a/x.txt": "Badgers dig.", "b/x.txt": "Owls fly at night.", "y.md": f"# Fox\n\n{FOX}"},
        {f"{number}.txt": FOX for number in range(5)},
        {"a.txt": "fox", "b.txt": "badger"},
        {"a.txt": "—", "b.txt": "1 2 3 " * 500},
    ],
    ids=["three", "all alike", "of one word", "without sentences"],
)
def test_small_folders_end_with_a_search(
    mine: Any, in_process: Callable[..., Result], tmp_path: Path, texts: dict[str, str]
) -> None:
    for name, text in texts.items():
        (tmp_path / "docs" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "docs" / name).write_text(text, encoding="utf-8")
    (tmp_path / "docs" / "binary.txt").write_bytes(b"\x89PNG\r\n\x1a\n")
    place = mine(f"docs:{tmp_path}/docs/**/*")
    assert place.table("ingestion", "corpus.parquet").parent.unique().tolist() == sorted(texts)
    (aside,) = place.table("ingestion", "quarantine.parquet").to_dict("records")
    assert (aside["id"], aside["kind"]) == ("binary.txt", "document")
    onward = (
        "--pipelines",
        "adaptation,training,evaluation,final,reporting",
        "--params",
        f"collection=docs:{tmp_path}/docs/**/*",
    )
    done = in_process(place, "run", *onward)
    assert done.exit_code == 0, done.output + str(done.exception)
    assert "Too few to measure: 0 test queries" in in_process(place, "anmi", "results").output
    found = json.loads(in_process(place, "anmi", "search", "--json", "1 2 3 fox").output)
    assert place.table("ingestion", "new_documents.parquet").empty and found


@pytest.mark.parametrize("recipe", ["anmi_2_0", pytest.param("rocketqa", marks=pytest.mark.rare)])
def test_test_labels_stay_and_every_judge_passes(mine: Any, tmp_path: Path, recipe: str) -> None:
    folder = Collection(tmp_path / "mine")
    folder.remove("qrels/train.tsv")
    place = mine(f"beir:{folder.path}", f"recipe={recipe}")
    queries = place.table("ingestion", "queries.parquet")
    assert queries.split.value_counts().to_dict() == {"dev": 10, "test": 10}
