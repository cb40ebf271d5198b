"""The judge of candidates, with a teacher that is really trained."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anmi.candidates import PADDING, Candidates, CandidateShards
from anmi.errors import AnmiError
from anmi.judging.denoise import Judge
from anmi.judging.teacher import Teacher, TeacherOptions
from anmi.store import Store

QUERIES, WIDTH, DEPTH = 40, 8, 5
THINGS = ("fox", "whale", "owl", "pine", "river", "stone", "bread", "violin", "engine", "comet")
DEEDS = ("sleeps", "grows", "breaks", "sounds")

QUERY_TEXTS = {f"q{i}": f"why the {THINGS[i % 10]} {DEEDS[i // 10]}" for i in range(QUERIES)}
DOCUMENT_TEXTS = [f"it is known that the {THINGS[i % 10]} {DEEDS[i // 10]} at night" for i in range(QUERIES)]
OPTIONS = TeacherOptions(
    layers=1, folds=2, max_pairs=64, negatives=2, max_length=32, batch_size=16, learning_rate=3e-4, precision="float32"
)


def shards() -> list[Candidates]:
    """Two blocks; the document of a query's own number is its positive, q1 asks like q0."""
    rng = np.random.default_rng(0)
    documents = np.stack([rng.permutation(np.delete(np.arange(QUERIES), i))[:WIDTH] for i in range(QUERIES)])
    documents[::9, WIDTH - 2 :] = PADDING
    dense = np.where(documents == PADDING, np.nan, rng.uniform(0.1, 0.9, documents.shape)).astype(np.float32)
    positives = np.stack([np.arange(QUERIES), np.full(QUERIES, PADDING)], axis=1).astype(np.int32)
    own = np.where(positives == PADDING, np.nan, 0.8).astype(np.float32)
    block = Candidates(
        query_ids=np.array(list(QUERY_TEXTS)),
        positives=positives,
        documents=documents.astype(np.int32),
        source=np.ones(documents.shape, np.uint8),
        columns={"dense": dense},
        positive_columns={"dense": own},
    )
    return [block.take(slice(0, 25)), block.take(slice(25, None))]


@pytest.fixture
def texts() -> dict[str, str]:
    return QUERY_TEXTS | {"q1": QUERY_TEXTS["q0"].upper()}


def judge(folder: Path, store: Store, texts: dict[str, str], **changes: Any) -> Judge:
    options = OPTIONS.model_copy(update=changes)
    return Judge(options, DEPTH, store, folder / "models", texts, DOCUMENT_TEXTS, seed=3)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "store") as opened:
        yield opened


@pytest.mark.slow
def test_a_trained_teacher_judges_only_what_it_did_not_see_and_only_once(
    tmp_path: Path, store: Store, texts: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    scored: list[tuple[Teacher, str]] = []
    computed: list[int] = []
    score, compute = Teacher.score, Teacher._compute

    def noting_score(self: Teacher, pairs: Any, *rest: Any) -> Any:
        scored.extend((self, pair.split("\x1f")[0]) for pair in pairs)
        return score(self, pairs, *rest)

    def noting_compute(self: Teacher, joined: list[str]) -> Any:
        computed.append(len(joined))
        return compute(self, joined)

    monkeypatch.setattr(Teacher, "score", noting_score)
    monkeypatch.setattr(Teacher, "_compute", noting_compute)
    first = judge(tmp_path, store, texts)
    first.fit(CandidateShards.of(shards()))
    judged = [first(block) for block in shards()]

    learned = {
        id(teacher): {
            query.lower() for part in (teacher._pairs, teacher._pairs.held_out) if part for query in part.queries
        }
        for teacher in first.judges
        if isinstance(teacher, Teacher)
    }
    assert len(learned) == 2 and all(len(seen) > 5 for seen in learned.values())
    assert {query.lower() for _, query in scored} == {text.lower() for text in texts.values()}
    assert not [query for teacher, query in scored if query.lower() in learned[id(teacher)]]
    assert len(list((tmp_path / "models").iterdir())) == 2

    for block in judged:
        inside = block.filled & (np.arange(WIDTH) < DEPTH)
        known = block.positives != PADDING
        for values, mask in ((block.columns, inside), (block.positive_columns, known)):
            probability = values["p_cross"]
            assert (np.isfinite(probability) == mask).all() and (np.isfinite(values["cross"]) == mask).all()
            assert ((probability[mask] >= 0) & (probability[mask] <= 1)).all()
    assert first.summary["judged_pairs"] == sum(
        int((b.filled[:, :DEPTH]).sum() + (b.positives >= 0).sum()) for b in shards()
    )

    computed.clear()
    shutil.rmtree(tmp_path / "models")
    second = judge(tmp_path, store, texts)
    second.fit(CandidateShards.of([Candidates.concatenate(shards())]))
    again = second(Candidates.concatenate(shards()))
    assert computed == [] and not (tmp_path / "models").exists()
    for name in ("cross", "p_cross"):
        both = np.concatenate([block.columns[name] for block in judged])
        np.testing.assert_allclose(again.columns[name], both, atol=1e-5)


def test_what_the_teacher_learns_from_is_labelled_clean_and_judged(
    tmp_path: Path, store: Store, texts: dict[str, str]
) -> None:
    block = shards()[0]
    table = judge(tmp_path, store, texts)._examples(block)
    positives, negatives = table[table.label == 1], table[table.label == 0]
    assert sorted(positives.document) == sorted(DOCUMENT_TEXTS[:25])
    assert negatives.groupby("row").size().max() <= OPTIONS.negatives
    row = {str(query): i for i, query in enumerate(block.query_ids)}
    for example in negatives.itertuples():
        i = row[str(example.row)]
        slot = block.documents[i].tolist().index(DOCUMENT_TEXTS.index(str(example.document)))
        assert slot < DEPTH and block.columns["dense"][i, slot] < 0.95 * 0.8
    folds = table.assign(text=table["query"].str.lower()).groupby("text").fold.nunique()
    assert (folds == 1).all()


def test_examples_do_not_depend_on_how_queries_are_cut_into_shards(
    tmp_path: Path, store: Store, texts: dict[str, str]
) -> None:
    maker = judge(tmp_path, store, texts)

    def pairs(blocks: list[Candidates]) -> set[tuple[str, str, int]]:
        return {
            (str(e.row), str(e.document), int(e.label))  # type: ignore[call-overload]
            for block in blocks
            for e in maker._examples(block).itertuples()
        }

    assert pairs(shards()) == pairs([Candidates.concatenate(shards())])


def test_a_judge_must_be_fitted_first(tmp_path: Path, store: Store, texts: dict[str, str]) -> None:
    with pytest.raises(AnmiError, match="not fitted"):
        judge(tmp_path, store, texts)(shards()[0])


def test_a_cross_encoder_that_is_not_there_is_named(tmp_path: Path, store: Store, texts: dict[str, str]) -> None:
    with pytest.raises(AnmiError, match=r'cross-encoder ".*nowhere" could not be loaded'):
        judge(tmp_path, store, texts, base=str(tmp_path / "nowhere")).fit(CandidateShards.of(shards()))
