"""Nothing that a collection holds or a user mistypes reaches a file that was not meant."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anmi.corpus import sources
from anmi.corpus.places import files_of_pairs, inside
from anmi.errors import AnmiError, is_plain_name
from anmi.retrieval.encoders import check_name
from anmi.selection.recipe import RecipeBook

HOSTILE = (
    "../../etc/passwd",
    "..",
    "/etc/passwd",
    "~root/.ssh/id_rsa",
    "~nobody-of-that-name/x",
    "a\0b",
    "x" * 5000,
    "a/" * 3000,
    "a\nb",
    "%2e%2e%2fx",
    "CON",
    "nul.txt",
    "\\\\host\\share",
    "file:///etc/passwd",
    "\x1b[2J",
    "*",
    "**/*",
    "[",
    "{a,b}",
    "a\u202eb",
    ";",
    "@",
    "-rf",
    ".",
    "\ud800",
)
names = st.one_of(
    st.sampled_from(HOSTILE),
    st.text(max_size=40),
    st.lists(st.sampled_from(HOSTILE[:8])).map("/".join),
)


def write_collection(folder: Path) -> Path:
    (folder / "qrels").mkdir(parents=True)
    rows = "".join(f'{{"_id": "{i}", "text": "some text of number {i}"}}\n' for i in range(12))
    for name in ("corpus.jsonl", "queries.jsonl"):
        (folder / name).write_text(rows)
    labels = "".join(f"{i}\t{i}\t1\n" for i in range(12))
    (folder / "qrels" / "train.tsv").write_text("query-id\tcorpus-id\tscore\n" + labels)
    (folder / "entities.jsonl").write_text(
        '{"uri": "u:a", "label": "a"}\n{"uri": "u:b", "label": "b"}\n'
    )
    (folder / "triples.tsv").write_text("head\trelation\ttail\nu:a\tr\tu:b\n")
    (folder / "pairs_1.jsonl").write_text(
        '{"query": "some query", "document": "some document"}\n' * 2
    )
    return folder


@given(scheme=st.sampled_from(("beir", "kg", "pairs")), place=names)
@settings(max_examples=150)
def test_a_place_that_is_none_is_told_in_one_sentence(
    scheme: str, place: str, tmp_path: Path
) -> None:
    with pytest.raises(AnmiError) as caught:
        # Below an empty folder, so that no example reads what lies on this machine.
        sources.load_collection(f"{scheme}:{tmp_path}/empty/{place}")
    assert not set(str(caught.value)) & set("\x1b\0\u202e")


@pytest.mark.parametrize("place", HOSTILE)
def test_a_place_is_never_taken_for_another_one(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert not is_plain_name(place) or place in ("CON", "nul.txt")
    for scheme in ("beir", "kg", "pairs"):
        with pytest.raises(AnmiError):
            sources.load_collection(f"{scheme}:{place}")
    if place not in (".", ".."):
        with pytest.raises(AnmiError):
            check_name(f"{place}/x/y")


LINKED = {
    "corpus.jsonl": "beir",
    "queries.jsonl": "beir",
    "qrels/train.tsv": "beir",
    "entities.jsonl": "kg",
    "triples.tsv": "kg",
    "pairs_1.jsonl": "pairs",
}


def read(scheme: str, folder: Path) -> None:
    place = f"{folder}/pairs_*.jsonl" if scheme == "pairs" else str(folder)
    sources.load_collection(f"{scheme}:{place}", max_quarantine=0.9)


@pytest.mark.parametrize("name", LINKED)
@pytest.mark.parametrize("absolute", [True, False])
def test_a_link_out_of_a_collection_is_refused(name: str, absolute: bool, tmp_path: Path) -> None:
    folder = write_collection(tmp_path / "collection")
    secret = tmp_path / "credentials"
    secret.write_text("aws_secret_access_key = Zq7Leak")
    file = folder / name
    file.unlink()
    file.symlink_to(secret if absolute else Path(os.path.relpath(secret, file.parent)))
    with pytest.raises(AnmiError, match="is a link that leads out of") as caught:
        read(LINKED[name], folder)
    assert str(file) in str(caught.value)
    assert "Zq7Leak" not in str(caught.value)


@pytest.mark.parametrize("scheme", ["beir", "kg", "pairs"])
def test_the_folder_itself_and_links_inside_it_are_followed(scheme: str, tmp_path: Path) -> None:
    folder = write_collection(tmp_path / "collection")
    (folder / "corpus.jsonl").rename(folder / "documents.jsonl")
    (folder / "corpus.jsonl").symlink_to("documents.jsonl")
    (tmp_path / "link").symlink_to(folder)
    read(scheme, tmp_path / "link")


def test_a_file_that_is_named_in_full_may_be_a_link(tmp_path: Path) -> None:
    target = write_collection(tmp_path / "collection") / "pairs_1.jsonl"
    folder = tmp_path / "others"
    folder.mkdir()
    (folder / "link.jsonl").symlink_to(target)
    assert [path for _, _, found in files_of_pairs(f"{folder}/link.jsonl") for path in found] == [
        folder / "link.jsonl"
    ]
    with pytest.raises(AnmiError, match="leads out"):
        files_of_pairs(f"{folder}/l*.jsonl")


@given(name=names)
@settings(max_examples=100)
def test_what_is_inside_stays_inside(name: str, tmp_path: Path) -> None:
    try:
        found = inside(tmp_path / name, tmp_path)
    except AnmiError:
        return
    assert found.resolve().is_relative_to(tmp_path.resolve())


@given(names)
@settings(max_examples=200)
def test_recipes_name_files_only_by_plain_names(name: str) -> None:
    if is_plain_name(name):
        assert Path("folder", f"{name}-seed1.json").parent == Path("folder")
        assert len(name) <= 100
        assert name.isprintable()
        return
    if name in ("*", "", *RecipeBook.model_fields):
        return
    with pytest.raises(ValueError, match=r"letters|valid string"):
        RecipeBook.model_validate({name: {"description": "one"}})


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, link, 0o4777
    info.size = 5 if kind == tarfile.REGTYPE else 0
    return info


ARCHIVES: dict[str, Callable[[], tarfile.TarInfo]] = {
    "a path that leads out": lambda: member("../owned"),
    "an absolute link": lambda: member("a", tarfile.SYMTYPE, "/etc/passwd"),
    "a link that leads out": lambda: member("a", tarfile.SYMTYPE, "../../owned"),
    "a hard link": lambda: member("a", tarfile.LNKTYPE, "../owned"),
    "a device": lambda: member("a", tarfile.CHRTYPE),
}


def unpack_with_ir_datasets(archive: Path, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unpack as ir_datasets does with what it has downloaded: no filter is named."""
    monkeypatch.setattr(tarfile.TarFile, "extraction_filter", None, raising=False)
    with pytest.raises(AnmiError, match="not known to ir_datasets"):
        sources.load_collection("ir_datasets:nothing")
    with tarfile.open(archive) as opened:
        opened.extractall(target)


@pytest.mark.parametrize("kind", ARCHIVES)
@pytest.mark.skipif(
    not hasattr(tarfile, "data_filter"), reason="before Python 3.11.4 nothing is unpacked"
)
def test_an_archive_cannot_leave_its_folder(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = ARCHIVES[kind]()
    with tarfile.open(tmp_path / "a.tar", "w") as made:
        made.addfile(info, io.BytesIO(b"owned") if info.isreg() else None)
    with pytest.raises(tarfile.FilterError):
        unpack_with_ir_datasets(tmp_path / "a.tar", tmp_path / "deep" / "target", monkeypatch)
    assert not [path for path in tmp_path.rglob("*") if path.name == "owned"]


@pytest.mark.skipif(
    not hasattr(tarfile, "data_filter"), reason="before Python 3.11.4 nothing is unpacked"
)
def test_an_honest_archive_loses_special_permissions_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as made:
        made.addfile(member("folder/file"), io.BytesIO(b"owned"))
    unpack_with_ir_datasets(tmp_path / "a.tar", tmp_path, monkeypatch)
    assert (tmp_path / "folder" / "file").read_bytes() == b"owned"
    assert not (tmp_path / "folder" / "file").stat().st_mode & 0o7022
