"""What is noted of the index of latent negatives while training."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anmi.training.mixed import MixedSampler
from anmi.training.mixed.latent import Snapshot
from anmi.training.mixed.watched import MOST_QUERIES, WatchedQueries, scattered
from anmi.training.observed import Observed
from anmi.training.options.sources import MixedSources


@given(st.lists(st.integers(-1, 3), max_size=12), st.integers(0, 5))
@settings(max_examples=80, deadline=None)
def test_scattered_documents_are_counted_one_by_one(entities: list[int], seed: int) -> None:
    vectors = np.random.default_rng(seed).normal(size=(len(entities), 3)).astype(np.float32)
    documents = np.random.default_rng(seed).permutation(len(entities))
    about = np.empty(len(entities), np.int32)
    about[documents] = entities
    found, counted = 0, 0
    for i, entity in enumerate(entities):
        others = [j for j in range(len(entities)) if j != i and entities[j] >= 0]
        if entity < 0 or all(entities[j] != entity for j in others):
            continue
        counted += 1
        found += entities[max(others, key=lambda j: float(vectors[i] @ vectors[j]))] != entity
    value = scattered(Snapshot(documents, np.zeros(len(entities), np.int64), vectors), about)
    assert np.isnan(value) if not counted else value == pytest.approx(found / counted)


def test_of_many_queries_some_are_watched_each_once(world: Any) -> None:
    rows = [world.rows[i % 10] for i in range(20)]
    assert WatchedQueries(rows, world.stock, 1).rows.tolist() == list(range(10))
    many = [SimpleNamespace(query_id=f"q{i // 2}") for i in range(400)]
    watched = WatchedQueries(many, world.stock, 1).rows  # type: ignore[arg-type]
    assert 1 <= len(watched) <= MOST_QUERIES and (watched % 2 == 0).all()
    assert watched.tolist() == WatchedQueries(many, world.stock, 1).rows.tolist()  # type: ignore[arg-type]


def test_the_nearest_five_are_noted_with_their_entities_each_time_the_index_is_made(world: Any) -> None:
    options = MixedSources(random=0.5, graph=0, latent=0.5, refresh=2, buffer=100)
    sampler = MixedSampler(world.rows, 2, 1, world.stock, options, None, 4)
    rng = np.random.default_rng(0)
    count = len(world.ids)
    for step in (1, 2):
        sampler(np.arange(10), step)
        queries, documents = (rng.normal(size=(size, 4)).astype(np.float32) for size in (10, count))
        sampler._real = count
        sampler.observe(step, Observed(np.arange(10), queries, list(world.ids), documents))
    table = sampler.watched.table()
    assert (table.step == 2).all() and table.query_id.nunique() == 10 and len(table) == 50
    about = dict(zip(world.ids, world.stock.about.tolist(), strict=True))
    for number, (query, lines) in enumerate(table.groupby("query_id", sort=False)):
        order = np.argsort(-(queries[number] @ documents.T))[:5]
        assert query == f"q{number}" and lines.document_id.tolist() == [world.ids[place] for place in order]
        assert lines["rank"].tolist() == [1, 2, 3, 4, 5] and set(lines.own_uri) == {f"u:{number}"}
        assert lines.uri.tolist() == [world.stock.uris[about[name]] for name in lines.document_id]
        assert not lines.usable[lines.uri == f"u:{number}"].any() and lines.usable.any()
    assert sampler.scattered == scattered(sampler._index.snapshot, world.stock.about)
    values, tensors = sampler.state_dict()
    again = MixedSampler(world.rows, 2, 1, world.stock, options, None, 4)
    again.load_state_dict(json.loads(json.dumps(values)), tensors)
    assert again.watched.table().equals(table) and again.scattered == sampler.scattered
