"""Draw the pictures of docs/methods.md, docs/production.md and docs/index.md.

    python docs/images/draw.py

The pictures are of the formulas as the code has them, or of files in benchmarks/results; each says
which. Their colours are of middle lightness on no background, so that they can be read on light and
on dark pages.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
import numpy as np
import torch
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from anmi.selection.steps.elo_zones import BORDERS, EloWindow
from anmi.selection.steps.mixture import fit_betas, fit_gaussians
from anmi.training.curriculum import Course, Linear, Step
from anmi.training.losses.contrastive import DebiasedContrastive
from anmi.training.losses.temperature import Temperature
from anmi.training.parts import Adaptation, DebiasedOptions, LinearOptions, StepOptions

HERE: Final = Path(__file__).parent
RESULTS: Final = HERE.parents[1] / "benchmarks" / "results"
GREY: Final = "#808080"
BLUE, ORANGE, GREEN, PINK, VIOLET = "#3b8fd0", "#d9772b", "#2a9d7c", "#c0588f", "#8b76c9"
STYLE: Final = {
    "svg.hashsalt": "anmi",
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": GREY,
    "axes.labelcolor": GREY,
    "axes.edgecolor": GREY,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "axes.titlesize": 9,
    "axes.titlecolor": GREY,
    "legend.frameon": False,
    "lines.linewidth": 2,
}


def stages() -> Figure:
    """The stages of a run and what each hands on."""
    rows = [
        [
            ("ingestion", "read, check,\nfind duplicates"),
            ("bm25", "index of terms"),
            ("dense", "encode, retrieve\ncandidates"),
            ("consistency", "rank of the\npositive"),
        ],
        [
            ("denoising", "P(relevant) of\nevery candidate"),
            ("elo", "ratings with\nerrors"),
            ("selection", "negatives\nand weights"),
            ("adaptation", "pseudo-queries"),
        ],
        [
            ("training", "the retriever"),
            ("evaluation", "systems on\ntest queries"),
            ("final", "trained on all,\ndeployed"),
            ("reporting", "report and\nnumbers"),
        ],
    ]
    figure, axes = plt.subplots(figsize=(7.2, 3.3))
    axes.axis("off")
    axes.set(xlim=(-0.05, 4), ylim=(-3, 0.05))
    for line, (row, colour) in enumerate(zip(rows, (BLUE, ORANGE, GREEN), strict=True)):
        for place, (name, what) in enumerate(row):
            x, y = place, -line
            _box(axes, x, y, name, what, colour)
            if place + 1 < len(row):
                _arrow(axes, (x + 0.86, y - 0.41), (x + 1.02, y - 0.41))
            elif line + 1 < len(rows):
                axes.plot(
                    [x + 0.44, x + 0.44, 0.44], [y - 0.76, y - 0.9, y - 0.9], color=GREY, lw=1
                )
                _arrow(axes, (0.44, y - 0.9), (0.44, y - 1.07))
    return figure


def corpus_encoder() -> Figure:
    """How the vector of a piece of a word is made."""
    figure, axes = plt.subplots(figsize=(7.2, 2.1))
    axes.axis("off")
    axes.set(xlim=(-0.05, 4), ylim=(-1.75, 0.05))
    boxes = [
        (0, -0.45, "documents", "cut into pieces\nof words", BLUE),
        (1, 0, "LSA", "what stands with\nit in this corpus", ORANGE),
        (1, -0.9, "MiniLM", "what the piece\nmeans elsewhere", ORANGE),
        (2, -0.45, "× idf", "side by side,\n256 + 256", GREEN),
        (3, -0.45, "table", "a text is the sum\nof its pieces", GREEN),
    ]
    for box in boxes:
        _box(axes, *box)
    for start, end in (
        ((0.86, -0.75), (1.02, -0.45)),
        ((0.86, -0.97), (1.02, -1.27)),
        ((1.86, -0.45), (2.02, -0.75)),
        ((1.86, -1.27), (2.02, -0.97)),
        ((2.86, -0.86), (3.02, -0.86)),
    ):
        _arrow(axes, start, end)
    return figure


def _box(axes: Axes, x: float, y: float, name: str, what: str, colour: str) -> None:
    at = ((x + 0.06, y - 0.72), 0.76, 0.62)
    axes.add_patch(
        mpl.patches.FancyBboxPatch(
            *at, boxstyle="round,pad=0.03", fill=False, edgecolor=colour, lw=1.5
        )
    )
    axes.text(
        x + 0.44, y - 0.23, name, ha="center", va="center", color=colour, weight="bold", fontsize=10
    )
    axes.text(x + 0.44, y - 0.51, what, ha="center", va="center", fontsize=8.5)


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    axes.annotate("", end, start, arrowprops={"arrowstyle": "->", "color": GREY, "lw": 1})


def clean_and_hard() -> Figure:
    """False negatives against hardness, of rules of one similarity and of the fused judge, as measured."""
    rows = [row for row in _results("mining_quality.json")["rows"] if "recipe" in row]
    names = {"kg_webnlg/beir_en": "WebNLG", "api_docs": "api_docs", "medquad": "MedQuAD"}
    names["debian_packages"] = "Debian packages"
    marks = {
        "naive_top": ("nearest", "o", PINK),
        "nv_retriever": ("below 95 % of the positive", "s", ORANGE),
        "shift": ("without the first ten", "^", VIOLET),
    }
    figure, parts = plt.subplots(1, 4, figsize=(7.2, 2.5), sharey=True, layout="constrained")
    for axes, (collection, name) in zip(parts, names.items(), strict=True):
        here = [row for row in rows if row["collection"] == collection]
        fused = sorted((r["gap"], 100 * r["leak"]) for r in here if r["recipe"] == "fused")
        axes.plot(*zip(*fused, strict=True), color=BLUE, label="fused judge, by its threshold")
        for recipe, (label, shape, colour) in marks.items():
            (row,) = [r for r in here if r["recipe"] == recipe]
            axes.plot(row["gap"], 100 * row["leak"], shape, color=colour, label=label)
        axes.set(title=name, xlim=(-0.05, 0.2), ylim=(-0.6, 23))
    figure.supxlabel(
        "gap: similarity of the positive less that of the negative (hard ← → easy)", fontsize=9
    )
    parts[0].set_ylabel("false negatives (%)")
    figure.legend(
        *parts[0].get_legend_handles_labels(), loc="outside upper center", ncols=4, fontsize=8
    )
    return figure


def elo_zones() -> Figure:
    """Weight by the gap in Elo, and the tier from which a gap is shown."""
    edges = [-100.0, *BORDERS, 800.0]
    names = ["danger", "soft", "Goldilocks", "medium", "easy"]
    weights, tiers = [0, 0.5, 1.0, 0.7, 0.3], [0, 4, 3, 2, 1]
    colours = [PINK, ORANGE, GREEN, BLUE, VIOLET]
    figure, axes = plt.subplots(figsize=(7.2, 2.5), layout="constrained")
    for name, low, high, weight, tier, colour in zip(
        names, edges, edges[1:], weights, tiers, colours, strict=False
    ):
        axes.fill_between([low, high], 0, weight, color=colour, alpha=0.55, lw=0)
        axes.text((low + high) / 2, weight + 0.05, name, ha="center", color=colour, weight="bold")
        told = f"from tier {tier}" if tier else "never shown"
        axes.text((low + high) / 2, -0.14, told, ha="center", fontsize=8)
    axes.axhline(0, color=GREY, lw=0.8)
    axes.set(
        xticks=[0, *BORDERS],
        xlabel="gap = Elo of the positive less Elo of the candidate",
        ylabel="weight",
    )
    axes.set(xlim=(-100, 800), ylim=(-0.2, 1.2), yticks=[0, 0.5, 1])
    return figure


def ceilings() -> Figure:
    """Highest similarity that a candidate may have, by that of the positive."""
    positive = np.linspace(-0.2, 1, 200)
    figure, axes = plt.subplots(figsize=(4.6, 3.2), layout="constrained")
    axes.plot(positive, positive, color=GREY, lw=1, ls=":", label="as near as the positive")
    axes.plot(positive, positive - np.abs(positive) * 0.05, color=BLUE, label="max_ratio 0.95")
    axes.plot(positive, positive - 0.05, color=ORANGE, ls="--", label="margin 0.05")
    axes.axhline(0.7, color=PINK, ls="-.", label="absolute, 0.7")
    axes.set(xlabel="similarity of the positive, s⁺", ylabel="ceiling on the candidate's")
    axes.legend(fontsize=8)
    return figure


def debiased() -> Figure:
    """Loss of a row by how far the positive is ahead, at the papers' temperature and at the customary one."""
    lead = torch.linspace(-0.3, 0.6, 181)
    negatives = torch.full((len(lead), 7), 0.3)
    figure, parts = plt.subplots(1, 2, figsize=(7.2, 2.7), layout="constrained")
    for axes, t in zip(parts, (0.5, 0.07), strict=True):
        for tau, form, colour, style in (
            (0.0, "source", GREY, "-"),
            (0.1, "source", BLUE, "-"),
            (0.01, "source", GREEN, "--"),
            (0.1, "paraphrase", ORANGE, "-."),
        ):
            loss = DebiasedContrastive(Temperature(t), DebiasedOptions(tau_plus=tau, form=form))
            values = loss(0.3 + lead, negatives, torch.zeros(len(lead), 7)).detach()
            name = f"τ⁺ = {tau}, {form}" if tau else "InfoNCE (τ⁺ = 0)"
            axes.plot(lead, values, color=colour, ls=style, label=name)
        axes.set(title=f"t = {t}", xlabel="s⁺ − s of the negatives")
    parts[0].set_ylabel("loss of a row")
    parts[1].legend(fontsize=8)
    return figure


