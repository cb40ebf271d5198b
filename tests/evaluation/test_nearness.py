"""How near documents are, and how what is measured is distributed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anmi.candidates import NEGATIVE, Candidates
from anmi.evaluation.diagnostics import SCORE_COLUMNS, Distributions, RelevanceByNearness, diagnose, fate_of, ranges


def distributions(shards, columns=SCORE_COLUMNS):
    return diagnose(shards, Distributions(ranges(shards, columns)))[0]


def by_hand(part, name: str, low: float, high: float) -> dict[str, list[int]]:
    """Count one candidate after the other."""
    edges = np.linspace(low, high, 41)
    counts: dict[str, list[int]] = {}
    for row in range(len(part)):
        for slot in np.flatnonzero(part.filled[row]):
            code = part.verdict[row, slot]
            code = int(code or part.query_verdict[row])
            bin_ = min(int(np.searchsorted(edges, part.columns[name][row, slot], side="right")) - 1, 39)
            for group in ["kept"] * (code < 2) + ["negatives"] * (code == 1) + [part.legend[code]] * (code > 1):
                counts.setdefault(group, [0] * 40)[bin_] += 1
    return counts


def test_each_candidate_is_counted_under_its_verdict(block) -> None:
    part = block(5, queries=9, width=12)
    found = distributions([part], ("dense",))["dense"]
    expected = by_hand(part, "dense", found["edges"][0], found["edges"][-1])
    assert {"kept": found["kept"], "negatives": found["negatives"], **found["rejected"]} == expected


IDS = [f"d{number}" for number in range(201)]


def judged(block: Candidates, seed: int = 0) -> Candidates:
    chance = np.random.default_rng(seed).random(block.documents.shape).astype(np.float32)
    chance[:, 1] = np.nan
    return block.with_columns({"p_relevant": chance})


def relevant(blocks: list[Candidates]) -> pd.DataFrame:
    """Every third candidate of every second query, and a document that the corpus has not."""
    pairs = [
        (query, IDS[document])
        for block in blocks
        for query, row in list(zip(block.query_ids.tolist(), block.documents.tolist(), strict=True))[::2]
        for document in row[::3]
        if document >= 0
    ]
    return pd.DataFrame([*pairs, ("q1_0", "gone")], columns=["query_id", "document_id"])


def test_it_is_what_counting_each_candidate_gives(block: Callable[..., Candidates]) -> None:
    blocks = [judged(block(1)), judged(block(2, queries=3, width=5), 1)]
    equivalents = relevant(blocks)
    (found,) = diagnose(blocks, RelevanceByNearness(equivalents, IDS))
    truth, known = set(map(tuple, equivalents.to_numpy().tolist())), set(equivalents.query_id)
    counted: dict[str, dict[int, list[tuple[float, bool, bool]]]] = {
        "chosen": defaultdict(list),
        "rejected": defaultdict(list),
    }
    for each in blocks:
        fate = fate_of(each)
        for row, slot in zip(*np.nonzero(fate >= NEGATIVE), strict=True):
            near = each.columns["dense"][row, slot] - each.positive_columns["dense"][row, 0]
            (place,) = [
                number
                for number, (low, high) in enumerate(zip(found["edges"], found["edges"][1:], strict=False))
                if low <= near < high
            ]
            query = str(each.query_ids[row])
            told = (
                float(each.columns["p_relevant"][row, slot]),
                query in known,
                (query, IDS[each.documents[row, slot]]) in truth,
            )
            counted["chosen" if fate[row, slot] == NEGATIVE else "rejected"][place].append(told)
    assert len(found["edges"]) == 41 and (found["edges"][0], found["edges"][-1]) == (-1.0, 1.0)
    for name, bins in counted.items():
        assert sum(found[name]["candidates"]) == sum(map(len, bins.values())) > 0
        for place, rows in bins.items():
            chances = [chance for chance, _, _ in rows if np.isfinite(chance)]
            assert found[name]["candidates"][place] == len(rows)
            assert found[name]["judged"][place] == len(chances)
            assert found[name]["known"][place] == sum(one for _, one, _ in rows)
            assert found[name]["relevant"][place] == sum(one for _, _, one in rows)
            if chances:
                assert found[name]["expected"][place] == pytest.approx(np.mean(chances), abs=1e-6)
            else:
                assert found[name]["expected"][place] is None
    assert sum(found["chosen"]["relevant"]) + sum(found["rejected"]["relevant"]) > 0


@given(cut=st.integers(1, 5), turned=st.booleans())
def test_no_shards_and_no_order_change_a_bit(block: Callable[..., Candidates], cut: int, turned: bool) -> None:
    whole = judged(block(3))
    parts = [whole.take(slice(0, cut)), whole.take(slice(cut, 6))]
    equivalents = relevant([whole])
    one, other = (
        diagnose(each, RelevanceByNearness(equivalents, IDS)) for each in ([whole], parts[:: -1 if turned else 1])
    )
    assert one == other


def test_nothing_is_told_where_nothing_is_compared(block: Callable[..., Candidates]) -> None:
    none = pd.DataFrame({"query_id": [], "document_id": []})
    assert diagnose([block(1)], RelevanceByNearness(none, IDS)) == [None], "nothing was judged, and nothing is known"
    assert diagnose([judged(block(1)).only(("p_relevant",))], RelevanceByNearness(none, IDS)) == [None]
    assert diagnose([], RelevanceByNearness(none, IDS)) == [None]
