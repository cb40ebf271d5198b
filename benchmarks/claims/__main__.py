"""What the reports claim, each method against what its report compares it with, in its author's form.

A system is mined once for a collection and trained with each seed; what is there is not done again,
so the script may be interrupted. From the repository's root:

    python benchmarks/claims [methods|speed|networks] … [--collections scifact,…] [--seeds 1,2,3]

Without a name it only makes the result and the table of docs/results.md from what is there; rows
that were not measured are those of the last result, where the recipes have not changed.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd
import yaml

sys.path.append(str(Path(__file__).parents[1]))

import common
from anmi.evaluation.significance import compare, holm
from anmi.fingerprint import hash_value
from anmi.selection.recipe import RecipeBook
from common import METRIC, ROOT, STORE, about, artifact, fill, kedro, markdown, table

WORK: Final = common.WORK / "claims"
PAGE: Final = ROOT / "docs" / "results.md"
SHARED: Final = "beir:../shared/data"
COLLECTIONS: Final = {
    "scifact": f"collection={SHARED}/scifact",
    "api_docs": "collection=api_docs",
    "kg_webnlg": f"collection={SHARED}/kg_webnlg/beir_en,ingestion.max_queries=1500",
}
ZERO_SHOT: Final = "zero_shot"
MANY: Final = 10
NOT_MEASURED: Final = "not measured"


class Claim(NamedTuple):
    """What a report says of a system over another one, by a metric; in percent, or of a metric as it is."""

    claim: str
    system: str
    over: str
    claimed: str
    metric: str = "ndcg@10, %"


CLAIMS: Final = {
    name: [Claim(*claim) for claim in claims]
    for name, claims in yaml.safe_load(
        Path(__file__).with_name("claims.yml").read_text(encoding="utf-8")
    ).items()
}
# The reports train on the row's own negatives and keep the last weights.
MATRICES: Final = {
    "methods": ("static", {"in_batch": "none", "alpha": 1}),
    "speed": ("static", {"in_batch": "none", "alpha": 1, "dev_every": 6}),
    "networks": ("minilm", {}),
}
# The reports search documents, not passages.
WHOLE: Final = "ingestion.passages=none"
# Settings of mining that belong to a matrix; Elo without the cross-encoder, as in its notebook.
TABLE: Final = f"{WHOLE},encoder=static,elo.judges.bm25=1,elo.judges.dense=1"
MINING: Final = {"methods": TABLE, "speed": TABLE, "networks": f"{WHOLE},dense.max_length=128"}
# As many pairs as the notebook mines.
TITLES: Final = "pairs:../shared/data/ko_pairs/ko_sae4k_phrase_utterance_001.jsonl"


def recipes() -> Any:
    """Return the recipes of the project with those that the claims need besides."""
    return RecipeBook(**common.recipes() | common.recipes("benchmarks/claims"))


def systems(claims: list[Claim]) -> list[str]:
    """Return what is mined and trained for some claims."""
    sides = (side for claim in claims for side in (claim.system, claim.over))
    return [*dict.fromkeys(side for side in sides if side not in ("", ZERO_SHOT))]


class Mined:
    """A system's training rows on a collection, and all that training and evaluation read."""

    def __init__(self, matrix: str, collection: str, system: str) -> None:
        self.encoder, self.options = MATRICES[matrix]
        self.system = system
        self.folder = WORK / matrix / collection / system
        print_file = self.folder / "fingerprint.txt"
        if not print_file.is_file() or print_file.read_text() != fingerprint(system):
            for old in self.folder.glob("seed*.parquet"):
                old.unlink()
            params = f"{COLLECTIONS[collection]},recipe={system},{MINING[matrix]}"
            environment = ("--env", "../benchmarks/claims")
            kedro(
                *("run", "--pipelines", "mining,adaptation", "--params", params, *environment),
                data=self.folder,
                store=STORE,
            )
            print_file.write_text(fingerprint(system))

    def train(self, seed: int) -> None:
        """Train with a seed, rank all test queries, and keep their metrics."""
        from anmi.corpus.knowledge import Knowledge
        from anmi.evaluation.retrieval import ranked
        from anmi.pipelines.params import DenseParams
        from anmi.pipelines.training.nodes import prepare_training_data, train_retriever
        from anmi.pipelines.training.params import TrainingParams
        from anmi.retrieval.encoders import Encoder, place_of
        from anmi.store import Store

        output = self.folder / f"seed{seed}.parquet"
        if output.is_file():
            return
        names = ("corpus", "queries", "qrels", "related_documents", "pseudo_queries", "variants")
        tables = {name: table(self.folder, name) for name in (*names, "new_documents")}
        encoders = self.folder / "03_primary" / "corpus_encoder"
        corpus_encoder = max(encoders.glob("*/corpus_encoder"), default=encoders)
        book = recipes()
        recipe = book.get(self.system)
        store = Store(STORE)
        dense = DenseParams(max_length=128)
        encoder = recipe.encoder or self.encoder
        rows = table(self.folder, "training_rows")
        shared: dict[str, Any] = {
            "training_rows": rows,
            "corpus": tables["corpus"],
            "new_documents": tables["new_documents"],
            "recipe": self.system,
            "recipes": book,
            "training": TrainingParams(options=self.options, dev_documents=20_000),
            "seed": seed,
        }
        prepared = ("queries", "qrels", "pseudo_queries")
        trained = train_retriever(
            **shared,
            training_data=prepare_training_data(
                **shared, **{name: tables[name] for name in prepared}
            ),
            variants=tables["variants"],
            related_documents=tables["related_documents"],
            scored_candidates=pd.DataFrame(),
            knowledge=Knowledge.load(artifact(self.folder, "knowledge")),
            corpus_encoder=corpus_encoder,
            encoder=encoder,
            dense=dense,
            store=store,
        )
        corpus = tables["corpus"]
        queries = self.test_queries(tables)
        parts = []
        for kind, settings in (
            ("trained", dense.as_saved(str(trained["trained_model"]))),
            (ZERO_SHOT, dense.of(place_of(encoder, corpus_encoder))),
        ):
            opened = Encoder(settings, STORE / "models", store)
            run = ranked(opened, queries, tables["qrels"], corpus, 100)
            ranks = first_ranks(opened, queries, tables["qrels"], corpus)
            parts.append(self.metrics(queries, tables, run).assign(system=kind, rank=ranks))
        log = trained["training_log"]
        dev = log[log["dev_ndcg@10"].notna()]
        speed = {"step": dev.step.tolist(), "dev": dev["dev_ndcg@10"].tolist()}
        (self.folder / f"seed{seed}.json").write_text(json.dumps(speed))
        pd.concat(parts).to_parquet(output)

    def test_queries(self, tables: dict[str, pd.DataFrame]) -> pd.DataFrame:
        """Return the test queries that have a label."""
        queries, qrels = tables["queries"], tables["qrels"]
        return queries[(queries.split == "test") & queries.query_id.isin(qrels.query_id)]

    def metrics(
        self, test_queries: pd.DataFrame, tables: dict[str, pd.DataFrame], run: pd.DataFrame
    ) -> pd.DataFrame:
        """Return the metrics of each query, by completed judgments where more is known, and its bucket."""
        from anmi.evaluation.generalisation import buckets, trained_positives
        from anmi.evaluation.metrics import completed_judgments, evaluate, of_documents

        queries, qrels = tables["queries"], tables["qrels"]
        truth = qrels[qrels.query_id.isin(test_queries.query_id)]
        equivalents = table(self.folder, "equivalents")
        judged = completed_judgments(truth, equivalents) if len(equivalents) else truth
        scores = evaluate(of_documents(judged, tables["corpus"]), run, (10,))
        positives = trained_positives(queries, qrels, ["train"])
        new = tables["new_documents"].document_id
        return scores.join(buckets(scores.index.tolist(), qrels, positives, new))

    def simplest(self) -> pd.DataFrame:
        """Return the metrics of what a user does first: BM25 and the packaged network, untrained, at equal weights.

        Scores of a query are divided by their spread over the documents.
        """
        from anmi.corpus.texts import document_texts
        from anmi.pipelines.params import DenseParams
        from anmi.retrieval.bm25 import BM25Index
        from anmi.retrieval.encoders import Encoder
        from anmi.store import Store

        output = self.folder / "simplest.parquet"
        if output.is_file():
            return pd.read_parquet(output)
        names = ("corpus", "queries", "qrels", "new_documents")
        tables = {name: table(self.folder, name) for name in names}
        corpus = tables["corpus"]
        queries = self.test_queries(tables)
        network = Encoder(DenseParams().of("minilm"), STORE / "models", Store(STORE))
        documents = network.encode(document_texts(corpus), "document")
        vectors = network.encode(queries.text.tolist(), "query")
        index = BM25Index.load(artifact(self.folder, "bm25_index"))
        parts = []
        for part, bm25 in index.scored(queries.text.tolist(), 0):
            cosines = vectors[part] @ documents.T
            scores = sum(each / each.std(axis=1, keepdims=True) for each in (bm25, cosines))
            nearest = np.argsort(-scores, axis=1)[:, :100]
            run = {
                "query_id": np.repeat(queries.query_id.to_numpy()[part], nearest.shape[1]),
                "document_id": corpus.document_id.to_numpy()[nearest.ravel()],
                "score": np.take_along_axis(scores, nearest, axis=1).ravel(),
            }
            parts.append(pd.DataFrame(run))
        result = self.metrics(queries, tables, pd.concat(parts))
        result.to_parquet(output)
        return result

    def share(self, least: int) -> tuple[float | None, int]:
        """Return the share of chosen negatives that are relevant in truth, in percent, and the queries that counted.

        Those count that have at least so many relevant documents.
        """
        equivalents, qrels = table(self.folder, "equivalents"), table(self.folder, "qrels")
        pairs = pd.concat([qrels[qrels.relevance > 0], equivalents])[["query_id", "document_id"]]
        relevant = pairs.groupby("query_id").document_id.agg(set)
        counted = relevant[relevant.map(len) >= least]
        rows = table(self.folder, "training_rows")
        rows = rows[rows.query_id.isin(counted.index)]
        if not len(equivalents) or rows.empty:
            return None, 0
        is_false = [
            document in counted[query]
            for query, documents in zip(rows.query_id, rows.negative_ids, strict=True)
            for document in documents
        ]
        return round(100 * float(np.mean(is_false)), 3), rows.query_id.nunique()


