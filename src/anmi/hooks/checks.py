# mypy: allow-untyped-decorators
"""Checks of what the user asked for, before anything runs."""

from __future__ import annotations

import errno
import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kedro.framework.context import KedroContext
from kedro.framework.hooks import hook_impl
from kedro.framework.project import pipelines
from kedro.io import CatalogProtocol
from kedro.pipeline import Pipeline
from kedro.pipeline.node import Node
from kedro.validation.type_extractor import TypeExtractor

from anmi.candidates import MEASURED
from anmi.corpus.raw import kind_and_place
from anmi.errors import AnmiError, nearest
from anmi.files import disk_error
from anmi.hooks.parameters import (
    check_model,
    check_names,
    check_numbers,
    check_read,
    check_shapes,
    check_values,
    configured,
    references,
)
from anmi.hooks.secrets import check_no_secrets, mask_logs
from anmi.judging.pairwise import check_given
from anmi.pipelines.audit.params import AuditParams
from anmi.pipelines.evaluation.params import EvaluationParams
from anmi.pipelines.training.params import TrainingParams, merged_options
from anmi.retrieval.model_folder import is_folder
from anmi.retrieval.sparse.base import check_base, is_sparse_folder
from anmi.selection.recipe import OF_ELO, RecipeBook, inherited
from anmi.training.options import TrainingOptions

if TYPE_CHECKING:
    import pandas as pd

log = logging.getLogger(__name__)

ENCODERS: Final = ("minilm", "static")
_HUB_NAME: Final = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


class CheckHooks:
    """Name what is misspelt on the command line, with the nearest valid name."""

    def __init__(self) -> None:
        self._roots: tuple[tuple[str, str], ...] = ()
        self._draws_on_facts = self._asks_corpus = False
        self._evaluated: str | None = None
        self._unlabelled: str | None = None

    @hook_impl
    def after_context_created(self, context: KedroContext) -> None:
        """Check runtime parameters, recipe, encoder and collection, and that no parameter holds a secret."""
        mask_logs()
        loader = context.config_loader
        asked = loader.runtime_params or {}
        check_no_secrets(asked)
        known = configured(loader) if asked else loader["parameters"]
        check_names(asked, known.keys() | references(loader))
        check_shapes(asked, known)
        parameters = loader["parameters"]
        check_no_secrets(parameters)
        self._roots = roots(loader["globals"], context.project_path)
        check_values(parameters)
        if isinstance(parameters.get("recipes"), Mapping) and "recipe" in parameters:
            check_recipe(parameters["recipe"], parameters["recipes"])
            check_stated(asked, parameters["recipe"], parameters["recipes"])
            judged = parameters.get("audit_judges_for", RecipeBook.every)
            if judged != RecipeBook.every:
                check_recipe(judged, parameters["recipes"])
        if "encoder" in parameters:
            check_encoder(parameters["encoder"], context.project_path)
        if "collection" in parameters:
            check_collection(parameters["collection"])
        check_read(known, dict(pipelines))
        models = TypeExtractor(dict(pipelines)).extract_types_from_pipelines()
        for name, model in models.items():
            check_model(name, parameters, model)
            if model is RecipeBook:
                check_training(parameters[name])
                check_mining(parameters[name], models)
            if model is TrainingParams:
                given = parameters[name].get("options") or {}
                check_numbers(f"{name}.options", given, TrainingOptions(**{"negatives": 1, **given}))
            if model is AuditParams and (audited := parameters[name].get("recipe")) is not None:
                check_recipe(audited, parameters["recipes"])

    @hook_impl
    def before_pipeline_run(self, run_params: Mapping[str, Any], pipeline: Pipeline, catalog: CatalogProtocol) -> None:
        """Check where it is written to, and what only some runs ask for: packages, queries."""
        for place, setting in self._roots:
            make_root(place, setting)
        # A process may run several pipelines, and the hooks are those of all.
        self._draws_on_facts = self._asks_corpus = False
        nodes = {node.short_name for node in pipeline.nodes}
        if "train_retriever" in nodes:
            recipe = catalog.load("params:recipes").get(catalog.load("params:recipe"))
            options = merged_options(recipe, catalog.load("params:training"))
            check_packages(options)
            if options.masked_lm is not None:
                check_base(options.masked_lm)
            self._draws_on_facts = options.sources.kind == "mixed"
            self._asks_corpus = bool(options.pseudo_queries.kinds)
        if "rate_candidates" in nodes:
            asked = catalog.load("params:recipes").get(catalog.load("params:recipe"))
            if asked.requires & OF_ELO:
                check_given(asked.settings("elo", catalog.load("params:elo")).pairwise)
        self._evaluated = catalog.load("params:evaluation").split if "run_systems" in nodes else None
        if {"train_retriever", "run_systems"} <= nodes:
            check_evaluation(catalog.load("params:training"), catalog.load("params:evaluation"))
        if "describe_hardness" in nodes:
            catalog.load("params:evaluation").hardness.check_installed()

    @hook_impl
    def after_node_run(self, node: Node, outputs: dict[str, Any], inputs: dict[str, Any]) -> None:
        """Refuse a collection that lacks what the end of the run needs; training or evaluation would, hours later."""
        if node.short_name == "ask_corpus":
            self._check_pseudo_queries(outputs["pseudo_queries"])
        if node.name != "ingestion.ingest":
            return
        split, self._unlabelled = self._evaluated, None
        if split is not None and not (outputs["queries"]["split"] == split).any():
            if not self._asks_corpus:
                raise AnmiError(
                    f'the collection "{inputs["params:collection"]}" has no "{split}" query with a relevant document, '
                    f"so nothing could be evaluated: add labels for the split, raise ingestion.{split}_share, take a "
                    "recipe that trains on pseudo-queries, such as anmi, or run "
                    "`--pipelines mining,adaptation,training`"
                )
            self._unlabelled = split
            log.warning(
                "No %s query has a label; pseudo-queries of held-out documents are asked instead, which is a weaker "
                "proof: what a document says of itself is asked otherwise by people who look for it",
                split,
            )
        if self._draws_on_facts and not len(outputs["knowledge"].facts):
            raise AnmiError(
                f'the recipe draws negatives from mixed sources, and the documents of "{inputs["params:collection"]}" '
                "state no facts: read a collection with a graph by kg:DIR, or choose another recipe"
            )

    def _check_pseudo_queries(self, made: pd.DataFrame) -> None:
        """Refuse to train where neither people nor held-out documents ask what is to be evaluated."""
        split = self._unlabelled
        if split is not None and not (made["split"] == split).any():
            raise AnmiError(
                f'no "{split}" query has a label, and no held-out document asks one in its place ({len(made)} '
                f"pseudo-queries were made, none of them of such a document): add labels for the split, raise "
                f"ingestion.{split}_share or adaptation.held_out, or run `--pipelines mining,adaptation,training`"
            )


