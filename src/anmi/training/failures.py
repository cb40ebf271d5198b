"""What can go wrong in a step, in words that say what to change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

from anmi.errors import AnmiError
from anmi.training.options import TrainingOptions

_NO_MEMORY: Final = ("not enough memory", "can't allocate memory", "out of memory", "ALLOC_FAILED", "bad_alloc")


class NotFiniteError(AnmiError):
    """A loss or a gradient became NaN or infinite."""


def not_finite(what: str, value: float, query_ids: Sequence[str]) -> NotFiniteError:
    """Return the error for ``what`` having become ``value`` in the batch of some queries.

    Examples
    --------
    >>> print(not_finite("training loss", float("nan"), ["q1", "q2"]))
    The training loss became nan in the batch with the queries q1, q2; lower the learning rate, or look at these rows.
    """
    named = ", ".join(query_ids[:8]) + (" and others" if len(query_ids) > 8 else "")
    return NotFiniteError(
        f"The {what} became {value} in the batch with the queries {named}; lower the learning rate, or look at these "
        "rows."
    )


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether an allocation failed, on a CPU or a GPU.

    Examples
    --------
    >>> is_out_of_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory")), is_out_of_memory(RuntimeError())
    (True, False)
    """
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(text in str(error) for text in _NO_MEMORY)


@dataclass(frozen=True)
class BatchSize:
    """How large a batch is.

    Attributes
    ----------
    queries, documents
        Texts; every different document counts once.
    tokens
        Of both, with padding.
    """

    queries: int = 0
    documents: int = 0
    tokens: int = 0

    @classmethod
    def of(cls, batch: dict[str, Any]) -> BatchSize:
        """Return the size of a batch of :class:`anmi.training.batch.Batcher`."""
        groups = [*batch["queries"]["groups"], *batch["documents"]["groups"]]
        tokens = sum(group["input_ids"].numel() for group in groups if "input_ids" in group)
        return cls(len(batch["queries"]["place"]), len(batch["documents"]["place"]), tokens)


def out_of_memory(options: TrainingOptions, size: BatchSize, device: str, *, static: bool) -> AnmiError:
    """Return the error that says which options to change, most useful first.

    A static encoder is a table, which takes a batch in one pass and has no length limit.
    """
    advice = []
    if not static:
        if not options.recompute:
            advice.append("set training.options.recompute=true (cached gradients, now off)")
        advice.append(f"lower texts_per_pass (now {options.texts_per_pass})")
        advice.append(f"lower max_length (now {options.max_length or 'the limit of the encoder'})")
    advice.append(f"lower negatives (now {'all mined' if options.negatives is None else options.negatives})")
    advice.append(f"lower batch_size (now {options.batch_size})")
    return AnmiError(
        f"The memory of the {device} does not suffice for a batch of {size.queries:,} queries and {size.documents:,} "
        f"documents with {size.tokens:,} tokens: {', or '.join(advice)}."
    )


def with_checkpoint(error: AnmiError, path: Path | None) -> AnmiError:
    """Return the error with a word on how to go on from the last good checkpoint, where there is one."""
    if path is None:
        return error
    more = f"; go on, that changed, from the last good checkpoint, by the parameter training.checkpoint={path}"
    return type(error)(str(error).rstrip(".") + more)
