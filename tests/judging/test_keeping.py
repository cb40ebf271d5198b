"""Teachers of an earlier run are kept while they fit, and judge new pairs as they judged the old ones."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anmi.judging.cross_encoder import ConfirmOptions, CrossEncoderOptions
from anmi.judging.keeping import Fitted, kept

OPTIONS = CrossEncoderOptions(folds=2)


def fitted(texts: list[str], collection: str = "c", seed: int = 1, options: CrossEncoderOptions = OPTIONS) -> Fitted:
    return Fitted.to(collection, options, seed, texts)


@given(st.sets(st.text(min_size=1, max_size=8)), st.sets(st.text(min_size=1, max_size=8)))
def test_of_few_queries_the_share_is_exact(before: set[str], now: set[str]) -> None:
    known, asked = ({" ".join(text.lower().split()) for text in each} for each in (before, now))
    expected = len(asked - known) / len(asked) if asked else 0.0
    assert fitted(list(before)).new_share(fitted(list(now))) == pytest.approx(expected)


@pytest.mark.parametrize("new", [0.0, 0.01, 0.1, 0.5])
def test_of_many_queries_the_share_is_estimated(new: float) -> None:
    before = [f"query number {number}" for number in range(20_000)]
    now = before[int(20_000 * new) :] + [f"new {number}" for number in range(int(20_000 * new))]
    found = fitted(before).new_share(fitted(now))
    # Four standard errors of a share among 512.
    assert abs(found - new) <= 4 * (new * (1 - new) / 512) ** 0.5
    assert len(fitted(now).sample) == 512


def test_teachers_are_kept_while_they_fit_and_the_reason_is_told_otherwise(tmp_path: Path) -> None:
    texts = [f"query {number}" for number in range(20)]
    for name in ("aa", "bb"):
        (tmp_path / f"teacher-{name}").mkdir()
    earlier = {"folds": [{"fingerprint": "aa"}, {"fingerprint": "bb"}], "fitted": asdict(fitted(texts))}
    assert kept(earlier, fitted([*texts[1:], "other"]), OPTIONS, tmp_path, 0.1) == (["aa", "bb"], "")

    cascade = OPTIONS.model_copy(update={"confirm": ConfirmOptions()})
    others = OPTIONS.model_copy(update={"layers": 2})
    for now, options, reason in (
        (fitted([*texts[:17], "a", "b", "c"]), OPTIONS, "15% of the queries are new"),
        (fitted(texts, collection="d"), OPTIONS, "for c"),
        (fitted(texts, seed=2), OPTIONS, "seed or options"),
        (fitted(texts, options=others), others, "seed or options"),
        (fitted(texts), cascade, "cascade"),
    ):
        names, why = kept(earlier, now, options, tmp_path, 0.1)
        assert names == [] and reason in why
    assert kept({}, fitted(texts), OPTIONS, tmp_path, 0.1) == ([], "no earlier run trained any")
    (tmp_path / "teacher-bb").rmdir()
    assert "files are not in" in kept(earlier, fitted(texts), OPTIONS, tmp_path, 0.1)[1]
