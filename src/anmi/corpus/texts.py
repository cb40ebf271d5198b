"""The module handles columns of texts as Arrow arrays, metadata, and equal texts."""

from __future__ import annotations

import html
import json
import re
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import regex

from anmi.ragged import Bools, Int32s, Int64s

Texts: TypeAlias = Sequence[str] | pd.Series | pa.Array | pa.ChunkedArray


def arrow(values: Texts) -> pa.LargeStringArray:
    """Return texts as one Arrow array; that of a column of texts shares its memory.

    Examples
    --------
    >>> arrow(["a", "b"]).to_pylist(), str(arrow(pd.Series([], dtype=object)).type)
    (['a', 'b'], 'large_string')
    """
    if not isinstance(values, pa.Array | pa.ChunkedArray):
        values = pa.array(
            values if isinstance(values, pd.Series) else list(values), from_pandas=True
        )
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    return values if values.type == pa.large_string() else values.cast(pa.large_string())


def column(values: Texts) -> pd.Series:
    """Return texts as a column of pandas' own kind of texts.

    Examples
    --------
    >>> column(["a"]).dtype == pd.Series(["a"], dtype="str").dtype
    True
    """
    dtype = pd.Series([], dtype="str").dtype
    array = arrow(values)
    # pandas before 3 has no such kind, and keeps objects.
    return (
        pd.Series(dtype.__from_arrow__(array))
        if hasattr(dtype, "__from_arrow__")
        else array.to_pandas()
    )


def among(values: Texts, members: Texts) -> Bools:
    """Say for each text whether it is one of ``members``, bool [N]; faster than pandas' ``isin``.

    Examples
    --------
    >>> among(["a", "b"], pd.Series(["b", "c"])).tolist()
    [False, True]
    """
    is_member = pc.is_in(arrow(values), value_set=arrow(members))
    return np.asarray(is_member.to_numpy(zero_copy_only=False), bool)


def pairs_among(table: pd.DataFrame, labels: pd.DataFrame) -> Bools:
    """Say for each row whether another table has its query and document, bool [N]."""
    pair = ["query_id", "document_id"]
    pairs = pd.MultiIndex.from_frame(table[pair])
    return np.asarray(pairs.isin(pd.MultiIndex.from_frame(labels[pair])), bool)


def containing(values: Texts, part: str) -> Int64s:
    """Return the places of the texts that contain a part, rising.

    Examples
    --------
    >>> containing(["ab", "c", "cab"], "ab").tolist()
    [0, 2]
    """
    return np.flatnonzero(pc.match_substring(arrow(values), part).to_numpy(zero_copy_only=False))


def taken(values: Texts, places: Iterable[int] | Int64s) -> list[str]:
    """Return the texts at some places.

    Examples
    --------
    >>> taken(pd.Series(["a", "b"]), [1])
    ['b']
    """
    return arrow(values).take(pa.array(np.asarray(places, dtype=np.int64))).to_pylist()


def first_rows(values: Texts) -> Int64s:
    """Return the first place of the same text for each text, int64 [N].

    Examples
    --------
    >>> first_rows(["a", "b", "a"]).tolist()
    [0, 1, 0]
    """
    # Texts are numbered in the order in which they first occur.
    number = arrow(values).dictionary_encode().indices.to_numpy()
    return np.unique(number, return_index=True)[1][number]


def joined_texts(corpus: pd.DataFrame) -> pa.LargeStringArray:
    """Return title and text of every document joined by a blank, as an Arrow array."""
    blank = pa.scalar(" ", pa.large_string())
    joined = pc.binary_join_element_wise(arrow(corpus["title"]), arrow(corpus["text"]), blank)
    return arrow(pc.utf8_trim_whitespace(joined))


def document_texts(corpus: pd.DataFrame) -> list[str]:
    """Return title and text of every document joined by a blank, in corpus order.

    Examples
    --------
    >>> document_texts(pd.DataFrame({"title": ["", "A"], "text": ["b", "c"]}))
    ['b', 'A c']
    """
    return joined_texts(corpus).to_pylist()


