"""``kedro anmi negatives``, on the project's own catalog with a data root of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner, Result
from kedro.framework.session import KedroSession
from kedro.framework.startup import bootstrap_project

from anmi.cli import cli
from anmi.cli.negatives import KEYS

ROOT = Path(__file__).parents[2]
SUMMARY: dict[str, Any] = {
    "recipe": "bm25_random",
    "rows": 4,
    "negatives_wanted": 7,
    "coverage": 0.75,
    "by_source": [
        {"source": "sae4k [new]", "queries": 1400, "passed": 1050, "failed": 350, "rows": 1200}
        | {"negatives_mean": 6.5, "negatives_min": 3, "negatives_max": 7},
        {"source": "empty", "queries": 1, "passed": 0, "failed": 1, "rows": 0}
        | {"negatives_mean": None, "negatives_min": None, "negatives_max": None},
    ],
    "origins": {"sources": {"bm25+dense": 30, "bm25": 10}, "tiers": {"window": 39, "graph": 1}},
    "funnel": [
        {"step": "candidates", "kind": "total", "candidates": 1000, "queries": 10},
        {"step": "consistency", "kind": "rejected", "rule": "BM25 rank > 10", "candidates": 250, "queries": 351},
        {"step": "route", "kind": "uncertain", "rule": "in doubt", "candidates": 5, "queries": 0},
    ],
    "expected": {"share": 0.0312, "judged": 60, "total": 70, "doubtful": 4},
    "false_negatives": {"count": 3, "total": 70, "share": 3 / 70, "low": 0.0147, "high": 0.1186},
    "distributions": {},
}


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("ANMI_DATA_ROOT", str(tmp_path))
    bootstrap_project(ROOT)


def save(summary: dict[str, Any]) -> None:
    with KedroSession.create(project_path=ROOT) as session:
        catalog: Any = session.load_context().catalog
        catalog.save("selection_summary", summary)
        catalog.save("negatives", pd.DataFrame({"query": ["q"]}))


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments))


def cells(output: str, start: str) -> list[str]:
    (line,) = [line for line in output.splitlines() if line.startswith(f"│ {start} ")]
    return [cell.strip() for cell in line.split("│")[1:-1]]


def test_what_was_mined_from_where_and_what_was_dropped_by_which_rule(tmp_path: Path) -> None:
    save(SUMMARY)
    output = invoke("anmi", "negatives").stdout
    assert cells(output, "sae4k") == ["sae4k [new]", "1,400", "1,050", "350", "75.0%", "1,200", "6.50", "3", "7"]
    assert cells(output, "empty")[-4:] == ["0", "–", "–", "–"]
    assert "bm25+dense" in output
    assert "97.5%" in output, "of the negatives come from the window"
    assert "uncertain: route" in output
    assert cells(output, "consistency") == ["consistency", "351", "BM25 rank > 10"]
    assert "recipe bm25_random: 4 rows, 75.0% of them with all 7 negatives" in output
    assert "expected to be relevant: 3.1 % of 60 judged; 4 were taken in doubt" in output
    assert "in truth relevant: 3 of 70 (4.3%" in output
    assert str(tmp_path / "selection" / "negatives") in output


def test_json_has_the_numbers_and_the_places() -> None:
    save(SUMMARY)
    printed = json.loads(invoke("anmi", "negatives", "--json").stdout)
    assert tuple(printed) == KEYS
    assert printed["by_source"] == SUMMARY["by_source"]
    assert Path(printed["paths"]["negatives"]).is_dir()


def test_without_a_run_or_with_an_old_one_the_command_to_run_is_named() -> None:
    done = invoke("anmi", "negatives")
    assert done.exit_code == 1
    assert done.stderr.startswith('Error: there is no "selection_summary" yet: run `kedro run --pipelines mining`')
    save({"recipe": "x"})
    done = invoke("anmi", "negatives")
    assert "made by an earlier version" in done.stderr
    assert done.stderr.count("\n") == 1


def test_results_point_to_what_was_mined_where_nothing_was_evaluated() -> None:
    save(SUMMARY)
    done = invoke("anmi", "results")
    assert done.exit_code == 1
    assert "`kedro anmi negatives` shows what was mined" in done.stderr


def test_where_nothing_was_mined_a_sentence_stands_for_empty_tables() -> None:
    save(SUMMARY | {"rows": 0, "by_source": [], "funnel": [SUMMARY["funnel"][0] | {"candidates": 0, "queries": 0}]})
    done = invoke("anmi", "negatives")
    assert done.exit_code == 0, done.output
    assert "no training labels" in done.output and "┃" not in done.output
