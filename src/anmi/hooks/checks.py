# mypy: allow-untyped-decorators
"""Checks of what the user asked for, before anything runs."""

from __future__ import annotations

import logging
import math
import os
import re
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, get_args

from kedro.framework.context import KedroContext
from kedro.framework.hooks import hook_impl
from kedro.framework.project import pipelines
from kedro.io import CatalogProtocol
from kedro.pipeline import Pipeline
from kedro.pipeline.node import Node
from kedro.validation.type_extractor import TypeExtractor
from pydantic import BaseModel, ValidationError

from anmi.candidates import MEASURED
from anmi.corpus.places import kind_and_place
from anmi.errors import (
    AnmiError,
    causes,
    holds_address_secret,
    masked,
    nearest,
)
from anmi.hooks.mlflow import tracked_at
from anmi.hooks.record import flatten
from anmi.pipelines.params import AuditParams, DenseParams, SearchParams, TrainAgain, sentence
from anmi.pipelines.training.params import TrainingParams, merged_options
from anmi.retrieval.model_folder import check_base, check_text_model, is_folder, is_sparse_folder
from anmi.seeds import is_seed
from anmi.selection.recipe import RecipeBook, inherited

ENCODERS: Final = ("corpus", "minilm", "static", "e5")
# Parameters of a single value, which nodes read as they are, and what is expected of them.
_TEXTS: Final = {
    "collection": "a text such as api_docs or beir:DIR",
    "recipe": "the name of a recipe",
    "encoder": "a text such as static, a folder or ORG/NAME",
    "audit_judges_for": 'the name of a recipe, or "*" for all',
}
_HUB_NAME: Final = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")

_LONGEST_HUB_NAME: Final = 96


class CheckHooks:
    """Refuse before the first node what would fail later, and name what is misspelt."""

    def __init__(self) -> None:
        self._context: Any = None
        self._needs_facts = False
        self._makes_pseudo_queries = False
        self._evaluated_split: str | None = None

    @hook_impl
    def after_context_created(self, context: KedroContext) -> None:
        """Check parameters, recipes, encoders and the collection, and that none holds a secret."""
        mask_logs()
        self._context = context
        loader = context.config_loader
        runtime_parameters = loader.runtime_params or {}
        check_no_secrets(runtime_parameters)
        parameters = loader["parameters"]
        check_no_secrets(parameters)
        check_names(parameters, dict(pipelines))
        check_values(parameters)
        recipes = parameters.get("recipes")
        if isinstance(recipes, Mapping) and "recipe" in parameters:
            check_recipe(parameters["recipe"], recipes)
            try:
                stated = inherited(parameters["recipe"], recipes)
            except ValueError as error:
                raise AnmiError(f"recipe {error}") from None
            check_stated(runtime_parameters, parameters["recipe"], stated)
            if isinstance(stated, Mapping) and stated.get("encoder"):
                loader["parameters"] = parameters = {**parameters, "encoder": stated["encoder"]}
            judged = parameters.get("audit_judges_for", RecipeBook.every)
            if judged != RecipeBook.every:
                check_recipe(judged, recipes)
        dense = parameters.get("dense")
        for branch in (parameters, dense if isinstance(dense, Mapping) else {}):
            if "encoder" in branch and not (branch is dense and branch["encoder"] is None):
                check_encoder(branch["encoder"], context.project_path)
        if "collection" in parameters:
            check_collection(parameters["collection"])
        models = TypeExtractor(dict(pipelines)).extract_types_from_pipelines()
        for name, model in models.items():
            check_model(name, parameters, model)
            if model is RecipeBook:
                check_recipes(parameters[name], models)
            if model is AuditParams and parameters[name].get("recipe") is not None:
                check_recipe(parameters[name]["recipe"], parameters["recipes"])

    @hook_impl
    def before_pipeline_run(self, pipeline: Pipeline, catalog: CatalogProtocol) -> None:
        """Check the places that are written to, and the device, models and packages."""
        check_one_process()
        tracked_at(self._context)
        for name, variable in (("data", "ANMI_DATA_ROOT"), ("store", "ANMI_STORE")):
            make_root(self._context, name, variable)
        # A process may run several pipelines, and the hooks are those of all.
        self._needs_facts = False
        self._makes_pseudo_queries = False
        self._evaluated_split = None
        nodes = {node.short_name for node in pipeline.nodes}
        if "params:dense" in pipeline.inputs():
            dense = DenseParams.model_validate(catalog.load("params:dense"))
            check_device(dense.device)
        if "train_retriever" in nodes:
            recipe = catalog.load("params:recipes").get(catalog.load("params:recipe"))
            options = merged_options(recipe, catalog.load("params:training"))
            if options.masked_lm is not None:
                check_base(options.masked_lm)
            self._needs_facts = options.sources.kind == "mixed"
            self._makes_pseudo_queries = bool(options.pseudo_queries.kinds)
        if "run_systems" in nodes:
            self._evaluated_split = catalog.load("params:evaluation").split
        if nodes & {"judge_by_evidence", "make_parts"}:
            store = self._context.project_path / self._context.config_loader["globals"]["store"]
            encoder = catalog.load("params:encoder")
            check_network(encoder, catalog.load("params:search"), store / "models")

    @hook_impl
    def after_node_run(self, node: Node, outputs: dict[str, Any], inputs: dict[str, Any]) -> None:
        """Refuse a collection that lacks what training or evaluation would miss, hours later."""
        if node.name != "ingestion.ingest":
            return
        collection = inputs["params:collection"]
        if self._needs_facts and not len(outputs["knowledge"].facts):
            raise AnmiError(
                "the recipe draws negatives from mixed sources, and the documents of"
                f' "{collection}" state no facts: read a collection with a graph by kg:DIR, or'
                " choose another recipe"
            )
        split = self._evaluated_split
        if split is None or self._makes_pseudo_queries:
            return
        if not (outputs["queries"]["split"] == split).any():
            raise AnmiError(
                f'the collection "{collection}" has no "{split}" query with a relevant document, so'
                " nothing could be evaluated: add labels for the split, raise"
                f" ingestion.{split}_share, take a recipe that trains on pseudo-queries, such as"
                " anmi, or run `--pipelines mining,adaptation,training`"
            )


