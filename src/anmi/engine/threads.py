"""A fixed number of threads for arithmetic, since their number can change the last bits of a sum."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

# Each library for arithmetic has a name of its own for the same thing.
VARIABLES: Final = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


@contextmanager
def limited(threads: int) -> Iterator[None]:
    """Let NumPy, FAISS and torch use so many threads inside the block.

    Examples
    --------
    >>> import threadpoolctl
    >>> with limited(1):
    ...     {library["num_threads"] for library in threadpoolctl.threadpool_info()} <= {1}
    True
    """
    from threadpoolctl import threadpool_limits

    torch = sys.modules.get("torch")
    before = torch.get_num_threads() if torch is not None else 0
    with threadpool_limits(threads):
        if torch is not None:
            torch.set_num_threads(threads)
        try:
            yield
        finally:
            if torch is not None:
                torch.set_num_threads(before)
