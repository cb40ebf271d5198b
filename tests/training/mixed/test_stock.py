"""What negatives are drawn from."""

import pandas as pd
import pytest
from scipy import sparse

from anmi.corpus.knowledge import KnowledgeGraph
from anmi.errors import AnmiError
from anmi.training.mixed import Stock

COLUMNS = {name: pd.Series(dtype="str") for name in ("variant_id", "document_id", "kind", "text")}


def test_variants_stand_behind_the_documents_and_name_what_they_are_of(world):
    stock = world.stock
    assert stock.documents == 20 and stock.ids[:20] == tuple(world.ids)
    for number, of in enumerate(stock.origin.tolist()):
        assert number == of if number < 20 else stock.ids[number].startswith(f"{stock.ids[of]}#")
    names = [[stock.ids[n] for n in line if n >= 0] for line in stock.swaps.tolist()]
    assert names[1] == ["s1#swap:1", "s1#swap:2", "s5"], "a counterpart is the document itself"
    assert [[stock.ids[n] for n in line if n >= 0] for line in stock.edits.tolist()][:3] == [
        ["s0#number:0"], [], ["s2#number:0"],
    ]  # fmt: skip


def test_a_longer_document_entails_the_shorter_one(world):
    found = world.stock.entailing.toarray()
    assert found[world.ids.index("s3")].nonzero()[0].tolist() == [world.ids.index("s3"), world.ids.index("l3")]
    assert found[world.ids.index("l3")].nonzero()[0].tolist() == [world.ids.index("l3")]


def test_variants_of_documents_that_are_not_there_are_passed_over(world):
    variants = pd.DataFrame([("x#swap:0", "x", "swap", "text")], columns=list(COLUMNS))
    made = Stock.build(world.ids, world.texts, world.graph, variants, world.stock.same)
    assert len(made.ids) == 20 and made.swaps.shape == (20, 0)


def test_without_facts_there_is_nothing_to_go_by():
    empty = {
        name: pd.Series(dtype="str") for name in ("document_id", "head", "relation", "tail", "uri", "label", "types")
    }
    nothing = pd.DataFrame(empty)
    graph = KnowledgeGraph.from_tables(nothing, nothing, nothing, ["a"])
    with pytest.raises(AnmiError, match="kg:DIR"):
        Stock.build(["a"], ["text"], graph, pd.DataFrame(COLUMNS), sparse.csr_array((1, 1), dtype=bool))
