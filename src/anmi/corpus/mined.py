"""Which queries are mined: those for training, and dev queries that a refit trains on."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from anmi.candidates import Candidates, CandidateShards
from anmi.corpus.splits import choose


def with_mined(queries: pd.DataFrame, dev_share: float, seed: int) -> pd.DataFrame:
    """Return the queries with a column ``mined``: true of training queries and of a share of the dev queries.

    Without training queries none is mined: the judges would have nothing to be fitted on.

    Parameters
    ----------
    queries
        ``query_id, split``.
    dev_share
        In [0, 1]: of the dev queries, chosen by a hash of their ids.
    seed
        Keys the hash.

    Examples
    --------
    >>> queries = pd.DataFrame({"query_id": ["a", "b", "c"], "split": ["train", "dev", "test"]})
    >>> with_mined(queries, 1.0, seed=1).mined.tolist(), with_mined(queries, 0.0, seed=1).mined.tolist()
    ([True, True, False], [True, False, False])
    """
    split = queries["split"].to_numpy(object)
    mined, dev = split == "train", split == "dev"
    # Of a small share at least one: that none is mined means that no refit was asked for.
    count = max(round(dev_share * int(dev.sum())), int(dev_share > 0)) if mined.any() else 0
    mined[dev] = choose(queries.loc[dev, "query_id"].tolist(), count, seed)
    return queries.assign(mined=mined)


def to_mine(queries: pd.DataFrame) -> pd.DataFrame:
    """Return the queries that are mined: those for training, and behind them the dev queries that a refit trains on.

    What was read by an earlier release, and a collection with planted truth, say nothing of it: only training queries.

    Examples
    --------
    >>> queries = pd.DataFrame({"query_id": ["a", "b", "c"], "split": ["dev", "train", "test"]})
    >>> to_mine(queries).query_id.tolist(), to_mine(with_mined(queries, 1.0, seed=1)).query_id.tolist()
    (['b'], ['b', 'a'])
    """
    train = queries[queries["split"] == "train"]
    # A test query is never mined, whatever the column says.
    further = queries[(queries["split"] == "dev") & queries["mined"]] if "mined" in queries else queries[:0]
    return pd.concat([train, further])


def mined_dev(queries: pd.DataFrame) -> frozenset[str]:
    """Return the ids of the dev queries that are mined: nothing is fitted on them, and no summary counts them.

    Examples
    --------
    >>> queries = pd.DataFrame({"query_id": ["a", "b"], "split": ["dev", "train"]})
    >>> sorted(mined_dev(with_mined(queries, 1.0, seed=1)))
    ['a']
    """
    asked = to_mine(queries)
    return frozenset(asked.loc[asked["split"] == "dev", "query_id"])


def of_train(shards: CandidateShards, queries: pd.DataFrame) -> CandidateShards:
    """Return the candidates of training queries: what mining fits and counts."""
    dev = mined_dev(queries)
    return _chosen(shards, dev, wanted=False) if dev else shards


def of_dev(shards: CandidateShards, queries: pd.DataFrame) -> CandidateShards:
    """Return the candidates of dev queries."""
    return _chosen(shards, mined_dev(queries), wanted=True)


def _chosen(shards: CandidateShards, query_ids: frozenset[str], *, wanted: bool) -> CandidateShards:
    """Return the rows that are, or are not, of these queries; a block without any is left out."""

    def blocks() -> Iterator[Candidates]:
        for block in shards:
            chosen = np.array([(query in query_ids) == wanted for query in block.query_ids.tolist()], bool)
            if chosen.any():
                yield block if chosen.all() else block.take(chosen)

    return CandidateShards(blocks, lambda names: _chosen(shards.only(*names), query_ids, wanted=wanted))
