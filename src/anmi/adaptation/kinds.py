"""The module makes the kinds of pseudo-queries: titles, sentences, keyphrases and others.

A kind is one function from a document to its views, and one line in :data:`KINDS`. What a pseudo-query is made of is
taken out of the document: a sentence that still stands there is found by any encoder, and nothing is learned from it.
Single terms may stay, which a relevant document has to hold.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import regex
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from anmi import seeds
from anmi.corpus.sentences import UNSPACED, sentences
from anmi.corpus.texts import values_of
from anmi.errors import AnmiError
from anmi.retrieval.terms import Terms
from anmi.retrieval.tokenize import DICTIONARIES, Tokenize, resolve, tokenizer


@dataclass(frozen=True)
class Document:
    """What pseudo-queries are made of.

    Attributes
    ----------
    document_id
        Keys its random draws.
    title, text
        As in the corpus; the title may be empty.
    language
        ISO 639-1 code of the collection.
    metadata
        As in the corpus, a JSON string.
    """

    document_id: str
    title: str
    text: str
    language: str
    metadata: str = "{}"


class View(NamedTuple):
    """A pseudo-query and the document without what it was made of."""

    query: str
    positive: str


# From a document, the most views that are wanted and a seed.
Make = Callable[[Document, int, int], list[View]]


class QuestionOptions(BaseModel):
    """Where metadata say what a document is about."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    focus: str = Field("focus", min_length=1)
    type: str = Field("qtype", min_length=1)  # fmt: skip


@dataclass(frozen=True)
class Material:
    """What kinds may know of the corpus before they ask its documents.

    Attributes
    ----------
    documents
        All that will be asked.
    language
        ISO 639-1 code.
    question
        Where metadata say what a document is about.
    new
        Ids of documents that nothing is learned from.
    write
        Has a language model write queries, and returns those of each document by its id; None where there is no model.
    terms
        Of the documents, cut for BM25; None cuts them where a dictionary does.
    """

    documents: Sequence[Document]
    language: str
    question: QuestionOptions = field(default_factory=QuestionOptions)
    new: Collection[str] = ()
    write: Callable[[Sequence[Document]], Mapping[str, list[str]]] | None = None
    terms: Terms | None = None


def without(document: Document, start: int, end: int) -> str:
    """Return title and text of a document, the characters from ``start`` to ``end`` of the text taken out.

    Examples
    --------
    >>> without(Document("d", "A", "One. Two. Three.", "en"), 5, 9)
    'A One. Three.'
    """
    rest = f"{document.text[:start].rstrip()} {document.text[end:].lstrip()}".strip()
    return f"{document.title} {rest}".strip()


_WORD: Final = regex.compile(r"[\p{L}\p{N}][\p{L}\p{M}\p{N}]*(?:[-'’][\p{L}\p{M}\p{N}]+)*")
# The same for texts in ASCII, in half of the time.
_ASCII_WORD: Final = re.compile(r"[A-Za-z0-9]+(?:[-'][A-Za-z0-9]+)*")
_LETTER: Final = regex.compile(r"\p{L}")
_LEAST: Final = 2
_MOST: Final = 6
# Documents whose words are counted at once, which bounds memory.
_DOCUMENTS: Final = 2_000
# Of a document: each of its best terms, its place among them and the form that the document has most often, in the
# order of the text.
_Best = list[tuple[int, str]]
# Of each text, the numbers of its words.
_Cut = Sequence[NDArray[np.int32]]


