"""Documents serve as variants of others: they state the same relations of another entity, or some of the same facts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from anmi import seeds
from anmi.corpus.knowledge import KnowledgeGraph, membership
from anmi.retrieval.variants.context import Context, documents_as_variants, first_of_each, matches, picked

# Draws for one that is wanted, in each degree of likeness: many are about the same entity, or repeated.
_SPARE: Final = 8
_ONE_RELATION: Final = 2
_BLOCK: Final = 1024


def make_counterparts(
    context: Context, ids: Sequence[str], texts: Sequence[str], count: int, seed: int
) -> pd.DataFrame:
    """Return up to ``count`` documents of the corpus for each document that are about another entity.

    Three degrees of likeness are drawn from, the next one only where the one before has not enough: documents with
    the same relations in all; with the same relations of the entity they are about; and with one such relation in
    common, if the two entities share a type. Within a degree, entities that share a type come first. None states all
    facts of the document.

    Parameters
    ----------
    context
        N documents.
    ids, texts
        Of all documents of the corpus.
    count
        Counterparts per document, at most.
    seed
        Of the run; with the document's id it names the random stream.

    Returns
    -------
    pandas.DataFrame
        ``place, kind, text, old, new, relation, variant_id``: place of the document in the context, the entities that
        the two are about, a relation of both, and the id of the counterpart.
    """
    graph, about = context.graph, context.graph.about
    facts = _Facts.of(graph)
    drawn = _drawn(context, facts, _SPARE * count, seed)
    drawn["old"], drawn["new"] = about[context.documents[drawn["place"]]], about[drawn["other"]]
    drawn = drawn[(drawn["old"] >= 0) & (drawn["new"] >= 0) & (drawn["old"] != drawn["new"])]
    types = graph.types.astype(np.int32)
    drawn["alike"] = np.asarray(types[drawn["old"]].multiply(types[drawn["new"]]).sum(axis=1)).ravel() > 0
    drawn = drawn[(drawn["alike"] | (drawn["degree"] < _ONE_RELATION)) & ~_entails(context, drawn, len(ids))]
    drawn = drawn.sort_values(["place", "degree", "alike"], ascending=[True, True, False], kind="stable")
    drawn = drawn.drop_duplicates(["place", "other"])
    drawn = drawn[first_of_each(drawn["place"].to_numpy(), count)]
    relations = [graph.relations[relation] for relation in drawn["relation"]]
    place, other = (drawn[name].to_numpy() for name in ("place", "other"))
    return documents_as_variants(context, "counterpart", place, other, relations, ids, texts)


@dataclass(frozen=True)
class _Facts:
    """All facts of D documents, and which of them are about the entity that their document is about."""

    document: NDArray[np.int64]
    relation: NDArray[np.int64]
    own: NDArray[np.bool_]

    @classmethod
    def of(cls, graph: KnowledgeGraph) -> _Facts:
        document = np.repeat(np.arange(graph.stated.shape[0]), np.diff(graph.stated.indptr))
        triple = graph.triples[graph.stated.indices]
        return cls(document, triple[:, 1], triple[:, 0] == graph.about[document])

    def first_own(self, documents: int) -> NDArray[np.int64]:
        """Return the first relation of the entity that a document is about, int64 [D]; 0 where there is none."""
        first = np.zeros(documents, np.int64)
        own = np.flatnonzero(self.own)[::-1]
        first[self.document[own]] = self.relation[own]
        return first

    def pattern(self, documents: int, relations: int, *, own: bool) -> sparse.csr_array:
        """Return which documents have the same relations, all or those of their own entity, bool [patterns, D].

        Documents without any are in no pattern.
        """
        # A sum of random words is the same in any order, and another for other relations as good as surely.
        words = seeds.stream(0, "variants/pattern").integers(0, 2**63, 2 * relations).astype(np.uint64)
        chosen = self.own if own else np.ones(len(self.own), bool)
        sums, size = np.zeros(documents, np.uint64), np.bincount(self.document[chosen], minlength=documents)
        np.add.at(sums, self.document[chosen], words[2 * self.relation[chosen] + self.own[chosen]])
        some = np.flatnonzero(size)
        patterns, number = np.unique(sums[some], return_inverse=True)
        return membership(number.ravel(), some, (len(patterns), documents))


def _drawn(context: Context, facts: _Facts, draws: int, seed: int) -> pd.DataFrame:
    """Draws in every degree: place in the context, the other document, degree and relation."""
    graph, documents = context.graph, context.documents
    corpus, relations = graph.stated.shape[0], len(graph.relations)
    degrees = [facts.pattern(corpus, relations, own=own) for own in (False, True)]
    degrees.append(membership(facts.relation[facts.own], facts.document[facts.own], (relations, corpus)))
    numbers = np.broadcast_to(np.arange(2 * draws, dtype=np.int32), (len(documents), 2 * draws))
    place, first = np.repeat(np.arange(len(documents)), draws), facts.first_own(corpus)
    parts = []
    for degree, groups in enumerate(degrees):
        uniform = seeds.uniform(seed, f"variants/counterpart/{degree}", context.ids, numbers).reshape(-1, 2, draws)
        groups_of = sparse.csr_array(groups.T)[documents]
        group, there = picked(uniform[:, 0].ravel(), groups_of, place)
        where = place[there]
        other, _ = picked(uniform[:, 1].ravel()[there], groups, group[there])
        relation = group[there] if degree == _ONE_RELATION else first[documents[where]]
        parts.append(pd.DataFrame({"place": where, "other": other, "degree": degree, "relation": relation}))
    return pd.concat(parts, ignore_index=True)


def _entails(context: Context, drawn: pd.DataFrame, documents: int) -> NDArray[np.bool_]:
    entailing = context.graph.entailing(context.documents[:, None])
    row = np.repeat(np.arange(len(context.ids)), np.diff(entailing.indptr))
    known = np.sort(row * documents + entailing.indices)
    result = np.zeros(len(drawn), bool)
    result[matches(known, (drawn["place"] * documents + drawn["other"]).to_numpy(np.int64))[1]] = True
    return result


def make_neighbours(context: Context, ids: Sequence[str], texts: Sequence[str], count: int, seed: int) -> pd.DataFrame:
    """Return up to ``count`` documents of the corpus for each document that share facts with it and lack some.

    Those that share most come first, by the mean of the two documents' shares of common facts; equals are drawn at
    random. What lacks a fact is no answer to a query for all of them, however much it looks like one, and nothing but
    the graph tells it from a document that states all of them.

    Parameters
    ----------
    context
        N documents.
    ids, texts
        Of all documents of the corpus.
    count
        Neighbours per document, at most.
    seed
        Of the run; with the document's id it names the random stream.

    Returns
    -------
    pandas.DataFrame
        ``place, kind, text, old, new, relation, variant_id``: place of the document in the context, the entities that
        the two are about (empty where a document is about none), no relation, and the id of the neighbour.
    """
    stated = context.graph.stated.astype(np.int32)
    transposed, size = sparse.csc_array(stated.T), np.asarray(stated.sum(axis=1)).ravel()
    places, others = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for start in range(0, len(context.documents) if count else 0, _BLOCK):
        documents = context.documents[start : start + _BLOCK]
        shared = sparse.csr_array(stated[documents] @ transposed)
        row = np.repeat(np.arange(len(documents)), np.diff(shared.indptr))
        own, other = size[documents][row], size[shared.indices]
        likeness = shared.data / own + shared.data / other
        tie = _uniform(context, shared, start, seed)
        order = np.lexsort((tie, -likeness, row))
        order = order[(shared.data < own)[order]]
        order = order[first_of_each(row[order], count)]
        places.append(row[order] + start)
        others.append(shared.indices[order].astype(np.int64))
    place, found = np.concatenate(places), np.concatenate(others)
    return documents_as_variants(context, "neighbour", place, found, [""] * len(found), ids, texts)


def _uniform(context: Context, shared: sparse.csr_array, start: int, seed: int) -> np.ndarray:
    """A random number for every pair of documents, the same in whichever block the first one is."""
    lengths = np.diff(shared.indptr)
    width = int(lengths.max(initial=0))
    slots = np.zeros((len(lengths), width), np.int32)
    there = np.arange(width) < lengths[:, None]
    slots[there] = shared.indices
    names = context.ids[start : start + len(lengths)]
    return seeds.uniform(seed, "variants/neighbour", names, slots)[there]