def check_one_process() -> None:
    """Refuse several processes of one run: each would mine, and wait for the others in training."""
    if (size := os.environ.get("WORLD_SIZE", "1")) not in ("", "1"):
        raise AnmiError(
            f"WORLD_SIZE is {size}, as torchrun sets it, and a run is one process on one device:"
            " start it by `kedro run` alone, or unset WORLD_SIZE"
        )


def check_device(name: str | None) -> None:
    """Refuse a device that this machine does not have; encoding would, later."""
    if name is not None:
        from anmi.retrieval.kinds import device

        device(name)


def make_root(context: KedroContext, name: str, variable: str) -> None:
    """Make a folder that globals.yml or a variable names, or refuse it; leave URLs alone."""
    location = context.config_loader["globals"].get(name, name)
    if not isinstance(location, str) or not location.strip():
        # Else files would be written to the root of the file system.
        raise AnmiError(
            f"{variable}, or `{name}` in globals.yml, is {location!r}: a folder was expected; name"
            " one, or unset it"
        )
    if "://" in location:
        return
    folder = context.project_path / location
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Makes and removes a file.
        tempfile.TemporaryFile(dir=folder).close()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise AnmiError(
            f"nothing can be written to {folder} ({reason}): set {variable} to a folder that can be"
            " written to"
        ) from error


def check_recipe(recipe: Any, recipes: Mapping[str, Any]) -> None:
    """Refuse a recipe that is not registered."""
    if recipe not in recipes:
        raise AnmiError(f'there is no recipe "{recipe}": {nearest(str(recipe), recipes)}')


def check_stated(runtime_parameters: Mapping[str, Any], recipe: str, stated: Any) -> None:
    """Refuse an encoder or setting of mining on the command line that the recipe overrides.

    Examples
    --------
    >>> check_stated({"bm25": {"depth": 9}}, "deep", {"mining": {"bm25": {"depth": 1000}}})
    Traceback (most recent call last):
    anmi.errors.AnmiError: recipe "deep" states bm25.depth: set recipes.deep.mining.bm25.depth
    """
    if not isinstance(stated, Mapping):
        return
    mining = flatten(stated.get("mining") or {})
    overridden = sorted(flatten(runtime_parameters).keys() & mining.keys())
    if overridden:
        name = overridden[0]
        raise AnmiError(f'recipe "{recipe}" states {name}: set recipes.{recipe}.mining.{name}')
    if stated.get("encoder") and "encoder" in runtime_parameters:
        raise AnmiError(f'recipe "{recipe}" states its encoder: set recipes.{recipe}.encoder')


def check_recipes(recipes: Mapping[str, Any], models: Mapping[str, Any]) -> None:
    """Refuse every recipe, chosen or not, that states what training or mining does not know.

    ``models`` are those of the parameters, by their dotted names.
    """
    book = RecipeBook.model_validate(recipes)
    for name in book.names():
        recipe = book.get(name)
        label = f'recipe "{name}"'
        for stage in recipe.mining.keys() & models.keys():
            check_model(
                f"recipes.{name}.mining.{stage}",
                {"recipes": {name: recipe.model_dump()}},
                models[stage],
            )
        try:
            options = merged_options(recipe, TrainingParams())
        except AnmiError as error:
            raise AnmiError(f"{label}, {error}") from None
        unmeasured = sorted(recipe.requires - MEASURED)
        if unmeasured:
            hint = nearest(unmeasured[0], MEASURED)
            raise AnmiError(f'{label} reads "{unmeasured[0]}", which no stage measures: {hint}')
        unread = ", ".join(sorted(options.reads - recipe.requires))
        if unread:
            raise AnmiError(
                f"{label} trains on {unread}, which it does not mine: add `reads: [{unread}]` to it"
            )


def check_network(encoder: str, search: SearchParams, models: Path) -> None:
    """Refuse multilingual-e5-small where its package is missing or damaged."""
    from anmi.retrieval import e5

    if encoder == "e5" or ("network" in search.parts and search.network == "e5"):
        e5.check_package(models)


def check_encoder(encoder: Any, project: Path) -> None:
    """Refuse an encoder that is no name of ours, no folder of a text encoder, no name of the hub.

    Examples
    --------
    >>> check_encoder("minilm", Path())
    >>> check_encoder("sentence-transformers/all-mpnet-base-v2", Path())
    """
    name = str(encoder)
    if any(is_sparse_folder(folder) for folder in (Path(name), project / name)):
        raise AnmiError(
            f'encoder "{name}" is a sparse retriever, and mining compares directions: give'
            " encoder=static or a dense model, and recipe=sparse to train a sparse one"
        )
    folders = [folder for folder in (name, str(project / name)) if is_folder(folder)]
    if folders and name not in ENCODERS:
        check_text_model(Path(folders[0]), name)
    if name in ENCODERS or folders:
        return
    if _HUB_NAME.fullmatch(name) and len(name) <= _LONGEST_HUB_NAME:
        return
    if Path(name).suffix or name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise AnmiError(
            f'encoder "{name}" is not a folder here: give {" or ".join(ENCODERS)}, a folder or'
            " ORG/NAME"
        )
    raise AnmiError(
        f'there is no encoder "{name}": {nearest(name, ENCODERS)}, an existing folder, or ORG/NAME'
    )


def check_collection(collection: Any) -> None:
    """Refuse a collection whose kind is unknown or whose place is missing.

    Examples
    --------
    >>> check_collection("beir:../shared/data/scifact")
    >>> check_collection("docs:~noone/a")
    Traceback (most recent call last):
    anmi.errors.AnmiError: collection "docs:~noone/a": there is no such home; write it without ~
    """
    _, location = kind_and_place(str(collection))
    try:
        Path(location.partition(";")[0].strip()).expanduser()
    except RuntimeError:
        raise AnmiError(
            f'collection "{collection}": there is no such home; write it without ~'
        ) from None


def check_names(parameters: Iterable[str], pipelines: Mapping[str, Pipeline]) -> None:
    """Refuse a parameter that nothing reads; misspelt, it would be of no effect.

    What begins with an underscore is left alone: YAML keeps there what several branches share.
    """
    inputs = {
        name
        for pipeline in pipelines.values()
        for name in pipeline.inputs()
        if name.startswith("params:")
    }
    read = {name.removeprefix("params:").split(".")[0] for name in inputs} | {
        *_TEXTS,
        "recipes",
        "seed",
    }
    unread = [
        str(name) for name in parameters if name not in read and not str(name).startswith("_")
    ]
    if unread:
        raise AnmiError(f'there is no parameter "{unread[0]}": {nearest(unread[0], read)}')


