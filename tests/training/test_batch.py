import operator
from dataclasses import replace

import pandas as pd
import pytest
import torch
from tests.mined import mined, row

from anmi.errors import AnmiError
from anmi.retrieval.sparse.model import inference_free
from anmi.retrieval.tokens import Tokeniser
from anmi.training.batch import assemble, read_rows


def weights_of(rows, in_batch):
    """{row number: {document text: weight}} without zeros, for reading."""
    assembly = assemble(rows, in_batch)
    return [
        {assembly.texts[j]: float(w) for j, w in enumerate(line) if w > 0}
        for line in assembly.weights
    ], assembly


def test_in_batch_columns_by_mode():
    rows = [row("q1", "a", ["x"], weights=(0.5,)), row("q2", "b", ["y"])]
    assert weights_of(rows, "none")[0] == [{"x": 0.5}, {"y": 1.0}]
    assert weights_of(rows, "positives")[0] == [{"b": 1.0, "x": 0.5}, {"a": 1.0, "y": 1.0}]
    assert weights_of(rows, "all")[0] == [
        {"b": 1.0, "x": 0.5, "y": 1.0},
        {"a": 1.0, "x": 1.0, "y": 1.0},
    ]


@pytest.mark.parametrize("mode", ["none", "positives", "all"])
def test_no_known_positive_is_ever_a_negative(mode):
    # b is another known positive of q1, mined by mistake; q3 shares its positive with q1.
    rows = [row("q1", "a", ["b", "x"], also=["B"]), row("q2", "b", ["a"]), row("q3", "a", ["y"])]
    weights, assembly = weights_of(rows, mode)
    assert weights[0].keys() <= {"x", "y"}
    assert "a" not in weights[2]
    assert assembly.texts.count("a") == 1


def test_positives_of_the_same_query_in_other_rows_are_masked_though_not_listed():
    rows = [row("q", "a", query_id="1"), row("q", "b", query_id="1"), row("r", "c")]
    assert weights_of(rows, "all")[0][:2] == [{"c": 1.0}, {"c": 1.0}]


def test_a_copy_of_the_positive_under_another_id_is_not_a_negative():
    copy, other = row("q2", "a", positive_id="COPY"), row("q3", "c", ["a"], negative_ids=("COPY2",))
    weights, assembly = weights_of([row("q1", "a"), copy, other], "all")
    assert weights[0] == {"c": 1.0}
    assert weights[1] == {"c": 1.0}
    assert weights[2] == {"a": 1.0}
    assert assembly.texts == ["a", "c"]


def test_a_rejected_negative_does_not_return_through_another_row():
    rows = [row("q1", "a", ["x"], weights=(0.0,)), row("q2", "b", ["x"])]
    weights, _ = weights_of(rows, "all")
    assert "x" not in weights[0]
    assert weights[1] == {"a": 1.0, "x": 1.0}


@pytest.mark.parametrize("mode", ["positives", "all"])
def test_what_mining_found_unsafe_for_a_query_is_no_negative_of_it_in_a_batch(mode):
    unsafe = replace(row("q1", "a", ["x"]), excluded_ids=frozenset({"B", "Y", "Z"}))
    # The same query with another positive, against which "y" was found safe.
    other = row("q1", "c", ["y"], query_id="q1")
    weights = weights_of([unsafe, row("q2", "b", ["z"]), other], mode)[0]
    assert weights[0].keys() == {"x"}
    assert "y" in weights[2], "what excludes a document is the row, not the query"
    assert weights[1].keys() >= {"a", "c"}


def table(**changes) -> pd.DataFrame:
    values = mined(["what"], ["that", "this", "these"], 2, "q7").iloc[0].to_dict()
    return pd.DataFrame([values | changes])


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (table(weights=[1.0]), ["q7", "2 negative ids", "1 weights"]),
        (table(weights=[1.0, float("nan")]), ["q7", "nan"]),
        (table(weights=[1.0, -1.0]), ["q7", "-1.0"]),
        (table(query_weight=float("inf")), ["q7", "inf"]),
        (table().drop(columns=["weights", "positive"]), ["positive, weights"]),
        (table().iloc[:0], ["no training rows"]),
    ],
)
def test_broken_rows_are_refused_by_name(broken, words):
    with pytest.raises(AnmiError) as error:
        read_rows(broken)
    for word in words:
        assert word in str(error.value)


TEXTS = ["a b", "c", "", "b b a", "a b"]


@pytest.mark.parametrize("sparse", [False, True])
def test_remembered_tokens_are_those_of_the_encoder(word_encoder, sparse):
    model = word_encoder(["a", "b", "c"])
    model = inference_free(model, ["a b", "c b"]) if sparse else model
    tokenise = Tokeniser(model).features
    for role in ("document", "query", "document"):
        for texts in (TEXTS[:2], TEXTS, TEXTS[::-1]):
            expected = model.preprocess(texts, **({"task": role} if sparse else {}))
            got = tokenise(texts, role)
            # Of networks alone, which read several kinds of input.
            expected.pop("modality", None)
            assert got.keys() - {"modality"} == expected.keys()
            for name, value in expected.items():
                is_same = torch.equal if torch.is_tensor(value) else operator.eq
                assert is_same(got[name], value)
