"""What reports claim of their methods beside what was measured: claims.json, docs/results.md.

Each method is measured over what its report compares it with: the seven of ANMI 2.1, which name no
network, with the static encoder, recipes as published with MiniLM. Cells that are there are kept,
and so are rows of the result whose cells are not there and whose recipes have not changed. From the
repository's root:

    python benchmarks/claims [methods|denoising|networks] …
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, NamedTuple

import pandas as pd

sys.path.append(str(Path(__file__).parents[1]))

import common
from ablation import Matrix, ablate
from anmi.evaluation.significance import compare
from anmi.fingerprint import hash_value
from anmi.selection.recipe import recipe_book
from common import METRIC, ROOT, about, artifact, fill, kedro, load, markdown, save

WORK: Final = common.WORK / "claims"
PAGE: Final = ROOT / "docs" / "results.md"
COLLECTIONS: Final = ("scifact", "api_docs")
SETTINGS: Final = {
    "debiased": "naive_top:training.options.loss=debiased",
    "fixed_temperature": "naive_top:training.options.temperature=fixed",
}
# Ranks are of the whole corpus; no epoch is chosen on dev, so that measuring it would only take
# time.
ALL: Final = "evaluation.ranked=all,training.dev_documents=200"


class Claim(NamedTuple):
    """What a report says of a recipe over another one, by a metric; in percent, or of a metric as it is."""

    claim: str
    recipe: str
    over: str
    claimed: str
    metric: str = "ndcg@10, %"


METHODS: Final = [
    Claim(
        "A threshold relative to the positive (2.1, method 2)",
        "nv_retriever",
        "fixed_threshold",
        "+3 to +5",
    ),
    Claim("Debiased loss (2.1, method 3)", "debiased", "naive_top", "+4 to +6"),
    Claim("Weights of a mixture (2.1, method 4)", "progcl", "hard_threshold", "+2 to +4"),
    Claim("SimANS (2.1, method 5)", "simans", "uniform", "+2 to +3"),
    Claim("Adaptive curriculum (2.1, method 6)", "adaptive_schedule", "fixed_schedule", "+5 to +8"),
    Claim("Learnable temperature (2.1, method 7)", "naive_top", "fixed_temperature", "+1 to +2"),
    Claim("2.1 over 2.0, in our form", "anmi_2_1", "anmi_2_0", "+10 to +18"),
]
DENOISING: Final = [Claim("Denoising (2.1, method 1)", "bm25_denoised", "bm25_top", "+12 to +18")]
NETWORKS: Final = [
    Claim(
        "2.1 over 2.0, as published", "anmi_2_1_as_published", "anmi_2_0_as_published", "+10 to +18"
    ),
    Claim(
        "2.0 over the encoder before training, as published",
        "anmi_2_0_as_published",
        "zero_shot",
        "better",
    ),
    Claim("HANS as published", "hans_as_published", "dpr", "-0.0032", "mrr@10"),
    Claim("HANS as published", "hans_as_published", "dpr", "+0.0020", "recall@10"),
    Claim("HANS as published", "hans_as_published", "dpr", "+0.0007", "f2@10"),
    Claim("HANS as published", "hans_as_published", "dpr", "-0.02", "rank"),
]
SHARES: Final = [
    Claim("Relevant ones among BM25's best", "bm25_top", "", "70", "false negatives, %"),
    Claim("The same, denoised", "bm25_denoised", "", "15 to 20", "false negatives, %"),
    Claim("The same, fixed threshold", "fixed_threshold", "", "20 to 25", "false negatives, %"),
    Claim("The same, relative threshold", "nv_retriever", "", "15 to 18", "false negatives, %"),
]
# What is run with it: systems in order, seeds, encoder and settings of all cells.
MATRICES: Final = {
    # Without the cross-encoder, which learns nothing from so few labels and would take most of the
    # time.
    "methods": (METHODS, "1,2,3", "static", "elo.judges.bm25=1,elo.judges.dense=1"),
    "denoising": (DENOISING, "1", "static", ""),
    "networks": (NETWORKS, "1", "minilm", ALL),
}
# What a row means for a user.
MEANS: Final = {
    "HANS as published": "Level with the same two encoders without it.",
    "Denoising (2.1, method 1)": "Audit first: few false negatives leave little to remove.",
    "A threshold relative to the positive (2.1, method 2)": (
        "Take either threshold: they are level."
    ),
    "Debiased loss (2.1, method 3)": "Leave it off; InfoNCE on the same rows is level or better.",
    "Weights of a mixture (2.1, method 4)": "Leave it off: the weights favour easier negatives.",
    "SimANS (2.1, method 5)": "Level with even draws from the same pool.",
    "Adaptive curriculum (2.1, method 6)": "Level with a fixed schedule.",
    "Learnable temperature (2.1, method 7)": "Keep the default, which learns it.",
    "2.1 over 2.0, in our form": "Seven methods together do not add up to a gain.",
    "Relevant ones among BM25's best": "The share depends on the labels: audit yours.",
    "Queries that the consistency filter keeps (miner)": "Other texts than the report's.",
}
# As many pairs as the notebook mines.
TITLES: Final = "pairs:../shared/data/ko_pairs/ko_sae4k_phrase_utterance_001.jsonl"


def run(name: str) -> None:
    claims, seeds, encoder, params = MATRICES[name]
    systems = dict.fromkeys(
        side for each in claims for side in (each.recipe, each.over) if side != "zero_shot"
    )
    named = [f"{system}={SETTINGS[system]}" if system in SETTINGS else system for system in systems]
    # Those of the networks state it themselves.
    common = params if encoder == "minilm" else f"encoder={encoder},{params}".rstrip(",")
    ablate(
        Matrix(named, list(COLLECTIONS), seeds, common),
        WORK / name,
        "--env",
        "../benchmarks/claims",
    )


def recipes() -> Any:
    """Return the recipes of the project with those that the claims need besides."""
    return recipe_book(common.recipes() | common.recipes("benchmarks/claims"))


def fingerprint(system: str) -> str:
    """Return a hash of what a system sets, which neither its name nor its description is part of."""
    setting = SETTINGS.get(system, system)
    dumped = recipes().get(setting.partition(":")[0]).model_dump(mode="json", exclude_unset=True)
    steps = [[step["name"], step["params"]] for step in dumped.get("steps", [])]
    kept = {
        name: value
        for name, value in dumped.items()
        if name not in ("description", "source", "extends", "steps")
    }
    return str(hash_value({"steps": steps, "setting": setting.partition(":")[2], **kept}, 8))


class Cells:
    """What the finished cells of a matrix measured."""

    def __init__(self, name: str) -> None:
        _, _, self.encoder, _ = MATRICES[name]
        self.found: dict[tuple[str, str], list[tuple[pd.DataFrame, dict[str, Any]]]] = {}
        for file in sorted((WORK / name).glob("*/*/seed*/cell.json")):
            key = (file.parts[-4], file.parts[-3])
            facts = json.loads(file.read_text(encoding="utf-8"))["facts"]
            self.found.setdefault(key, []).append(
                (pd.read_parquet(file.with_name("queries.parquet")), facts)
            )

    def values(
        self, collection: str, recipe: str, metric: str, bucket: str, kind: str = "trained"
    ) -> pd.Series | None:
        """Return each query's mean over seeds; None for what was not run."""
        cells = self.found.get((collection, recipe))
        if not cells:
            return None
        table = pd.concat(queries for queries, _ in cells)
        known = (
            "completed"
            if metric == METRIC and (table.judgments == "completed").any()
            else "original"
        )
        table = table[
            (table.judgments == known) & (table.system == kind) & (bucket in ("all", *table.bucket))
        ]
        table = table if bucket == "all" else table[table.bucket == bucket]
        return table.groupby("query_id")[metric].mean()

    def row(self, claim: Claim, collection: str, bucket: str) -> dict[str, Any]:
        """Return what was measured of a claim; nulls where it was not."""
        metric, _, percent = claim.metric.partition(", ")
        over, kind = (
            (claim.recipe, "zero_shot") if claim.over == "zero_shot" else (claim.over, "trained")
        )
        ours = self.values(collection, claim.recipe, metric, bucket)
        theirs = self.values(collection, over, metric, bucket, kind)
        row = of(claim, collection, self.encoder, bucket)
        if ours is None or theirs is None or ours.empty:
            return row
        both = pd.concat([ours, theirs], axis=1).dropna()
        found = compare(*both.to_numpy().T, seed=1)
        scale = 100 / both.iloc[:, 1].mean() if percent else 1.0
        figures = {"measured": found.difference, "low": found.low, "high": found.high}
        row |= {name: round(scale * value, 5) for name, value in figures.items()}
        return row | {
            "p": round(found.p_value, 5),
            "seeds": len(self.found[collection, claim.recipe]),
        }

    def share(self, claim: Claim, collection: str) -> dict[str, Any]:
        """Return the share of false negatives among the chosen, where the truth is known."""
        shares = [
            facts["false_negative_rate"]
            for _, facts in self.found.get((collection, claim.recipe), [])
        ]
        mean = round(100 * sum(shares) / len(shares), 3) if shares and None not in shares else None
        return of(claim, collection, self.encoder, "training") | {
            "measured": mean,
            "seeds": len(shares) or None,
        }


