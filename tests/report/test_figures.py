import numpy as np
import plotly.graph_objects as go
import pytest
from tests.report.conftest import distributions, funnel, training_log

from anmi.report import figures
from anmi.training.mixed import neighbour_table

BACKGROUNDS = ("#ffffff", "#16181d")


def contrast(a: str, b: str) -> float:
    """Contrast ratio of WCAG 2."""

    def luminance(colour: str) -> float:
        parts = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
        linear = np.where(parts <= 0.03928, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("background", BACKGROUNDS)
def test_colours_can_be_seen_on_light_and_dark(background):
    used = [*figures.BASELINE_COLOURS.values(), *figures.TRAINED_COLOURS]
    used += [figures.POSITIVE, figures.KEPT, figures.REJECTED, figures.JUDGE, figures.NEUTRAL]
    assert min(contrast(colour, background) for colour in used) >= 3


def test_each_group_of_scores_adds_up_to_all_of_it():
    for figure in figures.distributions(distributions()):
        assert len(figure.spec["data"]) == 7
        for trace in figure.spec["data"]:
            assert sum(trace["y"][:-1]) == pytest.approx(100)
            assert len(trace["y"]) == len(trace["x"])


def curriculum_log(log):
    difficulty = np.repeat([0.0, 0.05, 0.1], len(log) // 3)
    window = {"low": 100 + 300 * (1 - difficulty), "high": 400 + 200 * (1 - difficulty)}
    return log.assign(difficulty=difficulty, **window, negatives=7.0, inside=0.8)


def test_a_curriculum_is_shown_with_its_window_and_the_dev_metric():
    log = curriculum_log(training_log())
    figure = figures.training(log)
    traces = {trace["name"]: trace for trace in figure.spec["data"]}
    assert traces["difficulty"]["y"] == log.difficulty.tolist()
    assert traces["window, from"]["y"][0] == 400
    assert traces["window, to"]["y"][-1] == pytest.approx(580)
    assert traces["negatives inside"]["y"][0] == 80
    assert traces["dev nDCG@10"]["x"] == [80, 160, 240]
    assert "gaps to the positive" in figure.note
    axes = {trace["yaxis"] for trace in figure.spec["data"]}
    assert axes == {"y", *(f"y{place}" for place in range(2, 7))}


def test_gradients_and_losses_are_shown_with_the_steps_at_which_a_stage_begins():
    log = training_log()
    log = log.assign(
        grad_norm=1 / log.step, dev_loss=log["dev_ndcg@10"], stage=np.repeat([1, 2, 1, 3], 60)
    )
    figure = figures.training(log)
    traces = {trace["name"]: trace for trace in figure.spec["data"]}
    assert traces["gradient norm"]["y"] == log.grad_norm.tolist()
    assert traces["dev loss (nats)"]["x"] == [80, 160, 240]
    assert [shape["x0"] for shape in figure.layout["shapes"]] == [61, 121, 181]
    assert "Dotted" in figure.note and not figures.training(training_log()).layout["shapes"]


def test_what_was_kept_of_a_training_is_shown_by_kind_of_dev_query():
    curve = [
        {"alpha": alpha, "queries": kind, "count": count, "ndcg@10": 0.6, "low": 0.5, "high": 0.8}
        for alpha in ("start", 0.0, 1.0)
        for kind, count in (("labelled", 90), ("new", 40), ("pseudo", 30))
    ]
    figure = figures.alphas({"alphas": curve, "alpha": 0.75})
    assert [trace["name"] for trace in figure.spec["data"]] == [
        "documents with training labels (90)",
        "new documents (40)",
        "new documents, asked by pseudo-queries (30)",
    ]
    for trace in figure.spec["data"]:
        assert trace["x"] == [-0.25, 0, 1] and trace["y"] == [0.6] * 3
        assert trace["error_y"]["array"] == pytest.approx([0.2] * 3)
    assert figure.layout["xaxis"]["ticktext"] == ["start", "0.0", "1.0"]
    assert figure.layout["shapes"][0]["x0"] == 0.75 and "0.75" in figure.note
    network = figures.alphas({"alphas": curve[:3] + curve[6:], "alpha": "start"})
    assert network.layout["shapes"][0]["x0"] == network.spec["data"][0]["x"][0] == 0
    assert figures.alphas({"alphas": [], "alpha": 1.0}) is None


def test_the_funnel_tells_what_each_step_took_and_all_of_it_adds_up():
    rows = [*funnel(), {"step": "idle", "kind": "rejected", "candidates": 0, "queries": 0}]
    figure = figures.funnel(rows)
    traces = figure.spec["data"]
    ways = {trace["name"]: dict(zip(trace["y"], trace["x"], strict=True)) for trace in traces}
    assert ways["all"] == {"all candidates": 98_412}
    assert ways["negatives"] == {"→ negatives": 6_111}
    assert sum(sum(way.values()) for name, way in ways.items() if name != "all") == 98_412
    assert ways["promoted"] == {"promote": 455} and ways["uncertain"] == {"uncertain": 1_500}
    assert figure.spec["layout"]["xaxis"]["type"] == "log"
    assert figure.spec["layout"]["yaxis"]["categoryarray"][-1] == "all candidates"
    texts = [text for trace in figure.spec["data"] for text in trace["text"]]
    assert "455 (0.5 %)" in texts and "20,000 (20.3 %)" in texts
    # A bar of nothing has no length on such a scale: it is named instead.
    assert figure.note.endswith("These took nothing: idle.")


def found(**changes) -> dict:
    chosen = {"candidates": [100, 30, 5], "judged": [100, 30, 5], "expected": [0.01, 0.02, 0.9]}
    chosen |= {"known": [50, 30, 5], "relevant": [1, 0, 5]}
    rejected = chosen | {"expected": [0.1, 0.2, 0.3], "relevant": [0, 3, 5]}
    return {"edges": [-0.1, 0.0, 0.1, 0.2], "chosen": chosen, "rejected": rejected} | changes


def test_shares_are_drawn_at_the_middles_of_bins_with_enough_in_them():
    figure = figures.relevance_by_nearness(found())
    assert figure is not None
    points = {trace["name"]: [*trace["x"], *trace["y"]] for trace in figure.spec["data"]}
    approx = pytest.approx
    assert points["chosen, as the judge expects"] == approx([-0.05, 0.05, 1, 2])
    assert points["rejected, as the judge expects"] == approx([-0.05, 0.05, 10, 20])
    # On a scale of logarithms none has no place.
    assert points["chosen, known to be relevant"] == approx([-0.05, 2])
    assert points["rejected, known to be relevant"] == approx([0.05, 10])
    # Of the bins from 0 on: (30 × 2 + 5 × 90) / 35 and (30 × 20 + 5 × 30) / 35.
    assert "14.6 % of the chosen ones and 21.4 % of the rejected ones" in figure.note


def test_the_sources_of_drawn_negatives_are_stacked_up_to_all_of_them():
    log = training_log().assign(
        share_random=np.linspace(1, 0.2, 240), share_latent=np.linspace(0, 0.8, 240)
    )
    figure = figures.sources(log.assign(share_edit=0.0))
    names = [trace["name"] for trace in figure.spec["data"]]
    assert names == ["random", "latent"]
    assert np.sum([trace["y"] for trace in figure.spec["data"]], axis=0) == pytest.approx(100)
    assert figures.sources(training_log()) is None


def test_quality_is_drawn_against_hardness():
    rows = [
        {"system": "bm25", "hardness": h, "value": 0.5, "low": 0.4, "high": None, "queries": 9}
        for h in (0.2, 0.6)
    ]
    figure = figures.hardness(rows, "ndcg@10")
    assert [trace["x"] for trace in figure.spec["data"]] == [[0.2, 0.6]]
    assert figures.hardness([], "ndcg@10") is None


def test_neighbours_are_drawn_by_query_rank_and_step_with_their_uris():
    lines = [(50, "b", 1, "d1", "u/x", "u/x", False), (50, "b", 2, "d2", "u/<y>", "u/x", True)]
    lines += [(100, "b", 1, "d3", "u/z", "u/x", False), (50, "a", 1, "d4", "", "u/w", True)]
    figure = figures.latent_neighbours(neighbour_table(lines))
    (trace,) = figure.spec["data"]
    assert trace["x"] == ["50", "100"] and trace["y"] == ["a · 1", "b · 1", "b · 2"]
    assert trace["z"] == [[2, None], [0, 1], [2, None]]
    assert trace["text"] == [["d4", ""], ["x", "z"], ["&lt;y&gt;", ""]]
    assert trace["customdata"] == [["d4", ""], ["u/x", "u/z"], ["u/&lt;y&gt;", ""]]
    assert go.Figure(figure.spec) and figures.latent_neighbours(neighbour_table()) is None
