"""What a reader sees of Markdown, HTML and PDF files."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anmi.corpus.documents import KINDS, UnreadableError, of_html, of_markdown, of_pdf

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
    assert found.text.split("\n\n") == [
        "An oak is a tall tree; see Quercus. A leaf",
        "# no heading\ngrow(oak)",
        *("name height\noak 30 m", "First", "more of it", "Second", "Uses", "Wood & acorns\nand shade", "Trees"),
    ]


@pytest.mark.parametrize(
    ("source", "title", "text"),
    [
        ("---\ntitle: 'A: b'\ntags: [x]\n---\ntext", "A: b", "text"),
        ("---\ntags: [x]\n---\n# First\ntext", "First", "text"),
        ("---\ntitle: [a]\n---\ntext", "", "text"),
        ("---\ntitle: Oak\n---\n# OAK!\n\ntext", "Oak", "text"),
        ("---\nno yaml: [\n---\ntext", "no yaml: [", "text"),
        ("---\n\na rule\n\n---\n\ntext", "", "a rule\n\ntext"),
        ("text before\n\n# Title", "Title", "text before"),
        ("# \n\ntext", "", "text"),
        ("\ufeff# Oak\r\n\r\ntext\r\n", "Oak", "text"),
        ("# Oak\n\nA <select> of trees<br>\nhere\n\n<select>\n<nav>\n\ntext", "Oak", "A of trees\nhere\n\ntext"),
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
    assert found.text.split("\n\n") == [
        "Oak",
        "A tall tree of the north.\nIt grows.",
        "bark\nleaf",
        *("x = 1\n  y = 2", "name m\noak 30", "tail"),
    ]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ('<meta charset="latin-1"><p>été'.encode("latin-1"), "été"),
        ('<meta http-equiv="x" content="text/html; charset=windows-1251"><p>дуб'.encode("cp1251"), "дуб"),
        ('<?xml version="1.0" encoding="utf-8"?><html><body><p>дуб</p></body></html>'.encode(), "дуб"),
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


@pytest.mark.parametrize("declared", ["", "<meta charset=utf-8>", "<meta charset=nonsense>", "<meta charset=base64>"])
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
    """A page in the plainest PDF there is."""
    stream = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET"
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R /Resources "
        "<< /Font << /F1 5 0 R >> >> >>",
        f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        "<< /Title (On foxes) >>",
    ]
    body, places = "%PDF-1.4\n", []
    for number, each in enumerate(objects, start=1):
        places.append(len(body))
        body += f"{number} 0 obj\n{each}\nendobj\n"
    table = "".join(f"{place:010d} 00000 n \n" for place in places)
    count = len(objects) + 1
    trailer = f"trailer\n<< /Size {count} /Root 1 0 R /Info 6 0 R >>\nstartxref\n{len(body)}\n%%EOF"
    return f"{body}xref\n0 {count}\n0000000000 65535 f \n{table}{trailer}".encode()


def test_pdf() -> None:
    pytest.importorskip("pypdf")
    found = of_pdf(pdf("The red fox lives in the north."))
    assert (found.title, found.text) == ("On foxes", "The red fox lives in the north.")
    assert of_pdf(pdf("")).text == ""
