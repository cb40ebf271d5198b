"""What documents state, as triples."""

from __future__ import annotations

import json
from collections.abc import Callable

import pandas as pd

from anmi.corpus.columns import among, column, containing, taken
from anmi.corpus.names import Triple
from anmi.corpus.types import FACT_COLUMNS, empty


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
    own = graph[among(graph["head"], corpus["document_id"])]
    rows = list(zip(*(own[name].tolist() for name in ("head", "head", "relation", "tail")), strict=True))
    # Most metadata have none, and need not be parsed.
    telling = containing(corpus["metadata"], '"triples"')
    found = zip(taken(corpus["document_id"], telling), taken(corpus["metadata"], telling), strict=True)
    for document, text in found:
        rows += [(document, *(resolve(triple) if resolve else triple)) for triple in triples_of(text)[0]]
    if not rows:
        return empty(*FACT_COLUMNS)
    columns = zip(FACT_COLUMNS, zip(*rows, strict=True), strict=True)
    table = pd.DataFrame({name: column(values) for name, values in columns}).drop_duplicates()
    order = pd.Series(range(len(corpus)), index=corpus["document_id"])
    return table.iloc[order.loc[table["document_id"]].argsort(kind="stable").to_numpy()].reset_index(drop=True)
