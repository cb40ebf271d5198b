"""What benchmarks commit and pages show of it: rows of today's recipes, tables of results, honest figures."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from anmi.corpus.sources import load_collection
from anmi.errors import AnmiError
from anmi.judging.fused import shipped

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"


def script(name: str) -> ModuleType:
    """Return a script of benchmarks/ as a module."""
    spec = importlib.util.spec_from_file_location(
        f"benchmark_{name}", ROOT / "benchmarks" / f"{name}.py"
    )
    assert spec and spec.loader
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module", autouse=True)
def beside() -> Iterator[None]:
    """Scripts import each other by their names."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        yield


def rows_of(file: str) -> list[dict[str, Any]]:
    return list(json.loads((RESULTS / file).read_text(encoding="utf-8"))["rows"])


@pytest.mark.rare
def test_scripts_call_what_there_is(tmp_path: Path) -> None:
    """They are seldom run, so a name or an argument that is gone would be noticed late."""
    ignored = "arg-type,call-overload,index,list-item,method-assign,misc,operator,var-annotated"
    given = {
        "plugins": "pydantic.mypy",
        "mypy_path": "src:benchmarks:benchmarks/board",
        "follow_imports": "silent",
        "ignore_missing_imports": True,
        "exclude": "board/__main__",
        "disable_error_code": ignored,
        "cache_dir": tmp_path,
    }
    settings = tmp_path / "mypy.ini"
    lines = ["[mypy]", *(f"{name} = {value}" for name, value in given.items())]
    settings.write_text("\n".join(lines))
    words = [sys.executable, "-m", "mypy", f"--config-file={settings}", "benchmarks"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


# --- claims ---

FIELD_NAMES = """
claim metric recipe over collection encoder bucket claimed measured low high p
seeds fingerprint p_holm queries steps level baseline
"""
FIELDS = {*FIELD_NAMES.split()}


@pytest.fixture(scope="module")
def claims() -> ModuleType:
    return script("claims/__main__")


def test_claims_are_of_the_recipes_as_they_are_today(claims: ModuleType) -> None:
    rows = rows_of("claims.json")
    for row in rows:
        assert row.keys() == FIELDS
        names = [name for name in (row["recipe"], row["over"]) if name not in ("", "zero_shot")]
        prints = map(claims.fingerprint, names)
        assert row["fingerprint"] == "-".join(prints), f"measure {row['claim']} again"
        if row["measured"] is None:
            assert row["low"] is row["high"] is row["p"] is row["seeds"] is None
        elif row["low"] is not None:
            assert row["low"] <= row["measured"] <= row["high"] and 0 <= row["p"] <= 1
    published = {name for name in claims.recipes().names() if name.endswith("_as_published")}
    assert published and published <= {row["recipe"] for row in rows}
    assert claims.fingerprint("fixed_threshold") != claims.fingerprint("hard_threshold")


# --- pages ---


def test_every_result_has_its_commit_and_what_is_stale_is_marked() -> None:
    stale, common = script("stale"), script("common")
    assert {path.stem for path in RESULTS.glob("*.json")} == {*stale.MEASURES}
    lines = common.split(stale.PAGE.read_text(encoding="utf-8"), "stale.py")[1].splitlines()
    for (name, (made_by, rooms)), line in zip(stale.MEASURES.items(), lines[2:], strict=True):
        assert (ROOT / "benchmarks" / made_by).exists(), made_by
        assert all((ROOT / "src" / "anmi" / room).is_dir() for room in rooms), rooms
        document = common.load(name)
        *cells, since = (cell.strip() for cell in line.strip("|").split("|"))
        assert cells == stale.row(name, document, None)[:-1], f"{name}: run `make stale`"
        count = stale.changes(document["committed"], rooms) or 0
        assert since != "none" or count <= stale.LIMIT, f"{name}: run `make stale`"


def test_commits_to_the_measured_rooms_are_counted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stale, common = script("stale"), script("common")
    git = partial(common.git, "-c", "user.name=a", "-c", "user.email=a@b", folder=tmp_path)
    git("init", "--quiet")
    for day, room in enumerate(("training", "search", "training"), 1):
        folder = tmp_path / "src" / "anmi" / room
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "module.py").write_text(f"DAY = {day}")
        git("add", ".")
        git("commit", "--quiet", "-m", room, f"--date=2026-01-0{day}T00:00:00+00:00")
    monkeypatch.setattr(stale, "git", git)
    dates = ["2025-12-31T00:00:00+00:00", *(f"2026-01-0{day}T12:00:00+00:00" for day in (1, 2, 3))]
    assert [stale.changes(date, ("training",)) for date in dates] == [None, 1, 1, 0]
    assert stale.changes(dates[1], ("training", "search")) == 2
    assert common.state(tmp_path)["committed"].startswith("2026-01-03")
    (tmp_path / "src" / "anmi" / "module.py").touch()
    assert common.state(tmp_path)["commit"] == git("rev-parse", "--short", "HEAD") + "-dirty"


