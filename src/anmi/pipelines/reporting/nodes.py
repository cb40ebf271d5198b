"""Nodes of reporting."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from anmi.candidates import CandidateShards
from anmi.pipelines.evaluation.asked import asked_of, kind_of_queries
from anmi.pipelines.evaluation.params import EvaluationParams
from anmi.pipelines.reporting.params import ReportingParams
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
    metrics: pd.DataFrame,
    comparisons: pd.DataFrame,
    *,
    training_summary: dict[str, Any],
    selection_summary: dict[str, Any],
    drawn: pd.DataFrame,
    equivalents: pd.DataFrame,
    queries: pd.DataFrame,
    qrels: pd.DataFrame,
    info: dict[str, Any],
    evaluation: EvaluationParams,
    search_index: HybridSearch,
) -> dict[str, Any]:
    """Return everything `kedro anmi results` shows, as one JSON document.

    ``test_queries`` says whether they have labels, or ``pseudo_queries`` stand in for them, which is a weaker proof.
    Where training drew negatives, the relevant ones among those are counted, not among what they were drawn from.
    """
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "versions": versions(),
        "prompts": training_summary.get("prompts"),
        "test_queries": kind_of_queries(queries, qrels, evaluation.split),
        "hybrid": {name: search_index.settings.get(name) for name in ("method", "weights", "fit")},
        "rows": metrics.to_dict("records"),
        "comparisons": comparisons.to_dict("records"),
        "funnel": selection_summary["funnel"],
        "expected": selection_summary.get("expected"),
        "false_negatives": _false_negatives(selection_summary, drawn, equivalents, qrels),
        "quarantined": info["quarantined"],
    }


def _false_negatives(
    selection_summary: dict[str, Any], drawn: pd.DataFrame, equivalents: pd.DataFrame, qrels: pd.DataFrame
) -> dict[str, Any] | None:
    from anmi.evaluation.diagnostics import false_negatives_of_pairs

    selected: dict[str, Any] | None = selection_summary["false_negatives"]
    if drawn.empty or equivalents.empty:
        return selected
    counted = false_negatives_of_pairs(drawn, set(drawn["query_id"]), equivalents, qrels)
    return counted | {"of": "drawn", "judge": (selected or {}).get("judge", {})}


def draw_metrics(results: dict[str, Any]) -> Any:
    """Draw the systems' quality with intervals as a plotly figure; an empty one where nothing was measured."""
    from anmi.report.figures import metrics

    return _drawn(metrics(pd.DataFrame(results["rows"])))


def draw_selection(selection_summary: dict[str, Any]) -> tuple[Any, Any]:
    """Draw what each step took out of the candidates, and false negatives against hardness, as plotly figures."""
    from anmi.report.false_negatives import relevance_by_nearness
    from anmi.report.funnel import funnel

    nearness = relevance_by_nearness(selection_summary.get("by_nearness"))
    return _drawn(funnel(selection_summary["funnel"])), _drawn(nearness)


def draw_training(training_log: pd.DataFrame) -> Any:
    """Draw loss, temperature and dev metric over the steps as a plotly figure."""
    from anmi.report.figures import training

    return _drawn(training(training_log))


def _drawn(figure: Figure | None) -> Any:
    # Without a title: Kedro-Viz names the figure, and has margins and a height of its own.
    from plotly.graph_objects import Figure as Drawn

    return Drawn() if figure is None else Drawn(figure.spec)


