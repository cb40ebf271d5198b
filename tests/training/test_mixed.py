"""Negatives of mixed sources: what they are drawn from, what a step draws, and trainings on them."""

import json
import re
from dataclasses import replace
from pathlib import Path
from threading import Event
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.mined import row
from tests.training.resuming import Killed, stop_at

from anmi.corpus.knowledge import Knowledge
from anmi.errors import AnmiError
from anmi.training import mixed as mixed_module
from anmi.training.curriculum import State, build_curriculum
from anmi.training.loop import CheckpointPlan
from anmi.training.mixed import DNHSampler, LatentIndex, Stock
from anmi.training.options import TrainingOptions
from anmi.training.parts import LinearOptions, MixedSources
from anmi.training.trainer import train

ENTITIES, DIMENSION = 10, 4
ALL = np.arange(ENTITIES)


def table(rows, *columns):
    return pd.DataFrame(rows, columns=list(columns), dtype="str")


@pytest.fixture(scope="module")
def world():
    """Ten entities of two types, two documents about each, one of which states what the other does."""
    types = [(f"u:{i}", f"w{i}", json.dumps([f"type{i % 2}"])) for i in ALL]
    entities = table(types, "uri", "label", "types")
    # Document s_i states one fact about entity i, l_i the same and another one.
    facts = [(f"s{i}", f"u:{i}", "likes", f"u:{(i + 1) % ENTITIES}") for i in ALL]
    facts += [(f"l{i}", *fact[1:]) for i, fact in enumerate(facts)]
    facts += [(f"l{i}", f"u:{i}", "age", str(20 + i)) for i in ALL]
    facts = table(facts, "document_id", "head", "relation", "tail")
    graph = facts[["head", "relation", "tail"]].drop_duplicates()
    ids = [f"{kind}{i}" for kind in "sl" for i in ALL]
    texts = [f"w{i} w{i + 20}" for i in ALL] + [f"w{i} w{i + 20} w{i + 40}" for i in ALL]
    variants = [
        (f"{name}#swap:{k}", name, "swap", f"{texts[n]} w{(n + k) % 10 + 10}")
        for n, name in enumerate(ids)
        for k in (1, 2)
    ]
    variants += [(f"s{i}#number:0", f"s{i}", "number", f"w{i} w59") for i in ALL[::2]]
    variants += [("s5", "s1", "counterpart", texts[5])]
    variants = table(variants, "variant_id", "document_id", "kind", "text")
    nothing = table([], "document_id", "other_id", "kind")
    corpus = pd.DataFrame({"document_id": ids, "title": "", "text": texts})
    stock = Stock.from_tables(corpus, Knowledge(entities, graph, facts), variants, nothing)
    rows = [
        row(f"w{i + 20}", texts[i], query_id=f"q{i}", positive_id=f"s{i}", positive_ids={f"s{i}"})
        for i in ALL
    ]
    rows = [replace(one, positive_ids=frozenset(one.positive_ids)) for one in rows]
    return SimpleNamespace(stock=stock, rows=rows, ids=ids)


def test_variants_stand_behind_the_documents_and_name_what_they_are_of(world):
    stock = world.stock
    assert stock.documents == 20 and stock.ids[:20].tolist() == world.ids
    for number, origin in enumerate(stock.origin.tolist()):
        name = stock.ids[number]
        assert number == origin if number < 20 else name.startswith(f"{stock.ids[origin]}#")
    swaps, edits = (
        [[stock.ids[n] for n in line if n >= 0] for line in part.tolist()]
        for part in (stock.swaps, stock.edits)
    )
    assert swaps[1] == ["s1#swap:1", "s1#swap:2", "s5"], "a counterpart is the document itself"
    assert edits[:3] == [["s0#number:0"], [], ["s2#number:0"]]


def test_without_facts_there_is_nothing_to_go_by():
    columns = ("document_id", "head", "relation", "tail", "uri", "label", "types")
    nothing = pd.DataFrame({name: pd.Series(dtype="str") for name in columns})
    corpus = pd.DataFrame({"document_id": ["a"], "title": "", "text": "text"})
    with pytest.raises(AnmiError, match="kg:DIR"):
        Stock.from_tables(corpus, Knowledge(nothing, nothing, nothing), nothing, nothing)


