"""Documents from files: which are found, what a reader sees of each, and what is set aside."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anmi.corpus.documents import KINDS, UnreadableError, of_html, of_markdown, of_pdf
from anmi.corpus.places import files_of_docs
from anmi.corpus.sources import fingerprint, load_collection
from anmi.errors import AnmiError

FOX = "The red fox is the largest of the true foxes and lives in most of the north."


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a document of every kind but PDF, two of which have one name."""
    note = f"---\ntitle: The guide\n---\n# Foxes\n\n{FOX}\n\n## Where\n\nIn the *north*."
    page = "<html><head><title>Page</title></head><body><h1>Dens</h1><p>Where foxes live.</p>"
    four = '{"content": "four", "metadata": {"parent": "x"}, "lang": "en"}'
    for name, text in {
        "guide/index.md": note,
        "index.md": f"# Home\n\n{FOX} And so on.",
        "notes/a10.txt": "the tenth note",
        "notes/a2.txt": "the second note",
        "page.html": f"{page}</body></html>",
        "rows.csv": 'ID,Title,Body,year\n7,"A, b","one\ntwo",1999\n8,,three,2000\n',
        "rows.jsonl": f'{four}\n\n{{"content": "five"}}\n',
        ".hidden/secret.txt": "nobody asked for this",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def loaded(place: Path, *patterns: str, **given: object):
    return load_collection(
        "docs:" + ";".join(f"{place}/{pattern}" for pattern in patterns), language="en", **given
    )


def test_every_kind_is_read(place: Path) -> None:
    found = loaded(place, "**/*")
    corpus = found.corpus.set_index("document_id")
    ids = """guide/index.md index.md notes/a2.txt notes/a10.txt page.html 7 8 rows.jsonl#1
    rows.jsonl#3"""
    assert corpus.index.tolist() == ids.split()
    assert corpus.title.tolist() == ["The guide", "Home", "", "", "Page", "A, b", "", "", ""]
    assert corpus.text["guide/index.md"] == f"Foxes\n\n{FOX}\n\nWhere\n\nIn the north."
    assert corpus.text["7"] == "one\ntwo"
    metadata = corpus.metadata.map(json.loads)
    headings = [["Foxes", 1], ["Where", 2]]
    assert metadata["guide/index.md"] == {"path": "guide/index.md", "headings": headings}
    assert metadata["page.html"] == {"path": "page.html", "headings": [["Dens", 1]]}
    assert metadata["8"] == {"path": "rows.csv", "year": "2000"}
    assert metadata["rows.jsonl#1"] == {"path": "rows.jsonl", "lang": "en", "parent": "x"}
    assert (len(found.queries), len(found.qrels)) == (0, 0)
    assert found.notes["files"] == {".csv": 1, ".html": 1, ".jsonl": 1, ".md": 2, ".txt": 2}
    assert found.quarantine.empty


def test_ids_start_below_the_folder_that_all_patterns_share(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert loaded(place, "notes/*.txt").corpus.document_id.tolist() == ["a2.txt", "a10.txt"]
    both = ["notes/a2.txt", "notes/a10.txt", "guide/index.md"]
    assert loaded(place, "notes/*.txt", "guide/*").corpus.document_id.tolist() == both
    monkeypatch.chdir(place)
    relative = load_collection("docs: notes/*.txt ;guide/index.md; notes/a2.txt", language="en")
    assert relative.corpus.document_id.tolist() == both
    assert fingerprint(relative) == fingerprint(loaded(place, "notes/*.txt", "guide/*"))


@pytest.mark.parametrize(
    ("pattern", "ids"),
    [
        *[(pattern, ["a2.txt", "a10.txt"]) for pattern in ("n", "n/", "n/**", "n/**/*")],
        ("[2024] notes", ["a[1].md", "b.txt"]),
        ("[2024] notes/a[1].md", ["a[1].md"]),
        ("[2024] notes/*.[mt]*", ["a[1].md", "b.txt"]),
        ("[0-9]?.md", ["1x.md"]),
        ("**/a[[]1].md", ["[2024] notes/a[1].md"]),
    ],
)
def test_a_folder_is_all_below_it_and_brackets_in_names_of_what_is_there_are_no_wildcard(
    tmp_path: Path, pattern: str, ids: list[str]
) -> None:
    names = "[2024] notes/a[1].md|[2024] notes/b.txt|2/x.md|1x.md|n/a2.txt|n/a10.txt"
    for name in names.split("|"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"Of {name}.")
    assert [name for name, _ in files_of_docs(f"{tmp_path}/{pattern}")] == ids


def test_a_linked_folder_that_is_not_read_is_named(
    place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (place / "linked").symlink_to(place / "notes")
    assert len(loaded(place, "**/*").corpus) == 9
    assert f"{place}/linked is a link to a folder" in caplog.text
    assert loaded(place, "linked").corpus.document_id.tolist() == ["a2.txt", "a10.txt"]


def test_hidden_files_are_read_where_they_are_named(place: Path) -> None:
    assert loaded(place, ".hidden/*.txt").corpus.document_id.tolist() == ["secret.txt"]
    (place / "notes" / ".draft.md").write_text("a draft", encoding="utf-8")
    assert loaded(place, "notes/.*").corpus.document_id.tolist() == [".draft.md"]
    with pytest.raises(AnmiError, match="but hidden ones"):
        loaded(place, "notes/*.md")


def test_separators_long_fields_and_named_columns(place: Path) -> None:
    long = "fox " * 50_000
    (place / "rows.csv").write_bytes(f"id;text\r\n1;{long}\r\n\r\n2;b, c\r\n".encode("utf-8-sig"))
    rows = loaded(place, "rows.csv").corpus[["document_id", "text"]].values.tolist()
    assert rows == [["1", long], ["2", "b, c"]]
    table = "key\theadline\tbody\tabstract\nk1\tOne\tlong\tshort\n"
    (place / "rows.tsv").write_text(table, encoding="utf-8")
    columns = {"id": "key", "title": "headline", "text": "abstract"}
    found = loaded(place, "rows.tsv", columns=columns).corpus
    assert found[["document_id", "title", "text"]].values.tolist() == [["k1", "One", "short"]]
    assert json.loads(found.metadata[0]) == {"body": "long", "path": "rows.tsv"}
    assert loaded(place, "rows.tsv").corpus.document_id.tolist() == ["rows.tsv#2"]
    with pytest.raises(AnmiError, match=r'rows.tsv line 2 has no column "heading"; .* "headline"'):
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
    assert ".pdf" in reasons["image.png"], "the kinds that are read are listed"


def test_a_file_that_is_no_text_is_set_aside(place: Path) -> None:
    (place / "notes" / "b.txt").write_bytes(b"caf\xe9")
    found = loaded(place, "**/*")
    (row,) = found.quarantine.to_dict("records")
    assert (row["kind"], row["id"], row["line"]) == ("document", "notes/b.txt", 0)
    assert "position 3" in row["reason"] and len(found.corpus) == 9


MARKDOWN = """
Trees
=====

An [oak](https://example.org "x") is a **tall**
tree; see `Quercus`. ![A leaf](leaf.png)

```python
# no heading
grow(oak)
```

| name | height |
|------|--------|
| oak  | 30 m   |

1. First

   more of it
2. Second

<div align="center"><h2>Uses</h2>Wood &amp; acorns<br>and shade</div>

<!-- a comment -->
### Trees
"""


def test_markdown_is_plain_and_keeps_its_code() -> None:
    found = of_markdown(MARKDOWN.encode())
    assert found.title == "Trees"
    assert found.headings == (("Uses", 2), ("Trees", 3))
    blocks = """An oak is a tall tree; see Quercus. A leaf|# no heading
grow(oak)|name height
oak 30 m|First|more of it|Second|Uses|Wood & acorns
and shade|Trees"""
    assert found.text.split("\n\n") == blocks.split("|")


@pytest.mark.parametrize(
    ("source", "title", "text"),
    [
        ("---\ntitle: 'A: b'\ntags: [x]\n---\ntext", "A: b", "text"),
        ("---\ntags: [x]\n---\n# First\ntext", "First", "text"),
        ("---\ntitle: [a]\n---\ntext", "", "text"),
        ("---\ntitle: null\n---\ntext", "", "text"),
        ("---\ntitle: 'a' and 'b'\n---\ntext", "'a' and 'b'", "text"),
        *[
            (f"---\ntitle: {title}\ntags:\n- x\n---\ntext", title, "text")
            for title in [
                "Router: a",
                "[Draft] b",
                "*c",
                "@d",
                "{{ e }}",
                "'Tis: f",
                "yes",
                "010",
                "12:30",
                "1.10",
            ]
        ],
        ("---\n# made by hand\ntags: [x\n\tdraft: no\ntitle: 'a: b' \n---\ntext", "a: b", "text"),
        ("---\ntags: @x\n---\n# First\ntext", "First", "text"),
        ("---\na rule: [\nand text\n---\ntext", "a rule: [ and text", "text"),
        ('+++\ntitle = "Oak"\n[params]\ntags = ["x"]\n+++\ntext', "Oak", "text"),
        ("+++\nversion = 1.10\ntitle = 2024-05-01\n+++\ntext", "2024-05-01", "text"),
        ("+++\nno toml\n+++\ntext", "", "+++ no toml +++ text"),
        ("---\ntitle: Oak\n---\n# OAK!\n\ntext", "Oak", "text"),
        ("---\nno yaml: [\n---\ntext", "no yaml: [", "text"),
        ("---\n\na rule\n\n---\n\ntext", "", "a rule\n\ntext"),
        ("text before\n\n# Title", "Title", "text before"),
        ("# \n\ntext", "", "text"),
        ("\ufeff# Oak\r\n\r\ntext\r\n", "Oak", "text"),
        ("# A\n\nA <select> b<br>\nc\n\n<select>\n<nav>\n\ntext", "A", "A b\nc\n\ntext"),
    ],
)
def test_titles_of_markdown(source: str, title: str, text: str) -> None:
    found = of_markdown(source.encode())
    assert (found.title, found.text) == (title, text)


def test_html_is_what_a_reader_sees() -> None:
    found = of_html(
        b"""<!DOCTYPE html><html><head><title>Oak \xe2\x80\x94 Trees</title><style>p {}</style></head><body>
        <nav><a>Home</a></nav><script>track()</script>
        <h1>Oak<a class="headerlink">\xc2\xb6</a></h1>
        <p>A <b>tall</b>
           tree<!-- no --> of the <i>north</i>.<br>It grows.</p>
        <ul><li>bark</li><li>leaf <span hidden>no</span></li></ul>
        <pre>x = 1\n  y = 2</pre><table><tr><th>name<th>m<tr><td>oak<td>30</table>
        <footer>2026</footer>tail</body></html>"""
    )
    assert found.title == "Oak — Trees"
    assert found.headings == (("Oak", 1),)
    blocks = """Oak|A tall tree of the north.
It grows.|bark
leaf|x = 1
  y = 2|name m
oak 30|tail"""
    assert found.text.split("\n\n") == blocks.split("|")


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ('<meta charset="latin-1"><p>été'.encode("latin-1"), "été"),
        ('<meta http-equiv="x" content="text/html; charset=cp1251"><p>дуб'.encode("cp1251"), "дуб"),
        ('<?xml version="1.0" encoding="utf-8"?><html><p>дуб</p></html>'.encode(), "дуб"),
        (b"", ""),
        (b"<!-- only -->", ""),
        (b"words alone", "words alone"),
        (b"<p>1 < 2 &amp; &#x263a;", "1 < 2 & ☺"),
        (b"<div>" * 5_000 + b"deep", None),
    ],
)
def test_encodings_and_broken_pages(data: bytes, text: str | None) -> None:
    found = of_html(data)
    assert text is None or found.text == text


@pytest.mark.parametrize(
    "declared", ["", "<meta charset=utf-8>", "<meta charset=nonsense>", "<meta charset=base64>"]
)
def test_a_page_in_no_known_encoding(declared: str) -> None:
    with pytest.raises(UnreadableError, match=r"UTF-8"):
        of_html(f"{declared}<p>été".encode("latin-1"))


@pytest.mark.parametrize("kind", [".md", ".html", ".txt"])
@given(source=st.text())
def test_no_text_breaks_a_reader(kind: str, source: str) -> None:
    data = source.encode("utf-8", "surrogatepass")
    try:
        found = KINDS[kind](data)
    except UnreadableError:
        return
    found.text.encode()
    assert set(found.headings) <= set(found.text.split("\n"))
    assert "\n" not in found.title


def pdf(text: str) -> bytes:
    """A page in the plainest PDF there is, whose table of objects the reader has to find."""
    stream = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET"
    objects = (
        "<< /Type /Catalog /Pages 2 0 R >>",
        "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        "<< /Type /Page /Parent 2 0 R /Contents 4 0 R /Resources << /Font << /F1 5 0 R >> >> >>",
        f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        "<< /Title (On foxes) >>",
    )
    body = "".join(f"{number} 0 obj\n{line}\nendobj\n" for number, line in enumerate(objects, 1))
    return f"%PDF-1.4\n{body}trailer\n<< /Size 7 /Root 1 0 R /Info 6 0 R >>\nstartxref\n0\n%%EOF".encode()


def test_pdf() -> None:
    pytest.importorskip("pypdf")
    found = of_pdf(pdf("The red fox lives in the north."))
    assert (found.title, found.text) == ("On foxes", "The red fox lives in the north.")
    assert of_pdf(pdf("")).text == ""
