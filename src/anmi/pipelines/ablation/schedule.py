"""What is to be done for a set, in which order, and doing it: one collection after the other, the cells in parallel."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, product
from pathlib import Path
from typing import Any

from anmi.engine import LocalEngine, Outcome
from anmi.fingerprint import hash_value
from anmi.pipelines.ablation.cells import CellJob, Place, SelectionJob, read, run_cell, select
from anmi.pipelines.ablation.mining import MiningJob, book_of, fingerprint, folder_name, mine
from anmi.pipelines.ablation.params import AblationParams
from anmi.selection.inheritance import under
from anmi.selection.recipe import RecipeBook

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Plan:
    """A set with everything that its cells are made from.

    Attributes
    ----------
    params
        Of the ablation.
    recipes
        Those of the set and no others.
    branches
        Parameters of the stages by name: ``ingestion, bm25, …, audit, training``, as validated.
    seed
        Of mining and selection; the seeds of the set are those of training.
    work, store, project
        Folders: of the ablation, of embeddings and judgments, of the project.
    """

    params: AblationParams
    recipes: RecipeBook
    branches: Mapping[str, Any]
    seed: int
    work: Path
    store: Path
    project: Path

    @property
    def groups(self) -> list[tuple[str, ...]]:
        """Recipes that are mined together: all that state the same settings of mining, mostly none."""
        found: dict[str, list[str]] = {}
        for name in self.params.chosen.recipes:
            found.setdefault(hash_value(self.recipes.get(name).mining, 8), []).append(name)
        return [tuple(names) for names in found.values()]

    def mining(self, name: str, group: tuple[str, ...]) -> tuple[MiningJob, Place]:
        """Return what is to be mined of a collection for a group of recipes, and where its cells will find it."""
        chosen, given = self.params.collections[name], self.params.chosen
        recipes = book_of(self.recipes, group)
        stated = recipes.get(group[0]).mining
        branches = dict(self.branches) | {
            stage: type(branch).model_validate(under(branch.model_dump(exclude_unset=True), stated[stage]))
            for stage, branch in self.branches.items()
            if stage in stated
        }
        ingestion, denoising = branches["ingestion"], branches["denoising"]
        fused = denoising.fused.model_copy(update=chosen.fused)
        parameters = {key: value for key, value in branches.items() if key != "training"} | {
            "collection": chosen.collection,
            "ingestion": type(ingestion)(**(ingestion.model_dump() | chosen.ingestion)),
            "denoising": denoising.model_copy(update={"fused": type(fused)(**fused.model_dump())}),
            "encoder": given.encoder,
            "recipe": RecipeBook.every,
            # Read by adaptation; what a set says of training otherwise is for its cells.
            "training.options": {},
            # Without a refit no dev query need be mined.
            "training.refit": self.params.refits,
            "audit_judges_for": RecipeBook.every,
            "recipes": recipes,
            "seed": self.seed,
        }
        audit = chosen.false_negatives == "auto" and chosen.truth == "none"
        # What is not audited does not depend on how it would be.
        counted = {key: value for key, value in parameters.items() if audit or not key.startswith("audit")}
        found = fingerprint(counted, recipes, self.project)
        folder = self.work / folder_name(name) / f"mined-{found}"
        configuration = self.project / "conf"
        job = MiningJob(name, folder, self.store, configuration, parameters, audit)
        return job, Place(name, found, configuration, folder, self.store, chosen.truth, chosen.false_negatives)

    def cells(self, place: Place, group: tuple[str, ...]) -> list[CellJob]:
        """Return the cells of recipes on a collection; all recipes of a seed before the next, to compare early."""
        given, branch = self.params.chosen, self.branches["training"]
        options = {**branch.options, **given.training, **self.params.collections[place.name].training}
        training = type(branch)(**(branch.model_dump() | {"options": options, "refit": self.params.refits}))
        return [
            CellJob(
                SelectionJob(place, recipe, self.recipes, self.seed), given.encoder, training, self.branches["dense"],
                seed, self.branches["adaptation"].held_out, given.split,
            )
            for seed, recipe in product(given.seeds, group)
        ]  # fmt: skip

    @property
    def threads(self) -> int:
        """Threads of mining, where one process works at a time."""
        return int(os.environ.get("OMP_NUM_THREADS") or _cores())

    @property
    def workers(self) -> int:
        """Cells at once."""
        return self.params.workers or max(1, _cores() // self.params.threads)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass
class Done:
    """A cell that was asked for: its file and its selection's, or why there are none."""

    collection: str
    recipe: str
    seed: int
    cell: dict[str, Any] | None = field(default=None, repr=False)
    selection: dict[str, Any] | None = field(default=None, repr=False)
    error: str = ""
    reused: bool = False