def roots(folders: Mapping[str, Any], project: Path) -> tuple[tuple[str, str], ...]:
    """Return where artifacts and the store lie, each with the environment variable that chooses it; no addresses.

    Raises
    ------
    AnmiError
        One is not named, so that files would be written to the root of the file system.
    """
    found = []
    for name, setting in (("data", "ANMI_DATA_ROOT"), ("store", "ANMI_STORE")):
        place = folders.get(name, name)
        if not isinstance(place, str) or not place.strip():
            raise AnmiError(
                f"{setting}, or `{name}` in globals.yml, is {place!r}: a folder was expected; name one, or unset it"
            )
        if "://" not in place:
            found.append((str(project / place), setting))
    return tuple(found)


def make_root(place: str, setting: str) -> None:
    """Make a folder unless it is there, and refuse one that cannot be made or written to.

    Examples
    --------
    >>> make_root("/dev/null", "ANMI_STORE")
    Traceback (most recent call last):
    anmi.errors.AnmiError: nothing can be written to /dev/null (File exists): set ANMI_STORE to a folder that can be \
written to
    """
    try:
        Path(place).mkdir(parents=True, exist_ok=True)
        if os.access(place, os.W_OK | os.X_OK):
            return
        read_only = os.statvfs(place).f_flag & os.ST_RDONLY
        raise OSError(errno.EROFS if read_only else errno.EACCES, "nothing can be written")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise disk_error(error, place, setting) or AnmiError(
            f"nothing can be written to {place} ({reason}): set {setting} to a folder that can be written to"
        ) from error


def check_recipe(recipe: Any, recipes: Mapping[str, Any]) -> None:
    """Refuse a recipe that is not registered."""
    if recipe not in recipes:
        raise AnmiError(f'there is no recipe "{recipe}": {nearest(str(recipe), recipes)}')


def check_stated(asked: Mapping[str, Any], recipe: str, recipes: Mapping[str, Any]) -> None:
    """Refuse a setting of mining on the command line that the chosen recipe states itself, as the recipe's would win.

    Examples
    --------
    >>> check_stated({"bm25": {"depth": 9}}, "deep", {"deep": {"mining": {"bm25": {"depth": 1000}}}})
    Traceback (most recent call last):
    anmi.errors.AnmiError: recipe "deep" states bm25.depth itself: set recipes.deep.mining.bm25.depth instead
    """
    found = inherited(recipe, recipes)
    stated = found.get("mining") if isinstance(found, Mapping) else None
    if name := _in_both(asked, stated):
        raise AnmiError(f'recipe "{recipe}" states {name} itself: set recipes.{recipe}.mining.{name} instead')


