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
MAX_QUERIES: Final = 2_000


class FirstNegatives(NegativeSampler):
    """The best of each row, the same in every step."""

    def __init__(self, rows: Sequence[Row], count: int | None) -> None:
        self._rows = [row.first(count) for row in rows]

    def __call__(self, rows: Int64s, step: int) -> list[Row]:
        """Return the rows of the given numbers."""
        return [self._rows[number] for number in rows]


class _Pools(NegativeSampler):
    """All negatives that were mined for the rows, those of a row in a line of an array.

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
    loss_columns
        Judgments that the loss reads; others are not carried into the batches.
    """

    stream: str

    def __init__(
        self,
        rows: Sequence[Row],
        count: int | None,
        seed: int,
        column: str,
        loss_columns: Sequence[str],
    ) -> None:
        lengths = np.array([len(row.negatives) for row in rows])
        self._places = np.arange(max(int(lengths.max(initial=0)), 1), dtype=np.int32)
        self._exists = self._places < lengths[:, None]
        weights = np.zeros(self._exists.shape)
        weights[self._exists] = [weight for row in rows for weight in row.weights]
        self._usable = weights > 0
        self._values = np.full(self._exists.shape, np.nan)
        if column:
            judged = [row.judged[column] for row in rows]
            self._values[self._exists] = [value for _, values in judged for value in values]
            self._positive_values = np.array([value for value, _ in judged])[:, None]
        else:
            shares = self._places / np.maximum(lengths[:, None] - 1, 1)
            self._values[self._exists] = shares[self._exists]
        self._rows = [
            replace(row, judged={name: row.judged[name] for name in loss_columns}) for row in rows
        ]
        self._keys = [f"{row.query_id}\x1f{row.positive_id}" for row in rows]
        self._count = count
        self._seed = seed

    def _uniform(self, rows: Int64s, step: int) -> Float64s:
        keys = [self._keys[number] for number in rows.tolist()]
        slots = np.broadcast_to(self._places, (len(rows), len(self._places)))
        return seeds.uniform(self._seed, f"training/{self.stream}/{step}", keys, slots)

    def _picked(self, rows: Int64s, places: Int64s, counts: Int64s) -> list[Row]:
        """Return rows [B] with the first so many of the negatives at places [B, n]."""
        lines = zip(rows.tolist(), places.tolist(), counts.tolist(), strict=True)
        return [self._rows[number].pick(line[:count]) for number, line, count in lines]


