"""The module reads documents from files: text, Markdown, HTML, PDF, and the rows of tables."""

from __future__ import annotations

import codecs
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from anmi.corpus.places import ROW_FILES, files_of_docs, kind_of
from anmi.corpus.rows import TextTable, read_rows
from anmi.corpus.texts import clean, normalised
from anmi.corpus.types import Options, RawCollection, check_share, table_of
from anmi.errors import AnmiError, installed

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

_FRONT_MATTER: Final = re.compile(
    r"(---|\+\+\+)[ \t]*\n(.*?)^(?:\1|\.\.\.)[ \t]*(?:\n|\Z)", re.MULTILINE | re.DOTALL
)
# A line of front matter, also where it is no YAML: a key, an item, what is indented, a comment.
_FRONT_LINE: Final = re.compile(r"\w[\w.-]*[ \t]*:|-\s|\s|#|\Z")
_TITLE_LINE: Final = re.compile(
    r"""^title[ \t]*:[ \t]*(?:(["'])((?:(?!\1).)*)\1[ \t]*$|(.*))""", re.MULTILINE
)
# What YAML has for nothing.
_NO_TITLE: Final = ("~", "null", "Null", "NULL")
_DECLARED: Final = re.compile(
    rb"""<(?:meta|\?xml)[^>]*?(?:charset|encoding)\s*=\s*["']?([\w.:-]+)""", re.IGNORECASE
)
_DECLARED_WITHIN: Final = 4096
_BLANKS: Final = re.compile(r"\s+")
_HEADINGS: Final = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
_TIGHT: Final = frozenset({"dd", "dt", "li", "option", "tr"})
_BLOCK_TAGS: Final = """
address article aside blockquote body caption details dialog div dl fieldset figcaption figure form
header hgroup hr
html main ol p pre section summary table tbody tfoot thead ul
"""
_BLOCKS: Final = _HEADINGS | _TIGHT | set(_BLOCK_TAGS.split())
_TAG_TEXTS: Final = {"br": "\n", "td": " ", "th": " "}
# What no reader of the page reads, and the menus of every page of a site.
_UNREAD_TAGS: Final = (
    "button footer head iframe nav noscript object script select style svg template textarea"
)
_UNREAD: Final = frozenset(_UNREAD_TAGS.split())
# Brackets take time by the square of their number, so no marks are looked for in endless
# paragraphs.
_LONGEST_PARAGRAPH: Final = 20_000
_BAR_FROM_FILES: Final = 200
# The first bytes of a file, which show whether it is blank.
_LOOK: Final = 65_536


class UnreadableError(Exception):
    """A file cannot be read; the reason goes to quarantine."""


class PlainText(NamedTuple):
    """What a reader sees of a file.

    Attributes
    ----------
    title
        Empty where there is none.
    text
        Paragraphs are apart by a blank line. A heading that is the title is not repeated here.
    headings
        Every other heading with its level from 1, in order; each stands in the text as a line of
        its own.
    """

    title: str
    text: str
    headings: tuple[tuple[str, int], ...] = ()


class _Block(NamedTuple):
    text: str
    level: int = 0
    tight: bool = False


