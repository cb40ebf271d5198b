"""The module reads documents from files without queries: text, Markdown, HTML and PDF, and the rows of tables."""

from __future__ import annotations

from collections import Counter
from typing import Final

from anmi.corpus.places import ROW_FILES, files_of_docs, kind_of
from anmi.corpus.plain_text import KINDS, UnreadableError
from anmi.corpus.rows import TextTable, read_rows
from anmi.corpus.texts import clean
from anmi.corpus.types import Options, RawCollection, check_share, table_of
from anmi.errors import AnmiError

_BAR_FROM_FILES: Final = 200
# The first bytes of a file, which show whether it is blank.
_LOOK: Final = 65_536
_ENDINGS: Final = ", ".join(sorted({*KINDS, *ROW_FILES}))


def read_docs(location: str, options: Options) -> RawCollection:
    """Read documents from files; there are neither queries nor labels.

    A file of text, Markdown, HTML or PDF is one document, its id the path below the folder that all patterns share.
    Each row of a table is one, its id that of the row, or else path and line. Metadata hold the ``path``,
    ``headings`` where there are any, and the other columns of a row.

    A file that cannot be read counts as damage; one without text, or of another kind, is only listed.

    Parameters
    ----------
    location
        Patterns separated by semicolons, see :func:`anmi.corpus.places.files_of_docs`.
    options
        Of interest are ``columns`` (of tables) and ``max_quarantine`` (of damaged files).

    Raises
    ------
    AnmiError
        If a pattern matches no file, a table is damaged or lacks a column, an id occurs twice, too many files are
        damaged, or no document is found.
    """
    from tqdm import tqdm

    files = files_of_docs(location)
    documents, kinds = TextTable("document"), Counter[str]()
    damaged: list[tuple[str, str, str, int, str]] = []
    left_out: list[tuple[str, str, str, int, str]] = []
    for name, path in tqdm(files, unit="file", desc="reading", disable=len(files) < _BAR_FROM_FILES or None):
        kind, before, entry = kind_of(path), len(documents), ("document", clean(name), str(path), 0)
        try:
            if kind in ROW_FILES:
                with path.open("rb") as file:
                    blank = not file.read(_LOOK).strip(b" \t\r\n\xef\xbb\xbf")
                documents.add_rows(path, () if blank else read_rows(path), options.columns, clean(name))
            elif kind in KINDS:
                found = KINDS[kind](path.read_bytes())
                if found.title or found.text:
                    metadata = {"path": name} | ({"headings": found.headings} if found.headings else {})
                    documents.add(clean(name), clean(found.text), metadata, path, 0, clean(found.title))
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
    if not len(documents):
        _, _, first, _, reason = (damaged + left_out)[0]
        raise AnmiError(f"docs:{location} gives no document; of {len(files)} files the first is {first}: {reason}")
    return RawCollection(
        documents.table(), notes={"files": dict(sorted(kinds.items()))}, set_aside=table_of(damaged + left_out)
    )
