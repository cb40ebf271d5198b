"""Experiment matrices as `kedro anmi ablate` runs them: recipes, collections, seeds, settings.

Cells that are there are kept, so the script may be interrupted. The set `judged_by_evidence` makes
the table of docs/results.md (``--page`` makes nothing but that table, from the result that is
there). From the repository's root:

    python benchmarks/ablation.py [SET]
"""

from __future__ import annotations

import datetime
import json
import sys
from pathlib import Path
from typing import Any, Final, NamedTuple

import pandas as pd

import common
from common import METRIC, ROOT, about, fill, kedro, load, markdown, parser, save

WORK: Final = common.WORK / "ablation"
PAGE: Final = ROOT / "docs" / "results.md"
SHARED: Final = "beir:../shared/data"
LANGUAGES: Final = [
    *(f"xquad/{name}" for name in ["en", "es", "de", "ar", "hi", "zh"]),
    "chatbot_ko",
    "hinglish_top",
]
MAIN: Final = ["scifact", "api_docs", "medquad_whole", "sae4k_ko"]
COLLECTIONS: Final = {
    "scifact": f"scifact={SHARED}/scifact",
    "api_docs": "api_docs=api_docs",
    "kg_webnlg/beir_en": f"kg_webnlg/beir_en={SHARED}/kg_webnlg/beir_en,ingestion.max_queries=3000",
    "medquad": f"medquad={SHARED}/medquad,ingestion.max_queries=1500",
    "medquad_whole": f"medquad_whole={SHARED}/medquad",
    "sae4k_ko": f"sae4k_ko={SHARED}/sae4k_ko,ingestion.max_queries=2000",
    **{name: f"{name}={SHARED}/{name}" for name in LANGUAGES},
}
STATIC: Final = "encoder=static"
NATIVE: Final = "encoder=corpus"
# As it did best before the corpus had an encoder of its own.
STATIC_AT_BEST: Final = f"{STATIC},training.options.learning_rate=0.02,training.options.epochs=5"


class Matrix(NamedTuple):
    """Systems, the first tested against the others; collections, by name or place; seeds; settings."""

    systems: list[str]
    collections: list[str]
    seeds: str = "1,2,3"
    params: str = STATIC


FOUR: Final = ["scifact", "api_docs", "kg_webnlg/beir_en", "medquad"]
MATRICES: Final = {
    "judged_by_evidence": Matrix(
        [
            "anmi_labels_only",
            "in_batch",
            "random",
            "bm25_random",
            "naive_top",
            "nv_retriever",
            "clean_top",
        ],
        FOUR,
    ),
    "native_main": Matrix(["anmi"], MAIN, params=NATIVE),
    "native_unlabelled": Matrix(
        ["anmi"], ["scifact", "api_docs", "sae4k_ko"], params=f"{NATIVE},training.options.labels=0"
    ),
    "native_languages": Matrix(["anmi"], LANGUAGES, "1", NATIVE),
    "static_main": Matrix(["anmi"], MAIN, "1", STATIC_AT_BEST),
    "static_languages": Matrix(["anmi"], LANGUAGES, "1", STATIC_AT_BEST),
}
# Heading, collection and judgments of the page's table.
COLUMNS: Final = (
    ("scifact", "scifact", "original"),
    ("api_docs, completed", "api_docs", "completed"),
    ("WebNLG, completed", "kg_webnlg/beir_en", "completed"),
    ("WebNLG, original", "kg_webnlg/beir_en", "original"),
    ("medquad", "medquad", "original"),
)


def run(name: str, most: int = 3) -> int:
    """Run a matrix with the first seeds; cells and table lie in a folder of its name."""
    matrix = MATRICES[name]
    return ablate(matrix._replace(seeds=",".join(matrix.seeds.split(",")[:most])), WORK / name)