def decode(data: bytes) -> str:
    r"""Return the text of a file in UTF-8, its lines ended by line feeds.

    Raises
    ------
    UnreadableError
        It is not UTF-8, or holds a zero byte, as no text does.

    Examples
    --------
    >>> decode(b"\xef\xbb\xbfa\r\nb")
    'a\nb'
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableError(
            f"it is not UTF-8 (byte {data[error.start]:#04x} at position {error.start}); convert it"
            " to UTF-8"
        ) from None
    if "\0" in text:
        raise UnreadableError(
            f"it holds a zero byte (at position {text.index(chr(0))}), so it is no text"
        )
    return text.replace("\r\n", "\n").replace("\r", "\n")


def of_markdown(data: bytes) -> PlainText:
    r"""Return the text of a Markdown file without its marks.

    The title is that of the front matter, or else the first heading. Code stays in the text, links
    keep their words, images their description.

    Raises
    ------
    UnreadableError
        See :func:`decode`.

    Examples
    --------
    >>> of_markdown(b"# Oak\n\nA *tall* [tree](x).\n\n## Where\n\n- here\n- there")
    PlainText(title='Oak', text='A tall tree.\n\nWhere\n\nhere\nthere', headings=(('Where', 2),))
    """
    title, body = _front_matter(decode(data))
    return _joined(title, _html_blocks(_markdown().render(body))[1])


def of_html(data: bytes) -> PlainText:
    r"""Return the visible text of an HTML page, without scripts, forms, ``nav`` and ``footer``.

    The title is that of its head, or else the first heading. The encoding is UTF-8 or what the page
    declares.

    Raises
    ------
    UnreadableError
        See :func:`decode`; or it is neither UTF-8 nor in the encoding it declares.

    Examples
    --------
    >>> of_html(b"<title>Oak</title><h1>Oak</h1><p>A <b>tall</b>\ntree.<h2>Where</h2>Here")
    PlainText(title='Oak', text='A tall tree.\n\nWhere\n\nHere', headings=(('Where', 2),))
    """
    try:
        text = decode(data)
    except UnreadableError:
        declared = _DECLARED.search(data[:_DECLARED_WITHIN])
        if declared is None:
            raise
        name = declared.group(1).decode()
        try:
            text = codecs.decode(data, name)
        except (LookupError, ValueError):
            text = ""
        if not isinstance(text, str) or not text or "\0" in text:
            raise UnreadableError(
                f"it is neither UTF-8 nor {name}, which it declares; convert it to UTF-8"
            ) from None
    return _joined(*_html_blocks(text))


def of_pdf(data: bytes) -> PlainText:
    """Return the text of a PDF file, page by page, and the title among its properties.

    Raises
    ------
    AnmiError
        The package that reads PDF is not installed.
    UnreadableError
        The file is damaged or encrypted.
    """
    pypdf = installed("pypdf", "reading PDF files", "pdf", "leave them out of the pattern")
    try:
        reader = pypdf.PdfReader(BytesIO(data))
        title = str((reader.metadata.title if reader.metadata else None) or "")
        pages = [page.extract_text() for page in reader.pages]
    except Exception as error:
        # Damaged files make pypdf raise almost anything, from its own errors to KeyError and
        # RecursionError.
        raise UnreadableError(
            f"it is no PDF file that can be read ({type(error).__name__}: {error})"
        ) from None
    return PlainText(
        _one_line(title),
        "\n\n".join(page.strip() for page in pages if page.strip()).replace("\0", ""),
    )


# By the ending of a file's name.
KINDS: Final[dict[str, Callable[[bytes], PlainText]]] = {
    **dict.fromkeys((".txt", ".rst"), lambda data: PlainText("", decode(data).strip())),
    **dict.fromkeys((".md", ".markdown"), of_markdown),
    **dict.fromkeys((".html", ".htm", ".xhtml"), of_html),
    ".pdf": of_pdf,
}
_ENDINGS: Final = ", ".join(sorted({*KINDS, *ROW_FILES}))


def _front_matter(source: str) -> tuple[str, str]:
    """Return the title of the YAML or TOML between two marks at the start, and what follows it."""
    matter = _FRONT_MATTER.match(source)
    title = _title_of(*matter.groups()) if matter else None
    if matter is None or title is None:
        return "", source
    return title, source[matter.end() :]


def _title_of(mark: str, block: str) -> str | None:
    """Return the title as it is written, or nothing; None of what is no front matter."""
    import yaml

    try:
        # Nothing is resolved: a version, a time or a word such as "yes" stays what it is.
        values = (
            yaml.BaseLoader(block).get_single_data()
            if mark == "---"
            else tomllib.loads(block, parse_float=str)
        )
    except (yaml.YAMLError, ValueError, RecursionError):
        # People write titles such as "Router: update", which are no YAML.
        if mark != "---" or not all(map(_FRONT_LINE.match, block.splitlines())):
            return None
        line = _TITLE_LINE.search(block)
        return _one_line(line[2] or line[3] or "") if line else ""
    if not isinstance(values, dict):  # Two rulers with text between them are no front matter.
        return None
    title = values.get("title", "")
    is_none = isinstance(title, list | dict) or title in _NO_TITLE
    return "" if is_none else _one_line(str(title))


@lru_cache
def _markdown() -> MarkdownIt:
    from lxml import etree
    from markdown_it import MarkdownIt
    from markdown_it.rules_core import StateCore
    from markdown_it.token import Token

    reader = MarkdownIt("commonmark").enable(["table", "strikethrough"])

    def inline(state: StateCore) -> None:
        for token in (token for token in state.tokens if token.type == "inline"):
            token.children = [Token("text", "", 0, content=token.content)]
            if len(token.content) <= _LONGEST_PARAGRAPH:
                token.children.clear()
                reader.inline.parse(token.content, reader, state.env, token.children)

    def closed(
        tokens: Sequence[Token],
        place: int,
        *_: Any,
    ) -> str:
        """Return HTML with all its tags closed: one left open would take what follows with it."""
        root = _parsed(tokens[place].content)
        return "" if root is None else etree.tostring(root, method="html", encoding="unicode")

    def line_break(
        tokens: Sequence[Token],
        place: int,
        *_: Any,
    ) -> str:
        # Who writes of a <select> may not have thought of the marks of code.
        return "<br>" if tokens[place].content.startswith("<br") else ""

    reader.core.ruler.at("inline", inline)
    rules: dict[str, Any] = {"html_block": closed, "html_inline": line_break}
    reader.renderer.rules |= rules  # type: ignore[attr-defined]
    return reader


def _parsed(source: str) -> Any:
    """Return the root of a page; None of a page without element or text."""
    from lxml import etree

    parser = etree.HTMLParser(
        encoding="utf-8",
        remove_comments=True,
        remove_pis=True,
        no_network=True,
    )
    try:
        return etree.fromstring(source.encode(), parser)
    except etree.LxmlError:
        return None


def _html_blocks(source: str) -> tuple[str, list[_Block]]:
    """Return the title in the head of a page, and its blocks."""
    from lxml import etree

    root = _parsed(source)
    if root is None:
        return "", []
    blocks: list[_Block] = []
    parts: list[str] = []
    preformatted = 0

    def end_block(tag: str) -> None:
        """End a block; what precedes a block inside another one is of no kind."""
        text = "".join(parts)
        parts.clear()
        if preformatted:
            text = text.strip("\n").rstrip()
        elif tag in _HEADINGS:
            # Sphinx and others put a link to itself behind every heading.
            text = _one_line(text).rstrip("¶").rstrip()
        else:
            lines = map(_one_line, text.split("\n"))
            text = "\n".join(lines).strip()
        if text.strip():
            level = int(tag[1]) if tag in _HEADINGS else 0
            blocks.append(_Block(text, level, tag in _TIGHT))

    walk = etree.iterwalk(root, events=("start", "end"))
    for event, element in walk:
        tag = element.tag
        starts = event == "start"
        hidden = tag in _UNREAD or element.get("hidden") is not None
        if hidden and starts:
            walk.skip_subtree()
            continue
        if not hidden:
            if tag in _BLOCKS:
                end_block("" if starts else tag)
            preformatted += (tag == "pre") * (1 if starts else -1)
            if starts and tag == "img":
                parts.append(element.get("alt") or "")
            elif starts:
                parts.append(_TAG_TEXTS.get(tag, ""))
        text = (element.text if starts else element.tail) or ""
        parts.append(text if preformatted else _BLANKS.sub(" ", text))
    end_block("")
    return _one_line(root.findtext(".//head/title") or ""), blocks


def _joined(title: str, blocks: Sequence[_Block]) -> PlainText:
    first = next((place for place, block in enumerate(blocks) if block.level), None)
    if first is not None:
        heading = blocks[first].text
        if not title or normalised(title) == normalised(heading):
            title = title or heading
            blocks = [*blocks[:first], *blocks[first + 1 :]]
    parts = [blocks[0].text] if blocks else []
    for block_above, block_below in pairwise(blocks):
        is_tight = block_above.tight and block_below.tight
        parts.append("\n" if is_tight else "\n\n")
        parts.append(block_below.text)
    headings = tuple((block.text, block.level) for block in blocks if block.level)
    return PlainText(title, "".join(parts).strip("\n"), headings)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _add_file(documents: TextTable, path: Path, name: str, document: PlainText) -> None:
    """Add a file as a document, unless it has no text."""
    if not document.title and not document.text:
        return
    metadata: dict[str, Any] = {"path": name}
    if document.headings:
        metadata["headings"] = document.headings
    documents.add(
        clean(name),
        clean(document.text),
        metadata,
        path,
        line=0,
        title=clean(document.title),
    )


def read_docs(location: str, options: Options) -> RawCollection:
    """Read documents from files; there are neither queries nor labels.

    A file of text, Markdown, HTML or PDF is one document, its id the path below the folder that all
    patterns share. Each row of a table is one, its id that of the row, or else path and line.
    Metadata hold the ``path``, ``headings`` where there are any, and the other columns of a row.

    A file that cannot be read counts as damage; one without text, or of another kind, is only
    listed.

    Parameters
    ----------
    location
        Patterns separated by semicolons, see :func:`anmi.corpus.places.files_of_docs`.
    options
        Of interest are ``columns`` (of tables) and ``max_quarantine`` (of damaged files).

    Raises
    ------
    AnmiError
        If a pattern matches no file, a table is damaged or lacks a column, an id occurs twice, too
        many files are damaged, or no document is found.
    """
    from tqdm import tqdm

    files = files_of_docs(location)
    documents = TextTable()
    kinds = Counter[str]()
    damaged = list[tuple[Any, ...]]()
    left_out = list[tuple[Any, ...]]()
    for name, path in tqdm(
        files,
        unit="file",
        desc="reading",
        disable=len(files) < _BAR_FROM_FILES or None,
    ):
        kind = kind_of(path)
        before = len(documents)
        entry = ("document", clean(name), str(path), 0)
        try:
            if kind in ROW_FILES:
                with path.open("rb") as file:
                    blank = not file.read(_LOOK).strip(b" \t\r\n\xef\xbb\xbf")
                rows = () if blank else read_rows(path)
                documents.add_rows(path, rows, options.columns, clean(name))
            elif kind in KINDS:
                _add_file(documents, path, name, KINDS[kind](path.read_bytes()))
            else:
                left_out.append((*entry, f"files of its kind are not read; {_ENDINGS} are"))
                continue
        except UnreadableError as error:
            damaged.append((*entry, str(error)))
            continue
        kinds[kind] += 1
        if len(documents) == before:
            left_out.append((*entry, "there is no text in it"))
    check_share(table_of(damaged), "files", len(files), options.max_quarantine)
    if not documents:
        _, _, first, _, reason = (damaged + left_out)[0]
        raise AnmiError(
            f"docs:{location} gives no document; of {len(files)} files the first is {first}:"
            f" {reason}"
        )
    notes = {"files": dict(sorted(kinds.items()))}
    return RawCollection(
        documents.table("document"),
        notes=notes,
        set_aside=table_of(damaged + left_out),
    )
