"""How much of what is found stays when the same is asked in other words, by recipe, on WebNLG.

Its test queries come with other verbalisations of the same facts by other people (``metadata.alt``), 3,371 of 1,765
queries; no training sees those of test. Every recipe trains the static encoder on all training queries, as
``benchmarks/dnh.py`` does, and ``zero_shot`` is not trained. Run from the repository's root:

    python benchmarks/paraphrases.py
"""

from __future__ import annotations

import argparse
import datetime
import json
from pathlib import Path
from typing import Any

import numpy as np

from anmi.evaluation.paraphrases import paraphrases, robustness
from anmi.evaluation.retrieval import run_table, search
from anmi.pipelines.reporting.nodes import machine, versions
from anmi.retrieval.encoders import load_encoder
from anmi.training.trainer import train
from dnh import MODELS, ROOT, World, options_of

RESULT = ROOT / "benchmarks" / "results" / "paraphrases.json"
RECIPES = ("zero_shot", "dnh_random", "dnh_linear", "dnh_edited", "dnh_adversary")
DEPTH = 10


def measured(world: World, recipe: str, seed: int) -> dict[str, Any]:
    """Train once, ask in all wordings, and compare."""
    encoder = load_encoder("static", MODELS)
    if recipe != "zero_shot":
        train(world.rows(), encoder=encoder, options=options_of(recipe), output=None, seed=seed, stock=world.stock)
    asked, qrels = world.of("test")
    words = paraphrases(asked)
    runs = [
        run_table(ids.tolist(), world.ids, *search(encoder, texts.tolist(), world.texts, DEPTH))
        for ids, texts in ((asked.query_id, asked.text), (words.paraphrase_id, words.text))
    ]
    table = robustness(runs[0], runs[1], words, qrels)
    means = {name: round(float(value), 4) for name, value in table.mean().items()}
    return {"recipe": recipe, "seed": seed, "queries": len(table), "paraphrases": len(words), **means}


def main() -> None:
    """Measure all recipes with all seeds, and write their means."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--collection", default="kg_webnlg/beir_en")
    parser.add_argument("--recipes", nargs="+", default=RECIPES)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--output", type=Path, default=RESULT)
    arguments = parser.parse_args()
    world = World(arguments.collection)
    rows = []
    for recipe in arguments.recipes:
        cells = [measured(world, recipe, seed) for seed in range(1, arguments.seeds + 1)]
        numbers = [name for name, value in cells[0].items() if isinstance(value, float)]
        rows.append(
            {key: cells[0][key] for key in ("recipe", "queries", "paraphrases")}
            | {"collection": arguments.collection, "encoder": "static", "seeds": arguments.seeds}
            | {name: round(float(np.mean([cell[name] for cell in cells])), 4) for name in numbers}
        )
        print(json.dumps(rows[-1]), flush=True)
    found = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": machine(),
        "versions": versions(),
        "rows": rows,
    }
    arguments.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