def keyphrase(material: Material) -> Make:
    """Learn how rare each term is, and return what asks a document by its best 2 to 6 terms.

    The terms are words in the form that the document has most often, in the order in which it has them, and nothing is
    taken out of it: a relevant document has to hold them. They are no more than half of its terms, as all of them would
    be the document once more. Views differ in how many terms they have. Where words are
    neither parted by blanks nor known to a dictionary here (Japanese, Thai), there are no keyphrases.

    Parameters
    ----------
    material
        Documents whose frequencies are counted: N of them that are not new, df holding a term.

    Returns
    -------
    Make
        A term's weight is tf · (1 + ln((1 + N) / (1 + df))), as scikit-learn's ``TfidfTransformer`` has it.

    Examples
    --------
    >>> texts = ["The sun is hot.", "The moon is cold; moons orbit the sun.", "The sea is wet."]
    >>> documents = [Document(str(number), "", text, "en") for number, text in enumerate(texts)]
    >>> keyphrase(Material(documents, "en"))(documents[1], 5, 1)
    [View(query='moon cold', positive='The moon is cold; moons orbit the sun.')]
    """
    kind, own = resolve("auto", material.language), material.terms
    tokenize = tokenizer(kind, material.language)
    texts, names = [_text(each) for each in material.documents], [each.document_id for each in material.documents]
    if kind in DICTIONARIES and not (own and own.settings["tokenizer"] == kind):
        own = Terms.build(texts, tokenize)
    cut, words = _held(texts, own) if own and kind in DICTIONARIES else _words(texts)
    learned = [each for name, each in zip(names, cut, strict=True) if name not in material.new]
    best = dict(zip(names, _best(cut, learned, _terms(words, kind, tokenize), words), strict=True))

    def make(document: Document, most: int, seed: int) -> list[View]:
        found, text = best[document.document_id], _text(document)
        sizes = range(_LEAST, len(found) + 1)
        order = seeds.permutation(seed, "adaptation/keyphrase", document.document_id, len(sizes))[:most]
        return [
            View(" ".join(word for place, word in found if place < sizes[chosen]), text) for chosen in order.tolist()
        ]

    return make


def _text(document: Document) -> str:
    return f"{document.title} {document.text}".strip()


def _words(texts: Sequence[str]) -> tuple[_Cut, NDArray[np.object_]]:
    """Return the number of each word of each text, in their order, and the words by number."""
    number: defaultdict[str, int] = defaultdict()
    number.default_factory = number.__len__
    words = ((_ASCII_WORD if text.isascii() else _WORD).findall(text) for text in texts)
    found = [np.fromiter(map(number.__getitem__, each), np.int32) for each in words]
    return found, np.array(list(number), dtype=object)


def _held(texts: Sequence[str], terms: Terms) -> tuple[_Cut, NDArray[np.object_]]:
    """Return the same of terms by a dictionary: those that stand in the text, in the order in which they do first."""
    names, found = list(terms.vocabulary), []
    for text, start, end in zip(texts, terms.counts.indptr, terms.counts.indptr[1:], strict=False):
        lowered, held = unicodedata.normalize("NFC", text).lower(), terms.counts.indices[start:end]
        place = np.array([lowered.find(names[term]) for term in held.tolist()], np.int64)
        order = np.argsort(place, kind="stable")[np.count_nonzero(place < 0) :]
        found.append(np.repeat(held[order], terms.counts.data[start:end][order].astype(int)))
    return found, np.array(names, dtype=object)


def _terms(words: Iterable[str], kind: str, tokenize: Tokenize) -> NDArray[np.int64]:
    """Return the number of each word's term; -1 where it may be no part of a keyphrase."""
    number: dict[str, int] = {}

    def term(word: str) -> str:
        if not _LETTER.search(word) or (kind not in DICTIONARIES and UNSPACED.search(word)):
            return ""
        # Stop words and single letters have no token; of a compound the tokens are one term.
        if kind == "snowball":
            return " ".join(tokenize([word])[0])
        return word.casefold() if len(word) > 1 else ""

    return np.array([number.setdefault(each, len(number)) if each else -1 for each in map(term, words)], np.int64)


def _best(cut: _Cut, learned: _Cut, terms: NDArray[np.int64], words: NDArray[np.object_]) -> Iterator[_Best]:
    """Yield the best terms of each document, given by its words; how rare they are, ``learned`` says."""
    size, count = int(terms.max(initial=0)) + 1, len(learned)
    frequency = np.zeros(size, np.int64)
    for start in range(0, count, _DOCUMENTS):
        pair, _ = _pairs(learned[start : start + _DOCUMENTS], terms, size)
        frequency += np.bincount(pair[_begins(pair)] % size, minlength=size)
    idf = np.array([1 + math.log((1 + count) / (1 + each)) for each in frequency.tolist()])
    for start in range(0, len(cut), _DOCUMENTS):
        yield from _best_of_some(cut[start : start + _DOCUMENTS], terms, idf, words)


