"""``kedro anmi export``, and the exports of a run, on the project's own catalog."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import Result
from tests.cli.conftest import anmi

from anmi.hooks.record import RunRecord

OLD, VERSION = "2025-01-01T00.00.00.000Z", "2026-01-01T00.00.00.000Z"


def rows_of(negatives: list[str]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "query_id": "q1",
                "query": "질문",
                "query_weight": 1.0,
                "positive_id": "p",
                "positive": "größer",
                "positive_ids": ["p"],
                "negative_ids": negatives,
                "negatives": [f"text {n}" for n in negatives],
                "weights": [1.0] * len(negatives),
                "sources": ["dense"] * len(negatives),
            },
            {
                "query_id": "q2",
                "query": "query",
                "query_weight": 1.0,
                "positive_id": "q",
                "positive": "text q",
                "positive_ids": ["q"],
                "negative_ids": [],
                "negatives": [],
                "weights": [],
                "sources": [],
            },
        ]
    )


def put(data: Path, name: str, content: Any, version: str = VERSION) -> Path:
    """Save a table or a document as a run of that version does."""
    path = data / name / version / Path(name).name
    path.parent.mkdir(parents=True)
    (
        content.to_parquet(path)
        if isinstance(content, pd.DataFrame)
        else path.write_text(json.dumps(content))
    )
    return path


def note(data: Path, version: str = VERSION, **noted: Any) -> None:
    (data / "runs" / version).mkdir(parents=True)
    record = RunRecord(run_id=version, status="finished", **noted)
    (data / "runs" / version / "run.json").write_text(record.as_text())


ROWS, INFO = "05_model_input/training_rows.parquet", "02_intermediate/collection_info.json"


@pytest.fixture(autouse=True)
def data(project: Path, tmp_path: Path) -> Path:
    put(tmp_path / "data", ROWS, rows_of(["old"]), OLD)
    put(tmp_path / "data", ROWS, rows_of(["a", "b"]))
    return tmp_path / "data"


def invoke(*arguments: str, code: int = 0) -> Result:
    done = anmi("export", *arguments)
    assert done.exit_code == code, done.output
    return done


def test_the_newest_rows_are_written_and_the_line_that_reads_them_works(tmp_path: Path) -> None:
    folder = tmp_path / "out" / "mined"
    done = invoke("n-tuple", str(folder))
    assert f"1 lines of n-tuple in {folder}, of " in done.stdout and VERSION in done.stdout
    assert "warning: left out rows without negatives: 1" in done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("read it with: ")]
    import datasets

    read = eval(line.removeprefix("read it with: "), {"datasets": datasets})
    assert read.to_dict() == {
        "query": ["질문"],
        "positive": ["größer"],
        "negative_1": ["text a"],
        "negative_2": ["text b"],
    }
    assert [path.name for path in folder.parent.iterdir()] == ["mined"], "nothing is left beside it"


def test_the_card_says_how_the_rows_were_mined_and_datasets_reads_the_folder(
    data: Path, tmp_path: Path
) -> None:
    import datasets

    rest = {"title": "", "text": "x", "metadata": ""}
    put(data, "02_intermediate/corpus.parquet", pd.DataFrame({"document_id": list("pqab"), **rest}))
    put(data, "02_intermediate/queries.parquet", pd.DataFrame({"query_id": ["q1", "q2"], **rest}))
    put(data, INFO, {"collection": "mine", "language": "ko"})
    note(data, parameters=(asked := {"recipe": "anmi_2", "collection": "mine"}))
    expected = {"share": 0.02, "low": 0.01, "high": 0.04, "judged": 150, "doubtful": 0}
    put(data, "05_model_input/selection_summary.json", {"expected": expected})
    put(
        data,
        "03_primary/encoder_info.json",
        {"encoder": "mine", "prompts": {"query": "찾기: ", "document": ""}},
    )
    rate = {
        f"false_negative_rate{end}": value
        for end, value in (("", 0.03), ("_low", 0.01), ("_high", 0.05))
    }
    rows = [
        asked | rate | {"negatives": 1200},
        asked | rate | {"negatives": 7, "collection": "another"},
    ]
    put(
        data,
        "07_model_output/audit_recipes.parquet",
        pd.DataFrame(rows),
        "2026-01-02T00.00.00.000Z",
    )
    for name in ("n-tuple", "tevatron", "pairs"):
        done = invoke(name, str(tmp_path / name))
        assert (
            'prompts, not in the texts: "찾기: " before queries, none before documents'
            in done.stdout
        )
        text = (tmp_path / name / "README.md").read_text(encoding="utf-8")
        assert text.startswith('---\nlicense: "unknown"\n')
        for told in (
            "mine (ko)",
            "Recipe: anmi_2",
            f"Run: {VERSION}",
            "2 % (1 to 4) of 150 negatives",
            "Audit: 3 % (1 to 5) of 1,200 negatives",
            '"찾기: " before queries',
        ):
            assert told in text
        read = datasets.load_dataset(str(tmp_path / name), split="train")
        assert len(read) == 1 and read[0]["query"] == "질문"
    invoke("n-tuple", str(tmp_path / "n-tuple"), "--negatives", "1", "--force")
    read_again = datasets.load_dataset(str(tmp_path / "n-tuple"), split="train")
    assert len(read_again.column_names) == 3


def test_a_collection_is_read_by_mteb_and_by_ourselves(data: Path, tmp_path: Path) -> None:
    from anmi.corpus.related import parents_of
    from anmi.corpus.sources import load_collection

    corpus = pd.DataFrame(
        {
            "document_id": ["p#1", "p#2", "a", "b"],
            "title": ["T", "", "", ""],
            "text": ["amber", "birch", "cedar", "delta"],
            "metadata": '{"year":"1"}',
            "parent": ["p", "p", "a", "b"],
            "start": [0, 9, -1, -1],
        }
    )
    queries = pd.DataFrame(
        {"query_id": ["1", "2"], "text": ["which amber", "which birch"], "metadata": "{}"}
    )
    qrels = pd.DataFrame(
        {"query_id": ["1", "2"], "document_id": ["p#1", "a"], "relevance": [1, 2], "split": "test"}
    )
    put(data, INFO, {"collection": "pairs:a.csv", "language": "en"})
    for name, table in (("queries", queries), ("qrels", qrels)):
        put(data, f"02_intermediate/{name}.parquet", table)
    refused = invoke("mteb", str(tmp_path / "none"), code=1)
    assert 'there is no "corpus" yet: run `kedro run --pipelines ingestion`' in refused.stderr
    put(data, "02_intermediate/corpus.parquet", corpus)
    folder, lines = tmp_path / "mteb", tmp_path / "lines"
    assert f"3 documents in {folder}" in invoke("mteb", str(folder)).stdout
    invoke("beir", str(lines))
    assert (
        lines / "qrels" / "test.tsv"
    ).read_text() == "query-id\tcorpus-id\tscore\n1\tp#1\t1\n2\ta\t2\n"
    for place in (f"beir:{folder}", f"hf:{folder}", f"beir:{lines}"):
        found = load_collection(place, language="en")
        assert found.corpus[["document_id", "title", "text"]].equals(
            corpus[["document_id", "title", "text"]]
        )
        assert found.qrels.values.tolist() == qrels.values.tolist()
        told = [json.loads(text) for text in found.corpus.metadata]
        assert told == [
            {"year": "1", "document": "p", "start": 0},
            {"year": "1", "document": "p", "start": 9},
            {"year": "1"},
            {"year": "1"},
        ]
        assert parents_of(found.corpus).tolist() == ["p", "p", "a", "b"]
    assert "3, as 4 passages that name them in `metadata`" in (folder / "README.md").read_text()
    mteb = pytest.importorskip("mteb")
    task = runpy.run_path(str(folder / "mteb_task.py"))["Task"]()
    task.load_data()
    assert task.metadata.eval_langs == ["eng"] and task.metadata.name == "pairs_a_csv"
    (score,) = mteb.evaluate(
        mteb.get_model("mteb/baseline-random-encoder"), [task], cache=None
    ).task_results
    assert score.get_score() >= 0


def test_an_earlier_run_is_exported_when_it_is_named(data: Path, tmp_path: Path) -> None:
    for version in (OLD, VERSION):
        note(data, version, saved={"training_rows": {"version": version}})
    for run, negatives in (("2025", 1), ("latest", 2)):
        invoke("n-tuple", str(tmp_path / run), "--run", run)
        exported = pd.read_parquet(tmp_path / run / "train.parquet")
        assert len(exported.columns) == 2 + negatives
    assert (
        'has no "measured_search"'
        in invoke("vectors", str(tmp_path / "none"), "--run", "2025", code=1).stderr
    )


def test_only_an_earlier_export_is_replaced_and_only_when_told(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    invoke("n-tuple", str(folder))
    assert "--force" in invoke("tevatron", str(folder), code=1).stderr
    invoke("tevatron", str(folder), "--force")
    assert sorted(path.name for path in folder.iterdir()) == ["README.md", "train.jsonl"]
    (folder / "thesis.tex").write_text("years of work")
    refused = invoke("n-tuple", str(folder), "--force", code=1)
    assert 'holds "thesis.tex", which no export wrote' in refused.stderr
    assert (folder / "thesis.tex").read_text() == "years of work"


def test_what_cannot_be_written_is_said_in_one_sentence(tmp_path: Path, data: Path) -> None:
    (tmp_path / "file").touch()
    for (name, *more), message in (
        (("n-tupel",), 'Error: there is no format "n-tupel"; did you mean "n-tuple"?'),
        (("n-tuple", "--score", "dense"), 'Error: format "n-tuple" has no place for score'),
        (("n-tuple-scores",), "Error: no score is known for 95% of the documents"),
    ):
        assert invoke(name, str(tmp_path / "out"), *more, code=1).stderr.startswith(message)
    assert "is a file" in invoke("n-tuple", str(tmp_path / "file"), code=2).stderr
    assert not (tmp_path / "out").exists()
    (data / ROWS).rename(data / "gone")
    assert "kedro run --pipelines mining" in invoke("n-tuple", str(tmp_path / "out"), code=1).stderr
