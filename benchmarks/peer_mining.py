"""How long mining takes beside sentence-transformers' ``mine_hard_negatives``, and for how many rows each finds enough.

The peer (peer.py) imports, loads, encodes, mines by the rule of ``nv_retriever`` (7 negatives below
95 % of the positive's score, among the 100 nearest) and writes JSON lines. Ours is ``kedro run
--pipelines mining``: a data root and a store without anything that was mined or encoded, and
``second`` another recipe in the data root and with the store of ``anmi``. Both are whole processes,
by turns. Both mine whole documents, of which the peer's encoder sees the first 512 tokens;
``passages`` is ``anmi`` as it is set by default, which cuts long documents and mines passages. What
is made once for all runs was made before: the static encoder, which all are given,
and the tables of the tracking database, whose seconds are a row of their own. Seconds of the
processor are of the process and all that it started, as other work on the machine stretches wall
time; memory is the largest sum of proportional set sizes of the tree, looked at five times a
second. Medians go to speed.json, with the ``coverage``: the share of (query, positive) rows that
get all 7 negatives. With ``--check`` they are compared with those that are there instead, and a
ratio that is two fifths worse is refused with exit status 1: ratios carry over to other machines,
where seconds do not. CI and the nightly build check so, on other machines than the committed one.

    python benchmarks/peer_mining.py ../shared/data/medquad --times 5
"""

from __future__ import annotations

import json
import math
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np
import psutil

from anmi.retrieval.encoders import load_encoder
from common import MODELS, ROOT, artifact, load, now, parser, save

# Two turns of the same code on one machine differed by a fifth, and machines differ, too; what once
# went unnoticed was twice as much.
ALLOWED: Final = 1.4
KEDRO: Final = str(Path(sys.executable).with_name("kedro"))
SECOND: Final = "nv_retriever"
# How each is set by default is part of what is compared.
UNSET: Final = (
    "OMP_NUM_THREADS",
    "TOKENIZERS_PARALLELISM",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "PYTHONDONTWRITEBYTECODE",
)
GOALS: Final = {"nv_retriever": 0.7, "anmi": 1.2, "second": 0.35, "passages": None}
NOTES: Final = {
    "second": f"{SECOND} after anmi, store warm",
    "passages": "anmi over 27,303 passages, where the others mine 15,807 documents",
}
# What the peer mines.
_WHOLE: Final = ",ingestion.passages=none"
# For each second of looking at memory and processor, so many without.
_RESTS: Final = 50


def measured(
    command: list[str], environment: dict[str, str], limit: float = math.inf
) -> dict[str, Any]:
    """Run a command and return wall and processor seconds, MiB at most, and what it printed.

    ``samples`` are the time by the clock, and the processor seconds of the tree until then. A
    command that takes longer than ``limit`` seconds is stopped, and ``whole`` false.
    """
    inherited = {name: value for name, value in os.environ.items() if name not in UNSET}
    start, most = time.perf_counter(), 0
    samples: list[tuple[datetime, float]] = []
    with tempfile.TemporaryFile() as out:
        child = subprocess.Popen(
            command, stdout=out, stderr=out, cwd=ROOT, env=inherited | environment
        )
        tree, usage, ended = psutil.Process(child.pid), None, 0
        while not ended:
            ended, status, usage = os.wait4(child.pid, os.WNOHANG)
            wall = time.perf_counter() - start
            looked = time.perf_counter()
            with suppress(psutil.Error):
                processes = [tree, *tree.children(recursive=True)] if not ended else []
                most = max(most, sum(map(proportional, processes)))
                samples.append((datetime.now(), sum(map(processor, processes))))
            if wall > limit:
                child.terminate()
            # To add up the pages of a large process takes the kernel a while, so it is not asked
            # all the time.
            time.sleep(max(0.2 if most else 0.02, _RESTS * (time.perf_counter() - looked)))
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        printed = out.read().decode(errors="replace")
    if child.returncode and wall <= limit:
        raise SystemExit(f"{' '.join(command)} failed:\n{printed[-3000:]}")
    assert usage is not None
    return {
        "wall": wall,
        "cpu": usage.ru_utime + usage.ru_stime,
        "mib": most / 2**20,
        "printed": printed,
        "samples": samples,
        "whole": not child.returncode,
    }


