"""How Kedro reads ``conf/``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

import fsspec
import yaml
from kedro.config import MissingConfigException, OmegaConfigLoader
from omegaconf.omegaconf import get_yaml_loader  # type: ignore[attr-defined]
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
_PLAINLY: Final = ("parameters", "catalog")
# A global, or another where it is not set.
_GLOBAL: Final = re.compile(r"\$\{globals: *([A-Za-z]\w*) *(?:, *\$\{globals: *([A-Za-z]\w*) *\} *)?\}")


class _Unusual(Exception):
    """Something that is left to Kedro to read, or to complain of."""


class ConfigLoader(OmegaConfigLoader):  # type: ignore[misc]
    """Reads each part of the configuration once; a run asks for its parameters four times.

    What the chosen recipe says of mining stands under what the files and the command line say, for all who ask.
    Parameters and catalog are read without OmegaConf, which takes ten times as long, where they need nothing of it
    but ``${globals:NAME}``; whatever else is in them, or wrong with them, is left to Kedro.

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
                found = self._plainly(key) if key in _PLAINLY and key not in self else None
                if found is None:
                    found = super().__getitem__(key)
                self._read[key] = with_mining(found) if key == "parameters" else found
            except (UnicodeDecodeError, AttributeError, TypeError):
                damaged = self._damaged()
                if damaged is None:
                    raise
                raise AnmiError(damaged) from None
        return deepcopy(self._read[key])

    def _plainly(self, key: str) -> dict[str, Any] | None:
        """Return a part as Kedro would; None in any doubt."""
        environment, strategy = self.env or self.default_run_env, self.merge_strategy.get(key, "destructive")
        if strategy not in ("soft", "destructive"):
            return None
        try:
            found = self._merged(self.base_env, key)
            if environment != self.base_env:
                chosen = self._merged(environment, key)
                found = _over(found, chosen) if strategy == "soft" else {**found, **chosen}
        except (_Unusual, OSError, ValueError, RecursionError, yaml.YAMLError, MissingConfigException):
            return None
        return found or None

    def _merged(self, environment: str, key: str) -> dict[str, Any]:
        """Return what the files of an environment say of a part, with the parameters of the command line over it."""
        folder, found, seen = Path(self.conf_source, environment), dict[str, Any](), set[str]()
        for path in _files(folder, self.config_patterns[key]):
            content = _read(path.read_text(encoding="utf-8"))
            if not isinstance(content, dict | None) or not all(isinstance(name, str) for name in content or ()):
                raise _Unusual
            content = content or {}
            names = set(_leaves(content)) if key == "parameters" else set(content)
            # YAML keeps under an underscore what entries of the catalog share, and each file its own.
            if any(key == "parameters" or not name.startswith("_") for name in seen & names):
                raise _Unusual
            seen |= names
            # Before another is put over it, since it must be well-formed all the same.
            found = _over(found, _resolved(content, self["globals"]) if content else {})
        if key == "parameters" and found and self.runtime_params:
            found = _over(found, _resolved(self.runtime_params, self["globals"]))
        return {name: value for name, value in found.items() if key == "parameters" or not name.startswith("_")}

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


def _files(folder: Path, patterns: list[str]) -> list[Path]:
    """Return the YAML files of an environment that match, as Kedro finds them."""
    if not folder.is_dir():
        raise _Unusual
    places = fsspec.filesystem("file")
    found = {Path(each) for pattern in patterns for each in places.glob((folder / pattern).as_posix())}
    files = sorted(path for path in found if path.is_file() and path.suffix in (".yml", ".yaml", ".json"))
    inside = [path.relative_to(folder.absolute()).parts for path in files]
    if any(path.suffix == ".json" for path in files) or any(part.startswith(".") for parts in inside for part in parts):
        raise _Unusual
    return files


def _read(text: str) -> Any:
    """Return what a YAML file says, as OmegaConf reads it: a date stays a text, and no key stands twice."""
    kind = get_yaml_loader()
    if not issubclass(kind, (yaml.SafeLoader, yaml.CSafeLoader)):
        raise _Unusual
    reader = kind(text)
    try:
        return reader.get_single_data()
    finally:
        reader.dispose()


def _leaves(value: Mapping[Any, Any], place: str = "") -> Iterator[str]:
    """Yield the dotted names of all that is no branch."""
    for name, item in value.items():
        if not isinstance(name, str):
            raise _Unusual
        inner = f"{place}.{name}" if place else name
        if isinstance(item, dict):
            yield from _leaves(item, inner)
        else:
            yield inner


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return one mapping with another put over it, branch by branch."""
    merged = dict(below)
    for name, value in above.items():
        under = below.get(name)
        if isinstance(under, Mapping) and isinstance(value, Mapping):
            merged[name] = _over(under, value)
        elif name in below and (isinstance(under, Mapping) or isinstance(value, Mapping)):
            raise _Unusual
        else:
            merged[name] = value
    return merged


def _resolved(value: Any, known: Mapping[str, Any]) -> Any:
    """Return a copy of a value in which globals stand for their names."""
    if isinstance(value, dict):
        if not all(isinstance(name, str) for name in value):
            raise _Unusual
        return {name: _resolved(item, known) for name, item in value.items()}
    if isinstance(value, list):
        return [_resolved(item, known) for item in value]
    if not isinstance(value, str):
        if not isinstance(value, int | float | None):
            raise _Unusual
        return value
    if "${" not in value:
        return value

    def named(found: re.Match[str]) -> Any:
        return next((known[name] for name in found.groups() if name in known), None)

    def text(found: re.Match[str]) -> str:
        told = named(found)
        if not isinstance(told, str) or "$" in told:
            raise _Unusual
        return told

    whole = _GLOBAL.fullmatch(value)
    if whole and isinstance(number := named(whole), int | float):
        return number
    if "\\" in value or "${" in _GLOBAL.sub("", value):
        raise _Unusual
    return _GLOBAL.sub(text, value)