DOCUMENTS, CAPACITY = 12, 5
steps = st.lists(st.lists(st.integers(0, 11), unique=True, max_size=CAPACITY), max_size=12)


def vectors(documents, step):
    return np.random.default_rng(step).normal(size=(len(documents), DIMENSION)).astype(np.float32)


def filled(sequence):
    index = LatentIndex(CAPACITY, DOCUMENTS, DIMENSION)
    for step, documents in enumerate(sequence):
        index.add(np.array(documents, np.int64), vectors(documents, step))
    index.take()
    return index


@given(steps, steps)
def test_it_holds_each_document_once_as_it_was_encoded_last_and_a_copy_goes_on_alike(
    sequence, after
):
    index = filled(sequence)
    held = index.documents.tolist()
    last_step = {name: step for step, documents in enumerate(sequence) for name in documents}
    order = []
    for documents in sequence:
        order = [document for document in order if document not in documents] + documents
    assert held == order[-CAPACITY:]
    for document, vector in zip(held, index.tensors()["index.3"], strict=True):
        step = last_step[document]
        newest = vectors(sequence[step], step)[sequence[step].index(document)]
        assert np.array_equal(vector, newest), "the newest embedding of a document"
    copy = LatentIndex(CAPACITY, DOCUMENTS, DIMENSION)
    copy.load(index.tensors())
    for one in (index, copy):
        for step, documents in enumerate(after, start=100):
            one.add(np.array(documents, np.int64), vectors(documents, step))
        one.take()
    pairs = zip(index.tensors().values(), copy.tensors().values(), strict=True)
    assert all(np.array_equal(*pair) for pair in pairs)


def test_the_index_finds_the_nearest_of_what_was_held():
    index, anchors = filled([]), vectors(range(4), 77)
    assert (index.search(anchors, 2) == -1).all(), "nothing before the first is made"
    held = vectors(range(5), 0)
    index.add(np.arange(5), held)
    index.take()
    found = np.take_along_axis(anchors @ held.T, index.search(anchors, 5), axis=1)
    assert np.abs(found + np.sort(-anchors @ held.T, axis=1)).max() < 1e-5
    assert (index.search(anchors, 7)[:, 5:] == -1).all(), "no more than there are"
    index.add(np.array([9]), np.full((1, DIMENSION), 100, np.float32))
    assert 9 not in index.documents
    index.take()
    assert 9 in index.documents


@pytest.fixture
def clusters():
    """Vectors of documents and queries around a few directions, as those of an encoder are."""
    random = np.random.default_rng(3)
    near = random.normal(size=(40, 32))[random.integers(0, 40, 1200)]
    found = (near + random.normal(size=near.shape) / 2).astype(np.float32)
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    return found[:1000], found[1000:]


@pytest.mark.parametrize(("most_bytes", "least"), [(mixed_module._MOST_BYTES, 0.99), (0, 0.6)])
def test_a_large_index_is_made_beside_the_training_and_found_alike_however_long_that_takes(
    clusters, monkeypatch, most_bytes, least
):
    monkeypatch.setattr(mixed_module, "_EXACT", 500)
    monkeypatch.setattr(mixed_module, "_MOST_BYTES", most_bytes)
    documents, queries = clusters
    make = mixed_module._indexed
    began, go_on = Event(), Event()

    def slowly(vectors):
        began.set()
        assert go_on.wait(60)
        return make(vectors)

    found = []
    for build in (make, slowly):
        monkeypatch.setattr(mixed_module, "_indexed", build)
        index = LatentIndex(5000, 1000, 32)
        index.add(np.arange(400), documents[:400])
        index.take()
        index.add(np.arange(400, 1000), documents[400:])
        index.take()
        assert index.documents.max() == 399 and index.search(queries, 1).max() < 400
        copy = LatentIndex(5000, 1000, 32)
        go_on.set()
        copy.load(index.tensors())
        for each in (index, copy):
            each.take()
            assert np.array_equal(np.sort(each.documents), np.arange(1000))
            found.append(each.documents[each.search(queries, 20)])
            loaded = LatentIndex(5000, 1000, 32)
            loaded.load(each.tensors())
            found.append(loaded.documents[loaded.search(queries, 20)])
    assert began.is_set() and all(np.array_equal(found[0], each) for each in found)
    nearest = np.argsort(-queries @ documents.T, axis=1)[:, :20]
    assert np.mean([np.isin(*pair).mean() for pair in zip(found[0], nearest, strict=True)]) > least


