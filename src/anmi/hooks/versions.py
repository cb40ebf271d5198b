"""The versions that a run loads, fixed before its first node.

On its own Kedro loads of each dataset the newest version at the moment of loading, whoever saved it. So a run would
take what another one saves meanwhile, and pipelines that are run separately would mix what does not belong together.
"""

from __future__ import annotations

import shlex
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from kedro.io import CatalogProtocol
from kedro.io.core import AbstractVersionedDataset, Version
from kedro.pipeline import Pipeline
from kedro.pipeline.node import Node
from pydantic import ValidationError

from anmi.corpus.raw import kind_and_place
from anmi.errors import AnmiError, nearest
from anmi.files import plain
from anmi.fingerprint import files_in, hash_files
from anmi.hooks.record import RunRecord, Runs, flatten
from anmi.selection.recipe import RecipeBook

# What a result is called by; sizes of splits among it.
_NAMING: Final = frozenset({
    "collection", "encoder", "dense.encoder", "recipe", "seed", "ingestion.api_docs_queries", "ingestion.max_queries",
    "ingestion.dev_share", "ingestion.test_share", "ingestion.new_queries",
})  # fmt: skip
# Of a recipe: how it is told of, and what is the training stage's own.
_NOT_MINED: Final = frozenset({"description", "source", "training"})
FILES: Final = "_files"
_SEED: Final = "params:seed"
_TRAINING: Final = "stage:training"
_WAYS_OUT: Final = "run the pipelines that make them in one run, or name versions with --load-versions"


def fix(
    catalog: CatalogProtocol,
    pipeline: Pipeline,
    runs: Runs,
    known: Iterable[Pipeline],
    before: Mapping[str, str] | None = None,
    run_id: str = "",
) -> dict[str, Any]:
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
    run_id
        Of the run, which is the version of what it saves; empty for the one that Kedro chose.

    Returns
    -------
    dict of str to dataset
        What it does not make.
    """
    made, taken = pipeline.all_outputs(), {}
    for name in sorted(pipeline.datasets()):
        dataset = catalog.get(name)
        if not (isinstance(dataset, AbstractVersionedDataset) and dataset._version):
            continue
        if run_id:
            dataset._version = Version(dataset._version.load, run_id)
        if name not in made:
            taken[name] = dataset
            if before and name in before and not dataset._version.load:
                _load(dataset, before[name])
        elif not dataset._version.load:
            _load(dataset, str(dataset.resolve_save_version()))
    settle(taken, runs, known)
    return taken


def facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the recorded parameters that a result is called by, and what its recipe says apart from training."""
    own = {name: value for name, value in flatten(parameters).items() if name in _NAMING and value is not None}
    recipes = parameters.get("recipes", {})
    recipe = recipes.get(own.get("recipe"))
    if isinstance(recipe, Mapping):
        if isinstance(recipe.get("steps", {}), Mapping):
            # As read: Kedro validates what a node of the run reads, and fills in defaults. Other projects have others.
            with suppress(ValidationError):
                recipe = plain(RecipeBook(**recipes).get(own["recipe"]))
        own[f"recipes.{own['recipe']}"] = {name: value for name, value in recipe.items() if name not in _NOT_MINED}
    return own


def hashes(asked: Mapping[str, Any], read: Container[str]) -> dict[str, str]:
    """Return hashes of the files that facts name, of those parameters that are read, as far as they lie here."""
    found = {}
    for name in ("collection", "encoder", "dense.encoder"):
        if f"params:{name.partition('.')[0]}" not in read or name not in asked:
            continue
        # Where none are, who reads them says so.
        with suppress(OSError, ValueError, RuntimeError, AnmiError):
            if files := files_of(str(asked[name])) if name == "collection" else files_in(Path(asked[name])):
                found[name + FILES] = hash_files((path.as_posix(), path) for path in files)
    return found


def files_of(collection: str) -> list[Path]:
    """Return the files that a collection is read from; none where it is made of something else."""
    from anmi.corpus.files_source import files_of_docs
    from anmi.corpus.pairs import files_of_patterns

    kind, place = kind_and_place(collection)
    if kind == "docs":
        return [path for _, path in files_of_docs(place)]
    if kind == "pairs":
        return [path for *_, files in files_of_patterns(place) for path in files]
    place = place.partition(":")[0] if kind == "hf" else place
    return files_in(Path(place).expanduser()) if kind in ("beir", "kg", "hf") else []


