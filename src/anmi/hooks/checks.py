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
    secrets_of_environment,
)
from anmi.files import disk_error
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
    """Name what is misspelt on the command line, with the nearest valid name, before anything runs."""

    def __init__(self) -> None:
        self._context: Any = None
        self._draws_on_facts = self._asks_corpus = False
        self._evaluated: str | None = None

    @hook_impl
    def after_context_created(self, context: KedroContext) -> None:
        """Check runtime parameters, recipe, encoder and collection, and that no parameter holds a secret."""
        mask_logs()
        loader = context.config_loader
        check_no_secrets(loader.runtime_params or {})
        self._context = context
        parameters = loader["parameters"]
        check_no_secrets(parameters)
        check_names(parameters, dict(pipelines))
        check_values(parameters)
        if isinstance(recipes := parameters.get("recipes"), Mapping) and "recipe" in parameters:
            check_recipe(parameters["recipe"], recipes)
            try:
                stated = inherited(parameters["recipe"], recipes)
            except ValueError as error:
                raise AnmiError(f"recipe {error}") from None
            check_stated(loader.runtime_params or {}, parameters["recipe"], stated)
            if isinstance(stated, Mapping) and stated.get("encoder"):
                loader["parameters"] = parameters = {**parameters, "encoder": stated["encoder"]}
            if (judged := parameters.get("audit_judges_for", RecipeBook.every)) != RecipeBook.every:
                check_recipe(judged, recipes)
        if "encoder" in parameters:
            check_encoder(parameters["encoder"], context.project_path)
            mining = parameters.get("dense")
            if isinstance(mining, Mapping) and mining.get("encoder") is not None:
                check_encoder(mining["encoder"], context.project_path)
        if "collection" in parameters:
            check_collection(parameters["collection"])
        models = TypeExtractor(dict(pipelines)).extract_types_from_pipelines()
        for name, model in models.items():
            check_model(name, parameters, model)
            if model is RecipeBook:
                check_recipes(parameters[name], models)
            if model is AuditParams and (audited := parameters[name].get("recipe")) is not None:
                check_recipe(audited, parameters["recipes"])

    @hook_impl
    def before_pipeline_run(self, pipeline: Pipeline, catalog: CatalogProtocol) -> None:
        """Check where it is written to, and what only some runs ask for: packages, queries."""
        check_one_process()
        tracked_at(self._context)
        for name, setting in (("data", "ANMI_DATA_ROOT"), ("store", "ANMI_STORE")):
            make_root(self._context, name, setting)
        # A process may run several pipelines, and the hooks are those of all.
        self._draws_on_facts = self._asks_corpus = False
        nodes = {node.short_name for node in pipeline.nodes}
        if "params:dense" in pipeline.inputs():
            dense = DenseParams.model_validate(catalog.load("params:dense"))
            check_device(dense.device)
        if "train_retriever" in nodes:
            recipe = catalog.load("params:recipes").get(catalog.load("params:recipe"))
            options = merged_options(recipe, catalog.load("params:training"))
            if options.masked_lm is not None:
                check_base(options.masked_lm)
            self._draws_on_facts = options.sources.kind == "mixed"
            self._asks_corpus = bool(options.pseudo_queries.kinds)
        self._evaluated = (
            catalog.load("params:evaluation").split if "run_systems" in nodes else None
        )
        if nodes & {"judge_by_evidence", "make_parts"}:
            store = self._context.project_path / self._context.config_loader["globals"]["store"]
            encoder = catalog.load("params:encoder")
            check_network(encoder, catalog.load("params:search"), store / "models")

    @hook_impl
    def after_node_run(self, node: Node, outputs: dict[str, Any], inputs: dict[str, Any]) -> None:
        """Refuse a collection that lacks what the end of the run needs; training or evaluation would, hours later."""
        if node.name != "ingestion.ingest":
            return
        collection = inputs["params:collection"]
        split = self._evaluated
        if self._draws_on_facts and not len(outputs["knowledge"].facts):
            raise AnmiError(
                "the recipe draws negatives from mixed sources, and the documents of"
                f' "{collection}" state no facts: read a collection with a graph by kg:DIR, or'
                " choose another recipe"
            )
        if split and not self._asks_corpus and not (outputs["queries"]["split"] == split).any():
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


