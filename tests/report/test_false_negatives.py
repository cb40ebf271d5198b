"""The figure of false negatives against hardness."""

from __future__ import annotations

from typing import Any

import pytest

from anmi.report.false_negatives import relevance_by_nearness


def found(**changes: Any) -> dict[str, Any]:
    chosen = {
        "candidates": [100, 30, 5], "judged": [100, 30, 5], "expected": [0.01, 0.02, 0.9], "known": [50, 30, 5],
        "relevant": [1, 0, 5],
    }  # fmt: skip
    rejected = chosen | {"expected": [0.1, 0.2, 0.3], "relevant": [0, 3, 5]}
    return {"edges": [-0.1, 0.0, 0.1, 0.2], "chosen": chosen, "rejected": rejected} | changes


def test_shares_are_drawn_at_the_middles_of_bins_with_enough_in_them() -> None:
    figure = relevance_by_nearness(found())
    assert figure is not None
    drawn = {trace["name"]: (trace["x"], trace["y"]) for trace in figure.spec["data"]}
    assert drawn["chosen, as the judge expects"] == (pytest.approx([-0.05, 0.05]), pytest.approx([1, 2]))
    assert drawn["rejected, as the judge expects"] == (pytest.approx([-0.05, 0.05]), pytest.approx([10, 20]))
    # On a scale of logarithms none has no place.
    assert drawn["chosen, known to be relevant"] == (pytest.approx([-0.05]), pytest.approx([2]))
    assert drawn["rejected, known to be relevant"] == (pytest.approx([0.05]), pytest.approx([10]))
    assert "Open marks" in figure.note
    # Of the bins from 0 on: (30 × 2 + 5 × 90) / 35 and (30 × 20 + 5 × 30) / 35.
    assert "by the judge 14.6 % of the chosen ones and 21.4 % of the rejected ones are relevant" in figure.note


def test_marks_are_left_out_where_no_truth_is_known() -> None:
    nothing = {"known": [0, 0, 0], "relevant": [0, 0, 0]}
    figure = relevance_by_nearness(found(chosen=found()["chosen"] | nothing, rejected=found()["rejected"] | nothing))
    assert figure is not None
    assert [trace["name"] for trace in figure.spec["data"]] == [
        "rejected, as the judge expects", "chosen, as the judge expects",
    ]  # fmt: skip
    assert "Open marks" not in figure.note


def test_nothing_is_drawn_of_too_little() -> None:
    few = {"judged": [3, 3, 3], "known": [1, 1, 1]}
    assert relevance_by_nearness(found(chosen=found()["chosen"] | few, rejected=found()["rejected"] | few)) is None
    assert relevance_by_nearness(None) is None