def _in_both(asked: Any, stated: Any) -> str:
    """Return the dotted name of a setting that stands in both; empty for none."""
    if not (isinstance(asked, Mapping) and isinstance(stated, Mapping)):
        return ""
    for name in asked.keys() & stated.keys():
        if not (isinstance(asked[name], Mapping) and isinstance(stated[name], Mapping)):
            return str(name)
        if inner := _in_both(asked[name], stated[name]):
            return f"{name}.{inner}"
    return ""


def check_training(recipes: Mapping[str, Any]) -> None:
    """Refuse a recipe with a training option that does not exist or has a wrong value; training would, hours later."""
    book = RecipeBook.model_validate(recipes)
    for name in book.names():
        recipe = book.get(name)
        try:
            options = merged_options(recipe, TrainingParams())
        except AnmiError as error:
            raise AnmiError(f'recipe "{name}", {error}') from None
        if unmeasured := sorted(recipe.requires - MEASURED):
            known = nearest(unmeasured[0], MEASURED)
            raise AnmiError(f'recipe "{name}" reads "{unmeasured[0]}", which no stage measures: {known}')
        check_numbers(f"recipes.{name}.training", recipe.training, options)
        unread = options.reads - recipe.requires
        if unread:
            columns = ", ".join(sorted(unread))
            raise AnmiError(
                f'recipe "{name}" trains on {columns}, which it does not mine: add `reads: [{columns}]` to it'
            )


def check_mining(recipes: Mapping[str, Any], models: Mapping[str, Any]) -> None:
    """Refuse a recipe that states a setting of mining which does not exist or has a wrong value, chosen or not.

    Parameters
    ----------
    recipes
        As read.
    models
        Of the parameters, by their dotted names.
    """
    book = RecipeBook.model_validate(recipes)
    for name in book.names():
        stated = book.get(name).mining
        for stage in stated.keys() & models.keys():
            try:
                check_model(stage, stated, models[stage])
            except AnmiError as error:
                raise AnmiError(f'recipe "{name}", mining: {error}') from None


def check_packages(options: TrainingOptions) -> None:
    """Refuse training that needs an extra that is not installed; it would stop hours later."""
    from anmi.training.options.hardness import HansOptions

    if isinstance(options.hardness, HansOptions):
        options.hardness.heuristic.check_installed()


def check_evaluation(training: TrainingParams, evaluation: EvaluationParams) -> None:
    """Refuse to train on the split that is to be evaluated on; the evaluation would, hours later."""
    from anmi.pipelines.evaluation.search import check_held_out

    check_held_out(evaluation.split, ["train", "dev"] if training.refit else ["train"])


def check_encoder(encoder: Any, project: Path) -> None:
    """Refuse an encoder that is neither a name of ours, nor a folder, nor shaped like a name on the hub.

    Examples
    --------
    >>> check_encoder("minilm", Path())
    >>> check_encoder("sentence-transformers/all-mpnet-base-v2", Path())
    """
    name = str(encoder)
    if any(is_sparse_folder(place) for place in (Path(name), project / name)):
        raise AnmiError(
            f'encoder "{name}" is a sparse retriever, and mining compares directions: give encoder=static or a dense '
            "model, and recipe=sparse to train a sparse one"
        )
    if name in ENCODERS or _HUB_NAME.fullmatch(name) or is_folder(name) or is_folder(str(project / name)):
        return
    if Path(name).suffix or name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise AnmiError(f'encoder "{name}" is not a folder here: give {" or ".join(ENCODERS)}, a folder or ORG/NAME')
    raise AnmiError(f'there is no encoder "{name}": {nearest(name, ENCODERS)}, an existing folder, or ORG/NAME')


def check_collection(collection: Any) -> None:
    """Refuse a collection whose kind is unknown or whose place is missing.

    Examples
    --------
    >>> check_collection("beir:../shared/data/scifact")
    >>> check_collection("docs:~noone/notes")
    Traceback (most recent call last):
    anmi.errors.AnmiError: collection "docs:~noone/notes": there is no such home; write the folder without ~
    """
    _, place = kind_and_place(str(collection))
    try:
        Path(place.partition(";")[0].strip()).expanduser()
    except RuntimeError:
        raise AnmiError(f'collection "{collection}": there is no such home; write the folder without ~') from None
