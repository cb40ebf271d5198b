"""What the reports that specify the methods run themselves, cut out of their texts."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

FOLDER = Path(__file__).parents[3] / "shared" / "seeds"


def code_of(name: str, number: str = "000") -> Any:
    """Return the class of a report; skip the test where the reports are not."""
    block = rf"```python\n((?:(?!```).)*^class {name}\b.*?)```"
    for path in FOLDER.glob(f"{number}_*.txt"):
        found = re.search(block, path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
        names = {"np": np, "torch": torch, "nn": torch.nn, "F": torch.nn.functional}
        exec(found[1], names)
        return names[name]
    return pytest.skip(f"{FOLDER} does not hold the reports")
