"""A collection grows, and only what is new is mined: on a part of SciFact, beside a mining of everything."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import pytest
from click.testing import Result

pytestmark = [pytest.mark.slow, pytest.mark.data]
QUERIES: Final = 100
NEW: Final = 6
ROW: Final = ["query_id", "positive_id"]


@dataclass(frozen=True)
class Grown:
    """What the runs left, and what was done to the collection between them.

    Attributes
    ----------
    place
        Mined before, and updated after.
    whole
        All mined after, by the same store.
    new
        Training queries that came; ``changed`` had their document corrected, ``lost`` a negative that was removed.
    """

    place: Any
    whole: Any
    new: set[str]
    changed: set[str]
    lost: set[str]
    settings: str
    said: str


def read(folder: Path) -> tuple[list[dict[str, Any]], list[list[str]]]:
    documents = [json.loads(line) for line in (folder / "corpus.jsonl").read_text(encoding="utf-8").splitlines()]
    lines = (folder / "qrels" / "train.tsv").read_text(encoding="utf-8").splitlines()[1:]
    return documents, [line.split("\t") for line in lines]


def write(folder: Path, source: Path, documents: list[dict[str, Any]], labels: list[list[str]]) -> None:
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(document) + "\n" for document in documents)
    (folder / "corpus.jsonl").write_text(text, encoding="utf-8")
    (folder / "queries.jsonl").write_bytes((source / "queries.jsonl").read_bytes())
    known = {document["_id"] for document in documents}
    test = (source / "qrels" / "test.tsv").read_text(encoding="utf-8").splitlines()
    kept = [line for line in test[1:] if line.split("\t")[1] in known]
    (folder / "qrels" / "test.tsv").write_text("\n".join([test[0], *kept]) + "\n", encoding="utf-8")
    lines = ["\t".join(label) for label in labels if label[1] in known]
    (folder / "qrels" / "train.tsv").write_text("\n".join([test[0], *lines]) + "\n", encoding="utf-8")


@pytest.fixture(scope="module")
def grown(
    tmp_path_factory: pytest.TempPathFactory, new_place: Any, shared_data: Path, in_process: Callable[..., Result]
) -> Grown:
    """Mine, change the collection, update; mine all of it once more in another place."""
    folder, source = tmp_path_factory.mktemp("grown"), shared_data / "scifact"
    place, collection = new_place(folder), folder / "collection"
    documents, labels = read(source)
    asked = list(dict.fromkeys(label[0] for label in labels))[:QUERIES]
    labels = [label for label in labels if label[0] in set(asked)]
    documents = documents[:1200] + [d for d in documents[1200:] if d["_id"] in {label[1] for label in labels}]
    new = set(asked[-NEW:])
    held = {label[1] for label in labels if label[0] in new} - {label[1] for label in labels if label[0] not in new}
    before = [document for document in documents if document["_id"] not in held]
    write(collection, source, before, [label for label in labels if label[0] not in new])
    settings = f"collection=beir:{collection},recipe=clean_top,encoder=static"

    def mine(where: Any, extra: str) -> str:
        done = in_process(where, "run", "--pipelines", "mining", "--params", settings + extra)
        assert done.exit_code == 0, done.output + str(done.exception)
        return str(done.output)

    mine(place, ",update=true")
    rows = place.table("selection", "training_rows.parquet")
    positives = {document for row in rows.positive_ids for document in row}
    gone = next(document for row in rows.negative_ids for document in row if document not in positives)
    lost = set(rows.query_id[rows.negative_ids.map(lambda row: gone in row)])
    corrected = rows.positive_id[~rows.query_id.isin(lost)].iloc[0]
    changed = {label[0] for label in labels if label[1] == corrected}
    after = [document for document in documents if document["_id"] != gone]
    after = [d | {"text": d["text"] + " Corrected."} if d["_id"] == corrected else d for d in after]
    write(collection, source, after, labels)
    said = mine(place, ",update=true")
    whole = type(place)(folder / "whole", place.store)
    mine(whole, "")
    return Grown(place, whole, new, changed, lost, settings, said)


def queries_of(place: Any) -> list[str]:
    """The queries that the newest run asked."""
    parts = sorted(place.versions("dense", "candidates")[-1].iterdir())
    return [query for part in parts for query in pd.read_parquet(part, columns=["query_id"]).query_id]


def test_only_what_is_new_changed_or_lost_a_document_is_mined(grown: Grown) -> None:
    plan = grown.place.json("ingestion", "mining_plan.json")
    chosen = {"changed": grown.changed, "new": grown.new, "lost": grown.lost}
    assert all(chosen.values()), chosen
    known = set(queries_of(grown.whole))
    lost = {query for query in plan["queries"] if query not in grown.new | grown.changed | grown.lost}
    assert set(plan["queries"]) >= (grown.new | grown.changed | grown.lost) & known
    # The corrected document may have been somebody else's negative, too.
    assert len(plan["queries"]) < 0.5 * len(known) and len(lost) < 0.2 * len(known)
    assert "Mining what changed" in grown.said
    assert set(queries_of(grown.place)) == set(plan["queries"])


def test_the_rows_are_those_of_a_mining_of_everything(grown: Grown) -> None:
    updated, whole = (where.table("selection", "training_rows.parquet") for where in (grown.place, grown.whole))
    assert sorted(map(tuple, updated[ROW].to_numpy())) == sorted(map(tuple, whole[ROW].to_numpy()))
    both = updated.merge(whole, on=ROW, suffixes=("", "_whole"))
    assert (both["positive"] == both.positive_whole).all() and (both["query"] == both.query_whole).all()
    same = [
        len(set(a) & set(b)) / max(len(b), 1) for a, b in zip(both.negative_ids, both.negative_ids_whole, strict=True)
    ]
    assert np.mean(same) > 0.9
    texts = pd.read_parquet(grown.place.versions("ingestion", "corpus.parquet")[-1]).set_index("document_id").text
    told = {
        name: text
        for ids, row in zip(updated.negative_ids, updated.negatives, strict=True)
        for name, text in zip(ids, row, strict=True)
    }
    assert told and all(texts[name] in text for name, text in told.items()), "an identifier and a text fell apart"


def test_nothing_of_a_removed_document_is_left(grown: Grown) -> None:
    rows = grown.place.table("selection", "training_rows.parquet")
    known = set(pd.read_parquet(grown.place.versions("ingestion", "corpus.parquet")[-1]).document_id)
    named = {
        name for column in ("negative_ids", "positive_ids", "uncertain_ids") for row in rows[column] for name in row
    }
    assert named <= known
    corrected = rows["positive"].str.endswith("Corrected.")
    assert set(rows.query_id[corrected]) == grown.changed


def test_the_consistency_filter_knows_every_query_once(grown: Grown) -> None:
    updated, whole = (where.json("consistency", "consistency_summary.json") for where in (grown.place, grown.whole))
    queries = grown.whole.table("ingestion", "queries.parquet")
    mined = set(queries_of(grown.whole)) & set(queries.query_id[queries.split == "train"])
    assert updated["queries"] == whole["queries"] == len(mined)


def test_an_update_is_reproduced_byte_for_byte(grown: Grown, in_process: Callable[..., Result]) -> None:
    run = json.loads((sorted((grown.place.data / "runs").iterdir())[-1] / "manifest.json").read_text(encoding="utf-8"))
    done = in_process(grown.place, "anmi", "reproduce", run["run_id"])
    assert done.exit_code == 0, done.output
    assert "equal" in done.output
