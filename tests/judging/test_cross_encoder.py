"""Cross-encoders: who may learn from whom, ready-made and really trained ones, and judgments of candidates."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from scipy.special import expit, softmax
from sklearn.metrics import roc_auc_score
from tests.judging.conftest import block_of

from anmi.candidates import GRADE, PADDING, Candidates, CandidateShards
from anmi.errors import AnmiError
from anmi.judging.cross_encoder import (
    CrossEncoderJudge,
    CrossEncoderOptions,
    Pairs,
    TrainedCrossEncoder,
    fold_of,
    join,
    split,
    training_pairs,
)
from anmi.judging.denoise import DOUBTFUL, Judge, Judgments, soft_labels
from anmi.retrieval.model_folder import minilm_folder
from anmi.store import Store

FOLDS = 3


def examples(positives: list[int], negatives: list[int], seed: int = 0) -> pd.DataFrame:
    """Labelled pairs of queries with the given numbers of positives and negatives."""
    texts = [f"query {i}" for i in range(len(positives))]
    folds = fold_of(texts, FOLDS, seed)
    rows = [
        (f"q{i}", texts[i], f"{kind} {i} {n}", label, folds[i])
        for label, kind, counts in ((1, "yes", positives), (0, "no", negatives))
        for i, count in enumerate(counts)
        for n in range(count)
    ]
    return pd.DataFrame(rows, columns=["row", "query", "document", "label", "fold"])


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


def test_the_share_that_is_held_out_is_the_same_for_queries_of_one_text() -> None:
    table = examples([1] * 600, [3] * 600)
    names = [
        f"{'Query' if i % 2 else ' query '} {int(q[1:]) // 2}" for i, q in enumerate(table.row)
    ]
    options = CrossEncoderOptions(max_pairs=10_000, held_out=0.25)
    pairs = training_pairs(table.assign(query=names), 0, options, 1)
    assert pairs.held_out is not None
    count = len(pairs.held_out.labels)
    assert 0.18 < count / (count + len(pairs.labels)) < 0.32
    seen, aside = (
        {" ".join(q.lower().split()) for q in each.queries} for each in (pairs, pairs.held_out)
    )
    assert seen and aside and not seen & aside


@given(st.text(max_size=10), st.text(max_size=10))
def test_a_joined_pair_can_be_taken_apart_whatever_the_texts_hold(
    query: str, document: str
) -> None:
    first, second = split(join(query, document))
    assert second == document
    assert first == query.replace("\x1f", " ")


Make = Callable[..., Path]
BEGINNINGS = ("foxes sleep by day", "rivers grow in spring", "stones break", "an owl sounds")
PAIRS = [
    join(query, f"{document} {'very ' * (3 * i)}often")
    for query in ("why the fox sleeps", "how a river grows")
    for i, document in enumerate(BEGINNINGS)
]


def ready(model: Any, **changes: Any) -> CrossEncoderOptions:
    return CrossEncoderOptions(model=str(model), precision="float32", **changes)


def test_a_cross_encoder_gives_its_logits_in_batches_of_like_length(
    store: Store, tmp_path: Path, text_pair_classifier: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    folder = text_pair_classifier("judge")
    judge = CrossEncoderJudge(ready(folder, batch_size=2))
    batches: list[list[str]] = []
    compute = CrossEncoderJudge._compute
    monkeypatch.setattr(
        CrossEncoderJudge, "_compute", lambda self, p: (batches.append(p), compute(self, p))[1]
    )
    found = judge.score(PAIRS, store)
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    with torch.inference_mode():
        inputs = [tokenizer(*split(pair), return_tensors="pt") for pair in PAIRS]
        expected = [float(model(**tokens).logits[0, 0]) for tokens in inputs]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert found.dtype == np.float32 and np.std(expected) > 0.01
    assert len(batches) == 1, "not a call per query"
    assert [len(pair) for pair in batches[0]] == sorted(map(len, PAIRS), reverse=True)
    assert (judge.score(PAIRS[::-1], store) == found[::-1]).all() and len(batches) == 1
    assert judge.score([], store).shape == (0,)


@pytest.mark.parametrize("longest", [512, 8192])
def test_a_judge_reads_as_many_tokens_as_it_takes(
    store: Store, text_pair_classifier: Make, longest: int
) -> None:
    folder = text_pair_classifier("judge", longest=longest)
    judge = CrossEncoderJudge(ready(folder, max_length=8192))
    assert judge._load().max_seq_length == longest
    text = f"stones break {'very ' * 5000}"
    pairs = [join("why", text), join("why", f"{text}{'often ' * 500}")]
    scores = judge.score(pairs, store)
    assert (abs(scores[0] - scores[1]) > 1e-3) == (longest == 8192)


def test_a_decoder_without_a_padding_token_judges_pairs_together_as_alone(
    store: Store, tmp_path: Path
) -> None:
    from transformers import AutoTokenizer, Qwen3Config, Qwen3ForSequenceClassification

    sizes = {"hidden_size": 16, "intermediate_size": 16, "head_dim": 8, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "num_labels": 1}
    config = Qwen3Config(vocab_size=30_522, initializer_range=0.3, **sizes, **heads)
    Qwen3ForSequenceClassification(config).save_pretrained(tmp_path / "decoder")
    without = {"pad_token": None, "eos_token": "[SEP]"}
    tokenizer = AutoTokenizer.from_pretrained(minilm_folder(), **without)
    tokenizer.save_pretrained(tmp_path / "decoder")
    together = CrossEncoderJudge(ready(tmp_path / "decoder", batch_size=8))
    alone = [together._compute([pair])[0, 0] for pair in PAIRS]
    np.testing.assert_allclose(together.score(PAIRS, store), alone, atol=1e-5)
    assert np.std(alone) > 0.01


def test_a_judge_is_known_by_its_weights_and_not_by_its_name(
    tmp_path: Path, text_pair_classifier: Make
) -> None:
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
    headless = text_pair_classifier("headless")
    weights = load_file(headless / "model.safetensors")
    del weights["classifier.weight"]
    save_file(weights, headless / "model.safetensors", {"format": "pt"})
    with pytest.raises(AnmiError, match=r"weights 1 \(classifier.weight\) are missing"):
        CrossEncoderJudge(ready(headless))
    with pytest.raises(AnmiError, match="gives 3 values for a pair where 1 is needed"):
        CrossEncoderJudge(ready(text_pair_classifier("nli", labels=3)))


QUERIES, WIDTH, DEPTH = 40, 8, 5
THINGS = ("fox", "whale", "owl", "pine", "river", "stone", "bread", "violin", "engine", "comet")
DEEDS = ("sleeps", "grows", "breaks", "sounds")

QUERY_TEXTS = {f"q{i}": f"why the {THINGS[i % 10]} {DEEDS[i // 10]}" for i in range(QUERIES)}
DOCUMENT_TEXTS = [
    f"it is known that the {THINGS[i % 10]} {DEEDS[i // 10]} at night" for i in range(QUERIES)
]
OPTIONS = CrossEncoderOptions(
    layers=1,
    folds=2,
    max_pairs=64,
    max_length=32,
    batch_size=16,
    learning_rate=3e-4,
    precision="float32",
)


def shards() -> list[Candidates]:
    """Two blocks; the document of a query's own number is its positive, q1 asks like q0."""
    rng = np.random.default_rng(0)
    others = [np.delete(np.arange(QUERIES), i) for i in range(QUERIES)]
    documents = np.stack([rng.permutation(each)[:WIDTH] for each in others])
    documents[::9, WIDTH - 2 :] = PADDING
    dense = rng.uniform(0.1, 0.9, documents.shape).astype(np.float32)
    dense[documents == PADDING] = np.nan
    positives = np.stack([np.arange(QUERIES), np.full(QUERIES, PADDING)], axis=1).astype(np.int32)
    own = np.where(positives == PADDING, np.nan, 0.8).astype(np.float32)
    block = block_of(documents, positives, {"dense": dense}, {"dense": own})
    return [block.take(slice(0, 25)), block.take(slice(25, None))]


