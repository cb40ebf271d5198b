"""What limits telling documents from false variants on WebNLG: on training queries of held-out categories.

Nothing here reads test queries. Six categories of the training queries are held out, and so are some entities and some
documents of the others, much as the test queries are; all that a training loses by it, it loses with every loss and
source of negatives alike. A cell trains on the rest, or with ``fitted`` on the held-out rows as well, which is no
measurement of a model but of what a table of token vectors is able to represent. For the held-out queries it measures

- the AUC over all pairs and the paired share, by kind of falsehood, and by whether training met the category;
- the AUC that is left if every query had its own scale (similarities less the mean of the query's texts): what is
  lost between queries, and what within;
- how far apart a document and its variants are in the mean, and how much the similarity of the own document differs
  from query to query: harder negatives may widen both;
- the AUC by how many of the tokens that tell a document from its variant occur in training: a vector that training
  never touches learns nothing from any negative.

``same_tokens`` is the share of variants that have exactly the tokens of the document, in another order: no mean of
token vectors tells those apart. Run from the repository's root:

    python benchmarks/dnh_ceiling.py
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from anmi.evaluation.factuality import TRUE_KINDS, factuality, factuality_pairs, pair_similarities
from anmi.evaluation.metrics import completed_judgments, evaluate
from anmi.evaluation.retrieval import run_table, search
from anmi.pipelines.reporting.nodes import machine, versions
from anmi.retrieval.encoders import encode, load_encoder
from anmi.training.options import TrainingOptions
from anmi.training.trainer import train
from dnh import MODELS, ROOT, World, options_of

RESULT = ROOT / "benchmarks" / "results" / "dnh_ceiling.json"
HELD_OUT = ("Building", "University", "Astronaut", "Monument", "ComicsCharacter", "SportsTeam")
# How many held-out queries are measured: of those categories, and of the others by entity and by document.
OF_CATEGORIES, OF_ENTITIES, OF_DOCUMENTS, SHARE = 800, 500, 480, 0.06
# Recipe, loss, and whether the held-out rows are trained on.
CELLS = (
    ("dnh_random", "infonce", False),
    ("dnh_linear", "infonce", False),
    ("dnh_random", "pooled", False),
    ("dnh_linear", "pooled", False),
    ("dnh_linear", "pooled", True),
    ("dnh_linear", "infonce", True),
)


class HeldOut:
    """Training rows without some categories, entities and documents, and what is measured on these."""

    def __init__(self, world: World) -> None:
        self.world = world
        queries, qrels = world.of("train")
        random = np.random.default_rng(7)
        own = dict(zip(qrels.query_id, qrels.document_id, strict=True))
        of_category = queries.query_id.map(world.categories).isin(HELD_OUT)
        self.unseen = set(queries.query_id[of_category])
        rest = queries.query_id[~of_category].to_numpy()
        number = dict(zip(world.ids, world.graph.about.tolist(), strict=True))
        about = np.array([number[own[query]] for query in rest])
        entities = np.unique(about[about >= 0])
        chosen = np.isin(about, random.choice(entities, int(SHARE * len(entities)), replace=False))
        by_entity, rest = rest[chosen], rest[~chosen]
        documents = np.unique([own[query] for query in rest])
        gone = set(random.choice(documents, int(SHARE * len(documents)), replace=False))
        by_document = np.array([query for query in rest if own[query] in gone])
        trained = set(rest) - set(by_document)
        measured = np.concatenate([
            random.choice(queries.query_id[of_category].to_numpy(), OF_CATEGORIES, replace=False),
            random.permutation(by_entity)[:OF_ENTITIES],
            random.permutation(by_document)[:OF_DOCUMENTS],
        ])  # fmt: skip
        rows = world.rows()
        self.rows = rows[rows.query_id.isin(trained)]
        self.with_held_out = rows[rows.query_id.isin(trained | set(measured))]
        self.asked = queries[queries.query_id.isin(measured)]
        self.own = qrels[qrels.query_id.isin(measured)]
        fresh = self.own[~self.own.document_id.isin(self.rows.positive_id)]
        texts = dict(zip(world.ids, world.texts, strict=True))
        pairs = factuality_pairs(self.asked, fresh, texts, world.variants, seed=1)
        self.pairs = pairs[~pairs.kind.isin(TRUE_KINDS)].reset_index(drop=True)
        self.completed = completed_judgments(self.own, world.collection.equivalents)


def tokens_that_differ(pairs: pd.DataFrame, rows: pd.DataFrame, tokenizer: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """Share of the tokens that tell a document from its variant and occur in training, and whether there is any."""
    known = {token for text in (*rows["query"], *rows.positive) for token in tokenizer.encode(text).ids}
    bags = {text: Counter(tokenizer.encode(text).ids) for text in {*pairs.own, *pairs.variant}}
    shares, same = np.full(len(pairs), np.nan), np.zeros(len(pairs), bool)
    for place, (own, variant) in enumerate(zip(pairs.own, pairs.variant, strict=True)):
        differ = [*((bags[own] - bags[variant]) + (bags[variant] - bags[own]))]
        same[place] = not differ
        if differ:
            shares[place] = np.mean([token in known for token in differ])
    return shares, same


def centred(pairs: pd.DataFrame, own: NDArray[np.float64], other: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    """Similarities less the mean of the query's own document and its variants."""
    query = pd.factorize(pairs.query_id)[0]
    own_mean = np.bincount(query, own) / np.bincount(query)
    middle = (own_mean + np.bincount(query, other) / np.bincount(query)) / 2
    return [own - middle[query], other - middle[query]]


