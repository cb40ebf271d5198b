"""Score distributions: by hand, and from stored shards."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from anmi.candidates import CandidateShards
from anmi.evaluation.diagnostics import SCORE_COLUMNS, Distributions, diagnose, ranges


def distributions(shards, columns=SCORE_COLUMNS):
    return diagnose(shards, Distributions(ranges(shards, columns)))[0]


def stored(folder: Path, *blocks) -> CandidateShards:
    for number, each in enumerate(blocks):
        (folder / f"part-{number}.parquet").write_bytes(each.to_bytes())
    return CandidateShards.read(sorted(folder.iterdir()))


def test_distributions_count_every_candidate_once(block):
    blocks = [block(1), block(2)]
    found = distributions(CandidateShards.of(blocks), columns=("dense", "elo", "cross"))
    assert set(found) == {"dense", "elo"}
    dense = found["dense"]
    filled = sum(int(b.filled.sum()) for b in blocks)
    assert sum(dense["kept"]) + sum(sum(counts) for counts in dense["rejected"].values()) == filled
    assert sum(dense["positives"]) == 12
    assert set(dense["rejected"]) == {"denoise", "consistency", "max_ratio"}
    lowest = dense["edges"][np.nonzero(dense["rejected"]["denoise"])[0][0] + 1]
    assert lowest >= 0.8
    assert json.loads(json.dumps(found)) == found


def test_nothing_has_no_distribution() -> None:
    assert distributions([]) == {}


def test_stored_shards_have_the_same_distributions_as_those_in_memory(block, tmp_path: Path) -> None:
    blocks = [block(1), block(2, width=5)]
    blocks[0].columns["dense"][1, 2] = np.nan
    columns = ("dense", "elo", "cross")
    found = stored(tmp_path, *blocks)
    assert ranges(found, columns) == ranges(blocks, columns)
    assert distributions(found, columns) == distributions(blocks, columns)


def test_an_infinity_in_a_file_is_no_end_of_a_range(block, tmp_path: Path) -> None:
    blocks = [block(1), block(2)]
    blocks[1].columns["dense"][0, 0] = -np.inf
    found = stored(tmp_path, *blocks)
    assert ranges(found, ("dense", "elo")) == ranges(blocks, ("dense", "elo"))
    assert ranges(found, ("dense",))["dense"][0] >= 0


def test_a_measurement_of_one_value_has_a_range_and_one_of_none_has_not(block, tmp_path: Path) -> None:
    one = block(1)
    one.columns["dense"][:] = 0.0
    one.positive_columns["dense"][:] = 0.0
    one.columns["elo"][:] = np.nan
    one.positive_columns["elo"][:] = np.nan
    found = ranges(stored(tmp_path, one), ("dense", "elo"))
    assert found == {"dense": (0.0, 1.0)}
    assert json.dumps(found["dense"][0]) == "0.0"


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