@pytest.fixture
def texts() -> dict[str, str]:
    return QUERY_TEXTS | {"q1": QUERY_TEXTS["q0"].upper()}


def judge(folder: Path, store: Store, texts: dict[str, str], **changes: Any) -> Judge:
    options = OPTIONS.model_copy(update=changes)
    return Judge(options, DEPTH, store, folder / "models", texts, DOCUMENT_TEXTS, seed=3)


def test_a_trained_teacher_judges_only_what_it_did_not_see_and_only_once(
    tmp_path: Path, store: Store, texts: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    scored: list[tuple[TrainedCrossEncoder, str]] = []
    computed: list[int] = []
    score, compute = TrainedCrossEncoder.score, TrainedCrossEncoder._compute

    def noting_score(self: TrainedCrossEncoder, pairs: Any, *rest: Any) -> Any:
        scored.extend((self, pair.split("\x1f")[0]) for pair in pairs)
        return score(self, pairs, *rest)

    def noting_compute(self: TrainedCrossEncoder, joined: list[str]) -> Any:
        computed.append(len(joined))
        return compute(self, joined)

    monkeypatch.setattr(TrainedCrossEncoder, "score", noting_score)
    monkeypatch.setattr(TrainedCrossEncoder, "_compute", noting_compute)
    first = judge(tmp_path, store, texts)
    judged = list(map(first.fit(CandidateShards.of(shards())), shards()))

    learned = {}
    for teacher in first.judges:
        parts = [teacher._pairs, teacher._pairs.held_out]  # type: ignore[union-attr]
        learned[id(teacher)] = {query.lower() for part in parts if part for query in part.queries}
    assert len(learned) == 2 and all(len(seen) > 5 for seen in learned.values())
    assert {query.lower() for _, query in scored} == {text.lower() for text in texts.values()}
    assert not [query for teacher, query in scored if query.lower() in learned[id(teacher)]]
    assert len(list((tmp_path / "models").iterdir())) == 2

    for block in judged:
        inside, known = block.filled & (np.arange(WIDTH) < DEPTH), block.positives != PADDING
        for values, mask in ((block.columns, inside), (block.positive_columns, known)):
            for name in ("cross", "p_cross"):
                assert (np.isfinite(values[name]) == mask).all()
            assert (np.clip(values["p_cross"][mask], 0, 1) == values["p_cross"][mask]).all()

    computed.clear()
    shutil.rmtree(tmp_path / "models")
    second = judge(tmp_path, store, texts)
    whole = Candidates.concatenate(shards())
    again = second.fit(CandidateShards.of([whole]))(whole)
    assert computed == [] and not (tmp_path / "models").exists()
    for name in ("cross", "p_cross"):
        both = np.concatenate([block.columns[name] for block in judged])
        np.testing.assert_allclose(again.columns[name], both, atol=1e-5)


def test_what_other_evidence_calls_doubtful_is_no_negative(
    tmp_path: Path, store: Store, texts: dict[str, str]
) -> None:
    block = shards()[0]
    evidence = np.random.default_rng(2).uniform(0, 0.1, block.documents.shape).astype(np.float32)
    evidence[3] = np.nan
    maker = judge(tmp_path, store, texts)
    table = maker._examples(block.with_columns({"p_evidence": evidence}))
    taken = {(str(e.row), str(e.document)) for e in table[table.label == 0].itertuples()}  # type: ignore[call-overload]
    unlike = block.columns["dense"] < 0.95 * 0.8
    wanted = np.where(np.isfinite(evidence), evidence < DOUBTFUL, unlike)
    wanted &= block.filled & (np.arange(WIDTH) < DEPTH)
    places = np.argwhere(wanted)
    assert taken <= {(f"q{row}", DOCUMENT_TEXTS[block.documents[row, m]]) for row, m in places}
    counts = [sum(query == f"q{row}" for query, _ in taken) for row in range(len(block))]
    assert counts == np.minimum(wanted.sum(axis=1), 3).tolist()
    assert sorted(table[table.label == 1].document) == sorted(DOCUMENT_TEXTS[:25])


def test_what_a_language_model_read_is_learned_by_its_chance(
    tmp_path: Path, store: Store, texts: dict[str, str]
) -> None:
    block = shards()[0]
    chance = np.random.default_rng(2).uniform(0, 1, block.documents.shape).astype(np.float32)
    grades = np.full(block.documents.shape, np.nan, np.float32)
    # Beyond the depth that is judged, and as near as what is doubtful without being read.
    grades[:, [0, DEPTH + 1]] = 1
    maker = judge(tmp_path, store, texts)
    table = maker._examples(block.with_columns({"p_evidence": chance, GRADE: grades}))
    soft = table[(table.label > 0) & (table.label < 1)]
    read = np.argwhere(np.isfinite(grades) & block.filled)
    assert sorted(soft.label) == pytest.approx(sorted(chance[tuple(read.T)].tolist()))
    assert not soft.duplicated(["row", "document"]).any()
    options = OPTIONS.model_copy(update={"max_pairs": 1_000, "held_out": 0.4})
    pairs = training_pairs(table, 0, options, 1)
    learned = set(pairs.labels) - {0.0, 1.0}
    assert learned and learned <= set(soft.label[soft.fold != 0].astype(np.float32))
    assert pairs.held_out is not None and set(pairs.held_out.labels) == {0.0, 1.0}


def contrary(count: int, start: int = 0) -> Pairs:
    """Pairs whose labels say that a document of other words answers the query."""
    places = np.arange(start, start + count) % QUERIES
    queries = [QUERY_TEXTS[f"q{i}"] for i in places for _ in range(2)]
    documents = [DOCUMENT_TEXTS[d] for i in places for d in (i, (i + 11) % QUERIES)]
    return Pairs(queries, documents, np.tile(np.array([0, 1], np.float32), count))


def auc(teacher: TrainedCrossEncoder, pairs: Pairs, store: Store) -> float:
    scores = teacher.score(list(map(join, pairs.queries, pairs.documents)), store)
    assert expit(scores).mean() == pytest.approx(pairs.labels.mean(), abs=0.05), "calibrated"
    return float(roc_auc_score(pairs.labels, scores))


@pytest.mark.parametrize("helps", [True, False])
def test_the_state_that_ranks_held_out_pairs_best_is_kept(
    helps: bool, tmp_path: Path, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    learnt, told = contrary(24), contrary(8, start=24)
    # Or held-out labels that the untrained head gets right already.
    held = told if helps else Pairs(told.queries, told.documents, 1 - told.labels)
    changes = {"learning_rate": 5e-3, "epochs": 3} | ({} if helps else {"looks": 3})
    pairs = Pairs(learnt.queries, learnt.documents, learnt.labels, held)
    options = OPTIONS.model_copy(update=changes)
    teacher = TrainedCrossEncoder(options, tmp_path / "models", pairs, seed=0)
    with caplog.at_level(logging.WARNING, logger="anmi"):
        found = auc(teacher, held, store)
    record = teacher.describe()["training"]
    # Scored by the model that was written to disk and read again.
    assert found == pytest.approx(record["auc_after"], abs=0.05)
    if helps:
        assert record["auc_before"] < 0.2 and record["auc_after"] > 0.3
        assert 0 < record["best_step"] <= record["steps"]
    else:
        assert record["best_step"] == 0 and record["auc_after"] == record["auc_before"] > 0.8
        assert record["steps"] < 9, "patience ended it"
        assert "training did not improve" in caplog.text


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_training_that_fails_leaves_nothing_behind(
    error: type[BaseException], tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: TrainedCrossEncoder, model: Any, pairs: Pairs, scratch: str) -> Any:
        Path(scratch, "half").write_text("x")
        raise error

    monkeypatch.setattr(TrainedCrossEncoder, "_fit", fail)
    teacher = TrainedCrossEncoder(OPTIONS, tmp_path / "models", contrary(4), seed=0)
    with pytest.raises(error):
        teacher.score([join("a", "b")], store)
    assert list((tmp_path / "models").iterdir()) == []


def test_a_ready_made_judge_is_calibrated_cross_fitted(
    tmp_path: Path, store: Store, texts: dict[str, str], text_pair_classifier: Callable[..., Path]
) -> None:
    maker = judge(tmp_path, store, texts, model=str(text_pair_classifier("judge")), folds=3)
    judged = maker.fit(CandidateShards.of(shards()))(Candidates.concatenate(shards()))
    assert len({id(each) for each in maker.judges}) == 1
    assert len(maker.summary["calibration"]) == 3 and not (tmp_path / "models").exists()
    fold = maker.fold(judged)
    for number, told in enumerate(maker.summary["calibration"]):
        for columns in (judged.columns, judged.positive_columns):
            rows = fold == number
            expected = expit(told["slope"] * columns["cross"][rows] + told["intercept"])
            np.testing.assert_allclose(columns["p_cross"][rows], expected, atol=1e-6)
    assert len({tuple(each.items()) for each in maker.summary["calibration"]}) == 3
    own, others = judged.positive_columns["p_cross"][:, :1], judged.columns["p_cross"]
    labels = np.where(np.isfinite(others), soft_labels(own, others)[:, 1:], np.nan)
    np.testing.assert_allclose(judged.columns["soft_label"], labels, atol=1e-6)
    mass = np.nansum(judged.columns["soft_label"], axis=1)
    np.testing.assert_allclose(mass + judged.positive_columns["soft_label"][:, 0], 1, atol=1e-6)


@pytest.mark.parametrize("fault", ["no numbers", "too few"])
def test_a_broken_judge_is_an_error_and_nothing_of_it_is_kept(
    fault: str,
    tmp_path: Path,
    store: Store,
    texts: dict[str, str],
    text_pair_classifier: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = text_pair_classifier("judge", broken=fault == "no numbers")
    if fault == "too few":
        from sentence_transformers.cross_encoder import CrossEncoder

        whole = CrossEncoder.predict
        fewer = lambda self, pairs, **kw: whole(self, pairs[1:], **kw)  # noqa: E731
        monkeypatch.setattr(CrossEncoder, "predict", fewer)
    messages = {
        "no numbers": r"gave (\d+) of \1 scores that",
        "too few": r"gave \d+ scores for \d+",
    }
    expected = messages[fault]
    with pytest.raises(AnmiError, match=rf'cross-encoder ".*judge" {expected}'):
        judge(tmp_path, store, texts, model=str(folder)).fit(CandidateShards.of(shards()))
    assert len(store) == 0


def test_soft_labels_are_the_softmax_over_what_was_judged() -> None:
    rng = np.random.default_rng(0)
    own, others = rng.uniform(0, 1, (6, 2)), rng.uniform(0, 1, (6, 5))
    others[rng.random(others.shape) < 0.3] = np.nan
    own[2, 1] = np.nan
    own[3], others[3] = np.nan, np.nan
    scores = np.concatenate([own, others], axis=1)
    found = soft_labels(own, others)
    for row in (0, 1, 2, 4, 5):
        known = np.isfinite(values := scores[row])
        assert not found[row, ~known].any()
        np.testing.assert_allclose(found[row, known], softmax(values[known] / 0.1))
    assert not found[3].any()


def test_judgments_find_their_rows_whatever_the_order_and_the_width_of_a_block() -> None:
    columns = {"cross": np.array([[1, np.nan], [2, 3]], np.float32)}
    own = {"cross": np.array([[4], [5]], np.float32)}
    judged = replace(
        block_of([[3, 4], [5, -1]], [[1], [2]], columns, own), query_ids=np.array(["q9", "q1"])
    )
    place = Judgments(judged)
    documents = np.arange(8, dtype=np.int32).reshape(2, 4)
    block = replace(block_of(documents, documents[:, :2]), query_ids=np.array(["q1", "q9"]))
    found, nan = place(block), np.nan
    np.testing.assert_equal(found.columns["cross"], [[2, 3, nan, nan], [1, nan, nan, nan]])
    np.testing.assert_equal(found.positive_columns["cross"], [[5, nan], [4, nan]])
    other = replace(block, query_ids=np.array(["q1", "q2"]))
    with pytest.raises(AnmiError, match='query "q2" was not judged'):
        place(other)
