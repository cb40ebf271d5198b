"""What a run says, in keys, texts and batches that MLflow accepts."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

from anmi.datasets.files import plain
from anmi.errors import masked
from anmi.runs.record import flatten

LONGEST_VALUE: Final = 6000
_BATCH: Final = 100
# Of a curve; more are not seen, and take a second for every few thousand.
_MOST_POINTS: Final = 1000
_LONGEST_KEY: Final = 250
_LONGEST_MESSAGE: Final = 200


def key_of(name: str) -> str:
    """Return a key that MLflow accepts.

    Examples
    --------
    >>> key_of("test.ndcg@10")
    'test.ndcg_at_10'
    """
    return re.sub(r"[^\w.\- :/]", "_", name.replace("@", "_at_"))[:_LONGEST_KEY]


def tag_of(value: Any) -> str:
    """Return the text of a tag, without passwords."""
    return str(value).lower() if isinstance(value, bool) else masked(str(value))[:LONGEST_VALUE]


def batches(items: Sequence[Any], size: int = _BATCH) -> Iterator[list[Any]]:
    """Yield the items so many at a time."""
    for start in range(0, len(items), size):
        yield list(items[start : start + size])


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, short and without passwords."""
    # Masked before it is cut: half an address is not seen to hold a password.
    first = masked((str(error).strip() or type(error).__name__).splitlines()[0])
    return first if len(first) <= _LONGEST_MESSAGE else first[:_LONGEST_MESSAGE] + "…"


def metrics_of(name: str, data: Any) -> list[Any]:
    """Return the numbers of a dataset by section, as MLflow draws what stands before a slash.

    A section is the first key, or else the dataset; a list of numbers becomes a curve.
    """
    from mlflow.entities import Metric

    stamp = int(time.time() * 1000)
    found = {
        key.replace(".", "/", 1) if "." in key else f"{name}/{key}": values
        for key, values in flatten(plain(data)).items()
    }
    return [
        Metric(key_of(key), float(value), stamp, step)
        for key, values in found.items()
        for step, value in enumerate(values if isinstance(values, list) else [values])
        if isinstance(value, (int, float))
    ]


def curves_of(name: str, table: Any) -> list[Any]:
    """Return every column of numbers as the metric ``<name>/<column>``, of a long one every so many points."""
    from mlflow.entities import Metric

    stamp = int(time.time() * 1000)
    numbers = table.select_dtypes("number").astype(float).set_index("step")
    metrics = []
    for column in numbers.columns:
        known = numbers[column][abs(numbers[column]) < float("inf")]
        thinned = known.iloc[:: max(1, -(-len(known) // _MOST_POINTS))]
        metrics += [Metric(key_of(f"{name}/{column}"), value, stamp, int(step)) for step, value in thinned.items()]
    return metrics
