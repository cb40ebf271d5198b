"""These nodes write the report and the results."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from anmi.pipelines.evaluation.search import kind_of_queries
from anmi.pipelines.params import EvaluationParams
from anmi.search import HybridSearch

if TYPE_CHECKING:
    from anmi.report.figures import Figure

_PACKAGES: Final = (
    "anmi", "kedro", "torch", "sentence-transformers", "transformers", "bm25s", "faiss-cpu", "numpy", "pandas",
    "scikit-learn", "mlflow",
)  # fmt: skip


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
    return {"python": platform.python_version()} | {name: importlib.metadata.version(name) for name in _PACKAGES}


def collect_results(
    metrics: pd.DataFrame, comparisons: pd.DataFrame, *, training_summary: dict[str, Any],
    selection_summary: dict[str, Any], drawn: pd.DataFrame, equivalents: pd.DataFrame, queries: pd.DataFrame,
    qrels: pd.DataFrame, info: dict[str, Any], evaluation: EvaluationParams, search_index: HybridSearch,
) -> dict[str, Any]:  # fmt: skip
    """Return everything `kedro anmi results` shows, as one JSON document.

    ``test_queries`` says whether they have labels, or ``pseudo_queries`` stand in for them, which is a weaker proof;
    ``none`` where nothing was asked.
    Where training drew negatives, the relevant ones among those are counted, not among what they were drawn from.
    """
    return {
        "collection": info["collection"], "recipe": selection_summary.get("recipe"),
        "marks": info["notes"].get("marks"),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"), "machine": machine(),
        "versions": versions(), "prompts": training_summary.get("prompts"),
        "test_queries": kind_of_queries(queries, qrels, evaluation.split) if len(metrics) else "none",
        "hybrid": {name: search_index.settings.get(name) for name in ("method", "weights", "fit")},
        "rows": metrics.to_dict("records"), "comparisons": comparisons.to_dict("records"),
        "funnel": selection_summary["funnel"], "expected": selection_summary.get("expected"),
        "false_negatives": _false_negatives(selection_summary, drawn, equivalents, qrels),
        "quarantined": info["quarantined"],
    }  # fmt: skip


def _false_negatives(
    selection_summary: dict[str, Any], drawn: pd.DataFrame, equivalents: pd.DataFrame, qrels: pd.DataFrame
) -> dict[str, Any] | None:
    from anmi.evaluation.diagnostics import false_negatives_of_pairs

    selected: dict[str, Any] | None = selection_summary["false_negatives"]
    if drawn.empty or equivalents.empty:
        return selected
    counted = false_negatives_of_pairs(drawn, set(drawn["query_id"]), equivalents, qrels)
    return counted | {"of": "drawn", "judge": (selected or {}).get("judge", {})}


def draw_figures(
    results: dict[str, Any], selection_summary: dict[str, Any], training_log: pd.DataFrame
) -> tuple[Any, Any, Any, Any]:
    """Draw quality, what each step took out, false negatives against hardness, and training, as plotly figures."""
    from anmi.report import figures

    return (
        _drawn(figures.metrics(pd.DataFrame(results["rows"]))),
        _drawn(figures.funnel(selection_summary["funnel"])),
        _drawn(figures.relevance_by_nearness(selection_summary.get("by_nearness"))),
        _drawn(figures.training(training_log)),
    )


def _drawn(figure: Figure | None) -> Any:
    # Without a title: Kedro-Viz names the figure, and has margins and a height of its own.
    from plotly.graph_objects import Figure as Drawn

    return Drawn() if figure is None else Drawn(figure.spec)


def render_report(
    results: dict[str, Any], *, training_rows: pd.DataFrame, training_log: pd.DataFrame,
    training_summary: dict[str, Any], selection_summary: dict[str, Any], cross_encoder: dict[str, Any],
    fused_judge: dict[str, Any], llm_judge: dict[str, Any], hardness_results: dict[str, Any],
    knowledge_metrics: dict[str, Any], neighbours: dict[str, Any], latent_neighbours: pd.DataFrame,
    pseudo_query_summary: dict[str, Any], info: dict[str, Any], encoder_info: dict[str, Any], encoder: str, recipe: str,
) -> str:  # fmt: skip
    """Return the report as one self-contained HTML document."""
    from anmi.report.html import ReportInputs, render
    from anmi.report.sentences import judge_entries

    return render(
        ReportInputs(
            results=pd.DataFrame(results["rows"]),
            comparisons=pd.DataFrame(results["comparisons"]),
            summary={
                "collection": info["collection"],
                "recipe": recipe,
                "encoder": encoder,
                "prompts": _prompts(training_summary, encoder_info),
                "run": results.get("run"),
                "date": results["date"],
                "versions": results["versions"],
                "counts": {"documents": info["documents"]}
                | {f"{split} queries": count for split, count in info["queries"].items()}
                | {"training rows": len(training_rows)},
                "marks": results.get("marks"),
            },
            funnel=selection_summary["funnel"],
            origins=selection_summary.get("origins") or {},
            distributions=selection_summary["distributions"],
            training_log=training_log,
            judges=judge_entries(cross_encoder, fused_judge),
            gap=selection_summary["gaps"].get("elo") or {},
            expected=selection_summary.get("expected") or {},
            false_negatives=results["false_negatives"] or {},
            nearness=selection_summary.get("by_nearness"),
            hardness=hardness_results,
            knowledge=knowledge_metrics,
            neighbours=neighbours,
            llm=llm_judge,
            latent_neighbours=latent_neighbours,
            test_queries=results.get("test_queries") or "labels",
            pseudo_queries=pseudo_query_summary,
            hybrid=results.get("hybrid") or {},
            parameters={
                "collection": info,
                "mining encoder": encoder_info,
                "training": training_summary,
                "cross_encoder": {key: value for key, value in cross_encoder.items() if key != "reliability"},
                "fused judge": {key: value for key, value in fused_judge.items() if key not in ("judges", "models")},
            },
        )
    )


def _prompts(training_summary: dict[str, Any], encoder_info: dict[str, Any]) -> str:
    """Say what the encoder was trained and measured with, and what was mined with where that is something else."""
    from anmi.retrieval.kinds import in_words

    trained, mined = (part.get("prompts") for part in (training_summary, encoder_info))
    texts = [in_words(trained)] if trained else []
    if mined and mined != trained:
        texts.append(f"mining: {in_words(mined)}")
    return "; ".join(texts)
