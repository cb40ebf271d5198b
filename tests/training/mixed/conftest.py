"""A small world: ten entities of two types, two documents about each, one of which states what the other does."""

import json
from types import SimpleNamespace

import pandas as pd
import pytest

from anmi.corpus.knowledge import Knowledge
from anmi.training.batch import Row
from anmi.training.mixed import Stock

ENTITIES = 10


def table(rows, *columns):
    return pd.DataFrame(rows, columns=list(columns), dtype="str")


def make_world():
    entities = table(
        [(f"u:{i}", f"w{i}", json.dumps([f"type{i % 2}"])) for i in range(ENTITIES)], "uri", "label", "types"
    )
    # Document s_i states one fact about entity i, l_i the same and another one.
    facts = [(f"s{i}", f"u:{i}", "likes", f"u:{(i + 1) % ENTITIES}") for i in range(ENTITIES)]
    facts += [(f"l{i}", *fact[1:]) for i, fact in enumerate(facts[:ENTITIES])]
    facts += [(f"l{i}", f"u:{i}", "age", str(20 + i)) for i in range(ENTITIES)]
    facts = table(facts, "document_id", "head", "relation", "tail")
    graph = facts[["head", "relation", "tail"]].drop_duplicates()
    ids = [f"{kind}{i}" for kind in "sl" for i in range(ENTITIES)]
    texts = [f"w{i} w{i + 20}" for i in range(ENTITIES)] + [f"w{i} w{i + 20} w{i + 40}" for i in range(ENTITIES)]
    variants = table(
        [
            (f"{name}#swap:{k}", name, "swap", f"{texts[n]} w{(n + k) % 10 + 10}")
            for n, name in enumerate(ids)
            for k in (1, 2)
        ]
        + [(f"s{i}#number:0", f"s{i}", "number", f"w{i} w59") for i in range(0, ENTITIES, 2)]
        + [("s5", "s1", "counterpart", texts[5])],
        "variant_id", "document_id", "kind", "text",
    )  # fmt: skip
    nothing = table([], "document_id", "other_id", "kind")
    corpus = pd.DataFrame({"document_id": ids, "title": "", "text": texts})
    stock = Stock.from_tables(corpus, Knowledge(entities, graph, facts), variants, nothing)
    rows = [row(f"q{i}", f"w{i + 20}", f"s{i}", texts[i]) for i in range(ENTITIES)]
    return SimpleNamespace(stock=stock, rows=rows, ids=ids, texts=texts)


@pytest.fixture
def world():
    return make_world()


@pytest.fixture(scope="session")
def made():
    """One for all examples of a property."""
    return make_world()


def row(query_id, query, positive_id, positive, **more):
    return Row(query_id, query, positive_id, positive, (), (), (), 1.0, frozenset({positive_id}), **more)
