"""Datasets keep what was saved, never show half of it, and never read code."""

from __future__ import annotations

import inspect
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from kedro.io.core import DatasetError, Version
from plotly.graph_objects import Figure
from safetensors.numpy import save_file

from anmi.candidates import Candidates, CandidateShards, ColumnShards
from anmi.cli.common import user_error
from anmi.datasets import (
    CandidateShardsDataset,
    ColumnsDataset,
    FigureDataset,
    FolderDataset,
    JsonDataset,
    NumpyDataset,
    TableDataset,
    TextDataset,
)
from anmi.datasets.artifact import record_of
from anmi.datasets.files import resolve_loader
from anmi.engine import IN_PROCESS, add_columns
from anmi.errors import AnmiError
from anmi.hooks.record import RunRecord

ONE, TWO = "2026-01-01T00.00.00.000Z", "2026-01-02T00.00.00.000Z"
FIGURE = Figure(
    [{"type": "scatter", "x": [number], "y": [0.5], "name": "é"} for number in range(3)]
)
FRAME = pd.DataFrame(
    {"id": ["a", "b", "c"], "text": ["é/x", None, "z\u2028"], "scores": [[1.0], [], [0.5, 2.0]]}
)


def block(first: int, rows: int = 3, width: int = 4) -> Candidates:
    draw = np.random.default_rng(first)
    documents = draw.permuted(np.tile(np.arange(width, dtype=np.int32), (rows, 1)), axis=1) + first
    documents[0, -1] = -1
    return Candidates(
        query_ids=np.array([f"q{first}-{i}" for i in range(rows)]),
        positives=np.full((rows, 1), 99, np.int32),
        documents=documents,
        source=np.ones((rows, width), np.uint8),
        columns={"bm25": draw.random((rows, width), dtype=np.float32)},
        query_columns={"positive_rank": draw.random(rows, dtype=np.float32)},
    )


def same(one: Candidates, other: Candidates) -> bool:
    return one.to_table().equals(other.to_table())


CASES: list[tuple[type, Any, dict[str, Any]]] = [
    (CandidateShardsDataset, CandidateShards.of([block(0), block(10)]), {}),
    (TableDataset, FRAME, {}),
    (JsonDataset, {"a": [1, 2.5, None], "ü": "x"}, {}),
    (TextDataset, "<p>é</p>\n", {}),
    (FigureDataset, FIGURE, {}),
    (NumpyDataset, np.arange(12, dtype=np.float32).reshape(3, 4), {}),
    (NumpyDataset, np.arange(12, dtype=np.float32).reshape(3, 4), {"memory_mapped": True}),
]


class Weights:
    def save(self, path: Path) -> None:
        save_file({"weight": np.arange(64, dtype=np.float32)}, path / "model.safetensors")
        (path / "config.json").write_text('{"size": 64}')


def noted(dataset: Any, root: Path) -> None:
    """Note what a dataset saved, as a run does."""
    record = RunRecord(run_id=ONE, saved={"x": {"version": ONE, **dataset.written}})
    (root / "runs" / ONE).mkdir(parents=True)
    (root / "runs" / ONE / "run.json").write_text(record.as_text())