def told(pairs: pd.DataFrame, own: NDArray[np.float64], other: NDArray[np.float64]) -> dict[str, list[float]]:
    """AUC and paired share, by kind."""
    table = factuality(pairs, own, other, seed=1, resamples=10)
    return {str(kind): [round(float(row.auc), 4), round(float(row.paired), 4)] for kind, row in table.iterrows()}


def run_cell(held: HeldOut, recipe: str, loss: str, fitted: bool, seed: int) -> dict[str, Any]:
    """Train once and measure."""
    world, pairs = held.world, held.pairs
    encoder = load_encoder("static", MODELS)
    options = TrainingOptions(**(options_of(recipe).model_dump() | {"loss": loss}))
    rows = (held.with_held_out if fitted else held.rows).reset_index(drop=True)
    train(rows, encoder=encoder, options=options, output=None, seed=seed, stock=world.stock, show_progress=False)
    values = pair_similarities(pairs, lambda texts, role: encode(encoder, texts, None, role=role))
    shares, same = tokens_that_differ(pairs, held.rows, encoder[0].tokenizer)
    unseen = pairs.query_id.isin(held.unseen).to_numpy()
    parts = {
        "seen categories": ~unseen,
        "unseen categories": unseen,
        "all differing tokens known": shares == 1,
        "some differing tokens unknown": shares < 1,
    }
    found = search(encoder, held.asked.text.tolist(), world.texts, 100)
    run = run_table(held.asked.query_id.tolist(), world.ids, *found)
    return {
        "collection": world.name, "recipe": recipe, "loss": loss, "fitted": fitted, "seed": seed,
        "queries": int(pairs.query_id.nunique()), "pairs": len(pairs), "same_tokens": float(same.mean()),
        "by_kind": told(pairs, *values),
        "gap": float((values[0] - values[1]).mean()),
        "spread_of_own": float(values[0][~pairs.duplicated("query_id")].std()),
        "one_scale_per_query": told(pairs, *centred(pairs, *values))["all"][0],
        **{
            name: [*told(pairs[mask], *(v[mask] for v in values))["all"], int(mask.sum())]
            for name, mask in parts.items()
        },
        "ndcg_10_completed": float(evaluate(held.completed, run, (10,))["ndcg@10"].mean()),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--work", type=Path, default=ROOT / "data" / "benchmarks" / "dnh_ceiling")
    arguments = parser.parse_args()
    held = HeldOut(World("kg_webnlg/beir_en"))
    code = [path.read_text() for path in sorted((ROOT / "src/anmi/training").rglob("*.py"))]
    key = hashlib.blake2b("".join([*code, Path(__file__).read_text()]).encode(), digest_size=8).hexdigest()
    rows: list[dict[str, Any]] = []
    for seed in range(1, arguments.seeds + 1):
        for cell in CELLS:
            path = arguments.work / f"{'-'.join(map(str, cell))}-{seed}-{key}.json"
            if not path.exists():
                made = run_cell(held, *cell, seed)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(json.dumps(made), encoding="utf-8")
            rows.append(json.loads(path.read_text(encoding="utf-8")))
            print(rows[-1], flush=True)
            date = datetime.datetime.now(datetime.UTC).date().isoformat()
            document = {"date": date, "machine": machine(), "versions": versions(), "rows": rows}
            RESULT.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
