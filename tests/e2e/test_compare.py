"""``kedro anmi compare`` on two runs, and that a run without a terminal prints neither colours nor bars."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import Result
from tests.e2e.test_ablate import write_collection

from anmi.cli.compare import compare

pytestmark = pytest.mark.slow


def test_two_runs_are_compared(new_place: Any, kedro: Any, in_process: Callable[..., Result], tmp_path: Path) -> None:
    place = new_place(tmp_path)
    collection = write_collection(tmp_path / "collection")
    shared = f"collection=beir:{collection},evaluation.split=test,training.options.epochs=1"
    early = in_process(place, "anmi", "compare")
    assert early.exit_code == 1
    assert 'there is no "previous" run' in early.stderr
    for recipe in ("random", "naive_top"):
        done = kedro("run", "--params", f"{shared},recipe={recipe}", data_root=place.data, store=place.store, anew=True)
        said = done.stdout + done.stderr
        assert done.returncode == 0, said
        assert "\x1b" not in said
        assert "%|" not in said, "a progress bar, and nobody watches"

    # As its help and docs/cli.md have it.
    line = (compare.epilog or "").splitlines()[-1].strip()
    done = in_process(place, *shlex.split(line)[1:], "--json")
    assert done.exit_code == 0, done.output + str(done.exception)
    found = json.loads(done.stdout, parse_constant=lambda constant: pytest.fail(f"{constant} is no JSON"))
    assert [run["recipe"] for run in found["runs"]] == ["random", "naive_top"]
    assert found["parameters"]["recipe"] == ["random", "naive_top"]
    assert not [name for name in found["parameters"] if name.startswith(("bm25.", "training."))]
    assert found["same_collection"]
    assert found["queries"] == {"same": 8, "first": 8, "second": 8}
    assert {row["system"] for row in found["metrics"]} == {"bm25", "zero_shot", "trained", "hybrid"}
    bm25 = [row for row in found["metrics"] if row["system"] == "bm25"]
    assert all(row["difference"] == 0 and row["p_value"] == 1 for row in bm25)
    trained = {
        version.parent.name: table[table.system == recipe]["ndcg@10"].mean()
        for recipe, version in zip(
            ("random", "naive_top"), place.versions("evaluation", "query_metrics.parquet"), strict=True
        )
        for table in [pd.read_parquet(version)]
    }
    (row,) = [r for r in found["metrics"] if (r["system"], r["bucket"], r["metric"]) == ("trained", "all", "ndcg@10")]
    assert [row["first"], row["second"]] == pytest.approx(list(trained.values()))
    rows = found["training_rows"]
    assert rows["first"] == rows["second"] == len(place.table("selection", "training_rows.parquet"))
    assert rows["other_negatives"] > 0

    told = in_process(place, "anmi", "compare", found["runs"][0]["run_id"], "latest", "--metric", "mrr@10").stdout
    assert "MRR@10" in told
    assert f"{rows['other_negatives']} with other negatives" in told
    same = in_process(place, "anmi", "compare", "latest", "latest").stdout
    assert "no parameter differs" in same
    assert f"training rows: the same {rows['second']}" in same

    (collection / "corpus.jsonl").open("a").write('{"_id": "new", "title": "", "text": "A document of another day."}\n')
    done = kedro("run", "--params", f"{shared},recipe=random", data_root=place.data, store=place.store)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the collections are not the same files" in in_process(place, "anmi", "compare").stdout
