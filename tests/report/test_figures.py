import numpy as np
import pandas as pd
import pytest

from anmi.report import figures

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


def test_each_group_of_scores_adds_up_to_all_of_it(make):
    for figure in figures.distributions(make().distributions):
        assert len(figure.spec["data"]) == 7
        for trace in figure.spec["data"]:
            assert sum(trace["y"][:-1]) == pytest.approx(100)
            assert len(trace["y"]) == len(trace["x"])


def test_no_step_rejected_anything(make):
    entry = make().distributions["dense"] | {"rejected": {}}
    (figure,) = figures.distributions({"dense": entry})
    assert [trace["name"].split()[0] for trace in figure.spec["data"]] == ["positives", "kept"]


def test_error_bars_span_the_interval(make):
    spec = figures.metrics(make().results).spec
    trained = spec["data"][-1]
    assert trained["x"][0] - trained["error_x"]["arrayminus"][0] == pytest.approx(0.644)
    assert trained["x"][0] + trained["error_x"]["array"][0] == pytest.approx(0.685)


def test_the_borders_of_the_elo_zones_are_drawn(make):
    spec = figures.elo_gap(make().gap).spec
    assert [shape["x0"] for shape in spec["layout"]["shapes"]] == [100, 200, 400, 600]
    assert [note["text"] for note in spec["layout"]["annotations"]] == [
        "danger",
        "soft",
        "Goldilocks",
        "medium",
        "easy",
    ]


def test_a_log_without_dev_metric_has_two_panels(make):
    log = make().training_log.assign(**{"dev_ndcg@10": np.nan})
    layout = figures.training(log).spec["layout"]
    assert "yaxis2" in layout
    assert "yaxis3" not in layout


def curriculum_log(log, **columns):
    difficulty = np.repeat([0.0, 0.05, 0.1], len(log) // 3)
    window = {"low": 100 + 300 * (1 - difficulty), "high": 400 + 200 * (1 - difficulty)}
    return log.assign(difficulty=difficulty, **{**window, "negatives": 7.0, "inside": 0.8, **columns})


def test_a_curriculum_is_shown_with_its_window_and_the_dev_metric(make):
    log = curriculum_log(make().training_log)
    figure = figures.curriculum(log)
    traces = {trace["name"]: trace for trace in figure.spec["data"]}
    assert traces["difficulty"]["y"] == log.difficulty.tolist()
    assert traces["window, from"]["y"][0] == 400
    assert traces["window, to"]["y"][-1] == pytest.approx(580)
    assert traces["negatives inside"]["y"][0] == 80
    assert traces["dev nDCG@10"]["x"] == [80, 160, 240]
    assert "gaps to the positive" in figure.note
    axes = {trace["yaxis"] for trace in figure.spec["data"]}
    assert axes == {"y", "y2", "y3", "y4"}


def test_a_window_without_an_upper_end_has_one_line_and_ranks_are_named(make):
    log = make().training_log
    tiers = figures.curriculum(curriculum_log(log, low=600.0, high=np.inf))
    assert "window, to" not in {trace["name"] for trace in tiers.spec["data"]}
    ranks = figures.curriculum(curriculum_log(log, low=0.5, high=1.0))
    assert "places in a row's pool" in ranks.note


def test_a_training_without_a_curriculum_shows_none(make):
    assert figures.curriculum(make().training_log) is None


def test_of_two_passes_dev_is_of_the_first_and_the_loss_of_both_is_shown(make):
    first = make().training_log
    second = first.head(160).assign(**{"dev_ndcg@10": np.nan, "loss": 0.5})
    log = pd.concat([first.assign(**{"pass": 1}), second.assign(**{"pass": 2})], ignore_index=True)
    one, both = figures.training(first), figures.training(log)
    added = [trace for trace in both.spec["data"] if "second pass" in trace["name"]]
    assert [trace for trace in both.spec["data"] if trace not in added] == one.spec["data"]
    (trace,) = added
    assert (trace["x"], set(trace["y"])) == (list(range(1, 161)), {0.5})
    assert (
        both.note == one.note + " Dashed: the second pass, with dev queries among its rows; all else is of the first."
    )
