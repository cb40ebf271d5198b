"""What documents state, as triples."""

from __future__ import annotations

import json

import pandas as pd

from anmi.corpus.types import FACT_COLUMNS


def stated_facts(corpus: pd.DataFrame, graph: pd.DataFrame) -> pd.DataFrame:
    """Return the facts that documents state: their triples in the graph, and those of ``metadata.triples``.

    Parameters
    ----------
    corpus
        ``document_id, metadata``, metadata as a JSON string.
    graph
        ``head, relation, tail``; a head that is a document states the triple.

    Returns
    -------
    pandas.DataFrame
        ``document_id, head, relation, tail``, each once, in the order of the corpus.

    Examples
    --------
    >>> corpus = pd.DataFrame({"document_id": ["a", "b"], "metadata": ["{}", '{"triples": [["x", "is", "y"]]}']})
    >>> graph = pd.DataFrame({"head": ["a", "z"], "relation": ["kind", "kind"], "tail": ["function", "class"]})
    >>> stated_facts(corpus, graph).to_numpy().tolist()
    [['a', 'a', 'kind', 'function'], ['b', 'x', 'is', 'y']]
    """
    own = graph[graph["head"].isin(corpus["document_id"])]
    rows = list(zip(own["head"], own["head"], own["relation"], own["tail"], strict=True))
    for document, text in zip(corpus["document_id"], corpus["metadata"], strict=True):
        if '"triples"' in text:
            triples = json.loads(text).get("triples")
            rows += [
                (document, *map(str, triple))
                for triple in (triples if isinstance(triples, list) else [])
                if isinstance(triple, list) and len(triple) == 3
            ]
    table = pd.DataFrame(rows, columns=list(FACT_COLUMNS), dtype="str").drop_duplicates()
    order = pd.Series(range(len(corpus)), index=corpus["document_id"])
    return table.iloc[order.loc[table["document_id"]].argsort(kind="stable").to_numpy()].reset_index(drop=True)
