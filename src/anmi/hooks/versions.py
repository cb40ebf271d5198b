"""The versions that a run loads, fixed before its first node.

On its own Kedro loads of each dataset the newest version at the moment of loading, whoever saved it. So a run would
take what another one saves meanwhile, and pipelines that are run separately would mix what does not belong together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kedro.io import CatalogProtocol
from kedro.io.core import AbstractVersionedDataset, Version
from kedro.pipeline import Pipeline

from anmi.errors import AnmiError, nearest
from anmi.hooks.record import Runs

_WAYS_OUT: Final = "run the pipelines that make them in one run, or name versions with --load-versions"


def fix(
    catalog: CatalogProtocol,
    pipeline: Pipeline,
    runs: Runs,
    known: Iterable[Pipeline],
    before: Mapping[str, str] | None = None,
) -> None:
    """Fix what a run loads, whatever others save meanwhile; versions that were asked for stay.

    What the run makes is loaded in its own version; what it does not make is the newest that belongs together.

    Parameters
    ----------
    catalog, pipeline
        Of the run.
    runs
        What is known of others.
    known
        All pipelines there are.
    before
        Versions that the same run loaded before it stopped.
    """
    made, taken = pipeline.all_outputs(), {}
    for name in sorted(pipeline.datasets()):
        dataset = catalog.get(name)
        if not (isinstance(dataset, AbstractVersionedDataset) and dataset._version):
            continue
        if name not in made:
            taken[name] = dataset
            if before and name in before and not dataset._version.load:
                _load(dataset, before[name])
        elif not dataset._version.load:
            _load(dataset, str(dataset.resolve_save_version()))
    settle(taken, runs, known)


def settle(datasets: Mapping[str, Any], runs: Runs, known: Iterable[Pipeline]) -> None:
    """Fix datasets to the newest versions that belong together, those first that are made last.

    Parameters
    ----------
    datasets
        By name. Where one has a version to load, that stays, and what it was made from goes before what is newer.
    runs
        What is known of those that made them.
    known
        All pipelines there are: they say what is made of what.

    Raises
    ------
    AnmiError
        One was never made, or no versions belong together.
    """
    given = {name: str(dataset._version.load) for name, dataset in datasets.items() if dataset._version.load}
    for name, version in given.items():
        if not _has(datasets, name, version):
            told = nearest(version, list(datasets[name].versions()))
            raise AnmiError(f'there is no version {version} of "{name}": {told}')
    chosen = dict(given)
    for version in given.values():
        chosen = {name: its for name, its in runs.versions(version).items() if _has(datasets, name, its)} | chosen
    depth: dict[str, int] = {}
    beside: dict[str, Sequence[str]] = {}
    stages: dict[str, str] = {}
    for pipeline in known:
        for place, node in enumerate(pipeline.nodes):
            depth |= {name: max(place, depth.get(name, 0)) for name in node.outputs}
            beside |= dict.fromkeys(node.outputs, node.outputs)
            stages |= dict.fromkeys(node.outputs, str(node.namespace or node.name))
    for name in sorted(datasets, key=lambda name: (-depth.get(name, 0), name)):
        if name not in chosen:
            found = _newest([name, *beside.get(name, ())], datasets, chosen, given, runs)
            if not found:
                maker = stages.get(name, "?")
                raise AnmiError(
                    f'nothing has been saved as "{name}" yet: run the pipeline that makes it first ({maker})'
                )
            chosen |= found
    for name, version in chosen.items():
        _load(datasets[name], version)


def _newest(
    made: Sequence[str], datasets: Mapping[str, Any], chosen: Mapping[str, str], given: Mapping[str, str], runs: Runs
) -> dict[str, str]:
    """Return the newest version that agrees with the chosen ones, and those of the others that it was made from.

    Nothing where it was never made. The first of ``made`` is looked for; the others one node made with it, so half of
    what a node made does not count.
    """
    name, obstacle = made[0], ""
    # Who asked for a version may want it with what does not belong to it.
    for asked in ({}, given) if given else ({},):
        for version in datasets[name].versions():
            known = runs.versions(version)
            sources = known | dict.fromkeys(made if known else [name], version)
            wanted = {other: its for other, its in sources.items() if other in datasets and other not in asked}
            other = next(
                (o for o, its in wanted.items() if chosen.get(o, its) != its or not _has(datasets, o, its)), ""
            )
            if not other:
                return wanted
            lack = f"the rest belongs to that of run {chosen[other]}" if other in chosen else "that is not there"
            told = f'"{name}" of run {version} goes with "{other}" of run {wanted[other]}, and {lack}: {_WAYS_OUT}'
            obstacle = obstacle or told
    if obstacle:
        raise AnmiError(obstacle)
    return {}


def _has(datasets: Mapping[str, Any], name: str, version: str) -> bool:
    dataset = datasets.get(name)
    return dataset is not None and bool(dataset._exists_function(str(dataset._get_versioned_path(version))))


def _load(dataset: Any, version: str) -> None:
    dataset._version = Version(version, dataset._version.save)