def first_ranks(
    encoder: Any, queries: pd.DataFrame, qrels: pd.DataFrame, corpus: pd.DataFrame
) -> pd.Series:
    """Return the rank of each query's first labelled document in the whole corpus, from 1."""
    from anmi.corpus.texts import document_texts

    documents = encoder.encode(document_texts(corpus), "document")
    scores = encoder.encode(queries.text.tolist(), "query") @ documents.T
    is_labelled = np.zeros(scores.shape, bool)
    labelled = qrels[(qrels.relevance > 0) & qrels.query_id.isin(queries.query_id)]
    row = pd.Index(queries.query_id).get_indexer(pd.Index(labelled.query_id))
    is_labelled[row, pd.Index(corpus.document_id).get_indexer(pd.Index(labelled.document_id))] = (
        True
    )
    best = np.where(is_labelled, scores, -np.inf).max(axis=1, keepdims=True)
    return pd.Series(1 + (scores > best).sum(axis=1), queries.query_id)


def fingerprint(system: str) -> str:
    """Return a hash of what a system sets, which neither its name nor its description is part of."""
    dumped = recipes().get(system).model_dump(mode="json", exclude_unset=True)
    steps = [[step["name"], step["params"]] for step in dumped.get("steps", [])]
    left_out = ("description", "source", "extends", "steps")
    settings = {name: value for name, value in dumped.items() if name not in left_out}
    return str(hash_value({"steps": steps, **settings}, 8))