def mixture() -> Figure:
    """Two components fitted to similarities that were made up, and the probability of a true negative."""
    stream = np.random.default_rng(0)
    values = np.concatenate([stream.normal(0.25, 0.1, 1800), stream.normal(0.62, 0.09, 200)])
    grid = np.linspace(-0.1, 1, 300)
    figure, axes = plt.subplots(figsize=(5.4, 2.8), layout="constrained")
    axes.hist(values, bins=60, color=GREY, alpha=0.4, density=True)
    axes.set(xlabel="similarity s", ylabel="density", xlim=(-0.1, 1))
    right = axes.twinx()
    right.spines["right"].set_visible(True)
    right.plot(
        grid,
        fit_gaussians(values[None]).probability_lower(grid[None])[0],
        color=BLUE,
        label="two Gaussians",
    )
    unit = fit_betas((values[None] + 1) / 2).probability_lower((grid[None] + 1) / 2)[0]
    right.plot(grid, unit, color=ORANGE, ls="--", label="two Betas")
    right.set(ylabel="P(true negative)", ylim=(0, 1.05))
    right.legend(fontsize=8, loc="center right")
    return figure


def simans() -> Figure:
    """How likely a candidate is to be drawn by its gap, with and without the scale."""
    gap = np.linspace(-0.4, 0.3, 300)
    figure, parts = plt.subplots(1, 2, figsize=(7.2, 2.5), layout="constrained")
    for a, name, colour, style in (
        (0.5, "a = 0.5, as the paper has it", ORANGE, "--"),
        (0.5 / 0.1**2, "a = 0.5 / variance (deviation 0.1)", BLUE, "-"),
    ):
        parts[0].plot(gap, np.exp(-a * gap**2), color=colour, ls=style, label=name)
    parts[0].set(
        xlabel="s − s⁺ (cosines)", ylabel="chance, relative", ylim=(0, 1.3), title="form score"
    )
    parts[0].legend(fontsize=8)
    rank = np.arange(0, 40)
    for own, colour, style in ((0, VIOLET, ":"), (10, GREEN, "-"), (20, BLUE, "--")):
        parts[1].plot(
            rank,
            np.exp(-np.abs(rank - 1.5 * own)),
            color=colour,
            ls=style,
            label=f"positive on rank {own}",
        )
    parts[1].set(xlabel="rank of the candidate", title="form rank", ylim=(0, 1.6))
    parts[1].legend(fontsize=8, loc="upper right")
    return figure


