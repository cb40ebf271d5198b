"""Which results are older than the code that they measure: the table of benchmarks/results/README.md.

`common.save` notes the commit of a result, the oldest where rows of before are still in it. The table
counts the commits since that changed what the result measures; they only become more, so it says "at
least". Where it says that there are none, tests/test_benchmarks.py allows LIMIT of them before it asks
for a new table. ``make stale`` writes it.
"""

from __future__ import annotations

from datetime import datetime
from functools import cache
from typing import Any, Final

from common import RESULTS, fill, git, load, markdown

PAGE: Final = RESULTS / "README.md"
# A tenth of a day's commits here: a fix or a new name, and not yet another way of working.
LIMIT: Final = 25
MINING: Final = ("corpus", "retrieval", "judging", "selection")
TRAINING: Final = (*MINING, "adaptation", "training")
SEARCH: Final = (*TRAINING, "evaluation", "search")
SPEED: Final = (*MINING, "candidates", "engine", "store", "datasets", "hooks", "pipelines")
# Of each result: the script that makes it, and the rooms of src/anmi that it measures.
MEASURES: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "ablation": ("ablation.py", TRAINING),
    "board": ("board", MINING),
    "calibration": ("calibration.py", MINING),
    "claims": ("claims", TRAINING),
    "dnh": ("dnh.py", ("corpus", "selection", "training")),
    "doors": ("doors.py", (*MINING, "api")),
    "few_labels": ("few_labels.py", SEARCH),
    "forgetting": ("forgetting.py", ("training",)),
    "gpu": ("gpu.py", ("retrieval", "training")),
    "in_batch": ("in_batch.py", TRAINING),
    "interval_coverage": ("interval_coverage.py", MINING),
    "kills": ("kills.py", ("cli", "datasets", "hooks", "pipelines", "store", "training")),
    "llm_judge": ("llm_judge.py", TRAINING),
    "machines": ("machines.py", SPEED),
    "mining_quality": ("mining_quality.py", MINING),
    "native": ("native.py", SEARCH),
    "network_evidence": ("network_evidence.py", ("judging", "retrieval")),
    "networks": ("networks.py", SEARCH),
    "parts": ("parts.py", SEARCH),
    "passages": ("passages.py", SEARCH),
    "query_only": ("query_only.py", ("retrieval", "training")),
    "scale": ("scale.py", SPEED),
    "shapes": ("shapes.py", SPEED),
    "sparse": ("sparse.py", ("retrieval", "training")),
    "speed": ("peer_mining.py", SPEED),
    "step": ("step.py", ("retrieval", "training")),
    "tutorial_walk": ("tutorial_walk.py", (*SEARCH, "cli", "pipelines", "report")),
}


@cache
def history() -> list[tuple[float, str]]:
    """Return when each commit was written, and its name, by time."""
    lines = git("log", "--format=%at %H").splitlines()
    return sorted((float(time), commit) for time, commit in map(str.split, lines))


def changes(committed: str, rooms: tuple[str, ...]) -> int | None:
    """Count the commits that changed rooms since a date; None where the history does not reach it.

    The commit that was noted may have been rebased, which keeps its date.
    """
    until = datetime.fromisoformat(committed).timestamp()
    before = [commit for time, commit in history() if time <= until]
    if not before:
        return None
    places = [f"src/anmi/{room}" for room in rooms]
    return int(git("rev-list", "--count", f"{before[-1]}..HEAD", "--", *places))


def row(name: str, document: dict[str, Any], count: int | None) -> list[str]:
    """Return the row of a result."""
    made_by, rooms = MEASURES[name]
    places = [f"[{name}]({name}.json)", f"[{made_by}](../{made_by})", ", ".join(rooms)]
    since = f"at least {count:,}" if count else "none"
    return [*places, f"`{document['commit']}`", document["committed"][:10], since]


def main() -> None:
    lines = []
    for name, (_, rooms) in MEASURES.items():
        document = load(name)
        count = changes(document["committed"], rooms)
        lines.append(row(name, document, count))
    head = ["result", "made by", "measures", "at commit", "of", "changes since"]
    fill(PAGE, "stale.py", markdown(head, lines))


if __name__ == "__main__":
    main()