class Results:
    """What the finished cells of a matrix measured."""

    def __init__(self, matrix: str) -> None:
        self.matrix = matrix
        self.encoder = MATRICES[matrix][0]

    def cells(self, collection: str, system: str) -> list[Path]:
        """Return the files of a system's seeds; none where its recipe has changed since."""
        folder = WORK / self.matrix / collection / system
        print_file = folder / "fingerprint.txt"
        if not print_file.is_file() or print_file.read_text() != fingerprint(system):
            return []
        return sorted(folder.glob("seed*.parquet"))

    def values(
        self, collection: str, system: str, metric: str, bucket: str, kind: str
    ) -> pd.Series | None:
        """Return each query's mean over seeds; None for what was not run."""
        files = self.cells(collection, system)
        if not files:
            return None
        scores = pd.concat(pd.read_parquet(file) for file in files)
        scores = scores[(scores.system == kind) & (bucket in ("all", *scores.bucket.unique()))]
        scores = scores if bucket == "all" else scores[scores.bucket == bucket]
        return scores.groupby(level=0)[metric].mean()

    def row(self, claim: Claim, collection: str, bucket: str) -> dict[str, Any]:
        """Return what was measured of a claim; nulls where it was not."""
        metric, _, percent = claim.metric.partition(", ")
        is_start = claim.over == ZERO_SHOT
        over = claim.system if is_start else claim.over
        ours = self.values(collection, claim.system, metric, bucket, "trained")
        theirs = self.values(collection, over, metric, bucket, ZERO_SHOT if is_start else "trained")
        row = row_of(claim, collection, self.encoder, bucket)
        if ours is None or theirs is None or ours.empty:
            return row
        both = pd.concat([ours, theirs], axis=1).dropna()
        test = compare(*both.to_numpy().T, seed=1)
        scale = 100 / both.iloc[:, 1].mean() if percent else 1.0
        figures = {"measured": test.difference, "low": test.low, "high": test.high}
        row |= {name: round(scale * value, 5) for name, value in figures.items()}
        seeds = len(self.cells(collection, claim.system))
        levels = dict(zip(("level", "baseline"), both.mean().round(4).tolist(), strict=True))
        return row | levels | {"p": round(test.p_value, 5), "seeds": seeds, "queries": len(both)}

    def speed(self, claim: Claim, collection: str) -> dict[str, Any]:
        """Return the steps to 95 % of the last dev metric, over those of what the claim compares with."""
        row = row_of(claim, collection, self.encoder, "dev")
        steps = [self.steps(collection, system) for system in (claim.system, claim.over)]
        if not all(steps):
            return row
        ours, theirs = (float(np.mean(each)) for each in steps)
        return row | {"measured": round(ours / theirs, 3), "steps": steps, "seeds": len(steps[0])}

    def steps(self, collection: str, system: str) -> list[int]:
        """Return the steps to 95 % of the last dev metric, by seed."""
        curves = [
            json.loads(x.with_suffix(".json").read_text()) for x in self.cells(collection, system)
        ]
        return [
            next(
                step
                for step, dev in zip(*curve.values(), strict=True)
                if dev >= 0.95 * curve["dev"][-1]
            )
            for curve in curves
        ]

    def simplest(self, collection: str) -> dict[str, Any]:
        """Return nDCG@10 of BM25 with the packaged network, untrained, on the same queries."""
        claim = Claim("BM25 + network, untrained", "", "", "", METRIC)
        row = row_of(claim, collection, "minilm", "all")
        if not self.cells(collection, "bm25_top"):
            return row
        values = Mined(self.matrix, collection, "bm25_top").simplest()[METRIC]
        return row | {"level": round(float(values.mean()), 4), "queries": len(values)}

    def share(self, claim: Claim, collection: str, least: int) -> dict[str, Any]:
        """Return the share of false negatives among the chosen, where the truth is known."""
        bucket = f"{least} relevant and more" if least > 1 else "training"
        row = row_of(claim, collection, self.encoder, bucket)
        if not self.cells(collection, claim.system):
            return row
        share, queries = Mined(self.matrix, collection, claim.system).share(least)
        return row | {"measured": share, "seeds": 1, "queries": queries}


