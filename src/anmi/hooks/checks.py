# mypy: allow-untyped-decorators
"""Checks of what the user asked for, before anything runs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kedro.config import AbstractConfigLoader
from kedro.framework.context import KedroContext
from kedro.framework.hooks import hook_impl
from kedro.framework.project import pipelines
from kedro.io import CatalogProtocol
from kedro.pipeline import Pipeline
from kedro.pipeline.node import Node
from kedro.validation.type_extractor import TypeExtractor
from pydantic import BaseModel, ValidationError

from anmi.errors import AnmiError, nearest
from anmi.hooks.secrets import check_no_secrets, mask_logs
from anmi.pipelines.ablation.params import AblationParams
from anmi.retrieval.model_folder import is_folder
from anmi.selection.recipe import Recipe, RecipeBook

if TYPE_CHECKING:
    from anmi.pipelines.evaluation.params import EvaluationParams
    from anmi.pipelines.training.params import TrainingParams

ENCODERS: Final = ("minilm", "static")
COLLECTIONS: Final = {
    "api_docs": "api_docs",
    "beir": "beir:DIR",
    "pairs": "pairs:GLOB[;GLOB...]",
    "ir_datasets": "ir_datasets:ID",
    "kg": "kg:DIR",
}
_HUB_NAME: Final = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_RUNTIME_REFERENCE: Final = re.compile(r"\$\{runtime_params:\s*(\w+)")


# Parameters of a single value that nodes read as they are; those of a branch have a model.
_SWITCHES: Final = ("keep_judges", "update")


class CheckHooks:
    """Name what is misspelt on the command line, with the nearest valid name."""

    _draws_on_facts = False

    @hook_impl
    def after_context_created(self, context: KedroContext) -> None:
        """Check runtime parameters, recipe, encoder and collection, and that no parameter holds a secret."""
        mask_logs()
        loader = context.config_loader
        check_no_secrets(loader.runtime_params or {})
        check_names(loader.runtime_params or {}, known_parameters(loader))
        parameters = loader["parameters"]
        check_no_secrets(parameters)
        if isinstance(parameters.get("recipes"), Mapping) and "recipe" in parameters:
            check_recipe(parameters["recipe"], parameters["recipes"])
            audited = (parameters.get("audit") or {}).get("recipe")
            if audited is not None:
                check_recipe(audited, parameters["recipes"])
        for name in _SWITCHES:
            check_switch(name, parameters.get(name, False))
        if "encoder" in parameters:
            check_encoder(parameters["encoder"], context.project_path)
        if "collection" in parameters:
            check_collection(parameters["collection"])
        for name, model in TypeExtractor(dict(pipelines)).extract_types_from_pipelines().items():
            check_model(name, parameters, model)
            if model is RecipeBook:
                check_training(parameters[name])

    @hook_impl
    def before_pipeline_run(self, run_params: Mapping[str, Any], pipeline: Pipeline, catalog: CatalogProtocol) -> None:
        """Check what only some runs ask for: an ablation's set, and packages that its nodes need."""
        if "ablation" in (run_params.get("pipeline_names") or ()):
            check_ablation(catalog.load("params:ablation"), catalog.load("params:recipes"), Path.cwd())
        nodes = {node.name for node in pipeline.nodes}
        if "train_retriever" in nodes:
            recipe = catalog.load("params:recipes").get(catalog.load("params:recipe"))
            check_packages(recipe, catalog.load("params:training"))
            self._draws_on_facts = draws_on_facts(recipe, catalog.load("params:training"))
        if {"train_retriever", "run_systems"} <= nodes:
            check_evaluation(catalog.load("params:training"), catalog.load("params:evaluation"))
        if "describe_hardness" in nodes:
            catalog.load("params:evaluation").hardness.check_installed()

    @hook_impl
    def after_node_run(self, node: Node, outputs: dict[str, Any], inputs: dict[str, Any]) -> None:
        """Refuse a recipe that draws on what documents state where they state nothing; training would, hours later."""
        if node.name == "ingest" and self._draws_on_facts and not len(outputs["facts"]):
            raise AnmiError(
                f'the recipe draws negatives from mixed sources, and the documents of "{inputs["params:collection"]}" '
                "state no facts: read a collection with a graph by kg:DIR, or choose another recipe"
            )


def check_switch(name: str, value: Any) -> None:
    """Refuse what is neither true nor false: a node would take any other text, `no` among them, for true.

    Examples
    --------
    >>> check_switch("update", True)
    """
    if not isinstance(value, bool):
        raise AnmiError(f'parameter "{name}": true or false was expected, not {value!r}')


def known_parameters(loader: AbstractConfigLoader) -> set[str]:
    """Return the top-level parameters of the configuration, and those it takes through ``${runtime_params:...}``."""
    arguments = {"base_env": loader.base_env, "default_run_env": loader.default_run_env}
    plain = type(loader)(
        conf_source=loader.conf_source,
        env=loader.env,
        config_patterns=loader.config_patterns,
        merge_strategy=loader.merge_strategy,
        runtime_params={},
        custom_resolvers=getattr(loader, "_custom_resolvers", None),
        **arguments,
    )
    references = {
        name
        for environment in (loader.base_env, loader.env or loader.default_run_env)
        for file in Path(loader.conf_source, environment).glob("**/*.yml")
        for name in _RUNTIME_REFERENCE.findall(file.read_text(encoding="utf-8"))
    }
    return set(plain["parameters"]) | references


def check_names(asked: Iterable[str], known: Iterable[str]) -> None:
    """Refuse a runtime parameter that the configuration does not have."""
    known = set(known)
    for name in asked:
        if name not in known:
            raise AnmiError(f'there is no parameter "{name}": {nearest(name, known)}')


def check_model(name: str, parameters: Mapping[str, Any], model: Any) -> None:
    """Refuse a branch of the parameters that its model does not accept.

    Kedro would, too; it cannot say which name is the nearest, and it prints many lines.

    Parameters
    ----------
    name
        Dotted name of the branch, as in ``params:NAME``.
    parameters
        All of them.
    model
        What the node that takes the branch is annotated with; anything but a pydantic model is left to Kedro.
    """
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        return
    value: Any = parameters
    for part in name.split("."):
        if not isinstance(value, Mapping) or part not in value:
            raise AnmiError(f'the configuration lacks the parameter "{name}"')
        value = value[part]
    try:
        model.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join([name, *map(str, first["loc"])])
        if first["type"] == "extra_forbidden":
            raise AnmiError(f'there is no parameter "{place}": {_nearest_field(model, first["loc"])}') from None
        given = f", not {first['input']!r}" if isinstance(first["input"], (str, int, float)) else ""
        message = first["msg"].removeprefix("Value error, ")
        raise AnmiError(f'parameter "{place}": {message}{given}') from None


def _nearest_field(model: type[BaseModel], place: tuple[int | str, ...]) -> str:
    inner: Any = model
    for part in place[:-1]:
        field = getattr(inner, "model_fields", {}).get(part)
        inner = None if field is None else field.annotation
    known = getattr(inner, "model_fields", None)
    return nearest(str(place[-1]), known) if known else "its model has no such field"


def check_recipe(recipe: Any, recipes: Mapping[str, Any]) -> None:
    """Refuse a recipe that is not registered."""
    if recipe not in recipes:
        raise AnmiError(f'there is no recipe "{recipe}": {nearest(str(recipe), recipes)}')


def check_training(recipes: Mapping[str, Any]) -> None:
    """Refuse a recipe with a training option that does not exist or has a wrong value; training would, hours later."""
    from anmi.pipelines.training.params import TrainingParams, merged_options

    book = RecipeBook.model_validate(recipes)
    for name in book.names():
        recipe = book.get(name)
        try:
            unread = merged_options(recipe, TrainingParams()).reads - recipe.requires
        except AnmiError as error:
            raise AnmiError(f'recipe "{name}", {error}') from None
        if unread:
            columns = ", ".join(sorted(unread))
            raise AnmiError(
                f'recipe "{name}" trains on {columns}, which it does not mine: add `reads: [{columns}]` to it'
            )


def check_packages(recipe: Recipe, training: TrainingParams) -> None:
    """Refuse a recipe whose training needs an extra that is not installed; training would, hours later."""
    from anmi.pipelines.training.params import merged_options
    from anmi.training.options.hardness import HansOptions

    hardness = merged_options(recipe, training).hardness
    if isinstance(hardness, HansOptions):
        hardness.heuristic.check_installed()


def check_evaluation(training: TrainingParams, evaluation: EvaluationParams) -> None:
    """Refuse to train on the split that is to be evaluated on; the evaluation would, hours later."""
    from anmi.pipelines.evaluation.nodes import check_held_out

    check_held_out(evaluation.split, ["train", "dev"] if training.refit else ["train"])


def draws_on_facts(recipe: Recipe, training: TrainingParams) -> bool:
    """Tell whether training draws negatives from mixed sources, which need to know what documents state."""
    from anmi.pipelines.training.params import merged_options

    return merged_options(recipe, training).sources.kind == "mixed"


def check_ablation(ablation: AblationParams, recipes: RecipeBook, project: Path) -> None:
    """Refuse a set with a recipe, an encoder, a collection or a training option that is not there."""
    from anmi.corpus.contents import files_of
    from anmi.pipelines.training.params import TrainingParams

    chosen = ablation.chosen
    ablation.check_recipes(recipes.names())
    check_encoder(chosen.encoder, project)
    for name in chosen.collections:
        entry = ablation.collections[name]
        check_collection(entry.collection)
        if entry.collection.startswith(("beir:", "pairs:", "kg:")) and not files_of(entry.collection):
            raise AnmiError(
                f'ablation set "{ablation.set}": there is nothing at {entry.collection}, which is its collection '
                f'"{name}"; correct ablation.collections or take another set'
            )
        for recipe in chosen.recipes:
            try:
                check_packages(recipes.get(recipe), TrainingParams(options={**chosen.training, **entry.training}))
            except (AnmiError, ValidationError) as error:
                reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
                raise AnmiError(f'ablation set "{ablation.set}", recipe "{recipe}", {reason}') from None


def check_encoder(encoder: Any, project: Path) -> None:
    """Refuse an encoder that is neither a name of ours, nor a folder, nor shaped like a name on the hub.

    Examples
    --------
    >>> check_encoder("minilm", Path())
    >>> check_encoder("sentence-transformers/all-mpnet-base-v2", Path())
    """
    name = str(encoder)
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
    >>> check_collection("beir:")
    Traceback (most recent call last):
    anmi.errors.AnmiError: collection "beir:" lacks its place: write it as beir:DIR
    """
    kind, _, place = str(collection).partition(":")
    if kind not in COLLECTIONS:
        raise AnmiError(f'there is no collection "{collection}": {nearest(kind, COLLECTIONS)}')
    if not place.strip() and ":" in COLLECTIONS[kind]:
        raise AnmiError(f'collection "{collection}" lacks its place: write it as {COLLECTIONS[kind]}')