def proportional(process: psutil.Process) -> int:
    """Return the resident bytes of a process, of shared pages its share; 0 when it has ended."""
    try:
        return int(process.memory_full_info().pss)
    except psutil.Error:
        return 0


def processor(process: psutil.Process) -> float:
    """Return the processor seconds of a process and of those of its children that have ended."""
    try:
        return sum(process.cpu_times()[:4])
    except psutil.Error:
        return 0.0


def mined(
    recipe: str, collection: Path, root: Path, store: Path, limit: float = math.inf, more: str = ""
) -> dict[str, Any]:
    """Mine with a recipe, and ``more`` parameters; besides seconds by node and until the first of them."""
    began = datetime.now().astimezone()
    environment = {"ANMI_DATA_ROOT": str(root), "ANMI_STORE": str(store)}
    parameters = f"collection=beir:{collection},encoder=static,recipe={recipe}{more}"
    command = [KEDRO, "run", "--pipelines", "mining", "--params", parameters]
    found = measured(command, environment, limit)
    noted = json.loads(max((root / "runs").glob("*/run.json")).read_text(encoding="utf-8"))["nodes"]
    nodes = {each["node"].rpartition(".")[2]: each for each in noted}
    ends = [
        (datetime.fromisoformat(each["end"]), name, each["seconds"]) for name, each in nodes.items()
    ]
    found["nodes"] = {name: each["seconds"] for name, each in nodes.items()}
    found["node_mib"] = {name: each["peak_mib"] for name, each in nodes.items()}
    # Processor seconds between the ends of two nodes are those of the second.
    at, spent = (
        [one.timestamp() for one, _ in found["samples"]],
        [cpu for _, cpu in found["samples"]],
    )
    until = np.interp([end.timestamp() for end, _, _ in ends], at, np.maximum.accumulate(spent))
    found["node_cpu"] = dict(
        zip([node for _, node, _ in ends], np.diff(until, prepend=0.0).tolist(), strict=True)
    )
    found["first"] = (ends[0][0] - began).total_seconds() - ends[0][2]
    return found


def turn(collection: Path) -> dict[str, dict[str, Any]]:
    """Measure everything once."""
    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(dir=MODELS.parent) as aside:
        work = Path(aside)
        peer = [
            str(Path(__file__).with_name("peer.py")),
            str(collection),
            str(next(MODELS.glob("static-*"))),
        ]
        found["peer"] = measured(
            [sys.executable, *peer, str(work / "peer.jsonl")], {"HF_HUB_OFFLINE": "1"}
        )
        found["peer"]["parts"] = json.loads(found["peer"]["printed"].strip().splitlines()[-1])
        found["peer"]["coverage"] = found["peer"]["parts"]["rows"] / found["peer"]["parts"]["pairs"]
        # Make the tables of a tracking database, as the first run in a data root does.
        code = (
            "import sys; from anmi.datasets.model_registry import connect; connect('sqlite:///' +"
            " sys.argv[1])"
        )
        found["tracking"] = measured(
            [sys.executable, "-c", code, str(work / "tracking" / "mlflow.db")], {}
        )
        for case, recipe, more in (
            ("nv_retriever", "nv_retriever", _WHOLE),
            ("anmi", "anmi", _WHOLE),
            ("passages", "anmi", ""),
        ):
            data, store = work / case / "data", work / case / "store"
            shutil.copytree(MODELS, store / "models")
            shutil.copytree(work / "tracking", data / "tracking")
            found[case] = mined(recipe, collection, data, store, more=more)
            found[case]["coverage"] = json.loads(
                artifact(data, "selection_summary.json").read_text()
            )["coverage"]
        places = work / "anmi" / "data", work / "anmi" / "store"
        found["second"] = mined(SECOND, collection, *places, more=_WHOLE)
        found["registry"] = measured([KEDRO, "registry", "list"], {})
    return found


def row(
    case: str, ours: float, peer: float | None, goal: float | None, unit: str, note: str
) -> dict[str, Any]:
    """Return a row of speed.json; ``goal`` is one of the ratio, or of ours where there is no peer."""
    found = {"case": case, "ours": round(ours, 2), "peer": None if peer is None else round(peer, 2)}
    return found | {
        "ratio": None if peer is None else round(ours / peer, 3),
        "goal": goal,
        "unit": unit,
        "note": note,
    }


