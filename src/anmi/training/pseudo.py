"""Pseudo-queries as training rows: which view of a document an epoch has, and batches of one kind."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch.utils.data import BatchSampler

from anmi import seeds
from anmi.candidates import PADDING
from anmi.retrieval.pool import RelatedDocuments
from anmi.training.batch import NegativeSampler, Row
from anmi.training.options import TrainingOptions


class PseudoRows:
    """The pseudo-queries that a training uses, one slot per kind and document.

    A slot has as many views as pseudo-queries of that kind were made of that document; an epoch takes the next one.

    Parameters
    ----------
    table
        ``query_id, text, document_id, positive_text, kind, weight, split``; only those of ``train`` are used.
    kinds
        In this order; there is a pseudo-query of each.
    related
        Which documents are copies, near-duplicates or siblings of others: none of them becomes a negative of another
        one inside a batch.
    document_ids
        Of the corpus, in its order.
    """

    def __init__(
        self, table: pd.DataFrame, kinds: Sequence[str], related: RelatedDocuments, document_ids: Sequence[str]
    ) -> None:
        table = table[(table.split == "train") & table.kind.isin(list(kinds))]
        names = pd.Index(document_ids)
        order = np.lexsort(
            (names.get_indexer(pd.Index(table.document_id)), pd.Categorical(table.kind, list(kinds)).codes)
        )
        table = table.iloc[order]
        key = table.kind.to_numpy(object) + "\x1f" + table.document_id.to_numpy(object)
        starts = np.flatnonzero(np.concatenate([np.ones(min(len(key), 1), bool), key[1:] != key[:-1]]))
        self._starts, self._views = starts, np.diff(np.append(starts, len(key)))
        columns = ["query_id", "text", "document_id", "positive_text", "weight"]
        self._pairs = list(table[columns].itertuples(index=False, name=None))
        self._place = names.get_indexer(pd.Index(table.document_id.iloc[starts])).astype(np.int32)
        self._related, self._names = related, np.array(document_ids, dtype=object)
        of_slot = table.kind.to_numpy(object)[starts]
        self.groups = [np.flatnonzero(of_slot == kind) for kind in kinds]

    def __len__(self) -> int:
        """Return the number of slots."""
        return len(self._starts)

    def rows(self, slots: NDArray[np.int64], epoch: int) -> list[Row]:
        """Return the rows of the given slots in an epoch (from 0)."""
        pairs = [self._pairs[place] for place in self._starts[slots] + epoch % self._views[slots]]
        found = self._related.excluded(self._place[slots][:, None])
        excluded = [frozenset(self._names[line[line != PADDING]].tolist()) for line in found]
        return [
            Row(query, text, document, positive, (), (), (), weight, frozenset((document,)), related)
            for (query, text, document, positive, weight), related in zip(pairs, excluded, strict=True)
        ]


class WithPseudoQueries(NegativeSampler):
    """Draws labelled rows as ``labelled`` does, and behind them the slots of pseudo-queries.

    Parameters
    ----------
    labelled
        Sampler of the rows below ``count``.
    count
        Number of labelled rows.
    pseudo
        What the numbers from ``count`` on mean.
    steps
        Of an epoch.
    """

    def __init__(self, labelled: NegativeSampler, count: int, pseudo: PseudoRows, steps: int) -> None:
        self._labelled, self._count, self._pseudo, self._steps = labelled, count, pseudo, steps
        self._share = 0.0

    def __call__(self, rows: NDArray[np.int64], step: int) -> list[Row]:
        """Return the rows of the given numbers with the negatives and views of this step (from 0)."""
        own, others = rows[rows < self._count], rows[rows >= self._count] - self._count
        self._share = len(others) / len(rows)
        drawn = self._labelled(own, step) if len(own) else []
        return [*drawn, *(self._pseudo.rows(others, step // self._steps) if len(others) else [])]

    def report(self) -> dict[str, float]:
        """Return the share of pseudo-queries in the last batch."""
        return {"pseudo_queries": self._share}


class OneKindBatches(BatchSampler):
    """Batches of rows of one group, in an order drawn anew for every epoch.

    A batch of several kinds would be easy: what a pseudo-query and its document look like tells the kinds apart.

    Parameters
    ----------
    groups
        Row numbers of each group.
    sizes
        Rows of a batch of each group; the last one of an epoch may have fewer.
    seed
        Of the training.

    Attributes
    ----------
    epoch
        Returns the epoch that begins, from 0, also after a training was resumed.
    """

    def __init__(self, groups: Sequence[NDArray[np.int64]], sizes: Sequence[int], seed: int) -> None:
        self._groups, self._sizes, self._seed = groups, sizes, seed
        self.epoch: Callable[[], int] = lambda: 0
        # Asked for by the library's loader; our batches are lists of row numbers.
        self.batch_size, self.drop_last = next(iter(sizes), 1), False

    @staticmethod
    def of(labelled: int, pseudo: PseudoRows | None, options: TrainingOptions, seed: int) -> OneKindBatches:
        """Lay out ``labelled`` rows, and behind them the slots of pseudo-queries."""
        groups, sizes = ([np.arange(labelled)], [options.batch_size]) if labelled else ([], [])
        more = [] if pseudo is None else [group + labelled for group in pseudo.groups]
        return OneKindBatches([*groups, *more], [*sizes, *[options.pseudo_queries.batch_size] * len(more)], seed)

    def __len__(self) -> int:
        """Return the number of batches of an epoch."""
        return sum(math.ceil(len(group) / size) for group, size in zip(self._groups, self._sizes, strict=True))

    def __iter__(self) -> Iterator[list[int]]:
        """Yield the batches of the epoch that begins."""
        random = seeds.stream(self._seed, f"training/batches/{self.epoch()}")
        batches = [
            part
            for group, size in zip(self._groups, self._sizes, strict=True)
            for part in np.split(random.permutation(group), np.arange(size, len(group), size))
        ]
        for place in random.permutation(len(batches)):
            yield batches[place].tolist()
