"""The versions that a run loads, fixed before its first node.

On its own Kedro loads of each dataset the newest version at the moment of loading, whoever saved
it. So a run would take what another one saves meanwhile, and pipelines that are run separately
would mix what does not belong together.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from kedro.io import CatalogProtocol
from kedro.pipeline import Pipeline
from kedro.pipeline.node import Node
from pydantic import ValidationError
from yaml import safe_load

from anmi.corpus.places import files_of_docs, files_of_pairs, kind_and_place
from anmi.datasets.artifact import ArtifactDataset
from anmi.errors import AnmiError, nearest
from anmi.files import plain
from anmi.fingerprint import files_in, hash_files
from anmi.hooks.record import Runs, flatten
from anmi.selection.recipe import RecipeBook

# What a result is called by; sizes of splits among it.
_NAMING: Final = frozenset(
    {
        "collection",
        "encoder",
        "dense.encoder",
        "dense.prompt_query",
        "dense.prompt_document",
        "dense.max_length",
        "recipe",
        "seed",
        "ingestion.api_docs_queries",
        "ingestion.max_queries",
        "ingestion.dev_share",
        "ingestion.test_share",
        "ingestion.new_queries",
    }
)
# The parts of a recipe that mining does not read.
_NOT_MINED: Final = frozenset({"description", "source", "training"})
FILES: Final = "_files"
_REMEDY: Final = (
    "run the pipelines that make them in one run, or name versions with --load-versions"
)


def fix(
    catalog: CatalogProtocol,
    pipeline: Pipeline,
    runs: Runs,
    project_pipelines: Iterable[Pipeline],
    resumed_versions: Mapping[str, str | None] | None = None,
) -> dict[str, ArtifactDataset]:
    """Fix what a run loads, whatever others save meanwhile; versions of ``--load-versions`` stay.

    What the run makes is loaded in its own version, all else in the newest versions that belong
    together.

    Parameters
    ----------
    catalog, pipeline
        Of the run.
    runs, project_pipelines
        See :func:`settle`.
    resumed_versions
        Versions by dataset that the same run loaded before it stopped.

    Returns
    -------
    dict of str to ArtifactDataset
        What the run loads and does not make.
    """
    outputs = pipeline.all_outputs()
    inputs: dict[str, ArtifactDataset] = {}
    for name in sorted(pipeline.datasets()):
        dataset = catalog.get(name)
        if not (isinstance(dataset, ArtifactDataset) and dataset.is_versioned):
            continue
        version: str | None
        if name in outputs:
            version = str(dataset.resolve_save_version())
        else:
            version = (resumed_versions or {}).get(name)
            inputs[name] = dataset
        if version and not dataset.load_version:
            dataset.fix_load_version(version)
    settle(inputs, runs, project_pipelines)
    return inputs


def facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that a result is called by, and its recipe without its training."""
    naming = {name: value for name, value in flatten(parameters).items() if name in _NAMING}
    recipes = parameters.get("recipes", {})
    recipe = recipes.get(naming.get("recipe"))
    if isinstance(recipe, Mapping):
        # As read: Kedro validates what a node of the run reads, and fills in defaults. Other
        # projects have others.
        with suppress(ValidationError):
            recipe = plain(RecipeBook(**recipes).get(naming["recipe"]))
        naming[f"recipes.{naming['recipe']}"] = {
            name: value for name, value in recipe.items() if name not in _NOT_MINED
        }
    return naming


def hashes(run_facts: Mapping[str, Any], inputs: Container[str]) -> dict[str, str]:
    """Return hashes of the local files that facts name, of those parameters that a run reads."""
    digests = {}
    for name in ("collection", "encoder", "dense.encoder"):
        if f"params:{name.partition('.')[0]}" not in inputs or run_facts.get(name) is None:
            continue
        value = str(run_facts[name])
        # Where there are no files, the node that reads them says so.
        with suppress(OSError, ValueError, RuntimeError, AnmiError):
            files = files_of(value) if name == "collection" else files_in(Path(value))
            if files:
                digests[name + FILES] = hash_files((path.as_posix(), path) for path in files)
    return digests


