"""Long documents from a folder to a search that shows the passage."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import Result
from tests.e2e.conftest import KINDS, PLACES, TOLD, write_beir
from tests.e2e.test_serve import start


def test_a_search_returns_documents_with_the_passage_that_answers(
    new_place: Callable[[Path], Any], in_process: Callable[..., Result], tmp_path: Path
) -> None:
    (tmp_path / "docs").mkdir()
    for kind in KINDS:
        sections = [
            f"## {place}\n\n"
            + " ".join(
                f"The old {kind} of {place} {told.format(place)}, note {n}."
                for told in TOLD
                for n in "abcd"
            )
            for place in PLACES
        ]
        (tmp_path / "docs" / f"{kind}.md").write_text(
            f"# The {kind}\n\n" + "\n\n".join(sections), encoding="utf-8"
        )
    place = new_place(tmp_path / "place")
    done = in_process(place, "run", "--params", f"collection=docs:{tmp_path}/docs/*.md")
    assert done.exit_code == 0, done.output + str(done.exception)
    corpus = place.table("ingestion", "corpus.parquet")
    assert sorted(corpus.parent.unique()) == sorted(f"{kind}.md" for kind in KINDS)
    assert corpus.document_id.str.contains("#").all()
    new = place.table("ingestion", "new_documents.parquet").merge(corpus, on="document_id")
    assert (
        place.json("ingestion", "collection_info.json")["new_documents"]
        == new.groupby("split").parent.nunique().to_dict()
        != {}
    )
    # Metrics count documents, and no row trains on a passage against another one of its document.
    assert set(place.table("evaluation", "runs.parquet").document_id) <= {*corpus.parent}
    done = in_process(
        place, "anmi", "search", "the clocks of Gdansk measured by the survey", "--json", "--k", "3"
    )
    assert done.exit_code == 0, done.output
    first, *others = json.loads(done.stdout)[0]["hits"]
    assert (first["document_id"], first["title"]) == ("clocks.md", "The clocks › Gdansk")
    assert "clocks of Gdansk" in first["text"]
    assert len({hit["document_id"] for hit in (first, *others)}) == 3


@pytest.mark.rare
def test_what_was_measured_is_what_the_command_and_the_page_find(
    new_place: Callable[[Path], Any],
    in_process: Callable[..., Result],
    tmp_path: Path,
    project: Path,
) -> None:
    documents = []
    queries = []
    labels = {split: ["query-id\tcorpus-id\tscore"] for split in ("train", "dev", "test")}
    for number, kind in enumerate(KINDS):
        # Long and short documents, and a copy of each third.
        sentences = [
            f"The old {kind} of {place} {told.format(place)}, note {note}."
            for place in PLACES[: 1 + number % len(PLACES)]
            for told in TOLD
            for note in "abcdef"
        ]
        text = "\n\n".join(sentences)
        documents.append({"_id": kind, "text": text})
        if number % 3 == 0:
            documents.append({"_id": f"{kind}-copy", "text": text})
        for place, split in zip(PLACES, ["train", "train", "dev", "test", "test"], strict=False):
            query = f"{kind}-{place}"
            queries.append({"_id": query, "text": f"What is known of the {kind} of {place}?"})
            labels[split].append(f"{query}\t{kind}\t1")
    collection = write_beir(tmp_path / "collection", documents, queries, labels)
    place = new_place(tmp_path / "place")
    settings = f"collection=beir:{collection},encoder=static,search.depth=5"
    done = in_process(place, "run", "--params", settings)
    assert done.exit_code == 0, done.output + str(done.exception)
    runs = place.table("evaluation", "runs.parquet")
    texts = {query["_id"]: query["text"] for query in queries}
    recipe = place.json("evaluation", "results.json")["recipe"]
    measured = {
        (name, query): rows.document_id.tolist()[:5]
        for (name, query), rows in runs.groupby(["system", "query_id"], sort=False)
    }
    ids = runs.query_id.unique().tolist()
    words = ["anmi", "search", *(texts[query] for query in ids), "--json", "--k", "5"]
    process, address = start(place, project)
    try:
        for system, name in (("hybrid", "hybrid"), ("bm25", "bm25"), ("dense", recipe)):
            done = in_process(place, *words, "--system", system)
            for query, answer in zip(ids, json.loads(done.stdout), strict=True):
                found = [hit["document_id"] for hit in answer["hits"]]
                assert found == measured[name, query][: len(found)]
                asked = {"q": texts[query], "k": 5}
                page = httpx.get(f"{address.rstrip('/')}/api/search", params=asked).json()
                assert [hit["document_id"] for hit in page[system]] == found
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
