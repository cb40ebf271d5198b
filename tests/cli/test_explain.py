"""`kedro anmi explain`, on the project's own catalog with a data root of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pandas as pd
import pytest
from click.testing import Result
from tests.cli.conftest import anmi, at_home, save, selection

from anmi.candidates import CandidateShards
from anmi.judging.cross_encoder import fold_of
from anmi.report.explanation import fold_of_query


@pytest.fixture(scope="module", autouse=True)
def saved(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        at_home(patch, tmp_path_factory.mktemp("explain"))
        documents = [
            (f"d{i}", f"title {i}", f"text [of] document {i}") for i in (*range(8), "2-label")
        ]
        gone = 'its labels went to the query of the same text "q-alpha"'
        columns = ["kind", "id", "file", "line", "reason"]
        save(
            selection=CandidateShards.of([selection()]),
            selection_summary={"negatives_wanted": 1},
            corpus=pd.DataFrame(documents, columns=["document_id", "title", "text"]),
            queries=pd.DataFrame(
                {"query_id": ["q-alpha"], "text": ["what is [alpha]?"], "same_as": ["d4"]}
            ),
            qrels=pd.DataFrame(
                {"query_id": "q-alpha", "document_id": ["d0", "d5", "d2-label"], "relevance": 1}
            ),
            quarantine=pd.DataFrame(
                [["query", "q-alfa", "queries.jsonl", 7, gone]], columns=columns
            ),
            related_documents=pd.DataFrame(
                {"document_id": ["d6"], "other_id": ["d0"], "kind": ["copy"]}
            ),
        )
        yield


def explained(*arguments: str) -> Result:
    return anmi("explain", *arguments)


def row_of(output: str, document: str) -> list[str]:
    """Cells of a document in the first table."""
    line = next(line for line in output.splitlines() if f" {document} " in line)
    return [cell.strip() for cell in line.split("│")[1:-1]]


def test_each_candidate_is_told_its_fate() -> None:
    output = explained("q-alpha").stdout
    assert "q-alpha: what is [alpha]?" in output
    assert "positive_rank: 1" in output
    assert row_of(output, "d0") == ["+", "d0", "10", "positive", "compared with", ""]
    rule = "max_ratio: bm25 ≥ 0.9 of the positive's (bm25 ≥ 9)"
    assert row_of(output, "d1") == ["1", "d1", "9.5", "unsafe", rule, "1"]
    assert row_of(output, "d2") == ["2", "d2", "8", "not drawn", "1 taken before it", "1"]
    assert row_of(output, "d3") == ["3", "d3", "0.125", "negative", "choice 1 of 1", "1"]
    assert output.index(" d0 ") < output.index(" d1 ")
    assert row_of(output, "d5") == ["+", "d5", "4", "positive", "", ""]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        (
            "q-alpa",
            'the selection has no query "q-alpa": did you mean "q-alpha"? Known: q-alpha, q-beta',
        ),
        ("q-alfa", 'its labels went to the query of the same text "q-alpha"'),
    ],
)
def test_of_a_query_that_is_not_there_the_reason_or_the_nearest_is_told(
    query: str, said: str
) -> None:
    done = explained(query)
    assert done.exit_code == 1 and said in done.stderr


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ("d2-label", "it is a positive of the query, which was not measured: dense.positives"),
        ("d6", "it has the text of the positive d0"),
        ("d4", "it is the query itself, or has its text, and so is no negative"),
    ],
)
def test_a_document_that_is_no_candidate_gets_a_reason(document: str, reason: str) -> None:
    done = explained("q-alpha", "--doc", document)
    assert done.exit_code == 0
    assert f"{document} is not a candidate: {reason}" in done.stdout


def test_a_query_is_named_by_its_text_as_well() -> None:
    assert explained("What is  [alpha]").stdout == explained("q-alpha").stdout


def test_json_holds_every_candidate_whatever_is_shown() -> None:
    found = json.loads(explained("q-alpha", "--json", "--top", "0").stdout)
    assert (
        found["query"] == "what is [alpha]?"
        and found["run"] in explained("q-alpha").stdout.splitlines()[0]
    )
    assert [positive["document_id"] for positive in found["positives"]] == ["d0", "d5"]
    assert [c["document_id"] for c in found["candidates"]] == ["d1", "d2", "d3"]
    one = found["candidates"][0]
    assert (one["verdict"], one["step"], one["here"], one["scores"]["bm25"]) == (
        "unsafe",
        "max_ratio",
        "bm25 ≥ 9",
        9.5,
    )
    only = json.loads(explained("q-alpha", "--json", "--doc", "d2").stdout)
    assert [candidate["document_id"] for candidate in only["candidates"]] == ["d2"]
    assert only["not_a_candidate"] is None


def test_evidence_is_told_by_the_coefficients_that_did_not_see_the_query() -> None:
    assert fold_of_query({"models": [{}]}, "what?", 3) == fold_of_query({}, "what?", 3) == 0
    assert [fold_of_query({"models": [{}] * 4}, text, 3) for text in "abcdef"] == fold_of(
        list("abcdef"), 4, 3
    ).tolist()
