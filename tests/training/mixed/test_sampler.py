"""What a step draws."""

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anmi.errors import AnmiError
from anmi.training.curriculum import State, build_curriculum
from anmi.training.mixed import DNHSampler
from anmi.training.parts import LinearOptions, MixedSources

ALL = np.arange(10)
DIMENSION = 4


def mixed(world, count=4, seed=1, mix=None, rows=None, **options):
    shares = dict(zip(("random", "graph", "latent", "edit"), options.pop("shares", (0.2, 0.5, 0.3, 0)), strict=True))
    curriculum = SimpleNamespace(state=mix and State(0.5, -np.inf, np.inf, mix=mix))
    options = MixedSources(**shares, refresh=1, **options)
    return DNHSampler(rows or world.rows, count, seed, world.stock, options, curriculum, DIMENSION)


def embeddings(world, seed=5):
    vectors = np.random.default_rng(seed).normal(size=(len(world.ids) + 10, DIMENSION)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors[:20], vectors[20:]


def observe(sampler, world, step=1, seed=5):
    documents, queries = embeddings(world, seed)
    sampler.update_index(step, ALL, queries, list(world.ids), documents)
    return documents, queries


def names(rows):
    return [list(row.negative_ids) for row in rows]


def test_latent_negatives_are_the_nearest_about_another_entity(world):
    sampler = mixed(world, shares=(0, 0, 1, 0), count=3)
    documents, queries = observe(sampler, world)
    expected = []
    for i in ALL:
        order = np.argsort(-documents @ queries[i])
        expected.append([world.ids[n] for n in order if world.ids[n] not in (f"s{i}", f"l{i}")][:3])
    assert names(sampler(ALL, 1)) == expected
    report = sampler.report()
    assert report["share_latent"] == 1 and report["replaced"] == 0
    assert report["latent_hit_rate"] == pytest.approx(18 / 20), "two of twenty neighbours are about the own entity"


def test_what_has_no_neighbours_yet_falls_back_to_the_graph_and_then_to_random(world):
    sampler = mixed(world, shares=(0, 0, 1, 0), count=4)
    drawn, source = sampler.draw(ALL, 0)
    # s1 has three swaps, every other one has two.
    assert (source == 1).sum(axis=1).tolist() == [2, 3, *[2] * 8]
    assert (source == 0).sum(axis=1).tolist() == [2, 1, *[2] * 8]
    assert (drawn >= 0).all()
    sampler(ALL, 0)
    assert sampler.report()["replaced"] == 1


def test_edits_are_of_the_own_document_and_fall_back_to_its_swaps(world):
    made = names(mixed(world, shares=(0, 0, 0, 1), count=2)(ALL, 0))
    for i, own in enumerate(made):
        edits = [name for name in own if "#number" in name]
        assert edits == ([f"s{i}#number:0"] if i % 2 == 0 else [])
        assert all(name.startswith(f"s{i}#swap") or (i, name) == (1, "s5") for name in set(own) - set(edits))


@given(
    st.integers(0, 40), st.integers(0, 3), st.lists(st.integers(0, 9), min_size=1, max_size=10, unique=True),
    st.tuples(*[st.sampled_from([0.0, 0.2, 0.5, 1.0])] * 4).filter(lambda mix: sum(mix) > 0),
)  # fmt: skip
def test_nothing_that_states_the_fact_asked_for_is_a_negative(made, step, seed, numbers, mix):
    shares = tuple(np.array(mix) / sum(mix))
    sampler = mixed(made, seed=seed, shares=shares, count=5)
    observe(sampler, made, seed=seed)
    chosen = np.array(numbers)
    drawn, source = sampler.draw(chosen, step)
    for place, i in enumerate(numbers):
        found = [made.stock.ids[n] for n in drawn[place] if n >= 0]
        assert not {f"s{i}", f"l{i}"} & set(found)
        latent = drawn[place][source[place] == 2]
        assert (made.stock.about[latent] != made.stock.about[i]).all()
    there = set(source[drawn >= 0].tolist())
    fallback = {0, 1} if mix[2] or mix[3] else {0} if mix[1] else set()
    assert there <= {kind for kind, share in enumerate(mix) if share} | fallback
    batch = sampler(chosen, step)
    in_batch = {name for row in batch for name in (*row.negative_ids, row.positive_id)}
    for row, i in zip(batch, numbers, strict=True):
        own = {name for name in in_batch if name.split("#")[0] in (f"s{i}", f"l{i}")}
        assert own - set(row.negative_ids) <= row.excluded_ids, "nor through another row of the batch"
        assert not row.excluded_ids & set(row.negative_ids)


def test_a_draw_depends_on_the_row_and_the_step_and_not_on_the_batch(world):
    sampler = mixed(world)
    together = names(sampler(ALL, 3))
    assert [names(sampler(np.array([i]), 3))[0] for i in ALL] == together
    assert names(sampler(ALL, 4)) != together
    assert names(mixed(world)(ALL, 3)) == together
    assert names(mixed(world, seed=2)(ALL, 3)) != together


def test_the_schedule_says_the_shares(world):
    many = [replace(row, query_id=f"{row.query_id}-{k}") for row in world.rows for k in range(60)]
    sampler = mixed(world, rows=many, count=2, mix=(0.25, 0.75, 0.0, 0.0))
    sampler(np.arange(len(many)), 0)
    assert sampler.report()["share_graph"] == pytest.approx(0.75, abs=0.05)
    assert sampler.report()["share_latent"] == 0
    assert mixed(world, mix=(1.0, 0, 0, 0)).draw(ALL, 0)[1].max() == 0, "a share of 0 is never drawn"


def test_hard_rows_weigh_more(world):
    assert {row.query_weight for row in mixed(world, shares=(1, 0, 0, 0), boost=0.5)(ALL, 0)} == {1.0}
    assert {row.query_weight for row in mixed(world, shares=(0, 1, 0, 0), boost=0.5, count=2)(ALL, 0)} == {1.5}
    assert {row.query_weight for row in mixed(world, shares=(0, 1, 0, 0), boost=0.5, count=4)(ALL[2:], 0)} == {1.25}


def test_a_positive_that_is_not_in_the_corpus_is_named(world):
    with pytest.raises(AnmiError, match='query "q0" has the positive "gone"'):
        mixed(world, rows=[replace(world.rows[0], positive_id="gone")])


def test_the_loop_of_the_docs_comes_to_the_final_shares(world):
    (snippet,) = re.findall(
        r"```python\n(options = MixedSources.*?)```", Path("docs/methods.md").read_text(), re.DOTALL
    )

    def encode(texts):
        made = np.stack([np.random.default_rng(list(text.encode())).normal(size=8) for text in texts])
        return (made / np.linalg.norm(made, axis=1, keepdims=True)).astype(np.float32)

    names = {
        "np": np, "rows": world.rows, "stock": world.stock, "encode": encode, "MixedSources": MixedSources,
        "LinearOptions": LinearOptions, "build_curriculum": build_curriculum, "DNHSampler": DNHSampler,
    }  # fmt: skip
    exec(snippet, names)
    report = names["sampler"].report()
    assert names["curriculum"].state.mix == (0, 0.6, 0.4, 0)
    assert report["share_latent"] > 0.2 and report["negatives"] == 7
    assert names["sampler"].neighbours().step.unique().tolist() == [10, 20, 30, 40, 50]