def make_root(context: KedroContext, name: str, setting: str) -> None:
    """Make a folder of globals.yml, which an environment variable sets, or refuse it; addresses are left alone."""
    place = context.config_loader["globals"].get(name, name)
    if not isinstance(place, str) or not place.strip():
        # Else files would be written to the root of the file system.
        raise AnmiError(
            f"{setting}, or `{name}` in globals.yml, is {place!r}: a folder was expected; name one,"
            " or unset it"
        )
    if "://" in place:
        return
    folder = context.project_path / place
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Makes and removes a file.
        tempfile.TemporaryFile(dir=folder).close()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise disk_error(error, folder, setting) or AnmiError(
            f"nothing can be written to {folder} ({reason}): set {setting} to a folder that can be"
            " written to"
        ) from error


def check_recipe(recipe: Any, recipes: Mapping[str, Any]) -> None:
    """Refuse a recipe that is not registered."""
    if recipe not in recipes:
        raise AnmiError(f'there is no recipe "{recipe}": {nearest(str(recipe), recipes)}')


def check_stated(asked: Mapping[str, Any], recipe: str, stated: Any) -> None:
    """Refuse an encoder or a setting of mining on the command line that the recipe states itself, as that would win.

    Examples
    --------
    >>> check_stated({"bm25": {"depth": 9}}, "deep", {"mining": {"bm25": {"depth": 1000}}})
    Traceback (most recent call last):
    anmi.errors.AnmiError: recipe "deep" states bm25.depth itself: set recipes.deep.mining.bm25.depth instead
    """
    found = stated if isinstance(stated, Mapping) else {}
    if both := sorted(flatten(asked).keys() & flatten(found.get("mining") or {}).keys()):
        raise AnmiError(
            f'recipe "{recipe}" states {both[0]} itself: set recipes.{recipe}.mining.{both[0]}'
            " instead"
        )
    if found.get("encoder") and "encoder" in asked:
        raise AnmiError(
            f'recipe "{recipe}" states its encoder itself: set recipes.{recipe}.encoder instead'
        )


def check_recipes(recipes: Mapping[str, Any], models: Mapping[str, Any]) -> None:
    """Refuse a recipe that states what training or mining does not know, chosen or not; they would, hours later.

    ``models`` are those of the parameters, by their dotted names.
    """
    book = RecipeBook.model_validate(recipes)
    for name in book.names():
        recipe = book.get(name)
        of = f'recipe "{name}"'
        for stage in recipe.mining.keys() & models.keys():
            check_model(
                f"recipes.{name}.mining.{stage}",
                {"recipes": {name: recipe.model_dump()}},
                models[stage],
            )
        try:
            options = merged_options(recipe, TrainingParams())
        except AnmiError as error:
            raise AnmiError(f"{of}, {error}") from None
        if unmeasured := sorted(recipe.requires - MEASURED):
            known = nearest(unmeasured[0], MEASURED)
            raise AnmiError(f'{of} reads "{unmeasured[0]}", which no stage measures: {known}')
        if unread := ", ".join(sorted(options.reads - recipe.requires)):
            raise AnmiError(
                f"{of} trains on {unread}, which it does not mine: add `reads: [{unread}]` to it"
            )


def check_network(encoder: str, search: SearchParams, models: Path) -> None:
    """Refuse multilingual-e5-small where its package is missing or damaged; encoding would, hours later."""
    from anmi.retrieval import e5

    if encoder == "e5" or ("network" in search.parts and search.network == "e5"):
        e5.check_package(models)


def check_encoder(encoder: Any, project: Path) -> None:
    """Refuse an encoder that is neither a name of ours, nor a folder of a text encoder, nor like a name on the hub.

    Examples
    --------
    >>> check_encoder("minilm", Path())
    >>> check_encoder("sentence-transformers/all-mpnet-base-v2", Path())
    """
    name = str(encoder)
    if any(is_sparse_folder(place) for place in (Path(name), project / name)):
        raise AnmiError(
            f'encoder "{name}" is a sparse retriever, and mining compares directions: give'
            " encoder=static or a dense model, and recipe=sparse to train a sparse one"
        )
    folders = [place for place in (name, str(project / name)) if is_folder(place)]
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
    >>> check_collection("docs:~noone/notes")
    Traceback (most recent call last):
    anmi.errors.AnmiError: collection "docs:~noone/notes": there is no such home; write the folder without ~
    """
    _, place = kind_and_place(str(collection))
    try:
        Path(place.partition(";")[0].strip()).expanduser()
    except RuntimeError:
        raise AnmiError(
            f'collection "{collection}": there is no such home; write the folder without ~'
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
    """Refuse numbers and texts that no parameter can have, and what is no text where a name is expected."""
    for place, value in flatten(parameters).items():
        if isinstance(value, float) and not math.isfinite(value):
            raise AnmiError(
                f'parameter "{place}": a finite number was expected, not {value}; leave it out'
            )
        if isinstance(value, str) and "\0" in value:
            raise AnmiError(f'parameter "{place}" holds a zero byte; leave it out')
    for name, expected in _TEXTS.items():
        value = parameters.get(name, expected)
        if not isinstance(value, str) or not value.strip():
            quotes = "; put a number in quotes" if isinstance(value, (int, float)) else ""
            raise AnmiError(f'parameter "{name}": {expected} was expected, not {value!r}{quotes}')
    choices = get_args(TrainAgain)
    if (again := parameters.get("final", choices[0])) not in choices:
        expected = ", ".join(choices)
        raise AnmiError(f'parameter "final": one of {expected} was expected, not {again!r}')
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
    for part in name.split("."):
        if not isinstance(value, Mapping) or part not in value:
            raise AnmiError(f'the configuration lacks the parameter "{name}"')
        value = value[part]
    try:
        made = model.model_validate(value)
    except ValidationError as error:
        raise AnmiError(sentence(error, model, "parameter", name)) from None
    check_numbers(name, value, made)


def check_numbers(name: str, given: Any, made: Any) -> None:
    """Refuse true and false where a number is expected; pydantic would take them for 1 and 0.

    Examples
    --------
    >>> check_numbers("bm25", {"depth": True}, {"depth": 1})
    Traceback (most recent call last):
    anmi.errors.AnmiError: parameter "bm25.depth": a number was expected, not true
    """
    if isinstance(given, bool) and isinstance(made, (int, float)) and not isinstance(made, bool):
        raise AnmiError(f'parameter "{name}": a number was expected, not {str(given).lower()}')
    if isinstance(given, Mapping):
        for key, value in given.items():
            field = made.get(key) if isinstance(made, Mapping) else getattr(made, str(key), None)
            check_numbers(f"{name}.{key}", value, field)
    elif isinstance(given, list) and isinstance(made, (list, tuple)):
        for place, (value, one) in enumerate(zip(given, made, strict=False)):
            check_numbers(f"{name}.{place}", value, one)


def check_no_secrets(parameters: Mapping[str, Any]) -> None:
    """Refuse parameters with a secret, since they are written to `run.json`, the tracking server and reports.

    Found are addresses with credentials, and values of environment variables whose names say that
    they hold a secret, such as ``${oc.env:OPENAI_API_KEY}`` resolves to. The message names the
    parameter and never its value.

    Examples
    --------
    >>> check_no_secrets({"collection": "beir:data/scifact"})
    >>> try:
    ...     check_no_secrets({"pairs": {"place": ["s3://key:secret@bucket/x"]}})
    ... except AnmiError as error:
    ...     print(str(error).split(";")[0])
    parameter "pairs.place" holds an address with credentials
    """
    known = secrets_of_environment()
    for name, value in flatten(parameters).items():
        # The name as well: what is typed wrongly on the command line may end up in it.
        text = f"{name} {value}"
        if holds_address_secret(text):
            raise AnmiError(
                f'parameter "{name}" holds an address with credentials; parameters are recorded, so'
                " leave them out and give them by environment variables"
            )
        held = next((variable for variable, secret in known.items() if secret in text), None)
        if held is not None:
            raise AnmiError(
                f'parameter "{name}" holds the value of the environment variable {held}; parameters'
                " are recorded, so name the variable instead, as key_variable does"
            )


def mask_logs() -> None:
    """Mask the secrets of every line that is logged from now on, whichever logger and handler it goes through."""
    logging.setLogRecordFactory(_masked_record)


def _masked_record(*arguments: Any, **options: Any) -> logging.LogRecord:
    record = logging.LogRecord(*arguments, **options)
    # A wrong format is the handler's to complain of.
    with suppress(TypeError, ValueError, KeyError):
        text = record.getMessage()
        if (without := masked(text)) != text:
            record.msg = without
            record.args = ()
    return record


def mask_error(error: BaseException) -> None:
    """Mask the secrets in the messages of an error and its causes, so that a traceback may be shown."""
    for found in causes(error):
        found.args = tuple(masked(part) if isinstance(part, str) else part for part in found.args)
        if isinstance(found, OSError) and isinstance(found.strerror, str):
            # These are shown by their own fields.
            found.strerror = masked(found.strerror)
