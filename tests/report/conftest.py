"""A report's inputs as a run would make them, from random numbers."""

import io
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

SCORES = {
    "bm25": {"ndcg@10": 0.541, "mrr@10": 0.512, "recall@10": 0.795, "recall@100": 0.921},
    "zero_shot": {"ndcg@10": 0.602, "mrr@10": 0.571, "recall@10": 0.842, "recall@100": 0.958},
    "anmi_2_1": {"ndcg@10": 0.664, "mrr@10": 0.628, "recall@10": 0.887, "recall@100": 0.975},
}


def results() -> pd.DataFrame:
    columns = ["collection", "encoder", "recipe", "seed_count", "metric", "value", "low", "high"]
    rows = [
        ("api_docs", "minilm", system, 1, metric, value, value - 0.02, value + 0.021)
        for system, scores in SCORES.items()
        for metric, value in scores.items()
    ]
    return pd.DataFrame(rows, columns=columns)


def comparisons() -> pd.DataFrame:
    columns = ["system", "baseline", "metric", "difference", "low", "high", "p_value"]
    rows = []
    for pair in (("anmi_2_1", "zero_shot"), ("anmi_2_1", "bm25"), ("bm25", "zero_shot")):
        for metric, value in SCORES[pair[0]].items():
            gain = value - SCORES[pair[1]][metric]
            p_value = 0.0002 if abs(gain) > 0.02 else 0.04
            rows.append((*pair, metric, gain, gain - 0.015, gain + 0.016, p_value))
    return pd.DataFrame(rows, columns=columns)


def funnel() -> list[dict]:
    rows = [
        ("candidates", "total", 98_412, 1000),
        ("consistency", "rejected", 11_870, 121),
        ("denoise", "rejected", 9_644, 0),
        ("max_ratio", "rejected", 14_310, 0),
        ("elo_gap", "rejected", 20_000, 0),
        ("promote", "promoted", 455, 0),
        ("uncertain", "uncertain", 1_500, 0),
        ("not drawn", "undecided", 34_522, 879),
        ("negatives", "negative", 6_111, 876),
        ("all 7 negatives", "complete", 6_062, 866),
    ]
    found = [dict(zip(("step", "kind", "candidates", "queries"), row, strict=True)) for row in rows]
    rules = {"max_ratio": "dense ≥ 0.95 of the positive's", "promote": "p_relevant ≥ 0.9"}
    return [row | ({"rule": rules[row["step"]]} if row["step"] in rules else {}) for row in found]


def distributions() -> dict[str, dict]:
    rng = np.random.default_rng(0)
    ranges = {
        "dense": (0.0, 1.0),
        "bm25": (0.0, 40.0),
        "p_relevant": (0.0, 1.0),
        "elo": (600.0, 1600.0),
    }
    shapes = {"positives": (9, 3, 1000), "kept": (3, 7, 40_633), "negatives": (4, 6, 6_111)}
    rejected = {"consistency": (3, 5, 11_870), "denoise": (7, 3, 9_644)}
    rejected |= {"max_ratio": (6, 3, 14_310), "elo_gap": (5, 4, 21_955)}
    histograms = {}
    for name, (low, high) in ranges.items():
        edges = np.linspace(low, high, 41)
        counts = {
            group: np.histogram(low + (high - low) * rng.beta(*shape), edges)[0].tolist()
            for group, shape in (shapes | rejected).items()
        }
        by_step = {step: counts.pop(step) for step in rejected}
        histograms[name] = {"edges": edges.tolist(), **counts, "rejected": by_step}
    return histograms


def training_log() -> pd.DataFrame:
    rng = np.random.default_rng(1)
    step = np.arange(1, 241)
    dev = np.full(240, np.nan)
    dev[79::80] = [0.641, 0.658, 0.661]
    loss = 1.1 * np.exp(-step / 90) + 0.55 + rng.normal(0, 0.08, 240)
    temperature = 0.05 - 0.012 * (1 - np.exp(-step / 120))
    columns = {"step": step, "epoch": step / 80, "loss": loss, "temperature": temperature}
    return pd.DataFrame(columns | {"dev_ndcg@10": dev})


