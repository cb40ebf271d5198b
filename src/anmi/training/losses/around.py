"""What a loss around another passes on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from torch import nn

from anmi.training.batch import Row


class Around(nn.Module):
    """A loss around another, which reads the same judgments and has the same temperature.

    Parameters
    ----------
    loss
        Any loss of this package.
    """

    def __init__(self, loss: nn.Module) -> None:
        super().__init__()
        self.loss = loss
        self.columns: tuple[str, ...] = tuple(getattr(loss, "columns", ()))
        self.uncertain: int = getattr(loss, "uncertain", 0)

    @property
    def temperature(self) -> nn.Module:
        """Of the loss inside; a module without parameters where it has none."""
        return cast(nn.Module, getattr(self.loss, "temperature", nn.Module()))

    def prepare(self, rows: Sequence[Row]) -> None:
        """Let the loss inside see the training rows, if it wants to."""
        if hasattr(self.loss, "prepare"):
            self.loss.prepare(rows)  # type: ignore[operator]

    def report(self) -> dict[str, float]:
        """Return what the loss inside says of the last batch; nothing where it says nothing."""
        inner: dict[str, float] = self.loss.report() if hasattr(self.loss, "report") else {}  # type: ignore[operator]
        return inner
