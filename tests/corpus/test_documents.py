"""Documents from files: which are found, what they are called, and what is set aside."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anmi.corpus.places import files_of_docs
from anmi.corpus.sources import fingerprint, load_collection
from anmi.errors import AnmiError

FOX = "The red fox is the largest of the true foxes and lives in most of the north."


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a document of every kind but PDF, two of which have one name."""
    for name, text in {
        "guide/index.md": f"---\ntitle: The guide\n---\n# Foxes\n\n{FOX}\n\n## Where\n\nIn the *north*.",
        "index.md": f"# Home\n\n{FOX} And so on.",
        "notes/a10.txt": "the tenth note",
        "notes/a2.txt": "the second note",
        "page.html": "<html><head><title>Page</title></head><body><h1>Dens</h1><p>Where foxes live.</p></body></html>",
        "rows.csv": 'ID,Title,Body,year\n7,"A, b","one\ntwo",1999\n8,,three,2000\n',
        "rows.jsonl": '{"content": "four", "metadata": {"parent": "x"}, "lang": "en"}\n\n{"content": "five"}\n',
        ".hidden/secret.txt": "nobody asked for this",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def loaded(place: Path, *patterns: str, **given: object):
    return load_collection("docs:" + ";".join(f"{place}/{pattern}" for pattern in patterns), language="en", **given)


def test_every_kind_is_read(place: Path) -> None:
    found = loaded(place, "**/*")
    corpus = found.corpus.set_index("document_id")
    assert corpus.index.tolist() == [
        *("guide/index.md", "index.md", "notes/a2.txt", "notes/a10.txt", "page.html", "7", "8"),
        *("rows.jsonl#1", "rows.jsonl#3"),
    ]
    assert corpus.title.tolist() == ["The guide", "Home", "", "", "Page", "A, b", "", "", ""]
    assert corpus.text["guide/index.md"] == f"Foxes\n\n{FOX}\n\nWhere\n\nIn the north."
    assert corpus.text["7"] == "one\ntwo"
    metadata = corpus.metadata.map(json.loads)
    assert metadata["guide/index.md"] == {"path": "guide/index.md", "headings": [["Foxes", 1], ["Where", 2]]}
    assert metadata["page.html"] == {"path": "page.html", "headings": [["Dens", 1]]}
    assert metadata["8"] == {"path": "rows.csv", "year": "2000"}
    assert metadata["rows.jsonl#1"] == {"path": "rows.jsonl", "lang": "en", "parent": "x"}
    assert (len(found.queries), len(found.qrels)) == (0, 0)
    assert found.notes["files"] == {".csv": 1, ".html": 1, ".jsonl": 1, ".md": 2, ".txt": 2}
    assert found.quarantine.empty


def test_ids_start_below_the_folder_that_all_patterns_share(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert loaded(place, "notes/*.txt").corpus.document_id.tolist() == ["a2.txt", "a10.txt"]
    both = ["notes/a2.txt", "notes/a10.txt", "guide/index.md"]
    assert loaded(place, "notes/*.txt", "guide/*").corpus.document_id.tolist() == both
    monkeypatch.chdir(place)
    relative = load_collection("docs: notes/*.txt ;guide/index.md; notes/a2.txt", language="en")
    assert relative.corpus.document_id.tolist() == both
    assert fingerprint(relative) == fingerprint(loaded(place, "notes/*.txt", "guide/*"))


@pytest.mark.parametrize("pattern", ["notes", "notes/", "notes/**", "notes/**/*"])
def test_a_folder_stands_for_what_is_below_it(place: Path, pattern: str) -> None:
    assert [name for name, _ in files_of_docs(f"{place}/{pattern}")] == ["a2.txt", "a10.txt"]


def test_hidden_files_are_read_where_they_are_named(place: Path) -> None:
    assert loaded(place, ".hidden/*.txt").corpus.document_id.tolist() == ["secret.txt"]
    (place / "notes" / ".draft.md").write_text("a draft", encoding="utf-8")
    assert loaded(place, "notes/.*").corpus.document_id.tolist() == [".draft.md"]
    with pytest.raises(AnmiError, match="but hidden ones"):
        loaded(place, "notes/*.md")


def test_separators_long_fields_and_named_columns(place: Path) -> None:
    long = "fox " * 50_000
    (place / "rows.csv").write_bytes(f"id;text\r\n1;{long}\r\n\r\n2;b, c\r\n".encode("utf-8-sig"))
    assert loaded(place, "rows.csv").corpus[["document_id", "text"]].values.tolist() == [["1", long], ["2", "b, c"]]
    table = "key\theadline\tbody\tabstract\nk1\tOne\tlong\tshort\n"
    (place / "rows.tsv").write_text(table, encoding="utf-8")
    found = loaded(place, "rows.tsv", columns={"id": "key", "title": "headline", "text": "abstract"}).corpus
    assert found[["document_id", "title", "text"]].values.tolist() == [["k1", "One", "short"]]
    assert json.loads(found.metadata[0]) == {"body": "long", "path": "rows.tsv"}
    assert loaded(place, "rows.tsv").corpus.document_id.tolist() == ["rows.tsv#2"]
    with pytest.raises(AnmiError, match=r'rows.tsv line 2 has no column "heading"; its columns are "key", "headline"'):
        loaded(place, "rows.tsv", columns={"title": "heading"})


def test_what_holds_no_text_is_listed_and_no_damage(place: Path) -> None:
    for name in ("empty.md", "blank.txt", "rows.csv", "rows.jsonl"):
        (place / name).write_text(" \n", encoding="utf-8")
    (place / "page.html").write_text("<!-- nothing --><script>x()</script>", encoding="utf-8")
    (place / "image.png").write_bytes(b"\x89PNG\r\n")
    found = loaded(place, "**/*", max_quarantine=0.0)
    assert len(found.corpus) == 4
    reasons = found.quarantine.set_index("id").reason
    empty = ["blank.txt", "empty.md", "page.html", "rows.csv", "rows.jsonl"]
    assert sorted(reasons.index[reasons == "there is no text in it"]) == empty
    assert "not read" in reasons["image.png"]
    assert ".pdf" in reasons["image.png"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"\x1f\x8b\x08\x00", "not UTF-8 (byte 0x8b at position 1)"), (b"a\0b", "zero byte"), (b"caf\xe9", "position 3")],
)
def test_a_file_that_is_no_text_is_set_aside(place: Path, content: bytes, reason: str) -> None:
    (place / "notes" / "b.txt").write_bytes(content)
    found = loaded(place, "**/*")
    (row,) = found.quarantine.to_dict("records")
    assert (row["kind"], row["id"], row["line"]) == ("document", "notes/b.txt", 0)
    assert reason in row["reason"]
    (place / "notes" / "c.txt").write_bytes(content)
    with pytest.raises(
        AnmiError, match=r"2 of 9 files are damaged, more than ingestion.max_quarantine 1.00%.*notes/b.txt"
    ):
        loaded(place, "**/*")


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), min_size=1), min_size=1, max_size=5))
def test_a_table_gives_back_any_text(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    import csv

    path = tmp_path_factory.mktemp("table") / "a.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([["id", "text"], *((f"r{i}", text) for i, text in enumerate(texts))])
    if not any(text.strip() for text in texts):
        return
    found = load_collection(f"docs:{path}", max_quarantine=1.0, language="en").corpus
    assert found.text.tolist() == [text for text in texts if text.strip()]