def row_of(claim: Claim, collection: str, encoder: str, bucket: str) -> dict[str, Any]:
    """Return a row of a claim without what was measured."""
    prints = [
        fingerprint(name) for name in (claim.system, claim.over) if name not in ("", ZERO_SHOT)
    ]
    return {
        "claim": claim.claim,
        "metric": claim.metric,
        "recipe": claim.system,
        "over": claim.over,
        "collection": collection,
        "encoder": encoder,
        "bucket": bucket,
        "fingerprint": "-".join(prints),
        "claimed": claim.claimed,
        **dict.fromkeys(
            (
                "measured",
                "low",
                "high",
                "p",
                "p_holm",
                "seeds",
                "queries",
                "steps",
                "level",
                "baseline",
            )
        ),
    }


def titles() -> dict[str, Any]:
    """Mine the Korean titles as the notebook does, and return the share of queries that pass."""
    data, recipe = WORK / "titles", "bm25_random_as_published"
    if not list(data.glob("**/consistency_summary.json/*/*")):
        params = f"recipe={recipe},collection={TITLES},encoder=static"
        kedro("run", "--pipelines", "mining", "--params", params, data=data, store=STORE)
    summary = json.loads(artifact(data, "consistency_summary.json").read_text(encoding="utf-8"))
    claim = Claim(
        "Queries that the consistency filter keeps (miner)", recipe, "", "32.5", "passed, %"
    )
    return row_of(claim, "ko_pairs", "none", "training") | {
        "measured": round(100 * summary["pass_rate"], 2),
        "seeds": 1,
    }