def mixed(world, count=4, seed=1, mix=None, rows=None, shares=(0.2, 0.5, 0.3, 0), **options):
    shares = dict(zip(("random", "graph", "latent", "edit"), shares, strict=True))
    curriculum = SimpleNamespace(state=mix and State(0.5, -np.inf, np.inf, mix=mix))
    options = MixedSources(**shares, refresh=1, **options)
    return DNHSampler(rows or world.rows, count, seed, world.stock, options, curriculum, DIMENSION)


def observe(sampler, world, step=1, seed=5):
    vectors = np.random.default_rng(seed).normal(size=(30, DIMENSION)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    sampler.update_index(step, ALL, vectors[20:], list(world.ids), vectors[:20])
    return vectors[:20], vectors[20:]


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
    # Two of twenty neighbours are about the own entity.
    assert report["latent_hit_rate"] == pytest.approx(18 / 20)


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
    for i, drawn in enumerate(names(mixed(world, shares=(0, 0, 0, 1), count=2)(ALL, 0))):
        edits = {name for name in drawn if "#number" in name}
        assert edits == ({f"s{i}#number:0"} if i % 2 == 0 else set())
        others = set(drawn) - edits - ({"s5"} if i == 1 else set())
        assert all(name.startswith(f"s{i}#swap") for name in others)


@given(
    st.integers(0, 40),
    st.integers(0, 3),
    st.lists(st.integers(0, 9), min_size=1, max_size=10, unique=True),
    st.tuples(*[st.sampled_from([0.0, 0.2, 0.5, 1.0])] * 4).filter(lambda mix: sum(mix) > 0),
)
def test_nothing_that_states_the_fact_asked_for_is_a_negative(world, step, seed, numbers, mix):
    shares = tuple(np.array(mix) / sum(mix))
    sampler = mixed(world, seed=seed, shares=shares, count=5)
    observe(sampler, world, seed=seed)
    chosen = np.array(numbers)
    drawn, sources = sampler.draw(chosen, step)
    for place, i in enumerate(numbers):
        assert not {f"s{i}", f"l{i}"} & {world.stock.ids[n] for n in drawn[place] if n >= 0}
        latent = drawn[place][sources[place] == 2]
        assert (world.stock.about[latent] != world.stock.about[i]).all()
    fallback = {0, 1} if mix[2] or mix[3] else {0} if mix[1] else set()
    allowed = {kind for kind, share in enumerate(mix) if share} | fallback
    assert set(sources[drawn >= 0].tolist()) <= allowed
    batch = sampler(chosen, step)
    in_batch = {name for row in batch for name in (*row.negative_ids, row.positive_id)}
    for drawn_row, i in zip(batch, numbers, strict=True):
        own = {name for name in in_batch if name.split("#")[0] in (f"s{i}", f"l{i}")}
        # Nor through another row of the batch.
        assert own - set(drawn_row.negative_ids) <= drawn_row.excluded_ids
        assert not drawn_row.excluded_ids & set(drawn_row.negative_ids)


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
    # A share of 0 is never drawn.
    assert mixed(world, mix=(1.0, 0, 0, 0)).draw(ALL, 0)[1].max() == 0


@pytest.mark.parametrize(
    ("shares", "count", "weight"),
    [((1, 0, 0, 0), 4, 1.0), ((0, 1, 0, 0), 2, 1.5), ((0, 1, 0, 0), 4, 1.25)],
)
def test_hard_rows_weigh_more(world, shares, count, weight):
    rows = mixed(world, shares=shares, boost=0.5, count=count)(ALL[2:], 0)
    assert {row.query_weight for row in rows} == {weight}


def test_a_positive_that_is_not_in_the_corpus_is_named(world):
    with pytest.raises(AnmiError, match='query "q0" has the positive "gone"'):
        mixed(world, rows=[replace(world.rows[0], positive_id="gone")])


def test_the_loop_of_the_docs_comes_to_the_final_shares(world):
    (snippet,) = re.findall(
        r"```python\n(options = MixedSources.*?)```", Path("docs/methods.md").read_text(), re.DOTALL
    )

    def encode(texts):
        seeds = [list(text.encode()) for text in texts]
        vectors = np.stack([np.random.default_rng(seed).normal(size=8) for seed in seeds])
        return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)

    classes = (MixedSources, LinearOptions, DNHSampler)
    names = {one.__name__: one for one in classes} | {"build_curriculum": build_curriculum}
    names |= {"np": np, "rows": world.rows, "stock": world.stock, "encode": encode}
    exec(snippet, names)
    report = names["sampler"].report()
    assert names["curriculum"].state.mix == (0, 0.6, 0.4, 0)
    assert report["share_latent"] > 0.2 and report["negatives"] == 7
    assert names["sampler"].neighbours().step.unique().tolist() == [10, 20, 30, 40, 50]