SEARCH: dict[str, Any] = {
    "method": "convex",
    "weights": {"bm25": 0.25, "network": 0.75},
    "fit": {
        "queries": 40,
        "unlabelled": 30,
        "ndcg@10": {"bm25": 0.5, "network": 0.612, "dense": 0.4, "hybrid": 0.625},
        "without": {"bm25": 0.612, "network": 0.541},
    },
    "left_out": {"corpus": "no text"},
    "milliseconds": {"bm25": 0.54, "network": 35.0},
    "megabytes": {"bm25": 1.25},
}


def reliability(bend: float, error: float) -> dict:
    predicted = np.linspace(0.05, 0.95, 10)
    bins = [
        {"predicted": float(p), "observed": float(p**bend), "count": int(900 * (1 - p) ** 2 + 40)}
        for p in predicted
    ]
    return {"bins": bins, "expected_calibration_error": error}


def nearness() -> dict:
    def group(scale: float) -> dict:
        expected = [scale * 2**number / 500 for number in range(6)]
        counts = [400, 900, 1_300, 900, 300, 10]
        known = [count // 4 for count in counts]
        relevant = [int(share * count) for share, count in zip(expected, known, strict=True)]
        judged = {"candidates": counts, "judged": counts, "expected": expected}
        return judged | {"known": known, "relevant": relevant}

    edges = [-0.2, -0.15, -0.1, -0.05, 0.0, 0.05, 0.1]
    return {"edges": edges, "chosen": group(1), "rejected": group(8)}


def full(
    measured: Any = None, compared: Any = None, selection: Any = None, **changes: Any
) -> dict[str, Any]:
    """Return the artifacts that a report is made of; some other than usual."""
    rng = np.random.default_rng(2)
    counts, edges = np.histogram(rng.normal(330, 110, 6111).clip(105), 40)
    tables = {
        "rows": results() if measured is None else measured,
        "comparisons": comparisons() if compared is None else compared,
    }
    leak = {"count": 31, "total": 6111, "share": 31 / 6111, "low": 0.0036, "high": 0.0072}
    leak |= {"queries": 27, "queries_total": 876, "known": 412}
    versions = {"anmi": "0.1.0", "torch": "2.9.0", "sentence-transformers": "6.2.0", "numpy": "2.4"}
    curves = {"dense": (0.788, 1.6, 0.091), "cross-encoder": (0.912, 1.15, 0.027)}
    judges = {
        name: {"auc": auc, "reliability": reliability(*curve), "method": "Platt scaling"}
        for name, (auc, *curve) in (curves | {"fused": (0.985, 1.02, 0.008)}).items()
    }
    gaps = {"column": "elo", "count": 6111, "mean": 330.2, "median": 329.0}
    gaps |= {"edges": edges.tolist(), "counts": counts.tolist()}
    expected = {"share": 0.012, "low": 0.01, "high": 0.015}
    expected |= {"judged": 6111, "total": 6111, "doubtful": 0}
    sources = {"bm25+dense": 5_000, "dense": 1_111}
    summary = {
        "funnel": funnel(),
        "distributions": distributions(),
        "by_nearness": nearness(),
        "origins": {"sources": sources, "tiers": {"window": 6_000, "deeper": 111}},
        "expected": expected,
        "gaps": {"elo": gaps},
    }
    records = {name: table.to_dict("records") for name, table in tables.items()}
    empty = (
        "training_summary",
        "cross_encoder",
        "llm_judge",
        "hardness_results",
        "knowledge_metrics",
        "neighbours",
        "pseudo_query_summary",
        "dimension_metrics",
        "encoder_info",
    )
    artifacts: dict[str, Any] = {
        "results": records | {"date": "2025-01-31", "versions": versions, "false_negatives": leak},
        "selection_summary": summary | (selection or {}),
        "collection_info": {
            "collection": "api_docs",
            "documents": 3312,
            "queries": {"train": 1000, "test": 412},
        },
        "training_rows": range(1000),
        "training_log": training_log(),
        "latent_neighbours": pd.DataFrame(),
        "fused_judge": {"judges": judges},
        "encoder": "minilm",
        "recipe": "anmi_2_1",
    }
    return {name: {} for name in empty} | artifacts | changes


@pytest.fixture
def make():
    return full


def printed(table: Any, width: int = 80) -> str:
    stream = io.StringIO()
    Console(file=stream, width=width).print(table)
    return stream.getvalue()
