"""All variants of some documents in one table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from anmi.corpus.knowledge import KnowledgeGraph
from anmi.corpus.types import empty
from anmi.retrieval.variants.context import Context
from anmi.retrieval.variants.counterparts import make_counterparts, make_neighbours
from anmi.retrieval.variants.generator import Generator
from anmi.retrieval.variants.params import KINDS, VARIANT_COLUMNS, VariantParams
from anmi.retrieval.variants.swaps import Pools, make_swaps

# Documents at a time, so that the draws take little memory.
_BLOCK = 8192


def make_variants(
    graph: KnowledgeGraph,
    documents: NDArray[np.int32],
    ids: Sequence[str],
    texts: Sequence[str],
    params: VariantParams,
    seed: int,
    generator: Generator | None = None,
) -> pd.DataFrame:
    """Make texts that say something else than a document, or find documents that do.

    The variants of a document depend on the seed, its id and text, the graph and the corpus, not on the other
    documents that are asked for.

    Parameters
    ----------
    graph
        What is known, and what the D documents of the corpus state.
    documents
        Those whose variants are wanted, int32 [N]; each is looked at once.
    ids, texts
        Of all D documents.
    params
        How many of which kind.
    seed
        Of the run.
    generator
        Writes variants of the kind ``generated``.

    Returns
    -------
    pandas.DataFrame
        ``variant_id, document_id, kind, text, old, new, relation``, in the order of the corpus. A counterpart has the
        id of the document it is, as has a made text that is exactly that of a document; other ids are
        ``<document_id>#<kind>:<number>``. ``old`` and ``new`` are URIs. No two variants of a document
        have the same text, and none has the document's own.
    """
    wanted = np.unique(documents)
    pools = Pools(graph)
    parts = [
        _of_block(graph, pools, wanted[start : start + _BLOCK], ids, texts, params, seed, generator)
        for start in range(0, len(wanted), _BLOCK)
    ]
    if not parts:
        return empty(*VARIANT_COLUMNS)
    return pd.concat(parts, ignore_index=True)


def counts_of(variants: pd.DataFrame) -> dict[str, dict[str, int]]:
    """Return for each kind how many variants and how many documents with one there are.

    Examples
    --------
    >>> counts_of(pd.DataFrame({"kind": ["swap", "swap"], "document_id": ["a", "b"]}))
    {'swap': {'variants': 2, 'documents': 2}}
    """
    groups = {str(kind): group.document_id for kind, group in variants.groupby("kind")}
    return {
        kind: {"variants": len(groups[kind]), "documents": groups[kind].nunique()} for kind in KINDS if kind in groups
    }


def _of_block(
    graph: KnowledgeGraph,
    pools: Pools,
    documents: NDArray[np.int32],
    ids: Sequence[str],
    texts: Sequence[str],
    params: VariantParams,
    seed: int,
    generator: Generator | None,
) -> pd.DataFrame:
    context = Context.of(graph, documents, ids, texts)
    parts = [make_swaps(context, pools, params.swaps, seed)]
    if params.counterparts:
        parts.append(make_counterparts(context, ids, texts, params.counterparts, seed))
    if params.neighbours:
        parts.append(make_neighbours(context, ids, texts, params.neighbours, seed))
    if generator is not None:
        parts.append(_generated(context, generator))
    made = pd.concat(parts, ignore_index=True).reindex(columns=["place", *VARIANT_COLUMNS])
    made = _existing(context, made, ids, texts)
    own = np.array(context.texts, dtype=object)[made["place"].to_numpy(np.int64)]
    made = made[made["text"] != own]
    made = made.assign(order=made["kind"].map({kind: order for order, kind in enumerate(KINDS)}))
    made = made.sort_values(["place", "order"], kind="stable").drop_duplicates(["place", "text"])
    names = pd.Series([context.ids[place] for place in made["place"]], index=made.index, dtype="str")
    numbered = names + "#" + made["kind"] + ":" + made.groupby(["place", "kind"]).cumcount().astype("str")
    made = made.assign(document_id=names, variant_id=made["variant_id"].fillna(numbered)).fillna("")
    return made[list(VARIANT_COLUMNS)].astype("str").reset_index(drop=True)


def _existing(context: Context, made: pd.DataFrame, ids: Sequence[str], texts: Sequence[str]) -> pd.DataFrame:
    """Let a made text that is exactly that of a document be that document, or drop it if it states the same facts."""
    number: dict[str, int] = {}
    for document, text in enumerate(texts):
        number.setdefault(text, document)
    found = made["text"].map(number)
    hit = np.flatnonzero(found.notna() & made["variant_id"].isna())
    place, same = made["place"].to_numpy(np.int64)[hit], found.iloc[hit].to_numpy(np.int64)
    entailing = context.graph.entailing(context.documents[:, None])
    name, kind = (made[column].to_numpy(object, copy=True) for column in ("variant_id", "kind"))
    name[hit], kind[hit] = [ids[one] for one in same.tolist()], "counterpart"
    keep = np.ones(len(made), bool)
    keep[hit] = [not entailing[row, document] for row, document in zip(place.tolist(), same.tolist(), strict=True)]
    return made.assign(variant_id=name, kind=kind)[keep]


def _generated(context: Context, generator: Generator) -> pd.DataFrame:
    rows = [(place, "generated", text) for place, new in enumerate(generator.edit(context.texts)) for text in new]
    return pd.DataFrame(rows, columns=["place", "kind", "text"])
