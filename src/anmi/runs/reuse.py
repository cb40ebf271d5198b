"""Taking over from an earlier run what the first stages would make again, byte for byte.

Of a second recipe on the same collection, reading, splitting and indexing bring what they brought before. A run notes
for each such node a hash of everything that can change its result; where an earlier run that finished has the same,
and its files are as they were saved, they are linked into this run's version and the node does not run. So a run owns
all that it is made of, and whatever reads or removes versions need not know. In any doubt a node runs.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from kedro.io import CatalogProtocol
from kedro.pipeline import Pipeline
from kedro.pipeline.node import Node
from kedro.runner import SequentialRunner

from anmi.corpus.contents import models_in, with_effect
from anmi.datasets.artifact import ArtifactDataset
from anmi.files import aside, disk_errors, measured
from anmi.fingerprint import hash_value
from anmi.runs.manifests import read_manifest
from anmi.runs.origin import COLLECTION, relevant
from anmi.runs.record import RunRecord

logger = logging.getLogger(__name__)

# Nodes whose result depends on their inputs alone. Embeddings and judgments are in the store, and all after them
# depends on what was mined before.
NODES: Final = frozenset({"ingest", "ask_corpus", "cut_terms", "build_bm25_index"})
# What of their parameters says nothing of their result: how deep an index is searched, and of a recipe what mines.
_UNREAD: Final = {"cut_terms": ("bm25", {"depth"}), "build_bm25_index": ("bm25", {"depth"})}
_OF_A_RECIPE: Final = {"ask_corpus": "training"}
# What is known of a collection is checked where its node runs, for nodes that take hours.
_CHECKED_FOR: Final = frozenset({"train_retriever", "run_systems"})
# A cache: it changes no result.
_CACHES: Final = frozenset({"store"})
# How the nodes themselves are run, which changes no result either.
_ENGINE: Final = "params:engine"
# So many runs are looked at, the newest first.
_LOOKED_AT: Final = 30
# A manifest notes its end to the second.
_SECOND: Final = 1.0
_TAKEN: Final[ContextVar[set[str] | None]] = ContextVar("anmi_taken_over", default=None)


class ReusingRunner(SequentialRunner):  # type: ignore[misc]
    """Runs, one after the other, the nodes whose results were not taken over."""

    # Logging and Kedro-Viz tell runners by these, and this one runs as that does.
    __module__ = SequentialRunner.__module__
    __qualname__ = SequentialRunner.__qualname__

    def run(self, pipeline: Pipeline, catalog: CatalogProtocol, *arguments: Any, **options: Any) -> dict[str, Any]:
        """Run what is left; see :class:`kedro.runner.AbstractRunner`."""
        taken = _TAKEN.get() or set()
        left = Pipeline([node for node in pipeline.nodes if node.name not in taken])
        return dict(super().run(left, catalog, *arguments, **options))


@contextmanager
def allowed() -> Iterator[None]:
    """Let a run inside take over what it can; its runner must be :class:`ReusingRunner`."""
    token = _TAKEN.set(set())
    try:
        yield
    finally:
        _TAKEN.reset(token)


def keys(
    pipeline: Pipeline, record: RunRecord, entries: Mapping[str, Mapping[str, Any]], project: Path
) -> dict[str, str]:
    """Return of each node that can be taken over a hash of everything that can change its result.

    Parameters
    ----------
    pipeline
        The nodes of the run, those that make the inputs of others among them.
    record
        Of the run: parameters, collection, code and packages.
    entries
        Of the catalog; where something lies does not count.
    project
        Folder that relative paths start from.
    """
    digest = record.collection.get("digest", "")
    machine = {name: record.machine.get(name) for name in ("platform", "processor")}
    made_by = [record.code, record.versions, record.python, machine, installed()]
    # A language model that is asked again may answer otherwise.
    asks = bool((record.parameters.get("adaptation") or {}).get("llm"))
    made: dict[str, str] = {}
    found: dict[str, str] = {}
    for node in pipeline.nodes:
        datasets = {name for name in node.inputs if not name.startswith("params:")} - _CACHES
        if node.name not in NODES or not datasets <= made.keys() or (node.name == "ask_corpus" and asks):
            continue
        if COLLECTION in node.inputs and not digest:
            # What is wrong with it is for its reader to say.
            continue
        chosen = _chosen(node, record.parameters)
        kinds = {name: {k: v for k, v in entries.get(name, {}).items() if k != "filepath"} for name in node.outputs}
        found[node.name] = hash_value(
            [
                node.name, chosen, models_in(chosen, project), made_by, kinds,
                digest if COLLECTION in node.inputs else "", {name: made[name] for name in sorted(datasets)},
            ]
        )  # fmt: skip
        made |= {name: f"{name} of {found[node.name]}" for name in node.outputs}
    return found


def _chosen(node: Node, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that a node's result depends on."""
    chosen = dict(with_effect(relevant(parameters, {*node.inputs} - {_ENGINE})))
    if node.name in _UNREAD:
        branch, unread = _UNREAD[node.name]
        chosen[branch] = {name: value for name, value in (chosen[branch] or {}).items() if name not in unread}
    if node.name in _OF_A_RECIPE and isinstance(chosen.get("recipes"), Mapping):
        recipes = [recipe.get(_OF_A_RECIPE[node.name]) for recipe in chosen["recipes"].values()]
        chosen = {**chosen, "recipes": recipes, "recipe": None}
    return chosen


