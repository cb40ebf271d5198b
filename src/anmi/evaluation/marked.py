"""What the judges had said of pairs that a person marked: calibration against known truth."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from anmi.candidates import MARKED, PADDING, Candidates
from anmi.judging.calibration import reliability


class AgainstMarks:
    """Compares the judged probability of marked pairs with what a person said of them.

    Of a pair marked as not relevant it is what the judges said before the mark; of one marked as relevant, which is a
    positive now, what it would be given were it an unlabelled candidate, by coefficients that did not see its query.
    Pairs that nobody judged are left out. Marks are of pairs that somebody chose to look at, so their share of relevant
    ones says nothing of all pairs; how far a probability can be believed it does say.

    Parameters
    ----------
    marks
        ``query_id, document_id, relevance``.
    document_ids
        Of the corpus, in its order.
    """

    columns: tuple[str, ...] = (MARKED, "p_judged", "p_relevant")

    def __init__(self, marks: pd.DataFrame, document_ids: list[str]) -> None:
        relevant = marks[marks["relevance"] == 1]
        place = dict(zip(document_ids, range(len(document_ids)), strict=True))
        rows = relevant["document_id"].map(place).tolist()
        self._relevant = set(zip(relevant["query_id"].tolist(), rows, strict=True))
        # By pair, since a query stands once per positive.
        self._seen: dict[tuple[str, int], tuple[float, bool]] = {}

    def see(self, block: Candidates) -> None:
        """Look at a block after selection, of which each row's own positive comes first."""
        if MARKED in block.columns and "p_judged" in block.columns:
            self._note(block, block.documents, block.columns["p_judged"], block.columns[MARKED] == 0, known=False)
        if self._relevant and "p_relevant" in block.positive_columns:
            asked = np.isin(block.query_ids, [query for query, _ in self._relevant])
            own = (block.positives != PADDING) & asked[:, None]
            own[:, 1:] = False
            self._note(block, block.positives, block.positive_columns["p_relevant"], own, known=True)

    def _note(
        self, block: Candidates, documents: NDArray[np.int32], chance: NDArray[np.float32], which: NDArray[np.bool_],
        *, known: bool,
    ) -> None:  # fmt: skip
        row, slot = np.nonzero(which & np.isfinite(chance))
        pairs = zip(block.query_ids[row].tolist(), documents[row, slot].tolist(), strict=True)
        for pair, value in zip(pairs, chance[row, slot].tolist(), strict=True):
            if not known or pair in self._relevant:
                self._seen[pair] = (value, known)

    def found(self) -> dict[str, Any] | None:
        """Return counts, mean probabilities, the Brier score and the reliability; None where nothing is compared."""
        if not self._seen:
            return None
        chance, known = (
            np.array(each) for each in zip(*(self._seen[pair] for pair in sorted(self._seen)), strict=True)
        )
        truth = known.astype(np.float64)
        means = {
            name: float(chance[which].mean()) if which.any() else None
            for name, which in (("relevant", known), ("not_relevant", ~known))
        }
        return {
            "relevant": int(known.sum()),
            "not_relevant": int((~known).sum()),
            "mean_probability": means,
            "brier": float(np.mean((chance - truth) ** 2)),
            "reliability": reliability(chance, truth, bins=5),
        }
