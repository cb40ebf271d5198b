"""Datasets in a bucket of a real S3 server on this machine: what is whole is found, what is half is not."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import numpy as np
import pandas as pd
import pytest
from kedro.io.core import DatasetError, Version
from moto.server import ThreadedMotoServer
from tests.datasets.test_datasets import CASES, block

from anmi import buckets
from anmi.candidates import CandidateShards
from anmi.cli.common import user_error
from anmi.datasets import (
    CandidateShardsDataset,
    FolderDataset,
    JsonDataset,
    NumpyDataset,
    StoreDataset,
)
from anmi.errors import AnmiError

ONE, TWO, THREE = (f"2026-01-0{day}T00.00.00.000Z" for day in (1, 2, 3))
NEWEST = Version(None, None)
BUCKET = "anmi-tests"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AWS")]:
            patch.delenv(name)
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        patch.setenv("AWS_ACCESS_KEY_ID", "tester")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "not-so-secret")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        boto3.client("s3").create_bucket(Bucket=BUCKET)
        yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def place(endpoint: str, request: pytest.FixtureRequest) -> str:
    """A prefix of its own for each test."""
    return f"s3://{BUCKET}/" + re.sub(r"\W+", "-", request.node.name)


def keys(place: str) -> list[str]:
    prefix = place.removeprefix(f"s3://{BUCKET}/")
    return [
        found.key.removeprefix(prefix)
        for found in boto3.resource("s3").Bucket(BUCKET).objects.filter(Prefix=prefix)
    ]


@pytest.fixture
def downloads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is downloaded while the test runs."""
    from s3fs import S3FileSystem

    seen: list[str] = []
    original = S3FileSystem._get_file

    async def counted(self: Any, source: str, *arguments: Any, **options: Any) -> Any:
        seen.append(source)
        return await original(self, source, *arguments, **options)

    monkeypatch.setattr(S3FileSystem, "_get_file", counted)
    return seen


class Index:
    """Something that saves itself, with a file in a folder and a name that is no plain ASCII."""

    def save(self, path: Path) -> None:
        (path / "inner folder").mkdir()
        (path / "inner folder" / "ä+b%20.bin").write_bytes(bytes(range(256)))
        (path / "empty").write_bytes(b"")


def content(loaded: Any) -> Any:
    if isinstance(loaded, Path):
        return {
            file.relative_to(loaded).as_posix(): file.read_bytes()
            for file in loaded.rglob("*")
            if file.is_file()
        }
    if isinstance(loaded, pd.DataFrame):
        return loaded.to_json()
    if isinstance(loaded, np.ndarray):
        return loaded.tolist()
    return loaded.whole().to_table() if isinstance(loaded, CandidateShards) else loaded


@pytest.mark.parametrize(("kind", "data", "options"), [*CASES, (FolderDataset, Index(), {})])
def test_what_is_saved_is_loaded_here_and_there(
    place: str, tmp_path: Path, kind: type, data: Any, options: dict[str, Any]
) -> None:
    version = Version(None, ONE)
    here, there = (
        kind(filepath=f"{root}/x.y", version=version, **options) for root in (tmp_path, place)
    )
    assert not there.exists() and not here.exists()
    for dataset in (here, there):
        dataset.save(data)
    another = kind(filepath=f"{place}/x.y", version=NEWEST, **options)
    assert another.exists() and here.exists()
    assert content(another.load()) == content(here.load()) == content(there.load())
    if kind is not FolderDataset:
        assert content(here.load()) == content(data)
    assert another.place() == f"{place}/x.y/{ONE}/x.y"
    with pytest.raises(DatasetError, match="must not exist"):
        kind(filepath=f"{place}/x.y", version=version).save(data)


def test_the_newest_whole_version_is_loaded_whoever_wrote_it(place: str) -> None:
    reader = JsonDataset(filepath=f"{place}/x.json", version=NEWEST)
    for version in (TWO, ONE):
        JsonDataset(filepath=f"{place}/x.json", version=Version(None, version)).save(version)
    assert reader.load() == TWO
    key = f"{place}/x.json/{THREE}/x.json".removeprefix(f"s3://{BUCKET}/")
    boto3.client("s3").put_object(Bucket=BUCKET, Key=key, Body=b'"from elsewhere"')
    reader.release()
    assert reader.load() == "from elsewhere"
    assert sorted(reader.list_versions(full_path=False)) == [ONE, TWO, THREE]
    assert JsonDataset(filepath=f"{place}/x.json", version=Version(ONE, None)).load() == ONE


