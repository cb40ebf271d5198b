"""Sending a function with large arrays to worker processes: the arrays go through a file that all of them map.

What is pickled here lives as long as the processes that it is for, in a folder that only this user can read; it is
never an artifact.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np

_HEADER: Final = "function.bin"
_ARRAYS: Final = "arrays.bin"
_ENDS: Final = "ends.npy"
# Of a page, so that mapped arrays are aligned for any processor.
_ALIGNED: Final = 4096


def pack(function: Callable[..., Any], folder: Path) -> None:
    """Write a function, or an instance with what it holds, into an empty folder."""
    buffers: list[pickle.PickleBuffer] = []
    header = pickle.dumps(function, protocol=5, buffer_callback=buffers.append)
    (folder / _HEADER).write_bytes(header)
    ends = np.zeros((len(buffers), 2), np.int64)
    # Two arrays over the same memory are sent as one.
    written: dict[tuple[int, int], int] = {}
    with (folder / _ARRAYS).open("wb") as file:
        for number, buffer in enumerate(buffers):
            memory = np.frombuffer(buffer.raw(), np.uint8)
            known = written.setdefault((memory.ctypes.data, len(memory)), number)
            if known < number:
                ends[number] = ends[known]
                continue
            file.write(bytes(-file.tell() % _ALIGNED))
            ends[number, 0] = file.tell()
            file.write(memory.data)
            ends[number, 1] = file.tell()
    np.save(folder / _ENDS, ends)


def unpack(folder: Path) -> Callable[..., Any]:
    """Read what :func:`pack` wrote; its arrays are views of the file, shared by all who do, and read-only.

    Examples
    --------
    >>> import functools, operator, tempfile
    >>> with tempfile.TemporaryDirectory() as name:
    ...     pack(functools.partial(operator.add, np.arange(3)), Path(name))
    ...     unpack(Path(name))(1).tolist()
    [1, 2, 3]
    """
    ends = np.load(folder / _ENDS)
    path = folder / _ARRAYS
    mapped = np.memmap(path, np.uint8, mode="r") if path.stat().st_size else np.zeros(0, np.uint8)
    views: list[Any] = [mapped[start:end].data for start, end in ends]
    return pickle.loads((folder / _HEADER).read_bytes(), buffers=views)