def check_values(parameters: Mapping[str, Any]) -> None:
    """Refuse numbers and texts that no parameter can have, and names that are no texts."""
    for name, value in flatten(parameters).items():
        if isinstance(value, float) and not math.isfinite(value):
            raise AnmiError(
                f'parameter "{name}": a finite number was expected, not {value}; leave it out'
            )
        if isinstance(value, str) and "\0" in value:
            raise AnmiError(f'parameter "{name}" holds a zero byte; leave it out')
    for name, expected in _TEXTS.items():
        value = parameters.get(name, expected)
        if not isinstance(value, str) or not value.strip():
            quotes = "; put a number in quotes" if isinstance(value, (int, float)) else ""
            raise AnmiError(f'parameter "{name}": {expected} was expected, not {value!r}{quotes}')
    choices = get_args(TrainAgain)
    final = parameters.get("final", choices[0])
    if final not in choices:
        expected = ", ".join(choices)
        raise AnmiError(f'parameter "final": one of {expected} was expected, not {final!r}')
    seed = parameters.get("seed", 0)
    if not is_seed(seed):
        raise AnmiError(
            f'parameter "seed": a whole number from 0 to 2**32 - 1 was expected, not {seed!r}'
        )


def check_model(name: str, parameters: Mapping[str, Any], model: Any) -> None:
    """Refuse a branch of the parameters that its model does not accept.

    Kedro would, too; it cannot say which name is the nearest, and it prints many lines. What the
    node is annotated with is left to Kedro if it is no pydantic model.
    """
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        return
    value: Any = parameters
    for key in name.split("."):
        if not isinstance(value, Mapping) or key not in value:
            raise AnmiError(f'the configuration lacks the parameter "{name}"')
        value = value[key]
    try:
        validated = model.model_validate(value)
    except ValidationError as error:
        raise AnmiError(sentence(error, model, "parameter", name)) from None
    check_numbers(name, value, validated)


def check_numbers(name: str, value: Any, validated: Any) -> None:
    """Refuse true and false where a number is expected; pydantic would take them for 1 and 0.

    Examples
    --------
    >>> check_numbers("bm25", {"depth": True}, {"depth": 1})
    Traceback (most recent call last):
    anmi.errors.AnmiError: parameter "bm25.depth": a number was expected, not true
    """
    is_number = isinstance(validated, (int, float)) and not isinstance(validated, bool)
    if isinstance(value, bool) and is_number:
        raise AnmiError(f'parameter "{name}": a number was expected, not {str(value).lower()}')
    if isinstance(value, Mapping):
        for key, item in value.items():
            is_mapping = isinstance(validated, Mapping)
            field = validated.get(key) if is_mapping else getattr(validated, str(key), None)
            check_numbers(f"{name}.{key}", item, field)
    elif isinstance(value, list) and isinstance(validated, (list, tuple)):
        for position, (item, field) in enumerate(zip(value, validated, strict=False)):
            check_numbers(f"{name}.{position}", item, field)


def check_no_secrets(parameters: Mapping[str, Any]) -> None:
    """Refuse parameters with a secret: `run.json`, the tracking server and reports repeat them.

    Secrets are addresses with credentials. The message names the parameter and never its value.

    Examples
    --------
    >>> check_no_secrets({"collection": "beir:data/scifact"})
    >>> try:
    ...     check_no_secrets({"pairs": {"place": ["s3://key:secret@bucket/x"]}})
    ... except AnmiError as error:
    ...     print(str(error).split(";")[0])
    parameter "pairs.place" holds an address with credentials
    """
    for name, value in flatten(parameters).items():
        # The name as well: what is typed wrongly on the command line may end up in it.
        if holds_address_secret(f"{name} {value}"):
            raise AnmiError(
                f'parameter "{name}" holds an address with credentials; parameters are recorded, so'
                " leave them out and give them by environment variables"
            )


def mask_logs() -> None:
    """Mask the addresses in every line that is logged from now on, whoever logs it."""
    logging.setLogRecordFactory(_masked_record)


def _masked_record(*arguments: Any, **options: Any) -> logging.LogRecord:
    record = logging.LogRecord(*arguments, **options)
    # A wrong format is the handler's to complain of.
    with suppress(TypeError, ValueError, KeyError):
        message = record.getMessage()
        if masked(message) != message:
            record.msg = masked(message)
            record.args = ()
    return record


def mask_error(error: BaseException) -> None:
    """Mask the addresses in the messages of an error and its causes, for a traceback."""
    for cause in causes(error):
        cause.args = tuple(masked(part) if isinstance(part, str) else part for part in cause.args)
        if isinstance(cause, OSError) and isinstance(cause.strerror, str):
            # These are shown by their own fields.
            cause.strerror = masked(cause.strerror)
