"""The versions that a run loads, fixed before its first node.

On its own Kedro loads of each dataset the newest version at the moment of loading, whoever saved
it. So a run would take what another one saves meanwhile, and pipelines that are run separately
would mix what does not belong together.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any, Final

from kedro.io import CatalogProtocol
from kedro.io.core import AbstractVersionedDataset, Version
from kedro.pipeline import Pipeline
from kedro.pipeline.node import Node
from pydantic import ValidationError
from yaml import safe_load

from anmi.corpus.places import files_of_docs, files_of_pairs, kind_and_place
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
_WAYS_OUT: Final = (
    "run the pipelines that make them in one run, or name versions with --load-versions"
)


def fix(
    catalog: CatalogProtocol,
    pipeline: Pipeline,
    runs: Runs,
    known: Iterable[Pipeline],
    before: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Fix what a run loads, whatever others save meanwhile; versions that were asked for stay.

    What the run makes is loaded in its own version; the rest in the newest versions that belong
    together.

    Parameters
    ----------
    catalog, pipeline
        Of the run.
    runs, known
        See :func:`settle`.
    before
        Versions that the same run loaded before it stopped.

    Returns
    -------
    dict of str to dataset
        What the run does not make.
    """
    made = pipeline.all_outputs()
    taken = {}
    for name in sorted(pipeline.datasets()):
        dataset = catalog.get(name)
        if not (isinstance(dataset, AbstractVersionedDataset) and dataset._version):
            continue
        own = str(dataset.resolve_save_version()) if name in made else (before or {}).get(name)
        if own and not dataset._version.load:
            _load(dataset, own)
        if name not in made:
            taken[name] = dataset
    settle(taken, runs, known)
    return taken


def facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the recorded parameters that a result is called by, and what its recipe says apart from training."""
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


def hashes(asked: Mapping[str, Any], read: Container[str]) -> dict[str, str]:
    """Return hashes of the files that facts name, of those parameters that are read, as far as they lie here."""
    found = {}
    for name in ("collection", "encoder", "dense.encoder"):
        if f"params:{name.partition('.')[0]}" not in read or asked.get(name) is None:
            continue
        # Where none are, who reads them says so.
        with suppress(OSError, ValueError, RuntimeError, AnmiError):
            if files := (
                files_of(str(asked[name])) if name == "collection" else files_in(Path(asked[name]))
            ):
                found[name + FILES] = hash_files((path.as_posix(), path) for path in files)
    return found


def files_of(collection: str) -> list[Path]:
    """Return the files that a collection is read from; none where it is made of something else."""
    kind, place = kind_and_place(collection)
    if kind == "docs":
        return [path for _, path in files_of_docs(place)]
    if kind == "pairs":
        return [path for *_, files in files_of_pairs(place) for path in files]
    place = place.partition(":")[0] if kind == "hf" else place
    return files_in(Path(place).expanduser()) if kind in ("beir", "kg", "hf") else []


def origin(
    taken: Mapping[str, Any],
    runs: Runs,
    known: Mapping[str, Pipeline],
    pipeline: Pipeline,
    asked: Mapping[str, Any],
) -> dict[str, Any]:
    """Return what the results of a run are made from: what it is asked for, and what is known of what it loads.

    A fact of what it loads counts where that was made by nodes that read it, or by nodes after
    them. A run that only trains may have another seed than what it trains on, since only the
    sampling of training depends on it.

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

    Raises
    ------
    AnmiError
        It is asked for something else than what it loads was made from.
    """
    found = dict(asked)
    whole = known["__default__"]
    training = [node.name for node in whole.nodes if node.namespace == "training"]
    later = {node.name for node in whole.from_nodes(*training).nodes} if training else set()
    mines = any("params:seed" in node.inputs and node.name not in later for node in pipeline.nodes)
    for name, dataset in sorted(taken.items()):
        version = str(dataset.resolve_load_version())
        before = runs.read(version)
        makers = sum((known[each] for each in before.get("pipelines", ()) if each in known), whole)
        way = makers.to_outputs(name) if name in makers.all_outputs() else Pipeline([])
        trained = any(node.namespace == "training" for node in way.nodes)
        read = {
            each.removeprefix("params:").split(".")[0]
            for each in way.inputs()
            if each.startswith("params:")
        }
        its = facts(before.get("parameters", {})) | before.get("made_from", {})
        wrong = []
        for fact, value in its.items():
            if fact == "seed" and not (mines or trained) and found.get(fact) != value:
                found["mining_seed"] = value
            elif (
                found.setdefault(fact, value) != value
                and fact.split(".")[0].removesuffix(FILES) in read
            ):
                wrong.append(fact)
        if wrong:
            raise AnmiError(_mismatch(f'"{name}" of run {version}', wrong, its, found))
    return {
        name: value
        for name, value in found.items()
        if value is not None and not name.startswith("recipes.")
    }


def _mismatch(
    what: str, wrong: Sequence[str], its: Mapping[str, Any], asked: Mapping[str, Any]
) -> str:
    """Say what a run is asked for, what its input was made from, and which parameters would be right."""
    made, meant = (
        flatten({name: each[name] for name in wrong if not name.endswith(FILES)})
        for each in (its, asked)
    )
    differing = [name for name in made if made[name] != meant.get(name)]
    if not differing:
        places = " and ".join(
            f"{name.removesuffix(FILES)}={asked[name.removesuffix(FILES)]}" for name in wrong
        )
        return (
            f"the files of {places} are not those that {what} was made from: put them back, or run"
            " all pipelines"
        )
    right, other = (
        ",".join(f"{name}={_written(each.get(name))}" for name in differing)
        for each in (made, meant)
    )
    return (
        f"{what} was made from {right}, and this run asks for {other}: set --params {right}, or run"
        " all pipelines"
    )


def _written(value: Any) -> str:
    """Write a value as ``--params`` reads it: in quotes where YAML would make something else of a text."""
    if value is None:
        return "null"
    return repr(value) if isinstance(value, str) and safe_load(value) != value else str(value)


def settle(datasets: Mapping[str, Any], runs: Runs, known: Iterable[Pipeline]) -> None:
    """Fix datasets to the newest versions that belong together, those first that are made last.

    Parameters
    ----------
    datasets
        By name. Where one has a version to load, that stays, and what it was made from goes before
        what is newer.
    runs
        What is known of those that made them.
    known
        All pipelines there are: they say what is made of what.

    Raises
    ------
    AnmiError
        One was never made, or no versions belong together.
    """
    given = {
        name: str(dataset._version.load)
        for name, dataset in datasets.items()
        if dataset._version.load
    }
    chosen = dict(given)
    for name, version in given.items():
        if not _has(datasets, name, version):
            hint = nearest(version, list(datasets[name].versions()))
            raise AnmiError(f'there is no version {version} of "{name}": {hint}')
        chosen = {
            other: its
            for other, its in runs.versions(version).items()
            if _has(datasets, other, its)
        } | chosen
    depth: dict[str, int] = {}
    makers: dict[str, Node] = {}
    for place, node in chain.from_iterable(enumerate(pipeline.nodes) for pipeline in known):
        depth |= {name: max(place, depth.get(name, 0)) for name in node.outputs}
        makers |= dict.fromkeys(node.outputs, node)
    for name in sorted(datasets, key=lambda name: (-depth.get(name, 0), name)):
        if name not in chosen:
            chosen |= _newest(name, makers.get(name), datasets, chosen, given, runs)
    for name, version in chosen.items():
        _load(datasets[name], version)


def _newest(
    name: str,
    maker: Node | None,
    datasets: Mapping[str, Any],
    chosen: Mapping[str, str],
    given: Mapping[str, str],
    runs: Runs,
) -> dict[str, str]:
    """Return the newest version that agrees with the chosen ones, and those of the others that it was made from.

    What one node made belongs together, so half of what a node made does not count.
    """
    obstacle = ""
    # Who asked for a version may want it with what does not belong to it.
    for asked in ({}, given) if given else ({},):
        for version in datasets[name].versions():
            lineage = runs.versions(version)
            sources = lineage | dict.fromkeys(
                [name, *(maker.outputs if maker and lineage else ())], version
            )
            wanted = {
                other: its
                for other, its in sources.items()
                if other in datasets and other not in asked
            }
            other = next(
                (
                    o
                    for o, its in wanted.items()
                    if chosen.get(o, its) != its or not _has(datasets, o, its)
                ),
                "",
            )
            if not other:
                return wanted
            lack = (
                f"the rest belongs to that of run {chosen[other]}"
                if other in chosen
                else "that is not there"
            )
            told = (
                f'"{name}" of run {version} goes with "{other}" of run {wanted[other]}, and {lack}:'
                f" {_WAYS_OUT}"
            )
            obstacle = obstacle or told
    stage = maker.namespace or maker.name if maker else "?"
    raise AnmiError(
        obstacle
        or f'nothing has been saved as "{name}" yet: run the pipeline that makes it first ({stage})'
    )


def _has(datasets: Mapping[str, Any], name: str, version: str) -> bool:
    dataset = datasets.get(name)
    return dataset is not None and bool(
        dataset._exists_function(str(dataset._get_versioned_path(version)))
    )


def _load(dataset: Any, version: str) -> None:
    dataset._version = Version(version, dataset._version.save)