def files_of(collection: str) -> list[Path]:
    """Return the files that a collection is read from, none where it is made of something else."""
    kind, location = kind_and_place(collection)
    if kind == "docs":
        return [path for _, path in files_of_docs(location)]
    if kind == "pairs":
        return [path for *_, files in files_of_pairs(location) for path in files]
    if kind == "hf":
        location = location.partition(":")[0]
    return files_in(Path(location).expanduser()) if kind in ("beir", "kg", "hf") else []


def origin(
    inputs: Mapping[str, ArtifactDataset],
    runs: Runs,
    project_pipelines: Mapping[str, Pipeline],
    pipeline: Pipeline,
    run_facts: Mapping[str, Any],
) -> dict[str, Any]:
    """Return what the results of a run are made from: its own facts, and those of what it loads.

    A fact of an input counts where the input was made by nodes that read it, or by nodes after
    them. A run that only trains may have another seed than what it trains on, since only the
    sampling of training depends on it.

    Parameters
    ----------
    inputs
        What the run loads and does not make, the versions fixed.
    runs
        The records of other runs.
    project_pipelines, pipeline
        All pipelines, by name, and that of the run.
    run_facts
        The facts of the run itself.

    Raises
    ------
    AnmiError
        The run asks for something else than an input was made from.
    """
    origins = dict(run_facts)
    default = project_pipelines["__default__"]
    training = [node.name for node in default.nodes if node.namespace == "training"]
    later = {node.name for node in default.from_nodes(*training).nodes} if training else set()
    mines = any("params:seed" in node.inputs and node.name not in later for node in pipeline.nodes)
    for name, dataset in sorted(inputs.items()):
        version = str(dataset.resolve_load_version())
        record = runs.read(version)
        names = [label for label in record.get("pipelines", ()) if label in project_pipelines]
        makers = sum((project_pipelines[label] for label in names), default)
        ancestors = makers.to_outputs(name) if name in makers.all_outputs() else Pipeline([])
        is_trained = any(node.namespace == "training" for node in ancestors.nodes)
        is_mixed_seed = not (mines or is_trained)
        parameters = {
            parameter.removeprefix("params:").split(".")[0]
            for parameter in ancestors.inputs()
            if parameter.startswith("params:")
        }
        input_facts = facts(record.get("parameters", {})) | record.get("made_from", {})
        conflicts = []
        for fact, value in input_facts.items():
            if fact == "seed" and is_mixed_seed and origins.get(fact) != value:
                origins["mining_seed"] = value
                continue
            is_read = fact.split(".")[0].removesuffix(FILES) in parameters
            if origins.setdefault(fact, value) != value and is_read:
                conflicts.append(fact)
        if conflicts:
            subject = f'"{name}" of run {version}'
            raise AnmiError(_mismatch(subject, conflicts, input_facts, origins))
    return {
        name: value
        for name, value in origins.items()
        if value is not None and not name.startswith("recipes.")
    }


def _mismatch(
    subject: str,
    conflicts: Sequence[str],
    input_facts: Mapping[str, Any],
    origins: Mapping[str, Any],
) -> str:
    """Say what a run asks for, what its input was made from, and what would be right."""
    settings = [name for name in conflicts if not name.endswith(FILES)]
    right = flatten({name: input_facts[name] for name in settings})
    wrong = flatten({name: origins[name] for name in settings})
    differing = [name for name in right if right[name] != wrong.get(name)]
    if not differing:
        names = [name.removesuffix(FILES) for name in conflicts]
        locations = " and ".join(f"{name}={origins[name]}" for name in names)
        return (
            f"the files of {locations} are not those that {subject} was made from: put them back,"
            " or run all pipelines"
        )
    cure = ",".join(f"{name}={_written(right[name])}" for name in differing)
    request = ",".join(f"{name}={_written(wrong.get(name))}" for name in differing)
    return (
        f"{subject} was made from {cure}, and this run asks for {request}: set --params {cure}, or"
        " run all pipelines"
    )


