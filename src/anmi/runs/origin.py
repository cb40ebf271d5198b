"""What a run is made from, in a form that can be compared later, and what changed since, in words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

from anmi.errors import AnmiError
from anmi.fingerprint import hash_file, hash_named
from anmi.runs.record import flatten

COLLECTION: Final = "params:collection"
# Options of a run that choose among its nodes and inputs.
FILTERS: Final = (
    "tags", "from_nodes", "to_nodes", "node_names", "from_inputs", "to_outputs", "namespaces", "load_versions",
)  # fmt: skip
# Of what changed, so many are named.
_SHOWN: Final = 4


def filters_of(run_params: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of the options of a run chooses among its nodes and inputs.

    Examples
    --------
    >>> filters_of({"tags": (), "to_nodes": ["a"], "load_versions": {}, "runner": "SequentialRunner"})
    {'to_nodes': ['a']}
    """
    chosen = {name: run_params.get(name) for name in FILTERS}
    return {name: dict(v) if isinstance(v, Mapping) else list(v) for name, v in chosen.items() if v}


def collection_facts(collection: str, marks: str | None = None) -> dict[str, Any]:
    """Return what a collection is read from: each file with its size and hash, and a hash of the whole.

    The file of its marks (``marks`` is the parameter ``ingestion.marks``) is one of them, where it is there.
    A collection that cannot be read has no files here; to say what is wrong with it is for ingestion.
    """
    from anmi.corpus.contents import contents, files_of
    from anmi.corpus.marks import files_of_marks

    facts: dict[str, Any] = {"name": collection, "digest": "", "files": []}
    try:
        files, marked = files_of(collection), files_of_marks(marks, collection)
        packaged, files = not files, [*files, *marked]
        if not files:
            return facts | {"digest": contents(collection)}
        digests = [hash_file(path) for path in files]
        sizes = [path.stat().st_size for path in files]
    except (AnmiError, OSError):
        return facts
    named = zip((path.name for path in files), digests, strict=True)
    whole = hash_named(named, contents(collection) if packaged else "")
    rows = zip(files, sizes, digests, strict=True)
    return facts | {
        "digest": whole,
        "files": [{"path": path.as_posix(), "bytes": size, "digest": digest} for path, size, digest in rows],
    }


def marks_of(parameters: Mapping[str, Any]) -> str | None:
    """Return where the marks of collections lie, by the parameters of a run; None where it takes none."""
    ingestion = parameters.get("ingestion")
    return ingestion.get("marks") if isinstance(ingestion, Mapping) else None


def exact(value: Any) -> Any:
    """Return configuration as JSON knows it, so that the same can be configured again; infinities become texts.

    Examples
    --------
    >>> exact({"a": (1, math.inf), "b": None})
    {'a': [1, 'inf'], 'b': None}
    """
    if isinstance(value, Mapping):
        return {str(key): exact(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [exact(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def relevant(parameters: Mapping[str, Any], inputs: Iterable[str]) -> dict[str, Any]:
    """Return the parameters that a pipeline with such inputs reads; of the recipes, the chosen one.

    Examples
    --------
    >>> relevant({"recipe": "a", "recipes": {"a": 1, "b": 2}, "x": {"y": 1}, "z": 0}, ["params:recipes", "params:x.y"])
    {'recipes': {'a': 1}, 'x.y': 1}
    """
    chosen = {}
    for name in sorted({name.removeprefix("params:") for name in inputs if name.startswith("params:")}):
        value: Any = parameters
        for part in name.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        if name == "recipes" and isinstance(value, Mapping) and parameters.get("recipe") in value:
            value = {parameters["recipe"]: value[parameters["recipe"]]}
        chosen[name] = value
    return chosen


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, str]:
    """Compare what two runs were made from.

    Parameters
    ----------
    before, now
        Manifests, or the parts of them that tell what a run is made from: ``collection``, ``parameters`` (those that
        count), ``code`` and ``git``, ``versions`` and ``python``. A part that one of them lacks is not compared.

    Returns
    -------
    dict
        Of the parts that differ, in words.

    Examples
    --------
    >>> changes({"versions": {"numpy": "1"}, "code": "a"}, {"versions": {"numpy": "2"}, "code": "a"})
    {'packages': 'numpy is 2 (was 1)'}
    """
    found = {
        "collection": _collection(before.get("collection") or {}, now.get("collection") or {}),
        "parameters": _values(before.get("parameters"), now.get("parameters")),
        "code": _code(before, now),
        "packages": _packages(before, now),
    }
    return {part: text for part, text in found.items() if text}


def _collection(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    if not before.get("digest") or not now or before["digest"] == now.get("digest"):
        return ""
    if not now.get("digest"):
        return f"{now.get('name')} cannot be read"
    old, new = ({file["path"]: file for file in side["files"]} for side in (before, now))
    told = [
        f"{path} is gone"
        if path not in new
        else f"{path} is new"
        if path not in old
        else f"{path} changed ({old[path]['bytes']:,} to {new[path]['bytes']:,} bytes)"
        for path in {**old, **new}
        if old.get(path, {}).get("digest") != new.get(path, {}).get("digest")
    ]
    return _few(told) or f"{now['name']} changed"


def _values(before: Any, now: Any) -> str:
    if before is None or now is None:
        return ""
    old, new = flatten(before), flatten(now)
    return _few(
        [
            f"{name} is {new.get(name, 'not there')} (was {old.get(name, 'not there')})"
            for name in sorted({**old, **new})
            if old.get(name) != new.get(name) or (name in old) != (name in new)
        ]
    )


def _code(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    if not before.get("code") or not now.get("code") or before["code"] == now["code"]:
        return ""
    old, new = (str((side.get("git") or {}).get("commit", ""))[:10] for side in (before, now))
    if old and new and old != new:
        return f"commit {new} (was {old})"
    return f"files of the package changed, in the same commit {new}" if new else "files of the package changed"


def _packages(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    old, new = (
        {**(side.get("versions") or {}), **({"python": side["python"]} if side.get("python") else {})}
        for side in (before, now)
    )
    if not old or not new:
        return ""
    return _few(
        [
            f"{name} is {new.get(name, 'not installed')} (was {old.get(name, 'not installed')})"
            for name in sorted({**old, **new})
            if old.get(name) != new.get(name) and (name != "python" or (name in old and name in new))
        ]
    )


def _few(told: list[str]) -> str:
    rest = f" and {len(told) - _SHOWN} more" if len(told) > _SHOWN else ""
    return ", ".join(told[:_SHOWN]) + rest
