"""One whole run on the built-in collection that the tests look at, and the catalog of any data root."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner, Result


@dataclass(frozen=True)
class Place:
    """A data root and the store beside it."""

    data: Path
    store: Path

    def versions(self, stage: str, name: str) -> list[Path]:
        """Return the versions of an artifact, the oldest first."""
        names = [f"audit.{name}", name] if stage == "audit" else [name]
        found = (sorted(self.data.glob(f"0*/{each}/*/{each}")) for each in names)
        return next((versions for versions in found if versions), [])

    def json(self, stage: str, name: str) -> Any:
        """Return the newest version of a JSON artifact."""
        return json.loads(self.versions(stage, name)[-1].read_text(encoding="utf-8"))

    def table(self, stage: str, name: str) -> Any:
        """Return the newest version of a table."""
        import pandas as pd

        return pd.read_parquet(self.versions(stage, name)[-1])

    def with_stage_columns(self, stage: str | None = None) -> Any:
        """Return the candidates with the columns of all stages; with ``stage``, from its folder."""
        from anmi.candidates import CandidateShards, ColumnShards
        from anmi.selection.recipe import with_probabilities, with_stage_columns

        def parts(made_by: str, name: str) -> list[Path]:
            return sorted(self.versions(stage or made_by, name)[-1].glob("part-*.parquet"))

        made = {
            "consistency": "consistency",
            "evidence": "denoising",
            "judgments": "denoising",
            "ratings": "elo",
        }
        columns = {name: ColumnShards(files=parts(made_by, name)) for name, made_by in made.items()}
        return with_stage_columns(
            CandidateShards.read(parts("dense", "candidates")), **columns
        ).map(with_probabilities)

    def exported(self) -> list[dict[str, Any]]:
        """Return the lines of the pair-format files."""
        (folder,) = self.versions("selection", "negatives")
        files = sorted(folder.glob("part_*.jsonl"))
        assert files, "no chunk was written"
        assert files[0].name == "part_001.jsonl"
        return [
            json.loads(line)
            for file in files
            for line in file.read_text(encoding="utf-8").splitlines()
        ]


@pytest.fixture(scope="session")
def new_place(new_store: Callable[[Path], Path]) -> Callable[[Path], Place]:
    """Make an empty data root with a store that holds no embedding and no judgment."""
    return lambda path: Place(path / "data", new_store(path / "store"))


@pytest.fixture(scope="session")
def open_catalog(project: Path) -> Callable[..., Any]:
    """Open the project's catalog and parameters on a data root."""
    from kedro.framework.session import KedroSession
    from kedro.framework.startup import bootstrap_project

    @contextmanager
    def opened(
        place: Place, env: str | None = None, **parameters: Any
    ) -> Iterator[tuple[Any, dict[str, Any]]]:
        bootstrap_project(project)
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(project)
            patch.setenv("ANMI_DATA_ROOT", str(place.data))
            patch.setenv("ANMI_STORE", str(place.store))
            with KedroSession.create(
                project_path=project, env=env, runtime_params=parameters
            ) as session:
                context = session.load_context()
                yield context.catalog, context.params

    return opened


# The default recipe asks neither the cross-encoder nor Elo.
WHOLE: Final = "anmi_2_1"


@pytest.fixture(scope="session")
def run_once(
    made_once: Any, new_place: Callable[[Path], Place], kedro: Any
) -> Callable[..., Place]:
    """Run a command for all workers of this session; its tests only read what it leaves."""

    def run(name: str, *words: str, **options: Any) -> Place:
        def make(folder: Path) -> None:
            place = new_place(folder)
            done = kedro("run", *words, data_root=place.data, store=place.store, **options)
            assert done.returncode == 0, done.stdout + done.stderr

        folder = made_once(name, make)
        return Place(folder / "data", folder / "store")

    return run


@pytest.fixture(scope="session")
def whole_run(run_once: Callable[..., Place]) -> Place:
    """What ``kedro run --env test`` leaves with a recipe that needs every stage, all negatives in every step."""
    settings = f"recipe={WHOLE},recipes.{WHOLE}.pool=7,recipes.{WHOLE}.training.curriculum=none"
    return run_once("whole", "--params", settings, anew=True)