WORDS = [f"w{i}" for i in range(60)]
TRIGGERED = {"triggered": {"advance": 0.9, "retreat": 0.95}}


@pytest.fixture
def fit(world, word_encoder):
    columns = ["query_id", "query", "positive_id", "positive"]
    table = pd.DataFrame([[getattr(row, name) for name in columns] for row in world.rows])
    table = table.set_axis(columns, axis=1).assign(query_weight=1.0)
    for name in ("negative_ids", "negatives", "weights"):
        table[name] = [[]] * len(table)
    table["positive_ids"] = [[name] for name in table.positive_id]
    usual = {"epochs": 6, "batch_size": 4, "negatives": 3, "learning_rate": 0.05}
    usual |= {"sources": {"mixed": {"random": 0.2, "graph": 0.4, "latent": 0.4, "refresh": 2}}}

    def run(plan=None, kill_at=0, **changes):
        encoder = word_encoder(WORDS)
        stop_at(encoder[0], kill_at)
        options = TrainingOptions(**usual | changes)
        data = {"output": None, "seed": 1, "checkpoints": plan, "stock": world.stock}
        return train(table, encoder=encoder, options=options, **data)

    return run


def test_triggered_goes_by_the_violations_of_the_log(fit):
    made = fit(curriculum=TRIGGERED)
    log, changes = made.log, made.summary["transitions"]
    assert (log.margin_violations < 0.9).all()
    assert log.stage.tolist() == [1] * 3 + [2] * 3 + [3] * 12 and "low" not in log
    assert (log.share_random[:3] == 1).all() and (log.share_graph[3:] > 0).any()
    assert (log.share_latent[:6] == 0).all() and (log.share_latent[6:] > 0).any()
    assert [list(change.values())[:3] for change in changes] == [[3, 1, 2], [6, 2, 3]]
    assert all("are below 0.9" in change["why"] for change in changes)


def test_the_head_learns_which_entity_a_query_is_about(fit):
    accuracy = fit(loss={"entity": {"share": 0.5}}, epochs=60).log.entity_accuracy
    assert accuracy.head(3).mean() < 0.4
    assert accuracy.tail(3).mean() > 0.8


@pytest.mark.parametrize("most_exact", [20, 8])
def test_all_sources_are_used_and_a_killed_training_goes_on_as_if_undisturbed(
    fit, tmp_path, monkeypatch, most_exact
):
    monkeypatch.setattr(mixed_module, "_EXACT", most_exact)
    shares = {"random": 0.1, "graph": 0.3, "latent": 0.4, "edit": 0.2, "refresh": 2, "boost": 0.5}
    options = {"sources": {"mixed": shares}, "temperature": "learnable", "checkpoint_minutes": 1e-9}
    expected = fit(**options)
    shares = expected.log[[f"share_{name}" for name in ("random", "graph", "latent", "edit")]]
    assert (shares.sum(axis=1) - 1).abs().max() < 1e-9 and (shares.tail(10).mean() > 0).all()
    assert expected.log.loss.tail(3).mean() < expected.log.loss.head(3).mean()
    assert len(expected.neighbours) and expected.neighbours.step.is_monotonic_increasing
    # Three in each of six epochs.
    assert expected.drawn.groupby("query_id")["count"].sum().eq(6 * 3).all()
    with pytest.raises(Killed):
        fit(CheckpointPlan(tmp_path), kill_at=19, **options)
    resumed = fit(CheckpointPlan(tmp_path), **options)
    assert resumed.summary["resumed_from_step"] == 9
    for table in ("neighbours", "log", "drawn"):
        tables = getattr(resumed, table), getattr(expected, table)
        pd.testing.assert_frame_equal(*tables, check_exact=True)
    assert torch.equal(resumed.model[0].embedding.weight, expected.model[0].embedding.weight)
