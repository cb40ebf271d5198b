"""What mining costs the driver of a cluster and what its workers, on one machine and on two: machines.json.

A machine is a Ray node with one processor on this computer. A made collection (made_collection.py) is
mined on one and on two; the driver's processor seconds, and those of all workers together, are sampled
and laid to the node of the pipeline that ran. Seconds of n machines are computed from those of two,
driver + workers / n (Amdahl 1967), as if no processor waited and no network were between them:

    python benchmarks/machines.py [--documents 30000]
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import numpy as np

import made_collection
from anmi.retrieval.encoders import load_encoder
from common import MODELS, ROOT, about, fill, markdown, parser, save

PAGE: Final = ROOT / "docs" / "production.md"
WORK: Final = ROOT / "build" / "machines"
COUNTS: Final = (1, 2, 10, 100)
# Nodes whose workers take less are not in the table.
_LEAST_SECONDS: Final = 1
DRIVER: Final = """
import json, sys, threading, time
from pathlib import Path
import psutil, ray
from kedro.framework.startup import bootstrap_project
from ray.cluster_utils import Cluster
from anmi.cli import cli

parameters, machines, file = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
for _ in range(machines - 1):
    cluster.add_node(num_cpus=1)
samples, seen = [], {}
def sample():
    while True:
        for child in psutil.Process().children(recursive=True):
            try:
                if child.name().startswith("ray::"):
                    seen[child.pid] = sum(child.cpu_times()[:2])
            except psutil.Error:
                pass
        samples.append((time.time(), time.process_time(), sum(seen.values())))
        time.sleep(0.2)
threading.Thread(target=sample, daemon=True).start()
bootstrap_project(Path.cwd())
parameters += f",engine.kind=ray,engine.ray.address={cluster.address}"
cli(["run", "--pipelines", "mining", "--params", parameters], standalone_mode=False)
file.write_text(json.dumps(samples))
ray.shutdown()
cluster.shutdown()
"""


def mine(collection: Path, machines: int) -> dict[str, dict[str, float]]:
    """Mine on so many machines; return the processor seconds of each node, ``driver`` and ``workers``."""
    root = WORK / "run"
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(MODELS, root / "store" / "models")
    parameters = f"collection=beir:{collection},encoder=static,ingestion.language=en"
    variables = {"ANMI_DATA_ROOT": str(root / "data"), "ANMI_STORE": str(root / "store")}
    samples = root / "samples.json"
    command = [sys.executable, "-c", DRIVER, parameters, str(machines), str(samples)]
    subprocess.run(command, cwd=ROOT, env=os.environ | variables, check=True)
    (record,) = (root / "data" / "runs").glob("*/run.json")
    nodes = json.loads(record.read_text(encoding="utf-8"))["nodes"]
    ends = [datetime.fromisoformat(node["end"]).timestamp() for node in nodes]
    times, *spent = np.array(json.loads(samples.read_text())).T
    until = [ends[0] - nodes[0]["seconds"], *ends]
    driver, workers = (np.diff(np.interp(until, times, seconds)).tolist() for seconds in spent)
    names = [node["node"].rpartition(".")[2] for node in nodes]
    sides = zip(names, driver, workers, strict=True)
    return {name: {"driver": own, "workers": theirs} for name, own, theirs in sides}


def rows_of(one: dict[str, Any], two: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a row for each node with workers, for the others, and for all."""
    sent = [node for node in two if two[node]["workers"] >= _LEAST_SECONDS]
    groups = {f"`{node}`": [node] for node in sent}
    groups["all others"] = [node for node in two if node not in sent]
    groups["all"] = [*two]
    rows = []
    for name, nodes in groups.items():
        row: dict[str, Any] = {"node": name}
        for count, measured in (("1", one), ("2", two)):
            for side in ("driver", "workers"):
                row[f"{side}_{count}"] = sum(measured[node][side] for node in nodes)
        seconds = [row["driver_2"] + row["workers_2"] / count for count in COUNTS]
        rows.append(row | {"seconds": seconds})
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """Return the table of docs/production.md."""
    head = ["node", "driver", "workers", *map(str, COUNTS)]
    lines = []
    for row in rows:
        measured = [
            f"{row[f'{side}_1']:.1f}, {row[f'{side}_2']:.1f}" for side in ("driver", "workers")
        ]
        lines.append([row["node"], *measured, *(f"{value:.1f}" for value in row["seconds"])])
    return markdown(head, lines)


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--documents", type=int, default=30_000)
    options = arguments.parse_args()
    load_encoder("static", MODELS)
    collection = WORK / f"made-{options.documents}"
    if not (collection / "qrels" / "test.tsv").exists():
        made_collection.make(collection, options.documents, options.documents // 10)
    rows = rows_of(mine(collection, 1), mine(collection, 2))
    save("machines", {**about(), "documents": options.documents, "rows": rows})
    fill(PAGE, "machines.py", table(rows))


if __name__ == "__main__":
    main()
