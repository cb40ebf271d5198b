"""Dynamic negative hardening: every mix and schedule of its text, on triples and sentences about them.

Eight arms, two languages of kg_webnlg, three seeds; a cell is a file, so the script may be
interrupted. Each arm trains the same table encoder on the same rows for the same steps, and is then
asked what the text asks: how fast the validation loss falls, which entity a query is about, and
whether a false variant of a document looks like the document, also to queries in other words.

    python benchmarks/dnh.py [--encoder static] [--seeds 1,2,3] [--page]
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd

import common
from anmi.evaluation.significance import compare, holm
from common import DATA, ROOT, STORE, about, fill, kedro, markdown, mean, save, table

WORK: Final = common.WORK / "dnh"
PAGE: Final = ROOT / "docs" / "results.md"
LANGUAGES: Final = {"English": "beir_en", "Spanish": "beir_es"}
EPOCHS: Final = 8
TEMPERATURE: Final = 0.02
DEV_QUERIES: Final = 500
DEPTH: Final = 100
RANDOM: Final = "random"
FINAL_MIX: Final = {"random": 0.2, "graph": 0.5, "latent": 0.3}


class Arm(NamedTuple):
    """Final shares of the sources, and the curriculum that leads to them."""

    mix: dict[str, float]
    curriculum: Any = "none"


ARMS: Final = {
    RANDOM: Arm({"random": 1, "graph": 0, "latent": 0}),
    "random + graph": Arm({"random": 0.5, "graph": 0.5, "latent": 0}),
    "random + latent": Arm({"random": 0.5, "graph": 0, "latent": 0.5}),
    "all, no curriculum": Arm(FINAL_MIX),
    "all, linear": Arm({"random": 0, "graph": 0.625, "latent": 0.375}, "linear"),
    "all, step": Arm(FINAL_MIX, "step"),
    "all, triggered by violations": Arm(FINAL_MIX, "triggered"),
    "all, triggered by dev": Arm(FINAL_MIX, {"triggered": {"measure": "validation"}}),
}
METRICS: Final = ("accuracy", "mrr_10", "paired", "paired_paraphrased")


class Inputs:
    """What the cells of a language share: the artifacts of one mining run."""

    def __init__(self, folder: str, encoder: str) -> None:
        from anmi.corpus.knowledge import Knowledge
        from anmi.corpus.texts import document_texts

        self.data = WORK / encoder / folder
        if not (self.data / "05_model_input" / "training_rows.parquet").is_dir():
            collection = DATA / "kg_webnlg" / folder
            params = f"collection=kg:{collection},encoder={encoder},recipe=dnh_linear"
            params += ",ingestion.max_queries=3000"
            kedro("run", "--pipelines", "mining", "--params", params, data=self.data, store=STORE)
        self.corpus = table(self.data, "corpus")
        self.queries = table(self.data, "queries")
        self.qrels = table(self.data, "qrels")
        self.rows = table(self.data, "training_rows")
        self.variants = table(self.data, "variants")
        self.related = table(self.data, "related_documents")
        versions = self.data / "02_intermediate" / "knowledge"
        self.knowledge = Knowledge.load(max(versions.glob("*/knowledge")))
        self.texts = dict(zip(self.corpus.document_id, document_texts(self.corpus), strict=True))
        lines = (DATA / "kg_webnlg" / folder / "queries.jsonl").read_text(encoding="utf-8")
        queries = [json.loads(line) for line in lines.splitlines()]
        self.paraphrases = {
            query["_id"]: query["metadata"]["alt"][0]
            for query in queries
            if query.get("metadata", {}).get("alt")
        }

    def truth(self, split: str) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return queries and labels of a split whose documents no training query has."""
        training = self.queries.query_id[self.queries.split == "train"]
        trained_on = self.qrels.document_id[self.qrels.query_id.isin(training)]
        queries = self.queries[self.queries.split == split]
        labels = self.qrels[self.qrels.query_id.isin(queries.query_id)]
        labels = labels[
            ~labels.document_id.isin(trained_on) & labels.document_id.isin([*self.texts])
        ]
        return queries[queries.query_id.isin(labels.query_id)], labels


