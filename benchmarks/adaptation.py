"""What adaptation and a hybrid bring, beside BM25, the untrained encoder and the miner of sentence-transformers.

Cells are those of ``kedro anmi ablate`` (matrix ``adaptation`` of benchmarks/ablation.py): every recipe trains as a run
does and is measured alone and with BM25, by what training saw of a query's documents: ``labelled`` (a training query's
label names one), ``new`` (all are held out of mining and training), ``unlabelled`` (the others). The peer mines with
``mine_hard_negatives`` (top 5 below 95 % of the positive's score) and trains with MultipleNegativesRankingLoss, on the
same labels and without the new documents. Cells that are there are kept, so the script may be interrupted. Run from the
repository's root (``--collect`` trains nothing, and takes what is there):

    python benchmarks/adaptation.py
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pandas as pd

from ablation import WORK, newest, run
from anmi.evaluation.significance import compare, interval

ROOT: Final = Path(__file__).parents[1]
RESULT: Final = ROOT / "benchmarks" / "results" / "adaptation.json"
README, PAGE = ROOT / "README.md", ROOT / "docs" / "results.md"
# Between these lines of both.
MARKS: Final = ("<!-- made by benchmarks/adaptation.py -->\n", "<!-- end -->")
PEER: Final = "mine_hard_negatives"
# Rows of the tables: systems and how they are called.
SHOWN: Final = {
    "bm25": "BM25", "zero_shot": "zero-shot", PEER: "`mine_hard_negatives`, MNRL",
    "anmi_pseudo_only": "`anmi_pseudo_only`, no labels", "anmi_pseudo_only_hybrid": "the same with BM25",
    "anmi": "`anmi`", "anmi_hybrid": "**the same with BM25 (default)**",
}  # fmt: skip
BUCKETS: Final = ("all", "labelled", "unlabelled", "new")
METRIC: Final = "ndcg@10"
RESAMPLES: Final = 10_000
EPOCHS, RATE = 5, 2e-2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=WORK)
    parser.add_argument("--collect", action="store_true", help="only write the result, from cells that are there")
    arguments = parser.parse_args()
    if not arguments.collect:
        run("adaptation", arguments.work)
    found = newest("adaptation", arguments.work)
    assert found is not None, "no cell is there yet"
    results, queries = found
    rows, tests = [], []
    for collection, both in queries.groupby("collection", sort=False):
        kind = "completed" if (both.judgments == "completed").any() else "original"
        table = both[both.judgments == kind]
        values = {name: part for recipe, cells in table.groupby("recipe") for name, part in of_cells(recipe, cells)}
        cell = next(c for c in results["cells"] if (c["collection"], c["system"]) == (collection, "anmi"))
        folder = arguments.work / "adaptation" / cell["folder"]
        values[PEER] = peer(folder, completed=kind == "completed").reindex(values["anmi"].index)
        # A recipe that reads no label takes no document for labelled.
        bucket = table[table.recipe == "anmi"].drop_duplicates("query_id").set_index("query_id")["documents"]
        rows += [{"collection": collection, "judgments": kind} | row for row in rows_of(values, bucket)]
        tests += [{"collection": collection, "judgments": kind} | row for row in tests_of(values, bucket)]
    about = {key: results[key] for key in ("date", "machine", "versions", "from", "encoder", "failed")}
    document = {"about": about, "rows": rows, "tests": tests}
    RESULT.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for page, made in ((README, table_of(document, brief)), (PAGE, table_of(document, whole))):
        before, rest = page.read_text(encoding="utf-8").split(MARKS[0])
        page.write_text(before + MARKS[0] + made + MARKS[1] + rest.split(MARKS[1], 1)[1], encoding="utf-8")


def of_cells(recipe: Any, cells: pd.DataFrame) -> Iterator[tuple[str, pd.Series]]:
    """Yield by system the mean over seeds of every query."""
    means = cells.groupby("query_id")[[METRIC, *(f"{name}_{METRIC}" for name in ("hybrid", "bm25", "zero_shot"))]]
    mean = means.mean()
    yield from ((str(recipe), mean[METRIC]), (f"{recipe}_hybrid", mean[f"hybrid_{METRIC}"]))
    # Neither is trained, so recipes say nothing of them.
    yield from ((name, mean[f"{name}_{METRIC}"]) for name in ("bm25", "zero_shot"))


def peer(folder: Path, *, completed: bool) -> pd.Series:
    """Train by sentence-transformers alone on what a cell ingested; return nDCG@10 of every test query."""
    from datasets import Dataset
    from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
    from sentence_transformers.losses import MultipleNegativesRankingLoss
    from sentence_transformers.util import mine_hard_negatives

    from anmi.corpus.texts import document_texts
    from anmi.evaluation.metrics import completed_judgments, evaluate
    from anmi.evaluation.retrieval import ranked
    from anmi.retrieval.encoders import load_encoder

    measured = folder / f"{PEER}.parquet"
    if measured.is_file():
        return pd.read_parquet(measured)[METRIC]
    names = ("corpus", "queries", "qrels", "equivalents", "new_documents")
    tables = (pd.read_parquet(sorted((folder / "02_intermediate").glob(f"{name}.parquet/*/*"))[-1]) for name in names)
    corpus, queries, qrels, equivalents, new = tables
    texts = pd.Series(document_texts(corpus), index=corpus.document_id)
    pairs = qrels[qrels.relevance > 0].merge(queries[queries.split == "train"], on="query_id")
    columns = {"anchor": pairs.text.tolist(), "positive": pairs.document_id.map(texts).tolist()}
    model = load_encoder("static", ROOT / "data" / "store" / "models")
    data = mine_hard_negatives(
        Dataset.from_dict(columns), model, corpus=texts.drop(new.document_id).tolist(), relative_margin=0.05,
        range_max=100, num_negatives=5, sampling_strategy="top", output_format="n-tuple", batch_size=64,
    )  # fmt: skip
    arguments = SentenceTransformerTrainingArguments(
        output_dir=tempfile.mkdtemp(), num_train_epochs=EPOCHS, per_device_train_batch_size=64, seed=1,
        learning_rate=RATE, warmup_steps=0.1, save_strategy="no", report_to="none", use_cpu=True, disable_tqdm=True,
        batch_sampler="no_duplicates",
    )  # fmt: skip
    loss = MultipleNegativesRankingLoss(model)
    SentenceTransformerTrainer(model=model, args=arguments, train_dataset=data, loss=loss).train()
    asked = queries[(queries.split == "test") & queries.query_id.isin(qrels.query_id)]
    truth = qrels[qrels.query_id.isin(asked.query_id)]
    judged = completed_judgments(truth, equivalents) if completed else truth
    found = evaluate(judged, ranked(model, asked, qrels, corpus, 100), (10,), ignore_identical_ids=False)[[METRIC]]
    found.to_parquet(measured)
    return found[METRIC]


def rows_of(values: dict[str, pd.Series], bucket: pd.Series) -> Iterator[dict[str, Any]]:
    """Yield a row per system and bucket."""
    for system, series in values.items():
        for name in BUCKETS:
            chosen = series if name == "all" else series[bucket.reindex(series.index) == name]
            if chosen.empty:
                continue
            mean, low, high = interval(chosen.to_numpy(), seed=1, resamples=RESAMPLES, confidence=0.95)
            yield {
                "system": system, "bucket": name, "ndcg_10": round(mean, 4), "low": plain(low), "high": plain(high),
                "queries": len(chosen),
            }  # fmt: skip


def tests_of(values: dict[str, pd.Series], bucket: pd.Series) -> Iterator[dict[str, Any]]:
    """Yield paired tests: the hybrids against BM25, the default also against its encoder and the peer."""
    pairs = [(name, "bm25") for name in values if name.endswith("_hybrid")]
    pairs += [("anmi_hybrid", "anmi"), ("anmi_hybrid", PEER), ("anmi", PEER), ("anmi", "zero_shot")]
    for (first, second), name in ((pair, name) for pair in pairs for name in BUCKETS):
        chosen = values[first].index if name == "all" else bucket.index[bucket == name]
        if len(chosen) < 2:
            continue
        sides = (values[system].loc[chosen].to_numpy() for system in (first, second))
        found = compare(*sides, seed=1, resamples=RESAMPLES, confidence=0.95)
        yield {
            "system": first, "against": second, "bucket": name, "queries": len(chosen),
            "difference": round(found.difference, 4), "low": plain(found.low), "high": plain(found.high),
            "p_value": round(found.p_value, 5),
        }  # fmt: skip


def brief(of: dict[str, dict[str, Any]]) -> str:
    """Return nDCG@10 on unlabelled and on new documents."""
    return " / ".join(f"{of[name]['ndcg_10']:.3f}".lstrip("0") if name in of else "–" for name in BUCKETS[2:])


def whole(of: dict[str, dict[str, Any]]) -> str:
    """Return nDCG@10 over all test queries, and by what training saw."""
    return " / ".join(f"{of[name]['ndcg_10']:.3f}".lstrip("0") if name in of else "–" for name in BUCKETS)


def table_of(document: dict[str, Any], cell: Callable[[dict[str, dict[str, Any]]], str]) -> str:
    """Return a table with a row per system and a column per collection, with the numbers of its queries."""
    table = pd.DataFrame(document["rows"])
    collections = table.collection.unique().tolist()
    count = table[table.system == "bm25"].set_index(["collection", "bucket"]).queries
    heads = [f"{name} ({' / '.join(str(count.get((name, of), 0)) for of in BUCKETS[2:])})" for name in collections]
    lines = [f"| system | {' | '.join(heads)} |", f"|---|{'---|' * len(collections)}"]
    for system, name in SHOWN.items():
        own = table[table.system == system]
        cells = [cell(own[own.collection == each].set_index("bucket").to_dict("index")) for each in collections]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def plain(value: float) -> float | None:
    """Return a number for JSON; None where there is no interval."""
    return None if math.isnan(value) else round(float(value), 4)


if __name__ == "__main__":
    main()
