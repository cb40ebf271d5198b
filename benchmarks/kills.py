"""Runs killed by SIGKILL and resumed: how many of them end in what an uninterrupted run makes, byte for byte.

A run of all stages on a small collection is killed in every stage: while a node works, in the
middle of a write, when a write is done and not yet visible, and when an artifact is there and not
yet noted. Each time `kedro anmi resume` goes on, as a user does it, and every final artifact is
compared with that of a run which nobody killed; times and dates in them are left out. All runs are
children of one process that has imported everything, which saves seconds on each.
"""

from __future__ import annotations

import argparse
import ast
import functools
import inspect
import itertools
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from common import state

os.environ |= {
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "DO_NOT_TRACK": "1",
}

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks" / "results" / "kills.json"
SETTINGS = ",".join(
    [
        "recipe=anmi_2_0",
        "encoder=static",
        "recipes.anmi_2_0.mining.bm25.depth=20",
        "dense.depth=10",
        "denoising.depth=3",
        "elo.depth=3",
        "denoising.cross_encoder.max_pairs=16",
        "denoising.cross_encoder.max_length=32",
        "training.options.epochs=2",
        "training.options.batch_size=8",
        "training.options.checkpoint_minutes=1e-9",
        "training.dev_documents=50",
        "evaluation.resamples=100",
        "final=always",
    ]
)
# Of these, what says when, how long, and whether training was resumed is left out.
TIMED = (
    "results",
    "report",
    *(f"{of}training_{what}" for of in ("", "final.") for what in ("log", "summary")),
    "part_milliseconds",
)
TIMES = [
    "resumed_from_step",
    "date",
    "seconds",
    "started",
    "ended",
    "paths",
    "machine",
    "memory_mb",
    "per_second",
]
# What runs need, and nothing that starts a thread.
_IMPORTED = """
torch sentence_transformers faiss bm25s sklearn.metrics scipy.stats plotly.graph_objects
anmi.cli anmi.hooks anmi.training.trainer anmi.judging.denoise anmi.judging.fusing
anmi.report.html anmi.judging.elo anmi.evaluation.metrics
"""


class Point(NamedTuple):
    """Where a run is killed.

    ``how`` is ``node`` (its function is done, nothing is saved), ``middle`` (half of the bytes of
    an artifact are written), ``written`` (all of them, and it is not visible yet), ``visible`` (it
    is, and the record does not know), ``manifest`` (in the middle of noting it), ``checkpoint``
    (training has made so many) or ``store`` (so many batches were stored).
    """

    stage: str
    how: str
    what: str | int


POINTS = (
    Point("ingestion", "middle", "corpus.parquet"),
    Point("adaptation", "visible", "pseudo_queries.parquet"),
    Point("bm25", "middle", "terms"),
    Point("consistency", "written", "consistency"),
    Point("dense", "middle", "dense_index"),
    Point("dense", "store", 1),
    Point("denoising", "node", "denoising.judge_candidates"),
    Point("denoising", "middle", "judgments"),
    Point("elo", "visible", "ratings"),
    Point("selection", "manifest", "selection"),
    Point("selection", "middle", "selection"),
    Point("training", "middle", "measured_model"),
    Point("training", "checkpoint", 2),
    Point("evaluation", "visible", "metrics.parquet"),
    Point("final", "middle", "search_index"),
    Point("reporting", "middle", "report.html"),
)


LATE = ("elo", "selection", "training", "evaluation", "final", "reporting")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--stages", action="store_true", help="One kill in every stage only.")
    parser.add_argument(
        "--models", type=Path, help="Folder with the distilled static encoder; saves a minute."
    )
    parser.add_argument("--result", type=Path, default=RESULT)
    arguments = parser.parse_args()
    prepare()
    with tempfile.TemporaryDirectory(prefix="anmi-kills-") as folder:
        trial = Trial(Path(folder), arguments.models or ROOT / "data" / "store" / "models")
        seconds = trial.reference()
        rows = []
        # The last of each stage.
        points = (
            tuple({point.stage: point for point in POINTS}.values()) if arguments.stages else POINTS
        )
        for point in points:
            rows.append(trial.kill(point))
            print(json.dumps(rows[-1]), flush=True)
    document = state() | {
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "settings": SETTINGS,
        "seconds_uninterrupted": round(seconds, 2),
        "kills_tried": sum(row["killed"] for row in rows),
        "kills_resumed_equal": sum(row["killed"] and row["equal"] for row in rows),
        "rows": rows,
    }
    arguments.result.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(
        f"{document['kills_resumed_equal']} of {document['kills_tried']} killed runs were resumed"
        " to the same end"
    )
    sys.exit(document["kills_resumed_equal"] != len(rows))