def difficulty() -> Figure:
    """The window of Elo gaps over the difficulty."""
    levels = np.linspace(0, 1, 50)
    low, high = np.array([EloWindow(difficulty=level).window for level in levels]).T
    figure, axes = plt.subplots(figsize=(4.6, 2.6), layout="constrained")
    axes.fill_between(levels, low, high, color=BLUE, alpha=0.45, lw=0)
    for border, name in zip(BORDERS, ("soft", "Goldilocks", "medium", "easy"), strict=True):
        axes.axhline(border, color=GREY, lw=0.8, ls=":")
        axes.text(1.01, border + 8, name, fontsize=8)
    axes.set(
        xlabel="difficulty d", ylabel="gap in Elo", xlim=(0, 1.18), xticks=[0, 0.25, 0.5, 0.75, 1]
    )
    return figure


def hans() -> Figure:
    """The four settings over the hardness of a query, by the report's prose and by its formulas."""
    hardness = np.linspace(0, 1, 50)
    settings = [
        ("negatives", 1, 3, "rising", "rising"),
        ("weight of the query", 0.5, 1.5, "rising", "falling"),
        ("temperature, factor", 0.5, 1.0, "falling", "rising"),
        ("margin", 0.1, 0.5, "rising", "falling"),
    ]
    figure, parts = plt.subplots(1, 4, figsize=(7.2, 2.1), layout="constrained")
    for axes, (name, low, high, prose, formulas) in zip(parts, settings, strict=True):
        for direction, colour, style in ((prose, BLUE, "-"), (formulas, ORANGE, "--")):
            axes.plot(
                hardness,
                Adaptation(low=low, high=high, direction=direction).at(hardness),
                color=colour,
                ls=style,
            )
        axes.set(title=name, xticks=[0, 1], yticks=[low, high])
    figure.supxlabel("hardness h of the query", fontsize=9)
    lines = parts[1].get_lines()
    figure.legend(
        lines,
        ["the report's prose", "its formulas"],
        loc="outside upper center",
        ncols=2,
        fontsize=8,
    )
    return figure