class ValidationLoss:
    """Cross-entropy of dev queries over their documents and the false variants of these.

    A document that states all facts of a query's own is left out of its sum. Lower is better; it is
    the same for all arms, whatever they train on.
    """

    def __init__(self, inputs: Inputs, settings: Any, seed: int) -> None:
        queries, labels = inputs.truth("dev")
        labels = labels.drop_duplicates("query_id").sample(
            min(DEV_QUERIES, labels.query_id.nunique()), random_state=seed
        )
        self.settings = settings
        self.queries = queries.set_index("query_id").text[labels.query_id].tolist()
        documents = pd.Index(labels.document_id.unique())
        false = inputs.variants[
            inputs.variants.document_id.isin(documents) & (inputs.variants.kind == "swap")
        ]
        self.texts = [*(inputs.texts[each] for each in documents), *false.text]
        self.own = documents.get_indexer(pd.Index(labels.document_id))
        graph = inputs.knowledge.of(documents.tolist())
        entailing = graph.entailing(self.own[:, None])
        self.is_left_out = np.zeros((len(self.own), len(self.texts)), bool)
        self.is_left_out[:, : len(documents)] = np.asarray(entailing.todense()) > 0
        self.is_left_out[np.arange(len(self.own)), self.own] = False
        # Variants of other documents state what nobody asked for.
        origin = documents.get_indexer(pd.Index(false.document_id))
        self.is_left_out[:, len(documents) :] = origin[None, :] != self.own[:, None]

    def __call__(self, model: Any) -> float:
        """Return the mean loss."""
        from scipy.special import logsumexp

        from anmi.retrieval.encoders import Encoder

        encoder = Encoder.of(model, self.settings)
        queries = encoder.embed(self.queries, "query")
        logits = queries @ encoder.embed(self.texts, "document").T / TEMPERATURE
        own = logits[np.arange(len(self.own)), self.own]
        return float(np.mean(logsumexp(np.where(self.is_left_out, -np.inf, logits), 1) - own))


def cell(arm: str, folder: str, encoder_name: str, seed: int, inputs: Inputs) -> dict[str, Any]:
    """Train an arm and measure it."""
    from anmi.evaluation.retrieval import DevQueries, dev_collection
    from anmi.pipelines.params import DenseParams
    from anmi.pipelines.training.params import TrainingParams, merged_options
    from anmi.retrieval.encoders import Encoder, place_of
    from anmi.selection.recipe import RecipeBook
    from anmi.training.mixed import Stock
    from anmi.training.trainer import train

    mix, curriculum = ARMS[arm]
    options = merged_options(
        RecipeBook(**common.recipes()).get("dnh_linear"),
        TrainingParams(
            options={"epochs": EPOCHS, "sources": {"mixed": mix}, "curriculum": curriculum}
        ),
    )
    versions = inputs.data / "03_primary" / "corpus_encoder"
    place = place_of(encoder_name, max(versions.glob("*/corpus_encoder"), default=versions))
    settings = DenseParams().of(place)
    loss = ValidationLoss(inputs, settings, seed=1)
    collection = (inputs.corpus, inputs.queries, inputs.qrels)
    dev = DevQueries(*dev_collection(*collection, 20_000, 1), settings)
    losses: list[float] = []
    ndcg: list[float] = []

    def evaluate_dev(model: Any) -> float:
        losses.append(loss(model))
        ndcg.append(float(dev.scores(model).mean()))
        return ndcg[-1]

    result = train(
        inputs.rows,
        encoder=Encoder(settings, STORE / "models").trainable(),
        options=options,
        output=None,
        evaluate_dev=evaluate_dev,
        seed=seed,
        stock=Stock.from_tables(inputs.corpus, inputs.knowledge, inputs.variants, inputs.related),
    )
    log = result.log
    steps = len(log) // EPOCHS
    queries, aucs = measured(Encoder.of(result.model, settings).embed, inputs)
    names = [f"share_{name}" for name in FINAL_MIX if f"share_{name}" in log]
    return {
        "arm": arm,
        "folder": folder,
        "encoder": encoder_name,
        "seed": seed,
        "seconds": result.summary["seconds"],
        "steps": [steps * epoch for epoch in range(EPOCHS + 1)],
        "validation_loss": [round(value, 4) for value in losses],
        "dev_ndcg_10": [round(value, 4) for value in ndcg],
        "transitions": result.summary["transitions"],
        **aucs,
        "log": log[["step", "loss", "grad_norm", *names]].round(4).to_dict("list"),
        "queries": queries.round(4).reset_index().to_dict("list"),
    }


