"""A progress bar, or a line a minute where nobody watches."""

from __future__ import annotations

import logging
import time
from typing import Any, Final, cast

import numpy as np
from tqdm import tqdm

log = logging.getLogger(__name__)
_LINE_SECONDS: Final = 60


class Progress(tqdm):  # type: ignore[misc]
    """A progress bar in whose place, where no terminal shows it, the log has a line a minute.

    The first update counts what was there before.

    Parameters
    ----------
    total
        How many there are; None where that is not known.
    desc
        What is done; nothing is shown of a step without a name.
    plural
        What is counted.
    """

    def __init__(
        self, *, total: int | None, desc: str, plural: str = "texts", **options: Any
    ) -> None:
        super().__init__(total=total, desc=desc, disable=not desc or None, delay=2, **options)
        self.label = desc
        self.plural = plural
        self.counted = 0
        self.start_seconds = self.logged_seconds = 0.0

    def update(self, n: float | None = 1) -> bool | None:
        """Count ``n`` more; tell how many there are, how fast, and how long is left."""
        seconds = time.monotonic()
        if not self.start_seconds:
            self.stored = int(n or 0)
            self.start_seconds = self.logged_seconds = seconds
        self.counted += int(n or 0)
        if self.disable and self.label and seconds - self.logged_seconds >= _LINE_SECONDS:
            self.logged_seconds = seconds
            rate = (self.counted - self.stored) / (seconds - self.start_seconds)
            log.info("%s: %s", self.label, self._pace(rate))
        return cast(bool | None, super().update(n))

    def _pace(self, rate: float) -> str:
        if not self.total:
            return f"{self.counted:,} {self.plural}, {rate:.0f} a second"
        minutes = np.ceil((self.total - self.counted) / max(rate, 1e-9) / 60)
        counts = f"{self.counted:,} of {self.total:,} {self.plural}"
        return f"{counts}, {rate:.0f} a second, {minutes:.0f} minutes left"
