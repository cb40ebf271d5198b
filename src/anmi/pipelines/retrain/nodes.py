"""These nodes compare a challenger with the champion and promote it by rule."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path
from typing import Any, Final

import pandas as pd

from anmi.candidates import CandidateShards
from anmi.datasets import model_registry
from anmi.errors import AnmiError
from anmi.evaluation.generalisation import LABELLED, PSEUDO
from anmi.evaluation.promotion import FAILED, KEPT, PROMOTED, FalseNegativeRate, decide
from anmi.evaluation.significance import share_of_pairs
from anmi.fingerprint import hash_value
from anmi.pipelines.evaluation.nodes import score_runs
from anmi.pipelines.evaluation.search import Split, queries_of_split
from anmi.pipelines.params import DenseParams, EvaluationParams, RetrainParams, model_name
from anmi.pipelines.training.params import TrainingParams, merged_options
from anmi.retrieval.encoders import Encoder, fingerprint, load_encoder, short_name
from anmi.retrieval.kinds import is_sparse, prompts_of
from anmi.search import HybridSearch
from anmi.search.folder import companion_of
from anmi.search.hybrid import HYBRID
from anmi.search.parts import TRAINED
from anmi.selection.recipe import RecipeBook
from anmi.store import Store

log = logging.getLogger(__name__)

_SYSTEM: Final = "champion"
_METRIC: Final = "ndcg@10"
_NOT_PLANTED: Final = (
    "no training query has two relevant documents, and no equivalents are known, so planting"
    " measures no false negatives: labels alone decide"
)
_OWN_PROMPTS: Final = {"prompt_query": None, "prompt_document": None}
# What the champion is fused by as long as it is in use.
_OF_HYBRID: Final = ("method", "weights", "depth")


def profile_training_data(
    *,
    queries: pd.DataFrame,
    corpus: pd.DataFrame,
    qrels: pd.DataFrame,
    selection: CandidateShards,
    selection_summary: dict[str, Any],
    encoder_info: dict[str, Any],
    info: dict[str, Any],
) -> dict[str, Any]:
    """Describe the training data, with which a later version of the collection will be compared."""
    from anmi.evaluation.drift import profile

    prompts = encoder_info.get("prompts") or {}
    made_with = {
        "collection": info["collection"],
        "recipe": selection_summary["recipe"],
        "encoder": encoder_info["encoder"],
        "encoder fingerprint": encoder_info["fingerprint"],
        **{f"{role} prompt": prompt for role, prompt in prompts.items() if prompt},
    }
    negatives = selection_summary["negatives_wanted"]
    return profile(queries, corpus, qrels, selection, negatives=negatives, made_with=made_with)


def measure_drift(
    training_profile: dict[str, Any], champion_profile: dict[str, Any] | None
) -> dict[str, Any]:
    """Compare with what the champion was trained on; without a champion the result says so."""
    from anmi.evaluation.drift import drift, in_words

    measured_drift = drift(champion_profile, training_profile)
    for line in in_words(measured_drift):
        log.info("%s", line)
    return measured_drift


def report_retraining(
    report: str, registration: dict[str, Any], drift: dict[str, Any], recipes: pd.DataFrame
) -> str:
    """Return the run's report with the decision, what the audit found, and how the data changed."""
    from anmi.evaluation.drift import in_words
    from anmi.report.console import AUDITED, audited
    from anmi.report.html import Section, with_sections

    decision = (
        f"{registration['decision'].capitalize()}: version {registration['version']} of"
        f" {registration['model']}."
    )
    sections = [
        Section("Promotion", [decision, *registration["reasons"]]),
        Section("False negatives by planted truth", [], AUDITED, audited(recipes)),
        Section("Drift of the training data", in_words(drift)),
    ]
    return with_sections(report, sections)


