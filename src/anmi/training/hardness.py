"""The number of negatives by the hardness of a query, drawn anew in every step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import BatchSampler

from anmi import seeds
from anmi.corpus.hardness import HardnessParams, hardness
from anmi.training.batch import Row
from anmi.training.options.hardness import Adaptation

STREAM: Final = "training/hardness"


def rated(rows: Sequence[Row], params: HardnessParams) -> list[Row]:
    """Return the rows with the hardness of their queries, unless they have it; every query is looked at once."""
    if not any(math.isnan(row.hardness) for row in rows):
        return list(rows)
    texts = list(dict.fromkeys(row.query for row in rows))
    value = dict(zip(texts, hardness(texts, params).value.tolist(), strict=True))
    return [replace(row, hardness=value[row.query]) for row in rows]


def round_at_random(values: NDArray[np.float64], query_ids: Sequence[str], step: int, seed: int) -> NDArray[np.int64]:
    """Round up with the probability of the fraction, so that the mean over steps is the value itself.

    Values [B] give int64 [B]. A query's draw depends on the seed, its id and the step (from 0), on nothing else.

    Examples
    --------
    >>> round_at_random(np.array([2.0, 1.5]), ["q1", "q2"], step=0, seed=1)[0].item()
    2
    """
    slots = np.full((len(query_ids), 1), step, np.int32)
    uniform = seeds.uniform(seed, STREAM, query_ids, slots)[:, 0]
    whole = np.floor(values)
    return (whole + (uniform < values - whole)).astype(np.int64)


class HardnessSampler:
    """Lets a row keep the first of the negatives that another sampler chose, as many as its hardness asks for.

    Parameters
    ----------
    inner
        Chooses the negatives of a step, best first.
    count
        How many there are at a hardness; off keeps all.
    seed
        Of the training.
    """

    def __init__(self, inner: Callable[[NDArray[np.int64], int], list[Row]], count: Adaptation, seed: int) -> None:
        self._inner = inner
        self._count = count
        self._seed = seed
        self._mean: float | None = None

    def __call__(self, rows: NDArray[np.int64], step: int) -> list[Row]:
        """Return the rows of the given numbers with the negatives of this step (from 0)."""
        found = self._inner(rows, step)
        if not self._count.on:
            return found
        wanted = self._count.at(np.array([row.hardness for row in found]))
        counts = round_at_random(wanted, [row.query_id for row in found], step, self._seed)
        kept = [
            row.pick(range(min(count, len(row.negatives)))) for row, count in zip(found, counts.tolist(), strict=True)
        ]
        self._mean = sum(len(row.negatives) for row in kept) / len(kept)
        return kept

    def report(self) -> dict[str, float]:
        """Return the inner sampler's numbers, and the mean number of negatives of the last step."""
        inner: dict[str, float] = self._inner.report() if hasattr(self._inner, "report") else {}
        return inner if self._mean is None else inner | {"negatives": self._mean}


class EasyFirstBatches(BatchSampler):
    """Batches that go from easy queries to hard ones in the first epochs, and are drawn at random in later ones.

    An epoch has every row once, so the training is as long as any other. Rows of one hardness stand in an order drawn
    anew for every epoch; in the last batch, which may be smaller, are the hardest.

    Parameters
    ----------
    hardness
        Of the rows' queries, [rows].
    size
        Rows of a batch.
    epochs
        So many epochs are sorted.
    seed
        Of the training.
    epoch
        Returns the epoch that begins, from 0, also after a training was resumed.

    References
    ----------
    Bengio et al., "Curriculum Learning", ICML 2009; what is hard is the heuristic of the HANS report, methods §4.
    """

    def __init__(self, hardness: Sequence[float], size: int, epochs: int, seed: int, epoch: Callable[[], int]) -> None:
        self._hardness, self._epochs, self._seed, self._epoch = np.array(hardness), epochs, seed, epoch
        # Asked for by the library's loader.
        self.batch_size, self.drop_last = size, False

    def __len__(self) -> int:
        """Return the number of batches of an epoch."""
        return math.ceil(len(self._hardness) / self.batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        """Yield the batches of the epoch that begins."""
        epoch = self._epoch()
        order = seeds.stream(self._seed, f"{STREAM}/{epoch}").permutation(len(self._hardness))
        if epoch < self._epochs:
            order = order[np.argsort(self._hardness[order], kind="stable")]
        for part in np.split(order, np.arange(self.batch_size, len(order), self.batch_size)):
            yield part.tolist()
