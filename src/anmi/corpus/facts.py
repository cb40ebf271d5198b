"""What documents state, as triples."""

from __future__ import annotations

import json
from collections.abc import Callable

import pandas as pd

from anmi.corpus.names import Triple
from anmi.corpus.types import FACT_COLUMNS


def triples_of(metadata: str) -> tuple[list[Triple], bool]:
    """Return the triples of ``metadata.triples``, and whether all that stands there is triples.

    Parameters
    ----------
    metadata
        A JSON object. A triple is a list of three texts or numbers, none of them empty.

    Examples
    --------
    >>> triples_of('{"triples": [["a", "size", 3]]}'), triples_of("{}"), triples_of('{"triples": [["a", "b"]]}')
    (([('a', 'size', '3')], True), ([], True), ([], False))
    """
    # Most metadata have none, and need not be parsed.
    written = json.loads(metadata).get("triples") if '"triples"' in metadata else None
    if not isinstance(written, list):
        return [], written is None
    sound = [item for item in written if _is_triple(item)]
    return [(str(head), str(relation), str(tail)) for head, relation, tail in sound], len(sound) == len(written)


def _is_triple(item: object) -> bool:
    if not isinstance(item, list) or len(item) != 3:
        return False
    return all(isinstance(part, (str, int, float)) and str(part).strip() for part in item)


def stated_facts(
    corpus: pd.DataFrame, graph: pd.DataFrame, resolve: Callable[[Triple], Triple] | None = None
) -> pd.DataFrame:
    """Return the facts that documents state: their triples in the graph, and those of ``metadata.triples``.

    Parameters
    ----------
    corpus
        ``document_id, metadata``, metadata as a JSON string.
    graph
        ``head, relation, tail``; a head that is a document states the triple.
    resolve
        Writes a triple of the metadata as the graph does; ``None`` takes it as it is written.

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
        rows += [(document, *(resolve(triple) if resolve else triple)) for triple in triples_of(text)[0]]
    table = pd.DataFrame(rows, columns=list(FACT_COLUMNS), dtype="str").drop_duplicates()
    order = pd.Series(range(len(corpus)), index=corpus["document_id"])
    return table.iloc[order.loc[table["document_id"]].argsort(kind="stable").to_numpy()].reset_index(drop=True)
