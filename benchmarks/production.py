"""What a nightly update costs, and whether killed runs and other engines end in the same: production.json.

`incremental`: MedQuAD without 1 % of its training queries and their documents is mined from an empty store; then they
are there, and mining with `update=true` (as `retrain` does) is timed against the first run: three times from the same
state, of which the median counts. Each is one `kedro run --pipelines mining`, with its start, by the wall clock and by
the processor's time of the process and its workers. With `--compare` all is mined then by the same cross-encoders, and
the update's rows are compared with that.
`engines`: 2,000 queries of MedQuAD are mined from an empty store by one local worker, two, and two on Ray, and all
tables and arrays are compared byte for byte. `kills` are taken from what kills.py wrote. `collect` keeps the rows of
engines that were not measured again. Run from the repository's root:

    python benchmarks/production.py incremental --recipe anmi_2_1 --encoder minilm
    python benchmarks/production.py incremental --recipe anmi --compare
    python benchmarks/production.py engines
    python benchmarks/production.py collect
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse
from scipy.sparse.csgraph import connected_components

ROOT = Path(__file__).parents[1]
DATA = Path(os.environ.get("ANMI_DATA", ROOT.parent / "shared" / "data"))
RESULT = ROOT / "benchmarks" / "results" / "production.json"
PARTS = ROOT / "build" / "production"
SHARE = 0.01
REPEATS = 3
KINDS = (".parquet", ".npy")


def main() -> None:
    """Measure what is asked for, or put what was measured together."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    update = commands.add_parser("incremental", help="time a full mining and an update")
    update.add_argument("--recipe", default="anmi")
    update.add_argument("--encoder", default="static")
    update.add_argument("--queries", type=int, default=0, help="cap on training queries; 0 takes all")
    update.add_argument("--compare", action="store_true", help="mine all once more, and compare the rows of the update")
    commands.add_parser("engines", help="mine with each engine and compare the bytes")
    commands.add_parser("collect", help="write benchmarks/results/production.json")
    arguments = parser.parse_args()
    PARTS.mkdir(parents=True, exist_ok=True)
    if arguments.command == "incremental":
        incremental(arguments.recipe, arguments.encoder, arguments.queries, compare=arguments.compare)
    elif arguments.command == "engines":
        engines()
    else:
        collect()


def incremental(recipe: str, encoder: str, queries: int, *, compare: bool) -> None:
    """Time a full mining of nearly all of MedQuAD, and that of all of it afterwards."""
    work = PARTS / f"{recipe}-{encoder}-{queries}"
    shutil.rmtree(work, ignore_errors=True)
    before, after = work / "before", work / "after"
    counts = split(DATA / "medquad", before, after, queries)
    collection = work / "collection"
    settings = f"recipe={recipe},encoder={encoder},collection=beir:{collection},force=true"
    folders = {"ANMI_DATA_ROOT": str(work / "data"), "ANMI_STORE": str(work / "store")}
    found: dict[str, Any] = {"recipe": recipe, "encoder": encoder, "queries": queries, **counts}
    runs = (("full", before, ",update=true"), ("update", after, ",update=true"), ("all", after, ",keep_judges=true"))
    for name, folder, how in runs[: 3 if compare else 2]:
        collection.unlink(missing_ok=True)
        collection.symlink_to(folder, target_is_directory=True)
        arguments = ["run", "--pipelines", "mining", "--params", settings + how]
        times = [
            timed(arguments, folders, work / f"{name}.log")
            for _ in (again_from(work, ("data", "store"), REPEATS) if name == "update" else range(1))
        ]
        found[name] = {kind: float(np.median([each[kind] for each in times])) for kind in times[0]}
        found[f"{name}_times"] = [each["seconds"] for each in times]
        print(name, times, flush=True)
    if compare:
        found |= in_common(*sorted((work / "data").glob("selection/training_rows.parquet/*/*"))[1:])
        print({name: found[name] for name in ("rows_equal", "negatives_equal")}, flush=True)
    (PARTS / f"incremental-{work.name}.json").write_text(json.dumps(found | {"machine": machine()}), encoding="utf-8")
    shutil.rmtree(work / "data")
    shutil.rmtree(work / "store")


def again_from(work: Path, folders: tuple[str, ...], times: int) -> Iterator[int]:
    """Yield so many times, before each with the folders as they were at first."""
    for number in range(times):
        for name in folders:
            if number == 0:
                shutil.copytree(work / name, work / "before it" / name)
            else:
                shutil.rmtree(work / name)
                shutil.copytree(work / "before it" / name, work / name)
        # What was just copied is written while nothing is timed.
        os.sync()
        yield number
    shutil.rmtree(work / "before it")


