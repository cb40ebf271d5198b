"""The code of the texts that specify the methods, cut out of them."""

import random
import re
import typing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch

FOLDER = Path(__file__).parents[2] / "shared" / "seeds"
# What the texts import.
NAMES = {
    **vars(typing),
    "np": np,
    "random": random,
    "torch": torch,
    "nn": torch.nn,
    "F": torch.nn.functional,
    "norm": scipy.stats.norm,
    "tqdm": lambda items, **_: items,
}


def classes(document: str, *names: str) -> dict[str, Any]:
    """Return classes of a text, which is named by how its file begins; skip the test where it is not."""
    text = next((path.read_text(encoding="utf-8") for path in FOLDER.glob(f"{document}_*.txt")), "")
    if not text:
        pytest.skip(f"document {document} is not in {FOLDER}")
    from rank_bm25 import BM25Okapi

    namespace = NAMES | {"BM25Okapi": BM25Okapi}
    for name in names:
        code = re.search(rf"^class {name}\b.*?(?=^\S)", text, re.MULTILINE | re.DOTALL)
        assert code is not None, name
        exec(code.group(), namespace)
    return namespace


def class_of(document: str, name: str) -> Any:
    """Return one class of a text."""
    return classes(document, name)[name]