def dnh_schedules() -> Figure:
    """Shares of the sources over the epochs by two schedules."""
    mix, without_random, steps = (0.2, 0.5, 0.3, 0.0), (0.0, 0.625, 0.375, 0.0), 20
    epochs = np.arange(0, 7, 1 / steps)
    figure, parts = plt.subplots(1, 2, figsize=(7.2, 2.4), sharey=True, layout="constrained")
    linear = Linear(LinearOptions(), Course(epoch=steps, mix=without_random))
    for axes, schedule in zip(
        parts, (linear, Step(StepOptions(), Course(epoch=steps, mix=mix))), strict=True
    ):
        shares = np.array(
            [schedule.observe(step, 1.0, 1.0, None).mix for step in range(len(epochs))]
        )
        axes.stackplot(
            epochs,
            shares[:, :3].T,
            colors=[GREY, BLUE, ORANGE],
            labels=["random", "graph", "latent"],
            alpha=0.6,
            lw=0,
        )
        axes.set(title=type(schedule).__name__.lower(), xlabel="epoch", xlim=(0, 7), ylim=(0, 1))
    parts[0].set_ylabel("share of negatives")
    figure.legend(
        *parts[0].get_legend_handles_labels(), loc="outside upper center", ncols=3, fontsize=8
    )
    return figure