class _Way:
    """What every dataset is made of, directly or not: datasets, parameters and stages."""

    def __init__(self, pipelines: Iterable[Pipeline]) -> None:
        self._makers = {name: node for each in pipelines for node in each.nodes for name in node.outputs}
        self._known: dict[str, frozenset[str]] = {}

    def of(self, name: str) -> frozenset[str]:
        if name not in self._known:
            node = self._makers.get(name)
            self._known[name] = frozenset() if node is None else self.of_node(node)
        return self._known[name]

    def of_node(self, node: Node) -> frozenset[str]:
        return frozenset({*node.inputs, f"stage:{node.namespace}"}).union(*map(self.of, node.inputs))


def origin(
    taken: Mapping[str, Any],
    runs: Runs,
    known: Mapping[str, Pipeline],
    pipeline: Pipeline,
    asked: Mapping[str, Any],
    record: RunRecord,
) -> dict[str, Any]:
    """Return what the results of a run are made from: what it is asked for, and what is known of what it loads.

    Of what it loads those facts count that the nodes which made it read, or nodes before them. A run that trains may
    have another seed than what it trains on, since only the sampling of training depends on it; both are noted.

    Parameters
    ----------
    taken
        What the run loads and does not make, the versions fixed.
    runs
        What is known of others.
    known, pipeline
        All pipelines, by name, and that of the run.
    asked
        Its facts.
    record
        Of the run, to tell which command would be right.

    Raises
    ------
    AnmiError
        It is asked for something else than what it loads was made from.
    """
    found, wrong, first = dict(asked), dict[str, Any](), ("", "")
    here = [_Way([known["__default__"], pipeline]).of_node(node) for node in pipeline.nodes if _SEED in node.inputs]
    mines = any(_TRAINING not in each for each in here)
    for name, dataset in sorted(taken.items()):
        version = str(dataset.resolve_load_version())
        before = runs.read(version)
        makers = [known[each] for each in ("__default__", *before.get("pipelines", ())) if each in known]
        of = _Way(makers).of(name)
        read = {each.removeprefix("params:").split(".")[0] for each in of if each.startswith("params:")}
        its = facts(before.get("parameters", {})) | before.get("made_from", {})
        for fact, value in its.items():
            if fact == "seed" and not mines and _TRAINING not in of and found.get(fact) != value:
                found["mining_seed"] = value
            elif found.setdefault(fact, value) != value and fact.split(".")[0].removesuffix(FILES) in read:
                wrong.setdefault(fact, value)
                first = first if first[0] else (name, version)
    if wrong:
        raise AnmiError(_mismatch(wrong, found, first, record))
    return {name: value for name, value in found.items() if not name.startswith("recipes.")}


def _mismatch(wrong: Mapping[str, Any], asked: Mapping[str, Any], first: Sequence[str], record: RunRecord) -> str:
    """Say what a run is asked for and what its inputs were made from, with the commands that would be right."""
    settings = flatten(wrong), flatten({name: asked[name] for name in wrong})
    differing = [name for name in settings[0] if settings[0][name] != settings[1].get(name)]
    made, meant = ({name: each.get(name) for name in differing if not name.endswith(FILES)} for each in settings)
    given = flatten(record.runtime_parameters)
    env = {} if record.environment == "local" else {"env": [record.environment]}
    part = {"pipelines": record.pipelines} if record.pipelines != ["__default__"] else {}
    part |= {{"node_names": "nodes"}.get(name, name): values for name, values in record.filters.items()}
    what = f'"{first[0]}" of run {first[1]}'
    anew = f"make all of it by `{command(env, given)}`"
    if not made:
        places = " and ".join(f"{name.removesuffix(FILES)}={asked[name.removesuffix(FILES)]}" for name in differing)
        return f"the files of {places} are not those that {what} was made from: put them back, or {anew}"
    return (
        f"{what} was made from {_listed(made)}, and this run is asked for {_listed(meant)}: go on with "
        f"`{command(env | part, given | made)}`, or {anew}"
    )


def _listed(settings: Mapping[str, Any]) -> str:
    return ",".join(f"{name}={'null' if value is None else value}" for name, value in settings.items())


def command(options: Mapping[str, Sequence[str]], params: Mapping[str, Any]) -> str:
    """Return the `kedro run` of options and parameters, as it is typed."""
    words = ["kedro", "run", *(f"--{name.replace('_', '-')}={','.join(values)}" for name, values in options.items())]
    return shlex.join([*words, *(["--params", _listed(params)] if params else [])])


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
