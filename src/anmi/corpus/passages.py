"""The module cuts long documents at headings, paragraphs and sentences into passages."""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from anmi.corpus.sentences import count_words, sentences
from anmi.corpus.texts import (
    column,
    find_duplicates,
    joined_texts,
    normalised_forms,
    taken,
    to_json,
)
from anmi.corpus.types import Collection
from anmi.errors import AnmiError

log = logging.getLogger(__name__)

# Documents of more than LONG words are cut into passages of about TARGET words.
LONG: Final = 250
TARGET: Final = 120
# Where a smaller share of the documents is long, none is cut: a few documents in parts would be
# measured against many that are whole.
_LEAST_LONG: Final = 0.1
# Sections below this share of the target are joined with a neighbour.
_SHORT: Final = 0.4
# Up to a blank line.
_BLOCK: Final = re.compile(r"\S[^\n]*(?:\n(?![ \t]*\n)[^\n]*)*")
_MARKDOWN: Final = re.compile(r"(#{1,6})[ \t]+(\S.*?)[ \t]*#*")
_UNDERLINED: Final = re.compile(
    r"(?:[=\-~^\"*+#]{3,}\n)?[ \t]*(\S[^\n]*)\n([=\-~^\"*+#])\2{2,}[ \t]*"
)
_WORD: Final = re.compile(r"\s+")
# Separates a document's title and the headings above a passage.
SEPARATOR: Final = " › "
# At most so many characters of the first sentence replace a missing title.
_LEAD: Final = 160


class Passage(NamedTuple):
    """Start and end of a passage in its document, in characters, and the headings above it."""

    start: int
    end: int
    headings: tuple[str, ...]


class _Unit(NamedTuple):
    """What is not cut further: a sentence, a paragraph, or a heading with level and name."""

    start: int
    end: int
    words: int
    level: int = 0
    name: str = ""


def cut_text(
    text: str,
    target: int,
    language: str,
    headings: Sequence[tuple[str, int]] = (),
) -> list[Passage]:
    r"""Cut a text at headings, paragraphs and sentences into passages of about ``target`` words.

    Parameters
    ----------
    text
        Paragraphs are apart by blank lines.
    target
        Words of a passage, at least 1. One longer sentence is cut at a blank.
    language
        ISO 639-1 code, which says where sentences end.
    headings
        Lines of the text that are headings, in order, each with its level from 1. Those that
        Markdown marks or that are underlined are found without.

    Returns
    -------
    list of Passage
        In order; together they hold all words of the text.

    Examples
    --------
    >>> text = "# Oak\n\nTall. It is old.\n\n## Where\n\nIn the north of it."
    >>> [passage.headings for passage in cut_text(text, 6, "en")]
    [('Oak',), ('Oak', 'Where')]
    """
    sections: list[list[_Unit]] = []
    for unit in _units(text, target, language, list(headings)):
        # A heading begins a section, and stays with the one behind it.
        if not sections or (unit.level and not sections[-1][-1].level):
            sections.append([])
        sections[-1].append(unit)
    path: list[_Unit] = []
    passages = []
    groups: list[list[_Unit]] = []
    for section in _joined(sections, target):
        groups.extend(_evenly(section, target))
    for group in groups:
        leading = list(takewhile(lambda unit: unit.level, group))
        path = _under(path, leading)
        names = tuple(heading.name for heading in path)
        passages.append(Passage(group[0].start, group[-1].end, names))
        # Headings in the middle of a passage stay in its text, and are above the passages that
        # follow.
        path = _under(path, [unit for unit in group[len(leading) :] if unit.level])
    return passages


def _under(path: list[_Unit], headings: list[_Unit]) -> list[_Unit]:
    """Return the headings above what follows these headings."""
    for heading in headings:
        path = [*(above for above in path if above.level < heading.level), heading]
    return path


def _joined(sections: list[list[_Unit]], target: int) -> list[list[_Unit]]:
    """Return the sections, short ones with a neighbour."""
    joined: list[list[_Unit]] = []
    for section in sections:
        words = sum(unit.words for unit in section)
        shortest = _SHORT * target
        before = sum(unit.words for unit in joined[-1]) if joined else 0
        is_short = min(words, before) < shortest
        if joined and is_short and words + before <= target + shortest:
            joined[-1] += section
        else:
            joined.append(section)
    return joined


