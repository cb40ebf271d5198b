"""When only what changed is mined, and what a mining leaves for the next one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from anmi.corpus.difference import Difference
from anmi.selection.plan import MiningPlan, MiningRecord, plan_mining


def version(documents: dict[str, str], queries: dict[str, str]) -> pd.DataFrame:
    rows = [("document", *each) for each in documents.items()] + [("query", *each) for each in queries.items()]
    return pd.DataFrame(rows, columns=["kind", "id", "digest"], dtype=str)


DOCUMENTS = {f"d{i}": "1" for i in range(20)}
QUERIES = {f"q{i}": "1" for i in range(10)}
BEFORE = version(DOCUMENTS, QUERIES)
FITS = {"cross_encoder": {"folds": []}, "fused_judge": {"mode": "hidden"}}
ALL_MINED = MiningRecord(BEFORE, "s", {"documents": 0, "queries": 0}, FITS)


def planned(
    now: pd.DataFrame = BEFORE,
    earlier: MiningRecord | None = ALL_MINED,
    settings: str = "s",
    most: float = 0.1,
    lacking: str = "",
    losers: Callable[[MiningRecord, Difference], Iterable[str]] = lambda record, difference: (),
) -> MiningPlan:
    found = plan_mining(now, settings, earlier, most, lambda record: lacking, losers)
    # As it is saved, and comes back for the next stage.
    again = MiningPlan.of(json.loads(json.dumps(found.as_dict())))
    assert again == found
    return again


def with_changed(names: Iterable[str], of: dict[str, str], to: str = "2") -> dict[str, str]:
    return of | dict.fromkeys(names, to)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"earlier": None}, "there is no earlier mining of which all is there"),
        ({"settings": "others"}, "settings, code or models are others"),
        ({"lacking": "the cross-encoders are gone"}, "the cross-encoders are gone"),
        (
            {"now": version(with_changed(["d1", "d2", "d3"], DOCUMENTS), QUERIES)},
            "15% of the documents changed since all was mined",
        ),
        (
            {"now": version(DOCUMENTS, with_changed(["q1", "q2"], QUERIES))},
            "20% of the queries changed since all was mined",
        ),
        (
            {"now": version(DOCUMENTS, dict(list(QUERIES.items())[2:]))},
            "25% of the queries changed since all was mined",
        ),
    ],
    ids=["nothing", "settings", "lacking", "documents", "queries", "removed queries"],
)
def test_all_is_mined_for_a_reason_that_is_told(arguments: dict[str, Any], why: str) -> None:
    found = planned(**arguments)
    assert found == MiningPlan(why=why, settings=arguments.get("settings", "s"))
    assert found.mines_all and not found.fits and not found.removed
    assert found.since_all == {"documents": 0, "queries": 0}, "what changed is counted from now on"


def test_up_to_the_share_only_what_changed_is_mined() -> None:
    documents = with_changed(["d1"], DOCUMENTS) | {"new": "1"}
    found = planned(version(documents, with_changed(["q3"], QUERIES)))
    assert (found.mines_all, found.queries, found.documents_changed) == (False, ("q3",), ("d1",))
    assert found.fits == FITS, "all rows are chosen by the same bars"
    assert found.counts == {
        "documents": {"added": 1, "changed": 1, "removed": 0},
        "queries": {"added": 0, "changed": 1, "removed": 0},
    }
    assert found.since_all == {"documents": 2, "queries": 1}
    assert found.why == "1 of 10 queries are new, changed or lost a document"


@pytest.mark.parametrize(("kind", "changed", "most"), [("queries", ["q7"], 0.25), ("documents", ["d3", "d4"], 0.2)])
def test_changes_add_up_over_updates_until_all_is_mined_again(kind: str, changed: list[str], most: float) -> None:
    earlier, parts = ALL_MINED, {"documents": DOCUMENTS, "queries": QUERIES}
    for number, mined in enumerate([False, False, True, False]):
        # The same each time: what was mined under the old labels, or beside the old texts, of others counts as well.
        parts = parts | {kind: with_changed(changed, parts[kind], to=f"at {number}")}
        now = version(**parts)
        found = planned(now, earlier, most=most)
        assert found.mines_all == mined, number
        other = "documents" if kind == "queries" else "queries"
        assert found.since_all == {kind: len(changed) * [1, 2, 0, 1][number], other: 0}
        earlier = MiningRecord(now, found.settings, found.since_all, FITS)


def test_new_changed_and_losing_queries_are_mined_and_removed_ones_named() -> None:
    seen: list[Difference] = []

    def losers(record: MiningRecord, difference: Difference) -> Iterable[str]:
        assert record is ALL_MINED
        seen.append(difference)
        # Also one that is gone itself.
        yield from ("q5", "q4", "q2", "q5")

    documents, queries = dict(DOCUMENTS), with_changed(["q3", "q5"], QUERIES) | {"new": "1"}
    del documents["d9"], queries["q4"]
    now = version(documents, queries)
    found = planned(now, most=1.0, losers=losers)
    assert found.queries == ("q2", "q3", "q5", "new"), "in the order of the collection, each once"
    assert found.removed == ("q4",)
    assert found.why == "4 of 10 queries are new, changed or lost a document"
    assert seen == [Difference.between(BEFORE, now)]


def test_where_nothing_changed_one_query_is_mined_all_the_same() -> None:
    found = planned()
    assert (found.queries, found.removed) == (("q0",), ())
    assert found.since_all == {"documents": 0, "queries": 0}


def test_a_query_that_is_mined_for_want_of_any_other_is_not_said_to_be_new() -> None:
    assert not planned().why.startswith("1 of 10 queries are new, changed or lost")


def test_losers_are_not_looked_for_where_all_is_mined() -> None:
    def losers(record: MiningRecord, difference: Difference) -> Iterable[str]:
        raise AssertionError("this reads the whole selection")

    assert planned(settings="others", losers=losers).mines_all


def test_a_collection_without_queries_is_mined_all() -> None:
    found = planned(version(DOCUMENTS, {}), MiningRecord(version(DOCUMENTS, {}), "s", ALL_MINED.since_all, FITS))
    assert found.mines_all and found.why == "there is no query to mine"


def test_a_record_comes_back_from_its_folder_as_it_was_saved(tmp_path: Path) -> None:
    since = {"documents": 3, "queries": 1}
    record = MiningRecord(BEFORE, "s", since, FITS | {"recipe_fits": {"steps": [{"place": 1, "fitted": 0.25}]}})
    record.save(tmp_path)
    again = MiningRecord.load(tmp_path)
    pd.testing.assert_frame_equal(again.contents, record.contents)
    assert (again.settings, again.since_all, again.fits) == (record.settings, since, record.fits)
    assert again.documents == list(DOCUMENTS)
    assert planned(earlier=again, most=1.0).since_all == since


def test_nothing_that_is_no_number_is_kept_for_the_next_mining(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        MiningRecord(BEFORE, "s", ALL_MINED.since_all, {"cross_encoder": {"weight": float("nan")}}).save(tmp_path)
