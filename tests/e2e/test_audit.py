"""An audit as a user runs it, on a small collection whose queries have several answers."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import Result
from tests.e2e.conftest import write_chronicle

AUDIT = ("run", "--pipelines", "audit", "--params")
# As little work as every judge can do with.
SMALL = (
    "bm25.engine=rank_bm25,audit.queries=20,denoising.depth=4,denoising.cross_encoder.max_pairs=16"
)


@pytest.fixture
def audited(tmp_path: Path, new_place: Any, in_process: Callable[..., Result]) -> Any:
    place = new_place(tmp_path)
    collection = write_chronicle(tmp_path / "collection", ("train",))
    done = in_process(place, *AUDIT, f"collection=beir:{collection},{SMALL}")
    assert done.exit_code == 0, done.output
    return place


def rated_bytes(place: Any) -> dict[str, bytes]:
    names = ("candidates", "consistency", "evidence", "judgments", "ratings")
    files = [file for name in names for file in sorted(place.versions("audit", name)[-1].iterdir())]
    return {f"{file.parent.name}/{file.name}": file.read_bytes() for file in files}


@pytest.mark.rare
def test_an_audit_from_start_to_gate(
    audited: Any,
    tmp_path: Path,
    new_place: Any,
    in_process: Callable[..., Result],
    open_catalog: Any,
) -> None:
    """One test, because an audit takes seconds: what it leaves, what it shows, what it is blind to, how it fails."""
    recipes, judges = (
        audited.table("audit", f"audit_{name}.parquet") for name in ("recipes", "judges")
    )
    truth, qrels = (
        audited.table("audit", f"{name}.parquet") for name in ("planted_truth", "audit_qrels")
    )
    everything = audited.table("audit", "qrels.parquet")
    summary = audited.json("audit", "audit_summary.json")

    # Two of three answers stay known, the third is a candidate again.
    assert set(truth.kind) == {"hidden"}
    assert qrels.groupby("query_id").size().eq(2).all()
    labelled = set(zip(everything.query_id, everything.document_id, strict=True))
    planted = set(zip(truth.query_id, truth.document_id, strict=True))
    known = set(zip(qrels.query_id, qrels.document_id, strict=True))
    assert planted | known == {pair for pair in labelled if pair[0] in set(truth.query_id)}
    assert summary["audit"]["found"] > 0.9
    own = recipes.set_index("recipe")
    assert own.false_negative_rate["naive_top"] > 0.1, "the other answers are the nearest"
    assert {"naive_top", "nv_retriever", "anmi_2_0", "anmi_2_1", "bm25_random"} <= set(own.index)
    assert "in_batch" not in own.index
    assert {"dense", "bm25", "cross", "p_cross", "p_relevant", "elo"} <= set(judges.judge)
    measured = summary["audit"]["recipes"]["naive_top"]["false_negative_rate"]
    assert measured == pytest.approx(own.false_negative_rate["naive_top"])

    # What it shows.
    shown = in_process(audited, "anmi", "audit")
    assert shown.exit_code == 0, shown.output
    assert all(name in shown.output for name in ("naive_top", "nv_retriever", "coverage", "AUC"))

    # Another truth behind the same labels changes no judgment and no selection, only the score.
    other = new_place(tmp_path / "other")
    shutil.copytree(audited.data, other.data)
    answers = truth.document_id.to_numpy()[::-1]
    # A version of its own: what is changed in place no longer is what its run saved.
    saved = other.versions("audit", "planted_truth.parquet")[-1]
    planted = saved.parent.with_name(f"{saved.parent.name[:-4]}999Z") / saved.name
    planted.parent.mkdir()
    truth.assign(document_id=answers).drop_duplicates().to_parquet(planted, index=False)
    rerun = "audit.bm25.build_bm25_index,audit.dense.encode_collection,audit.scoring.audit_recipes"
    collection = f"collection=beir:{tmp_path}/collection"
    words = [*AUDIT, f"{collection},{SMALL}", "--from-nodes", rerun]
    done = in_process(other, *words, "--load-versions", f"planted_truth:{planted.parent.name}")
    assert done.exit_code == 0, done.output
    assert len(other.versions("audit", "evidence")) == 2, "judged again, in an empty store"
    assert rated_bytes(other) == rated_bytes(audited)
    found = other.table("audit", "audit_recipes.parquet")
    blind = ["recipe", "setting", "threshold", "gap", "coverage", "queries_lost", "negatives"]
    pd.testing.assert_frame_equal(found[blind], recipes[blind])
    fewer, more = (table.false_negative_rate.fillna(0).sum() for table in (found, recipes))
    assert fewer < more, "what was planted does count"
    assert selections(other, open_catalog) == selections(audited, open_catalog)

    # The gate fails the run when all is saved.
    gate = f"{collection},audit.max_false_negative_rate=0.001,audit.recipe=naive_top"
    words = [*AUDIT, gate, "--from-nodes", "audit.scoring.audit_recipes"]
    done = in_process(audited, *words)
    assert done.exit_code == 1
    assert 'recipe "naive_top" has' in done.output
    assert "audit.max_false_negative_rate allows (0.10%)" in done.output
    for name in ("audit_recipes.parquet", "audit_judges.parquet", "audit_summary.json"):
        assert len(audited.versions("audit", name)) == 2, name
    stages = {"ingestion", "bm25", "dense", "selection"}
    assert not stages & {path.name for path in audited.data.iterdir()}


def selections(place: Any, open_catalog: Any) -> dict[str, list[bytes]]:
    """Verdicts and weights of every recipe, block by block."""
    from anmi.selection.recipe import Runner

    with open_catalog(place, "test") as (_, parameters):
        book = parameters["recipes"]
    rated = place.with_stage_columns("audit")
    return {
        name: [
            block.verdict.tobytes() + block.weight.tobytes()
            for block in Runner(book.get(name), 1).run(rated)
        ]
        for name in book.names()
    }


def test_what_cannot_be_audited_is_said(
    tmp_path: Path, new_place: Any, in_process: Callable[..., Result]
) -> None:
    place = new_place(tmp_path)
    collection = write_chronicle(tmp_path / "collection", ("train",))
    qrels = collection / "qrels" / "train.tsv"
    lines = qrels.read_text(encoding="utf-8").splitlines()
    qrels.write_text("\n".join(lines[:1] + lines[1::3]) + "\n", encoding="utf-8")
    done = in_process(place, *AUDIT, f"collection=beir:{collection}")
    assert done.exit_code == 1
    assert "no training queries with two positives" in done.output
    assert "no equivalents" in done.output
    misspelt = in_process(place, *AUDIT, "audit.recipe=naive_tp")
    assert 'no recipe "naive_tp": did you mean "naive_top"' in misspelt.output
    nothing = in_process(place, "anmi", "audit")
    assert "kedro run --pipelines audit" in nothing.output