def _written(value: Any) -> str:
    """Write a value as ``--params`` reads it: in quotes where YAML would read a text otherwise."""
    if value is None:
        return "null"
    return repr(value) if isinstance(value, str) and safe_load(value) != value else str(value)


def settle(
    datasets: Mapping[str, ArtifactDataset], runs: Runs, project_pipelines: Iterable[Pipeline]
) -> None:
    """Fix datasets to the newest versions that belong together, those first that are made last.

    Parameters
    ----------
    datasets
        By name. Where one has a version to load, that stays, and what it was made from goes before
        what is newer.
    runs
        The records of the runs that made them.
    project_pipelines
        All pipelines: they say what is made of what.

    Raises
    ------
    AnmiError
        A dataset was never made, or no versions belong together.
    """
    requested = {
        name: dataset.load_version for name, dataset in datasets.items() if dataset.load_version
    }
    chosen = dict(requested)
    for name, version in requested.items():
        if not datasets[name].has_version(version):
            hint = nearest(version, list(datasets[name].versions()))
            raise AnmiError(f'there is no version {version} of "{name}": {hint}')
        chosen = _present(runs.versions(version), datasets) | chosen
    depths: dict[str, int] = {}
    makers: dict[str, Node] = {}
    for pipeline in project_pipelines:
        for depth, node in enumerate(pipeline.nodes):
            for output in node.outputs:
                depths[output] = max(depth, depths.get(output, 0))
                makers[output] = node
    for name in sorted(datasets, key=lambda name: (-depths.get(name, 0), name)):
        if name not in chosen:
            chosen |= _newest(name, makers.get(name), datasets, chosen, requested, runs)
    for name, version in chosen.items():
        datasets[name].fix_load_version(version)


def _present(
    versions: Mapping[str, str], datasets: Mapping[str, ArtifactDataset]
) -> dict[str, str]:
    """Return those versions whose dataset is read and has them."""
    return {
        name: version
        for name, version in versions.items()
        if name in datasets and datasets[name].has_version(version)
    }


def _newest(
    name: str,
    maker: Node | None,
    datasets: Mapping[str, ArtifactDataset],
    chosen: Mapping[str, str],
    requested: Mapping[str, str],
    runs: Runs,
) -> dict[str, str]:
    """Return the newest version that agrees with the chosen ones, and what it was made from.

    What one node made belongs together, so half of what a node made does not count.
    """
    obstacle = ""
    # A version that the user named may be wanted with what does not belong to it.
    for exempt in ({}, requested) if requested else ({},):
        for version in datasets[name].versions():
            lineage = runs.versions(version)
            siblings = maker.outputs if maker and lineage else ()
            sources = lineage | dict.fromkeys([name, *siblings], version)
            sources = {
                source: source_version
                for source, source_version in sources.items()
                if source in datasets and source not in exempt
            }
            present = _present(sources, datasets)
            conflict = next(
                (
                    source
                    for source, source_version in sources.items()
                    if chosen.get(source, source_version) != source_version or source not in present
                ),
                None,
            )
            if conflict is None:
                return sources
            reason = "that is not there"
            if conflict in chosen:
                reason = f"the rest belongs to that of run {chosen[conflict]}"
            obstacle = obstacle or (
                f'"{name}" of run {version} goes with "{conflict}" of run {sources[conflict]}, and'
                f" {reason}: {_REMEDY}"
            )
    stage = maker.namespace or maker.name if maker else "?"
    raise AnmiError(
        obstacle
        or f'nothing has been saved as "{name}" yet: run the pipeline that makes it first ({stage})'
    )
