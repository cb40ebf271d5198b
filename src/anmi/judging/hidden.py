"""Hidden positives: known positives that play the false negative.

For a query with several positives one stays known and the others are put among its candidates, as if nobody had
labelled them. That gives relevant documents to learn and to calibrate on without any false-negative label.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from anmi.candidates import PADDING, Candidates
from anmi.judging.evidence import Material, gather


def hide(block: Candidates, depth: int) -> tuple[Candidates, NDArray[np.bool_], NDArray[np.int64]]:
    """Return a block in which each positive of a query with several is in turn the only known one.

    Parameters
    ----------
    block
        One row per query, with ``dense`` and ``bm25`` for candidates and positives.
    depth
        Candidates kept per row, the first ones of the block's order.

    Returns
    -------
    hidden
        One row per (query, known positive); the query's other positives come first among the candidates.
    label
        True where a candidate is a hidden positive, bool [R, M].
    origin
        Row of ``block`` each row comes from, int64 [R].

    Examples
    --------
    >>> block = Candidates(np.array(["q"]), np.array([[3, 5]], np.int32), np.array([[1, 2]], np.int32),
    ...                    np.zeros((1, 2), np.uint8))
    >>> hidden, label, origin = hide(block, depth=1)
    >>> hidden.positives.tolist(), hidden.documents.tolist()
    ([[3], [5]], [[5, 1], [3, 1]])
    """
    several = np.nonzero((block.positives != PADDING).sum(axis=1) > 1)[0]
    rows = block.take(several).by_positive()
    origin = np.repeat(several, (block.positives[several] != PADDING).sum(axis=1))
    others = rows.positives[:, 1:]
    documents = np.concatenate([others, rows.documents[:, :depth]], axis=1)
    label = np.zeros(documents.shape, bool)
    label[:, : others.shape[1]] = others != PADDING
    shared = [name for name in rows.columns if name in rows.positive_columns]
    hidden = Candidates(
        query_ids=rows.query_ids,
        positives=rows.positives[:, :1],
        documents=documents,
        source=np.zeros(documents.shape, np.uint8),
        columns={
            n: np.concatenate([rows.positive_columns[n][:, 1:], rows.columns[n][:, :depth]], axis=1) for n in shared
        },
        positive_columns={n: rows.positive_columns[n][:, :1] for n in shared},
    )
    return hidden, label, origin


def hidden_evidence(
    block: Candidates, material: Material, depth: int
) -> tuple[Candidates, NDArray[np.bool_], NDArray[np.int64]]:
    """Return :func:`hide` with all evidence gathered against the one known positive."""
    hidden, label, origin = hide(block, depth)
    return (gather(hidden, material) if len(hidden) else hidden), label, origin


def averaged(
    block: Candidates,
    values: NDArray[np.float64],
    hidden: Candidates,
    label: NDArray[np.bool_],
    origin: NDArray[np.int64],
) -> NDArray[np.float32]:
    """Mean of each positive's values over the rows in which it was hidden: float32 [Q, P], NaN where it never was.

    Parameters
    ----------
    block, hidden, label, origin
        Input and output of :func:`hide`.
    values
        Of the hidden block's candidates, [R, M].
    """
    row, slot = np.nonzero(label & np.isfinite(values))
    at = block.positives[origin[row]] == hidden.documents[row, slot][:, None]
    place = at.argmax(axis=1)
    total, count = np.zeros(block.positives.shape), np.zeros(block.positives.shape)
    np.add.at(total, (origin[row], place), values[row, slot])
    np.add.at(count, (origin[row], place), 1)
    with np.errstate(invalid="ignore"):
        return np.where(count > 0, total / count, np.nan).astype(np.float32)
