"""What docs/judges.md shows runs, and its settings are accepted."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from anmi.pipelines.params import DenoisingParams, EloParams

TEXT = (Path(__file__).parents[2] / "docs" / "judges.md").read_text(encoding="utf-8")


def test_a_judge_in_python_puts_the_positive_first() -> None:
    (snippet,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    names: dict[str, Any] = {}
    exec(snippet, names)
    elo = names["rated"].columns["elo"][0]
    assert names["rated"].positive_columns["elo"][0, 0] > elo.max()
    assert elo.argsort().tolist() == [2, 1, 0]
    answers = names["MoreWords"]().prefer(["a b"], ["a b"], ["a"])
    assert np.allclose(answers, 1 / (1 + np.exp(-1)))


def test_the_settings_are_those_of_the_pipelines() -> None:
    blocks = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)]
    assert len(blocks) == 3
    for ((pipeline, settings),) in (block.items() for block in blocks):
        {"denoising": DenoisingParams, "elo": EloParams}[pipeline].model_validate(settings)
