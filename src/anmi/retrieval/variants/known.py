"""What is true of the things that a document is about, so that an edit of it does not happen upon another truth."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from anmi.retrieval.variants.context import Context
from anmi.retrieval.variants.dates import Day, dates_in
from anmi.retrieval.variants.mentions import surface
from anmi.retrieval.variants.numbers import numbers_in

_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|_")


@dataclass(frozen=True)
class Known:
    """True tails and relations beside the facts of a document.

    Attributes
    ----------
    numbers, dates
        In the tails that a head and a relation of the document have, its own among them.
    tails
        These tails as a text would write them.
    relations
        The words of each relation of the document, with the words of those that hold between the same two as well.
    """

    numbers: frozenset[float] = frozenset()
    dates: frozenset[Day] = frozenset()
    tails: frozenset[str] = frozenset()
    relations: tuple[tuple[str, frozenset[str]], ...] = ()

    def makes_true(self, old: str, new: str) -> bool:
        """Return whether other words in the place of some make a relation or a tail another true one.

        Examples
        --------
        >>> Known(relations=(("birth place", frozenset({"death place"})),)).makes_true("birth", "death")
        True
        """
        if any(old in words and words.replace(old, new) in true for words, true in self.relations):
            return True
        return any(old in tail and tail.replace(old, new) in self.tails - {tail} for tail in self.tails)


@dataclass
class Truths:
    """Looks up what is true of the things that the documents of a context are about."""

    context: Context
    _tails: dict[int, Known] = field(default_factory=dict)

    def __post_init__(self) -> None:
        graph, context = self.context.graph, self.context
        triples = graph.triples
        fact = triples[context.fact]
        heads = triples[:, 0] * len(graph.relations) + triples[:, 1]
        wanted = fact[:, 0] * len(graph.relations) + fact[:, 1]
        self._range = np.stack([np.searchsorted(heads, wanted, side=side) for side in ("left", "right")], axis=1)
        self._facts_of = np.searchsorted(context.row, np.arange(len(context.ids) + 1))
        # Pairs between which more than one relation holds; few, so that a dictionary will do.
        ends = triples[:, 0] * len(graph.nodes) + triples[:, 2]
        _, place, times = np.unique(ends, return_inverse=True, return_counts=True)
        self._between: dict[int, frozenset[str]] = {}
        for number in np.flatnonzero(times[place.ravel()] > 1).tolist():
            own = self._between.get(int(ends[number]), frozenset())
            self._between[int(ends[number])] = own | {_words(graph.relations[triples[number, 1]])}
        self._ends: NDArray[np.int64] = ends[context.fact]

    def of(self, place: int) -> Known:
        """Return what is known beside the facts of a document, by its place in the context."""
        facts = range(self._facts_of[place], self._facts_of[place + 1])
        if not facts:
            return Known()
        graph = self.context.graph
        tails = [self._of_head(*self._range[fact].tolist()) for fact in facts]
        relations = []
        for fact in facts:
            words = _words(graph.relations[graph.triples[self.context.fact[fact], 1]])
            relations.append((words, self._between.get(int(self._ends[fact]), frozenset()) - {words}))
        return Known(
            numbers=frozenset().union(*(one.numbers for one in tails)),
            dates=frozenset().union(*(one.dates for one in tails)),
            tails=frozenset().union(*(one.tails for one in tails)),
            relations=tuple(relations),
        )

    def _of_head(self, start: int, end: int) -> Known:
        """Return what is in the tails that one head and relation have, which stand together in the graph."""
        if start not in self._tails:
            graph = self.context.graph
            nodes = graph.triples[start:end, 2].tolist()
            named = (graph.labels[node] if node < len(graph.uris) else surface(graph.nodes[node]) for node in nodes)
            tails = frozenset(named)
            numbers = frozenset(number for tail in tails for number in numbers_in(tail))
            self._tails[start] = Known(numbers, frozenset(date for tail in tails for date in dates_in(tail)), tails)
        return self._tails[start]


def _words(relation: str) -> str:
    """Return the words of a relation's name.

    Examples
    --------
    >>> _words("birthPlace"), _words("precededBy")
    ('birth place', 'preceded by')
    """
    return _CAMEL.sub(" ", relation.rsplit("/", 1)[-1]).lower()