def evaluate_champion(
    *,
    corpus: pd.DataFrame,
    queries: pd.DataFrame,
    qrels: pd.DataFrame,
    collection: str,
    params: RetrainParams,
    evaluation: EvaluationParams,
    dense: DenseParams,
    registry: model_registry.ModelRegistry,
    store: Store,
) -> tuple[dict[str, Any], dict[str, Any], pd.DataFrame]:
    """Fetch the champion, check its files, and let it rank the corpus as the challenger will.

    Returns what is known of it, the profile of what it was trained on, and its run; all empty where
    there is none.
    """
    model = model_name(params, collection)
    rolled_back = {
        entry.tags["fingerprint"]: entry.version
        for entry in registry.entries(model)
        if model_registry.ROLLED_BACK in entry.tags and "fingerprint" in entry.tags
    }
    about: dict[str, Any] = {"model": model, "version": None, "rolled_back": rolled_back}
    champion = registry.at(model, model_registry.CHAMPION)
    if champion is None:
        log.info('"%s" has no champion yet', model)
        columns = ["query_id", "document_id", "score", "rank", "system", "retriever"]
        return about, {}, pd.DataFrame(columns=columns)
    split = queries_of_split(corpus, queries, qrels, None, evaluation.split)
    if split.queries.empty:
        raise AnmiError(
            f'the collection has no "{evaluation.split}" queries with a relevant document, so'
            " champion and challenger cannot be compared; give it some"
        )
    with tempfile.TemporaryDirectory(prefix="anmi-champion-") as room:
        fetched = registry.fetch(champion, Path(room))
        measured = fetched / model_registry.MEASURED
        folder = measured if measured.is_dir() else fetched
        # Prompts are its own or those it is served with, whatever today's challenger has.
        noted = model_registry.read_beside(folder, model_registry.SERVING)
        serving = {"dimensions": None} | _OWN_PROMPTS | noted
        hybrid = serving.pop(HYBRID)
        depth = max(*evaluation.cutoffs, hybrid["depth"])
        served = dense.model_copy(update=serving)
        runs = [_run_of(folder, served, split, depth, store)]
        # Companions are asked as they are saved.
        as_saved = served.model_copy(update=_OWN_PROMPTS)
        companions = companion_of(folder)
        runs += [_run_of(companion, as_saved, split, depth, store) for companion in companions]
        profile = model_registry.read_beside(fetched, model_registry.PROFILE)
    about |= {"version": champion.version, "created": champion.created}
    about |= {"tags": champion.tags, HYBRID: hybrid}
    return about, profile, pd.concat(runs, ignore_index=True)


def _run_of(
    folder: Path, settings: DenseParams, split: Split, depth: int, store: Store
) -> pd.DataFrame:
    """Return what a registered retriever ranks for the queries of a split."""
    from anmi.evaluation.retrieval import ranked

    # Its vectors are not kept, like the challenger's: a champion a night would fill the store.
    weights = str(folder / model_registry.WEIGHTS)
    encoder = Encoder(settings.of(weights), folder, store, only_known=True)
    run = ranked(encoder, split.queries, split.qrels, split.corpus, depth, _SYSTEM)
    retriever = "sparse" if is_sparse(encoder.model) else "dense"
    return run.assign(system=_SYSTEM, retriever=retriever)


def score_champion(
    *,
    runs: pd.DataFrame,
    champion: dict[str, Any],
    part_runs: pd.DataFrame,
    corpus: pd.DataFrame,
    queries: pd.DataFrame,
    qrels: pd.DataFrame,
    params: RetrainParams,
    evaluation: EvaluationParams,
) -> pd.DataFrame:
    """Return every metric of every held-out query; empty where there is no champion.

    The champion is measured as it is deployed: with its companion and the parts that need no
    training, as the challenger has them, by its own weights; or alone where the rule is about the
    encoder.
    """
    from anmi.search.fit import fused_run

    if runs.empty:
        return pd.DataFrame(columns=["query_id", "system", _METRIC])
    if params.rule.system == HYBRID:
        settings = champion[HYBRID]
        spread = runs.retriever.map(settings["spreads"])
        trained_runs = runs.assign(part=runs.retriever, spread=spread)
        untrained_runs = part_runs[~part_runs.part.isin(TRAINED)]
        every_run = pd.concat([trained_runs, untrained_runs], ignore_index=True)
        if lacking := settings["weights"].keys() - set(every_run.part):
            log.warning(
                "The champion is measured without its parts %s, which this run does not have",
                ", ".join(sorted(lacking)),
            )
        depth = max(evaluation.cutoffs)
        runs = fused_run(every_run, corpus, queries, qrels, settings, depth)
        runs = runs.assign(system=_SYSTEM)
    else:
        runs = runs[runs["retriever"] == runs["retriever"].iloc[0]]
    return score_runs(runs, corpus, queries, qrels, pseudo_queries=None, params=evaluation)


