"""A swap replaces one entity of a document by a neighbour on the graph, which makes a true statement false."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from anmi import seeds
from anmi.corpus.knowledge import KnowledgeGraph, membership
from anmi.retrieval.variants.context import Context, first_of_each, matches, picked, replaced, surface

# Draws for one that is wanted: most are repeated, or true.
_SPARE: Final = 8
_FEWEST: Final = 32


class Pools:
    """Sets of entities that can stand for each other: those of a type, and of a relation's tails and heads.

    Parameters
    ----------
    graph
        What is known.

    Attributes
    ----------
    members
        bool [K + 2 R, E]: of each type, then the tails and then the heads of each relation.
    name
        Of the N nodes, int64 [N]: the same number for nodes that a text writes the same way, 0 for those without.
    """

    def __init__(self, graph: KnowledgeGraph) -> None:
        self._graph = graph
        entities, relations = len(graph.uris), len(graph.relations)
        parts = [sparse.csr_array(graph.types.T)]
        for end in (2, 0):
            known = graph.triples[graph.triples[:, end] < entities]
            parts.append(membership(known[:, 1], known[:, end], (relations, entities)))
        self.members = sparse.csr_array(sparse.vstack(parts))
        self.members.sort_indices()
        self._size = np.diff(self.members.indptr)
        names = [*graph.labels, *(surface(node) for node in graph.nodes[entities:])]
        numbers = {name: number for number, name in enumerate(dict.fromkeys(("", *map(str.strip, names))))}
        self.name = np.array([numbers[name.strip()] for name in names], np.int64)
        self._related = np.unique(self._code(graph.triples[:, 0], graph.triples[:, 2]))

    def may_be_true(self, heads: NDArray[np.int64], tails: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return between which nodes, or others with the same names, any relation is known.

        That is stricter than a check of the triple itself, and costs three swaps in a thousand: what is in a country
        is part of it as well, and a literal may say what is not said of the entity.
        """
        result = np.zeros(len(heads), bool)
        result[matches(self._related, self._code(heads, tails))[1]] = True
        return result

    def _code(self, heads: NDArray[np.int64], tails: NDArray[np.int64]) -> NDArray[np.int64]:
        return self.name[heads] * (len(self._graph.nodes) + 1) + self.name[tails]

    def of_slots(self, context: Context) -> sparse.csr_array:
        """Return the pools with anyone else in them that fit the entity and its part in the document, bool [S, P]."""
        graph = self._graph
        types, relations = graph.types.shape[1], len(graph.relations)
        of_type = sparse.coo_array(graph.types[context.slot_entity])
        places, pools = [of_type.row.astype(np.int64)], [of_type.col.astype(np.int64)]
        codes = context.slot_row * len(graph.nodes) + context.slot_entity
        for end, offset in ((2, types), (0, types + relations)):
            nodes = graph.triples[context.fact, end]
            slot, fact = matches(codes, context.row * len(graph.nodes) + nodes)
            places.append(slot)
            pools.append(offset + graph.triples[context.fact[fact], 1])
        place, pool = np.concatenate(places), np.concatenate(pools)
        several = self._size[pool] > 1
        return membership(place[several], pool[several], (len(codes), self.members.shape[0]))