@pytest.fixture(scope="session")
def scifact(run_once: Callable[..., Place], shared_data: Path) -> Place:
    """SciFact, documents whole, mined with ``anmi_2_1`` and `static`, with the sizes of real runs; untrained."""
    parameters = f"collection=beir:{shared_data}/scifact,ingestion.passages=none,recipe=anmi_2_1,encoder=static"
    return run_once("scifact", "--pipelines", "mining,adaptation", "--params", parameters, env=None)


@pytest.fixture(scope="session")
def in_process(project: Path) -> Callable[..., Result]:
    """Invoke ``kedro`` in this process, which saves the ten seconds that a start takes.

    Runs are not tracked: a database of MLflow takes seconds to make, and tracking has tests of its
    own.
    """
    from kedro.framework.startup import bootstrap_project

    from anmi.cli import cli

    def invoke(place: Place, *arguments: str, env: str | None = "test") -> Result:
        bootstrap_project(project)
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(project)
            patch.setattr(
                "anmi.hooks.mlflow.MlflowHooks.before_pipeline_run", lambda *_, **__: None
            )
            for name in [
                name for name in os.environ if name.startswith(("MLFLOW", "ANMI", "KEDRO"))
            ]:
                patch.delenv(name)
            patch.setenv("ANMI_DATA_ROOT", str(place.data))
            patch.setenv("ANMI_STORE", str(place.store))
            patch.setenv("COLUMNS", "200")
            return CliRunner().invoke(cli, [*arguments, *(["--env", env] if env else [])])

    return invoke


@pytest.fixture(scope="session")
def small_graph(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A part of WebNLG in the layout of the whole: every so many documents with their queries, and all of the graph."""
    source = shared_data / "kg_webnlg"
    target = tmp_path_factory.mktemp("graph") / "beir_en"
    (target / "qrels").mkdir(parents=True)
    for name in ("entities.jsonl", "triples.tsv"):
        shutil.copy(source / name, target.parent / name)
    kept: set[str] = set()
    for name in ("corpus.jsonl", "queries.jsonl"):
        lines = (source / "beir_en" / name).read_text(encoding="utf-8").splitlines()
        if name == "corpus.jsonl":
            lines = lines[::24]
            kept = {json.loads(line)["_id"] for line in lines}
        (target / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    for split in ("train", "dev", "test"):
        header, *rows = (
            (source / "beir_en" / "qrels" / f"{split}.tsv").read_text(encoding="utf-8").splitlines()
        )
        rows = [row for row in rows if row.split("\t")[1] in kept]
        (target / "qrels" / f"{split}.tsv").write_text(
            "\n".join([header, *rows]) + "\n", encoding="utf-8"
        )
    return target


KINDS: Final = (
    "rivers",
    "castles",
    "engines",
    "violins",
    "glaciers",
    "ferries",
    "orchards",
    "clocks",
)
PLACES: Final = ("Bern", "Oslo", "Porto", "Gdansk", "Lyon", "Turku")
TOLD: Final = (
    "are described in the chronicle of {}",
    "were measured by the survey of {}",
    "made {} known far away",
)


def write_chronicle(folder: Path, splits: Sequence[str]) -> Path:
    """Write 48 queries with three documents each; documents of one kind or of one place are hard negatives.

    The queries of the places have the splits in turn.
    """
    documents, queries, labels = [], [], {split: ["query-id\tcorpus-id\tscore"] for split in splits}
    for kind in KINDS:
        for number, place in enumerate(PLACES):
            name = f"{kind}-{place}"
            texts = [
                f"The old {kind} of {place} {told.format(place)}, note {i}."
                for i, told in enumerate(TOLD)
            ]
            documents += [{"_id": f"{name}-{i}", "text": text} for i, text in enumerate(texts)]
            queries.append({"_id": name, "text": f"What is known of the {kind} of {place}?"})
            labels[splits[number % len(splits)]] += [
                f"{name}\t{name}-{i}\t1" for i in range(len(TOLD))
            ]
    return write_beir(folder, documents, queries, labels)


def write_beir(
    folder: Path, documents: list[Any], queries: list[Any], labels: dict[str, list[str]]
) -> Path:
    (folder / "qrels").mkdir(parents=True)
    for file, rows in (("corpus", documents), ("queries", queries)):
        (folder / f"{file}.jsonl").write_text(
            "".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8"
        )
    for split, lines in labels.items():
        (folder / "qrels" / f"{split}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder
