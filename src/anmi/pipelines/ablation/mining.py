"""Mining a collection once for all cells of it, in a folder of its own.

The stages are the pipelines that ``kedro run`` runs, and the catalog is the project's with another data root, so what
lies in the folder is what a run would have left there. They are run by Kedro's runner in a worker process and not by a
session of their own: a session inside a session would write a second manifest, open a second tracking run, and need
every parameter spelt out on a command line, while here the validated ones are handed on. The process keeps the changed
data root and the memory of mining apart from the run, and its failure is one collection's failure.

What is judged is what any recipe of the set reads. The folder is named by a fingerprint of all that can change its
content: an unchanged collection is never mined twice, and two sets that need the same share it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from anmi.engine import IN_PROCESS
from anmi.errors import AnmiError
from anmi.fingerprint import hash_value
from anmi.pipelines.ablation.code import code
from anmi.selection.recipe import RecipeBook

STAGES: Final = ("ingestion", "adaptation", "bm25", "dense", "consistency", "denoising", "elo")
_ROOTS: Final = tuple(f"anmi.pipelines.{stage}" for stage in (*STAGES, "audit"))
_DONE: Final = "mined.json"


@dataclass(frozen=True)
class MiningJob:
    """One collection to be mined.

    Attributes
    ----------
    name
        Of the collection in the set.
    folder
        Data root of the mining.
    store
        Of embeddings and judgments, shared by all.
    configuration
        The project's ``conf`` folder.
    parameters
        Values of the pipelines' ``params:`` inputs, by name.
    audit
        Whether a version with hidden positives is mined as well.
    """

    name: str
    folder: Path
    store: Path
    configuration: Path
    parameters: Mapping[str, Any] = field(repr=False)
    audit: bool

    @property
    def is_done(self) -> bool:
        """Whether it was mined already."""
        return (self.folder / _DONE).is_file()


def mine(job: MiningJob) -> None:
    """Run the stages and leave a note when all is there; a part without it is mined again, from the store."""
    from kedro.pipeline import Pipeline
    from kedro.runner import SequentialRunner

    from anmi.engine import Failure
    from anmi.files import aside
    from anmi.pipelines import audit

    # What a killed run left there is of no use: the store has what was expensive about it.
    shutil.rmtree(job.folder, ignore_errors=True)
    version = "mined"
    catalog = _catalog(job.configuration, job.folder, job.store, save_version=version)
    for name, value in job.parameters.items():
        catalog[f"params:{name}"] = value
    # Cells have the workers, and a comparison keeps nothing of an earlier one.
    catalog["params:engine"] = IN_PROCESS
    catalog["params:keep_judges"] = catalog["params:update"] = False
    stages: Any = sum((_stage(name) for name in STAGES), Pipeline([]))
    SequentialRunner().run(stages, catalog)
    no_audit = "not asked for"
    if job.audit:
        # Up to what recipes choose from; that they choose there is part of their selection.
        planted = audit.create_pipeline().to_outputs("audit.ratings", "planted_truth", "audit.consistency")
        try:
            SequentialRunner().run(planted, catalog)
            no_audit = ""
        except Exception as error:
            found = Failure.of(error)
            if not found.expected:
                raise
            # That there is nothing to hide is no fault: the false-negative rate of this collection stays unknown.
            no_audit = found.message
    with aside(job.folder / _DONE) as path:
        path.write_text(json.dumps({"version": version, "no_audit": no_audit}), encoding="utf-8")


def _stage(name: str) -> Any:
    import importlib

    return importlib.import_module(f"anmi.pipelines.{name}").create_pipeline()


@lru_cache(maxsize=2)
def mined(configuration: Path, folder: Path, store: Path) -> Mined:
    """Return what was mined there; kept for the next cell of the same process."""
    note = json.loads((folder / _DONE).read_text(encoding="utf-8"))
    return Mined(_catalog(configuration, folder, store, load_version=note["version"]), note["no_audit"])


class Mined:
    """Artifacts of a mined collection, each read once.

    Parameters
    ----------
    catalog
        On the folder that it was mined in.
    no_audit
        Why there is no audited version; empty where there is one.
    """

    def __init__(self, catalog: Any, no_audit: str) -> None:
        self._catalog, self.no_audit = catalog, no_audit
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        """Return an artifact by its name in the catalog."""
        if name not in self._loaded:
            self._loaded[name] = self._catalog.load(name)
        return self._loaded[name]


def _catalog(
    configuration: Path, folder: Path, store: Path, *, save_version: str | None = None, load_version: str | None = None
) -> Any:
    """Return the project's catalog on another data root; it changes the environment of this process."""
    from kedro.config import OmegaConfigLoader
    from kedro.io import DataCatalog

    from anmi.configuration import LOADER_ARGS

    os.environ |= {"ANMI_DATA_ROOT": str(folder), "ANMI_STORE": str(store)}
    entries = OmegaConfigLoader(str(configuration), **LOADER_ARGS)["catalog"]
    versioned = [name for name, entry in entries.items() if entry.get("versioned")]
    loaded = dict.fromkeys(versioned, load_version) if load_version else None
    return DataCatalog.from_config(entries, load_versions=loaded, save_version=save_version)


def fingerprint(parameters: Mapping[str, Any], recipes: RecipeBook, project: Path) -> str:
    """Return a hash of all that can change what is mined of a collection.

    Of the recipes that is which judges they ask, not how they choose.
    """
    from anmi.corpus.contents import contents
    from anmi.pipelines.adaptation.nodes import kinds_of
    from anmi.runs import unchanged
    from anmi.runs.record import as_plain, package_versions
    from anmi.selection.recipe import OF_CROSS_ENCODER, OF_ELO

    every = recipes.get(RecipeBook.every)
    judged: list[Any] = [
        sorted(every.sources),
        every.judged,
        *(bool(every.requires & kind) for kind in (OF_CROSS_ENCODER, OF_ELO)),
    ]
    judged.append(kinds_of(RecipeBook.every, recipes, {}))
    plain = {name: as_plain(value) for name, value in parameters.items() if not isinstance(value, RecipeBook)}
    # Of what is in the parameters `recipe` is that of a single run.
    plain |= {"recipe": judged}
    try:
        read_from = contents(str(plain["collection"]), plain["ingestion"]["marks"])
        parts = unchanged.fingerprint(
            [f"params:{name}" for name in plain], plain, read_from, package_versions(), {}, project
        )
    except OSError as error:
        raise AnmiError(f'collection "{parameters["collection"]}": {error}') from error
    return hash_value(parts | {"code": code(*_ROOTS)}, 8)


def book_of(recipes: RecipeBook, names: Sequence[str]) -> RecipeBook:
    """Return a book of some recipes only; what its ``*`` reads is what those read."""
    return RecipeBook.model_construct(None, **{name: recipes.get(name) for name in names})


def folder_name(name: str) -> str:
    """Return a collection's name as the name of a folder.

    Examples
    --------
    >>> folder_name("kg_webnlg/beir_en")
    'kg_webnlg-beir_en'
    """
    return re.sub(r"[^\w.]+", "-", name)