def clean(text: str) -> str:
    r"""Replace halves of surrogate pairs, which JSON can hold and no UTF-8 file can.

    Examples
    --------
    >>> clean("a\ud800")
    'a�'
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def to_json(value: Any) -> str:
    """Return compact JSON; what JSON has no form for, such as a date, becomes text."""
    return clean(
        json.dumps(
            value,
            ensure_ascii=False,
            separators=(",", ":"),
            default=str,
        )
    )


def values_of(
    metadata: Iterable[str | None],
    name: str,
    default: str,
) -> list[str]:
    """Return one entry of each JSON object, and the default where it is missing or empty.

    Examples
    --------
    >>> values_of(['{"source": "sae4k"}', "{}", None], "source", "unknown")
    ['sae4k', 'unknown', 'unknown']
    """
    # Metadata often repeat, and those without the name (which escapes may hide) need not be parsed.
    values: dict[str, str] = {}
    quoted = json.dumps(name)
    result = []
    for text in metadata:
        key = text if isinstance(text, str) else ""
        if key not in values:
            value = json.loads(key).get(name) if quoted in key or "\\" in key else None
            values[key] = str(value) if value else default
        result.append(values[key])
    return result


def values_by_id(
    table: pd.DataFrame,
    key: str,
    name: str,
    default: str,
) -> dict[str, str]:
    """Return an entry of the ``metadata`` by the column ``key``."""
    return dict(zip(table[key], values_of(table.metadata, name, default), strict=True))


# Of punctuation beyond ASCII, what ends no sentence and opens or closes nothing, such as ‰ and ′.
_SIGN: Final = regex.compile(r"(?V1)[\p{ASCII}[\p{Po}--\p{Terminal_Punctuation}--[¡¿]]]")


# 10² is not 102.
_TELLING: Final = ("<super>", "<sub>", "<fraction>")
_TATWEEL: Final = 0x640
# Hebrew and Arabic, whose marks are left out by most who write; and jamo that stand alone, which
# are not to be composed.
_POINTED: Final = range(0x591, 0x6EE)
_JAMO: Final = range(0x3131, 0x318F)


class _Letters(dict[int, str]):
    """Translation table that learns the form by which a letter or a digit counts."""

    def __missing__(self, code: int) -> str:
        value = character = chr(code)
        kind = unicodedata.decomposition(character).partition(" ")[0]
        if kind.startswith("<") and kind not in _TELLING and code not in _JAMO:
            value = unicodedata.normalize("NFKC", character)
            # An accent that stands alone, or a phrase in one character.
            value = character if " " in value and not value.isspace() else value
        if code == _TATWEEL or (code in _POINTED and unicodedata.category(character) == "Mn"):
            value = ""
        if character.isdecimal():
            value = str(unicodedata.decimal(character))
        self[code] = value
        return value


_LETTERS: Final = _Letters({ord("ک"): "ك", ord("ی"): "ي"})


def one_form(text: str) -> str:
    """Return a text in one form of each letter, without Hebrew points and Arabic harakat.

    Examples
    --------
    >>> one_form("ＡＢＣ ﾌﾟﾘﾝﾀｰ שָׁלוֹם"), one_form("10² ½")
    ('ABC プリンター שלום', '10² ½')
    """
    composed = unicodedata.normalize("NFC", text)
    return unicodedata.normalize("NFC", composed.translate(_LETTERS))


class _Blanks(dict[int, str]):
    """Translation table that learns what is white-space, punctuation or invisible."""

    def __init__(self, with_signs: bool) -> None:
        self.with_signs = with_signs

    def __missing__(self, code: int) -> str:
        character = chr(code)
        category = unicodedata.category(character)
        # Invisible joiners and byte-order marks vanish: a blank in their place would split Hindi or
        # Persian words. Combining marks and symbols stay: they carry Hindi vowels and the
        # difference between "<" and ">".
        blank = category[0] in "PZ" or category == "Cc"
        if category[0] == "P" and self.with_signs and _SIGN.match(character):
            blank = False
        value = "" if category == "Cf" else " " if blank else character
        self[code] = value
        return value


_BLANKS: Final = _Blanks(with_signs=True)
_BLANKS.update((ord(dash), "-") for dash in "‐‑‒–−")
_BLANKS.update((ord(apostrophe), "'") for apostrophe in "’ʼ")
_ALL_BLANKS: Final = _Blanks(with_signs=False)
_ASCII_BLANKS: Final = bytes(ord(_BLANKS[code]) if code < 128 else code for code in range(256))
_ENTITY: Final = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[a-zA-Z]\w{1,30});")
_INLINE_TAG: Final = (
    r"(?:[abisuq]|(?i:em|strong|span|code|mark|small|big|font|kbd|tt|del|ins|abbr|cite))"
    r"(?:\s[^<>]*)?>"
)
_BLOCK_TAG: Final = (
    r"(?:p|(?i:br|div|li|[uo]l|h[1-6]|pre|blockquote|hr|td|th|tr|table|tbody))(?:\s[^<>]*)?/?>"
)
_CLOSED: Final = r"(?<=[^\s(\[{\"'`])</"
_INLINE: Final = re.compile(rf"<{_INLINE_TAG}(?=[\w<])|{_CLOSED}{_INLINE_TAG}")
_BLOCK: Final = re.compile(
    rf"<{_BLOCK_TAG}(?=[\w<(\"'¿])|(?<=[\w.,;:!?)>])<{_BLOCK_TAG}|{_CLOSED}{_BLOCK_TAG}"
)
_EMPHASIS: Final = re.compile(r"(?<![\w*])(\*{1,3})(?=[^\s*])([^*]*[^\s*])\1(?![\w*])")
_LINK: Final = re.compile(r"\[([^\[\]]+)\]\([^()\s]+\)")
_HEADING: Final = re.compile(r"^#{1,6} +", re.MULTILINE)
_LOOKALIKES: Final = str.maketrans("асеорхуіјѕһԁԛԝοανικρτυχ", "aceopxyijshdqwoavikptux")
_OPENING: Final = "([{\"'`"
_CLOSING: Final = ".,;:!?)]}\"'`"
_BRACKETS: Final = {")": "(", "]": "[", "}": "{"}
# Texts whose words are cut together, each once; bounds memory.
CUT_AT_ONCE: Final = 16_384
# A hyphen that joins words and a comma say no more than a blank, unless they stand between digits.
_JOINT: Final = re.compile(r"(?<=[^\W\d])-(?=\w)|(?<=\d)-(?=[^\W\d])|(?<!\d),|,(?!\d)")
# Where no blanks part words, punctuation does.
_UNSPACED: Final = r"[\p{Han}\p{Hira}\p{Kana}\p{Thai}\p{Laoo}\p{Khmr}\p{Mymr}]"
_MARKS: Final = r"[.,;:!?()\[\]{}\"'`]"
_BESIDE_UNSPACED: Final = regex.compile(
    rf"(?V1)(?<={_UNSPACED}){_MARKS}+|(?<!{_MARKS}){_MARKS}+(?={_UNSPACED})"
)


def normalised(text: str) -> str:
    """Return the text in one form, without case, markup and the punctuation of sentences.

    Signs in or at a word or a number stay, and so do operators between blanks; what goes is the
    punctuation at the end of a token, brackets and quotes around it, hyphens that join words, and
    dashes between blanks. A text of nothing but punctuation stays as it is, so that two of them are
    not taken for the same.

    Examples
    --------
    >>> normalised("What is  (are) ＡＬＬ?"), normalised("Is C# at −5 ° – or 50%?")
    ('what is are all', 'is c# at -5 ° or 50%')
    >>> normalised("?!")
    '?!'
    """
    text = _without_markup(text)
    return " ".join(filter(None, map(_normalised_token, text.split()))) or text.strip()


@lru_cache(1 << 18)
def _normalised_token(token: str) -> str:
    """Return the normalised words of what stands between two blanks."""
    if token.isascii():
        # These characters are composed already and none of them vanishes.
        folded = token.encode().lower().translate(_ASCII_BLANKS).decode()
    else:
        # A dotted I is an i in every language.
        lowered = one_form(token).casefold().replace("i\u0307", "i")
        folded = one_form(lowered).translate(_BLANKS)
        folded = _BESIDE_UNSPACED.sub(" ", folded)
    return " ".join(filter(None, map(_without_punctuation, folded.split())))


def _without_markup(text: str) -> str:
    """Return a text without HTML entities, the tags around words, and the marks of Markdown.

    A tag between blanks is what the text speaks of, and stays.

    Examples
    --------
    >>> _without_markup("<p>What is <b>R&amp;D</b>?</p>"), _without_markup("# Why **a** <br>")
    ('What is R&D?', 'Why a <br>')
    """
    if "&" in text:
        text = _ENTITY.sub(lambda entity: html.unescape(entity[0]), text)
    if "<" in text:
        text = _BLOCK.sub(" ", _INLINE.sub("", text)).strip()
    if "*" in text:
        text = _EMPHASIS.sub(r"\2", text)
    if "](" in text:
        text = _LINK.sub(r"\1", text)
    return _HEADING.sub("", text) if "# " in text else text


def telling(form: str, stop: Collection[str]) -> str:
    """Return the telling words of a normalised text, letters as those they look like.

    Examples
    --------
    >>> telling("what is the сеll", {"is", "the"})
    'what cell'
    """
    return " ".join(word for word in form.translate(_LOOKALIKES).split() if word not in stop)


@lru_cache(1 << 18)
def _without_punctuation(token: str) -> str:
    """Return a token without the punctuation of its sentence.

    Examples
    --------
    >>> [_without_punctuation(token) for token in ("(.net),", "f(x).", "...so", "--", "x-ray")]
    ['.net', 'f(x)', 'so', '', 'x ray']
    """
    if token in ("()", "[]", "{}"):
        return token
    opened = token.lstrip(_OPENING)
    end = len(opened.rstrip(_CLOSING))
    core = opened[:end]
    # A bracket that was opened within the token belongs to it.
    surplus = {
        closing: core.count(opening) - core.count(closing) for closing, opening in _BRACKETS.items()
    }
    for character in opened[end:]:
        if surplus.get(character, 0) <= 0:
            break
        surplus[character] -= 1
        end += 1
    core = opened[:end]
    word = core.lstrip(".")
    if len(core) - len(word) > 1 and word[:1].isalnum():
        core = word
    parts = _JOINT.sub(" ", core).split() if core.strip("-·•") else []
    # What a comma parted may have quotes of its own.
    return core if parts == [core] else " ".join(filter(None, map(_without_punctuation, parts)))


def without_signs(text: str) -> str:
    """Return a text in NFKC, case-folded, with all its punctuation as blanks.

    Examples
    --------
    >>> without_signs("C# at 1.5")
    'c at 1 5'
    """
    # Case folding can undo a composition, hence the second NFKC.
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return " ".join(folded.translate(_ALL_BLANKS).split()) or text.strip()


def runs_of(texts: Sequence[str]) -> tuple[list[str], Int32s, Int64s]:
    """Return the different runs between blanks, those of all texts in a row, and the texts' starts.

    Examples
    --------
    >>> runs, held, starts = runs_of(["a b a", "b"])
    >>> runs, held.tolist(), starts.tolist()
    (['a', 'b'], [0, 1, 0, 1], [0, 3, 4])
    """
    lines = pc.replace_substring(pa.array(texts, pa.large_string()), "\n", " ")
    rows = pc.split_pattern(lines, " ")
    # Only different runs become strings of Python.
    runs = rows.flatten().dictionary_encode()
    starts = np.concatenate([[0], np.cumsum(pc.list_value_length(rows).to_numpy())])
    return runs.dictionary.to_pylist(), runs.indices.to_numpy(), starts


def normalised_forms(texts: Texts) -> pa.LargeStringArray:
    """Return the :func:`normalised` texts as an Arrow array.

    What stands between two blanks is normalised once for :data:`CUT_AT_ONCE` texts.
    """
    values = arrow(texts)
    starts = range(0, len(values), CUT_AT_ONCE)
    blocks = [_forms(values[start : start + CUT_AT_ONCE].to_pylist()) for start in starts]
    return pa.concat_arrays([pa.array([], pa.large_string()), *blocks])


def _forms(texts: list[str]) -> pa.LargeStringArray:
    """Return the normalised texts; each different word is normalised once."""
    plain_texts = [_without_markup(text) for text in texts]
    runs, places, starts = runs_of(plain_texts)
    forms = pa.array([_normalised_token(run) for run in runs], pa.large_string())
    is_word = (pc.binary_length(forms).to_numpy() > 0)[places]
    words = forms.take(pa.array(places[is_word]))
    word_starts = np.append(0, np.cumsum(is_word))[starts]
    rows = pa.LargeListArray.from_arrays(pa.array(word_starts), words)
    joined = pc.binary_join(rows, pa.scalar(" ", pa.large_string()))
    stripped = pa.array([text.strip() for text in plain_texts], pa.large_string())
    return pc.if_else(pc.equal(joined, ""), stripped, joined)


def find_duplicates(document_ids: Texts, forms: Texts) -> pd.DataFrame:
    """Return ``document_id, duplicate_of``: each repeated text and the first document that has it.

    Parameters
    ----------
    document_ids, forms
        Ids and normalised texts, aligned, in corpus order.

    Examples
    --------
    >>> find_duplicates(["a", "b", "c"], ["one", "two", "one"]).values.tolist()
    [['c', 'a']]
    """
    root = first_rows(forms)
    rows = np.flatnonzero(root != np.arange(len(root)))
    pairs = {
        "document_id": taken(document_ids, rows),
        "duplicate_of": taken(document_ids, root[rows]),
    }
    return pd.DataFrame(pairs, dtype="str")


def find_queries(
    queries: pd.DataFrame,
    corpus: pd.DataFrame,
    forms: Texts,
) -> list[str]:
    """Return the document that is the query itself, or has its text, for every query, or "".

    In collections such as ArguAna and Quora the queries are documents, under the same id. The id
    alone does not tell: where queries and documents are both numbered from 1, all ids coincide. A
    document's text is its title and text; that of the document with the query's own id may also be
    the text alone.

    Parameters
    ----------
    queries
        ``query_id, normalised``.
    corpus
        ``document_id, text``, N rows.
    forms
        The N normalised texts of the documents, titles included.

    Returns
    -------
    list of str
        Ids of documents, empty strings where there is none. Of several documents of one text, that
        with the query's id or else the first; the others are found by :func:`find_duplicates`.

    Examples
    --------
    >>> queries = pd.DataFrame({"query_id": ["1", "2"], "normalised": ["a fox", "an owl"]})
    >>> corpus = pd.DataFrame({"document_id": ["1", "2"], "text": ["A fox.", "It rains."]})
    >>> find_queries(queries, corpus, ["a fox", "it rains"])
    ['1', '']
    """
    forms = arrow(forms)
    ids = arrow(corpus["document_id"])
    same = np.flatnonzero(among(forms, queries["normalised"]))
    # The first document of a form comes last, so that it wins.
    first = dict(zip(taken(forms, same[::-1]), taken(ids, same[::-1]), strict=True))
    shared = np.flatnonzero(among(ids, queries["query_id"]))
    taking = (taken(column_values, shared) for column_values in (ids, forms, corpus["text"]))
    same_id = {
        identifier: (form, normalised(text)) for identifier, form, text in zip(*taking, strict=True)
    }
    forms_by_id = zip(queries["query_id"].tolist(), queries["normalised"].tolist(), strict=True)
    return [
        identifier if form in same_id.get(identifier, ()) else first.get(form, "")
        for identifier, form in forms_by_id
    ]