def rows() -> Iterator[dict[str, Any]]:
    """Yield a row for every claim, collection and bucket."""
    methods = Results("methods")
    for results in (Results("networks"), methods):
        for claim in CLAIMS[results.matrix]:
            for collection in COLLECTIONS:
                for bucket in ("all", "unlabelled", "new"):
                    yield results.row(claim, collection, bucket)
    for collection in COLLECTIONS:
        yield methods.simplest(collection)
    for claim in CLAIMS["speed"]:
        for collection in COLLECTIONS:
            yield Results("speed").speed(claim, collection)
    for claim in CLAIMS["shares"]:
        for collection, least in (("api_docs", 1), ("kg_webnlg", 1), ("kg_webnlg", MANY)):
            yield methods.share(claim, collection, least)
    yield titles()


def main() -> None:
    arguments = common.parser(__doc__)
    arguments.add_argument("matrices", nargs="*", choices=[*MATRICES, []])
    arguments.add_argument("--collections", default=",".join(COLLECTIONS))
    arguments.add_argument("--systems", help="only these, separated by commas")
    arguments.add_argument("--seeds", default="1,2,3")
    options = arguments.parse_args()
    for matrix in options.matrices:
        for collection in options.collections.split(","):
            for system in (
                options.systems.split(",") if options.systems else systems(CLAIMS[matrix])
            ):
                mined = Mined(matrix, collection, system)
                for seed in options.seeds.split(","):
                    mined.train(int(seed))
                    print(matrix, collection, system, seed, common.now(), flush=True)
    key_of = itemgetter("claim", "metric", "collection", "encoder", "bucket", "fingerprint")
    earlier = common.load("claims")
    before = {key_of(row): row for row in earlier["rows"] if row["measured"] is not None}
    measured, is_kept = [], False
    for row in rows():
        kept = before.get(key_of(row), {}) if row["measured"] is None else {}
        measured.append(row | kept)
        is_kept |= bool(kept)
    tested = [row for row in measured if row["p"] is not None and row["bucket"] == "all"]
    for row, p_holm in zip(tested, holm([row["p"] for row in tested]).tolist(), strict=True):
        row["p_holm"] = round(p_holm, 5)
    common.save("claims", {**about(), "rows": measured}, earlier if is_kept else None)
    fill(PAGE, "claims", page_table(measured))


def page_table(measured: list[dict[str, Any]]) -> str:
    """Return a table with a line for each claim and metric, and a cell for each collection."""
    by_claim: dict[tuple[str, str], dict[str, list[str]]] = {}
    for row in measured:
        if row["bucket"] in ("unlabelled", "new") or not row["recipe"]:
            continue  # The result has them.
        over = f"`{row['recipe']}` over `{row['over']}`" if row["over"] else f"`{row['recipe']}`"
        key = (f"{row['claim']}: {over}", f"{row['claimed']} {row['metric'].replace(', %', ' %')}")
        by_claim.setdefault(key, {}).setdefault(row["collection"], []).append(shown(row))
    lines = []
    lacking = []
    for (claim, claimed), cells in by_claim.items():
        if {NOT_MEASURED}.issuperset(itertools.chain(*cells.values())):
            lacking.append(claim.partition(":")[0])
            continue
        values = ["; ".join(cells.get(name, ["–"])) for name in COLLECTIONS]
        if "ko_pairs" in cells:
            values[0] = f"{cells['ko_pairs'][0]} (`ko_pairs`)"
        lines.append([claim, claimed, *values])
    made = markdown(["claim", "claimed", *COLLECTIONS], lines)
    names = "; ".join(dict.fromkeys(lacking))
    return f"{made}\nNot measured: {names}.\n" if names else made


def shown(row: dict[str, Any]) -> str:
    """Return a measured value with its interval, in bold where it is significant after Holm's correction."""
    if row["measured"] is None:
        return NOT_MEASURED
    digits = 4 if row["metric"] in ("mrr@10", "recall@10", "f2@10", "rank") else 1
    digits = 2 if "ratio" in row["metric"] else digits
    if row["low"] is None:
        return f"{row['measured']:.{digits}f}"
    text = f"{row['measured']:+.{digits}f} [{row['low']:+.{digits}f},{row['high']:+.{digits}f}]"
    return f"**{text}**" if row.get("p_holm", 1) < 0.05 else text


if __name__ == "__main__":
    main()