def of(claim: Claim, collection: str, encoder: str, bucket: str) -> dict[str, Any]:
    """Return a row of a claim without what was measured."""
    prints = [
        fingerprint(name) for name in (claim.recipe, claim.over) if name not in ("", "zero_shot")
    ]
    return {
        "claim": claim.claim,
        "metric": claim.metric,
        "recipe": claim.recipe,
        "over": claim.over,
        "collection": collection,
        "encoder": encoder,
        "bucket": bucket,
        "fingerprint": "-".join(prints),
        "claimed": claim.claimed,
        **dict.fromkeys(("measured", "low", "high", "p", "seeds")),
    }


def titles() -> dict[str, Any]:
    """Mine the Korean titles as the notebook does, and return the share of queries that pass."""
    data, recipe = WORK / "titles", "bm25_random_as_published"
    if not list(data.glob("**/consistency_summary.json/*/*")):
        params = f"recipe={recipe},collection={TITLES},encoder=static"
        kedro("run", "--pipelines", "mining", "--params", params, data=data, store=WORK / "store")
    summary = json.loads(artifact(data, "consistency_summary.json").read_text(encoding="utf-8"))
    claim = Claim(
        "Queries that the consistency filter keeps (miner)", recipe, "", "32.5", "passed, %"
    )
    return of(claim, "ko_pairs", "none", "training") | {
        "measured": round(100 * summary["pass_rate"], 2),
        "seeds": 1,
    }


