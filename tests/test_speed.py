"""benchmarks/speed.py: a ratio that became a fifth worse is named, whichever way is the better one."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
spec = importlib.util.spec_from_file_location("benchmark_speed", ROOT / "benchmarks" / "speed.py")
assert spec is not None
assert spec.loader is not None
speed = importlib.util.module_from_spec(spec)
spec.loader.exec_module(speed)


def rows(ours: float, peer: float | None, unit: str = "s", benchmark: str = "a.py") -> list[dict[str, object]]:
    return [speed.row("mining", ours, peer, 1.0, unit, "", benchmark)]


@pytest.mark.parametrize(("unit", "within", "beyond"), [("s", 11.9, 12.1), ("pairs / processor s", 8.4, 8.3)])
def test_what_became_a_fifth_worse_is_named(unit: str, within: float, beyond: float) -> None:
    committed = rows(10, 20, unit)
    assert speed.worse(rows(within, 20, unit), committed) == []
    (said,) = speed.worse(rows(beyond, 20, unit), committed)
    assert said.startswith("mining: ")
    assert said.endswith("committed is 0.5")


def test_what_has_no_peer_or_was_not_committed_is_no_regression() -> None:
    assert speed.worse(rows(99, None), rows(1, None)) == []
    assert speed.worse(rows(99, 1, benchmark="b.py"), rows(1, 1)) == []


def test_rows_of_other_benchmarks_stay(tmp_path: Path) -> None:
    file = tmp_path / "build" / "speed.json"
    speed.write(rows(1, 2), "a.py", {}, file)
    speed.write(rows(3, 2, benchmark="b.py"), "b.py", {}, file)
    speed.write(rows(4, 2), "a.py", {"times": 2}, file)
    found = json.loads(file.read_text(encoding="utf-8"))
    assert [(row["benchmark"], row["ratio"]) for row in found["rows"]] == [("b.py", 1.5), ("a.py", 2.0)]
    assert found["a"]["times"] == 2


def test_every_committed_row_names_a_benchmark_that_is_there() -> None:
    found = json.loads(speed.RESULT.read_text(encoding="utf-8"))["rows"]
    assert {key for row in found for key in row} == rows(1, 2)[0].keys()
    assert all((ROOT / "benchmarks" / row["benchmark"]).is_file() for row in found)
