"""The versions that a run loads, fixed before its first node.

On its own Kedro loads of each dataset the newest version at the moment of loading, whoever saved it. So a run would
take what another one saves meanwhile, and pipelines that are run separately would mix what does not belong together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from kedro.io import CatalogProtocol
from kedro.io.core import AbstractVersionedDataset, Version
from kedro.pipeline import Pipeline
from kedro.pipeline.node import Node

from anmi.errors import AnmiError
from anmi.runs.manifests import Runs, read_manifest, versions_of

_WAYS_OUT: Final = "run the pipelines that make them in one run, or name versions with --load-versions"


class Origins:
    """What artifacts were made from, by the manifests of the runs that made them.

    Parameters
    ----------
    root
        The data root, a path or a URL.
    pipelines
        All there are: they say which nodes make an artifact.
    """

    def __init__(self, root: str, pipelines: Iterable[Pipeline]) -> None:
        self._runs = Runs(root)
        self._manifests: dict[str, dict[str, Any]] = {}
        self._makers: dict[str, dict[Node, None]] = defaultdict(dict)
        for pipeline in pipelines:
            for node in pipeline.nodes:
                for name in node.outputs:
                    self._makers[name][node] = None

    def of(self, name: str, version: str) -> dict[str, str]:
        """Return the version of all that a version was made from, as far as it is known, and of what was made with it.

        Parameters
        ----------
        name, version
            Of an artifact; they are in what is returned.
        """
        found: dict[str, str] = {}
        waiting = [(name, version)]
        while waiting:
            name, version = waiting.pop()
            if name in found:
                continue
            found[name] = version
            known = versions_of(self._manifest(version))
            for node in self._makers.get(name, ()) if known else ():
                waiting += [(beside, version) for beside in node.outputs]
                waiting += [(source, known[source]) for source in node.inputs if source in known]
        return found

    def depth(self, name: str) -> int:
        """Return how many datasets an artifact is made from, directly or not."""
        found, waiting = {name}, [name]
        while waiting:
            for node in self._makers.get(waiting.pop(), ()):
                waiting += (new := {*node.inputs, *node.outputs} - found)
                found |= new
        return len(found)

    def _manifest(self, version: str) -> dict[str, Any]:
        if version not in self._manifests:
            self._manifests[version] = read_manifest(self._runs.root, version)
        return self._manifests[version]


def fix(catalog: CatalogProtocol, pipeline: Pipeline, origins: Origins) -> None:
    """Fix what a run loads, whatever others save meanwhile; versions that were asked for stay.

    What the run makes is loaded in its own version. What it does not make is the newest that belongs together.

    Parameters
    ----------
    catalog
        Of the run.
    pipeline
        Its nodes.
    origins
        Of what is there.

    Raises
    ------
    AnmiError
        Something was never made, or no versions belong together.
    """
    made, taken = pipeline.all_outputs(), {}
    for name in sorted(pipeline.datasets()):
        dataset = catalog.get(name)
        if not (isinstance(dataset, AbstractVersionedDataset) and dataset._version):
            continue
        if name not in made:
            taken[name] = dataset
        elif not dataset._version.load:
            _load(dataset, str(dataset.resolve_save_version()))
    settle(taken, origins)


def settle(datasets: Mapping[str, Any], origins: Origins) -> None:
    """Fix datasets to the newest versions that belong together, those first that most was needed to make.

    Parameters
    ----------
    datasets
        By name. Where one has a version to load, that stays, and what it was made from goes before what is newer.
    origins
        Of what is there.

    Raises
    ------
    AnmiError
        One was never made, or no versions belong together.
    """
    given = {name: str(dataset._version.load) for name, dataset in datasets.items() if dataset._version.load}
    chosen = dict(given)
    for name, version in given.items():
        for other, its in origins.of(name, version).items():
            if other in datasets and _is_there(datasets[other], its):
                chosen.setdefault(other, its)
    for name in sorted(datasets, key=lambda name: (-origins.depth(name), name)):
        if name not in chosen:
            chosen |= _newest(name, datasets, chosen, given, origins)
    for name, version in chosen.items():
        _load(datasets[name], version)


def _newest(
    name: str, datasets: Mapping[str, Any], chosen: Mapping[str, str], given: Mapping[str, str], origins: Origins
) -> dict[str, str]:
    """Return the newest version that agrees with the chosen ones, and those of the others that it was made from."""
    obstacle: tuple[str, str, str] | None = None
    # Who asked for a version may want it with what does not belong to it.
    for asked in ({}, given) if given else ({},):
        for version in _versions(datasets[name]):
            sources = origins.of(name, version).items()
            wanted = {other: its for other, its in sources if other in datasets and other not in asked}
            wrong = next((o for o, v in wanted.items() if chosen.get(o, v) != v or not _is_there(datasets[o], v)), None)
            if wrong is None:
                return wanted
            obstacle = obstacle or (version, wrong, wanted[wrong])
    if obstacle is None:
        # Artifacts lie in the folder of the pipeline that makes them.
        maker = datasets[name]._filepath.parent.name
        raise AnmiError(f'nothing has been saved as "{name}" yet: run the pipeline that makes it first ({maker})')
    version, wrong, its = obstacle
    lack = f"the rest belongs to that of run {chosen[wrong]}" if wrong in chosen else "that is not there"
    raise AnmiError(f'"{name}" of run {version} goes with "{wrong}" of run {its}, and {lack}: {_WAYS_OUT}')


def _versions(dataset: Any) -> Iterator[str]:
    # Kedro's own way looks whether each of them is there.
    return dataset.versions() if hasattr(dataset, "versions") else iter(dataset.list_versions(full_path=False))


def _is_there(dataset: Any, version: str) -> bool:
    return bool(dataset._exists_function(str(dataset._get_versioned_path(version))))


def _load(dataset: Any, version: str) -> None:
    dataset._version = Version(version, dataset._version.save)