def rows() -> Iterator[dict[str, Any]]:
    """Yield a row for every claim, collection and bucket."""
    cells = {name: Cells(name) for name in MATRICES}
    for name in ("networks", "denoising", "methods"):
        for claim in MATRICES[name][0]:
            for collection in COLLECTIONS:
                for bucket in ("all", "unlabelled"):
                    yield cells[name].row(claim, collection, bucket)
    for claim in SHARES:
        yield cells["denoising" if claim.recipe.startswith("bm25") else "methods"].share(
            claim, "api_docs"
        )
    yield titles()


def main() -> None:
    for name in sys.argv[1:]:
        run(name)
    key_of = itemgetter("claim", "metric", "collection", "encoder", "bucket", "fingerprint")
    before = {key_of(row): row for row in load("claims")["rows"]}
    found = [row if row["measured"] is not None else before.get(key_of(row), row) for row in rows()]
    save("claims", {**about(), "rows": found})
    fill(PAGE, "claims", page_table(found))


def page_table(found: list[dict[str, Any]]) -> str:
    """Return a table with a line for each claim and metric, and a cell for each collection."""
    table: dict[tuple[str, str], dict[str, list[str]]] = {}
    for row in found:
        if row["metric"] in ("recall@10", "f2@10", "rank"):
            continue  # The result has the other metrics of HANS.
        over = f"`{row['recipe']}` over `{row['over']}`" if row["over"] else f"`{row['recipe']}`"
        key = (f"{row['claim']}: {over}", f"{row['claimed']} {row['metric'].replace(', %', ' %')}")
        table.setdefault(key, {}).setdefault(row["collection"], []).append(shown(row))
    lines = []
    for (claim, claimed), cells in table.items():
        values = [
            "; ".join(cells.get(name, ["–"])).replace("not measured; not", "not")
            for name in COLLECTIONS
        ]
        if "ko_pairs" in cells:
            values[0] = f"{cells['ko_pairs'][0]} (`ko_pairs`)"
        means = MEANS.get(claim.split(":")[0], "") if {*values} != {"not measured"} else ""
        lines.append([claim, claimed, *values, means])
    return markdown(
        ["claim", "claimed", *(f"{name}: all; unlabelled" for name in COLLECTIONS), "for you"],
        lines,
    )


def shown(row: dict[str, Any]) -> str:
    """Return a measured value with its interval, in bold where it is significant."""
    if row["measured"] is None:
        return "not measured"
    digits = 1 if row["metric"].endswith("%") else 4
    if row["low"] is None:
        return f"{row['measured']:.{digits}f}"
    text = f"{row['measured']:+.{digits}f} [{row['low']:+.{digits}f},{row['high']:+.{digits}f}]"
    return f"**{text}**" if row["p"] < 0.05 else text


if __name__ == "__main__":
    main()
