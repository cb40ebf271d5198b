"""What a run is made from, in a form that can be compared later: files of the collection, code, parameters."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

from anmi.errors import AnmiError
from anmi.fingerprint import hash_file, hash_named

COLLECTION: Final = "params:collection"
# Options of a run that choose among its nodes and inputs.
FILTERS: Final = (
    "tags", "from_nodes", "to_nodes", "node_names", "from_inputs", "to_outputs", "namespaces", "load_versions",
)  # fmt: skip


def filters_of(run_params: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of the options of a run chooses among its nodes and inputs.

    Examples
    --------
    >>> filters_of({"tags": (), "to_nodes": ["a"], "load_versions": {}, "runner": "SequentialRunner"})
    {'to_nodes': ['a']}
    """
    chosen = {name: run_params.get(name) for name in FILTERS}
    return {name: dict(v) if isinstance(v, Mapping) else list(v) for name, v in chosen.items() if v}


def collection_facts(collection: str) -> dict[str, Any]:
    """Return what a collection is read from: each file with its size and hash, and a hash of the whole.

    A collection that cannot be read has no files here; to say what is wrong with it is for ingestion.
    """
    from anmi.corpus.contents import contents, files_of

    facts: dict[str, Any] = {"name": collection, "digest": "", "files": []}
    try:
        files = files_of(collection)
        if not files:
            return facts | {"digest": contents(collection)}
        digests = [hash_file(path) for path in files]
        sizes = [path.stat().st_size for path in files]
    except (AnmiError, OSError):
        return facts
    whole = hash_named(zip((path.name for path in files), digests, strict=True))
    rows = zip(files, sizes, digests, strict=True)
    return facts | {
        "digest": whole,
        "files": [{"path": path.as_posix(), "bytes": size, "digest": digest} for path, size, digest in rows],
    }


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
