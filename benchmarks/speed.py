"""The quick benchmarks of speed, and whether any ratio got worse: ``make bench``.

Each runs beside its peer on this machine and in the same minutes, so their ratios carry over to other machines where
seconds do not. What is committed in benchmarks/results/speed.json is the measure: a ratio that is a fifth worse is
refused, with exit status 1. Nothing committed is changed; to take new figures, run the benchmark of the row itself.

    python benchmarks/speed.py --data ../shared/data
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
RESULT: Final = ROOT / "benchmarks" / "results" / "speed.json"
FRESH: Final = ROOT / "build" / "speed.json"
# A fifth: by turns on two busy cores, the same code differed by up to a tenth.
ALLOWED: Final = 1.2
# Of these a higher figure is the better one.
RATES: Final = ("documents / processor s", "pairs / processor s")
QUICK: Final = (("peer_mining.py", "{data}/medquad", "--times", "2"),)


def row(
    case: str, ours: float, peer: float | None, goal: float | None, unit: str, note: str, benchmark: str
) -> dict[str, Any]:
    """Return a row of speed.json; ``goal`` is one of the ratio, or of ours where there is no peer."""
    ratio = None if peer is None else round(ours / peer, 3)
    return {
        "case": case, "ours": rounded(ours), "peer": rounded(peer), "ratio": ratio,
        "goal": goal, "unit": unit, "note": note, "benchmark": benchmark,
    }  # fmt: skip


def rounded(value: float | None) -> float | None:
    """Return what is written of a figure: three places below ten, two above."""
    return None if value is None else round(value, 3 if abs(value) < 10 else 2)


def write(made: list[dict[str, Any]], benchmark: str, about: dict[str, Any], result: Path = RESULT) -> None:
    """Put a benchmark's rows, and what it was run on, into a file; what other benchmarks wrote there stays."""
    before = json.loads(result.read_text(encoding="utf-8")) if result.exists() else {}
    others = [row for row in before.get("rows", []) if row.get("benchmark") != benchmark]
    here = {
        "cores": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version(),
        "date": datetime.now(UTC).date().isoformat(), "load": round(os.getloadavg()[2], 1),
    }  # fmt: skip
    found = {**before, "rows": [*others, *made], Path(benchmark).stem: about | here}
    result.parent.mkdir(parents=True, exist_ok=True)
    result.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def show(made: list[dict[str, Any]]) -> None:
    """Print rows."""
    for each in made:
        print(each["case"], each["ours"], each["peer"], each["ratio"], "goal", each["goal"], each["unit"], flush=True)


def worse(fresh: list[dict[str, Any]], committed: list[dict[str, Any]]) -> list[str]:
    """Return a sentence on each ratio that is a fifth worse than the committed one of the same case and benchmark.

    Rows without a peer are seconds of one machine, so they are not compared.
    """
    before = {(each["benchmark"], each["case"]): each["ratio"] for each in committed}
    found = []
    for each in fresh:
        was, now = before.get((each["benchmark"], each["case"])), each["ratio"]
        if was and now and (was / now if each["unit"] in RATES else now / was) > ALLOWED:
            found.append(f"{each['case']}: {now} times the peer's {each['unit']}, committed is {was}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    there = os.environ.get("ANMI_DATA") or str(ROOT.parent / "shared" / "data")
    parser.add_argument("--data", type=Path, default=Path(there), help="folder of the collections")
    data = parser.parse_args().data.resolve()
    missing = [name for name in ("medquad",) if not (data / name / "corpus.jsonl").is_file()]
    if missing:
        raise SystemExit(f"no collection {' and '.join(missing)} in {data}: name the folder by --data or ANMI_DATA")
    FRESH.unlink(missing_ok=True)
    began = time.monotonic()
    for script, *arguments in QUICK:
        command = [sys.executable, str(ROOT / "benchmarks" / script), *(each.format(data=data) for each in arguments)]
        print(f"==> {script}", flush=True)
        # As what is committed was measured; what runs whole processes leaves them their own number.
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        subprocess.run([*command, "--result", str(FRESH)], check=True, cwd=ROOT, env=environment)
    rows = json.loads(FRESH.read_text(encoding="utf-8"))["rows"]
    committed = json.loads(RESULT.read_text(encoding="utf-8"))["rows"]
    compared = {(each["benchmark"], each["case"]) for each in committed if each["ratio"]}
    count = sum((each["benchmark"], each["case"]) in compared for each in rows)
    found = worse(rows, committed)
    print(f"{count} ratios compared in {(time.monotonic() - began) / 60:.0f} minutes; {len(found)} are a fifth worse")
    raise SystemExit("\n".join(found) or 0)


if __name__ == "__main__":
    main()