class PoolSampler(_Pools):
    """Draws the negatives of a step uniformly from the curriculum's window, without replacement.

    Where the window holds too few, those nearest to it follow, and negatives that nobody rated come
    last. What lies below the danger border, or weighs nothing, is never drawn, nor is it a negative
    of its row through another row of the batch. The draws of a row depend on seed, step and row
    only, and the first k of n drawn are what a draw of k would have given.

    Parameters
    ----------
    rows, count, seed, loss_columns
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
        loss_columns: Sequence[str] = (),
    ) -> None:
        by_elo = options.window == "elo"
        super().__init__(rows, count, seed, "elo" if by_elo else "", loss_columns)
        self._gaps = self._positive_values - self._values if by_elo else self._values
        # A gap nobody knows is not known to be below the border.
        self._usable &= ~(self._gaps < (_DANGER if by_elo else -math.inf))
        for number, is_unusable in enumerate(self._exists & ~self._usable):
            row = self._rows[number]
            unusable_ids = [row.negative_ids[place] for place in np.flatnonzero(is_unusable)]
            self._rows[number] = replace(row, excluded_ids=row.excluded_ids.union(unusable_ids))
        self._curriculum = curriculum
        self._report: dict[str, float] = {}

    def __call__(self, rows: Int64s, step: int) -> list[Row]:
        """Return the rows of the given numbers with the negatives of this step (from 0)."""
        state = self._curriculum.state
        assert state is not None
        gaps = self._gaps[rows]
        usable = self._usable[rows]
        distances = np.maximum(np.maximum(state.low - gaps, gaps - state.high), 0.0)
        distances[np.isnan(gaps)] = np.inf
        sort_keys = (self._uniform(rows, step), np.where(usable, distances, np.inf), ~usable)
        count = self._count if state.negatives is None else state.negatives
        places = np.lexsort(sort_keys, axis=1)[:, :count]
        # What is drawn stands before what is not.
        is_drawn = np.take_along_axis(usable, places, axis=1)
        is_inside = np.take_along_axis(distances == 0, places, axis=1)
        total = int(is_drawn.sum())
        inside_share = float((is_inside & is_drawn).sum()) / total if total else math.nan
        self._report = {"negatives": total / len(rows), "inside": inside_share}
        return self._picked(rows, places, is_drawn.sum(axis=1))

    def report(self) -> dict[str, float]:
        """Return the mean number of negatives a row, and the share of them inside the window."""
        return self._report


def _check_pool(rows: Sequence[Row], negatives: int | None) -> None:
    """Raise an AnmiError unless there is more to draw from than is drawn."""
    largest = max(len(row.negatives) for row in rows)
    if negatives is None or largest <= negatives:
        demand = "all negatives of a row" if negatives is None else f"{negatives} negatives a row"
        raise AnmiError(
            f"A curriculum chooses among more negatives than a step takes, but {demand} are asked"
            f" for and no row has more than {largest}; ask for fewer, or give the recipe a larger"
            " `pool` and run selection again."
        )


class SimAnsSampler(_Pools):
    """Draws the negatives of a step by the present a and b of SimANS, without replacement.

    The draw is exact: the Gumbel top-k of the pool. A softmax relaxation of it, which has a
    gradient, is stored on the loss of the step. Candidates without weight or score are never drawn.
    The draws of a row depend on seed, step, row, a and b only.

    Parameters
    ----------
    rows, count, seed, column, loss_columns
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
        loss_columns: Sequence[str] = (),
    ) -> None:
        super().__init__(rows, count, seed, column, loss_columns)
        self._usable &= np.isfinite(self._values)
        if loss.drawing.form == "score":
            self._usable &= np.isfinite(self._positive_values)
        self._draws = count
        self._loss = loss

    def __call__(self, rows: Int64s, step: int) -> list[Row]:
        """Return the rows of the given numbers with the negatives of this step (from 0)."""
        drawing = self._loss.drawing
        usable_rows = self._usable[rows]
        arrays = (
            np.nan_to_num(self._values[rows]),
            self._positive_values[rows],
            usable_rows,
            self._uniform(rows, step),
        )
        scores, positive, usable, uniform = (
            torch.from_numpy(array).to(drawing.b.device) for array in arrays
        )
        keys = drawing.keys(scores, positive, usable, uniform)
        self._loss.relaxed = drawing.relaxed(keys, usable, self._draws)
        order = torch.argsort(keys.detach(), dim=1, descending=True, stable=True)
        places = order[:, : self._draws].cpu().numpy()
        counts = np.take_along_axis(usable_rows, places, axis=1).sum(axis=1)
        drawn = []
        for line, row in enumerate(self._picked(rows, places, counts)):
            # Where in its pool each stands goes with it as a judgment.
            slots = tuple(map(float, places[line, : counts[line]]))
            drawn.append(replace(row, judged={**row.judged, SLOT: (math.nan, slots)}))
        return drawn


class _Around(NegativeSampler):
    """Base of samplers that change the rows that another sampler returns."""

    def __init__(self, inner: NegativeSampler) -> None:
        self._inner = inner

    def report(self) -> dict[str, float]:
        """Return the inner sampler's numbers."""
        return self._inner.report()


