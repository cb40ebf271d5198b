"""The project's commands, on the project's own catalog with a data root of their own."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.cli.conftest import anmi, save, selection

from anmi.candidates import CandidateShards
from anmi.hooks.record import RunRecord

RESULTS = {
    "collection": "api_docs",
    "recipe": "anmi_2_1",
    "run": "2026-11-21T00.00.00.000Z",
    "date": "2026-11-21",
    "marks": "3 pairs marked as relevant, 0 as not relevant",
    "machine": "two cores",
    "versions": {"anmi": "0.1.0"},
    "prompts": {"query": "query: ", "document": ""},
    "rows": [
        {"collection": "api_docs", "encoder": "static", "recipe": recipe, "seed_count": 1, "metric": metric}
        | {"value": value, "low": value - 0.1, "high": value + 0.1}
        for recipe, value in (("bm25", 0.5), ("zero_shot", 0.4), ("anmi_2_1", 0.6125))
        for metric in ("ndcg@10", "mrr@10", "recall@10", "recall@100")
    ],
    "comparisons": [
        {"system": "anmi_2_1", "baseline": "zero_shot", "metric": "ndcg@10"}
        | {"difference": 0.2125, "low": 0.1, "high": 0.3, "p_value": 0.01}
    ],
    "funnel": [
        {"kind": "total", "step": "candidates", "candidates": 1000, "queries": 10},
        {"kind": "rejected", "step": "denoise", "candidates": 250, "queries": 10},
    ],
    "expected": {"share": 0.0312, "low": 0.01, "high": 0.05, "judged": 60, "total": 70, "doubtful": 4},
    "false_negatives": {"count": 3, "total": 70, "share": 3 / 70, "low": 0.0147, "high": 0.1186, "known": 9},
    "paths": {"report": "/somewhere/report.html", "trained_model": "/somewhere/trained_model"},
}


pytestmark = pytest.mark.usefixtures("project")


@pytest.fixture
def saved() -> None:
    save(results=RESULTS, selection=CandidateShards.of([selection()]))


def test_json_is_what_the_run_saved(saved: None) -> None:
    done = anmi("results", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == RESULTS


def test_results_say_what_was_won_and_where_things_lie(saved: None, tmp_path: Path) -> None:
    output = anmi("results").stdout
    assert "0.613" in output or "0.612" in output
    assert "denoise" in output
    assert "/somewhere/report.html" in output
    assert re.search(r'^prompts +"query: " before queries, none before documents$', output, re.MULTILINE)
    assert f"sqlite:///{tmp_path}/data/tracking/mlflow.db" in output
    assert "3 of 70 selected negatives are in truth relevant (4.3%, 95 % interval over queries 1.5% to 11.9%)" in output
    assert output.strip().endswith("next: kedro anmi explain q-alpha")


def test_it_is_said_of_which_run_results_are_and_that_a_later_one_failed(saved: None, tmp_path: Path) -> None:
    (version,) = [path.name for path in (tmp_path / "data").glob("**/results.json/*")]
    later = "2999-01-01T00.00.00.000Z"
    given = {"recipe": "anmi", "collection": "docs:first"}
    whole = {"results": {"version": version}, "selection": {"version": version}}
    for record in (
        RunRecord(version, "finished", start="2026-11-25T19:32:55+00:00", parameters=given, saved=whole),
        RunRecord(later, "failed", failed_at="training.train_retriever", parameters={"collection": "docs:second"}),
    ):
        place = tmp_path / "data" / "runs" / record.run_id / "run.json"
        place.parent.mkdir(parents=True)
        place.write_text(record.as_text(), encoding="utf-8")
    for words in (("results",), ("results", "--run", "latest"), ("results", "--run", version[:19])):
        done = anmi(*words)
        assert done.stdout.startswith(f"docs:first · recipe anmi · run {version} · 2026-11-25 19:32 UTC\n")
        assert f"{later} on docs:second, failed at training.train_retriever: what is shown is of run {version}" in (
            done.stderr
        )
        assert "marks: 3 pairs marked" in done.stdout
    done = anmi("results", "--run", later)
    assert done.exit_code == 1
    assert f'run {later} has no "results"' in done.stderr


def test_without_a_run_the_command_to_run_is_named() -> None:
    done = anmi("results")
    assert done.exit_code == 1
    assert re.fullmatch(r'Error: there is no "results" yet: run .*make run.* first\n', done.stderr)
