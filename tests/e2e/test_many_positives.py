"""What is said of the negatives of made collections, of benchmarks/interval_coverage.py, and what is true."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

CASES = (
    "1_relevant_1_labelled",
    "40_relevant_1_labelled",
    "600_relevant_1_labelled",
    "20_by_words_and_copies",
    "2_by_words",
)


@pytest.mark.rare
def test_the_interval_holds_the_truth_and_a_large_share_never_goes_without_a_warning(
    project: Path, static_models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(project / "benchmarks")
    coverage = importlib.import_module("interval_coverage")
    monkeypatch.setattr(coverage, "MODELS", static_models)
    found = {each["case"]: each for each in map(coverage.measure, coverage.made_cases(CASES))}
    assert len(found) == 6
    for each in found.values():
        assert each["low"] <= each["true"] <= each["high"], each
        assert each["warning"] or each["true"] < 0.03, each
    warned = {name for name, each in found.items() if each["warning"]}
    assert warned == {"40_relevant_1_labelled", "600_relevant_1_labelled"}
    assert found["40_relevant_1_labelled"]["true"] < 0.03, (
        "7.8 % were relevant before anything looked at ranks"
    )
    assert found["600_relevant_1_labelled"]["true"] < 0.15, "and of these 65 %"
    group = found["20_by_words_and_copies"]
    assert (group["true"], group["grouped"] > 0.4, group["filled"]) == (0, True, 1), (
        "3.6 % were paraphrases"
    )
