"""The module makes the kinds of pseudo-queries: titles, sentences, keyphrases and others.

A kind is one function from a document to its views, and one line in :data:`KINDS`. What a
pseudo-query is made of is taken out of the document: a sentence that still stands there is found by
any encoder, and nothing is learned from it. Single terms may stay, which a relevant document has to
hold.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from operator import itemgetter
from typing import Any, Final, NamedTuple

import regex
from pydantic import BaseModel, ConfigDict, Field

from anmi import seeds
from anmi.corpus.sentences import UNSPACED, sentences
from anmi.corpus.texts import values_of
from anmi.errors import AnmiError
from anmi.retrieval.terms import Terms
from anmi.retrieval.tokenize import DICTIONARIES, resolve, tokenizer


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

    @property
    def whole(self) -> str:
        """Title and text."""
        return f"{self.title} {self.text}".strip()


class View(NamedTuple):
    """A pseudo-query and the document without what it was made of."""

    query: str
    positive: str


# From a document, how many views to make at most, and a seed.
Make = Callable[[Document, int, int], list[View]]


class QuestionOptions(BaseModel):
    """Where metadata say what a document is about."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    focus: str = Field("focus", min_length=1)
    type: str = Field("qtype", min_length=1)


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
        Has a language model write queries, and returns those of each document by its id; None where
        there is no model.
    terms
        Of the documents, cut for BM25; None cuts them where a dictionary does.
    """

    documents: Sequence[Document]
    language: str
    question: QuestionOptions = field(default_factory=QuestionOptions)
    new: Collection[str] = ()
    write: Callable[[Sequence[Document]], Mapping[str, list[str]]] | None = None
    terms: Terms | None = None


def _taken(document: Document, start: int, end: int) -> View:
    """Return the text from ``start`` to ``end`` as the query, and the document without it."""
    remainder = f"{document.text[:start].rstrip()} {document.text[end:].lstrip()}".strip()
    query = " ".join(document.text[start:end].split())
    return View(query, f"{document.title} {remainder}".strip())


def _drawn(
    choices: Sequence[Any],
    kind: str,
    document: Document,
    count: int,
    seed: int,
) -> list[Any]:
    """Draw without replacement, by the document's own stream."""
    random = seeds.stream(seed, f"adaptation/{kind}", document.document_id)
    return [choices[number] for number in random.permutation(len(choices))[:count].tolist()]


_WORD: Final = regex.compile(r"[\p{L}\p{N}][\p{L}\p{M}\p{N}]*(?:[-'’][\p{L}\p{M}\p{N}]+)*")
# The same for texts in ASCII, in half of the time.
_ASCII_WORD: Final = re.compile(r"[A-Za-z0-9]+(?:[-'][A-Za-z0-9]+)*")
_LETTER: Final = regex.compile(r"\p{L}")
_FEWEST_TERMS: Final = 2
_MOST_TERMS: Final = 6