def dnh_runs() -> Figure:
    """Validation losses of the arms of benchmarks/dnh.py, and sources and gradient norms of two of them."""
    measured = _results("dnh.json")
    figure, parts = plt.subplots(1, 3, figsize=(7.2, 3.0), layout="constrained")
    rows = [row for row in measured["rows"] if row["collection"] == "kg_webnlg/beir_en"]
    colours = (GREY, BLUE, ORANGE, GREEN, PINK, VIOLET, BLUE, ORANGE)
    styles = ["-"] * 6 + ["--"] * 2
    for row, colour, style in zip(rows, colours, styles, strict=True):
        parts[0].plot(
            row["steps"], row["validation_loss"], color=colour, ls=style, lw=1.5, label=row["arm"]
        )
    parts[0].set(title="validation loss", xlabel="step")
    logs = {log["arm"]: log for log in measured["logs"]}
    step, linear = logs["all, step"], logs["all, linear"]
    shares = [step[f"share_{name}"] for name in ("random", "graph", "latent")]
    parts[1].stackplot(step["step"], shares, colors=[GREY, BLUE, ORANGE], alpha=0.6, lw=0)
    parts[1].set(title="all, step: sources", xlabel="step", ylim=(0, 1))
    for log, colour in ((step, GREEN), (linear, PINK)):
        parts[2].plot(log["step"], log["grad_norm"], color=colour, lw=1, label=log["arm"])
    for change in step["transitions"]:
        parts[2].axvline(change["step"], color=GREY, ls=":", lw=1)
    parts[2].set(title="gradient norm", xlabel="step", yscale="log")
    figure.legend(
        *parts[0].get_legend_handles_labels(), loc="outside upper center", ncols=4, fontsize=7
    )
    return figure


def scale() -> Figure:
    """Processor seconds and memory of the nodes of mining over the documents of made collections, as measured."""
    runs = _results("scale.json")["runs"]
    largest = max((run for run in runs if run["whole"]), key=lambda run: run["documents"])["nodes"]
    told = sorted(largest, key=lambda node: -largest[node]["cpu"])[:6]
    figure, parts = plt.subplots(1, 2, figsize=(7.2, 3.2), layout="constrained")
    shapes = ((BLUE, "o"), (ORANGE, "s"), (GREEN, "^"), (PINK, "D"), (VIOLET, "v"), (GREY, "x"))
    for axes, value in zip(parts, ("cpu", "peak_mib"), strict=True):
        for node, (colour, mark) in zip(told, shapes, strict=True):
            points = [
                (run["documents"], run["nodes"][node][value])
                for run in runs
                if node in run["nodes"]
            ]
            axes.loglog(
                *zip(*points, strict=True), color=colour, marker=mark, ms=4, lw=1.5, label=node
            )
        axes.set(xlabel="documents (a query for ten)")
    first = [run for run in runs if run["whole"]]
    parts[0].loglog(
        [run["documents"] for run in first],
        [run["cpu"] for run in first],
        color=GREY,
        ls=":",
        label="all",
    )
    parts[0].set(title="processor seconds")
    parts[1].set(title="MiB of the main process, at most")
    figure.legend(
        *parts[0].get_legend_handles_labels(), loc="outside upper center", ncols=4, fontsize=8
    )
    return figure


PICTURES: Final = (
    stages,
    corpus_encoder,
    clean_and_hard,
    elo_zones,
    ceilings,
    debiased,
    mixture,
    simans,
    difficulty,
    hans,
    dnh_schedules,
    dnh_runs,
    scale,
)


def _results(file: str) -> Any:
    return json.loads((RESULTS / file).read_text(encoding="utf-8"))


def main(folder: Path = HERE) -> None:
    """Write all pictures to a folder."""
    with mpl.rc_context(STYLE):
        for picture in PICTURES:
            figure = picture()
            figure.savefig(
                folder / f"{picture.__name__}.svg", transparent=True, metadata={"Date": None}
            )
            plt.close(figure)


if __name__ == "__main__":
    sys.exit(main())
