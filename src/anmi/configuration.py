"""How Kedro reads ``conf/``."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any, Final

import yaml
from kedro.config import OmegaConfigLoader
from omegaconf.resolvers import oc

from anmi.errors import AnmiError
from anmi.selection.inheritance import with_mining

LOADER_ARGS: Final[dict[str, Any]] = {
    "base_env": "base",
    "default_run_env": "local",
    # A test or production file overrides the keys it names, not the whole branch.
    "merge_strategy": {"parameters": "soft", "globals": "soft", "mlflow": "soft"},
    "config_patterns": {"mlflow": ["mlflow*", "mlflow*/**"]},
    # Kedro allows environment variables in credentials only; paths need them as well.
    "custom_resolvers": {"oc.env": oc.env},
}


class ConfigLoader(OmegaConfigLoader):  # type: ignore[misc]
    """Reads each part of the configuration once; a run asks for its parameters four times.

    What the chosen recipe says of mining stands under what the files and the command line say, for all who ask.

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
            try:
                found = super().__getitem__(key)
                self._read[key] = with_mining(found) if key == "parameters" else found
            except (UnicodeDecodeError, AttributeError, TypeError):
                damaged = self._damaged()
                if damaged is None:
                    raise
                raise AnmiError(damaged) from None
        return deepcopy(self._read[key])

    def _damaged(self) -> str | None:
        """Say which file cannot be what Kedro takes it for; its error names none."""
        for environment in (self.base_env, self.env or self.default_run_env):
            for path in sorted(Path(self.conf_source, environment).glob("**/*.y*ml")):
                try:
                    content = yaml.safe_load(path.read_text(encoding="utf-8"))
                except UnicodeDecodeError as error:
                    return f"{path} is not UTF-8 (byte {error.start}); convert it to UTF-8"
                except yaml.YAMLError:
                    continue
                if not isinstance(content, dict | str | None):
                    return f"{path} holds {type(content).__name__}; settings by name were expected, as in `seed: 1`"
        return None

    def __setitem__(self, key: str, value: Any) -> None:
        """Let a part be this instead of what the files say."""
        self._read.pop(key, None)
        super().__setitem__(key, value)