def flipped(place: Path, number: int = 30) -> Iterator[bytes]:
    """Flip one bit at each of so many places of a file, or of all files of a folder, and put it back."""
    files = [path for path in sorted([place, *place.rglob("*")]) if path.is_file()]
    whole = [(path, offset) for path in files for offset in range(path.stat().st_size)]
    for turn in range(number):
        path, offset = whole[turn * len(whole) // number]
        data = path.read_bytes()
        path.write_bytes(data[:offset] + bytes([data[offset] ^ 1 << turn % 8]) + data[offset + 1 :])
        yield data
        path.write_bytes(data)


@pytest.mark.parametrize(("kind", "data", "options"), [*CASES, (FolderDataset, Weights(), {})])
def test_a_flipped_bit_is_noticed_and_so_is_a_file_that_ends_early(
    tmp_path: Path, kind: type, data: Any, options: dict[str, Any]
) -> None:
    def opened() -> Any:
        return kind(filepath=f"{tmp_path}/layer/x.bin", version=Version(None, ONE), **options)

    (saved := opened()).save(data)
    noted(saved, tmp_path)
    opened().load()
    place = saved.local_copy()
    for _ in flipped(place):
        with pytest.raises(DatasetError) as raised:
            opened().load()
        assert f"{place} is damaged, since it is not what run {ONE} saved" in str(
            user_error(raised.value)
        )
    shutil.rmtree(tmp_path / "runs")
    # Of an old run nothing is known, and the end of a file must do.
    file = next(path for path in [place, *sorted(place.rglob("*"))] if path.is_file())
    file.write_bytes(file.read_bytes()[: len(file.read_bytes()) // 3])
    if kind not in (TextDataset, FolderDataset):
        with pytest.raises((AnmiError, DatasetError)) as raised:
            list(opened().load())
        assert re.search(
            r"(cannot be read|is damaged) \(.*make it again", str(user_error(raised.value))
        )


def test_what_is_in_a_record_of_a_run_is_read_or_it_is_refused(tmp_path: Path) -> None:
    dataset = JsonDataset(filepath=f"{tmp_path}/layer/x.json", version=Version(None, ONE))
    dataset.save({"a": 1})
    noted(dataset, tmp_path)
    before, seen = record_of(str(tmp_path), ONE), 0
    for _ in flipped(tmp_path / "runs" / ONE / "run.json", 200):
        try:
            found = record_of(str(tmp_path), ONE)
            assert before == {name: found[name] for name in before}
        except AnmiError as error:
            assert "is no record of run" in str(error)
            seen += 1
    assert seen > 100
    for text in (
        "",
        "{}",
        "[]",
        "null",
        json.dumps(before)[:-9],
        json.dumps(before | {"saved": [1]}),
    ):
        (tmp_path / "runs" / ONE / "run.json").write_text(text)
        with pytest.raises(AnmiError, match="is no record of run"):
            record_of(str(tmp_path), ONE)


def failing() -> Iterator[Candidates]:
    yield block(0)
    raise RuntimeError("the network is gone")


def test_an_error_while_saving_leaves_nothing(tmp_path: Path) -> None:
    dataset = CandidateShardsDataset(filepath=f"{tmp_path}/c", version=Version(None, TWO))
    CandidateShardsDataset(filepath=f"{tmp_path}/c", version=Version(None, ONE)).save(
        CandidateShards.of([block(5)])
    )
    with pytest.raises(DatasetError, match="the network is gone"):
        dataset.save(CandidateShards(failing))
    assert list((tmp_path / "c" / TWO).rglob("*")) == []
    again = CandidateShardsDataset(filepath=f"{tmp_path}/c", version=Version(None, None))
    assert again.resolve_load_version() == ONE
    assert same(again.load().whole(), block(5))


def test_the_newest_version_is_read_below_a_folder_with_brackets(tmp_path: Path) -> None:
    place = f"{tmp_path}/[a]?/x.json"
    for version in (ONE, TWO):
        JsonDataset(filepath=place, version=Version(None, version)).save({"of": version})
    assert JsonDataset(filepath=place, version=Version(None, None)).load() == {"of": max(ONE, TWO)}


def test_no_pickle_in_or_out(tmp_path: Path) -> None:
    dataset = NumpyDataset(filepath=f"{tmp_path}/a.npy")
    with pytest.raises(DatasetError, match="allow_pickle"):
        dataset.save(np.array([{}], dtype=object))
    np.save(tmp_path / "a.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(DatasetError, match="allow_pickle"):
        dataset.load()


def test_json_has_no_nan(tmp_path: Path) -> None:
    dataset = JsonDataset(filepath=f"{tmp_path}/a.json")
    dataset.save(
        {"value": np.float32("nan"), "count": np.int64(3), "curve": np.array([0.5, np.inf])}
    )
    assert dataset.load() == {"value": None, "count": 3, "curve": [0.5, None]}


@pytest.mark.parametrize(
    ("kind", "data", "shown"),
    [
        (TableDataset, FRAME, "TablePreview"),
        (CandidateShardsDataset, CandidateShards.of([block(0)]), "TablePreview"),
        (JsonDataset, {"a": [1, float("nan")]}, "JSONPreview"),
        (FigureDataset, FIGURE, "PlotlyPreview"),
    ],
)
def test_kedro_viz_is_told_how_to_show_a_preview(
    tmp_path: Path, kind: type, data: Any, shown: str
) -> None:
    dataset = kind(filepath=f"{tmp_path}/x")
    dataset.save(data)
    # This is where kedro-viz looks, and what it shows has to become JSON.
    assert inspect.signature(dataset.preview).return_annotation == shown
    preview = json.loads(json.dumps(dataset.preview()))
    if shown == "JSONPreview":
        assert json.loads(preview) == {"a": [1, None]}
    else:
        assert len(preview["data"]) == 3


@pytest.mark.parametrize("kind", [JsonDataset, TableDataset])
def test_an_error_names_the_artifact_and_not_what_was_written_aside(
    tmp_path: Path, kind: type
) -> None:
    dataset = kind(filepath=f"{tmp_path}/x.any")
    with pytest.raises(DatasetError, match=re.escape(f"{tmp_path}/x.any")) as raised:
        dataset.save(object())
    assert ".tmp" not in str(raised.value)
    assert list(tmp_path.iterdir()) == []


def test_an_object_saves_itself_into_a_folder(tmp_path: Path) -> None:
    dataset = FolderDataset(
        filepath=f"{tmp_path}/weights", loader="anmi.retrieval.index.SparseIndex.load"
    )
    with pytest.raises(DatasetError, match="has no save"):
        dataset.save(3)
    dataset.save(Weights())
    with pytest.raises(DatasetError, match="make it again"):
        dataset.load()
    assert (dataset.local_copy() / "config.json").read_text() == '{"size": 64}'


@pytest.mark.parametrize(
    "name",
    [
        "os.system",
        "anmi.errors.difflib.get_close_matches",
        "anmi.store._private",
        "anmi.nothing.here",
        "anmi",
    ],
)
def test_a_loader_must_be_a_public_name_of_this_package(name: str) -> None:
    with pytest.raises(DatasetError, match=re.escape(repr(name))):
        resolve_loader(name)


def judged(block: Candidates) -> Candidates:
    return block.with_columns(
        {"cross": np.where(block.filled, block.documents / 4, np.nan)},
        {"cross": np.where(block.positives >= 0, 1.0, np.nan)},
        {"consistent": np.arange(len(block))},
    )


def test_columns_are_saved_without_their_block_and_joined_when_read(tmp_path: Path) -> None:
    shards = CandidateShards.of([block(0), block(10)])
    dataset = ColumnsDataset(filepath=f"{tmp_path}/judgments", version=Version(None, ONE))
    dataset.save(add_columns(IN_PROCESS, judged, shards))
    found = list(shards.joined(dataset.load()))
    for one, other in zip(found, map(judged, shards), strict=True):
        assert same(one, other)
    assert dataset.preview()["columns"] == ["c.cross", "p.cross", "q.consistent"]


def test_a_stage_that_had_nothing_to_add_leaves_a_folder_without_parts(tmp_path: Path) -> None:
    dataset = ColumnsDataset(filepath=f"{tmp_path}/ratings", version=Version(None, ONE))
    dataset.save(ColumnShards())
    assert dataset.exists() and not dataset.load() and dataset.preview() == {}
    assert list(dataset.local_copy().iterdir()) == []
    shards = CandidateShards.of([block(0)])
    assert shards.joined(dataset.load()) is shards
    with pytest.raises(DatasetError, match="ratings takes ColumnShards and was given Candidates"):
        ColumnsDataset(filepath=f"{tmp_path}/ratings", version=Version(None, TWO)).save(block(0))


def test_a_small_table_is_read_once_until_it_is_saved_or_released(
    tmp_path: Path, monkeypatch: Any
) -> None:
    table = TableDataset(filepath=str(tmp_path / "table.parquet"))
    table.save(pd.DataFrame({"number": [1, 2]}))
    first = table.load()
    pd.DataFrame({"number": [4]}).to_parquet(tmp_path / "table.parquet")
    first.loc[0, "number"] = 7
    first["more"] = 1
    assert table.load().to_dict("list") == {"number": [1, 2]}, (
        "what a node does to it reaches no other"
    )
    table.release()
    assert table.load().number.tolist() == [4]
    table.discard()
    table.save(pd.DataFrame({"number": [3]}))
    assert table.load().number.tolist() == [3]
    monkeypatch.setattr("anmi.datasets.files._SMALL", 0)
    table.release()
    table.load()
    pd.DataFrame({"number": [5]}).to_parquet(tmp_path / "table.parquet")
    assert table.load().number.tolist() == [5], "a large one is read each time"
