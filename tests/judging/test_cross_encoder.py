"""Who may learn from whom: folds and training pairs of the cross-fitted teacher; the joined text of a pair."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anmi.errors import AnmiError
from anmi.judging.cross_encoder import (
    CrossEncoderJudge,
    CrossEncoderOptions,
    Pairs,
    fold_of,
    join,
    split,
    training_pairs,
)
from anmi.retrieval.encoders import minilm_folder
from anmi.store import Store

FOLDS = 3


def examples(positives: list[int], negatives: list[int], seed: int = 0) -> pd.DataFrame:
    """Labelled pairs of queries with the given numbers of positives and negatives."""
    texts = [f"query {i}" for i in range(len(positives))]
    folds = fold_of(texts, FOLDS, seed)
    rows = [
        {"row": f"q{i}", "query": texts[i], "document": f"{kind} {i} {n}", "label": label, "fold": folds[i]}
        for label, kind, counts in ((1, "yes", positives), (0, "no", negatives))
        for i, count in enumerate(counts)
        for n in range(count)
    ]
    return pd.DataFrame(rows)


@given(st.text(max_size=30), st.integers(2, 20), st.integers(0, 100))
def test_queries_of_one_text_share_a_fold(text: str, folds: int, seed: int) -> None:
    variants = [text.lower(), f"  {text.lower()} ", text.lower().replace(" ", "  ")]
    found = fold_of([*variants, "another one"], folds, seed)
    assert len(set(found[:3].tolist())) == 1
    assert ((found >= 0) & (found < folds)).all()
    assert found[0] == fold_of([text.lower()], folds, seed)[0]


@given(
    counts=st.lists(st.tuples(st.integers(1, 3), st.integers(0, 4)), min_size=12, max_size=40),
    budget=st.integers(16, 120),
    seed=st.integers(0, 20),
    share=st.sampled_from([0.0, 0.25, 0.6]),
)
def test_pairs_are_whole_queries_of_other_folds_within_the_budget(
    counts: list[tuple[int, int]], budget: int, seed: int, share: float
) -> None:
    table = examples([p for p, _ in counts], [n for _, n in counts], seed)
    options = CrossEncoderOptions(folds=FOLDS, max_pairs=budget, held_out=share)
    for fold in range(FOLDS):
        if (table.fold == fold).all():
            continue
        learnt = training_pairs(table, fold, options, seed)
        aside = learnt.held_out or Pairs([], [], np.zeros(0, np.float32))
        assert not set(learnt.queries) & set(aside.queries) and (aside.mixed or not aside.queries)
        assert share or learnt.held_out is None
        pairs = Pairs(
            learnt.queries + aside.queries,
            learnt.documents + aside.documents,
            np.concatenate([learnt.labels, aside.labels]),
        )
        held_out = set(table[table.fold == fold]["query"])
        assert not held_out & set(pairs.queries)
        assert 0 < len(pairs.queries) == len(pairs.documents) == len(pairs.labels) <= budget
        taken = pd.Series(pairs.queries).value_counts()
        assert (taken == table["query"].value_counts()[taken.index]).all()
        labels = dict(zip(table.document, table.label, strict=True))
        assert [labels[d] for d in pairs.documents] == pairs.labels.tolist()
        assert len(set(pairs.documents)) == len(pairs.documents)
        # As much of the budget is used as whole queries allow.
        if len(taken) < table[table.fold != fold]["query"].nunique():
            assert len(pairs.queries) > budget - 7


def test_the_share_that_is_held_out_is_about_the_one_asked_for_and_the_same_for_queries_of_one_text() -> None:
    table = examples([1] * 600, [3] * 600)
    table["query"] = [f"{'Query' if i % 2 else ' query '} {int(row[1:]) // 2}" for i, row in enumerate(table.row)]
    pairs = training_pairs(table, 0, CrossEncoderOptions(max_pairs=10_000, held_out=0.25), 1)
    assert pairs.held_out is not None
    count = len(pairs.held_out.labels)
    assert 0.18 < count / (count + len(pairs.labels)) < 0.32
    seen, aside = ({" ".join(q.lower().split()) for q in each.queries} for each in (pairs, pairs.held_out))
    assert seen and aside and not seen & aside


@given(st.text(max_size=10), st.text(max_size=10))
def test_a_joined_pair_can_be_taken_apart_whatever_the_texts_hold(query: str, document: str) -> None:
    first, second = split(join(query, document))
    assert second == document
    assert first == query.replace("\x1f", " ")


Make = Callable[..., Path]
PAIRS = [
    join(query, f"{document} {'very ' * (3 * i)}often")
    for query in ("why the fox sleeps", "how a river grows")
    for i, document in enumerate(("foxes sleep by day", "rivers grow in spring", "stones break", "an owl sounds"))
]


def ready(base: Any, **changes: Any) -> CrossEncoderOptions:
    return CrossEncoderOptions(base=str(base), precision="float32", **changes)


def test_a_cross_encoder_gives_its_logits_in_batches_of_like_length(
    store: Store, tmp_path: Path, text_pair_classifier: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    folder = text_pair_classifier("judge")
    judge = CrossEncoderJudge(ready(folder, batch_size=2))
    batches: list[list[str]] = []
    compute = CrossEncoderJudge._compute
    monkeypatch.setattr(CrossEncoderJudge, "_compute", lambda self, p: (batches.append(p), compute(self, p))[1])
    found = judge.score(PAIRS, store)
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    with torch.inference_mode():
        expected = [float(model(**tokenizer(*split(pair), return_tensors="pt")).logits[0, 0]) for pair in PAIRS]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert found.dtype == np.float32 and np.std(expected) > 0.01
    assert len(batches) == 1, "not a call per query"
    assert [len(pair) for pair in batches[0]] == sorted(map(len, PAIRS), reverse=True)
    assert (judge.score(PAIRS[::-1], store) == found[::-1]).all() and len(batches) == 1
    assert judge.score([], store).shape == (0,)


def test_a_judge_is_known_by_its_weights_and_not_by_its_name(tmp_path: Path, text_pair_classifier: Make) -> None:
    folder = text_pair_classifier("judge")
    mark = CrossEncoderJudge(ready(folder)).fingerprint
    folder.rename(tmp_path / "renamed")
    assert CrossEncoderJudge(ready(tmp_path / "renamed")).fingerprint == mark
    assert CrossEncoderJudge(ready(text_pair_classifier("other", seed=1))).fingerprint != mark
    assert CrossEncoderJudge(ready(tmp_path / "renamed", max_length=64)).fingerprint != mark


def test_what_cannot_judge_is_refused(tmp_path: Path, text_pair_classifier: Make) -> None:
    with pytest.raises(AnmiError, match="could not be loaded"):
        CrossEncoderJudge(ready(tmp_path / "nowhere"))
    with pytest.raises(AnmiError, match="has no scoring head"):
        CrossEncoderJudge(ready(shutil.copytree(minilm_folder(), tmp_path / "bi")))
    with pytest.raises(AnmiError, match="gives 3 values for a pair where 1 is needed"):
        CrossEncoderJudge(ready(text_pair_classifier("nli", labels=3)))
