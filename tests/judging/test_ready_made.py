"""Ready-made judges of pairs."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anmi.errors import AnmiError
from anmi.judging.cross_encoder import CrossEncoderJudge, CrossEncoderOptions, join, split
from anmi.retrieval.encoders import minilm_folder
from anmi.store import Store

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