def _evenly(section: list[_Unit], target: int) -> Iterator[list[_Unit]]:
    """Yield a section in parts of about the same number of words."""
    words = sum(unit.words for unit in section)
    count = max(round(words / target), 1)
    part = list[_Unit]()
    size = 0
    ends = 1
    for unit in section:
        # A unit that lies mostly beyond the end of a part begins the next one; a heading alone is
        # no part.
        is_full = size + unit.words / 2 > ends * words / count
        if is_full and not all(member.level for member in part):
            yield part
            part = []
            ends = ends + 1
        part.append(unit)
        size += unit.words
    yield part


def _heading(block: str) -> tuple[int, str] | None:
    """Return level and name of a heading that is marked by # or underlined."""
    if marked := _MARKDOWN.fullmatch(block):
        return len(marked[1]), marked[2]
    lined = _UNDERLINED.fullmatch(block)
    return ({"=": 1, "-": 2}.get(lined[2], 3), lined[1]) if lined else None


def _units(
    text: str,
    target: int,
    language: str,
    headings: list[tuple[str, int]],
) -> Iterator[_Unit]:
    for match in _BLOCK.finditer(text):
        block = match[0].rstrip()
        begin = match.start()
        words = count_words(block)
        level_and_name = _heading(block)
        if headings and block == headings[0][0]:
            level_and_name = headings.pop(0)[1], (level_and_name or (0, block))[1]
        if level_and_name:
            yield _Unit(begin, begin + len(block), words, *level_and_name)
        elif words <= target:
            yield _Unit(begin, begin + len(block), words)
        else:
            for begins, end in sentences(block, language):
                yield from _parts(text, begin + begins, begin + end, target)


def _parts(
    text: str,
    start: int,
    end: int,
    target: int,
) -> Iterator[_Unit]:
    """Yield a sentence, or parts of one that is longer than a passage, such as a table."""
    pieces = math.ceil(count_words(text[start:end]) / target)
    size = math.ceil((end - start) / max(pieces, 1))
    while start < end:
        stop = min(start + size, end)
        blank = _WORD.search(text, stop, end) if stop < end else None
        # Where there is no blank nearby, as in Thai or Chinese, any character will do.
        if blank is not None and blank.start() - stop < size:
            stop = blank.start()
        piece = text[start:stop]
        if piece.strip():
            yield _Unit(start, stop, count_words(piece))
        later = text[stop:end]
        start = stop + len(later) - len(later.lstrip())


def cut_collection(
    collection: Collection,
    passages: Literal["auto", "none"] | int,
    parents: pd.Series,
) -> Collection:
    """Cut the long documents of a collection into passages.

    Parameters
    ----------
    collection
        As it was read. Documents that are queries themselves, or that state facts, stay whole.
    passages
        ``auto``: documents of more than 250 words become passages of about 120, if a tenth of the
        documents are that long. A number: of more than that many words, of about that many.
        ``none`` cuts nothing.
    parents
        What each document is a part of: another one's id, or its own.

    Returns
    -------
    Collection
        The corpus with the columns ``parent``, the id of the document, and ``start``, where the
        passage starts in its text, -1 where nothing was cut. Labels of a document that was cut are
        those of each of its passages; mining takes the best of them, see
        :func:`anmi.retrieval.pool.best_passages`.

    Raises
    ------
    AnmiError
        A passage would have the id of another document.
    """
    corpus = collection.corpus.assign(parent=parents.to_numpy(), start=np.int64(-1))
    cuts: dict[int, list[Passage]] = {}
    if passages == "auto":
        cuts = dict(_cuts(collection, LONG, TARGET))
    elif passages != "none":
        cuts = dict(_cuts(collection, passages, passages))
    if passages == "auto" and 0 < len(cuts) < _LEAST_LONG * len(corpus):
        note = (
            f"{len(cuts):,} of {len(corpus):,} documents have more than {LONG} words, under a"
            " tenth, so none is cut"
        )
        log.info("%s; ingestion.passages=%d cuts them", note, LONG)
        return replace(collection, corpus=corpus, notes=collection.notes | {"passages": note})
    if not cuts:
        return replace(collection, corpus=corpus)
    whole = ~np.isin(np.arange(len(corpus)), list(cuts))
    new = _passages_of(corpus, cuts, collection.language)
    uncut = corpus.assign(row=np.arange(len(corpus)))[whole]
    rows_in_any_order = pd.concat([uncut, new], ignore_index=True)
    order = np.argsort(rows_in_any_order["row"].to_numpy(), kind="stable")
    cut_corpus = rows_in_any_order.drop(columns="row").iloc[order].reset_index(drop=True)
    if len(again := cut_corpus["document_id"][cut_corpus["document_id"].duplicated()]):
        raise AnmiError(
            f'the document "{again.iloc[0]}" has the id of a passage; give it another id, or set'
            " ingestion.passages to none"
        )
    note = f"{len(cuts):,} of {len(corpus):,} documents are cut into {len(new):,} passages"
    log.info("%s: labels name documents, and mining looks for the passage", note)
    uncut_forms = collection.forms.filter(pa.array(whole))
    new_forms = normalised_forms(joined_texts(new))
    forms = pa.concat_arrays([uncut_forms, new_forms]).take(pa.array(order))
    return replace(
        collection,
        corpus=cut_corpus,
        qrels=spread(collection.qrels, cut_corpus),
        equivalents=spread(collection.equivalents, cut_corpus),
        judged=spread(collection.judged, cut_corpus),
        forms=forms,
        duplicates=find_duplicates(cut_corpus["document_id"], forms),
        notes=collection.notes | {"passages": note},
    )