def make_swaps(context: Context, pools: Pools, count: int, seed: int) -> pd.DataFrame:
    """Return up to ``count`` texts per document in which an entity is replaced wherever it is mentioned.

    An entity of the document is drawn, then a set it belongs to, then a member of that set. One is kept if its label
    is another, it is not in the document's facts already, and of no fact in which it takes the old one's place is the
    head known to be related to the tail. Those in at least half of the sets that the old one is in come first: what
    only heads the relation `country`, too, may be an airport for a sandwich. What is drawn for a document depends on
    the seed, its id, its facts and the graph.

    Parameters
    ----------
    context
        N documents.
    pools
        Of the same graph.
    count
        Replacements per document, at most.
    seed
        Of the run.

    Returns
    -------
    pandas.DataFrame
        ``place, kind, text, old, new, relation``: place of the document in the context, URIs of the entities, and the
        relation of the first fact that changes.
    """
    draws, graph = max(_SPARE * count, _FEWEST), context.graph
    slots_of = membership(context.slot_row, np.arange(len(context.slot_row)), (len(context.ids), len(context.slot_row)))
    pools_of, facts_of = pools.of_slots(context), context.slot_facts()
    numbers = np.broadcast_to(np.arange(3 * draws, dtype=np.int32), (len(context.ids), 3 * draws))
    uniform = seeds.uniform(seed, "variants/swap", context.ids, numbers).reshape(len(context.ids), 3, draws)
    row = np.repeat(np.arange(len(context.ids)), draws)
    slot, known = picked(uniform[:, 0].ravel(), slots_of, row)
    slot, uniform = slot[known], uniform.transpose(0, 2, 1).reshape(-1, 3)[known]
    pool, placed = picked(uniform[:, 1], pools_of, slot)
    slot, uniform = slot[placed], uniform[placed]
    entity, _ = picked(uniform[:, 2], pools.members, pool[placed])
    keep = np.flatnonzero(_is_other(context, pools, slot, entity))
    keep = keep[np.sort(np.unique(slot[keep] * len(graph.uris) + entity[keep], return_index=True)[1])]
    keep = keep[~_may_be_true(context, pools, facts_of, slot[keep], entity[keep])]
    keep = keep[np.lexsort((~_fits(pools, pools_of, slot[keep], entity[keep]), context.slot_row[slot[keep]]))]
    keep = keep[first_of_each(context.slot_row[slot[keep]], count)]
    slot, entity = slot[keep], entity[keep]
    row, first = context.slot_row[slot], facts_of.indices[facts_of.indptr[slot]]
    return pd.DataFrame({
        "place": row,
        "kind": "swap",
        "text": [
            replaced(context.texts[place], context.slot_spans[one], graph.labels[new])
            for place, one, new in zip(row.tolist(), slot.tolist(), entity.tolist(), strict=True)
        ],
        "old": [graph.uris[old] for old in context.slot_entity[slot].tolist()],
        "new": [graph.uris[new] for new in entity.tolist()],
        "relation": [graph.relations[relation] for relation in graph.triples[context.fact[first], 1].tolist()],
    })  # fmt: skip


def _is_other(context: Context, pools: Pools, slot: NDArray[np.int64], entity: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether an entity has another label than that of the slot, and stands in no fact of the document."""
    name = pools.name[entity]
    result: NDArray[np.bool_] = (name != pools.name[context.slot_entity[slot]]) & (name > 0)
    result[matches(context.pairs, context.slot_row[slot] * len(context.graph.nodes) + entity)[1]] = False
    return result


def _fits(
    pools: Pools, pools_of: sparse.csr_array, slot: NDArray[np.int64], entity: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Whether an entity is in at least half of the pools of the slot."""
    of_slot = pools_of[slot].astype(np.int32)
    shared = of_slot.multiply(sparse.csr_array(pools.members.T).astype(np.int32)[entity])
    return 2 * shared.sum(axis=1) >= np.diff(of_slot.indptr)


def _may_be_true(
    context: Context, pools: Pools, facts_of: sparse.csr_array, slot: NDArray[np.int64], entity: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Whether a fact that changes may be true with the new entity, too."""
    start, size = facts_of.indptr[slot].astype(np.int64), np.diff(facts_of.indptr)[slot].astype(np.int64)
    draw = np.repeat(np.arange(len(slot)), size)
    flat = np.repeat(start - np.cumsum(size) + size, size) + np.arange(int(size.sum()))
    triple = context.graph.triples[context.fact[facts_of.indices[flat]]]
    old, new = context.slot_entity[slot][draw], entity[draw]
    heads, tails = (np.where(triple[:, end] == old, new, triple[:, end]) for end in (0, 2))
    true = pools.may_be_true(heads, tails)
    return np.bincount(draw[true], minlength=len(slot)) > 0
