"""``kedro anmi results``, on the project's own catalog with a data root of its own."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.cli.conftest import anmi, save, selection

from anmi.candidates import CandidateShards
from anmi.hooks.record import RunRecord

pytestmark = pytest.mark.usefixtures("project")
RESULTS = {
    "collection": "api_docs",
    "recipe": "anmi_2_1",
    "marks": "3 pairs marked as relevant, 0 as not relevant",
    "prompts": {"query": "query: ", "document": ""},
    "unchanged": "the start was better on dev queries",
    "rows": [],
    "comparisons": [],
    "funnel": [
        {"kind": "total", "step": "candidates", "candidates": 1000, "queries": 10},
        {"kind": "rejected", "step": "denoise", "candidates": 250, "queries": 10},
    ],
}


def test_it_is_said_of_which_run_results_are_and_that_a_later_one_failed(tmp_path: Path) -> None:
    save(results=RESULTS, selection=CandidateShards.of([selection()]))
    (version,) = [path.name for path in (tmp_path / "data").glob("**/results.json/*")]
    later = "2999-01-01T00.00.00.000Z"
    given = {"recipe": "anmi", "collection": "docs:first"}
    whole = {"results": {"version": version}, "selection": {"version": version}}
    for record in (
        RunRecord(
            version, "finished", start="2026-11-25T19:32:55+00:00", parameters=given, saved=whole
        ),
        RunRecord(
            later,
            "failed",
            failed_at="training.train_retriever",
            parameters={"collection": "docs:second"},
        ),
    ):
        place = tmp_path / "data" / "runs" / record.run_id / "run.json"
        place.parent.mkdir(parents=True)
        place.write_text(record.as_text(), encoding="utf-8")
    for words in (("results",), ("results", "--run", "latest"), ("results", "--run", version[:19])):
        done = anmi(*words)
        assert done.stdout.startswith(
            f"docs:first · recipe anmi · run {version} · 2026-11-25 19:32 UTC\n"
        )
        assert (
            f"{later} on docs:second, failed at training.train_retriever: what is shown is of run"
            f" {version}" in (done.stderr)
        )
        assert "denoise" in done.stdout and "marks: 3 pairs marked" in done.stdout
        assert "Training changed nothing: the start was better on dev queries" in done.stdout
        assert re.search(
            r'^prompts +"query: " before queries, none before documents$', done.stdout, re.MULTILINE
        )
        assert done.stdout.endswith("\nnext: kedro anmi explain q-alpha\n")
    document = json.loads(anmi("results", "--json").stdout)
    sentence, *_ = document.pop("sentences")
    assert sentence.startswith("Training changed nothing")
    assert document == {"paths": {}} | RESULTS
    done = anmi("results", "--run", later)
    assert done.exit_code == 1
    assert f'run {later} has no "results"' in done.stderr


def test_without_a_run_the_command_to_run_is_named() -> None:
    done = anmi("results")
    assert done.exit_code == 1
    assert re.fullmatch(r'Error: there is no "results" yet: run .*make run.* first\n', done.stderr)