def _cuts(
    collection: Collection,
    long: int,
    target: int,
) -> Iterator[tuple[int, list[Passage]]]:
    """Yield the rows of long documents and how they are cut."""
    whole = {*collection.queries["same_as"], *collection.facts["document_id"]}
    # A word takes at least two characters: two of a script without blanks, or one and a blank.
    lengths = collection.corpus["text"].str.len().to_numpy()
    rows = np.flatnonzero(lengths > 2 * long)
    names = ("document_id", "text", "metadata")
    columns = (taken(collection.corpus[name], rows) for name in names)
    for row, document, text, metadata in zip(rows.tolist(), *columns, strict=True):
        if document not in whole and count_words(text) > long:
            listed = json.loads(metadata).get("headings", ())
            headings = [(str(name), int(level)) for name, level in listed]
            parts = cut_text(text, target, collection.language, headings)
            if len(parts) > 1:
                yield row, parts


def _passages_of(
    corpus: pd.DataFrame,
    cuts: Mapping[int, list[Passage]],
    language: str,
) -> pd.DataFrame:
    """Return the passages of the long documents, each with the ``row`` of its document."""
    passages = []
    document: Any
    for (row, parts), document in zip(
        cuts.items(),
        corpus.iloc[list(cuts)].itertuples(),
        strict=True,
    ):
        # No passage carries the headings of the whole text.
        metadata = {
            name: value
            for name, value in json.loads(document.metadata).items()
            if name != "headings"
        }
        shared = (to_json(metadata), document.parent)
        lead = _lead(document.text, language)
        for number, part in enumerate(parts, start=1):
            # Without a title or a heading, a later passage would not say what it is about.
            names = dict.fromkeys((document.title, *part.headings))
            title = SEPARATOR.join(filter(None, names))
            if not title and number > 1:
                title = lead
            text = document.text[part.start : part.end]
            passages.append(
                (f"{document.document_id}#{number}", title, text, *shared, part.start, row)
            )
    columns = ["document_id", "title", "text", "metadata", "parent", "start", "row"]
    return pd.DataFrame(passages, columns=columns).astype(dict(corpus.dtypes))


def _lead(text: str, language: str) -> str:
    """Return the first sentence of a text, or the beginning of a long one."""
    start = text[: 4 * _LEAD].strip()
    sentence_start, sentence_end = next(iter(sentences(start, language)), (0, 0))
    lead = _WORD.sub(" ", start[sentence_start:sentence_end])
    if len(lead) <= _LEAD:
        return lead
    blank = lead.rfind(" ", _LEAD // 2, _LEAD)
    return lead[: blank if blank > 0 else _LEAD]


def spread(table: pd.DataFrame, corpus: pd.DataFrame) -> pd.DataFrame:
    """Return a table with a row for each passage in the place of that of their document."""
    passages = corpus["document_id"][corpus["start"] >= 0]
    passage_ids = pd.DataFrame(
        {"document_id": passages.str.rsplit("#", n=1).str[0], "passage": passages}
    )
    if not table["document_id"].isin(passage_ids["document_id"]).any():
        return table
    joined = table.merge(passage_ids, on="document_id", how="left")
    names = joined["passage"].where(joined["passage"].notna(), joined["document_id"])
    return joined.assign(document_id=column(names.tolist()))[table.columns]