def _pairs(cut: _Cut, terms: NDArray[np.int64], size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return document · size + term of each word that stands for a term, rising, and which word it is of all of them.

    Of one term those words are first that the document has first.
    """
    lengths = np.array([len(each) for each in cut])
    row, term = np.repeat(np.arange(len(cut)), lengths), terms[np.concatenate(cut)]
    word = np.flatnonzero(term >= 0)
    starts = np.cumsum(lengths) - lengths
    # One number for all: NumPy sorts numbers ten times as fast as it says where each would come.
    longest = int(lengths.max()) + 1
    keys = (row[word] * size + term[word]) * longest + word - starts[row[word]]
    keys.sort()
    pair, place = np.divmod(keys, longest)
    return pair, place + starts[pair // size]


def _begins(sorted_values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where each value comes first."""
    return np.flatnonzero(np.diff(sorted_values, prepend=-1))


def _best_of_some(
    cut: _Cut, terms: NDArray[np.int64], idf: NDArray[np.float64], words: NDArray[np.object_]
) -> Iterator[_Best]:
    of_words, word = _pairs(cut, terms, len(idf))
    # One pair for each document and each of its terms.
    begins = _begins(of_words)
    pairs, first, times = of_words[begins], word[begins], np.diff(begins, append=len(of_words))
    document, term = pairs // len(idf), pairs % len(idf)
    # Of equal weight are those first that the document has first.
    order = np.lexsort((first, -times * idf[term], document))
    sizes = np.bincount(document, minlength=len(cut))
    place = np.arange(len(pairs)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    kept = place < np.repeat(np.minimum(_MOST, sizes // 2), sizes)
    chosen, place = order[kept], place[kept]
    number = np.full(len(pairs), -1)
    number[chosen] = np.arange(len(chosen))
    of_chosen = np.repeat(number, times)
    mine = np.flatnonzero(of_chosen >= 0)
    # In the order of the texts, which decides among forms.
    mine = mine[np.argsort(word[mine])]
    written = words[_most_often(of_chosen[mine], np.concatenate(cut)[word[mine]])]
    in_text = np.lexsort((first[chosen], document[chosen]))
    found = list(zip(place[in_text].tolist(), written[in_text].tolist(), strict=True))
    ends = np.cumsum(np.bincount(document[chosen], minlength=len(cut))).tolist()
    yield from (found[start:end] for start, end in zip([0, *ends], ends, strict=False))


def _most_often(group: NDArray[np.int64], form: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return for each group, in their order, the form that it has most often, and of several the one it has first."""
    size = int(form.max(initial=0)) + 1
    pairs, first, times = np.unique(group * size + form, return_index=True, return_counts=True)
    order = np.lexsort((first, -times, pairs // size))
    _, leads = np.unique(pairs[order] // size, return_index=True)
    most: NDArray[np.int64] = pairs[order][leads] % size
    return most


# By type, and what it is also called; of a type that is not here no question is made.
TEMPLATES: Final[dict[tuple[str, ...], tuple[str, ...]]] = {
    ("information", "definition", "overview", "description"): ("What is {}?", "What does {} mean?"),
    ("symptoms", "signs"): ("What are the symptoms of {}?", "How do I recognise {}?"),
    ("treatment", "treatments", "therapy"): ("How is {} treated?", "What are the treatments for {}?"),
    ("causes", "cause", "etiology"): ("What causes {}?", "Where does {} come from?"),
    ("prevention",): ("How can {} be prevented?", "What helps against getting {}?"),
    ("exams and tests", "diagnosis"): ("How is {} diagnosed?", "Which tests show {}?"),
    ("outlook", "prognosis"): ("What is the outlook for {}?", "How does {} develop?"),
    ("susceptibility", "risk factors", "risks"): ("Who is at risk of {}?", "What raises the risk of {}?"),
    ("frequency", "prevalence"): ("How common is {}?", "How many people have {}?"),
    ("inheritance",): ("Is {} inherited?", "Does {} run in families?"),
    ("genetic changes", "genetics"): ("Which genes are related to {}?", "What genetic changes come with {}?"),
    ("complications",): ("What are the complications of {}?", "What can follow from {}?"),
    ("stages",): ("What are the stages of {}?",),
    ("research",): ("What research is done on {}?",),
    ("usage", "use", "how to"): ("How do I use {}?", "What is {} used for?"),
    ("installation", "setup"): ("How do I install {}?", "How do I set up {}?"),
    ("side effects",): ("What are the side effects of {}?", "Is {} safe?"),
    ("dosage",): ("How much {} should be taken?", "What is the dose of {}?"),
}
_BY_TYPE: Final = {name: templates for names, templates in TEMPLATES.items() for name in names}


def question(material: Material) -> Make:
    """Return what asks a document by the English questions of its type.

    Where the metadata lack a focus or a type, or questions of the type are not known, there are none, and none in
    collections in other languages. Nothing is taken out of the document: its metadata are not part of its text.

    Parameters
    ----------
    material
        Its ``question`` says which entries of the metadata are read.

    Examples
    --------
    >>> document = Document("d", "", "It hurts.", "en", '{"focus": "Gout", "qtype": "stages"}')
    >>> question(Material([document], "en"))(document, 5, 1)
    [View(query='What are the stages of Gout?', positive='It hurts.')]
    """

    def make(document: Document, most: int, seed: int) -> list[View]:
        names = (material.question.focus, material.question.type)
        focus, about = (" ".join(values_of([document.metadata], name, "")[0].split()) for name in names)
        templates = _BY_TYPE.get(about.casefold(), ())
        if not focus or document.language != "en":
            return []
        order = seeds.permutation(seed, "adaptation/question", document.document_id, len(templates))[:most]
        text = f"{document.title} {document.text}".strip()
        return [View(templates[place].replace("{}", focus), text) for place in order.tolist()]

    return make


def llm(material: Material) -> Make:
    """Let a language model write queries for the documents, and return what hands them out.

    Nothing is taken out of the document: the model is asked for other words than its own.

    Parameters
    ----------
    material
        Its ``write`` asks the model about all documents at once.

    Raises
    ------
    AnmiError
        There is no language model, or its endpoint refuses requests as such.
    """
    if material.write is None:
        raise AnmiError(
            'pseudo-queries of kind "llm" need a language model: set adaptation.llm.base_url and adaptation.llm.model, '
            "or leave the kind out"
        )
    written = material.write(material.documents)

    def make(document: Document, most: int, seed: int) -> list[View]:
        text = f"{document.title} {document.text}".strip()
        return [View(query, text) for query in written.get(document.document_id, [])[:most]]

    return make


def first(document: Document, most: int, seed: int) -> list[View]:
    """Return the first sentence, and the document without it.

    Examples
    --------
    >>> first(Document("d", "", "Adds two numbers. Both may be arrays.", "en"), 5, seed=1)
    [View(query='Adds two numbers.', positive='Both may be arrays.')]
    """
    found = sentences(document.text, document.language)
    if len(found) < 2 or not most:
        return []
    start, end = found[0]
    return [View(" ".join(document.text[start:end].split()), without(document, start, end))]


def cloze(document: Document, most: int, seed: int) -> list[View]:
    """Return sentences, drawn without replacement, each with the document without it.

    A document of one sentence has none.

    Examples
    --------
    >>> sorted(cloze(Document("d", "A", "One is here. Two is there.", "en"), 5, seed=1))[0]
    View(query='One is here.', positive='A Two is there.')
    """
    found = sentences(document.text, document.language)
    if len(found) < 2:
        return []
    order = seeds.permutation(seed, "adaptation/cloze", document.document_id, len(found))[:most]
    views = (
        View(" ".join(document.text[start:end].split()), without(document, start, end))
        for start, end in (found[place] for place in order.tolist())
    )
    # One that is said twice is one view.
    return list(dict.fromkeys(views))


# Markdown's headings, and those that a line of = or - underlines.
_HEADING: Final = re.compile(r"^(?:#{1,6}[ \t]+(\S.*?)[ \t]*#*|(\S.*?)[ \t]*\n[=-]{3,})[ \t]*$", re.MULTILINE)


def heading(document: Document, most: int, seed: int) -> list[View]:
    r"""Return headings, drawn without replacement, each with the text up to the next one.

    Examples
    --------
    >>> heading(Document("d", "Guide", "# Setup\nRun make.\n# Use\nType run.", "en"), 1, seed=3)[0].positive
    'Guide Type run.'
    """
    found = list(_HEADING.finditer(document.text))
    ends = [*(match.start() for match in found), len(document.text)][1:]
    views = []
    for match, end in zip(found, ends, strict=True):
        section = document.text[match.end() : end].strip()
        if section:
            views.append(View((match[1] or match[2]).strip(), f"{document.title} {section}".strip()))
    views = list(dict.fromkeys(views))
    order = seeds.permutation(seed, "adaptation/heading", document.document_id, len(views))[:most]
    return [views[place] for place in order.tolist()]


def title(document: Document, most: int, seed: int) -> list[View]:
    """Return the title as the query and the text as the document.

    Where the text begins with the title once more, as many do, it is taken out there as well.

    Examples
    --------
    >>> title(Document("d", "Rain", "Rain. It falls.", "en"), 5, seed=1)
    [View(query='Rain', positive='It falls.')]
    """
    query, text = document.title.strip(), document.text.strip()
    while query and text[: len(query)].casefold() == query.casefold() and _ends(query, text[len(query) :]):
        text = text[len(query) :].lstrip(" \t\n.:-–—|")
    return [View(query, text)] if query and text and most else []


def _ends(query: str, rest: str) -> bool:
    """Tell whether the words of a query end where the rest begins: "Rain" does not begin "Rainbows"."""
    if not rest or UNSPACED.match(rest):
        return True
    # Letters, marks and numbers; a mark after a letter belongs to it.
    word = [unicodedata.category(character)[0] in "LMN" for character in (query[-1], rest[0])]
    return not all(word)


# Where words stand without blanks, two letters with their marks count as one, as anmi.corpus.sentences counts them.
_CROP_WORD: Final = regex.compile(rf"(?V1)(?:{UNSPACED.pattern}\p{{M}}*){{1,2}}|[\S--{UNSPACED.pattern}]+")
# Contriever's crops have 5 to 50 % of the text; a query of a few words at least.
_SHARES: Final = (0.05, 0.5)
_CROP_LEAST: Final = 5


def crop(document: Document, most: int, seed: int) -> list[View]:
    """Return runs of words of random length and place, each with the document without it.

    A text of fewer than ten words has none.
    """
    words = [match.span() for match in _CROP_WORD.finditer(document.text)]
    if len(words) < 2 * _CROP_LEAST:
        return []
    random = seeds.stream(seed, "adaptation/crop", document.document_id)
    views = []
    for _ in range(most):
        length = max(_CROP_LEAST, int(len(words) * random.uniform(*_SHARES)))
        first = int(random.integers(0, len(words) - length + 1))
        start, end = words[first][0], words[first + length - 1][1]
        views.append(View(" ".join(document.text[start:end].split()), without(document, start, end)))
    return list(dict.fromkeys(views))


@dataclass(frozen=True)
class Kind:
    """One kind of pseudo-queries.

    Attributes
    ----------
    fit
        Takes what is known of the corpus, and returns the function that makes views of a document: at most so many,
        drawn by a seed, fewer where the document offers fewer.
    meaning
        One sentence for people who choose among kinds.
    """

    fit: Callable[[Material], Make]
    meaning: str


def _alone(make: Make) -> Callable[[Material], Make]:
    """Return a kind that asks one document after the other and needs nothing else."""
    return lambda _: make


KINDS: Final[dict[str, Kind]] = {
    "title": Kind(_alone(title), "the title; the document is its text without it"),
    "cloze": Kind(_alone(cloze), "a sentence; the document is the rest (inverse cloze task, arXiv 1906.00300)"),
    "crop": Kind(_alone(crop), "a run of words; the document is the rest (after Contriever's crops, arXiv 2112.09118)"),
    "heading": Kind(_alone(heading), "a heading inside the text; the document is the section under it"),
    "first": Kind(_alone(first), "the first sentence; the document is the rest"),
    "keyphrase": Kind(keyphrase, "the 2 to 6 best terms by tf-idf; the document is all of it"),
    "question": Kind(question, "a question by templates, from a focus and a type in the metadata; English"),
    "llm": Kind(llm, "a query that a language model writes for the document, behind an OpenAI-compatible endpoint"),
}
