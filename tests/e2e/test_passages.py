"""Long documents from a folder to a search that shows the passage."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from click.testing import Result
from tests.e2e.conftest import KINDS, PLACES, TOLD


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
