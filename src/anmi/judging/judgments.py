"""The module holds a judge's scores of all queries and adds them to candidates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from anmi.candidates import Candidates
from anmi.errors import AnmiError
from anmi.judging.calibration import Platt

_TEMPERATURE: Final = 0.1


def soft_labels(scores_positive: NDArray[Any], scores_candidates: NDArray[Any]) -> NDArray[np.float64]:
    """Distribution over (positives, candidates) to train towards with a KL divergence (RocketQA v2's distillation).

    Parameters
    ----------
    scores_positive, scores_candidates
        In [0, 1], for which the temperature of the softmax is made; [Q, P] and [Q, M]. NaN is missing and gets no mass.

    Returns
    -------
    numpy.ndarray
        [Q, P + M], rows sum to 1; a row without any score is all 0.

    Examples
    --------
    >>> soft_labels(np.array([[0.9]]), np.array([[0.9, np.nan]])).tolist()
    [[0.5, 0.5, 0.0]]
    """
    scores = np.concatenate([scores_positive, scores_candidates], axis=1).astype(np.float64)
    known = np.isfinite(scores)
    # −1e300 instead of −∞, for which a row without a score would be 0/0; such a row is all 0.
    return np.where(known, softmax(np.where(known, scores / _TEMPERATURE, -1e300), axis=1), 0.0)


@dataclass(frozen=True)
class RawScores:
    """A judge's scores of Q queries, each with the first candidates of its row and its positives.

    Attributes
    ----------
    query_ids
        [Q].
    folds
        By which of the cross-fitted judges each query was judged, int64 [Q].
    candidates, positives
        float32 [Q, M] and [Q, P]; NaN where not judged.
    """

    query_ids: NDArray[np.str_]
    folds: NDArray[np.int64]
    candidates: NDArray[np.float32]
    positives: NDArray[np.float32]

    @staticmethod
    def concatenate(parts: Sequence[RawScores], depth: int) -> RawScores:
        """Put the scores of several blocks together, of no more than ``depth`` candidates each."""
        return RawScores(
            np.concatenate([part.query_ids for part in parts]),
            np.concatenate([part.folds for part in parts]),
            _stacked([part.candidates[:, :depth] for part in parts]),
            _stacked([part.positives for part in parts]),
        )

    def pairs(self) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.int64]]:
        """Scores, labels (1 of positives, 0 of candidates) and folds of the n judged pairs, each [n]."""
        parts = []
        for scores, label in ((self.candidates, 0), (self.positives, 1)):
            row, slot = np.nonzero(np.isfinite(scores))
            parts.append((scores[row, slot], np.full(len(row), label), self.folds[row]))
        scores, labels, folds = (np.concatenate(each) for each in zip(*parts, strict=True))
        return scores, labels, folds


class Judgments:
    """Adds what the judge said of its queries to blocks of them.

    ``cross`` is the raw score, ``p_cross`` the calibrated probability, and ``soft_label`` the row's softmax of the
    probabilities over its first positive and its judged candidates (see :func:`soft_labels`; raw scores have no common
    scale, and at its temperature logits would leave all the mass to the best).

    Parameters
    ----------
    raw
        Scores of the candidates and positives as they stand in the blocks.
    calibrators
        By fold.
    """

    def __init__(self, raw: RawScores, calibrators: Mapping[int, Platt]) -> None:
        self._order = np.argsort(raw.query_ids, kind="stable")
        self._query_ids = raw.query_ids[self._order]
        self.raw, self._calibrators = raw, dict(calibrators)

    def __call__(self, block: Candidates) -> Candidates:
        """Return the block with its judgments.

        Raises
        ------
        AnmiError
            A query that was not judged.
        """
        row = self._rows(block.query_ids)
        fold = self.raw.folds[row]
        columns, positive_columns = (
            {"cross": _widened(scores[row], documents.shape[1])}
            for scores, documents in ((self.raw.candidates, block.documents), (self.raw.positives, block.positives))
        )
        for target in (columns, positive_columns):
            probability = np.full(target["cross"].shape, np.nan)
            for number, calibrator in self._calibrators.items():
                probability[fold == number] = calibrator(target["cross"][fold == number])
            target["p_cross"] = probability.astype(np.float32)
        own, others = positive_columns["p_cross"], columns["p_cross"]
        labels = soft_labels(own[:, :1], others).astype(np.float32)
        positive_columns["soft_label"] = np.full(own.shape, np.nan, np.float32)
        positive_columns["soft_label"][:, :1] = np.where(np.isfinite(own[:, :1]), labels[:, :1], np.nan)
        columns["soft_label"] = np.where(np.isfinite(others), labels[:, 1:], np.nan)
        return block.with_columns(columns, positive_columns)

    def _rows(self, query_ids: NDArray[np.str_]) -> NDArray[np.int64]:
        at = np.minimum(np.searchsorted(self._query_ids, query_ids), len(self._query_ids) - 1)
        unknown = self._query_ids[at] != query_ids
        if unknown.any():
            raise AnmiError(f'query "{query_ids[unknown][0]}" was not judged: judge the candidates that are asked for')
        return self._order[at]


def _stacked(parts: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
    width = max(part.shape[1] for part in parts)
    return np.concatenate([_widened(part, width) for part in parts])


def _widened(values: NDArray[np.float32], width: int) -> NDArray[np.float32]:
    """Return the first ``width`` columns; those that are not there are NaN."""
    values = values[:, :width]
    return np.pad(values, ((0, 0), (0, width - values.shape[1])), constant_values=np.nan)