def in_sample(rows: list[dict[str, Any]]) -> list[str]:
    """Return the collections of the rows whose figures rest on a judge that saw the collection."""
    found = []
    for row in rows:
        place = "/" + row["collection"].replace("kg_webnlg/graph", "kg_webnlg/beir_en").strip("/")
        name = next((each for each in shipped()["without"] if place.endswith(f"/{each}")), None)
        if name is not None and row.get("without") != name:
            found.append(row["collection"])
    return found


@pytest.mark.parametrize("file", ["mining_quality.json", "ablation.json"])
def test_published_figures_are_not_in_sample(file: str) -> None:
    rows = [row for row in rows_of(file) if {"false_negative_rate", "leak", "auc"} & set(row)]
    assert len(rows) > 50 and in_sample(rows) == []
    seen = [{"collection": "scifact"}, {"collection": "scifact", "without": "medquad"}]
    assert in_sample(seen) == ["scifact"] * 2


def test_tables_are_those_of_the_results(
    claims: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    native, ablation, scale, sparse, common, few_labels = map(
        script, ("native", "ablation", "scale", "sparse", "common", "few_labels")
    )
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks" / "board"))
    table = rows_of("native.json")
    made = {
        ("README.md", "native.py"): native.table_of(table, native.MAIN, native.brief),
        ("README.md", "few_labels.py"): few_labels.curve(rows_of("few_labels.json")),
        ("docs/results.md", "native.py"): native.table_of(table, None, native.whole),
        ("docs/results.md", "ablation.py"): ablation.page_table(rows_of("ablation.json")),
        ("docs/results.md", "claims"): claims.page_table(rows_of("claims.json")),
        ("docs/results.md", "networks.py"): script("networks").page_table(common.load("networks")),
        ("docs/results.md", "dnh.py"): script("dnh").page_table(rows_of("dnh.json")),
        ("docs/search.md", "sparse.py"): sparse.table_of(common.load("sparse")),
        ("docs/production.md", "scale.py"): scale.nodes_table(common.load("scale")["runs"]),
        ("docs/production.md", "shapes.py"): script("shapes").table(rows_of("shapes.json")),
        ("docs/production.md", "machines.py"): script("machines").table(rows_of("machines.json")),
        ("benchmarks/board/README.md", "board"): script("board/__main__").table(
            rows_of("board.json")
        ),
    }
    for (page, of), lines in made.items():
        assert common.split((ROOT / page).read_text(encoding="utf-8"), of)[1] == lines
    # By hand: on the original labels of WebNLG all but two are significantly behind.
    lines = made["docs/results.md", "ablation.py"].splitlines()[2:]
    column = [line.split("|")[5].strip() for line in lines]
    level = sum("▼" not in value for value in column)
    assert level < len(column) and level == sum(
        row["p_holm"] is None or row["p_holm"] >= 0.05 or row["difference"] > 0
        for row in rows_of("ablation.json")
        if row["collection"] == "kg_webnlg/beir_en" and row["judgments"] == "original"
    )


def test_the_tutorial_reads_the_folder_of_who_walks_and_no_other() -> None:
    walk = script("tutorial_walk")
    found = walk.commands(walk.PAGE.read_text(encoding="utf-8"), Path("/home/me/notes"))
    first, *others = [place for place, line in enumerate(found) if line.startswith("kedro run")]
    assert found[0] == "make install" and "collection=docs:/home/me/notes" in found[first]
    assert found[first + 1].startswith("kedro anmi search")
    assert not [place for place in others if ":" in found[place]] and "../" not in "".join(found)


# --- few labels ---


def test_few_labels_are_among_more_and_those_of_test_stay(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    few_labels = script("few_labels")
    monkeypatch.setattr(few_labels, "DATA", tmp_path)
    monkeypatch.setattr(few_labels, "WORK", tmp_path / "cells")
    ids = [str(number) for number in range(40)]
    texts = [f"word{number} of document {number}" for number in ids]
    corpus = pd.DataFrame({"document_id": ids, "title": "", "text": texts})
    queries = pd.DataFrame({"query_id": ids, "text": [f"word{number}" for number in ids]})
    splits = ["train"] * 24 + ["dev"] * 8 + ["test"] * 8
    labels = pd.DataFrame({"query_id": ids, "document_id": ids, "relevance": 1, "split": splits})
    few_labels.common.write_beir(tmp_path / "xquad/de", corpus, queries, labels)
    fewer: set[str] = set()
    for number, counts in {"0": (0, 0), "8": (6, 2), "16": (12, 4), "all": (24, 8)}.items():
        point = few_labels.Point("xquad/de", number, 1)
        few_labels.write_collection(point, point.folder)
        qrels = load_collection(f"beir:{point.folder}", seed=1).qrels
        labelled = {split: set(part.query_id) for split, part in qrels.groupby("split")}
        assert labelled.pop("test") == set(ids[32:])
        assert tuple(len(labelled.get(split, ())) for split in ("train", "dev")) == counts
        more = set().union(*labelled.values())
        assert fewer <= more
        fewer = more


def test_regret_is_what_the_best_of_the_others_has_more() -> None:
    few_labels = script("few_labels")
    values = pd.DataFrame(
        {"bm25": [0.5, 0.1], "anmi": [0.6, 0.8], "hybrid": [0.5, 0.5], "final": [0.9, 0.8]},
        index=["a", "b"],
    )
    rows = few_labels.rows_of(values, pd.Series({"a": "new", "b": "labelled"}), {"alpha": 0.5})
    regrets = {(row["bucket"], row["final"]): row for row in rows if row["system"] == "hybrid"}
    assert [regrets["all", final]["regret"] for final in (False, True)] == [0.2, -0.15]
    assert regrets["labelled", False]["regret"] == 0.3 and len(rows) == 12
    cell = {"collection": "medquad", "labels": 5, "seed": 1}
    test = cell | {"final": False, "difference": -0.2, "p_value": 0.03}
    tests = [test | {"than": than} for than in ("bm25_and_network", 0, 0)]
    document = {"rows": [cell | row for row in rows], "tests": tests}
    lines = [line.split(" | ") for line in few_labels.goals(document).splitlines()[2:]]
    assert [line[0].strip("| ") for line in lines] == ["all", "all", "apart", "apart"]
    assert lines[0][3] == "0.2000" and lines[0][5] == "1"
    counts = ["1 of 1, uncorrected 1", "0 of 2, uncorrected 2"]
    assert [cell.strip("| ") for cell in lines[0][6:]] == counts


# --- networks ---


@pytest.fixture
def networks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    module = script("networks")
    monkeypatch.setattr(module, "WORK", tmp_path)
    return module


def write_cell(point: Any, gain: float, new: list[int]) -> None:
    """Write a cell of 40 queries; training is worse on new documents, better on others."""
    ids = [str(number) for number in range(40)]
    start = np.linspace(0.1, 0.6, 40)
    is_new = np.isin(np.arange(40), new)
    trained = start + np.where(is_new, -0.1, gain)
    values = pd.DataFrame({"bm25": 0.5, "zero_shot": start, "trained": trained}, index=ids)
    values = values.assign(bm25_and_zero_shot=start, bm25_and_trained=trained, hybrid=trained)
    point.folder.mkdir(parents=True)
    values = values.assign(bucket=np.where(is_new, "new", "labelled"))
    values.to_parquet(point.folder / "values.parquet")
    cell = {"params": {"encoder": "minilm"}, "max_length": 32}
    (point.folder / "cell.json").write_text(json.dumps(cell))


def test_cells_become_rows_tests_and_a_table(networks: ModuleType) -> None:
    for seed, new in ((1, [*range(10)]), (2, [*range(5, 15)])):
        for recipe, gain in (("in_batch", 0.1), ("anmi", 0.2)):
            write_cell(networks.Point("minilm", "scifact", recipe, seed), gain, new)
    result = networks.collect()
    assert [cell["seed"] for cell in result["cells"]] == [1, 2, 1, 2]
    rows = {(row["recipe"], row["system"], row["bucket"]): row for row in result["rows"]}
    assert rows["anmi", "trained", "new"]["queries"] == 15
    assert rows["anmi", "trained", "labelled"]["queries"] == 35
    assert {recipe for recipe, system, _ in rows if system == "zero_shot"} == {None}
    assert "minilm scifact random" in result["not_measured"]
    assert "minilm scifact anmi" not in result["not_measured"]
    tests = {(test["recipe"], test["over"], test["bucket"]): test for test in result["tests"]}
    assert tests["in_batch", "zero_shot", "new"]["difference"] == pytest.approx(-0.1)
    assert tests["anmi", "in_batch", "labelled"]["difference"] == pytest.approx(0.1)
    assert all(test["p_holm"] >= test["p_value"] for test in result["tests"])
    lines = networks.page_table(result).splitlines()
    (line,) = (line for line in lines if "`in_batch` |" in line)
    every, labelled, unlabelled, new_documents = line.split("|")[-2].strip().split("/")
    assert labelled.startswith("**.") and unlabelled == "–" and new_documents.endswith("▼")
    assert lines[2].split("|")[2].strip() == "untrained" and every != "–"


def test_a_cell_of_the_same_settings_is_not_run_again(
    networks: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    point = networks.Point("minilm", "scifact", "anmi", 1)
    write_cell(point, 0.1, [0])
    monkeypatch.setattr(networks, "kedro", lambda *words, **places: 1)
    networks.run(point, {"encoder": "minilm"})
    assert capsys.readouterr().out == "" and point.folder.is_dir()
    networks.run(point, {"encoder": "minilm", "training.options.epochs": "1"})
    assert capsys.readouterr().out.startswith("failed: Point(") and not point.folder.is_dir()


def test_queries_are_measured_by_what_training_saw(networks: ModuleType, tmp_path: Path) -> None:
    names = ["a", "b", "c", "d"]
    columns = {"query_id": names, "document_id": names, "relevance": 1}
    splits = ["train", "test", "test", "test"]
    qrels = pd.DataFrame({**columns, "split": splits})
    qrels.loc[1, "document_id"] = "a"
    documents = [*names, "e"]
    corpus = pd.DataFrame({"document_id": documents, "title": "", "text": documents})
    tables = {
        "corpus": corpus,
        "queries": pd.DataFrame({"query_id": names, "text": names, "split": splits}),
        "qrels": qrels,
        "new_documents": pd.DataFrame({"document_id": ["d"], "split": "test"}),
        "equivalents": pd.DataFrame({"query_id": [], "document_id": []}, dtype=str),
    }
    for name, table in tables.items():
        folder = tmp_path / "02_intermediate" / f"{name}.parquet" / "1"
        folder.mkdir(parents=True)
        table.to_parquet(folder / f"{name}.parquet")
    relevant = qrels[1:].assign(rank=1, score=1.0)
    other = relevant.assign(document_id="e", rank=2, score=0.5)
    swapped = relevant.assign(rank=2, score=0.5), other.assign(rank=1, score=1.0)
    trained = pd.concat([relevant, other]).assign(part="dense")
    parts = [pd.concat(swapped).assign(part=name) for name in ("bm25", "network")]
    runs = pd.concat([trained, *parts]).assign(spread=1.0)
    values, weights = networks.measure(tmp_path, runs, runs[:0], {})
    assert values.bucket.to_dict() == {"b": "labelled", "c": "unlabelled", "d": "new"}
    assert values.trained.tolist() == [1, 1, 1]
    assert values.zero_shot.tolist() == pytest.approx([0.6309] * 3, abs=1e-4)
    assert weights["trained"] == {"dense": 1.0} and sum(weights["hybrid"].values()) == 1


# --- speed ---


def test_what_became_two_fifths_worse_is_named() -> None:
    mining = script("peer_mining")

    def timed(ours: float, peer: float | None, unit: str = "processor s") -> list[dict[str, Any]]:
        return [mining.row("mining", ours, peer, 1.0, unit, "")]

    assert mining.worse(timed(13.9, 20), timed(10, 20)) == []
    (said,) = mining.worse(timed(14.1, 20), timed(10, 20))
    assert said.startswith("mining: ") and said.endswith("committed is 0.5")
    assert mining.worse(timed(99, None), timed(1, None)) == [], "there is no peer"
    assert mining.worse(timed(99, 20, "s"), timed(1, 20, "s")) == [], "wall time"
    assert {key for row in rows_of("speed.json") for key in row} == timed(1, 2)[0].keys()


def test_operators_and_waits_of_a_step_are_counted() -> None:
    gpu = script("gpu")
    meter = gpu.Meter(rows=4, timed=1)
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), foreach=False)
    with meter:
        for _ in range(4):
            loss = model(torch.ones(4, 3)).sum()
            assert loss.cpu().item() > -100
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    figures = meter.figures()
    assert figures["waits a step"] == 2, ".cpu and .item"
    # ones, addmm, sum; ones, mm, sum; two of the optimizer, and copies.
    assert 8 <= figures["operators a step"] <= 12
    assert 0 < figures["% of a step not torch's"] < 100 and figures["rows a second"] > 4


# --- board ---

DOCUMENTS = [f"d{i}" for i in range(12)]


@pytest.fixture(scope="module")
def protocol() -> ModuleType:
    return script("board/protocol")


def pairs(*found: str) -> pd.DataFrame:
    return pd.DataFrame([pair.split() for pair in found], columns=["query_id", "document_id"])


@pytest.fixture
def task(protocol: ModuleType) -> Any:
    """Query a has d0 known and d1 hidden, of which d2 is a copy; query b has d3 known and nothing hidden."""
    duplicates = pd.DataFrame({"document_id": ["d2"], "duplicate_of": ["d1"]})
    return protocol.Task(
        "toy",
        pd.DataFrame(
            {"document_id": DOCUMENTS, "title": "", "text": [f"text {d}" for d in DOCUMENTS]}
        ),
        pd.DataFrame({"query_id": ["a", "b"], "text": ["ask a", "ask b"]}),
        pairs("a d0", "b d3"),
        protocol.with_copies(pairs("a d0", "a d1", "b d3"), duplicates),
        pd.DataFrame(),
        pd.DataFrame(),
    )


def test_a_miner_gets_one_label_a_query_and_no_truth(
    protocol: ModuleType, task: Any, tmp_path: Path
) -> None:
    task.write(tmp_path)
    labels = (tmp_path / "qrels" / "train.tsv").read_text(encoding="utf-8").splitlines()
    assert labels == ["query-id\tcorpus-id\tscore", "a\td0\t1", "b\td3\t1"]
    assert pd.read_json(tmp_path / "corpus.jsonl", lines=True)["_id"].tolist() == DOCUMENTS
    known = pairs("a d1", "a d2", "a d3", "b d4")
    found, again = protocol.one_each(known), protocol.one_each(known[::-1])
    assert sorted(found.query_id) == ["a", "b"]
    tables = (found, again, known)
    chosen, chosen_again, pool = ({*map(tuple, table.to_numpy())} for table in tables)
    assert chosen == chosen_again <= pool


def test_false_negatives_are_counted_where_they_are_known(
    protocol: ModuleType, task: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"a": ["d1", "d2", "d4", "d5", "d6", "d7", "d8"], "b": ["d1", "d2", "d4"]}
    file = tmp_path / "submission.jsonl"
    rows = ({"query_id": query, "negative_ids": chosen} for query, chosen in given.items())
    file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    monkeypatch.setattr(protocol, "gap", lambda task, chosen: 0.25)
    found = protocol.score(task, protocol.read_submission(file, task))
    assert found["false_negative_rate"] == pytest.approx(2 / 7, abs=1e-5)
    assert (found["counted_queries"], found["coverage"], found["gap"]) == (1, 0.5, 0.25)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("not json", "line 1: expected"),
        ('{"query_id": "z", "negative_ids": []}', '"z" is no query'),
        ('{"query_id": "a", "negative_ids": ["d1", "d1"]}', "all different"),
        ('{"query_id": "a", "negative_ids": ["x"]}', 'no document "x" in toy'),
        (json.dumps({"query_id": "a", "negative_ids": DOCUMENTS[:8]}), "at most 7"),
        ("\n".join(['{"query_id": "a", "negative_ids": []}'] * 2), "line 2: .*twice"),
    ],
)
def test_a_submission_that_does_not_fit_is_told_by_its_line(
    protocol: ModuleType, task: Any, tmp_path: Path, line: str, told: str
) -> None:
    file = tmp_path / "submission.jsonl"
    file.write_text(line, encoding="utf-8")
    with pytest.raises(AnmiError, match=told):
        protocol.read_submission(file, task)
