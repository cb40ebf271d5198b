"""How fast judgments are fused into Elo and how fast the store is, beside a plain loop.

Every case runs three times, each time in a process of its own, so that its peak memory is its own; the median is
kept. Rows that are not measured stay as they are. Run from the repository's root:

    python benchmarks/judging.py --only elo_1000x51_k8 store_lookup_100k_of_10m_warm
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks" / "results" / "judging.json"
REPEATS = 3
DOCUMENTS = 51
STORED = 10_000_000
CHUNK = 500_000
LOOKED_UP = 100_000
FINGERPRINT = "benchmark"
# Query and document together: about the length of an abstract's first sentences.
FILLER = "a query of some words\x1fa passage of the length that judges are usually given " * 4


def timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def peak_mb() -> float:
    """Return the peak of this process's resident memory.

    Not ``ru_maxrss``, which keeps what the parent had in memory when it started this process.
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024


def elo(queries: int, degree: int = 8) -> float:
    """Choose the comparisons of 51 documents per query, turn scores into preferences and fit."""
    from anmi.judging import elo, preferences

    scores = np.random.default_rng(0).normal(size=(queries, DOCUMENTS))
    ids, sizes = [f"q{i}" for i in range(queries)], np.full(queries, DOCUMENTS)

    def rate() -> None:
        first, second, valid = preferences.comparisons(ids, sizes, degree, seed=1)
        votes = preferences.preference(scores, first, second, temperature=1.0)
        fitted = elo.fit(first, second, np.where(valid, votes, np.nan), sizes)
        found["elo"] = fitted.elo

    found: dict[str, NDArray[np.float64]] = {}
    seconds = timed(rate)
    agreement = np.mean([np.corrcoef(a, b)[0, 1] for a, b in zip(found["elo"], scores, strict=True)])
    assert agreement > 0.99, agreement
    return seconds


def paraphrase(cdf: Callable[[float], float], pdf: Callable[[float], float], queries: int = 3) -> float:
    """Return the seconds per query of the form that notebooks give: one edge after the other, 50 steps, k = 4."""
    from anmi.judging import preferences

    scores = np.random.default_rng(0).normal(size=(queries, DOCUMENTS))
    ids, sizes = [f"q{i}" for i in range(queries)], np.full(queries, DOCUMENTS)
    first, second, valid = preferences.comparisons(ids, sizes, 4, seed=1)
    votes = preferences.preference(scores, first, second, temperature=1.0)

    def rate() -> None:
        for row in range(queries):
            used = np.flatnonzero(valid[row])
            edges = [(int(first[row, e]), int(second[row, e]), float(votes[row, e])) for e in used]
            strengths = [0.0] * DOCUMENTS
            for iteration in range(50):
                gradient = [0.0] * DOCUMENTS
                for i, j, vote in edges:
                    z = (strengths[i] - strengths[j]) / math.sqrt(2)
                    p = min(max(cdf(z), 1e-9), 1 - 1e-9)
                    slope = (vote - p) / (p * (1 - p)) * pdf(z) / math.sqrt(2)
                    gradient[i] += slope
                    gradient[j] -= slope
                step = 1 / (1 + 0.1 * iteration)
                strengths = [s + step * g for s, g in zip(strengths, gradient, strict=True)]
                mean = sum(strengths) / DOCUMENTS
                strengths = [s - mean for s in strengths]

    return timed(rate) / queries


def paraphrase_scipy() -> float:
    from scipy.stats import norm

    return paraphrase(norm.cdf, norm.pdf)


def paraphrase_math() -> float:
    return paraphrase(
        lambda z: 0.5 * (1 + math.erf(z / math.sqrt(2))), lambda z: math.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
    )


def judged_texts(numbers: NDArray[np.int64]) -> list[str]:
    return [f"{number:08d} {FILLER}" for number in numbers.tolist()]


def judge(texts: list[str]) -> NDArray[np.float32]:
    """Judge at no cost; the number of a text is exact in float32."""
    return np.array([int(text[:8]) for text in texts], np.float32)[:, None]


def store_write(folder: Path) -> float:
    """Return the seconds that storing ten million judgments takes, half a million at a time."""
    from anmi.store import Store

    seconds = 0.0
    # In no order, as texts come.
    numbers = np.random.default_rng(0).permutation(STORED)
    with Store(folder) as store:
        for start in range(0, STORED, CHUNK):
            texts = judged_texts(numbers[start : start + CHUNK])
            began = time.perf_counter()
            store.vectors(FINGERPRINT, texts, judge, batch=100_000)
            seconds += time.perf_counter() - began
        assert len(store) == STORED
    return seconds


