"""A text-pair classifier as judge of two documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError
from scipy.special import expit, softmax

from anmi.errors import AnmiError
from anmi.judging.pairwise import ChatJudge, LocalPairwise, PairwiseOptions, load_pairwise
from anmi.store import Store

Make = Callable[..., Path]
WORDS = [
    "fox",
    "whale",
    "owl",
    "pine",
    "river",
    "stone",
    "bread",
    "violin",
    "engine",
    "comet",
    "sleeps",
    "grows",
    "sounds",
]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "store") as opened:
        yield opened


def texts(count: int, seed: int = 0) -> tuple[list[str], list[str], list[str]]:
    rng = np.random.default_rng(seed)
    sides = ([" ".join(rng.choice(WORDS, rng.integers(2, 12))) for _ in range(count)] for _ in range(3))
    queries, first, second = sides
    return queries, first, second


def local(folder: Path, store: Store, **changes: object) -> LocalPairwise:
    settings = {"base": str(folder), "precision": "float32"} | changes
    found = load_pairwise(PairwiseOptions.model_validate({"local": settings}), store, seed=0)
    assert isinstance(found, LocalPairwise)
    return found


@pytest.mark.parametrize("labels", [1, 2])
def test_the_preference_is_the_mean_over_both_orders(labels: int, store: Store, text_pair_classifier: Make) -> None:
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    folder = text_pair_classifier("judge", labels)
    queries, first, second = texts(30)
    judge = local(folder, store)
    found = judge.prefer(queries, first, second)

    model = AutoModelForSequenceClassification.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)

    def better(query: str, one: str, other: str) -> float:
        with torch.inference_mode():
            logits = model(**tokenizer(query, f"{one} [SEP] {other}", return_tensors="pt")).logits[0].numpy()
        return float(expit(logits[0]) if labels == 1 else softmax(logits)[1])

    expected = [(better(q, a, b) + 1 - better(q, b, a)) / 2 for q, a, b in zip(queries, first, second, strict=True)]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert found.std() > 0.01
    np.testing.assert_allclose(judge.prefer(queries, second, first), 1 - found, atol=1e-12)
    np.testing.assert_allclose(judge.prefer(queries, first, first), 0.5)
    assert judge.prefer([], [], []).shape == (0,)


def test_answers_are_kept_under_the_weights(
    store: Store, text_pair_classifier: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries, first, second = texts(5)
    judge = local(text_pair_classifier("judge"), store)
    found = judge.prefer(queries, first, second)
    monkeypatch.setattr(LocalPairwise, "_compute", lambda *_: pytest.fail("computed again"))
    again = local(text_pair_classifier("renamed"), store)
    np.testing.assert_allclose(again.prefer(queries, second, first), 1 - found, atol=1e-12)
    assert local(text_pair_classifier("other", seed=1), store).fingerprint != judge.fingerprint


def test_long_documents_are_cut_alike(store: Store, text_pair_classifier: Make) -> None:
    judge = local(text_pair_classifier("judge"), store, max_length=64)
    long = " ".join(["river"] * 500)
    seen = [
        judge.prefer([query], [first + long], [second + long])[0]
        for query, first, second in [
            ("why", "fox ", "owl "), ("why", "pine ", "owl "), ("why", "fox ", "pine "), ("how", "fox ", "owl "),
            (f"why {long}", "fox ", "owl "),
        ]
    ]  # fmt: skip
    assert len(set(seen)) == 5, "the beginning of the query and of each document is read, however long they are"
    unread = judge.prefer(["why"], [f"fox {long} fox"], [f"owl {long} owl"])
    assert unread[0] == pytest.approx(seen[0])
    # 64 tokens less [CLS], three [SEP] and the query's one are 59, so 29 for each document.
    equal = judge.prefer(["why"], ["fox" + " river" * 28], ["owl" + " river" * 28])
    assert equal[0] == pytest.approx(seen[0])


def test_a_broken_model_is_an_error(store: Store, text_pair_classifier: Make) -> None:
    judge = local(text_pair_classifier("judge", broken=True), store)
    with pytest.raises(AnmiError, match=r'classifier ".*judge" gave 4 of 4 scores that are no numbers'):
        judge.prefer(*texts(2))
    with pytest.raises(AnmiError, match="gives 3 values for a pair where 1 or 2 is needed"):
        local(text_pair_classifier("three", labels=3), store)


def test_options_name_one_judge(store: Store) -> None:
    chat = {"base_url": "http://127.0.0.1:1/v1", "model": "m"}
    assert isinstance(load_pairwise(PairwiseOptions.model_validate({"chat": chat}), store, 0), ChatJudge)
    for wrong in ({}, {"chat": chat, "local": {"base": "x"}}):
        with pytest.raises(ValidationError, match="exactly one"):
            PairwiseOptions.model_validate(wrong)
