"""Making the selection of an earlier run again, and comparing it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from anmi.errors import AnmiError
from anmi.runs import again, places
from anmi.runs.compare import Difference, compare
from anmi.runs.manifests import Runs, versions_of
from anmi.runs.replay import Replay, replaying

# What training reads of mining. That both come from the same candidates is why the second is made as well.
COMPARED: Final = ("selection", "training_rows")
FOLDER: Final = "reproduce"


@dataclass(frozen=True)
class Reproduction:
    """What came of it.

    Attributes
    ----------
    run_id
        Of the run that was repeated.
    changed
        What it was made from and is no longer the same, by part, in words.
    differences
        By artifact.
    folder
        Where the repetition lies, empty where it was removed.
    """

    run_id: str
    changed: dict[str, str]
    differences: dict[str, Difference] = field(default_factory=dict)
    folder: str = ""

    @property
    def is_equal(self) -> bool:
        """Whether every artifact is the same, byte for byte."""
        return not any(self.differences.values())


def reproduce(
    runs: Runs, manifest: Mapping[str, Any], warn: Callable[[dict[str, str]], None], *, keep: bool = False
) -> Reproduction:
    """Run an earlier run again, up to its selection, from its manifest; compare what it brings.

    Everything is written to a folder of its own, which is removed in the end; only the store of embeddings and
    judgments is that of all runs.

    Parameters
    ----------
    runs
        Of the data root.
    manifest
        Of the run.
    warn
        Is told, before anything runs, what changed since.
    keep
        Do not remove the folder.

    Raises
    ------
    AnmiError
        The run made no selection, or that or something it read is gone, or its parameters are no longer accepted.
    """
    name = str(manifest["run_id"])
    made = {k: v for kind in ("reused", "saved") for k, v in (manifest.get(kind) or {}).items() if v}
    targets = [target for target in COMPARED if target in made]
    if not targets:
        raise AnmiError(f"run {name} made no selection, so there is nothing to compare: name a run of mining")
    if not manifest.get("configured"):
        raise AnmiError(f"run {name} noted too little to be repeated, since an earlier release made it")
    pipeline = again.pipeline_of(manifest).to_outputs(*targets)
    known = versions_of(manifest)
    inputs = {dataset: known[dataset] for dataset in sorted(pipeline.inputs()) if dataset in known}
    with replaying(Replay(parameters=manifest["configured"])), again.opened(manifest) as session:
        context = _context(session, name)
        changed = again.changes_since(manifest, context, pipeline)
        is_there = again.checker(context, manifest, {**inputs, **made})
        for dataset, version in {**inputs, **{target: made[target] for target in targets}}.items():
            if not is_there(dataset, version):
                raise AnmiError(f'"{dataset}" of run {name} (version {version}) is gone or not as it was saved')
        entries = context.config_loader["catalog"]
        before = context._get_catalog(load_versions={k: v for k, v in made.items() if k in entries})
    if changed:
        warn(changed)
    folder = f"{runs.root}/{FOLDER}/{name}"
    replay = Replay(
        parameters=manifest["configured"],
        notes={"reproduces": name},
        data=folder,
        made=frozenset(pipeline.all_outputs()),
        absent=again.absent(manifest),
        tracked=False,
    )
    with _room(folder, keep=keep), replaying(replay), again.opened(manifest) as session:
        session.run(
            pipeline_names=list(manifest["pipelines"]),
            node_names=[node.name for node in pipeline.nodes],
            load_versions=inputs or None,
        )
        context = session.load_context()
        after = context.catalog
        found = {target: compare(before.get(target), after.get(target)) for target in targets}
    return Reproduction(name, changed, found, folder if keep else "")


def _context(session: Any, name: str) -> Any:
    try:
        return session.load_context()
    except AnmiError as error:
        raise AnmiError(f"the parameters of run {name} cannot be applied: {error}") from error


@contextmanager
def _room(folder: str, *, keep: bool) -> Iterator[None]:
    """Have an empty folder, and remove it in the end, also after an error."""
    alive = [found["run_id"] for found in Runs(folder).all() if found["status"] == "running"]
    if alive:
        raise AnmiError(f"{folder} is in use by another repetition of the same run: wait for it")
    place = places.Place(folder)
    place.remove()
    try:
        yield
    finally:
        if not keep:
            place.remove()
            if place.is_local:
                with suppress(OSError):
                    Path(folder).parent.rmdir()
