"""How much of a training is kept: the weights at a share of the way from the first to the last.

Between the two nDCG@10 is smooth, and sometimes higher than at either end (WiSE-FT, arXiv
2109.01903).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

from anmi.adaptation.pseudo_tests import with_pseudo_tests
from anmi.evaluation.choice import Prior, balanced, choose
from anmi.evaluation.retrieval import DevQueries, dev_collection
from anmi.evaluation.significance import compare, intervals
from anmi.ragged import Bools, Float64s
from anmi.retrieval.kinds import is_sparse, is_static
from anmi.training.options import START, Alpha

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from anmi.retrieval.kinds import EncoderSettings

ALPHAS: Final = (0.0, 0.25, 0.5, 0.75, 1.0)
PRIOR: Final = Prior(best=(1.0,), fall=0.05, spread=0.06, reach=1.0, lean=(0.02,), lean_spread=0.05)
_SIGNIFICANT: Final = 0.05


def dev_tables(
    corpus: pd.DataFrame,
    queries: pd.DataFrame,
    qrels: pd.DataFrame,
    pseudo_queries: pd.DataFrame,
    new_documents: pd.DataFrame,
    *,
    most_documents: int,
    seed: int,
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Return the collection of all dev queries.

    See :func:`anmi.evaluation.retrieval.dev_collection`. Pseudo-queries are among them. Documents
    that a label names are asked none, which would take texts from them. The queries say
    ``is_pseudo``, ``is_unlabelled`` and ``is_new``, see :class:`AlphaChoice`.
    """
    relevant = qrels[qrels.relevance > 0]
    is_test = relevant.query_id.isin(queries.query_id[queries.split == "test"])
    is_named = pseudo_queries.document_id.isin(relevant.document_id[~is_test])
    tables = with_pseudo_tests(corpus, queries, qrels, pseudo_queries[~is_named], ["dev"])
    documents, dev, labels = dev_collection(*tables, most_documents, seed)
    trained_on = relevant[relevant.query_id.isin(queries.query_id[queries.split == "train"])]
    is_trained_on = relevant.document_id.isin(trained_on.document_id)
    is_old = ~relevant.document_id.isin(new_documents.document_id)
    dev = dev.assign(
        is_pseudo=~dev.query_id.isin(queries.query_id),
        is_unlabelled=~dev.query_id.isin(relevant.query_id[is_trained_on]),
        is_new=~dev.query_id.isin(relevant.query_id[is_old]),
    )
    return documents, dev, labels


@dataclass
class AlphaChoice:
    """Chooses alpha by dev queries, see :func:`anmi.evaluation.choice.choose`.

    Attributes
    ----------
    dev
        Q queries, labelled ones and pseudo-queries.
    is_pseudo
        Which are pseudo-queries, [Q].
    is_unlabelled
        Of which training saw no relevant document as a positive, [Q].
    is_new
        Of which training saw no relevant document at all, [Q]; these are unlabelled too.
    seed
        Of the draws.
    curve
        What was measured: ``alpha, queries, count, ndcg@10, low, high``; ``queries`` are
        ``labelled`` (about documents that training has labels of), ``new``, ``unlabelled`` (the
        others) or ``pseudo``, which new documents ask. Between ``low`` and ``high`` lies the mean
        if the difference to the start is within its 95 % interval.
    """

    dev: DevQueries
    is_pseudo: Bools
    is_unlabelled: Bools
    is_new: Bools
    seed: int
    curve: list[dict[str, Any]] = field(default_factory=list)

    @staticmethod
    def of(
        documents: pd.DataFrame,
        queries: pd.DataFrame,
        labels: pd.DataFrame,
        settings: EncoderSettings,
        seed: int,
    ) -> AlphaChoice:
        """Return the choice by the tables of :func:`dev_tables`."""
        dev = DevQueries(documents, queries, labels, settings)
        is_pseudo = queries.is_pseudo.to_numpy(bool)
        is_unlabelled = queries.is_unlabelled.to_numpy(bool)
        return AlphaChoice(dev, is_pseudo, is_unlabelled, queries.is_new.to_numpy(bool), seed)

    def dev_ndcg(self, model: Any) -> float:
        """Return mean nDCG@10 of labelled dev queries; of pseudo-queries if none is."""
        return float(self.dev.scores(model)[self._is_counted].mean())

    def dev_loss(self, model: Any, temperature: float) -> float:
        """Return mean InfoNCE of the same queries, over all that is searched."""
        return float(np.nanmean(self.dev.losses(model, temperature)[self._is_counted]))

    @property
    def _is_counted(self) -> Bools:
        return self.is_pseudo if self.is_pseudo.all() else ~self.is_pseudo

    def __call__(self, encoder_at: Callable[[Alpha], SentenceTransformer]) -> Alpha:
        """Return alpha, of an encoder that ``encoder_at`` returns at an alpha.

        Pseudo-queries never bring the start back: it is kept where labelled queries are found
        significantly better by it.
        """
        start = encoder_at(START)
        # At 0 a table has learned its lengths; another encoder is at its start.
        alphas = ALPHAS if is_static(start) and not is_sparse(start) else ALPHAS[1:]
        start_scores = self.dev.scores(start)
        scores = np.stack([self.dev.scores(encoder_at(alpha)) for alpha in alphas], axis=1)
        self.curve = [*self._rows([START, *alphas], np.column_stack([start_scores, scores]))]
        is_labelled = ~self.is_pseudo
        query_weights = balanced(self.is_unlabelled[is_labelled])
        options = np.array(alphas)[:, None]
        by_label = scores[is_labelled]
        choice = choose(
            options, PRIOR, by_label, query_weights, scores[self.is_pseudo], seed=self.seed
        )
        alpha = round(float(choice.point[0]), 3)
        if not is_labelled.any():
            return alpha
        nearest = by_label[:, np.abs(options[:, 0] - alpha).argmin()]
        test = compare(start_scores[is_labelled], nearest, seed=self.seed)
        is_better = test.difference > 0 and test.p_value < _SIGNIFICANT
        return START if is_better else alpha

    def _rows(self, alphas: Sequence[Alpha], scores: Float64s) -> Iterator[dict[str, Any]]:
        """Yield the curve of scores [Q, A], those of the start first."""
        is_labelled = ~self.is_pseudo & ~self.is_unlabelled
        is_new = ~self.is_pseudo & ~is_labelled & self.is_new
        groups = {
            "labelled": is_labelled,
            "unlabelled": ~(self.is_pseudo | is_labelled | is_new),
            "new": is_new,
            "pseudo": self.is_pseudo,
        }
        for name, members in groups.items():
            count = int(members.sum())
            if count < 2:
                continue
            start = scores[members, 0].mean()
            differences = scores[members] - scores[members, :1]
            ends = np.stack(intervals(differences.T, seed=self.seed), axis=1) + start
            for alpha, values in zip(alphas, ends.round(4).tolist(), strict=True):
                figures = dict(zip(("ndcg@10", "low", "high"), values, strict=True))
                yield {"alpha": alpha, "queries": name, "count": count, **figures}
