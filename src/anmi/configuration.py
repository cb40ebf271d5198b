"""How Kedro reads ``conf/``."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from kedro.config import OmegaConfigLoader


class ConfigLoader(OmegaConfigLoader):  # type: ignore[misc]
    """Reads each part of the configuration once; a run asks for its parameters four times.

    Examples
    --------
    >>> loader = ConfigLoader("conf", runtime_params={"seed": 7})
    >>> loader["globals"] = {"data": "data"}
    >>> loader["globals"]
    {'data': 'data'}
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._read: dict[str, dict[str, Any]] = {}
        super().__init__(*arguments, **options)

    def __getitem__(self, key: str) -> dict[str, Any]:
        """Return a part as a copy of its own; see :class:`kedro.config.OmegaConfigLoader`."""
        if key not in self._read:
            self._read[key] = super().__getitem__(key)
        return deepcopy(self._read[key])

    def __setitem__(self, key: str, value: Any) -> None:
        """Let a part be this instead of what the files say."""
        self._read.pop(key, None)
        super().__setitem__(key, value)