def installed() -> list[str]:
    """Return every package that can be imported, with its version, as the names of their folders tell."""
    found: set[str] = set()
    for place in sys.path:
        with suppress(OSError):
            found |= {name for name in os.listdir(place or ".") if name.endswith((".dist-info", ".egg-info"))}  # noqa: PTH208
    return sorted(found)


def take_over(pipeline: Pipeline, catalog: CatalogProtocol, record: RunRecord, root: str) -> None:
    """Link what earlier runs made of the same into the version of this run, and note it in its record.

    Parameters
    ----------
    pipeline
        The nodes of the run.
    catalog
        Whose versions are fixed; see :func:`anmi.runs.versions.fix`.
    record
        Of the run, with the keys of its nodes.
    root
        The data root. Nothing is taken over from or to a bucket, where a link is a copy.
    """
    taken, given = _TAKEN.get(), record.parameters
    if taken is None or "://" in root or given.get("force") or not given.get("reuse", True):
        return
    if _CHECKED_FOR & {node.name for node in pipeline.nodes}:
        return
    wanted = [node for node in pipeline.nodes if node.name in record.made_from]
    makers = {name: node.name for node in pipeline.nodes for name in node.outputs}
    for manifest in _finished(Path(root), record.run_id) if wanted else ():
        for node in [node for node in wanted if _made_the_same(manifest, record, node)]:
            anew = {makers[name] for name in node.inputs if name in makers} - taken
            sources = {name: _source(catalog, name, manifest) for name in node.outputs}
            if anew or not all(sources.values()):
                continue
            for name, source in sources.items():
                assert source is not None
                _link(source, Path(catalog.get(name)._get_save_path()))
                record.saved[name] = record.run_id
                record.files[name] = dict(manifest["files"][name])
            taken.add(node.name)
            record.taken_over[node.name] = str(manifest["run_id"])
            wanted.remove(node)
        if not wanted:
            break
    for run_id in dict.fromkeys(record.taken_over.values()):
        names = ", ".join(name for name, source in record.taken_over.items() if source == run_id)
        logger.info("Taken over from run %s, which made the same: %s", run_id, names)


def collection_state(record: RunRecord) -> list[tuple[int, int]]:
    """Return bytes and time of change of the files of the collection; it changes where one is written to meanwhile."""
    with suppress(OSError):
        states = [Path(file["path"]).stat() for file in record.collection.get("files", ())]
        return [(state.st_size, state.st_mtime_ns) for state in states]
    return []


def _finished(root: Path, own: str) -> Iterable[dict[str, Any]]:
    """Yield the manifests of the newest runs, those that came to their end."""
    places = sorted((path.name for path in (root / "runs").iterdir() if path.name != own), reverse=True)
    for name in places[:_LOOKED_AT]:
        manifest = read_manifest(str(root), name)
        if manifest.get("status") == "finished" and manifest.get("run_id") == name:
            yield manifest


def _made_the_same(manifest: Mapping[str, Any], record: RunRecord, node: Node) -> bool:
    return (manifest.get("made_from") or {}).get(node.name) == record.made_from[node.name]


def _source(catalog: CatalogProtocol, name: str, manifest: Mapping[str, Any]) -> Path | None:
    """Return where an earlier run saved something; None where it is not there as it was saved."""
    version, noted = str(manifest["run_id"]), (manifest.get("files") or {}).get(name)
    if not noted or not manifest.get("end") or (manifest.get("saved") or {}).get(name) != version:
        return None
    dataset = catalog.get(name)
    if not isinstance(dataset, ArtifactDataset):
        return None
    path = Path(dataset._get_versioned_path(version))
    end = datetime.fromisoformat(manifest["end"]).timestamp() + _SECOND
    try:
        # Of what is large only the size was noted.
        late = any(part.stat().st_mtime > end for part in (path, *path.rglob("*")))
        return None if late or measured(path) != noted else path
    except OSError:
        return None


def _link(source: Path, target: Path) -> None:
    with disk_errors(target), aside(target) as path:
        if source.is_dir():
            shutil.copytree(source, path, copy_function=_link_file)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            _link_file(str(source), str(path))


def _link_file(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        # Not all file systems can.
        shutil.copy2(source, target)
