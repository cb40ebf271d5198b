"""Evidence from a graph: facts that documents state."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from anmi.candidates import PADDING
from anmi.judging.evidence.lexical import share
from anmi.judging.evidence.pairs import Pairs


def shared_facts(pairs: Pairs) -> NDArray[np.float32]:
    """Share of a known positive's facts that the document states too, float32 [Q, M]; the largest over positives.

    NaN where the positive states none, and in every slot of a collection without facts.
    """
    documents, facts, positives = pairs.documents, pairs.material.facts, pairs.block.positives
    best = np.full(documents.shape, np.nan, np.float32)
    if facts is None:
        return best
    for place in range(min(pairs.material.references, positives.shape[1])):
        own = positives[:, place]
        held = facts[np.maximum(own, 0)]
        rows, slots = np.nonzero(documents != PADDING)
        both = np.asarray(held[rows].multiply(facts[documents[rows, slots]]).sum(axis=1)).ravel()
        count = np.zeros(documents.shape, np.float32)
        count[rows, slots] = both
        values = share(count, np.asarray(held.sum(axis=1)), documents)
        values[(own == PADDING)[:, None] | (documents == own[:, None])] = np.nan
        best = np.fmax(best, values)
    return best


def facts_of(corpus: pd.DataFrame, graph: pd.DataFrame) -> sparse.csr_matrix | None:
    """Return which document states which fact, float32 [N, F]; None where there are none.

    A fact is a (relation, tail) of ``graph`` whose head is a document, or a triple in ``metadata.triples``.

    Parameters
    ----------
    corpus
        ``document_id, metadata``.
    graph
        ``head, relation, tail``.
    """
    row_of = {document: row for row, document in enumerate(corpus.document_id)}
    number: dict[str, int] = {}
    pairs = {
        (row_of[head], number.setdefault(f"{relation}\x1f{tail}", len(number)))
        for head, relation, tail in zip(
            graph.get("head", []), graph.get("relation", []), graph.get("tail", []), strict=True
        )
        if head in row_of
    }
    for row, text in enumerate(corpus.metadata):
        if '"triples"' in text:
            triples = json.loads(text).get("triples")
            for triple in triples if isinstance(triples, list) else []:
                pairs.add((row, number.setdefault(json.dumps(triple), len(number))))
    if not pairs:
        return None
    rows, columns = (np.array(part, np.int64) for part in zip(*sorted(pairs), strict=True))
    return sparse.csr_matrix((np.ones(len(rows), np.float32), (rows, columns)), (len(corpus), len(number)))
