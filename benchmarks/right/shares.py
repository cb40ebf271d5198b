"""How many negatives are in truth relevant, by coefficients that never saw the collection, and how sure that is.

Mines collections as the ablation does (static encoder, coefficients of the fused judge fitted without the collection)
and trains nothing. On SciFact and MedQuAD hidden positives tell what is relevant, on the others equivalents. Run from
the repository's root, a few minutes on two cores:

    python benchmarks/right/shares.py
"""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
WORK: Final = ROOT / "data" / "benchmarks" / "shares"
COLLECTIONS: Final = ("scifact", "medquad", "api_docs", "kg_webnlg/beir_en")
RECIPES: Final = ("naive_top", "naive_top_15", "clean_top", "anmi")


def shares(work: Path = WORK) -> list[dict[str, Any]]:
    """Return rows ``case, value, unit, note``: shares with both ends of their intervals, and design effects."""
    rows = []
    for collection in COLLECTIONS:
        for recipe, (truth, without, found) in _measured(collection, work).items():
            counted = f"{found.count} of {found.total} negatives by {truth}, without={without}"
            interval = f"95 % interval over queries {found.low:.2%} to {found.high:.2%}"
            case, share = f"{collection}, {recipe}", round(100 * found.value, 2)
            rows += [
                {"case": f"{case}: relevant in truth", "value": share, "unit": "%", "note": f"{counted}; {interval}"},
                {
                    "case": f"{case}: design effect", "value": round(found.design_effect, 2), "unit": "times",
                    "note": "variance of that share over queries by that of as many independent negatives",
                },
            ]  # fmt: skip
    return rows


def _measured(collection: str, work: Path) -> dict[str, tuple[str, str | None, Any]]:
    """Mine a collection, and return by recipe by what is known what is relevant, what was left out, and the share."""
    import pandas as pd

    from anmi.evaluation.shares import Share, share_of_pairs
    from anmi.judging.fusing import left_out
    from anmi.pipelines.ablation.cells import SelectionJob, select
    from anmi.pipelines.ablation.mining import mine
    from anmi.pipelines.audit.nodes import audit_recipes
    from anmi.selection.rated import RATED

    plan = _plan(work)
    job, place = plan.mining(collection, *plan.groups)
    if not job.is_done:
        mine(job)
    data = place.mined
    without = left_out(job.parameters["denoising"].fused.without, job.parameters["collection"])
    if place.truth == "none":
        audited = audit_recipes(
            **{name: data[f"audit.{name}"] for name in RATED},
            truth=data["planted_truth"], corpus=data["audit.corpus"], info=data["audit.collection_info"],
            recipes=plan.recipes, seed=plan.seed,
        )  # fmt: skip
        own = audited[audited.default].set_index("recipe")
        columns = [
            "false_negative_rate",
            "false_negative_rate_low",
            "false_negative_rate_high",
            "false_negatives",
            "negatives",
        ]
        return {
            name: ("hidden positives", without, Share(*own.loc[name, columns], 0, 0, own.design_effect[name]))
            for name in RECIPES
        }
    found: dict[str, tuple[str, str | None, Any]] = {}
    for name in RECIPES:
        chosen = SelectionJob(place, name, plan.recipes, plan.seed)
        select(chosen)
        pairs = pd.read_parquet(chosen.rows)[["query_id", "negative_ids"]].explode("negative_ids").dropna()
        pairs = pairs.rename(columns={"negative_ids": "document_id"})
        found[name] = ("equivalents", without, share_of_pairs(pairs, data["equivalents"]))
    return found


def _plan(work: Path) -> Any:
    """Return the ablation of these recipes on these collections, with the project's parameters."""
    from kedro.config import OmegaConfigLoader
    from kedro.framework.startup import bootstrap_project

    from anmi.pipelines.ablation.mining import book_of
    from anmi.pipelines.ablation.nodes import run_ablation
    from anmi.pipelines.ablation.params import AblationParams
    from anmi.pipelines.ablation.schedule import Plan
    from anmi.selection.recipe import recipe_book
    from anmi.settings import CONFIG_LOADER_ARGS

    bootstrap_project(ROOT)
    raw = OmegaConfigLoader(str(ROOT / "conf"), **CONFIG_LOADER_ARGS)["parameters"]
    chosen = {
        "description": "Shares only; nothing is trained.", "recipes": list(RECIPES), "baseline": "naive_top",
        "collections": list(COLLECTIONS), "encoder": "static",
    }  # fmt: skip
    ablation = AblationParams(**raw["ablation"] | {"set": "shares", "sets": {"shares": chosen}})
    branches = {
        name: kind(**raw[name])
        for name, kind in _kinds(run_ablation).items()
        if name not in ("ablation", "recipes") and name in raw
    }
    book = book_of(recipe_book(raw["recipes"]), RECIPES)
    store = Path(os.environ.get("ANMI_STORE", ROOT / "data" / "store"))
    return Plan(ablation, book, branches, raw["seed"], work, store, ROOT)


def _kinds(node: Any) -> dict[str, Any]:
    """Return the models of a node's parameters."""
    from typing import get_type_hints

    from pydantic import BaseModel

    hints = get_type_hints(node)
    return {name: kind for name, kind in hints.items() if isinstance(kind, type) and issubclass(kind, BaseModel)}


if __name__ == "__main__":
    os.chdir(ROOT)
    logging.disable(logging.INFO)
    json.dump(shares(), sys.stdout, indent=1)
    print()
