"""Which rows, positives and negatives a step of training has, pseudo-queries among them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import BatchSampler

from anmi import seeds
from anmi.candidates import PADDING
from anmi.corpus.hardness import hardness
from anmi.errors import AnmiError
from anmi.ragged import Float64s, Int64s
from anmi.retrieval.pool import RelatedDocuments
from anmi.seeds import choose
from anmi.training.batch import NegativeSampler, Row
from anmi.training.curriculum import Curriculum
from anmi.training.losses.around import SLOT, DrawnBySimAns
from anmi.training.mixed import DNHSampler, Stock
from anmi.training.options import TrainingOptions
from anmi.training.parts import (
    TEACHER,
    Adaptation,
    HansOptions,
    MixedSources,
    SimAnsDraw,
    WindowOptions,
)

# Gap in Elo below which no negative is ever shown: the danger zone.
_DANGER: Final = 100.0
# A share of the negatives of so many queries is known to half a per cent, and memory does not grow
# with the training.
MOST_QUERIES: Final = 2_000


class FirstNegatives(NegativeSampler):
    """The best of each row, the same in every step."""

    def __init__(self, rows: Sequence[Row], count: int | None) -> None:
        self._rows = (
            rows
            if count is None
            else [row.pick(range(min(count, len(row.negatives)))) for row in rows]
        )

    def __call__(self, rows: Int64s, step: int) -> list[Row]:
        """Return the rows of the given numbers."""
        return [self._rows[number] for number in rows]


class _Pools(NegativeSampler):
    """What is known of all negatives that were mined for the rows, each row's own in a line of an array.

    Parameters
    ----------
    rows
        All training rows with all negatives that were mined for them.
    count
        Negatives that a row brings to a step; None is all it has.
    seed
        Of the training.
    column
        Judgment that the draw goes by; empty for places in the pool, from 0 to 1.
    keep
        Judgments that the loss reads; others are not carried into the batches.
    """

    stream: str

    def __init__(
        self, rows: Sequence[Row], count: int | None, seed: int, column: str, keep: Sequence[str]
    ) -> None:
        lengths = np.array([len(row.negatives) for row in rows])
        self._places = np.arange(max(int(lengths.max(initial=0)), 1), dtype=np.int32)
        self._exists = exists = self._places < lengths[:, None]
        weights = np.zeros(exists.shape)
        self._values = np.full(exists.shape, np.nan)
        weights[exists] = [weight for row in rows for weight in row.weights]
        if column:
            self._values[exists] = [value for row in rows for value in row.judged[column][1]]
            self._own = np.array([row.judged[column][0] for row in rows])[:, None]
        else:
            places = self._places / np.maximum(lengths[:, None] - 1, 1)
            self._values[exists] = places[exists]
        self._usable = weights > 0
        self._rows = [
            replace(row, judged={name: row.judged[name] for name in keep}) for row in rows
        ]
        self._keys = [f"{row.query_id}\x1f{row.positive_id}" for row in rows]
        self._count = count
        self._seed = seed

    def _uniform(self, rows: Int64s, step: int) -> Float64s:
        keys = [self._keys[number] for number in rows.tolist()]
        slots = np.broadcast_to(self._places, (len(rows), len(self._places)))
        return seeds.uniform(self._seed, f"training/{self.stream}/{step}", keys, slots)


class PoolSampler(_Pools):
    """Draws the negatives of a step uniformly from those inside the curriculum's window, without replacement.

    Where the window holds too few, those nearest to it follow, and negatives that nobody rated come
    last. What lies below the danger border, or weighs nothing, is never drawn, nor is it a negative
    of its row through another row of the batch. The draws of a row depend on seed, step and row
    only, and the first k of n drawn are what a draw of k would have given.

    Parameters
    ----------
    rows, count, seed, keep
        As of the pools; with a window in Elo rows were judged in ``elo``.
    curriculum
        Whose state every draw goes by.
    options
        Of the curriculum: what its window is in.
    """

    stream = "pool"

    def __init__(
        self,
        rows: Sequence[Row],
        count: int | None,
        seed: int,
        curriculum: Curriculum,
        options: WindowOptions,
        keep: Sequence[str] = (),
    ) -> None:
        by_elo = options.window == "elo"
        super().__init__(rows, count, seed, "elo" if by_elo else "", keep)
        self._gap = self._own - self._values if by_elo else self._values
        # A gap nobody knows is not known to be below the border.
        self._usable &= ~(self._gap < (_DANGER if by_elo else -math.inf))
        for number, unusable in enumerate(self._exists & ~self._usable):
            row = self._rows[number]
            excluded = row.excluded_ids.union(
                row.negative_ids[place] for place in np.flatnonzero(unusable)
            )
            self._rows[number] = replace(row, excluded_ids=excluded)
        self._curriculum = curriculum
        self._report: dict[str, float] = {}

    def __call__(self, rows: Int64s, step: int) -> list[Row]:
        """Return the rows of the given numbers with the negatives of this step (from 0)."""
        state = self._curriculum.state
        gap = self._gap[rows]
        usable = self._usable[rows]
        assert state is not None
        outside = np.maximum(np.maximum(state.low - gap, gap - state.high), 0.0)
        outside[np.isnan(gap)] = np.inf
        places = np.lexsort(
            (self._uniform(rows, step), np.where(usable, outside, np.inf), ~usable), axis=1
        )
        places = places[:, : self._count if state.negatives is None else state.negatives]
        # What is drawn stands before what is not.
        taken, inside = (
            np.take_along_axis(known, places, axis=1) for known in (usable, outside == 0)
        )
        drawn = int(taken.sum())
        share = float((inside & taken).sum()) / drawn if drawn else math.nan
        self._report = {"negatives": drawn / len(rows), "inside": share}
        return [
            self._rows[number].pick(line[:count])
            for number, line, count in zip(
                rows.tolist(), places.tolist(), taken.sum(axis=1).tolist(), strict=True
            )
        ]

    def report(self) -> dict[str, float]:
        """Return the mean number of negatives a row of the last step, and the share of them inside the window."""
        return self._report


def _check_pool(rows: Sequence[Row], negatives: int | None) -> None:
    """Raise an AnmiError unless there is more to draw from than is drawn."""
    most = max(len(row.negatives) for row in rows)
    if negatives is None or most <= negatives:
        wanted = "all negatives of a row" if negatives is None else f"{negatives} negatives a row"
        raise AnmiError(
            f"A curriculum chooses among more negatives than a step takes, but {wanted} are asked"
            f" for and no row has more than {most}; ask for fewer, or give the recipe a larger"
            " `pool` and run selection again."
        )


class SimAnsSampler(_Pools):
    """Draws the negatives of a step from each row's pool by the present a and b, without replacement.

    The draw is exact: the Gumbel top-k of the pool. How far a softmax in its place would have drawn
    each candidate is left with the loss of the step, which has its gradient. What weighs nothing,
    or has no score, is never drawn. The draws of a row depend on seed, step, row, a and b only.

    Parameters
    ----------
    rows, count, seed, column, keep
        As of the pools.
    loss
        That of the training, with what is learned of the draw.
    """

    stream = "simans"

    def __init__(
        self,
        rows: Sequence[Row],
        count: int,
        seed: int,
        loss: DrawnBySimAns,
        column: str,
        keep: Sequence[str] = (),
    ) -> None:
        super().__init__(rows, count, seed, column, keep)
        self._usable &= np.isfinite(self._values)
        if loss.drawing.form == "score":
            self._usable &= np.isfinite(self._own)
        self._wanted = count
        self._loss = loss

    def __call__(self, rows: Int64s, step: int) -> list[Row]:
        """Return the rows of the given numbers with the negatives of this step (from 0)."""
        drawing = self._loss.drawing
        given = (
            np.nan_to_num(self._values[rows]),
            self._own[rows],
            self._usable[rows],
            self._uniform(rows, step),
        )
        scores, own, usable, uniform = (
            torch.from_numpy(each).to(drawing.b.device) for each in given
        )
        keys = drawing.keys(scores, own, usable, uniform)
        self._loss.relaxed = drawing.relaxed(keys, usable, self._wanted)
        order = (
            torch.argsort(keys.detach(), dim=1, descending=True, stable=True)[:, : self._wanted]
            .cpu()
            .numpy()
        )
        taken = np.take_along_axis(self._usable[rows], order, axis=1).sum(axis=1)
        places = [line[:count] for line, count in zip(order.tolist(), taken.tolist(), strict=True)]
        drawn = [
            self._rows[number].pick(line)
            for number, line in zip(rows.tolist(), places, strict=True)
        ]
        # Where in its pool each stands goes with it as a judgment.
        slots = [{SLOT: (math.nan, tuple(map(float, line)))} for line in places]
        return [
            replace(row, judged={**row.judged, **slot})
            for row, slot in zip(drawn, slots, strict=True)
        ]


class _Around(NegativeSampler):
    """What changes the rows of another sampler has in common."""

    def __init__(self, inner: NegativeSampler) -> None:
        self._inner = inner

    def report(self) -> dict[str, float]:
        """Return the inner sampler's numbers."""
        return self._inner.report()


