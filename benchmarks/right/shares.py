"""How many negatives are in truth relevant, by coefficients that never saw the collection, and how sure that is.

Mines SciFact and MedQuAD as the ablation does (static encoder, hidden positives, coefficients of the fused judge fitted
without the collection) and trains nothing. Run from the repository's root, a few minutes on two cores:

    python benchmarks/right/shares.py
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
WORK: Final = ROOT / "data" / "benchmarks" / "shares"
COLLECTIONS: Final = ("scifact", "medquad")
RECIPES: Final = ("naive_top", "naive_top_15", "clean_top", "anmi")


def shares(work: Path = WORK) -> list[dict[str, Any]]:
    """Return rows ``case, value, unit, note``: shares, both ends of their intervals, and design effects."""
    rows = []
    for collection in COLLECTIONS:
        audited, without = _audited(collection, work)
        for recipe in RECIPES:
            own = audited[(audited.recipe == recipe) & audited.default].iloc[0]
            counted = f"{own.leaked} of {own.negatives} negatives, hidden positives, without={without}"
            interval = f"95 % interval {own.leak_low:.2%} to {own.leak_high:.2%}"
            case = f"{collection}, {recipe}: relevant in truth"
            rows.append({
                "case": case, "value": round(100 * own.leak, 2), "unit": "%", "note": f"{counted}; {interval}",
            })  # fmt: skip
            rows.append({
                "case": f"{collection}, {recipe}: design effect", "value": round(own.design_effect, 2), "unit": "",
                "note": "variance of that share over queries by that of as many independent negatives",
            })  # fmt: skip
    return rows


def _audited(collection: str, work: Path) -> tuple[Any, str | None]:
    """Mine a collection of the ablation, audit the recipes on it, and say what its coefficients were fitted without."""
    from anmi.pipelines.ablation.mining import mine
    from anmi.pipelines.ablation.schedule import Plan
    from anmi.pipelines.audit.nodes import audit_recipes

    plan: Plan = _plan(work)
    job, place = plan.mining(collection)
    if not job.is_done:
        mine(job)
    data, judge = place.mined, job.parameters["denoising"].fused
    audited = audit_recipes(
        data["audit.rated_candidates"], data["audit.consistency"], data["planted_truth"], data["audit.corpus"],
        data["audit.collection_info"], plan.recipes, plan.seed,
    )  # fmt: skip
    return audited, judge.without


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
    json.dump(shares(), sys.stdout, indent=1)
    print()