def decide_promotion(
    *,
    champion: dict[str, Any],
    champion_metrics: pd.DataFrame,
    query_metrics: pd.DataFrame,
    query_buckets: pd.DataFrame,
    audit_recipes: pd.DataFrame,
    drawn_negatives: pd.DataFrame,
    equivalents: pd.DataFrame,
    qrels: pd.DataFrame,
    measured_model: Path,
    recipe: str,
    recipes: RecipeBook,
    training: TrainingParams,
    params: RetrainParams,
    evaluation: EvaluationParams,
    seed: int,
) -> dict[str, Any]:
    """Apply the rule; a challenger with the weights of a version that was rolled back stays out."""
    if _METRIC not in query_metrics:
        raise AnmiError(
            f"{_METRIC} decides about promotion and was not measured: put 10 among"
            " evaluation.cutoffs"
        )
    system = HYBRID if params.rule.system == HYBRID else recipe
    query_buckets = query_buckets[query_buckets.bucket != PSEUDO]
    is_compared = query_metrics.query_id.isin(query_buckets.query_id)
    is_challenger = (query_metrics.system == system) & is_compared
    challenger_scores = query_metrics[is_challenger].set_index("query_id")[_METRIC]
    champion_scores = None
    if champion["version"] is not None:
        champion_scores = champion_metrics.set_index("query_id")[_METRIC]
    options = merged_options(recipes.get(recipe), training)
    rate: FalseNegativeRate | str = "the recipe chooses no negatives, so none can be relevant"
    if options.sources.kind != "mined":
        # An audit sees what a recipe chooses, and here training drew from the corpus itself.
        rate = rate_of_drawn(drawn_negatives, equivalents, qrels, seed)
    elif recipes.get(recipe).negatives and options.negatives != 0:
        rate = _NOT_PLANTED if audit_recipes.empty else rate_of(audit_recipes, recipe)
    decided = decide(
        challenger_scores,
        champion_scores,
        rate,
        params.rule,
        seed=seed,
        resamples=evaluation.resamples,
        unlabelled=query_buckets.query_id[query_buckets.bucket != LABELLED].tolist(),
    )
    decision = decided.decision
    reasons = list(decided.reasons)
    weights = fingerprint_of(measured_model)
    if weights in champion["rolled_back"]:
        decision = KEPT
        version = champion["rolled_back"][weights]
        reasons.append(
            f"{FAILED}: the challenger has the very weights of version {version}, which was rolled"
            " back"
        )
    for reason in reasons:
        log.info(reason)
    return {
        "decision": decision,
        "reasons": reasons,
        "champion": champion["version"],
        "fingerprint": weights,
        "rule": params.rule.model_dump(),
        "promotion": {"promoted": float(decision == PROMOTED), **decided.figures},
    }


def fingerprint_of(model: Path) -> str:
    """Return the fingerprint of a trained model, with that of its companion where it has one."""
    folders = [model, *companion_of(model)]
    prints = [fingerprint(load_encoder(str(folder), folder.parent)) for folder in folders]
    return prints[0] if len(prints) == 1 else hash_value(prints)


def rate_of(audit_recipes: pd.DataFrame, recipe: str) -> FalseNegativeRate:
    """Return what the audit found of a recipe as it is."""
    rows = audit_recipes[audit_recipes["recipe"] == recipe].to_dict("records")
    if not rows:
        return _no_rate(f'the audit has no row of recipe "{recipe}"')
    row = rows[0]
    rate, low, high = (float(row[f"false_negative_rate{end}"]) for end in ("", "_low", "_high"))
    counts = int(row["false_negatives"]), int(row["negatives"])
    return FalseNegativeRate(rate, low, high, *counts, str(row["failed"] or ""))


def _no_rate(reason: str) -> FalseNegativeRate:
    return FalseNegativeRate(float("nan"), 0.0, 1.0, 0, 0, reason)