def ablate(matrix: Matrix, output: Path, *more: str) -> int:
    """Run a matrix by the command that users have."""
    places = ",".join(COLLECTIONS.get(each, each) for each in matrix.collections)
    words = ["--collections", places, "--seeds", matrix.seeds, "--output", str(output), *more]
    words += ["--params", matrix.params]
    return kedro("anmi", "ablate", *matrix.systems, *words, check=False)


def newest(name: str) -> tuple[dict[str, Any], pd.DataFrame] | None:
    """Return the results of a matrix and its queries, a row for each cell, judgments and query; None without a run."""
    file = WORK / name / "ablation.json"
    if not file.is_file():
        return None
    results = json.loads(file.read_text(encoding="utf-8"))
    date = datetime.datetime.fromtimestamp(file.stat().st_mtime, datetime.UTC).isoformat(
        timespec="seconds"
    )
    results |= about() | {
        "date": date,
        "from": {each: COLLECTIONS[each] for each in MATRICES[name].collections},
    }
    tables = []
    for cell in results["cells"]:
        names = {"collection": cell["collection"], "recipe": cell["system"], "seed": cell["seed"]}
        table = pd.read_parquet(file.parent / cell["folder"] / "queries.parquet")
        keys = ["query_id", "judgments", "bucket"]
        wide = (
            table.pivot_table(METRIC, keys, "system")
            .rename(columns=lambda kind: f"{kind}_{METRIC}")
            .reset_index()
        )
        tables.append(
            wide.rename(columns={f"trained_{METRIC}": METRIC, "bucket": "documents"}).assign(
                **names
            )
        )
    return results, pd.concat(tables)


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("set", nargs="?", default="judged_by_evidence", choices=MATRICES)
    arguments.add_argument(
        "--page", action="store_true", help="only make the table of docs/results.md"
    )
    given = arguments.parse_args()
    code = 0 if given.page else run(given.set)
    if given.set == "judged_by_evidence":
        if not given.page and (found := newest(given.set)):
            document = {
                name: found[0][name] for name in ("date", "machine", "versions", "from", "failed")
            }
            document["rows"] = [
                row | row.pop("facts") for row in found[0]["rows"] if row["bucket"] == "all"
            ]
            save("ablation", document)
        fill(PAGE, "ablation.py", page_table(load("ablation")["rows"]))
    sys.exit(code)


def page_table(rows: list[dict[str, Any]]) -> str:
    """Return nDCG@10 of every recipe, the best mean first; ▼ where it is significantly behind the first system."""
    found = {(row["system"], row["collection"], row["judgments"]): row for row in rows}
    # Of collections with completed judgments these count.
    best = {row["collection"]: "original" for row in rows}
    best |= {row["collection"]: "completed" for row in rows if row["judgments"] == "completed"}
    systems = dict.fromkeys(row["system"] for row in rows)
    means = {
        name: sum(found[name, *each]["ndcg_10"] for each in best.items()) / len(best)
        for name in systems
    }
    header = [
        "recipe",
        *(name for name, *_ in COLUMNS),
        "mean",
        "relevant in truth, WebNLG",
        "training, s",
    ]
    lines = []
    for name in sorted(means, key=lambda name: -means[name]):
        rate = found[name, "kg_webnlg/beir_en", "completed"].get("false_negative_rate")
        seconds = [found[name, *each]["train_seconds"] for each in best.items()]
        lines.append(
            [
                f"`{name}`",
                *(marked(found[name, *place]) for _, *place in COLUMNS),
                f"{means[name]:.3f}",
                "–" if rate is None else f"{100 * rate:.1f} %",
                f"{sum(seconds) / len(seconds):.0f}",
            ]
        )
    return markdown(header, lines)


def marked(row: dict[str, Any]) -> str:
    """Return a mean with its mark."""
    behind = row["p_holm"] is not None and row["p_holm"] < 0.05 and row["difference"] < 0
    return f"{row['ndcg_10']:.3f}" + (" ▼" if behind else "")


if __name__ == "__main__":
    main()
