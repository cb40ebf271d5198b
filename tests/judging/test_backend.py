"""What runs a cross-encoder: the same scores by ONNX Runtime, near ones with 8 bits, and torch where they are not."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kendalltau

from anmi.judging.cross_encoder import CrossEncoderOptions, Pairs, TrainedCrossEncoder
from anmi.judging.pointwise import JudgeOptions, NetworkJudge, join, load_pointwise
from anmi.retrieval import backend
from anmi.retrieval.backend import ScoreParity, score_parity
from anmi.store import Store

pytest.importorskip("onnxruntime")

ANIMALS = ["foxes sleep by day", "rivers grow in spring", "stones break in frost", "an owl sounds at night"]
PAIRS = [
    join(query, f"{document} {'very ' * (3 * place)}often")
    for query in ("why the fox sleeps", "how a river grows", "owls at night", "what breaks a stone")
    for place, document in enumerate(ANIMALS)
]
OPTIONS = CrossEncoderOptions(layers=1, max_pairs=16, max_length=32, batch_size=8, held_out=0, precision="float32")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "store") as opened:
        yield opened


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the tests share what was trained and exported."""
    return tmp_path_factory.mktemp("models")


def trained(models: Path, chosen: str, **changes: Any) -> TrainedCrossEncoder:
    sides = [pair.split("\x1f") for pair in PAIRS]
    labels = np.array([place % 5 == 0 for place in range(len(PAIRS))], np.float32)
    pairs = Pairs([one for one, _ in sides], [other for _, other in sides], labels)
    return TrainedCrossEncoder(OPTIONS.model_copy(update={"backend": chosen, **changes}), models, pairs, seed=0)


def test_onnx_gives_the_scores_of_torch_of_trained_and_ready_made_cross_encoders(
    models: Path, tmp_path: Path, store: Store, text_pair_classifier: Callable[..., Path]
) -> None:
    folder = text_pair_classifier("judge")

    def ready(chosen: Any) -> Any:
        return load_pointwise(JudgeOptions(base=str(folder), precision="float32", backend=chosen), tmp_path)

    for make in (lambda chosen: trained(models, chosen), ready):
        by_torch, by_onnx = make("torch"), make("onnx")
        expected = by_torch.score(PAIRS, store)
        np.testing.assert_allclose(by_onnx.score(PAIRS, store), expected, atol=2e-5)
        assert np.std(expected) > 0.01
        assert (by_torch.describe()["computed_by"], by_onnx.describe()["computed_by"]) == ("float32", "onnx-float32")
        assert by_onnx.fingerprint == by_torch.fingerprint, "what runs it is no reason to train it anew"
    assert len(store) == 4 * len(PAIRS), "scores of either way are kept apart"


def test_scores_of_eight_bits_are_near_and_do_not_depend_on_what_is_judged_with_them(
    models: Path, tmp_path: Path, store: Store
) -> None:
    expected = trained(models, "torch").score(PAIRS, store)
    judge = trained(models, "onnx-int8")
    found = judge.score(PAIRS, store)
    assert judge.way == "onnx-int8"
    assert not np.array_equal(found, expected)
    assert score_parity(found, expected).good
    with Store(tmp_path / "other") as other:
        # As a worker has it that opens the files for itself.
        sent: NetworkJudge[Any] = pickle.loads(pickle.dumps(judge))
        alone = [sent.score([pair], other)[0] for pair in reversed(PAIRS)]
    np.testing.assert_array_equal(found, alone[::-1])


def test_the_choice_is_measured_on_the_pairs_once_and_remembered(
    models: Path, store: Store, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = trained(models, "auto")
    with caplog.at_level(logging.INFO, backend.__name__):
        found = first.score(PAIRS, store)
    assert f"The cross-encoder is run by {first.way} (pairs per processor second: float32 " in caplog.text
    monkeypatch.setattr(backend, "_measure", lambda *_: pytest.fail("it was measured before"))
    monkeypatch.setattr(TrainedCrossEncoder, "_load", lambda _: pytest.fail("all of it is in the store"))
    again = trained(models, "auto")
    np.testing.assert_array_equal(again.score(PAIRS, store), found)
    assert again.way == first.way


def test_scores_that_are_too_far_give_way_to_torch_with_a_word(
    models: Path, store: Store, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = trained(models, "torch").score(PAIRS, store)
    monkeypatch.setattr(backend, "CORRELATION", 1.1)
    # Of its own files: another test has found these near enough.
    monkeypatch.setattr(backend, "_key", lambda *_: "too-far")
    judge = trained(models, "onnx-int8")
    np.testing.assert_array_equal(judge.score(PAIRS, store), expected)
    (said,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert said.startswith("By onnx-int8 the cross-encoder is too far from torch (correlation 0.9")
    assert judge.describe()["computed_by"] == "float32"


@given(st.lists(st.integers(-50, 50), min_size=2, max_size=30, unique=True), st.floats(0.1, 9), st.floats(-5, 5))
def test_parity_of_scores_neither_knows_scale_nor_place_and_counts_pairs_in_order_as_kendall_does(
    values: list[int], scale: float, place: float
) -> None:
    exact = np.array(values, np.float32)
    assert score_parity((scale * exact + place).astype(np.float32), exact) == pytest.approx(
        ScoreParity(1, 0, 1), abs=1e-4
    )
    turned = np.random.default_rng(len(values)).permutation(exact)
    expected = (kendalltau(turned, exact)[0] + 1) / 2
    assert score_parity(turned, exact).order == pytest.approx(expected)
