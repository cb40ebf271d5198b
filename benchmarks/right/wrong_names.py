"""Runs that are asked for something else than their inputs were made from: how many are refused before a node runs.

A made collection is mined, trained on and evaluated, another run is killed while it goes on; then parts are asked for
under other names, each in a process of its own. Run from the repository's root:

    python benchmarks/right wrong_names
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

_QUICK: Final = (
    "recipe=naive_top,encoder=model,training.options.epochs=1,ingestion.new_queries=0,bm25.engine=rank_bm25,"
    "evaluation.resamples=100,evaluation.factuality_queries=5,collection=beir:"
)


def wrong_names_refused() -> list[dict[str, Any]]:
    """Return how many are refused, and which."""
    with tempfile.TemporaryDirectory(prefix="anmi-wrong-names-") as folder:
        place = Path(folder)
        _collection(place / "collection")
        shutil.copytree(_encoder(place / "models"), place / "model")
        given = _QUICK.replace("=model", f"={place}/model") + f"{place}/collection"
        begun = _start(place, "run", "--params", given)
        text = begun.communicate()[0]
        assert begun.returncode == 0, text
        (first,) = (place / "data" / "runs").glob("*/run.json")
        weights = next((place / "model").rglob("*.safetensors"))
        documents, kept = place / "collection" / "corpus.jsonl", (place / "collection" / "corpus.jsonl").read_bytes()

        def asked(part: str, other: str = "", *more: str) -> Callable[[], str]:
            return lambda: _told(
                place, "run", "--pipelines", part, "--params", ",".join(filter(None, (given, other))), *more
            )

        def replaced(file: Path, ask: Callable[[], str]) -> Callable[[], str]:
            def ask_then() -> str:
                before = file.read_bytes()
                file.write_bytes(before[:-1] + (b"\n\n" if file == documents else bytes([before[-1] ^ 1])))
                try:
                    return ask()
                finally:
                    file.write_bytes(before)

            return ask_then

        cases = {
            "recipe in training and evaluation": asked("training,evaluation", "recipe=in_batch"),
            "recipe in selection": asked("selection", "recipe=random"),
            "encoder in evaluation": asked("evaluation", "encoder=minilm"),
            "collection in evaluation": asked("evaluation", "collection=api_docs"),
            "seed in evaluation": asked("evaluation", "seed=9"),
            "seed in adaptation": asked("adaptation,training", "seed=9"),
            "a setting of the recipe in evaluation": asked("evaluation", "recipes.naive_top.negatives=2"),
            "sizes of splits in evaluation": asked("evaluation", "ingestion.test_share=0.4"),
            "other weights in the encoder's folder in evaluation": replaced(weights, asked("evaluation")),
        }
        found = {name: case() for name, case in cases.items()}
        documents.write_bytes(kept + b'{"_id": "more", "title": "", "text": "one document more"}\n')
        assert not _told(place, "run", "--pipelines", "ingestion", "--params", given)
        second = max((place / "data" / "runs").glob("*/run.json")).parent.name
        mixed = f"--load-versions=corpus:{second},trained_model:{first.parent.name}"
        found["versions of two collections"] = asked("evaluation", "", mixed)()
        _killed(place, given)
        for name, file in (("encoder", weights), ("collection", documents)):
            resumed = replaced(file, lambda: _told(place, "anmi", "resume"))
            found[f"other files of the {name} in resume"] = resumed()
        refused = {name: "Error: " in text and _refused(text) for name, text in found.items()}
    missed = [name for name, seen in refused.items() if not seen]
    note = f"of {len(found)}: {', '.join(found)}; not refused: {', '.join(missed) or 'none'}"
    return [{"case": "wrong_names_refused", "value": sum(refused.values()), "unit": "", "note": note}]


def _refused(text: str) -> bool:
    return any(part in text for part in ("and this run is asked for", "are not those that"))


def _collection(folder: Path) -> None:
    (folder / "qrels").mkdir(parents=True)
    words = [
        "river",
        "engine",
        "garden",
        "planet",
        "letter",
        "bridge",
        "market",
        "forest",
        "window",
        "island",
        "copper",
        "tin",
    ]
    texts = {
        f"d{i}": f"The {words[i % 12]} of the {words[i // 12 % 12]} has number{i} and word{i * 7}." for i in range(144)
    }
    lines = {
        "corpus": [{"_id": name, "title": "", "text": text} for name, text in texts.items()],
        "queries": [{"_id": f"q{i}", "text": f"which {words[i % 12]} has number{i}"} for i in range(90)],
    }
    for name, rows in lines.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for split, start in (("train", 0), ("dev", 30), ("test", 60)):
        rows = "".join(f"q{i}\td{i}\t1\n" for i in range(start, start + 30))
        (folder / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\n" + rows)


def _encoder(models: Path) -> Path:
    from anmi.retrieval.encoders import load_encoder

    load_encoder("static", models)
    return next(models.glob("static-*"))


def _start(place: Path, *words: str) -> subprocess.Popen[str]:
    variables = {"ANMI_DATA_ROOT": str(place / "data"), "ANMI_STORE": str(place / "store"), "COLUMNS": "1000"}
    command = [str(Path(sys.executable).with_name("kedro")), *words]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command, env={**os.environ, **variables}, **pipes)


def _told(place: Path, *words: str) -> str:
    """Return what a command that failed said; nothing where it did not."""
    going = _start(place, *words)
    said = going.communicate()[0]
    return said if going.returncode else ""


def _killed(place: Path, given: str) -> None:
    """Kill a run once it has saved what it read."""
    before = {*(place / "data" / "runs").iterdir()}
    going = _start(place, "run", "--params", given)
    while not any('"corpus"' in file.read_text() for folder in {*(place / "data" / "runs").iterdir()} - before
                  for file in folder.glob("run.json")):  # fmt: skip
        assert going.poll() is None, "it ended before it could be killed"
        time.sleep(0.05)
    going.kill()
    going.communicate()