def in_common(update: Path, everything: Path) -> dict[str, float]:
    """Compare the rows of an update with those of a mining of everything by the same cross-encoders.

    Returns the share of the rows of all that an update has too, and of their negatives that it chose as well.
    """
    key = ["query_id", "positive_id", "origin"]
    one, other = (pd.read_parquet(path, columns=[*key, "negative_ids"]) for path in (update, everything))
    both = one.merge(other, on=key, suffixes=("", "_all"))
    same = sum(len({*a} & {*b}) for a, b in zip(both.negative_ids, both.negative_ids_all, strict=True))
    return {"rows_equal": len(both) / len(other), "negatives_equal": float(same / other.negative_ids.map(len).sum())}


def split(source: Path, before: Path, after: Path, queries: int) -> dict[str, int]:
    """Write the collection without 1 % of the training queries and their documents, and with these appended.

    Queries that are labelled with one document are new together, so no query that stays gets another label.
    """
    labels = {name: (source / "qrels" / f"{name}.tsv").read_text(encoding="utf-8") for name in ("train", "dev", "test")}
    rows = [line.split("\t")[:2] for line in labels["train"].splitlines()[1:]]
    asked = sorted({query for query, _ in rows}, key=key)[: queries or None]
    new = closed({*asked}, [row for row in rows if row[0] in {*asked}], asked, max(1, round(SHARE * len(asked))))
    gone = {document for query, document in rows if query in new}
    kept = {"before": set(asked) - new, "after": set(asked)}
    lines = (source / "corpus.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    stays = [line for line in lines if json.loads(line)["_id"] not in gone]
    comes = [line for line in lines if json.loads(line)["_id"] in gone]
    for name, folder in (("before", before), ("after", after)):
        (folder / "qrels").mkdir(parents=True)
        for part, text in labels.items():
            told = text.splitlines(keepends=True)
            chosen = [line for line in told[1:] if part != "train" or line.split("\t")[0] in kept[name]]
            chosen = [line for line in chosen if name == "after" or line.split("\t")[1] not in gone]
            (folder / "qrels" / f"{part}.tsv").write_text(told[0] + "".join(chosen), encoding="utf-8")
        shutil.copyfile(source / "queries.jsonl", folder / "queries.jsonl")
        (folder / "corpus.jsonl").write_text("".join(stays + (comes if name == "after" else [])), encoding="utf-8")
    return {"training_queries": len(asked), "new_queries": len(new), "new_documents": len(gone)}


def closed(names: set[str], rows: list[list[str]], order: list[str], wanted: int) -> set[str]:
    """Return the first queries, with all that share a document with them, up to the number that is wanted."""
    queries, documents = sorted(names), sorted({document for _, document in rows})
    place = {name: i for i, name in enumerate(queries)}
    number = {name: i for i, name in enumerate(documents)}
    cells = ([1] * len(rows), ([place[query] for query, _ in rows], [number[document] for _, document in rows]))
    holds = sparse.csr_matrix(cells, (len(queries), len(documents)))
    _, group = connected_components(holds @ holds.T, directed=False)
    members: dict[int, list[str]] = {}
    for name in queries:
        members.setdefault(int(group[place[name]]), []).append(name)
    found: set[str] = set()
    for name in order:
        together = members[int(group[place[name]])]
        if name not in found and len(found) + len(together) <= wanted:
            found.update(together)
    return found


def engines() -> None:
    """Mine with each engine and note the time and a digest of everything that was made."""
    rows = []
    for kind, workers in (("local", 1), ("local", 2), ("ray", 2)):
        work = PARTS / f"engine-{kind}-{workers}"
        shutil.rmtree(work, ignore_errors=True)
        settings = [f"collection=beir:{DATA / 'medquad'}", "ingestion.max_queries=2000"]
        settings += [f"engine.kind={kind}", f"engine.workers={workers}"]
        folders = {"ANMI_DATA_ROOT": str(work / "data"), "ANMI_STORE": str(work / "store")}
        work.mkdir()
        taken = timed(["run", "--pipelines", "mining", "--params", ",".join(settings)], folders, work / "log")
        made = digest(work / "data")
        rows.append({"engine": f"{kind}, {workers} workers", "load": os.getloadavg()[1], **taken, **made})
        print(rows[-1], flush=True)
        shutil.rmtree(work)
    (PARTS / "engines.json").write_text(json.dumps({"rows": rows, "machine": machine()}), encoding="utf-8")


def digest(root: Path) -> dict[str, Any]:
    """Return a hash of all tables and arrays, without the versions in their paths, and how many there are."""
    state, files = hashlib.sha256(), 0
    for path in sorted(path for path in root.rglob("*") if path.is_file() and path.suffix in KINDS):
        name = "/".join(part for part in path.relative_to(root).parts if not part.startswith("20"))
        state.update(f"{name} {hashlib.sha256(path.read_bytes()).hexdigest()}".encode())
        files += 1
    return {"sha256": state.hexdigest(), "files": files}


def key(query: str) -> str:
    """Return what queries are ordered by to choose some of them."""
    return hashlib.blake2b(query.encode(), digest_size=8).hexdigest()


def timed(arguments: list[str], variables: dict[str, str], log: Path) -> dict[str, float]:
    """Run kedro and return seconds by the wall and by the processor."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    with log.open("w") as file:
        subprocess.run(
            [str(Path(sys.executable).with_name("kedro")), *arguments],
            cwd=ROOT, env={**os.environ, **variables}, stdout=file, stderr=subprocess.STDOUT, check=True,
        )  # fmt: skip
    seconds = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"seconds": round(seconds, 1), "processor_seconds": round(used, 1)}


def machine() -> dict[str, Any]:
    """Return where and when this was measured."""
    packages = ("torch", "sentence-transformers", "ray", "faiss-cpu", "bm25s", "kedro")
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "machine": {"platform": platform.platform(), "cores": os.cpu_count(), "load": os.getloadavg()[1]},
        "versions": {name: version(name) for name in packages},
    }


def collect() -> None:
    """Put the parts together as rows of case, value, unit and note."""
    rows: list[dict[str, Any]] = []
    for path in sorted(PARTS.glob("incremental-*.json")):
        found = json.loads(path.read_text(encoding="utf-8"))
        what = f"{found['recipe']}, {found['encoder']}"
        note = (
            f"medquad, recipe {what}: {found['new_queries']} of {found['training_queries']} training queries and "
            f"{found['new_documents']} documents new; median of {len(found['update_times'])} updates "
            f"({', '.join(map(str, found['update_times']))} s); load {found['machine']['machine']['load']:.1f}"
        )
        for kind in ("seconds", "processor_seconds"):
            share = found["update"][kind] / found["full"][kind]
            rows += [
                {"case": "incremental_share", "value": round(share, 4), "unit": f"of full {kind}", "note": note},
                {"case": "full_mining", "value": found["full"][kind], "unit": kind, "note": note},
                {"case": "update", "value": found["update"][kind], "unit": kind, "note": note},
            ]
        equal = f"{note}; of a mining of everything by the same cross-encoders"
        for case in [case for case in ("rows_equal", "negatives_equal") if case in found]:
            rows.append({"case": f"update_{case}", "value": round(found[case], 5), "unit": "share", "note": equal})
    kills, engines = RESULT.with_name("kills.json"), PARTS / "engines.json"
    if kills.is_file():
        found = json.loads(kills.read_text(encoding="utf-8"))
        for case in ("kills_tried", "kills_resumed_equal"):
            rows.append({"case": case, "value": found[case], "unit": "runs", "note": "benchmarks/kills.py"})
    if engines.is_file():
        made = json.loads(engines.read_text(encoding="utf-8"))["rows"]
        equal = len({row["sha256"] for row in made}) == 1
        note = f"{made[0]['files']} tables and arrays of 2,000 medquad queries: {', '.join(r['engine'] for r in made)}"
        rows.append({"case": "engines_equal", "value": equal, "unit": "byte for byte", "note": note})
        for row in made:
            note = f"{row['engine']}; with start and an empty store, load {row['load']:.1f}"
            rows.append({"case": "engine", "value": row["seconds"], "unit": "seconds", "note": note})
    else:
        # What was not measured again stays as it was.
        known = json.loads(RESULT.read_text(encoding="utf-8"))["rows"] if RESULT.is_file() else []
        rows += [row for row in known if row["case"].startswith("engine")]
    RESULT.write_text(json.dumps({**machine(), "rows": rows}, indent=1) + "\n", encoding="utf-8")
    print(f"{len(rows)} rows in {RESULT}")


if __name__ == "__main__":
    main()
