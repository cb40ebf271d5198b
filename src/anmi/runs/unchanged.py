"""Mine only what changed: a run of ``mining`` whose inputs and outputs are those of the last one has nothing to do.

That a result exists says nothing about what it was made from. So a run notes a fingerprint of everything that can
change its result, and what it wrote; the next one compares both before it starts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final

from kedro.io import CatalogProtocol
from kedro.io.core import DatasetError, VersionNotFoundError
from pydantic import TypeAdapter, ValidationError

from anmi.corpus.contents import code_digest, files_in, models_in, with_effect
from anmi.errors import AnmiError
from anmi.fingerprint import changed, hash_value
from anmi.runs.manifests import read_manifest
from anmi.runs.origin import relevant

PIPELINE: Final = "mining"
_PARTIAL: Final = (
    "tags", "from_nodes", "to_nodes", "node_names", "from_inputs", "to_outputs", "load_versions", "namespaces",
    "only_missing_outputs",
)  # fmt: skip
_PLACE: Final = ("filepath", "metadata", "credentials")
_SEVERAL: Final = "what is there comes from several runs"
_MAY_SKIP: Final[ContextVar[bool]] = ContextVar("anmi_may_skip", default=False)


class Unchanged(Exception):
    """There is nothing to do; the message is for the user. No error: ``kedro run`` ends well with it."""


@contextmanager
def may_skip() -> Iterator[None]:
    """Let runs inside end with :class:`Unchanged`, which only a caller that expects it can want."""
    token = _MAY_SKIP.set(True)
    try:
        yield
    finally:
        _MAY_SKIP.reset(token)


def is_asked() -> bool:
    """Tell whether the caller expects :class:`Unchanged`."""
    return _MAY_SKIP.get()


def is_whole(run_params: Mapping[str, Any]) -> bool:
    """Tell whether a run is that of the mining pipeline, all of it and nothing else.

    Examples
    --------
    >>> is_whole({"pipeline_names": ["mining"], "from_nodes": ()})
    True
    >>> is_whole({"pipeline_names": ["mining"], "from_nodes": ("select_negatives",)})
    False
    """
    whole = list(run_params.get("pipeline_names") or []) == [PIPELINE]
    return whole and not any(run_params.get(name) for name in _PARTIAL)


def is_forced(parameters: Mapping[str, Any]) -> bool:
    """Return the parameter ``force``, false where there is none.

    Raises
    ------
    AnmiError
        It is neither true nor false.
    """
    value = parameters.get("force", False)
    try:
        return TypeAdapter(bool).validate_python(value)
    except ValidationError:
        raise AnmiError(f'parameter "force": true or false was expected, not {value!r}') from None


def fingerprint(
    inputs: Iterable[str],
    parameters: Mapping[str, Any],
    collection: str,
    versions: Mapping[str, str],
    entries: Mapping[str, Any],
    project: Path,
) -> dict[str, str]:
    """Return hashes of everything that can change what is mined.

    Parameters
    ----------
    inputs
        Free inputs of the pipeline, of which those named ``params:…`` count.
    parameters
        All of them, as validated.
    collection
        A hash of what it is read from.
    versions
        Of the installed packages.
    entries
        Catalog entries of what the pipeline makes; where that lies does not count.
    project
        Folder that relative paths start from.

    Returns
    -------
    dict
        By part: ``collection``, ``parameters`` (with the chosen recipe), ``models`` (files of encoders and judges named
        in the parameters), ``code``, ``libraries``, ``catalog``.
    """
    # The engine changes no result; that of `bm25` does.
    chosen = relevant(parameters, {*inputs} - {"params:engine"})
    kinds = {name: {k: v for k, v in entry.items() if k not in _PLACE} for name, entry in entries.items()}
    return {
        "collection": collection,
        "parameters": hash_value(with_effect(chosen)),
        "models": hash_value(models_in(chosen, project)),
        "code": code_digest(),
        "libraries": hash_value(versions),
        "catalog": hash_value(kinds),
    }


def stamps(catalog: CatalogProtocol, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return of each versioned artifact its newest version, and number, bytes and time of change of its files.

    Artifacts without any version are left out; the time is that of local files only.
    """
    found = {}
    for name in sorted(names):
        dataset = catalog.get(name)
        if not getattr(dataset, "_version", None):
            continue
        # What was learnt of versions before is forgotten, and what is learnt here as well.
        dataset.release()
        try:
            stamp = {"version": dataset.resolve_load_version()}
            if dataset.exists():
                found[name] = stamp | _files(dataset)
        except (DatasetError, VersionNotFoundError):
            continue
        finally:
            dataset.release()
    return found


def _files(dataset: Any) -> dict[str, int]:
    place = dataset._get_load_path()
    if getattr(dataset, "_fs", None) is not None:
        sizes = [entry["size"] or 0 for entry in dataset._fs.find(str(place), detail=True).values()]
        return {"files": len(sizes), "bytes": sum(sizes)}
    path = Path(place)
    states = [file.stat() for file in (files_in(path) if path.is_dir() else [path])]
    changed = max((state.st_mtime_ns for state in states), default=0)
    return {"files": len(states), "bytes": sum(state.st_size for state in states), "changed": changed}


def compare(
    catalog: CatalogProtocol, outputs: Iterable[str], root: str, now: Mapping[str, str]
) -> tuple[dict[str, Any], list[str]]:
    """Compare what is asked for with what the last run of the pipeline made.

    Parameters
    ----------
    catalog
        Where the artifacts are.
    outputs
        What the pipeline makes.
    root
        Of the data.
    now
        The fingerprint of the run that is about to start.

    Returns
    -------
    manifest, changes
        Of the run that made the newest artifacts, empty where there is no such finished run; and what changed since
        then, nothing where the manifest may stand for the run.
    """
    found = stamps(catalog, outputs)
    versions = {stamp["version"] for stamp in found.values()}
    if not versions:
        return {}, []
    manifest = read_manifest(root, max(versions))
    noted = manifest.get("fingerprint") or {}
    if manifest.get("status") != "finished" or not noted:
        return {}, []
    changes = changed(now, noted)
    if len(versions) > 1:
        changes.append(_SEVERAL)
    elif found != manifest.get("outputs"):
        changes.append("outputs")
    return manifest, changes
