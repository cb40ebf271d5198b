"""The section of the report about negatives that are drawn in every step, and about what a graph lets one measure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from anmi.report.figures import KEPT, NEUTRAL, REJECTED, TRAINED_COLOURS, Figure, over_steps, plain, top_text, vertical
from anmi.report.inputs import system_name

# Name in the log: how it is written, and its colour; from easy to hard, as they are stacked.
SOURCES: Final = {
    "share_random": ("random", NEUTRAL),
    "share_graph": ("graph", TRAINED_COLOURS[0]),
    "share_edit": ("edit", KEPT),
    "share_latent": ("latent", REJECTED),
}
_SIGNALS: Final = {
    "margin_violations": ("violations (%)", 100),
    "latent_hit_rate": ("hit rate (%)", 100),
    "latent_staleness": ("staleness (steps)", 1),
    "replaced": ("replaced (%)", 100),
}
_COURSE: Final = {"loss": "loss (nats)", "grad_norm": "gradient norm", "dev_loss": "dev loss (nats)"}
# Steps on either side of a transition that are compared.
AROUND: Final = 20
_RELATIONS: Final = (("right", "right"), ("entails", "says all of it"), ("same_uri", "same entity"))
_LINKING: Final = {"linking_accuracy": "first entity right", "linking_mrr_10": "MRR@10 over entities"}
_KINDS: Final = {
    "": "all false kinds",
    "counterpart": "counterpart (true of something else)",
    "neighbour": "neighbour (true, lacks a fact)",
}


@dataclass(frozen=True)
class Transition:
    """The first step with another mix of sources, and what changed with it."""

    step: int
    what: str


def is_mixed(log: pd.DataFrame) -> bool:
    """Tell whether negatives were drawn from mixed sources."""
    return not log.empty and any(name in log for name in SOURCES)


def transitions(log: pd.DataFrame) -> list[Transition]:
    """Return where the mix of sources changed for good: at every new stage, or where it stopped moving.

    By ``stage`` for schedules that go by stages; else by ``difficulty``, the share of negatives that are not to be
    random. A schedule that has not ended has no transition.

    Examples
    --------
    >>> transitions(pd.DataFrame({"step": [1, 2, 3], "stage": [1.0, 2.0, 2.0]}))
    [Transition(step=2, what='stage 1 → 2')]
    >>> transitions(pd.DataFrame({"step": [1, 2, 3, 4], "difficulty": [0.0, 0.4, 0.8, 0.8]}))
    [Transition(step=3, what='final mix')]
    """
    if "stage" in log and log["stage"].notna().any():
        known = log.dropna(subset=["stage"])
        stage, step = known["stage"].to_numpy(), known["step"].to_numpy()
        places = np.flatnonzero(stage[1:] != stage[:-1]) + 1
        return [Transition(int(step[i]), f"stage {stage[i - 1]:g} → {stage[i]:g}") for i in places]
    if "difficulty" not in log:
        return []
    difficulty = log["difficulty"].to_numpy(np.float64)
    places = np.flatnonzero(difficulty[1:] != difficulty[:-1]) + 1
    if not len(places) or places[-1] == len(log) - 1:
        return []
    return [Transition(int(log["step"].iloc[places[-1]]), "final mix")]


def sources_figure(log: pd.DataFrame) -> Figure | None:
    """Stack the shares of the sources over the steps."""
    if not is_mixed(log):
        return None
    window = max(1, len(log) // 100)
    # The mean of what adds up to 1 adds up to 1.
    lines = [
        {
            "name": name,
            "y": plain(100 * _smooth(log[column], window, log)),
            "stackgroup": "sources",
            "line": {"width": 0.5, "color": colour},
            "fillcolor": colour,
            "hovertemplate": "%{y:.1f} %",
        }
        for column, (name, colour) in SOURCES.items()
        if column in log and (log[column] > 0).any()
    ]
    spec = over_steps(log, [("negatives (%)", lines)])
    spec["layout"] |= {"height": 340, "showlegend": True, "hovermode": "x unified"}
    spec["layout"]["yaxis"] |= {"range": [0, 100], "domain": [0, 1]}
    # On the areas, which fill the plot, in the light page as in the dark one.
    spec["layout"] |= _marks(log, "#FFFFFF")
    note = "Of the negatives drawn in a step"
    note += f", moving mean of {window} steps" if window > 1 else ""
    note += ". Dotted lines are the ends of epochs, dashed ones changes of the mix."
    return Figure("sources", "Where negatives came from as training went on", note, spec)


def signals_figure(log: pd.DataFrame) -> Figure | None:
    """Margin violations, hit rate, age of neighbours and replaced draws over the steps."""
    if not is_mixed(log):
        return None
    panels = [
        (title, _lines(log, name, scale))
        for name, (title, scale) in _SIGNALS.items()
        if name in log and log[name].notna().any()
    ]
    if not panels:
        return None
    spec = over_steps(log, panels)
    spec["layout"] |= _marks(log)
    note = (
        "Violations of the margin: drawn negatives that are nearly as similar as the positive, or more. Hit rate: of "
        "the nearest documents in the index, those that are about another entity and do not state all facts of the "
        "positive, so that they may be taken. Staleness: steps since the latent negatives of a step were encoded. "
        "Replaced: draws for which a source had nothing, so that another served. Thin: each step; thick: moving mean."
    )
    return Figure("signals", "How hard the negatives were, and how fresh", note, spec)


def transitions_figure(log: pd.DataFrame) -> Figure | None:
    """Loss, gradient norm and dev loss over the steps, with the transitions marked."""
    if not is_mixed(log):
        return None
    panels = [(title, _lines(log, name)) for name, title in _COURSE.items() if name in log and log[name].notna().any()]
    spec = over_steps(log, panels)
    spec["layout"] |= _marks(log, named=True)
    spec["layout"]["margin"] |= {"t": 32}
    note = (
        "Dashed lines are changes of the mix. The dev loss has one temperature and the same documents for every recipe."
    )
    return Figure("transitions", "Loss and gradient, and where the mix changed", note, spec)


def transition_rows(log: pd.DataFrame) -> list[dict[str, str]]:
    """Return, as texts, mean and standard deviation of loss and gradient norm just before and after each transition."""
    rows = []
    for change in transitions(log) if is_mixed(log) else ():
        before = log[(log["step"] < change.step) & (log["step"] >= change.step - AROUND)]
        after = log[(log["step"] >= change.step) & (log["step"] < change.step + AROUND)]
        cells = {
            f"{name}_{side}": _spread(part[name] if name in part else pd.Series(dtype=float))
            for name in ("loss", "grad_norm")
            for side, part in (("before", before), ("after", after))
        }
        rows.append({"step": f"{change.step:,}", "what": change.what, **cells})
    return rows


def factuality_rows(knowledge: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of the table of factuality: a row per kind of variant, cells by system."""
    entries = {
        system: {"": {name.removeprefix("factuality_"): value for name, value in found.items()}} | found["factuality"]
        for system, found in knowledge.items()
        if "factuality" in found
    }
    kinds = dict.fromkeys(kind for by_kind in entries.values() for kind in by_kind)
    rows = []
    for kind in kinds:
        cells = [by_kind.get(kind, {}) for by_kind in entries.values()]
        counted = next((cell for cell in cells if "queries" in cell), None)
        if counted is None:
            continue
        rows.append(
            {
                "kind": _KINDS.get(kind, kind),
                "queries": f"{counted['queries']:,}",
                "variants": f"{counted['variants']:,}",
                "cells": [_cell(cell, name) for cell in cells for name in ("auc", "paired")],
            }
        )
    return rows


