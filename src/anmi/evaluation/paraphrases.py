"""How much of what is found stays when the same is asked in other words."""

from __future__ import annotations

import json
from typing import Final

import numpy as np
import pandas as pd

from anmi.errors import AnmiError

# Of the queries' metadata, as kg_webnlg has it: other ways of saying the same.
FIELD: Final = "alt"
DEPTH: Final = 10


def paraphrases(queries: pd.DataFrame, field: str = FIELD) -> pd.DataFrame:
    """Return what the metadata of queries offer as other ways to ask them.

    Parameters
    ----------
    queries
        ``query_id, text, metadata``, the latter JSON.
    field
        List of texts there; a query without it has no paraphrase.

    Returns
    -------
    pandas.DataFrame
        ``paraphrase_id, query_id, text``, each wording once and none that is the query's own.

    Raises
    ------
    AnmiError
        The field holds something else than a list of texts.

    Examples
    --------
    >>> queries = pd.DataFrame({"query_id": ["q"], "text": ["a b"], "metadata": ['{"alt": ["b of a", "a b"]}']})
    >>> paraphrases(queries).values.tolist()
    [['q#0', 'q', 'b of a']]
    """
    made = []
    for query_id, text, metadata in queries[["query_id", "text", "metadata"]].itertuples(index=False):
        given = json.loads(metadata or "{}").get(field, [])
        if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
            raise AnmiError(
                f'metadata.{field} of query "{query_id}" was expected to be a list of texts; correct it, or leave it '
                "out where there are no other wordings"
            )
        others = [other for other in dict.fromkeys(given) if other != text and other.strip()]
        made += [(f"{query_id}#{place}", query_id, other) for place, other in enumerate(others)]
    return pd.DataFrame(made, columns=["paraphrase_id", "query_id", "text"]).astype("str")


def robustness(
    run: pd.DataFrame, asked_otherwise: pd.DataFrame, wordings: pd.DataFrame, qrels: pd.DataFrame
) -> pd.DataFrame:
    """Compare what paraphrases find with what the queries themselves find, query by query.

    Parameters
    ----------
    run, asked_otherwise
        ``query_id, document_id, rank`` of the queries and, by ``paraphrase_id`` in its place, of their paraphrases;
        ranks from 1.
    wordings
        Of :func:`paraphrases`.
    qrels
        ``query_id, document_id``, the relevant ones.

    Returns
    -------
    pandas.DataFrame
        By query with a paraphrase ``overlap_10``, the share of its ten nearest documents that a paraphrase finds among
        its own ten, the mean over paraphrases; ``mrr_10`` of the query; ``mrr_10_paraphrased``, the mean over
        paraphrases; and ``mrr_10_worst``, the least over all wordings.

    Examples
    --------
    >>> run = pd.DataFrame({"query_id": "q", "document_id": ["a", "b"], "rank": [1, 2]})
    >>> other = pd.DataFrame({"query_id": "q#0", "document_id": ["c", "a"], "rank": [1, 2]})
    >>> words = pd.DataFrame({"paraphrase_id": ["q#0"], "query_id": ["q"], "text": ["?"]})
    >>> found = robustness(run, other, words, pd.DataFrame({"query_id": ["q"], "document_id": ["a"]}))
    >>> found.loc["q"].to_dict()
    {'overlap_10': 0.5, 'mrr_10': 1.0, 'mrr_10_paraphrased': 0.5, 'mrr_10_worst': 0.5}
    """
    of = wordings.set_index("paraphrase_id").query_id
    near = run.loc[run["rank"] <= DEPTH, ["query_id", "document_id", "rank"]]
    other = asked_otherwise.loc[asked_otherwise["rank"] <= DEPTH, ["query_id", "document_id", "rank"]]
    other = other.rename(columns={"query_id": "paraphrase_id"})
    other = other.assign(query_id=other.paraphrase_id.map(of))
    both = other.merge(near[["query_id", "document_id"]], on=["query_id", "document_id"])
    found = near.groupby("query_id").size().reindex(of.unique())
    shared = both.groupby("paraphrase_id").size().reindex(of.index, fill_value=0) / of.map(found)
    own = _reciprocal(near, "query_id", qrels).reindex(of.unique(), fill_value=0.0)
    others = _reciprocal(other, "paraphrase_id", qrels).reindex(of.index, fill_value=0.0)
    by_query = others.groupby(of)
    return pd.DataFrame({
        "overlap_10": shared.groupby(of).mean(),
        "mrr_10": own,
        "mrr_10_paraphrased": by_query.mean(),
        "mrr_10_worst": np.minimum(by_query.min(), own),
    }).reindex(of.unique())  # fmt: skip


def _reciprocal(run: pd.DataFrame, key: str, qrels: pd.DataFrame) -> pd.Series:
    """One over the rank of the first relevant document of each key; those that find none are not there."""
    right = run.merge(qrels[["query_id", "document_id"]].drop_duplicates(), on=["query_id", "document_id"])
    return 1.0 / right.groupby(key)["rank"].min()