def test_what_a_process_that_died_while_uploading_leaves_is_never_loaded(place: str) -> None:
    FolderDataset(filepath=f"{place}/c", version=Version(None, ONE)).save(Index())
    script = f"""
import os
from pathlib import Path
from kedro.io.core import Version
from s3fs import S3FileSystem
from anmi.datasets import FolderDataset
class Data:
    def save(self, path):
        for number in range(9):
            (path / f"{{number}}.txt").write_text("x")
put, sent = S3FileSystem._put_file, []
async def dying(self, source, *arguments, **options):
    sent.append(source)
    await put(self, source, *arguments, **options)
    if len(sent) >= 5:
        os._exit(9)
S3FileSystem._put_file = dying
FolderDataset(filepath={place + "/c"!r}, version=Version(None, {TWO!r})).save(Data())
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 9
    assert [key for key in keys(place) if TWO in key], (
        "the process was to die while something lay there"
    )
    dataset = FolderDataset(filepath=f"{place}/c", version=NEWEST)
    assert dataset.resolve_load_version() == ONE
    with pytest.raises(DatasetError, match="does not exist"):
        FolderDataset(filepath=f"{place}/c", version=Version(TWO, None)).load()
    # Saving again replaces it, and nothing of the first attempt is left among the new.
    FolderDataset(filepath=f"{place}/c", version=Version(None, TWO)).save(Index())
    dataset.release()
    assert content(dataset.load()).keys() == {"inner folder/ä+b%20.bin", "empty"}


def test_a_file_in_parts_is_seen_when_all_its_parts_are_there(place: str, monkeypatch: Any) -> None:
    from s3fs import S3FileSystem

    monkeypatch.setattr("s3fs.core.calculate_chunksize", lambda size, **_: 5 * 2**20)
    dataset = NumpyDataset(filepath=f"{place}/a.npy", version=Version(None, ONE))
    data = np.random.default_rng(0).integers(0, 255, 12 * 2**20, dtype=np.uint8)
    call, parts = S3FileSystem._call_s3, []

    async def failing(self: Any, method: str, *arguments: Any, **options: Any) -> Any:
        if method == "upload_part":
            parts.append(options["PartNumber"])
            if options["PartNumber"] == 2:
                raise OSError("the line broke")
        return await call(self, method, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(S3FileSystem, "_call_s3", failing)
        with pytest.raises(DatasetError, match="the line broke"):
            dataset.save(data)
    assert len(parts) > 1
    assert keys(place) == []
    assert "Uploads" not in boto3.client("s3").list_multipart_uploads(Bucket=BUCKET)
    dataset.save(data)
    np.testing.assert_array_equal(
        NumpyDataset(filepath=f"{place}/a.npy", version=NEWEST).load(), data
    )


def test_nothing_is_downloaded_twice(place: str, downloads: list[str]) -> None:
    writer = FolderDataset(filepath=f"{place}/c", version=Version(None, ONE))
    writer.save(Index())
    writer.load()
    assert downloads == [], "what was uploaded is still here"
    reader = FolderDataset(filepath=f"{place}/c", version=NEWEST)
    copy = reader.load()
    assert reader.load() == copy
    assert len(downloads) == 2
    reader.release()
    assert not copy.exists()
    assert (reader.load() / "empty").exists()
    assert len(downloads) == 4


def test_a_name_that_leads_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    import fsspec

    # A file system that keeps such names as they are; what an S3 server does with them is its own
    # affair.
    files = fsspec.filesystem("memory")
    files.store["/bucket/c/../../evil.txt"] = files.open("/other", "wb")
    files.pipe_file("/bucket/c/good.txt", b"x")
    try:
        with pytest.raises(AnmiError, match="would lead out of its folder"):
            buckets.download(files, "/bucket/c", tmp_path / "c", "memory://bucket/c")
    finally:
        del files.store["/bucket/c/../../evil.txt"]
    assert not list(tmp_path.rglob("evil.txt"))


WRONG: list[tuple[dict[str, str], str, str]] = [
    ({}, "s3://no-such-bucket/x", r"^s3://no-such-bucket/x\S*: there is no such bucket: create it"),
    (
        {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"},
        f"s3://{BUCKET}/x",
        r"cannot be reached \(.*AWS_ENDPOINT_URL$",
    ),
    (
        {"AWS_ENDPOINT_URL": "127.0.0.1"},
        f"s3://{BUCKET}/x",
        r"\(Invalid endpoint.*AWS_ENDPOINT_URL$",
    ),
    (
        {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""},
        f"s3://{BUCKET}/x",
        "without credentials: .*AWS_ACCESS",
    ),
]


@pytest.mark.parametrize(("variables", "root", "said"), WRONG)
@pytest.mark.parametrize("act", ["save", "load", "exists", "text"])
def test_what_is_wrong_is_one_sentence(
    endpoint: str, monkeypatch: Any, variables: dict[str, str], root: str, said: str, act: str
) -> None:
    import s3fs

    for name, value in variables.items():
        monkeypatch.setenv(name, value) if value else monkeypatch.delenv(name)
    # One attempt instead of five; how long an absent server is tried for is not what is tested.
    monkeypatch.setattr(s3fs.S3FileSystem, "retries", 1)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    s3fs.S3FileSystem.clear_instance_cache()
    try:
        with pytest.raises((AnmiError, DatasetError)) as caught:
            if act == "text":
                buckets.write_text(f"{root}/runs/run.json", "{}")
            else:
                dataset = CandidateShardsDataset(
                    filepath=root, version=Version(None, None if act != "save" else ONE)
                )
                {
                    "save": lambda: dataset.save(CandidateShards.of([block(0)])),
                    "load": dataset.load,
                    "exists": dataset.exists,
                }[act]()
        message = user_error(caught.value)
        assert message is not None
        assert re.search(said, message), message
        assert "\n" not in message
    finally:
        s3fs.S3FileSystem.clear_instance_cache()


def test_a_place_that_cannot_be_used_is_one_sentence() -> None:
    with pytest.raises(AnmiError, match="nowhere://x/y cannot be used"):
        JsonDataset(filepath="nowhere://x/y")
    with pytest.raises(AnmiError, match="needs a local disk"):
        StoreDataset(filepath="s3://bucket/x")


def test_a_small_file_that_is_not_there_is_none(place: str) -> None:
    assert buckets.read_text(f"{place}/run.json") is None
    buckets.write_text(f"{place}/run.json", "é")
    assert buckets.read_text(f"{place}/run.json") == "é"