def prepare() -> None:
    """Import what runs need, and nothing that starts a thread."""
    from kedro.framework.startup import bootstrap_project

    os.chdir(ROOT)
    bootstrap_project(ROOT)
    for name in _IMPORTED.split():
        __import__(name)
    import torch
    from kedro.framework.project import pipelines

    torch.set_num_threads(1)
    dict(pipelines)


class Trial:
    """Runs on one collection, each in a folder of its own below ``folder``; ``models`` has the static encoder."""

    def __init__(self, folder: Path, models: Path) -> None:
        self._folder, self._models = folder, models
        self._number = 0
        self._collection = collection(folder / "pairs.jsonl")
        self._whole = folder / "whole"

    def reference(self) -> float:
        """Make the run that nobody kills; return its seconds."""
        self._new_place(self._whole)
        started = time.monotonic()
        code = self._fork(self._whole, ["run", *self._options()])
        if code:
            raise SystemExit((self._whole / "log").read_text(encoding="utf-8"))
        return time.monotonic() - started

    def kill(self, point: Point) -> dict[str, Any]:
        """Kill a run, resume it, and compare."""
        self._number += 1
        place = self._folder / f"run{self._number}"
        # What the store holds by then it holds in the killed run as well; only its own stages fill
        # it from nothing.
        late = point.stage in LATE
        self._new_place(place, self._whole / "store" if late else None)
        code = self._fork(place, ["run", *self._options()], point)
        row: dict[str, Any] = {
            "stage": point.stage,
            "how": point.how,
            "what": point.what,
            "killed": code == -9,
        }
        manifests = sorted((place / "data" / "runs").glob("*/run.json"))
        if code != -9 or not manifests:
            # Ended before it was killed, or killed before it was a run: nothing to go on with.
            return row | {"killed": False, "equal": code == 0 or not manifests, "left": 0}
        done = self._fork(place, ["anmi", "resume", "--env", "test"])
        text = (place / "log").read_text(encoding="utf-8")
        # Of the lines that tell of nodes, those of the resumed run come last.
        found = re.findall(r" \d+/(\d+)  \w+\.", text)
        row["left"] = int(found[-1]) if found else None
        row["differences"] = (
            [text[-2000:]] if done else differences(self._whole / "data", place / "data")
        )
        row["equal"] = done == 0 and not row["differences"]
        shutil.rmtree(place)
        return row

    def _options(self) -> list[str]:
        return ["--env", "test", "--params", f"collection=pairs:{self._collection},{SETTINGS}"]

    def _new_place(self, place: Path, warm: Path | None = None) -> None:
        if warm is not None:
            shutil.copytree(warm, place / "store")
            return
        for model in self._models.glob("static-*"):
            shutil.copytree(model, place / "store" / "models" / model.name, copy_function=os.link)

    def _fork(self, place: Path, words: list[str], point: Point | None = None) -> int:
        """Run a command in a child; return its exit code, -9 where it was killed."""
        child = os.fork()
        if child == 0:
            os.setsid()
            code = 70
            try:
                code = _command(place, words, point)
            finally:
                sys.stdout.flush()
                os._exit(code)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _command(place: Path, words: list[str], point: Point | None) -> int:
    """In the child: what ``kedro`` does, with its output in a file."""
    log = os.open(place / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ |= {
        "ANMI_DATA_ROOT": str(place / "data"),
        "ANMI_STORE": str(place / "store"),
        "COLUMNS": "200",
    }
    # A database of MLflow takes seconds to make, and tracking has tests of its own.
    from anmi.hooks import MlflowHooks

    MlflowHooks.before_pipeline_run = lambda *_, **__: None
    if point is not None:
        arm(point)
    from anmi.cli import cli

    try:
        cli(words, standalone_mode=True)
    except SystemExit as end:
        return int(end.code or 0)
    except BaseException:
        import traceback

        traceback.print_exc()
        return 70
    return 0


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


def arm(point: Point) -> None:
    """Let this process kill itself at a point; changes nothing else."""
    if point.how == "node":
        from kedro.pipeline.node import Node

        _after(Node, "run", lambda self, *_: self.name == point.what)
    elif point.how == "checkpoint":
        from anmi.training.loop import Loop

        _after(Loop, "_save_checkpoint", _nth(int(point.what)))
    elif point.how == "store":
        from anmi.store import Store

        _after(Store, "write", _nth(int(point.what)))
    else:
        _arm_writes(point)


def _after(owner: Any, name: str, due: Callable[..., bool]) -> None:
    plain = getattr(owner, name)

    @functools.wraps(plain)
    def armed(*arguments: Any, **named: Any) -> Any:
        result = plain(*arguments, **named)
        if due(*arguments):
            die()
        return result

    setattr(owner, name, armed)


def _nth(number: int) -> Callable[..., bool]:
    calls = itertools.count(1)
    return lambda *_: next(calls) >= number


def _arm_writes(point: Point) -> None:
    from anmi import buckets, files
    from anmi.datasets import artifact

    plain = files.aside
    seen: list[str] = []

    @contextmanager
    def armed(target: Path) -> Iterator[Path]:
        noting = point.how == "manifest" and target.name == "run.json" and str(point.what) in seen
        with plain(target) as path:
            yield path
            if noting or (point.how == "middle" and target.name == point.what):
                _halve(path)
                die()
            if point.how == "written" and target.name == point.what:
                die()
        seen.append(target.name)
        if point.how == "visible" and target.name == point.what:
            die()

    # By the names that the modules which write have imported.
    files.aside = buckets.aside = artifact.aside = armed


def _halve(path: Path) -> None:
    """Leave half of what was written: of a folder half of the files, of the last of these half of the bytes."""
    files = (
        sorted(found for found in path.rglob("*") if found.is_file()) if path.is_dir() else [path]
    )
    kept = files[: (len(files) + 1) // 2]
    for file in files[len(kept) :]:
        file.unlink()
    os.truncate(kept[-1], kept[-1].stat().st_size // 2)


def collection(file: Path, most: int = 32) -> Path:
    """Write pairs of what functions of the standard library say of themselves: the first sentence, and the rest."""
    found = [
        named
        for module in (ast, inspect, os, random, shutil, signal)
        for named in sorted(vars(module).items())
    ]
    texts = (
        inspect.getdoc(value) or ""
        for name, value in found
        if callable(value) and not name.startswith("_")
    )
    pairs = dict(text.split("\n\n", 1) for text in texts if "\n\n" in text)
    rows = [
        {"query": first, "positive": rest[:200]}
        for first, rest in pairs.items()
        if len(first) > 20 < len(rest)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows[:most]), encoding="utf-8")
    return file


def differences(whole: Path, other: Path) -> list[str]:
    """Return which final artifacts of two data roots are not the same, and what was left lying about."""
    old, new = newest(whole), newest(other)
    found = [f"{name} is there only once" for name in sorted({*old} ^ {*new})]
    found += [
        name
        for name in sorted({*old} & {*new})
        if content(old[name], whole) != content(new[name], other)
    ]
    loaded = {path.name for path in other.glob("*/*/*/.*.tmp/*")}
    return found + [f"{name} was half-written and is visible" for name in sorted(loaded & set(new))]


def newest(root: Path) -> dict[str, Path]:
    """Return the newest version of every artifact, as Kedro finds it."""
    found: dict[str, Path] = {}
    for path in sorted(root.glob("*/*/????-??-??T*/*")):
        if path.parents[1].name == path.name and not path.name.startswith("."):
            found[f"{path.parents[2].name}/{path.name}"] = path
    return found


def content(path: Path, root: Path) -> Any:
    """Return what is compared of an artifact: its bytes, without where the store lies, and without times."""
    here = str(root.parent).encode()
    if path.is_dir():
        files = (file for file in path.rglob("*") if file.is_file())
        return {
            file.relative_to(path).as_posix(): file.read_bytes().replace(here, b"")
            for file in files
        }
    if path.stem not in TIMED:
        return path.read_bytes().replace(here, b"")
    if path.suffix == ".parquet":
        import pandas as pd

        table = pd.read_parquet(path)
        return table.drop(
            columns=[name for name in table if any(time in name for time in TIMES)]
        ).to_json()
    if path.suffix == ".json":
        return json.dumps(timeless(json.loads(path.read_text(encoding="utf-8"))), sort_keys=True)
    # Of the report the figures and tables come from artifacts that are compared; that it is whole
    # is seen here.
    return path.read_text(encoding="utf-8").rstrip().endswith("</html>")


def timeless(value: Any) -> Any:
    """Leave out what says when, how long, where, and in which run."""
    if isinstance(value, dict):
        return {
            k: timeless(v)
            for k, v in value.items()
            if k != "run" and not any(time in k for time in TIMES)
        }
    return [timeless(item) for item in value] if isinstance(value, list) else value


if __name__ == "__main__":
    main()
