"""What scripts share: Kedro's command, artifacts of a run, committed results, tables of pages, paired comparisons."""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import yaml

import anmi.environment  # noqa: F401
from anmi.evaluation.significance import compare, interval
from anmi.pipelines.reporting.nodes import machine, versions

ROOT: Final = Path(__file__).parents[1]
RESULTS: Final = ROOT / "benchmarks" / "results"
WORK: Final = ROOT / "data" / "benchmarks"
STORE: Final = ROOT / "data" / "store"
MODELS: Final = STORE / "models"
DATA: Final = Path(os.environ.get("ANMI_DATA", ROOT.parent / "shared" / "data"))
METRIC: Final = "ndcg@10"


def parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser that shows the text of a script as it is."""
    return argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def kedro(
    *words: str, data: Path | None = None, store: Path | None = None, check: bool = True
) -> int:
    """Run Kedro, with a data root and a store if they are given, and return its exit status."""
    places = {
        name: str(place)
        for name, place in (("ANMI_DATA_ROOT", data), ("ANMI_STORE", store))
        if place
    }
    command = [sys.executable, "-m", "kedro", *words]
    return subprocess.run(command, cwd=ROOT, env=os.environ | places, check=check).returncode


def artifact(data: Path, name: str) -> Path:
    """Return the newest version of an artifact in a data root, by the name of its file."""
    return max(data.glob(f"*/{name}/*/{name}"))


def table(data: Path, name: str) -> pd.DataFrame:
    """Return the newest version of an artifact that is a table."""
    return pd.read_parquet(artifact(data, f"{name}.parquet"))


def recipes(folder: str = "conf/base") -> dict[str, Any]:
    """Return recipes as their file has them."""
    return dict(
        yaml.safe_load((ROOT / folder / "recipes.yml").read_text(encoding="utf-8"))["recipes"]
    )


def write_beir(
    folder: Path, corpus: pd.DataFrame, queries: pd.DataFrame, labels: pd.DataFrame
) -> None:
    """Write tables as our own have them as a BEIR folder; labels have the column ``split``."""
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    documents = corpus[["document_id", "title", "text"]].rename(columns={"document_id": "_id"})
    asked = queries[["query_id", "text"]].rename(columns={"query_id": "_id"})
    for name, lines in (("corpus", documents), ("queries", asked)):
        lines.to_json(folder / f"{name}.jsonl", orient="records", lines=True, force_ascii=False)
    names = {"query_id": "query-id", "document_id": "corpus-id", "relevance": "score"}
    for split, rows in labels.groupby("split"):
        rows[[*names]].rename(columns=names).to_csv(
            folder / "qrels" / f"{split}.tsv", sep="\t", index=False
        )


def load(name: str) -> Any:
    """Return a committed result."""
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def save(name: str, document: dict[str, Any], earlier: dict[str, Any] | None = None) -> None:
    """Write a result, and of which commit it is: that of an ``earlier`` result whose rows are still in it."""
    measured_at = earlier or state()
    document |= {key: measured_at[key] for key in ("commit", "committed")}
    text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    (RESULTS / f"{name}.json").write_text(text, encoding="utf-8")


def now() -> str:
    """Return date and time."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def git(*words: str, folder: Path = ROOT) -> str:
    """Return what git prints, empty where it does not know."""
    command = ["git", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def state(folder: Path = ROOT) -> dict[str, str]:
    """Return the commit of the code in a folder, marked where it was changed, and the date, which a rebase keeps."""
    commit, _, date = git("log", "-1", "--format=%h %aI", folder=folder).partition(" ")
    is_changed = git("status", "--porcelain", "--", ":/src", ":/conf", folder=folder)
    return {"commit": commit + "-dirty" * bool(is_changed), "committed": date}


def about() -> dict[str, Any]:
    """Return when, on what machine and with which versions something is measured."""
    return {"date": now(), "machine": machine(), "versions": versions()}


def split(page: str, script: str) -> tuple[str, str, str]:
    """Return what stands before, between and after the marks of a script in a page."""
    before, mark, rest = page.partition(f"<!-- made by benchmarks/{script} -->\n")
    made, end, after = rest.partition("<!-- end -->")
    return before + mark, made, end + after


def fill(page: Path, script: str, made: str) -> None:
    """Put a table between the marks of a script in a page."""
    before, _, after = split(page.read_text(encoding="utf-8"), script)
    page.write_text(before + made + after, encoding="utf-8")


def markdown(head: list[str], rows: list[list[str]]) -> str:
    """Return a table with a line for each row."""
    lines = [f"| {' | '.join(cells)} |\n" for cells in (head, *rows)]
    return "".join([lines[0], "|---" * len(head) + "|\n", *lines[1:]])


def mean(values: pd.Series, name: str = "ndcg_10") -> dict[str, Any]:
    """Return the mean of a metric over queries, by its name, with its interval."""
    found = zip((name, "low", "high"), interval(values.to_numpy(), seed=1), strict=True)
    return {name: plain(value, 4) for name, value in found} | {"queries": len(values)}


def paired(first: pd.Series, second: pd.Series) -> dict[str, float | None]:
    """Return by how much the first of two systems is better on the same queries, with an interval and a p-value."""
    found = compare(np.asarray(first), np.asarray(second), seed=1)._asdict()
    return {name: plain(value, 5 if name == "p_value" else 4) for name, value in found.items()}


def plain(value: float, digits: int) -> float | None:
    """Return a number for JSON; None where there is no interval."""
    return None if math.isnan(value) else round(float(value), digits)
