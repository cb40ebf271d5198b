"""Evidence of relevance: many small, differently biased measurements of (query, candidate) pairs.

A kind of evidence is one function from :class:`Pairs` (documents beside the queries of a block) to values [Q, M], and
one line in :data:`KINDS`. ``gather`` adds the values as columns, for the candidates and for the known positives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from anmi.candidates import Candidates
from anmi.errors import AnmiError, nearest
from anmi.judging.evidence import facts
from anmi.judging.evidence.pairs import Material, Pairs
from anmi.retrieval.terms import Terms

__all__ = ["KINDS", "Kind", "Material", "Pairs", "Terms", "gather"]

Measure = Callable[[Pairs], NDArray[np.float32]]


@dataclass(frozen=True)
class Kind:
    """One kind of evidence.

    Attributes
    ----------
    measure
        Values of documents beside the queries of a block: float32 [Q, M], NaN where there is nothing to say.
    meaning
        One sentence for people who read an explanation.
    needs
        ``positives`` when the value speaks of a known positive, which has none of itself; ``facts`` when the
        collection must have a graph.
    """

    measure: Measure
    meaning: str
    needs: frozenset[str] = frozenset()


_POSITIVES: Final = frozenset({"positives"})

KINDS: Final[dict[str, Kind]] = {
    "coverage": Kind(facts.coverage, "share of the query's terms that the document holds, by idf"),
    "match": Kind(facts.match, "BM25 as a share of what a perfect document would score"),
    "likeness": Kind(facts.likeness, "cosine of the document and the nearest known positive", _POSITIVES),
    "likeness_terms": Kind(facts.likeness_terms, "the same by tf-idf terms", _POSITIVES),
    "containment": Kind(facts.containment, "share of a known positive's terms that the document holds", _POSITIVES),
    "contained": Kind(facts.contained, "share of the document's terms that a known positive holds", _POSITIVES),
    "facts": Kind(
        facts.shared_facts, "share of a known positive's facts that the document states", _POSITIVES | {"facts"}
    ),
}


def gather(block: Candidates, material: Material, kinds: Iterable[str] | None = None) -> Candidates:
    """Add the columns of the given kinds to a block.

    Parameters
    ----------
    block
        Q queries with M candidates; ``dense`` and ``bm25`` come from retrieval.
    material
        What the kinds are measured on.
    kinds
        Names of :data:`KINDS`; all that the material allows when None.

    Returns
    -------
    Candidates
        With one column a kind for candidates [Q, M] and for positives [Q, P].

    Raises
    ------
    AnmiError
        Unknown kind, or ``likeness`` without vectors.
    """
    names = [n for n, kind in KINDS.items() if "facts" not in kind.needs or material.facts is not None]
    if kinds is not None:
        names = list(kinds)
        unknown = [name for name in names if name not in KINDS]
        if unknown:
            raise AnmiError(f'unknown kind of evidence "{unknown[0]}"; {nearest(unknown[0], KINDS)}')
    candidates, positives = (Pairs(block, documents, material) for documents in (block.documents, block.positives))
    columns, own = ({name: KINDS[name].measure(pairs) for name in names} for pairs in (candidates, positives))
    return block.with_columns(columns, own)