def run(plan: Plan) -> Iterator[Done]:
    """Yield every cell of the set as it is finished, collection by collection; a failure is one more kind of end."""
    chosen = plan.params.chosen
    asked = len(chosen.collections) * len(chosen.recipes) * len(chosen.seeds)
    count = new = 0
    started = time.monotonic()
    with LocalEngine(workers=plan.workers, threads=plan.params.threads) as engine:
        for name in chosen.collections:
            for done in chain.from_iterable(_of_collection(plan, name, group, engine) for group in plan.groups):
                count += 1
                new += not done.reused
                left = (time.monotonic() - started) / max(new, 1) * (asked - count)
                log.info(
                    "%4d/%d  %s", count, asked, _line(done) + (f"  ({left / 60:.0f} min left)" if left > 60 else "")
                )
                yield done


def _of_collection(plan: Plan, name: str, group: tuple[str, ...], engine: LocalEngine) -> Iterator[Done]:
    job, place = plan.mining(name, group)
    cells = plan.cells(place, group)
    failed = "" if job.is_done else _mine(job, plan.threads)
    if failed:
        yield from (Done(name, cell.recipe, cell.seed, error=f"mining failed: {failed}") for cell in cells)
        return
    # Of the cells of a recipe the first stands for its selection.
    selections = list({cell.recipe: cell.selection for cell in reversed(cells)}.values())
    without = [each for each in reversed(selections) if read(each.target) is None]
    outcomes = engine.map(select, without, description=f"{name}: selecting")
    errors = {each.item.recipe: error for each in outcomes if (error := _error(each))}
    facts = {each.recipe: read(each.target) for each in selections}
    missing = []
    for cell in cells:
        found = None if cell.recipe in errors else read(cell.target)
        if cell.recipe in errors:
            yield Done(name, cell.recipe, cell.seed, error=f"selection failed: {errors[cell.recipe]}")
        elif found is not None:
            yield Done(name, cell.recipe, cell.seed, found, facts[cell.recipe], reused=True)
        else:
            missing.append(cell)
    # Without a bar: every finished cell is told in a line of its own.
    for outcome in engine.map(run_cell, missing):
        cell = outcome.item
        error = _error(outcome)
        yield Done(name, cell.recipe, cell.seed, None if error else read(cell.target), facts[cell.recipe], error)


def _mine(job: MiningJob, threads: int) -> str:
    """Mine with all threads in a process of its own; return what went wrong, nothing where all went well."""
    log.info("%s: mining, once for %s", job.name, ", ".join(job.parameters["recipes"].names()))
    started = time.monotonic()
    with LocalEngine(workers=1, threads=threads, quiet=False) as engine:
        (outcome,) = engine.map(mine, [job])
    error = _error(outcome)
    if not error:
        log.info("%s: mined in %.0f s", job.name, time.monotonic() - started)
    return error


def _error(outcome: Outcome[Any, Any]) -> str:
    failure = outcome.failure
    if failure is None:
        return ""
    if not failure.expected and failure.trace:
        log.warning("%s", failure.trace)
    return failure.message


def _line(done: Done) -> str:
    what = f"{done.collection}  {done.recipe}  seed {done.seed}"
    if done.cell is None:
        return f"{what}  failed: {done.error}"
    values = {name: table["ndcg@10"] for name, table in done.cell["queries"].items()}
    shown = ", ".join(f"{name} {sum(each) / len(each):.4f}" for name, each in values.items())
    took = "kept" if done.reused else f"{done.cell['train_seconds']:.0f} s"
    return f"{what}  nDCG@10 {shown}  {took}"
