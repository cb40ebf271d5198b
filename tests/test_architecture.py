"""The rules of the house, enforced: layers, artifacts between stages, paths, recipes, start-up time, no pickle."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib import metadata
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from kedro.framework.project import pipelines
from kedro.framework.session import KedroSession
from kedro.framework.startup import bootstrap_project
from kedro.pipeline import Pipeline
from kedro.validation.type_extractor import TypeExtractor
from pydantic import BaseModel

from anmi.errors import DISTRIBUTION
from anmi.pipeline_registry import STAGES

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "anmi"
# Where texts may tell somebody what to install.
TOLD = ("*", "src/**/*", "docs/**/*", "deploy/**/*", "conf/**/*", "notebooks/*")
# A room may import those that stand after it, and never those before it.
ROOMS = (
    "__main__",
    "cli",
    "settings",
    "hooks",
    "pipeline_registry",
    "pipelines",
    "datasets",
    "serve",
    "api",
    "report",
    "training",
    "search",
    "evaluation",
    "selection",
    "judging",
    "adaptation",
    "retrieval",
    "corpus",
    "engine",
    "store",
    "candidates",
    "environment",
    "ragged",
    "seeds",
    "buckets",
    "files",
    "fingerprint",
    "errors",
)
# Above the line is what knows of kedro and mlflow.
EDGE = ROOMS[: ROOMS.index("serve")]
MOST_POSITIONAL = 5
HEAVY = (
    "torch",
    "mlflow",
    "sentence_transformers",
    "transformers",
    "faiss",
    "bm25s",
    "scipy.stats",
    "scipy.special",
    "scipy.optimize",
)
# Models and indexes of all parts, of which those with a weight are written; vectors lie in the store,
# so what a later run lacks is made again in seconds.
IN_MEMORY = {"search_parts", "final.search_parts"}
MODULES = sorted(SOURCE.rglob("*.py"))
BELOW = [
    path for path in MODULES if path.relative_to(SOURCE).parts[0].removesuffix(".py") not in EDGE
]
DRAWING = re.compile(r"^(?:src/anmi/)?([a-z_]+)(?:/|\.py)  ", re.MULTILINE)


def name_of(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(path)}: imports are absolute"
            yield node.module or ""
            # `from anmi import training` names the room only in its second half.
            yield from (
                f"{node.module}.{alias.name}" for alias in node.names if node.module == "anmi"
            )


@pytest.mark.parametrize("path", BELOW, ids=name_of)
def test_below_the_line_nothing_knows_of_kedro_or_mlflow(path: Path) -> None:
    found = {name.split(".")[0] for name in imports(path)} & {"kedro", "kedro_datasets", "mlflow"}
    assert not found


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def import_graph() -> dict[str, set[str]]:
    """Return which modules of this package each one imports at run time, inside functions as well."""
    paths = {module_name(path): path for path in MODULES}
    graph: dict[str, set[str]] = {}
    for name, path in paths.items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for branch in [node for node in ast.walk(tree) if isinstance(node, ast.If)]:
            if ast.unparse(branch.test) == "TYPE_CHECKING":
                branch.body = [ast.Pass()]
        found = graph.setdefault(name, set())
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                # `from anmi.hooks import record` imports a module, `from anmi.hooks.record import
                # now` a name of one.
                within = {alias.name: f"{node.module}.{alias.name}" for alias in node.names}
                found |= {
                    other if other in paths else str(node.module) for other in within.values()
                }
        graph[name] = {other for other in found & paths.keys() if other != name}
    return graph


def circle(graph: Mapping[str, Iterable[str]]) -> list[str]:
    """Return the names along a circle, or nothing where there is none."""
    try:
        tuple(TopologicalSorter(graph).static_order())
    except CycleError as error:
        return list(error.args[1])
    return []


def of_folders(graph: Mapping[str, Iterable[str]], depth: int) -> dict[str, set[str]]:
    """Return the graph of the folders, or modules, at a depth; one that is inside the other is no import."""
    found: dict[str, set[str]] = {}
    for name, others in graph.items():
        here = name.split(".")[: depth + 1]
        for other in (other.split(".")[: depth + 1] for other in others):
            if here[: len(other)] != other and other[: len(here)] != here:
                found.setdefault(".".join(here), set()).add(".".join(other))
    return found


def test_imports_only_go_down() -> None:
    wrong = []
    for name, others in import_graph().items():
        # The package itself is a door to its functions.
        here = name.split(".")[1] if name != "anmi" else "api"
        rooms = {other.split(".")[1] for other in others if other != "anmi"}
        wrong += [
            f"{name} imports {room}" for room in rooms if ROOMS.index(room) < ROOMS.index(here)
        ]
    assert not wrong


@pytest.mark.parametrize("depth", [1, 2, 3, 9])
def test_no_two_packages_import_each_other(depth: int) -> None:
    assert not circle(of_folders(import_graph(), depth))


def test_the_drawing_of_the_rooms_is_true() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    drawn = DRAWING.findall(text.partition("## Rooms")[2])
    there = {
        path.stem for path in SOURCE.iterdir() if path.name not in ("__init__.py", "__pycache__")
    }
    there = {name for name in there if not name.endswith(".py")}
    assert sorted(drawn) == sorted(there)
    assert [name for name in ROOMS if name in drawn] == drawn, (
        "the drawing has the rooms in another order"
    )


@pytest.fixture(scope="module")
def configuration() -> dict[str, Any]:
    bootstrap_project(ROOT)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        patch.setenv("ANMI_DATA_ROOT", "ROOT")
        with KedroSession.create(project_path=ROOT) as session:
            loader = session.load_context().config_loader
            return {"catalog": loader["catalog"], "parameters": loader["parameters"]}


@pytest.fixture(scope="module")
def stages() -> dict[str, Pipeline]:
    bootstrap_project(ROOT)
    return {name: pipelines[name] for name in STAGES}


def artifacts(stages: dict[str, Pipeline]) -> dict[str, str]:
    """Return the stage that makes each dataset."""
    return {
        dataset: stage for stage, pipeline in stages.items() for dataset in pipeline.all_outputs()
    }


def test_nobody_is_told_to_install_the_package_that_has_our_name_on_the_index() -> None:
    suffixes = (".py", ".md", ".jinja", ".toml", ".yml", ".ipynb")
    texts = [path for folder in TOLD for path in ROOT.glob(folder) if path.suffix in suffixes]
    assert len(texts) > 100
    advice = re.compile(r"""(pip|uv) \w+\b[^\n`;#]*[\s"']anmi(["'`\[\s]|==|$)""", re.MULTILINE)
    wrong = [str(path) for path in texts if advice.search(path.read_text(encoding="utf-8"))]
    assert not wrong
    assert metadata.requires(DISTRIBUTION), "the distribution has another name than anmi"


def test_all_stages_are_registered(stages: dict[str, Pipeline]) -> None:
    assert all(pipeline.nodes for pipeline in stages.values())
    assert {node.name for node in pipelines["__default__"].nodes} == {
        n.name for p in stages.values() for n in p.nodes
    }
    mined = STAGES[: STAGES.index("selection") + 1]
    assert {node.name for node in pipelines["mining"].nodes} == {
        n.name for s in mined for n in stages[s].nodes
    }


def test_a_stage_reads_only_what_an_earlier_one_made(
    stages: dict[str, Pipeline], configuration: Any
) -> None:
    made_by = artifacts(stages)
    for stage, pipeline in stages.items():
        for dataset in pipeline.inputs():
            if dataset.startswith("params:") or dataset == "parameters":
                continue
            if dataset in made_by:
                assert STAGES.index(made_by[dataset]) < STAGES.index(stage), (
                    f"{stage} reads {dataset}"
                )
            else:
                assert configuration["catalog"][dataset]["type"] == "anmi.datasets.StoreDataset", (
                    dataset
                )


def test_what_is_more_than_five_inputs_is_passed_by_name() -> None:
    bootstrap_project(ROOT)
    found = set()
    for node in {node for pipeline in pipelines.values() for node in pipeline.nodes}:
        parameters = inspect.signature(node.func).parameters.values()
        positional = [one for one in parameters if one.kind is not inspect.Parameter.KEYWORD_ONLY]
        by_place = not isinstance(node._inputs, dict) and len(node.inputs) > MOST_POSITIONAL
        if by_place or len(positional) > MOST_POSITIONAL:
            found.add(node.func.__name__)
    assert not found, (
        "more than five inputs: a dictionary in Node(inputs=...), and `*` in the function"
    )


def test_nothing_travels_in_memory_between_stages(
    stages: dict[str, Pipeline], configuration: Any
) -> None:
    made_by = artifacts(stages)
    assert made_by.keys() <= configuration["catalog"].keys()
    in_memory = {
        name
        for name in made_by
        if configuration["catalog"][name]["type"].endswith("HandedOnDataset")
    }
    assert in_memory == IN_MEMORY
    readers = [name for name, stage in stages.items() if IN_MEMORY & stage.inputs()]
    assert readers == [], "a stage that begins anew would lack what an earlier one had in memory"
    assert not [name for name in configuration["catalog"] if "{" in name], (
        "a pattern would catch a misspelt dataset"
    )


def test_the_catalog_holds_nothing_that_nobody_makes_or_reads(
    stages: dict[str, Pipeline], configuration: Any
) -> None:
    beside = (pipelines["audit"], pipelines["retrain"])
    used = {dataset for pipeline in (*stages.values(), *beside) for dataset in pipeline.datasets()}
    catalog = configuration["catalog"]
    made = {catalog[name].get("filepath") for name in used if name in catalog}
    # A view of an artifact is for people.
    views = {
        name for name, entry in catalog.items() if entry.get("source") and entry["filepath"] in made
    }
    assert catalog.keys() - views <= used


def test_every_artifact_is_versioned_has_its_place_and_a_layer(
    stages: dict[str, Pipeline], configuration: Any
) -> None:
    for dataset in artifacts(stages).keys() - IN_MEMORY:
        entry = configuration["catalog"][dataset]
        assert entry.get("versioned") is True, dataset
        layer = entry["metadata"]["kedro-viz"]["layer"]
        assert re.fullmatch(rf"ROOT/{layer}/{dataset}(\.[a-z]+)?", entry["filepath"]), entry[
            "filepath"
        ]
        assert entry["type"].startswith("anmi.datasets."), (
            f"{dataset}: only these are written aside and renamed"
        )
    layers = {path.name for path in (ROOT / "data").glob("0*")}
    assert len(layers) == 8, "Kedro's layers are tracked, their contents are not"
    for dataset, entry in configuration["catalog"].items():
        assert entry["metadata"]["kedro-viz"]["layer"] in layers, dataset


def test_every_branch_of_the_parameters_has_a_strict_model(
    stages: dict[str, Pipeline], configuration: Any
) -> None:
    nodes = [node for pipeline in stages.values() for node in pipeline.nodes]
    for node in nodes:
        # Kedro only warns when it cannot resolve these, and then validates nothing.
        assert get_type_hints(node.func), node.name
    models = TypeExtractor(stages).extract_types_from_pipelines()
    for name in {
        name.removeprefix("params:")
        for node in nodes
        for name in node.inputs
        if name.startswith("params:")
    }:
        value = configuration["parameters"]
        for part in name.split("."):
            value = value[part]
        # What lies within a branch is checked with the branch.
        within = any(name.startswith(f"{branch}.") for branch in models)
        if isinstance(value, dict) and not within:
            model: Any = models[name]
            open_but_typed = "__pydantic_extra__" in model.__annotations__
            assert model.model_config.get("extra") == "forbid" or open_but_typed, name


@pytest.mark.parametrize("environment", ["base", "test", "prod"])
def test_every_environment_has_parameters_that_the_models_accept(environment: str) -> None:
    bootstrap_project(ROOT)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        # A production run without them stops, by intent.
        patch.setenv("ANMI_DATA_ROOT", "ROOT")
        patch.setenv("MLFLOW_TRACKING_URI", "sqlite:///x.db")
        with KedroSession.create(project_path=ROOT, env=environment) as session:
            assert session.load_context().params["recipes"].names()


def models_within(model: Any) -> Iterator[type[BaseModel]]:
    """Yield a model and the models of its fields."""
    for part in (model, *get_args(model)):
        if isinstance(part, type) and issubclass(part, BaseModel):
            yield part
            for field in part.model_fields.values():
                yield from models_within(field.annotation)


def test_every_option_of_recipes_says_what_it_is_and_why_its_default() -> None:
    from anmi.selection.recipe import Recipe, Step
    from anmi.selection.steps import STEPS
    from anmi.training.options import TrainingOptions

    # The others stand in conf/base with a comment each; tests/test_parameters.py.
    roots = [Recipe, TrainingOptions, *(kind.params for kind in STEPS.values())]
    models = {model for root in roots for model in models_within(root)} - {Step}
    assert len(models) > 20
    for model in models:
        assert model.__doc__, model.__name__
        assert (
            model.model_config.get("extra") == "forbid"
            or "__pydantic_extra__" in model.__annotations__
        ), model
        for name, field in model.model_fields.items():
            told = name == "kind" or (field.description or "").strip().endswith(".")
            assert told, f"{model.__name__}.{name} has no description"


def test_the_planted_truth_never_reaches_mining_or_training(stages: dict[str, Pipeline]) -> None:
    whole = sum(stages.values(), Pipeline([]))
    readers = [node for node in whole.nodes if "equivalents" in node.inputs]
    counting = {"selection.summarise_selection", "reporting.collect_results"}
    assert {node.name for node in readers} == counting
    after = {node.name for node in whole.from_nodes(*counting).nodes} - {
        "selection.summarise_selection"
    }
    reporting = {node.name for node in stages["reporting"].nodes}
    assert after == reporting, "what is counted with it may only be reported"


def test_listing_pipelines_loads_nothing_heavy() -> None:
    script = f"""
import sys
from kedro.framework.startup import bootstrap_project
from kedro.framework.project import pipelines
bootstrap_project({str(ROOT)!r})
import anmi.cli
assert "mining" in set(pipelines)
print(*(name for name in {HEAVY!r} if name in sys.modules))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []
