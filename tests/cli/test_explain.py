"""`kedro anmi explain`, on the project's own catalog with a data root of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from click.testing import Result
from tests.cli.conftest import anmi, at_home, save

from anmi.candidates import NEGATIVE, Candidates, CandidateShards
from anmi.judging.cross_encoder import fold_of
from anmi.report.explanation import fold_of_query


def selection() -> Candidates:
    """A query of two positives, and one that was dropped."""
    block = Candidates(
        query_ids=np.array(["q-alpha", "q-beta"]),
        positives=np.array([[0, 5], [1, -1]], np.int32),
        documents=np.array([[1, 2, 3], [2, 0, -1]], np.int32),
        source=np.array([[3, 1, 2], [8, 1, 0]], np.uint8),
        columns={"bm25": np.array([[9.5, 8, 0.125], [1, 2, np.nan]], np.float32)},
        positive_columns={"bm25": np.array([[10, 4], [3, np.nan]], np.float32)},
        query_columns={"positive_rank": np.array([1, 40], np.float32)},
    )
    first = np.array([[True, False, False], [False] * 3])
    block = block.rejected("max_ratio", first, "bm25 ≥ 0.9 of the positive's", "unsafe")
    taken = np.array([[False, False, True], [False] * 3])
    block = block.with_columns({"choice": np.where(taken, 1, np.nan)})
    block = replace(block, verdict=np.where(taken, np.int16(NEGATIVE), block.verdict))
    return block.dropped("consistency", np.array([False, True]), "BM25 does not find a positive near the top")


@pytest.fixture(scope="module", autouse=True)
def saved(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        at_home(patch, tmp_path_factory.mktemp("explain"))
        documents = [(f"d{i}", f"title {i}", f"text [of] document {i}") for i in (*range(8), "2-label")]
        gone = 'its labels went to the query of the same text "q-alpha"'
        columns = ["kind", "id", "file", "line", "reason"]
        save(
            selection=CandidateShards.of([selection()]), selection_summary={"negatives_wanted": 1},
            corpus=pd.DataFrame(documents, columns=["document_id", "title", "text"]),
            queries=pd.DataFrame({"query_id": ["q-alpha"], "text": ["what is [alpha]?"], "same_as": ["d4"]}),
            qrels=pd.DataFrame({"query_id": "q-alpha", "document_id": ["d0", "d5", "d2-label"], "relevance": 1}),
            quarantine=pd.DataFrame([["query", "q-alfa", "queries.jsonl", 7, gone]], columns=columns),
            related_documents=pd.DataFrame({"document_id": ["d6"], "other_id": ["d0"], "kind": ["copy"]}),
        )  # fmt: skip
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


def test_top_never_hides_a_negative() -> None:
    output = explained("q-alpha", "--top", "1").stdout
    assert " d1 " in output
    assert " d2 " not in output
    assert " d3 " in output
    assert "2 of 3 candidates" in output


def test_an_unknown_query_gets_the_nearest() -> None:
    done = explained("q-alpa")
    assert done.exit_code == 1
    assert done.stderr == 'Error: the selection has no query "q-alpa": the nearest are q-alpha, q-beta\n'


def test_a_query_that_was_merged_with_another_says_with_which() -> None:
    done = explained("q-alfa")
    assert done.exit_code == 1
    assert 'its labels went to the query of the same text "q-alpha"' in done.stderr


def test_one_document_is_shown_beside_the_positive() -> None:
    output = explained("q-alpha", "--doc", "d1").stdout
    assert output.count("bm25 ≥ 0.9 of the positive's") == 1
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in output.splitlines() if "│ bm25  " in line[:9]]
    assert rows == [["bm25", "9.5", "10"]]
    assert " d3 " not in output


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ("d5", "it is a positive of the query"),
        ("d2-label", "it is a positive of the query, which was not measured: dense.positives"),
        ("d6", "it has the text of the positive d0"),
        ("d4", "it is the query itself, or has its text, and so is no negative"),
        ("d7", "no source retrieved it for this query (candidates: 2 from bm25, 2 from dense)"),
    ],
)
def test_a_document_that_is_no_candidate_gets_a_reason(document: str, reason: str) -> None:
    done = explained("q-alpha", "--doc", document)
    assert done.exit_code == 0
    assert f"{document} is not a candidate: {reason}" in done.stdout


def test_json_holds_every_candidate_whatever_is_shown() -> None:
    found = json.loads(explained("q-alpha", "--json", "--top", "0").stdout)
    assert found["query"] == "what is [alpha]?" and found["run"] in explained("q-alpha").stdout.splitlines()[0]
    assert [positive["document_id"] for positive in found["positives"]] == ["d0", "d5"]
    assert [c["document_id"] for c in found["candidates"]] == ["d1", "d2", "d3"]
    one = found["candidates"][0]
    assert (one["verdict"], one["step"], one["here"], one["scores"]["bm25"]) == ("unsafe", "max_ratio", "bm25 ≥ 9", 9.5)
    only = json.loads(explained("q-alpha", "--json", "--doc", "d2").stdout)
    assert [candidate["document_id"] for candidate in only["candidates"]] == ["d2"]
    assert only["not_a_candidate"] is None


def test_evidence_is_told_by_the_coefficients_that_did_not_see_the_query() -> None:
    assert fold_of_query({"models": [{}]}, "what?", 3) == fold_of_query({}, "what?", 3) == 0
    assert [fold_of_query({"models": [{}] * 4}, text, 3) for text in "abcdef"] == fold_of(list("abcdef"), 4, 3).tolist()