def rate_of_drawn(
    drawn_negatives: pd.DataFrame, equivalents: pd.DataFrame, qrels: pd.DataFrame, seed: int
) -> FalseNegativeRate:
    """Return how many of the negatives that training drew are relevant.

    Counted are queries of which equivalents are known, which are relevant without a label.
    """
    counted = drawn_negatives[drawn_negatives["query_id"].isin(equivalents["query_id"])]
    if counted.empty:
        return _no_rate(
            "training drew its negatives from the whole corpus, and of none of its queries is it"
            " known which documents are relevant without a label"
        )
    pair = ["query_id", "document_id"]
    relevant = pd.concat([equivalents[pair], qrels.loc[qrels["relevance"] > 0, pair]])
    share = share_of_pairs(counted, relevant, seed=seed)
    return FalseNegativeRate(
        share.value, share.low, share.high, share.count, share.total, of="drawn"
    )


def register_challenger(
    *,
    trained_model: Path,
    measured_model: Path,
    promotion: dict[str, Any],
    champion: dict[str, Any],
    training_profile: dict[str, Any],
    info: dict[str, Any],
    encoder: str,
    recipe: str,
    dense: DenseParams,
    registry: model_registry.ModelRegistry,
    search_index: HybridSearch,
    measured_search: HybridSearch,
) -> dict[str, Any]:
    """Make the challenger a version of the registered model and, if it was promoted, its champion.

    Its companion and the weights of the hybrid go with it, and the model that was measured where
    that is another; the index of the documents is no part of a model.
    """
    model = champion["model"]
    before = registry.at(model, model_registry.CHAMPION)
    decision, reasons = _decision_now(promotion, before)
    compared = promotion["champion"]
    figures = promotion["promotion"]
    tags = {
        "run_id": trained_model.parent.name,
        "collection": info["collection"],
        "recipe": recipe,
        "encoder": short_name(encoder),
        "fingerprint": promotion["fingerprint"],
        "ndcg": f"{figures['challenger']:.4f}",
        "decision": decision,
        "reasons": "\n".join(reasons),
        "compared_with": "" if compared is None else compared,
    }
    with tempfile.TemporaryDirectory(prefix="anmi-challenger-") as room:
        folder = Path(room) / "model"
        write_model(trained_model, folder, search_index, dense, training_profile)
        if fingerprint_of(trained_model) != promotion["fingerprint"]:
            measured_folder = folder / model_registry.MEASURED
            write_model(measured_model, measured_folder, measured_search, dense, None)
        entry = registry.register(model, folder, tags)
    champion_before = before.version if before else None
    champion_now = champion_before
    if decision == PROMOTED:
        registry.set_champion(entry, before)
        champion_now = entry.version
    log.info(
        '%s: version %s of "%s"; its champion is version %s',
        decision,
        entry.version,
        model,
        champion_now,
    )
    return {
        "decision": decision,
        "reasons": reasons,
        "model": model,
        "version": entry.version,
        "champion": champion_now,
        "champion_before": champion_before,
        "figures": figures,
        "tags": entry.tags,
    }


def _decision_now(
    promotion: dict[str, Any], before: model_registry.Entry | None
) -> tuple[str, list[str]]:
    """Return the decision and its reasons, which a change of champion since overrules."""
    compared = promotion["champion"]
    if promotion["decision"] != PROMOTED or (before and before.version) == compared:
        return promotion["decision"], list(promotion["reasons"])
    reason = (
        f"{FAILED}: the champion was {'none' if compared is None else f'version {compared}'} when"
        f" it was compared and is {before or 'none'} now, so the comparison says nothing of it"
    )
    return KEPT, [*promotion["reasons"], reason]


def write_model(
    model: Path,
    folder: Path,
    search: HybridSearch,
    dense: DenseParams,
    training_profile: dict[str, Any] | None,
) -> None:
    """Write a trained model and its companion as they are registered, with how they are asked."""
    encoder = load_encoder(str(model), model.parent)
    serving = dense.model_dump(include={"max_length", "precision", "dimensions"})
    serving |= {f"prompt_{role}": prompt for role, prompt in prompts_of(encoder).items()}
    # Those of other parts are the challenger's.
    spreads = {name: part.spread for name, part in search.parts.items() if name in TRAINED}
    serving[HYBRID] = {name: search.settings[name] for name in _OF_HYBRID}
    serving[HYBRID]["spreads"] = spreads
    model_registry.model_folder(encoder, folder, serving, training_profile)
    for companion in companion_of(model):
        # A model of its own, so that MLflow serves it as well.
        beside = load_encoder(str(companion), companion.parent)
        model_registry.model_folder(beside, folder / companion.name, {}, None)