def render_report(
    results: dict[str, Any],
    *,
    training_rows: pd.DataFrame,
    training_log: pd.DataFrame,
    training_summary: dict[str, Any],
    selection_summary: dict[str, Any],
    cross_encoder: dict[str, Any],
    fused_judge: dict[str, Any],
    hardness_results: dict[str, Any],
    knowledge_metrics: dict[str, Any],
    neighbours: dict[str, Any],
    pseudo_query_summary: dict[str, Any],
    sparse_terms: dict[str, Any],
    info: dict[str, Any],
    encoder_info: dict[str, Any],
    encoder: str,
    recipe: str,
    params: ReportingParams,
    evaluation: EvaluationParams,
    selection: CandidateShards,
    corpus: pd.DataFrame,
    queries: pd.DataFrame,
    qrels: pd.DataFrame,
    pseudo_queries: pd.DataFrame,
    query_metrics: pd.DataFrame,
    query_buckets: pd.DataFrame,
    runs: pd.DataFrame,
    node_times: list[dict[str, Any]],
) -> str:
    """Return the report as one self-contained HTML document."""
    from anmi.report.before_after import before_after, held_out
    from anmi.report.html import render
    from anmi.report.inputs import ReportInputs, judge_entries, passes_sentence
    from anmi.selection.rows import of_split

    rows = of_split(training_rows, "train")
    asked = asked_of(corpus, queries, qrels, pseudo_queries, evaluation.split)
    # Pseudo-queries ask of the same documents, shortened; places and texts are those of the collection.
    place_of = dict(zip(corpus.document_id, range(len(corpus)), strict=True))
    compared = held_out(query_metrics, runs, asked.qrels, place_of, pd.DataFrame(results["rows"]))
    texts = dict(zip(asked.queries.query_id, asked.queries.text, strict=True))
    return render(
        ReportInputs(
            results=pd.DataFrame(results["rows"]),
            comparisons=pd.DataFrame(results["comparisons"]),
            summary={
                "collection": info["collection"],
                "recipe": recipe,
                "encoder": encoder,
                "prompts": _prompts(training_summary, encoder_info),
                "date": results["date"],
                "versions": results["versions"],
                "counts": {"documents": info["documents"]}
                | {f"{split} queries": count for split, count in info["queries"].items()}
                | {"training rows": len(rows)}
                | ({"rows of dev queries": len(training_rows) - len(rows)} if len(training_rows) > len(rows) else {}),
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
            test_queries=results.get("test_queries") or "labels",
            pseudo_queries=pseudo_query_summary,
            hybrid=results.get("hybrid") or {},
            sparse_terms=sparse_terms,
            kept_epoch=_kept_epoch(training_summary),
            passes=passes_sentence(training_summary),
            queries=_query_table(selection, corpus, queries, asked.queries, compared, evaluation, params),
            before_after=before_after(compared, query_buckets, texts, corpus, asked.qrels),
            times=node_times,
            parameters={
                "collection": info,
                "mining encoder": encoder_info,
                "training": training_summary,
                "cross_encoder": {key: value for key, value in cross_encoder.items() if key != "reliability"},
                "fused judge": {key: value for key, value in fused_judge.items() if key not in ("judges", "models")},
            },
        )
    )


def _query_table(
    selection: CandidateShards,
    corpus: pd.DataFrame,
    queries: pd.DataFrame,
    asked: pd.DataFrame,
    compared: list[dict[str, Any]],
    evaluation: EvaluationParams,
    params: ReportingParams,
) -> dict[str, Any] | None:
    from anmi.corpus.hardness import hardness
    from anmi.report.query_table import QueryTable

    known = pd.concat([queries, asked]).drop_duplicates("query_id")
    hard = hardness(known.text.tolist(), evaluation.hardness).value
    by_id = {name: dict(zip(known.query_id, known[name], strict=True)) for name in ("text", "split")}
    hardness_of = dict(zip(known.query_id, hard.tolist(), strict=True))
    table = QueryTable(by_id["text"], hardness_of, by_id["split"], params.queries)
    # Held-out ones first: where there is room for some only, each of them says more than one more of those mined.
    table.add_held_out(compared)
    table.add_mined(selection)
    return table.as_dict(corpus)


def _prompts(training_summary: dict[str, Any], encoder_info: dict[str, Any]) -> str:
    """Say what the encoder was trained and measured with, and what was mined with where that is something else."""
    from anmi.retrieval.prompts import in_words

    trained, mined = (part.get("prompts") for part in (training_summary, encoder_info))
    texts = [in_words(trained)] if trained else []
    if mined and mined != trained:
        texts.append(f"mining: {in_words(mined)}")
    return "; ".join(texts)


def _kept_epoch(training_summary: dict[str, Any]) -> int | None:
    """Return whose weights were kept by dev, which measured the first of two passes; None for the last epoch's."""
    keeps = (training_summary.get("options") or {}).get("keep_best")
    epoch: int | None = training_summary.get("first_pass", training_summary).get("best_epoch") if keeps else None
    return epoch