def worse(fresh: list[dict[str, Any]], committed: list[dict[str, Any]]) -> list[str]:
    """Return a sentence on each ratio to the peer that is two fifths worse than the committed one of the same case.

    Wall time is left out: other work on the machine stretches it, and not that of both alike.
    """
    before = {each["case"]: each["ratio"] for each in committed}
    compared = [each for each in fresh if each["ratio"] and each["unit"] != "s"]
    return [
        f"{each['case']}: {each['ratio']} times the peer's {each['unit']}, committed is {was}"
        for each in compared
        if (was := before.get(each["case"])) and each["ratio"] / was > ALLOWED
    ]


def rows(turns: list[dict[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return the medians as rows of speed.json."""

    def of(case: str, value: str) -> float:
        return median(turn[case][value] for turn in turns)

    made = []
    for case, goal in GOALS.items():
        note = NOTES.get(case, "nothing mined or encoded before")
        for value, unit in (("wall", "s"), ("cpu", "processor s"), ("mib", "MiB")):
            what = {
                "wall": "whole process",
                "cpu": "whole process, processor",
                "mib": "peak memory of the tree",
            }[value]
            limit = 1.0 if value == "mib" and goal else goal
            made.append(
                row(f"{case}: {what}", of(case, value), of("peer", value), limit, unit, note)
            )
    mining = median(
        sum(
            seconds
            for node, seconds in turn["nv_retriever"]["nodes"].items()
            if node != "encode_collection"
        )
        for turn in turns
    )
    theirs = median(
        turn["peer"]["parts"]["mining"] + turn["peer"]["parts"]["writing"] for turn in turns
    )
    made.append(
        row(
            "nv_retriever: without start and encoding",
            mining,
            theirs,
            0.25,
            "s",
            "sum of its nodes",
        )
    )
    made.append(row("kedro registry list", of("registry", "wall"), None, 3.0, "s", ""))
    note = "once per data root; not in the rows above"
    made.append(
        row("tables of the tracking database", of("tracking", "wall"), None, None, "s", note)
    )
    made.append(row("seconds to the first node", of("nv_retriever", "first"), None, 5.0, "s", ""))
    return made


def about(turns: list[dict[str, dict[str, Any]]], collection: Path) -> dict[str, Any]:
    """Return on what was measured, and seconds by part."""
    parts = {
        case: {
            name: round(median(turn[case][kind].get(name, 0) for turn in turns), 2)
            for name in turns[0][case][kind]
        }
        for case, kind in (
            ("peer", "parts"),
            ("nv_retriever", "nodes"),
            ("anmi", "nodes"),
            ("second", "nodes"),
            ("passages", "nodes"),
        )
    }
    coverage = {
        name: median(turn[name]["coverage"] for turn in turns)
        for name in ("peer", "nv_retriever", "anmi", "passages")
    }
    return {
        "collection": collection.name,
        "times": len(turns),
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "date": now()[:10],
        "load": round(os.getloadavg()[2], 1),
        "parts": parts,
        "coverage": coverage,
    }


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("collection", type=Path, help="folder of a BEIR collection")
    arguments.add_argument("--times", type=int, default=5)
    arguments.add_argument(
        "--check", action="store_true", help="compare with what is committed, and write nothing"
    )
    asked = arguments.parse_args()
    load_encoder("static", MODELS)
    turns = []
    for number in range(asked.times):
        turns.append(turn(asked.collection.resolve()))
        said = ", ".join(
            f"{case} {found['wall']:.1f} s ({found['cpu']:.1f})"
            for case, found in turns[-1].items()
        )
        print(f"{number + 1}/{asked.times}: {said}", flush=True)
    made = rows(turns)
    for each in made:
        print(
            each["case"],
            each["ours"],
            each["peer"],
            each["ratio"],
            "goal",
            each["goal"],
            each["unit"],
            flush=True,
        )
    if asked.check:
        raise SystemExit("\n".join(worse(made, load("speed")["rows"])) or 0)
    save("speed", {"rows": made, "about": about(turns, asked.collection)})


if __name__ == "__main__":
    main()
