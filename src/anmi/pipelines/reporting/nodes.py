"""These nodes write the report and the results."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
from typing import Any, Final

import pandas as pd

from anmi import __version__
from anmi.corpus.related import count_labelled
from anmi.evaluation.generalisation import PSEUDO
from anmi.pipelines.params import EvaluationParams
from anmi.search import HybridSearch

_OF_SEARCH: Final = ("method", "weights", "fit", "left_out")
_PACKAGES: Final = (
    "kedro",
    "torch",
    "sentence-transformers",
    "transformers",
    "bm25s",
    "faiss-cpu",
    "numpy",
    "pandas",
    "scikit-learn",
    "mlflow",
)


def machine() -> dict[str, Any]:
    """Return what the figures were measured on."""
    import torch

    return {
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "device": torch.cuda.get_device_name(0) if torch.cuda.is_available() else "cpu",
        "system": platform.system(),
    }


def versions() -> dict[str, str]:
    """Return the versions of the packages that matter for the figures."""
    return {"python": platform.python_version(), "anmi": __version__} | {
        name: importlib.metadata.version(name) for name in _PACKAGES
    }


def collect_results(
    *,
    metrics: pd.DataFrame,
    comparisons: pd.DataFrame,
    training_summary: dict[str, Any],
    selection_summary: dict[str, Any],
    drawn_negatives: pd.DataFrame,
    equivalents: pd.DataFrame,
    queries: pd.DataFrame,
    qrels: pd.DataFrame,
    info: dict[str, Any],
    evaluation: EvaluationParams,
    measured_search: HybridSearch,
    final_choice: dict[str, Any],
    final_metrics: pd.DataFrame,
    part_milliseconds: dict[str, dict[str, float]],
    cross_encoder: dict[str, Any],
) -> dict[str, Any]:
    """Return everything `kedro anmi results` shows, as one JSON document.

    ``test_queries`` says whether they have ``labels``, or so few that ``pseudo_queries`` are
    measured beside them (``labels_and_pseudo_queries``) or alone, which is a weaker proof; ``none``
    where nothing was asked. ``final`` says how what is deployed differs from what was measured.
    Where training drew negatives, the relevant ones among those are counted, not among what they
    were drawn from.
    """
    kinds = {
        "labels": count_labelled(queries, qrels, evaluation.split) > 0,
        "pseudo_queries": PSEUDO in set(metrics.get("bucket", ())),
    }
    kind = "_and_".join(name for name, is_measured in kinds.items() if is_measured)
    search = {name: measured_search.settings.get(name) for name in _OF_SEARCH}
    return {
        "collection": info["collection"],
        "recipe": selection_summary.get("recipe"),
        "marks": info["notes"].get("marks"),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "versions": versions(),
        "prompts": training_summary.get("prompts"),
        "unchanged": training_summary.get("unchanged"),
        "test_queries": (kind or "pseudo_queries") if len(metrics) else "none",
        "new_documents": info["notes"].get("new_documents"),
        "final": final_choice["sentence"],
        "search": search | part_milliseconds | {"megabytes": measured_search.megabytes},
        "rows": [*metrics.to_dict("records"), *final_metrics.to_dict("records")],
        "comparisons": comparisons.to_dict("records"),
        "funnel": selection_summary["funnel"],
        "expected": selection_summary.get("expected"),
        "warnings": cross_encoder.get("warnings", []),
        "false_negatives": _false_negatives(
            selection_summary["false_negatives"], drawn_negatives, equivalents, qrels
        ),
        "quarantined": info["quarantined"],
    }


def _false_negatives(
    selected: dict[str, Any] | None,
    drawn_negatives: pd.DataFrame,
    equivalents: pd.DataFrame,
    qrels: pd.DataFrame,
) -> dict[str, Any] | None:
    """Return what was counted of selected negatives, or of drawn ones where training drew some."""
    from anmi.evaluation.diagnostics import false_negatives_of_pairs

    if drawn_negatives.empty or equivalents.empty:
        return selected
    query_ids = set(drawn_negatives["query_id"])
    counts = false_negatives_of_pairs(drawn_negatives, query_ids, equivalents, qrels)
    return counts | {"of": "drawn", "judge": (selected or {}).get("judge", {})}


def draw_figures(
    results: dict[str, Any], selection_summary: dict[str, Any], training_log: pd.DataFrame
) -> tuple[Any, ...]:
    """Draw quality, what each step took out, relevance by nearness, and training, in plotly."""
    from plotly.graph_objects import Figure

    from anmi.report import figures

    quality = figures.metrics(pd.DataFrame(results["rows"]))
    funnel = figures.funnel(selection_summary["funnel"])
    nearness = figures.relevance_by_nearness(selection_summary.get("by_nearness"))
    every_figure = (quality, funnel, nearness, figures.training(training_log))
    # Without a title: Kedro-Viz names the figure, and has margins and a height of its own.
    return tuple(Figure() if figure is None else Figure(figure.spec) for figure in every_figure)


def render_report(**artifacts: Any) -> str:
    """Return the report as one self-contained HTML document."""
    from anmi.report.html import render

    return render(artifacts)