class InTurn(_Around):
    """Shows the positives of queries that have more of them than rows, as many in an epoch as there are rows.

    The positives of a query stand in an order that its own stream draws, and each epoch goes on
    where the last one ended, so that all have their turn. Rows whose loss reads judgments of the
    positive keep that which was judged.

    Parameters
    ----------
    inner
        Chooses the negatives of a step.
    rows
        All training rows.
    positives
        ``query_id, document_id, text`` of such queries, all positives of each.
    seed
        Of the training.
    steps
        Of an epoch.
    """

    def __init__(
        self,
        inner: NegativeSampler,
        rows: Sequence[Row],
        positives: pd.DataFrame,
        seed: int,
        steps: int,
    ) -> None:
        super().__init__(inner)
        self._steps = steps
        table = positives.sort_values(["query_id", "document_id"])
        self._turns: dict[str, list[tuple[str, str]]] = {}
        for query, group in table.groupby("query_id", sort=False):
            found = list(zip(group.document_id, group.text, strict=True))
            order = seeds.stream(seed, "training/positives", str(query)).permutation(len(found))
            self._turns[str(query)] = [found[place] for place in order]
        labelled = {
            query: {document for document, _ in found} for query, found in self._turns.items()
        }
        self._places: dict[str, dict[str, int]] = {query: {} for query in labelled}
        for row in rows:
            # What was promoted is no label, and has a row of its own.
            if row.positive_id in labelled.get(row.query_id, ()):
                places = self._places[row.query_id]
                places.setdefault(row.positive_id, len(places))

    def __call__(self, rows: Int64s, step: int) -> list[Row]:
        """Return the rows of the given numbers with the positives and negatives of this step (from 0)."""
        return [self._turned(row, step // self._steps) for row in self._inner(rows, step)]

    def _turned(self, row: Row, epoch: int) -> Row:
        places = self._places.get(row.query_id, {})
        if row.judged or row.positive_id not in places:
            return row
        turns = self._turns[row.query_id]
        document, text = turns[(epoch * len(places) + places[row.positive_id]) % len(turns)]
        return replace(row, positive_id=document, positive=text)


def with_hardness(rows: Sequence[Row]) -> list[Row]:
    """Return the rows with the hardness of their queries; every query is looked at once."""
    texts = list(dict.fromkeys(row.query for row in rows))
    value = dict(zip(texts, hardness(texts).tolist(), strict=True))
    return [replace(row, hardness=value[row.query]) for row in rows]


def round_at_random(values: Float64s, query_ids: Sequence[str], step: int, seed: int) -> Int64s:
    """Round up with the probability of the fraction, so that the mean over steps is the value itself.

    Values [B] give int64 [B]. A query's draw depends on the seed, its id and the step (from 0), on
    nothing else.

    Examples
    --------
    >>> round_at_random(np.array([2.0, 1.5]), ["q1", "q2"], step=0, seed=1)[0].item()
    2
    """
    slots = np.full((len(query_ids), 1), step, np.int32)
    uniform = seeds.uniform(seed, "training/hardness", query_ids, slots)[:, 0]
    whole = np.floor(values)
    return (whole + (uniform < values - whole)).astype(np.int64)


class HardnessSampler(_Around):
    """Lets a row keep the first of the negatives that another sampler chose, as many as its hardness asks for.

    Parameters
    ----------
    inner
        Chooses the negatives of a step, best first.
    count
        How many there are at a hardness.
    seed
        Of the training.
    """

    def __init__(self, inner: NegativeSampler, count: Adaptation, seed: int) -> None:
        super().__init__(inner)
        self._count = count
        self._seed = seed
        self._mean = math.nan

    def __call__(self, rows: Int64s, step: int) -> list[Row]:
        """Return the rows of the given numbers with the negatives of this step (from 0)."""
        found = self._inner(rows, step)
        wanted = self._count.at(np.array([row.hardness for row in found]))
        counts = round_at_random(wanted, [row.query_id for row in found], step, self._seed)
        kept = [
            row.pick(range(min(count, len(row.negatives))))
            for row, count in zip(found, counts.tolist(), strict=True)
        ]
        self._mean = sum(len(row.negatives) for row in kept) / len(kept)
        return kept

    def report(self) -> dict[str, float]:
        """Return the inner sampler's numbers, and the mean number of negatives of the last step."""
        return super().report() | {"negatives": self._mean}


def build_sampler(
    rows: Sequence[Row],
    options: TrainingOptions,
    curriculum: Curriculum,
    seed: int,
    *,
    stock: Stock | None = None,
    dimension: int = 0,
    loss: nn.Module | None = None,
    positives: pd.DataFrame | None = None,
    epoch: int = 1,
) -> NegativeSampler:
    """Return what chooses the negatives of every step.

    ``rows`` have all negatives that were mined for them. ``stock`` is what negatives of mixed
    sources are drawn from. ``loss`` learns the draw of ``simans``. ``positives`` are those of
    :class:`InTurn`, and ``epoch`` the steps of one.

    Raises
    ------
    AnmiError
        There is a curriculum, and no row has more negatives than a step takes; or sources are
        mixed, and there is nothing to draw from.
    """
    count = options.negatives
    keep = options.loss.reads
    if isinstance(options.sources, MixedSources):
        if stock is None or count is None:
            raise AnmiError(
                "Negatives of mixed sources are drawn from the corpus and what its documents state;"
                " give the training both, as the training stage does."
            )
        return DNHSampler(rows, count, seed, stock, options.sources, curriculum, dimension)
    made: NegativeSampler
    if isinstance(options.curriculum, WindowOptions):
        _check_pool(rows, count)
        made = PoolSampler(rows, count, seed, curriculum, options.curriculum, keep)
    elif isinstance(options.draw, SimAnsDraw):
        _check_pool(rows, count)
        assert isinstance(loss, DrawnBySimAns) and count is not None
        made = SimAnsSampler(rows, count, seed, loss, options.draw.reads[0], keep)
    else:
        made = FirstNegatives(rows, count)
    if isinstance(options.hardness, HansOptions) and options.hardness.negatives.on:
        made = HardnessSampler(made, options.hardness.negatives, seed)
    return (
        made if positives is None or positives.empty else InTurn(made, rows, positives, seed, epoch)
    )


class DrawnNegatives:
    """Counts how often each document was drawn as a negative of each query.

    Negatives that a row gets from the other rows of its batch are not drawn for it and do not
    count.

    Parameters
    ----------
    query_ids
        Of the training rows.
    seed
        Keys which queries are counted where there are more than ``most``.
    most
        Queries counted at most, chosen by a hash of their ids.

    Examples
    --------
    >>> drawn = DrawnNegatives(["q"], seed=1)
    >>> drawn.add([Row("q", "?", "p", "yes", ("a", "b"), ("no", "not"), (1.0, 1.0), 1.0, frozenset("p"))])
    >>> drawn.table().values.tolist()
    [['q', 'a', 1], ['q', 'b', 1]]
    """

    def __init__(self, query_ids: Iterable[str], seed: int, most: int = MOST_QUERIES) -> None:
        names = np.array(sorted(set(query_ids)), object)
        self._counted = set(names[choose(names.tolist(), most, seed)])
        self._counts = Counter[tuple[str, str]]()

    def add(self, rows: Sequence[Row]) -> None:
        """Count the negatives of a step."""
        for row in rows:
            if row.query_id in self._counted:
                self._counts.update((row.query_id, name) for name in row.negative_ids)

    def table(self) -> pd.DataFrame:
        """Return ``query_id, document_id, count``, sorted."""
        types = {"query_id": "str", "document_id": "str", "count": "int64"}
        return pd.DataFrame(self.state_dict(), columns=list(types)).astype(types)

    def state_dict(self) -> list[list[Any]]:
        """Return all it needs to go on elsewhere, as plain JSON values."""
        return [[*pair, count] for pair, count in sorted(self._counts.items())]

    def load_state_dict(self, state: Sequence[Sequence[Any]]) -> None:
        """Go on from what :meth:`state_dict` gave."""
        self._counts = Counter({(query, document): count for query, document, count in state})


class PseudoRows:
    """The pseudo-queries that a training uses, one slot per kind and document.

    A slot has as many views as pseudo-queries of that kind were made of that document; an epoch
    takes the next one.

    Parameters
    ----------
    table
        ``query_id, text, document_id, positive_text, kind, weight, split``; only those of ``train``
        are used.
    kinds
        In this order; there is a pseudo-query of each.
    related
        Which documents are copies, near-duplicates or siblings of others: none of them becomes a
        negative of another one inside a batch.
    document_ids
        Of the corpus, in its order.
    """

    def __init__(
        self,
        table: pd.DataFrame,
        kinds: Sequence[str],
        related: RelatedDocuments,
        document_ids: Sequence[str],
    ) -> None:
        table = table[(table.split == "train") & table.kind.isin(list(kinds))]
        names = pd.Index(document_ids)
        order = np.lexsort(
            (
                names.get_indexer(pd.Index(table.document_id)),
                pd.Categorical(table.kind, list(kinds)).codes,
            )
        )
        table = table.iloc[order]
        key = table.kind.to_numpy(object) + "\x1f" + table.document_id.to_numpy(object)
        starts = np.flatnonzero(
            np.concatenate([np.ones(min(len(key), 1), bool), key[1:] != key[:-1]])
        )
        self._starts = starts
        self._views = np.diff(np.append(starts, len(key)))
        columns = ["query_id", "text", "document_id", "positive_text", "weight"]
        self._pairs = list(table[columns].itertuples(index=False, name=None))
        self._place = names.get_indexer(pd.Index(table.document_id.iloc[starts])).astype(np.int32)
        self._related = related
        self._names = np.array(document_ids, dtype=object)
        of_slot = table.kind.to_numpy(object)[starts]
        self.groups = [np.flatnonzero(of_slot == kind) for kind in kinds]

    def __len__(self) -> int:
        """Return the number of slots."""
        return len(self._starts)

    def rows(self, slots: Int64s, epoch: int) -> list[Row]:
        """Return the rows of the given slots in an epoch (from 0)."""
        pairs = [self._pairs[place] for place in self._starts[slots] + epoch % self._views[slots]]
        found = self._related.excluded(self._place[slots][:, None])
        excluded = [frozenset(self._names[line[line != PADDING]].tolist()) for line in found]
        return [
            Row(
                query, text, document, positive, (), (), (), weight, frozenset((document,)), related
            )
            for (query, text, document, positive, weight), related in zip(
                pairs, excluded, strict=True
            )
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

    def __init__(
        self, labelled: NegativeSampler, count: int, pseudo: PseudoRows, steps: int
    ) -> None:
        self._labelled = labelled
        self._count = count
        self._pseudo = pseudo
        self._steps = steps
        self._share = 0.0

    def __call__(self, rows: Int64s, step: int) -> list[Row]:
        """Return the rows of the given numbers with the negatives and views of this step (from 0)."""
        own = rows[rows < self._count]
        others = rows[rows >= self._count] - self._count
        self._share = len(others) / len(rows)
        drawn = self._labelled(own, step) if len(own) else []
        return [*drawn, *(self._pseudo.rows(others, step // self._steps) if len(others) else [])]

    def report(self) -> dict[str, float]:
        """Return the share of pseudo-queries in the last batch."""
        return {"pseudo_queries": self._share}


class WithCandidates(_Around):
    """Adds to each row documents that a teacher scored.

    They may be relevant, so those that are no mined negatives weigh nothing.

    Parameters
    ----------
    inner
        Chooses the negatives of a step.
    candidates
        ``query_id, positive_id, document_id, score``, of positives too.
    texts
        By id, of these documents.
    """

    def __init__(
        self, inner: NegativeSampler, candidates: pd.DataFrame, texts: Mapping[str, str]
    ) -> None:
        super().__init__(inner)
        self._texts = texts
        self._scores: dict[tuple[str, str], dict[str, float]] = {}
        for query, positive, document, score in candidates.itertuples(index=False):
            self._scores.setdefault((query, positive), {})[document] = score

    def __call__(self, rows: Int64s, step: int) -> list[Row]:
        """Return the rows of the given numbers with their candidates."""
        return [self._with_candidates(row) for row in self._inner(rows, step)]

    def _with_candidates(self, row: Row) -> Row:
        scores = self._scores.get((row.query_id, row.positive_id), {})
        unmined = [name for name in scores if name not in {row.positive_id, *row.negative_ids}]
        names = (*row.negative_ids, *unmined)
        positive_score, *others = (scores.get(name, math.nan) for name in (row.positive_id, *names))
        return replace(
            row,
            negative_ids=names,
            negatives=(*row.negatives, *(self._texts[name] for name in unmined)),
            weights=row.weights + (0.0,) * len(unmined),
            judged={TEACHER: (positive_score, tuple(others))},
        )


class OneKindBatches(BatchSampler):
    """Batches of rows of one group, in an order drawn anew for every epoch.

    A batch of several kinds may be easy, as what a pseudo-query and its document look like tells
    the kinds apart: the option ``mixed`` makes one group of all pseudo-queries.

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

    def __init__(self, groups: Sequence[Int64s], sizes: Sequence[int], seed: int) -> None:
        self._groups = groups
        self._sizes = sizes
        self._seed = seed
        self.epoch: Callable[[], int] = lambda: 0
        # Asked for by the library's loader; our batches are lists of row numbers.
        self.batch_size = next(iter(sizes), 1)
        self.drop_last = False

    @staticmethod
    def of(
        labelled: int, pseudo: PseudoRows | None, options: TrainingOptions, seed: int
    ) -> OneKindBatches:
        """Lay out ``labelled`` rows, and behind them the slots of pseudo-queries."""
        groups, sizes = ([np.arange(labelled)], [options.batch_size]) if labelled else ([], [])
        more = [] if pseudo is None else [group + labelled for group in pseudo.groups]
        if options.pseudo_queries.mixed and more:
            more = [np.concatenate(more)]
        return OneKindBatches(
            [*groups, *more], [*sizes, *[options.pseudo_queries.batch_size] * len(more)], seed
        )

    def __len__(self) -> int:
        """Return the number of batches of an epoch."""
        return sum(
            math.ceil(len(group) / size)
            for group, size in zip(self._groups, self._sizes, strict=True)
        )

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