def store_lookup(folder: Path, warm: bool) -> float:
    """Return the seconds from 100,000 random texts to their judgments."""
    from anmi.store import Store

    def refuse(texts: list[str]) -> NDArray[np.float32]:
        raise AssertionError(f"{len(texts)} judgments are missing")

    with (folder / "data.mdb").open("rb") as file:
        if warm:
            while file.read(1 << 24):
                pass
        else:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    numbers = np.random.default_rng().choice(STORED, LOOKED_UP, replace=False)
    texts = judged_texts(numbers)
    with Store(folder) as store:
        began = time.perf_counter()
        found = store.vectors(FINGERPRINT, texts, refuse)
        seconds = time.perf_counter() - began
    assert (found[:, 0] == numbers).all()
    return seconds


MAPPED = "peak_mb counts the pages of the file that were read, which the system may drop"
LOOP = "k = 4, 50 steps of gradient ascent, one edge after the other; seconds per query, of 3"
# What is run, and what to say of it. The store's cases share a folder.
CASES: dict[str, tuple[Callable[[Path], float], str]] = {
    "elo_1000x51_k8": (lambda _: elo(1000), "comparisons, preferences and fit; to reach: 2 s"),
    "elo_4000x51_k8": (lambda _: elo(4000), "four times the edges"),
    "paraphrase_loop_1_query": (lambda _: paraphrase_scipy(), f"{LOOP}; scipy.stats.norm, as notebooks have it"),
    "paraphrase_loop_math_1_query": (lambda _: paraphrase_math(), f"{LOOP}; math.erf, as fast as a loop gets"),
    "store_write_10m": (store_write, f"half a million texts at a time, 100,000 per commit; {MAPPED}"),
    "store_lookup_100k_of_10m_warm": (
        lambda folder: store_lookup(folder, warm=True),
        f"texts in, judgments out, file in memory; to reach: 1 s; {MAPPED}",
    ),
    "store_lookup_100k_of_10m_cold": (
        lambda folder: store_lookup(folder, warm=False),
        f"the file dropped from the system's cache before; {MAPPED}",
    ),
}


def measured(case: str, folder: Path) -> dict[str, float]:
    """Run a case once in a process of its own."""
    command = [sys.executable, __file__, "--case", case, "--work", str(folder)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def row_of(case: str, work: Path) -> dict[str, object]:
    folder = work / "store"
    runs = []
    if case.startswith("store_lookup") and not folder.exists():
        measured("store_write_10m", folder)
    for _ in range(REPEATS):
        if case == "store_write_10m":
            shutil.rmtree(folder, ignore_errors=True)
        runs.append(measured(case, folder))
    middle = {key: statistics.median(run[key] for run in runs) for key in ("seconds", "peak_mb")}
    return {
        "case": case, "seconds": round(middle["seconds"], 4), "peak_mb": round(middle["peak_mb"], 1),
        "note": CASES[case][1],
    }  # fmt: skip


def save(rows: dict[str, dict[str, object]]) -> None:
    import lmdb

    from anmi.pipelines.reporting.nodes import machine, versions

    document = {
        "date": datetime.date.today().isoformat(),
        "machine": machine(),
        "versions": versions() | {"lmdb": lmdb.__version__},
        "rows": [rows[case] for case in CASES if case in rows],
    }
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(document, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=list(CASES), default=list(CASES), metavar="CASE")
    parser.add_argument("--work", type=Path, help="where to put the store of 2 GB; a temporary folder when left out")
    parser.add_argument("--case", choices=list(CASES), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        seconds = CASES[arguments.case][0](arguments.work)
        print(json.dumps({"seconds": seconds, "peak_mb": peak_mb()}))
        return
    rows = {row["case"]: row for row in json.loads(RESULT.read_text())["rows"]} if RESULT.exists() else {}
    with tempfile.TemporaryDirectory(dir=arguments.work, prefix="anmi-judging-") as work:
        for case in (case for case in CASES if case in arguments.only):
            rows[case] = row_of(case, Path(work))
            save(rows)
            print(f"{case}: {rows[case]['seconds']} s, {rows[case]['peak_mb']} MB", flush=True)


if __name__ == "__main__":
    main()