class InTurn(_Around):
    """Rotates through the positives of a query that has more positives than rows.

    An epoch shows as many as there are rows. The positives of a query stand in an order that its
    own stream draws, and each epoch goes on where the last one ended, so that all have their turn.
    Rows whose loss reads judgments of the positive keep that which was judged.

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
        Steps of an epoch.
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
        self._places: dict[str, dict[str, int]] = {}
        for query, group in table.groupby("query_id", sort=False):
            query_id = str(query)
            pairs = list(zip(group.document_id, group.text, strict=True))
            order = seeds.stream(seed, "training/positives", query_id).permutation(len(pairs))
            self._turns[query_id] = [pairs[place] for place in order]
            self._places[query_id] = {}
        labelled = set(zip(table.query_id, table.document_id, strict=True))
        for row in rows:
            # What was promoted is no label, and has a row of its own.
            if (row.query_id, row.positive_id) in labelled:
                places = self._places[row.query_id]
                places.setdefault(row.positive_id, len(places))

    def __call__(self, rows: Int64s, step: int) -> list[Row]:
        """Return the rows of the given numbers as they are in this step (from 0)."""
        return [self._turned(row, step // self._steps) for row in self._inner(rows, step)]

    def _turned(self, row: Row, epoch: int) -> Row:
        places = self._places.get(row.query_id, {})
        if row.judged or row.positive_id not in places:
            return row
        turns = self._turns[row.query_id]
        turn = epoch * len(places) + places[row.positive_id]
        document, text = turns[turn % len(turns)]
        return replace(row, positive_id=document, positive=text)


def with_hardness(rows: Sequence[Row]) -> list[Row]:
    """Return the rows with the hardness of their queries."""
    values = hardness([row.query for row in rows]).tolist()
    return [replace(row, hardness=value) for row, value in zip(rows, values, strict=True)]


def round_at_random(values: Float64s, query_ids: Sequence[str], step: int, seed: int) -> Int64s:
    """Round up with the probability of the fraction, so that the mean over steps is the value.

    Values [B] give int64 [B]. A query's draw depends on the seed, its id and the step (from 0), on
    nothing else.

    Examples
    --------
    >>> round_at_random(np.array([2.0, 1.5]), ["q1", "q2"], step=0, seed=1)[0].item()
    2
    """
    slots = np.full((len(query_ids), 1), step, np.int32)
    uniform = seeds.uniform(seed, "training/hardness", query_ids, slots)[:, 0]
    floors = np.floor(values)
    return (floors + (uniform < values - floors)).astype(np.int64)


class HardnessSampler(_Around):
    """Keeps the first of the negatives that another sampler chose, more for harder queries.

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
        chosen = self._inner(rows, step)
        mean_counts = self._count.at(np.array([row.hardness for row in chosen]))
        query_ids = [row.query_id for row in chosen]
        counts = round_at_random(mean_counts, query_ids, step, self._seed).tolist()
        shortened = [row.first(count) for row, count in zip(chosen, counts, strict=True)]
        self._mean = sum(len(row.negatives) for row in shortened) / len(shortened)
        return shortened

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
    steps_per_epoch: int = 1,
) -> NegativeSampler:
    """Return what chooses the negatives of every step.

    ``rows`` have all negatives that were mined for them. ``stock`` is what negatives of mixed
    sources are drawn from. ``loss`` learns the draw of ``simans``. ``positives`` are those of
    :class:`InTurn`.

    Raises
    ------
    AnmiError
        There is a curriculum, and no row has more negatives than a step takes; or sources are
        mixed, and there is nothing to draw from.
    """
    count = options.negatives
    loss_columns = options.loss.reads
    if isinstance(options.sources, MixedSources):
        if stock is None or count is None:
            raise AnmiError(
                "Negatives of mixed sources are drawn from the corpus and what its documents state;"
                " give the training both, as the training stage does."
            )
        return DNHSampler(rows, count, seed, stock, options.sources, curriculum, dimension)
    sampler: NegativeSampler
    if isinstance(options.curriculum, WindowOptions):
        _check_pool(rows, count)
        sampler = PoolSampler(rows, count, seed, curriculum, options.curriculum, loss_columns)
    elif isinstance(options.draw, SimAnsDraw):
        _check_pool(rows, count)
        assert isinstance(loss, DrawnBySimAns) and count is not None
        sampler = SimAnsSampler(rows, count, seed, loss, options.draw.reads[0], loss_columns)
    else:
        sampler = FirstNegatives(rows, count)
    if isinstance(options.hardness, HansOptions) and options.hardness.negatives.on:
        sampler = HardnessSampler(sampler, options.hardness.negatives, seed)
    if positives is None or positives.empty:
        return sampler
    return InTurn(sampler, rows, positives, seed, steps_per_epoch)


