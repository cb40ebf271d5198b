"""What the parts of the search find alone and together, with the weights that dev queries choose.

Takes the cells that native.py has run: ``part_runs`` and ``dev_part_runs`` of the newest run in
each. The combination that leaves the network out was the default before; BM25 and the network need
no training. ``seconds`` are those of a query, the median; ``megabytes`` of index and model.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pandas as pd

from ablation import MATRICES, WORK
from anmi.adaptation.pseudo_tests import unlabelled_splits, with_pseudo_tests
from anmi.corpus.related import hits_of
from anmi.evaluation.metrics import evaluate, of_documents
from anmi.search.fit import fit_on_dev, fused_run
from common import METRIC, about, artifact, mean, parser, save, table

BUCKETS: Final = ("all", "labelled", "unlabelled", "new")
COMBINATIONS: Final = (("bm25", "dense"), ("bm25", "network"), ("bm25", "dense", "network"))
TABLES: Final = ("corpus", "queries", "qrels", "pseudo_queries", "part_runs", "dev_part_runs")


class Cell:
    """One run: its tables, the queries that fit and those that measure."""

    def __init__(self, folder: Path) -> None:
        tables = {name: table(folder, name) for name in TABLES}
        self.runs, self.dev_runs = tables["part_runs"], tables["dev_part_runs"]
        self.buckets = table(folder, "query_buckets").set_index("query_id").bucket
        self.search = json.loads(artifact(folder, "results.json").read_text())["search"]
        corpus, queries, qrels = (tables[name] for name in TABLES[:3])
        is_trained_on = qrels.query_id.isin(queries.query_id[queries.split == "train"])
        positives = qrels.document_id[is_trained_on & (qrels.relevance > 0)]
        self.positives = set(hits_of(corpus)[corpus.document_id.isin(positives)])
        pseudo_queries = tables["pseudo_queries"]
        lacking = unlabelled_splits(queries, qrels)
        self.dev = with_pseudo_tests(corpus, queries, qrels, pseudo_queries, {"dev"} & {*lacking})
        self.labelled = set(queries.query_id)
        self.test = with_pseudo_tests(corpus, queries, qrels, pseudo_queries, {"test"} & {*lacking})
        self.truth = of_documents(
            self.test[2][self.test[2].query_id.isin(self.buckets.index)], self.test[0]
        )

    def weights(self, names: tuple[str, ...]) -> dict[str, float]:
        """Return the weights that dev queries choose, as a run does."""
        corpus, queries, qrels = self.dev
        labelled = queries[queries.query_id.isin(self.labelled)]
        fit = fit_on_dev(
            self.dev_runs,
            corpus,
            labelled,
            qrels,
            names=names,
            positives=self.positives,
            depth=100,
            seed=1,
        )
        return dict(fit["weights"])

    def rows(self, weights: Mapping[str, float]) -> Iterator[dict[str, Any]]:
        """Yield a row per bucket of a search with these weights."""
        settings = {"method": "convex", "weights": weights, "depth": 100}
        run = fused_run(self.runs, *self.test, settings, 100)
        values = evaluate(self.truth, run, (10,))[METRIC]
        kept = [name for name, weight in weights.items() if weight]
        milliseconds = self.search["milliseconds"]
        megabytes = self.search["megabytes"]
        for bucket in BUCKETS:
            chosen = values if bucket == "all" else values[self.buckets[values.index] == bucket]
            if len(chosen):
                yield {
                    "parts": " + ".join(kept),
                    "weights": {name: weights[name] for name in kept},
                    "bucket": bucket,
                    **mean(chosen),
                    "seconds": _sum(milliseconds, kept, 1e-3),
                    "megabytes": _sum(megabytes, kept, 1.0),
                }


def _sum(values: Mapping[str, float], names: list[str], unit: float) -> float | None:
    known = [values[name] for name in names if name in values]
    return round(sum(known) * unit, 4) if len(known) == len(names) else None


def rows_of(folder: Path, cell: Mapping[str, Any], labels: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of a cell: each part alone, the combinations, and the search that was deployed."""
    here = {"collection": cell["collection"], "labels": labels, "seed": cell["seed"]}
    run = Cell(folder)
    parts = [name for name in run.runs.part.unique() if name != "zero_shot"]
    chosen = [{name: 1.0} for name in parts]
    chosen += [run.weights(names) for names in COMBINATIONS if {*names} <= {*parts}]
    for weights in chosen:
        yield from (here | row | {"deployed": False} for row in run.rows(weights))
    yield from (here | row | {"deployed": True} for row in run.rows(run.search["weights"]))


def main() -> None:
    parser(__doc__).parse_args()
    rows: list[dict[str, Any]] = []
    left_out = {}
    for name in (name for name in MATRICES if name.startswith("native_")):
        labels = "none" if name.endswith("_unlabelled") else "all"
        file = WORK / name / "ablation.json"
        for cell in json.loads(file.read_text())["cells"] if file.is_file() else ():
            folder = WORK / name / cell["folder"]
            rows += rows_of(folder, cell, labels)
            results = json.loads(artifact(folder, "results.json").read_text())
            left_out[f"{cell['collection']}, {labels}"] = results["search"]["left_out"]
    save("parts", {"about": about() | {"left_out": left_out}, "rows": rows})
    print(pd.DataFrame(rows)[lambda table: table.bucket == "all"].to_string())


if __name__ == "__main__":
    main()
