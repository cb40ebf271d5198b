"""Short names of what a graph calls by a URI."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import product

Triple = tuple[str, str, str]


def last_segment(uri: str) -> str:
    """Return what a URI ends in, with blanks for underscores; its label where it has none of its own.

    Examples
    --------
    >>> last_segment("http://dbpedia.org/resource/Aarhus_Airport"), last_segment("http://example.org/city#Aarhus")
    ('Aarhus Airport', 'Aarhus')
    """
    kept = uri.rstrip("/#")
    return kept[max(kept.rfind("/"), kept.rfind("#")) + 1 :].replace("_", " ").strip() or uri


class Names:
    """Finds which URIs a name may stand for: the URI itself, or all of it after one of its slashes.

    Parameters
    ----------
    uris
        All that may be meant.

    Examples
    --------
    >>> names = Names(["http://x.org/r/Paris", "http://x.org/r/HIV/AIDS", "http://y.org/Paris"])
    >>> names.of("HIV/AIDS"), names.of("AIDS"), names.of("Rome")
    (('http://x.org/r/HIV/AIDS',), ('http://x.org/r/HIV/AIDS',), ())
    >>> names.of("Paris")
    ('http://y.org/Paris', 'http://x.org/r/Paris')
    """

    def __init__(self, uris: Iterable[str]) -> None:
        self._all = frozenset(uris)
        self._short: dict[str, tuple[str, ...]] = {}
        for uri in sorted(self._all, key=lambda uri: (len(uri), uri)):
            for name in set(_endings(uri)):
                self._short[name] = (*self._short.get(name, ()), uri)

    def __contains__(self, uri: object) -> bool:
        return uri in self._all

    def of(self, name: str) -> tuple[str, ...]:
        """Return the URIs that a name may stand for, the shortest first; empty where there are none."""
        return (name,) if name in self._all else self._short.get(name, ())

    def best(self, name: str) -> str:
        """Return the URI that a name stands for, and the name as it is where none or no single one does.

        Of ``http://x.org/AIDS`` and ``http://x.org/HIV/AIDS`` the first is meant: the second has a longer name there.
        ``Paris`` of two unrelated places stays ``Paris``.
        """
        found = self.of(name)
        if not found:
            return name
        place = found[0].removesuffix(name)
        return found[0] if all(other.startswith(place) for other in found) else name


def _endings(uri: str) -> Iterator[str]:
    start = uri.find("://") + 3 if "://" in uri else 0
    for place in range(start, len(uri) - 1):
        if uri[place] in "/#":
            yield uri[place + 1 :]


class Resolver:
    """Writes a document's triple as the graph writes it.

    Parameters
    ----------
    entities, relations
        Names of both.
    known
        The triples of the graph, which tell what an ambiguous name means.

    Examples
    --------
    >>> known = {("http://x.org/Aarhus", "country", "http://x.org/Denmark"), ("http://x.org/Aarhus", "size", '"91"')}
    >>> resolve = Resolver(Names(["http://x.org/Aarhus", "http://x.org/Denmark"]), Names(["country", "size"]), known)
    >>> resolve(("Aarhus", "country", "Denmark"))
    ('http://x.org/Aarhus', 'country', 'http://x.org/Denmark')
    >>> resolve(("Aarhus", "size", "91")), resolve(("Aarhus", "country", '"Denmark"'))
    (('http://x.org/Aarhus', 'size', '"91"'), ('http://x.org/Aarhus', 'country', '"Denmark"'))
    """

    def __init__(self, entities: Names, relations: Names, known: Collection[Triple]) -> None:
        self._entities, self._relations, self._known = entities, relations, known
        # The same triple stands in many documents.
        self._done: dict[Triple, Triple] = {}

    def __call__(self, triple: Triple) -> Triple:
        """Return the triple of the graph that is meant; where there is none, its names as URIs where these are clear.

        A tail in quotation marks is a literal, and never an entity of that name.
        """
        if triple not in self._done:
            self._done[triple] = self._resolve(*triple)
        return self._done[triple]

    def _resolve(self, head: str, relation: str, tail: str) -> Triple:
        literal = is_quoted(tail)
        heads = self._entities.of(head) or (head,)
        tails = (tail, tail[1:-1]) if literal else (tail, *self._entities.of(tail), f'"{tail}"')
        for found in product(heads, (relation, *self._relations.of(relation)), tails):
            if found in self._known:
                return found
        tail = tail if literal else self._entities.best(tail)
        return self._entities.best(head), self._relations.best(relation), tail


def is_quoted(text: str) -> bool:
    """Return whether a text stands in quotation marks, as a literal does."""
    return len(text) > 1 and text[0] == text[-1] == '"'
