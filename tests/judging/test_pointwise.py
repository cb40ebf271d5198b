"""Ready-made judges of pairs, and two of them one after the other."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import expit, logit

from anmi.errors import AnmiError
from anmi.judging.calibration import Platt
from anmi.judging.denoise import Cascade
from anmi.judging.pointwise import BiEncoderJudge, CrossEncoderJudge, JudgeOptions, join, load_pointwise, split
from anmi.retrieval.encoders import encode, load_encoder, minilm_folder
from anmi.store import Store

Make = Callable[..., Path]
PAIRS = [
    join(query, f"{document} {'very ' * (3 * i)}often")
    for query in ("why the fox sleeps", "how a river grows")
    for i, document in enumerate(("foxes sleep by day", "rivers grow in spring", "stones break", "an owl sounds"))
]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "store") as opened:
        yield opened


def ready(base: Any, **changes: Any) -> JudgeOptions:
    return JudgeOptions(base=str(base), precision="float32", **changes)


def test_a_cross_encoder_gives_its_logits_in_batches_of_like_length(
    store: Store, tmp_path: Path, text_pair_classifier: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    folder = text_pair_classifier("judge")
    judge = load_pointwise(ready(folder, batch_size=2), tmp_path)
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
    mark = load_pointwise(ready(folder), tmp_path).fingerprint
    folder.rename(tmp_path / "renamed")
    assert load_pointwise(ready(tmp_path / "renamed"), tmp_path).fingerprint == mark
    assert load_pointwise(ready(text_pair_classifier("other", seed=1)), tmp_path).fingerprint != mark
    assert load_pointwise(ready(tmp_path / "renamed", max_length=64), tmp_path).fingerprint != mark


def test_a_bi_encoder_gives_the_cosine_and_shares_the_embeddings_of_mining(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ready("minilm", kind="bi_encoder", max_length=64)
    judge = load_pointwise(options, tmp_path)
    queries, documents = (list(side) for side in zip(*map(split, PAIRS), strict=True))
    model = load_encoder("minilm", tmp_path, 64)
    encode(model, documents, store, "float32")
    computed: list[str] = []
    monkeypatch.setattr(
        "anmi.judging.pointwise.encode", lambda m, batch, **kw: (computed.extend(batch), encode(m, batch, **kw))[1]
    )
    found = judge.score(PAIRS, store)
    assert sorted(computed) == sorted(set(queries)), "documents are there already, a query is encoded once"
    expected = [float(q @ d) for q, d in zip(model.encode(queries), model.encode(documents), strict=True)]
    np.testing.assert_allclose(found, expected, atol=1e-4)
    assert found[0] == found[:4].max() and found.dtype == np.float32
    assert judge.score([], store).shape == (0,)
    prompted = BiEncoderJudge(ready("minilm", kind="bi_encoder", max_length=64, prompt_query="query: "), tmp_path)
    assert prompted.fingerprint != judge.fingerprint
    prefixed = model.encode([f"query: {query}" for query in queries])
    expected = [float(q @ d) for q, d in zip(prefixed, model.encode(documents), strict=True)]
    np.testing.assert_allclose(prompted.score(PAIRS, store), expected, atol=1e-4)


def test_what_cannot_judge_is_refused(tmp_path: Path, text_pair_classifier: Make) -> None:
    with pytest.raises(AnmiError, match="could not be loaded"):
        load_pointwise(ready(tmp_path / "nowhere"), tmp_path)
    with pytest.raises(AnmiError, match="has no scoring head"):
        load_pointwise(ready(shutil.copytree(minilm_folder(), tmp_path / "bi")), tmp_path)
    with pytest.raises(AnmiError, match="gives 3 values for a pair where 1 is needed"):
        load_pointwise(ready(text_pair_classifier("nli", labels=3)), tmp_path)
    with pytest.raises(AnmiError, match="is trained on a collection"):
        load_pointwise(ready("minilm"), tmp_path)


class Table:
    """A judge that knows its scores by heart."""

    def __init__(self, scores: dict[str, float]) -> None:
        self.scores, self.asked = scores, list[str]()
        self.fingerprint = str(sorted(scores.items()))

    def score(self, pairs: Sequence[str], store: Store, bar: Any = None) -> np.ndarray:
        self.asked += pairs
        return np.array([self.scores[pair] for pair in pairs], np.float32)

    def describe(self) -> dict[str, Any]:
        return {}


def test_a_cascade_confirms_what_is_near_the_threshold_and_nothing_else(store: Store) -> None:
    pairs = [join("q", str(i)) for i in range(200)]
    rng = np.random.default_rng(0)
    first, second = rng.normal(0, 2, 200), rng.normal(0, 5, 200)
    small, large = (Table(dict(zip(pairs, scores.tolist(), strict=True))) for scores in (first, second))
    calibration, confirmation = Platt(1.5, -0.3), Platt(0.2, 0.1)
    cascade = Cascade(small, calibration, large, threshold=0.5, band=0.2)
    mark = cascade.fingerprint

    before = cascade.score(pairs, store)
    np.testing.assert_allclose(before, 1.5 * first - 0.3, rtol=1e-5)
    assert large.asked == [] and cascade.confirmed == 0, "not calibrated yet"

    near = np.abs(expit(1.5 * first - 0.3) - 0.5) <= 0.2
    raw = cascade.confirm(pairs, store)
    assert (np.isfinite(raw) == near).all() and 0 < near.sum() < 100
    np.testing.assert_allclose(raw[near], second[near], rtol=1e-5)

    cascade.confirmation = confirmation
    large.asked.clear()
    found = cascade.score(pairs, store)
    expected = np.where(near, logit(expit(0.2 * second + 0.1)), logit(expit(1.5 * first - 0.3)))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    assert sorted(large.asked) == sorted(pair for pair, yes in zip(pairs, near, strict=True) if yes)
    assert (cascade.seen, cascade.confirmed) == (400, near.sum())
    assert cascade.fingerprint != mark