class DrawnNegatives:
    """Counts how often each document was drawn as a negative of each query.

    Negatives that a row gets from the other rows of its batch are not drawn for it and do not
    count.

    Parameters
    ----------
    query_ids
        Of the training rows.
    seed
        Keys which queries are counted where there are more than ``max_queries``.
    max_queries
        Queries counted at most, chosen by a hash of their ids.

    Examples
    --------
    >>> drawn = DrawnNegatives(["q"], seed=1)
    >>> row = Row("q", "?", "p", "yes", ("a", "b"), ("no", "not"), (1.0, 1.0), 1.0, frozenset("p"))
    >>> drawn.add([row])
    >>> drawn.table().values.tolist()
    [['q', 'a', 1], ['q', 'b', 1]]
    """

    def __init__(self, query_ids: Iterable[str], seed: int, max_queries: int = MAX_QUERIES) -> None:
        names = np.array(sorted(set(query_ids)), object)
        self._counted = set(names[choose(names.tolist(), max_queries, seed)])
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
        corpus_ids = pd.Index(document_ids)
        kind_codes = pd.Categorical(table.kind, list(kinds)).codes
        numbers = corpus_ids.get_indexer(pd.Index(table.document_id))
        order = np.lexsort((numbers, kind_codes))
        table = table.iloc[order]
        starts = np.flatnonzero(~table.duplicated(["kind", "document_id"]))
        self._starts = starts
        self._view_counts = np.diff(np.append(starts, len(table)))
        columns = ["query_id", "text", "document_id", "positive_text", "weight"]
        self._pairs = list(table[columns].itertuples(index=False, name=None))
        self._documents = numbers[order][starts].astype(np.int32)
        self._related = related
        self._names = np.array(document_ids, dtype=object)
        slot_kinds = table.kind.to_numpy(object)[starts]
        self.groups = [np.flatnonzero(slot_kinds == kind) for kind in kinds]

    def __len__(self) -> int:
        """Return the number of slots."""
        return len(self._starts)

    def rows(self, slots: Int64s, epoch: int) -> list[Row]:
        """Return the rows of the given slots in an epoch (from 0)."""
        pair_numbers = self._starts[slots] + epoch % self._view_counts[slots]
        related = self._related.excluded(self._documents[slots][:, None])
        rows = []
        for pair_number, numbers in zip(pair_numbers, related, strict=True):
            query_id, text, document_id, positive, weight = self._pairs[pair_number]
            row = Row(
                query_id,
                text,
                document_id,
                positive,
                (),
                (),
                (),
                weight,
                frozenset((document_id,)),
                frozenset(self._names[numbers[numbers != PADDING]]),
            )
            rows.append(row)
        return rows


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
        Steps of an epoch.
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
        """Return the rows of the given numbers as they are in this step (from 0)."""
        labelled = rows[rows < self._count]
        slots = rows[rows >= self._count] - self._count
        self._share = len(slots) / len(rows)
        drawn = self._labelled(labelled, step) if len(labelled) else []
        return [*drawn, *(self._pseudo.rows(slots, step // self._steps) if len(slots) else [])]

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
        negative_ids = (*row.negative_ids, *unmined)
        negative_scores = tuple(scores.get(name, math.nan) for name in negative_ids)
        return replace(
            row,
            negative_ids=negative_ids,
            negatives=(*row.negatives, *(self._texts[name] for name in unmined)),
            weights=row.weights + (0.0,) * len(unmined),
            judged={TEACHER: (scores.get(row.positive_id, math.nan), negative_scores)},
        )


class OneKindBatches(BatchSampler):
    """Batches of rows of one group, in an order drawn anew for every epoch.

    A batch of several kinds may be easy, since style alone tells the kinds apart. The option
    ``mixed`` puts all pseudo-queries in one group.

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
    current_epoch
        Returns the epoch that begins, from 0, also after a training was resumed.
    """

    def __init__(self, groups: Sequence[Int64s], sizes: Sequence[int], seed: int) -> None:
        self._groups = groups
        self._sizes = sizes
        self._seed = seed
        self.current_epoch: Callable[[], int] = lambda: 0
        # The library's loader reads these; our batches are lists of row numbers.
        self.batch_size = next(iter(sizes), 1)
        self.drop_last = False

    @staticmethod
    def of(
        labelled: int, pseudo: PseudoRows | None, options: TrainingOptions, seed: int
    ) -> OneKindBatches:
        """Lay out ``labelled`` rows, and behind them the slots of pseudo-queries."""
        groups = [group + labelled for group in pseudo.groups] if pseudo is not None else []
        if options.pseudo_queries.mixed and groups:
            groups = [np.concatenate(groups)]
        sizes = [options.pseudo_queries.batch_size] * len(groups)
        if labelled:
            groups = [np.arange(labelled), *groups]
            sizes = [options.batch_size, *sizes]
        return OneKindBatches(groups, sizes, seed)

    def __len__(self) -> int:
        """Return the number of batches of an epoch."""
        pairs = zip(self._groups, self._sizes, strict=True)
        return sum(math.ceil(len(group) / size) for group, size in pairs)

    def __iter__(self) -> Iterator[list[int]]:
        """Yield the batches of the epoch that begins."""
        random = seeds.stream(self._seed, f"training/batches/{self.current_epoch()}")
        batches: list[Int64s] = []
        for group, size in zip(self._groups, self._sizes, strict=True):
            borders = np.arange(size, len(group), size)
            batches += np.split(random.permutation(group), borders)
        for place in random.permutation(len(batches)):
            yield batches[place].tolist()