def measured(embed: Callable[..., Any], inputs: Inputs) -> tuple[pd.DataFrame, dict[str, float]]:
    """Return the metrics of test queries, a column each, and the areas under the ROC curve."""
    from anmi.evaluation.factuality import factuality, factuality_pairs, linking, pair_similarities

    queries, labels = inputs.truth("test")
    ids = inputs.corpus.document_id.to_numpy()
    documents = embed(list(inputs.texts.values()), "document")
    scores = embed(queries.text.tolist(), "query") @ documents.T
    nearest = np.argsort(-scores, axis=1, kind="stable")[:, :DEPTH]
    run = pd.DataFrame(
        {
            "query_id": np.repeat(queries.query_id.to_numpy(), DEPTH),
            "document_id": ids[nearest.ravel()],
            "rank": np.tile(np.arange(1, DEPTH + 1), len(queries)),
        }
    )
    graph = inputs.knowledge.of(ids.tolist())
    columns = linking(run, labels, dict(zip(ids, graph.about.tolist(), strict=True)))
    reworded = queries.assign(text=queries.query_id.map(inputs.paraphrases)).dropna(subset="text")
    aucs = {}
    for name, part in (("", queries), ("_paraphrased", reworded)):
        pairs = factuality_pairs(part, labels, inputs.texts, inputs.variants, seed=1)
        pairs = pairs[pairs.kind == "swap"].reset_index(drop=True)
        own, other = pair_similarities(pairs, embed)
        auc = factuality(pairs, own, other, seed=1).auc.to_numpy(float)[0]
        aucs[f"auc{name}"] = round(float(auc), 4)
        won = pd.Series((own > other) + 0.5 * (own == other)).groupby(pairs.query_id).mean()
        columns = columns.join(won.rename(f"paired{name}"), how="outer")
    columns.index.name = "query_id"
    return columns, aucs


