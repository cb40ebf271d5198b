"""Documents related to a positive are kept out, by name and by what is asked for."""

from __future__ import annotations

import numpy as np
import pytest

from anmi.candidates import Candidates
from anmi.errors import AnmiError
from anmi.selection.recipe import Recipe, Runner


def guarded(related: list[float] | None, **params: bool) -> Candidates:
    width = 4
    block = Candidates(
        query_ids=np.array(["q"]),
        positives=np.array([[9]], np.int32),
        documents=np.array([[0, 1, 2, -1]], np.int32),
        source=np.array([[1, 1, 1, 0]], np.uint8),
        columns={} if related is None else {"related": np.array([[*related, np.nan]], np.float32)},
    )
    assert block.documents.shape[1] == width
    recipe = Recipe.model_validate({"description": "Guards.", "steps": {"duplicate_guard": params}})
    return Runner(recipe, seed=1).apply(block)


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({}, ["open", "near_duplicate", "sibling"]),
        ({"siblings": False}, ["open", "near_duplicate", "open"]),
        ({"near": False}, ["open", "open", "sibling"]),
        ({"near": False, "siblings": False}, ["open", "open", "open"]),
    ],
)
def test_related_documents_are_rejected_under_their_own_names(params: dict[str, bool], expected: list[str]) -> None:
    after = guarded([0, 1, 2], **params)
    assert [after.legend[code] for code in after.verdict[0, :3]] == expected
    rejected = np.array([[name != "open" for name in expected] + [False]])
    # They may be relevant, so they are no negatives inside a training batch either.
    assert (after.of_kind("unsafe") == rejected).all()
    assert all(after.rules[name].text for name in expected if name != "open")


def test_without_a_measurement_the_guard_does_not_pass_silently() -> None:
    with pytest.raises(AnmiError, match="the recipe reads related"):
        guarded(None)
    assert guarded(None, near=False, siblings=False).undecided.sum() == 3