def linking_rows(knowledge: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of the table of entity linking, a row per system."""
    return [
        {
            "system": system_name(system),
            "cells": [_cell(found, name) for name in _LINKING],
            "queries": f"{found['linking_queries']:,}",
            "left_out": f"{found['linking_left_out']:,}",
        }
        for system, found in knowledge.items()
    ]


def kept_sentence(log: pd.DataFrame, kept_epoch: int | None) -> str:
    """Say which weights were kept, where training went on after them; else nothing.

    Examples
    --------
    >>> log = pd.DataFrame({"step": [1, 2, 3], "epoch": [1.0, 2.0, 3.0], "stage": [1.0, 1.0, 2.0]})
    >>> kept_sentence(log, 2).partition("; ")[2]
    'it has not seen what came after, the change at step 3 (stage 1 → 2) included.'
    """
    last = 0 if log.empty or "epoch" not in log else round(log["epoch"].max())
    if kept_epoch is None or kept_epoch >= last:
        return ""
    seen = log.loc[log["epoch"] <= kept_epoch + 1e-6, "step"].max()
    missed = [change for change in transitions(log) if change.step > seen]
    changes = " and ".join(f"the change at step {change.step:,} ({change.what})" for change in missed)
    return (
        f"The trained model is that of epoch {kept_epoch} of {last}, whose dev metric was the best; it has not "
        f"seen what came after{f', {changes} included' if missed else ''}."
    )


def hardening(
    log: pd.DataFrame,
    knowledge: Mapping[str, Mapping[str, Any]],
    neighbours: Mapping[str, Any],
    kept_epoch: int | None = None,
) -> dict[str, Any] | None:
    """Return what the section shows of ``training_log``, ``knowledge_metrics`` and ``neighbours``.

    None where negatives were not drawn from sources and no graph tells more than the labels. ``kept_epoch`` is that of
    the trained model's weights, None for the last.
    """
    if not is_mixed(log) and not _tells_more(knowledge, neighbours):
        return None
    return {
        "figures": [figure for figure in (sources_figure(log), signals_figure(log), transitions_figure(log)) if figure],
        "kept": kept_sentence(log, kept_epoch) if is_mixed(log) else "",
        "transitions": transition_rows(log),
        "around": AROUND,
        "factuality": factuality_rows(knowledge),
        "factuality_systems": [system_name(name) for name, found in knowledge.items() if "factuality" in found],
        "linking": linking_rows(knowledge),
        "linking_columns": list(_LINKING.values()),
        "shares": _shares(neighbours),
        "confusions": [
            row | {"count": f"{row['count']:,}", "share": f"{100 * row['share']:.1f}\u00a0%"}
            for row in neighbours.get("confusions", ())
        ],
        "neighbours": [_example(row) for row in neighbours.get("examples", ())],
    }


def _tells_more(knowledge: Mapping[str, Mapping[str, Any]], neighbours: Mapping[str, Any]) -> bool:
    """Tell whether facts were tested, or an entity is more than the one document about it, as where a graph is."""
    shares = neighbours.get("shares") or {}
    return any("factuality" in found for found in knowledge.values()) or len(set(shares.values())) > 1


def _lines(log: pd.DataFrame, name: str, scale: float = 1.0) -> list[dict[str, Any]]:
    """Return a thin line for each step and a thick one for its moving mean; of few values dots and a line."""
    colour = TRAINED_COLOURS[0]
    known = log[log[name].notna()]
    values, steps = scale * known[name].astype(np.float64), known["step"].tolist()
    if len(known) <= len(log) // AROUND:
        line = {"color": colour, "width": 2.5}
        return [{"name": name, "x": steps, "y": plain(values), "mode": "lines+markers", "line": line}]
    mean = _smooth(values, max(1, len(known) // 40), log)
    thin = {"color": colour, "width": 1}
    return [
        {"name": f"{name}, each step", "x": steps, "y": plain(values), "line": thin, "opacity": 0.4},
        {"name": f"{name}, moving mean", "x": steps, "y": plain(mean), "line": {"color": colour, "width": 2.5}},
    ]


def _smooth(values: pd.Series[float], window: int, log: pd.DataFrame) -> pd.Series[float]:
    """Return the moving mean, which begins anew at a transition, so that no change looks gradual that is not."""
    starts = [change.step for change in transitions(log)]
    segment = np.searchsorted(starts, log.loc[values.index, "step"].to_numpy(), side="right")
    smooth: pd.Series[float] = values.groupby(segment).rolling(window, min_periods=1).mean().droplevel(0)
    return smooth


def _marks(log: pd.DataFrame, colour: str = NEUTRAL, *, named: bool = False) -> dict[str, Any]:
    """Return vertical lines at the ends of epochs and at transitions, the latter with their names if asked for."""
    ends: list[int] = []
    if "epoch" in log:
        # 2.9999999 is the end of the third, too.
        epoch = np.floor(log["epoch"].to_numpy(np.float64) + 1e-6)
        ends = log["step"].to_numpy()[1:][epoch[1:] > epoch[:-1]].tolist()
    changes = [change.step - 0.5 for change in transitions(log)]
    marks = [(end + 0.5, "dot", 1.0) for end in ends[:-1] if end + 0.5 not in changes]
    marks += [(x, "dash", 2.0) for x in changes]
    texts = [top_text(change.what, change.step) for change in (transitions(log) if named else ())]
    shapes = [vertical(x, {"color": colour, "width": width, "dash": dash}) for x, dash, width in marks]
    return {"shapes": shapes, "annotations": texts}


def _spread(values: pd.Series[float]) -> str:
    known = values.dropna()
    if known.empty:
        return "–"
    return f"{known.mean():.3f} ± {known.std(ddof=0):.3f}"


def _cell(found: Mapping[str, Any], name: str) -> dict[str, str]:
    value, low, high = (found.get(key) for key in (name, f"{name}_low", f"{name}_high"))
    if value is None or not math.isfinite(value):
        return {"value": "–", "interval": ""}
    return {
        "value": f"{value:.3f}",
        "interval": "" if low is None or high is None else f"{low:.3f} to {high:.3f}",
    }


def _shares(neighbours: Mapping[str, Any]) -> str:
    """Say what the nearest documents are."""
    if not neighbours.get("queries"):
        return ""
    parts = {name: f"{100 * neighbours['shares'][name]:.1f}\u00a0%" for name, _ in _RELATIONS}
    return (
        f"Of the {neighbours['depth']} nearest documents of {neighbours['queries']:,} queries {parts['right']} are "
        f"labelled relevant, {parts['entails']} state all facts of a relevant one, and {parts['same_uri']} are about "
        "the right entity."
    )


def _example(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": row["query_id"],
        "query": row["query"],
        "entity": row["label"] or row["uri"] or "no entity",
        "documents": [
            {
                "id": document["document_id"],
                "text": document["text"],
                "entity": document["label"] or document["uri"] or "no entity",
                "uri": document["uri"] or "",
                "relation": _relation(document),
            }
            for document in row["documents"]
        ],
    }


def _relation(document: Mapping[str, Any]) -> str:
    """Return how a neighbour is related to the query, the strongest that holds."""
    return next((text for name, text in _RELATIONS if document[name]), "other entity")