def keyphrase(material: Material) -> Make:
    """Learn how rare each term is, and return what asks a document by its best 2 to 6 terms.

    The terms are words in the form that the document has most often, in the order in which it has
    them, and nothing is taken out of it: a relevant document has to hold them. They are no more
    than half of its terms, as all of them would be the document once more. Views differ in how many
    terms they have. Where words are neither parted by blanks nor known to a dictionary here
    (Japanese, Thai), there are no keyphrases.

    Parameters
    ----------
    material
        Documents whose frequencies are counted: N of them that are not new, df holding a term.

    Returns
    -------
    Make
        A term's weight is tf · (1 + ln((1 + N) / (1 + df))), as scikit-learn's ``TfidfTransformer``
        has it.

    Examples
    --------
    >>> texts = ["The sun is hot.", "The moon is cold; moons orbit the sun.", "The sea is wet."]
    >>> documents = [Document(str(number), "", text, "en") for number, text in enumerate(texts)]
    >>> keyphrase(Material(documents, "en"))(documents[1], 5, 1)
    [View(query='moon cold', positive='The moon is cold; moons orbit the sun.')]
    """
    method = resolve("auto", material.language)
    by_dictionary = method in DICTIONARIES
    tokenize = tokenizer(method, material.language)
    terms = material.terms
    rows = {document.document_id: row for row, document in enumerate(material.documents)}
    if by_dictionary and (terms is None or terms.settings["tokenizer"] != method):
        terms = Terms.build([document.whole for document in material.documents], tokenize)
    vocabulary = list(terms.vocabulary) if terms is not None and by_dictionary else []

    def words(document: Document) -> Iterable[str]:
        text = document.whole
        if terms is not None and vocabulary:
            return _terms_in(text, terms, rows[document.document_id], vocabulary)
        return (_ASCII_WORD if text.isascii() else _WORD).findall(text)

    @cache
    def term(word: str) -> str:
        """Return the term of a word; nothing where it may be no part of a keyphrase."""
        if len(word) == 1 or not _LETTER.search(word):
            return ""
        if not by_dictionary and UNSPACED.search(word):
            return ""
        # Stop words have no token; of a compound the tokens are one term.
        return " ".join(tokenize([word])[0]) if method == "snowball" else word.casefold()

    documents_seen = 0
    document_frequency = Counter[str]()
    for document in material.documents:
        if document.document_id not in material.new:
            documents_seen += 1
            document_frequency.update({term(word) for word in {*words(document)}})

    @cache
    def idf(name: str) -> float:
        return 1 + math.log((1 + documents_seen) / (1 + document_frequency[name]))

    def best(document: Document) -> list[tuple[int, str]]:
        """Return the best terms in the document's order, each with its rank and commonest form."""
        forms: dict[str, dict[str, int]] = {}
        for word, count in Counter(words(document)).items():
            if name := term(word):
                forms.setdefault(name, {})[word] = count
        weight = {name: -sum(counts.values()) * idf(name) for name, counts in forms.items()}
        # Of equal weight, and of equal forms, those are first that the document has first.
        ranked = sorted(forms, key=weight.__getitem__)[: min(_MOST_TERMS, len(forms) // 2)]
        return [
            (ranked.index(name), max(counts, key=counts.__getitem__))
            for name, counts in forms.items()
            if name in ranked
        ]

    def make(document: Document, count: int, seed: int) -> list[View]:
        best_terms = best(document)
        sizes = range(_FEWEST_TERMS, len(best_terms) + 1)
        return [
            View(" ".join(word for rank, word in best_terms if rank < size), document.whole)
            for size in _drawn(sizes, "keyphrase", document, count, seed)
        ]

    return make


def _terms_in(
    text: str,
    terms: Terms,
    row: int,
    vocabulary: Sequence[str],
) -> list[str]:
    """Return the dictionary's terms that stand in the text, as often as there, by first place."""
    start, end = terms.counts.indptr[row : row + 2]
    lowered = unicodedata.normalize("NFC", text).lower()
    places = list[tuple[int, str, int]]()
    for column, count in zip(
        terms.counts.indices[start:end].tolist(),
        terms.counts.data[start:end],
        strict=True,
    ):
        name = vocabulary[column]
        if (place := lowered.find(name)) >= 0:
            places.append((place, name, int(count)))
    places.sort(key=itemgetter(0))
    return [name for _, name, count in places for _ in range(count)]


# By type, and what it is also called; of a type that is not here no question is made.
TEMPLATES: Final[dict[tuple[str, ...], tuple[str, ...]]] = {
    ("information", "definition", "overview", "description"): ("What is {}?", "What does {} mean?"),
    ("symptoms", "signs"): ("What are the symptoms of {}?", "How do I recognise {}?"),
    ("treatment", "treatments", "therapy"): (
        "How is {} treated?",
        "What are the treatments for {}?",
    ),
    ("causes", "cause", "etiology"): ("What causes {}?", "Where does {} come from?"),
    ("prevention",): ("How can {} be prevented?", "What helps against getting {}?"),
    ("exams and tests", "diagnosis"): ("How is {} diagnosed?", "Which tests show {}?"),
    ("outlook", "prognosis"): ("What is the outlook for {}?", "How does {} develop?"),
    ("susceptibility", "risk factors", "risks"): (
        "Who is at risk of {}?",
        "What raises the risk of {}?",
    ),
    ("frequency", "prevalence"): ("How common is {}?", "How many people have {}?"),
    ("inheritance",): ("Is {} inherited?", "Does {} run in families?"),
    ("genetic changes", "genetics"): (
        "Which genes are related to {}?",
        "What genetic changes come with {}?",
    ),
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

    Where the metadata lack a focus or a type, or questions of the type are not known, there are
    none, and none in collections in other languages. Nothing is taken out of the document: its
    metadata are not part of its text.

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

    def make(document: Document, count: int, seed: int) -> list[View]:
        focus, about = (
            " ".join(values_of([document.metadata], entry, "")[0].split())
            for entry in (material.question.focus, material.question.type)
        )
        if not focus or document.language != "en":
            return []
        templates = _BY_TYPE.get(about.casefold(), ())
        chosen = _drawn(templates, "question", document, count, seed)
        return [View(template.replace("{}", focus), document.whole) for template in chosen]

    return make


def llm(material: Material) -> Make:
    """Let a language model write queries for the documents, and return what hands them out.

    Nothing is taken out of the document: the model is asked for other words than its own. Of the
    queries of a document, each of another kind, those that are handed out are drawn.

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
            'pseudo-queries of kind "llm" need a language model: set adaptation.llm.base_url and'
            " adaptation.llm.model, or leave the kind out"
        )
    written = material.write(material.documents)

    def make(document: Document, count: int, seed: int) -> list[View]:
        queries = written.get(document.document_id, [])
        chosen = _drawn(queries, "llm", document, count, seed)
        return [View(query, document.whole) for query in chosen]

    return make


def first(document: Document, count: int, seed: int) -> list[View]:
    """Return the first sentence, and the document without it.

    Examples
    --------
    >>> first(Document("d", "", "Adds two numbers. Both may be arrays.", "en"), 5, seed=1)
    [View(query='Adds two numbers.', positive='Both may be arrays.')]
    """
    spans = sentences(document.text, document.language)
    if len(spans) < 2 or not count:
        return []
    return [_taken(document, *spans[0])]


def cloze(document: Document, count: int, seed: int) -> list[View]:
    """Return sentences, drawn without replacement, each with the document without it.

    A document of one sentence has none.

    Examples
    --------
    >>> sorted(cloze(Document("d", "A", "One is here. Two is there.", "en"), 5, seed=1))[0]
    View(query='One is here.', positive='A Two is there.')
    """
    spans = sentences(document.text, document.language)
    if len(spans) < 2:
        return []
    chosen = _drawn(spans, "cloze", document, count, seed)
    # One that is said twice is one view.
    return list(dict.fromkeys(_taken(document, *span) for span in chosen))


# Markdown's headings, and those that a line of = or - underlines.
_HEADING: Final = re.compile(
    r"^(?:#{1,6}[ \t]+(\S.*?)[ \t]*#*|(\S.*?)[ \t]*\n[=-]{3,})[ \t]*$", re.MULTILINE
)


def heading(document: Document, count: int, seed: int) -> list[View]:
    r"""Return headings, drawn without replacement, each with the text up to the next one.

    Examples
    --------
    >>> document = Document("d", "Guide", "# Setup\nRun make.\n# Use\nType run.", "en")
    >>> heading(document, 1, seed=3)[0].positive
    'Guide Type run.'
    """
    headings = list(_HEADING.finditer(document.text))
    ends = [*(match.start() for match in headings), len(document.text)][1:]
    views = []
    for match, end in zip(headings, ends, strict=True):
        section = document.text[match.end() : end].strip()
        if section:
            query = (match[1] or match[2]).strip()
            views.append(View(query, f"{document.title} {section}".strip()))
    return _drawn(list(dict.fromkeys(views)), "heading", document, count, seed)


def title(document: Document, count: int, seed: int) -> list[View]:
    """Return the title as the query and the text as the document.

    Where the text begins with the title once more, as many do, it is taken out there as well.

    Examples
    --------
    >>> title(Document("d", "Rain", "Rain. It falls.", "en"), 5, seed=1)
    [View(query='Rain', positive='It falls.')]
    """
    query = document.title.strip()
    text = document.text.strip()
    while (
        query
        and text[: len(query)].casefold() == query.casefold()
        and _is_whole_word(query, text[len(query) :])
    ):
        text = text[len(query) :].lstrip(" \t\n.:-–—|")
    return [View(query, text)] if query and text and count else []


def _is_whole_word(query: str, following: str) -> bool:
    """Tell whether the query ends a word, as "Rain" does not in "Rainbow"."""
    if not following or UNSPACED.match(following):
        return True
    # Letters, marks and numbers; a mark after a letter belongs to it.
    boundary = (query[-1], following[0])
    return not all(unicodedata.category(character)[0] in "LMN" for character in boundary)


# Where words stand without blanks, two letters with their marks count as one, as
# anmi.corpus.sentences counts them.
_CROP_WORD: Final = regex.compile(
    rf"(?V1)(?:{UNSPACED.pattern}\p{{M}}*){{1,2}}|[\S--{UNSPACED.pattern}]+"
)
# Contriever's crops have 5 to 50 % of the text; a query of a few words at least.
_CROP_SHARES: Final = (0.05, 0.5)
_SHORTEST_CROP: Final = 5


def crop(document: Document, count: int, seed: int) -> list[View]:
    """Return runs of words of random length and place, each with the document without it.

    A text of fewer than ten words has none.
    """
    words = [match.span() for match in _CROP_WORD.finditer(document.text)]
    if len(words) < 2 * _SHORTEST_CROP:
        return []
    random = seeds.stream(seed, "adaptation/crop", document.document_id)
    views = []
    for _ in range(count):
        length = max(_SHORTEST_CROP, int(len(words) * random.uniform(*_CROP_SHARES)))
        start = int(random.integers(0, len(words) - length + 1))
        views.append(_taken(document, words[start][0], words[start + length - 1][1]))
    return list(dict.fromkeys(views))


def _alone(make: Make) -> Callable[[Material], Make]:
    """Return a kind that asks one document after the other and needs nothing else."""
    return lambda _: make


# From what is known of the corpus to the function that makes views of a document, fewer where it
# offers fewer.
KINDS: Final[dict[str, Callable[[Material], Make]]] = {
    "title": _alone(title),
    "cloze": _alone(cloze),
    "crop": _alone(crop),
    "heading": _alone(heading),
    "first": _alone(first),
    "keyphrase": keyphrase,
    "question": question,
    "llm": llm,
}