def rows(cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each language and arm: means over seeds, and tests against random alone."""
    groups = defaultdict(list)
    for each in cells:
        groups[each["folder"], each["arm"]].append(each)
    result = []
    for folder in LANGUAGES.values():
        by_arm = {name: groups[folder, name] for name in ARMS if (folder, name) in groups}
        scores = {
            name: pd.concat(pd.DataFrame(each["queries"]) for each in group)
            .groupby("query_id")
            .mean()
            for name, group in by_arm.items()
        }
        part = [row(folder, name, group, scores) for name, group in by_arm.items()]
        for metric in METRICS:
            tested = [each[metric] for each in part if "p" in each[metric]]
            for test, p_holm in zip(tested, holm([test["p"] for test in tested]), strict=True):
                test["p_holm"] = round(float(p_holm), 5)
        result += part
    return result


def row(
    folder: str, arm: str, group: list[dict[str, Any]], scores: dict[str, pd.DataFrame]
) -> dict[str, Any]:
    """Return what an arm measured in a language."""
    line: dict[str, Any] = {"collection": f"kg_webnlg/{folder}", "arm": arm, "seeds": len(group)}
    line |= {name: group[0][name] for name in ("encoder", "steps")}
    for name in ("seconds", "validation_loss", "dev_ndcg_10", "auc", "auc_paraphrased"):
        line[name] = np.mean([each[name] for each in group], axis=0).round(4).tolist()
    line["spikes"] = round(float(np.mean([spikes(each) for each in group])), 2)
    for metric in METRICS:
        values = scores[arm][metric].dropna()
        line[metric] = mean(values, "mean")
        if arm != RANDOM and RANDOM in scores:
            both = pd.concat([values, scores[RANDOM][metric]], axis=1).dropna()
            test = compare(*both.to_numpy().T, seed=1)
            line[metric] |= {"over_random": round(test.difference, 4), "p": round(test.p_value, 5)}
    return line


def spikes(each: dict[str, Any], window: int = 20) -> float:
    """Return the gradient norm after a change of the mix over that before it, the largest of a run."""
    norm = pd.Series(each["log"]["grad_norm"])
    changes = [change["step"] for change in each["transitions"]]
    ratios = [
        norm[step : step + window].mean() / norm[max(step - window, 0) : step].mean()
        for step in changes
        if window <= step < len(norm)
    ]
    return float(max(ratios, default=1.0))


def page_table(lines: list[dict[str, Any]]) -> str:
    """Return the table of docs/results.md for Spanish: significant differences from random alone are bold."""
    head = [
        "negatives, schedule",
        "validation loss: first epoch; last",
        "steps to the last loss of random",
        "entity: accuracy; MRR@10",
        "AUC; paraphrased",
        "variants below; paraphrased",
        "gradient after / before a change",
    ]
    table_rows = []
    spanish = [line for line in lines if line["collection"].endswith(LANGUAGES["Spanish"])]
    last = next(line["validation_loss"][-1] for line in spanish if line["arm"] == RANDOM)
    for line in spanish:
        curve = zip(line["steps"], line["validation_loss"], strict=True)
        steps = next((step for step, loss in curve if loss <= last), None)
        accuracy, mrr, paired, reworded = (shown(line[metric]) for metric in METRICS)
        cells = [
            line["arm"],
            f"{line['validation_loss'][1]:.2f}; {line['validation_loss'][-1]:.2f}",
        ]
        cells += ["–" if steps is None else str(steps), f"{accuracy}; {mrr}"]
        cells += [f"{line['auc']:.3f}; {line['auc_paraphrased']:.3f}", f"{paired}; {reworded}"]
        table_rows.append([*cells, "–" if line["spikes"] == 1 else f"{line['spikes']:.1f}"])
    return markdown(head, table_rows)


def shown(metric: dict[str, Any]) -> str:
    """Return a mean, bold where it differs significantly from that of random negatives alone."""
    text = f"{metric['mean']:.3f}"
    return f"**{text}**" if metric.get("p_holm", 1) < 0.05 else text


def main() -> None:
    arguments = common.parser(__doc__)
    arguments.add_argument("--encoder", default="static")
    arguments.add_argument("--seeds", default="1,2,3")
    arguments.add_argument("--page", action="store_true", help="only make the table of the page")
    options = arguments.parse_args()
    if not options.page:
        cells = []
        for seed in options.seeds.split(","):
            for folder in LANGUAGES.values():
                inputs = Inputs(folder, options.encoder)
                for arm in ARMS:
                    name = arm.replace(" ", "_").replace(",", "").replace("+", "and")
                    file = WORK / options.encoder / folder / "cells" / f"{name}-{seed}.json"
                    if not file.is_file():
                        file.parent.mkdir(parents=True, exist_ok=True)
                        result = cell(arm, folder, options.encoder, int(seed), inputs)
                        file.write_text(json.dumps(result), encoding="utf-8")
                        print(
                            folder,
                            arm,
                            seed,
                            result["validation_loss"][-1],
                            result["auc"],
                            flush=True,
                        )
                    cells.append(json.loads(file.read_text(encoding="utf-8")))
        logs = [
            {"arm": each["arm"], "collection": each["folder"], "transitions": each["transitions"]}
            | {name: values[::4] for name, values in each["log"].items()}
            for each in cells
            if each["seed"] == 1 and each["folder"] == "beir_en"
        ]
        save("dnh", {**about(), "rows": rows(cells), "logs": logs})
    fill(PAGE, "dnh.py", page_table(common.load("dnh")["rows"]))


if __name__ == "__main__":
    main()
