"""What every recipe and every judge makes of planted truth, before anything is trained.

Recipes are measured by how many of the negatives they choose are in truth relevant (the
*false-negative rate*), by how hard these negatives are (*gap* to the positive under one encoder)
and by how many rows they fill (*coverage*); a low rate is worth something only beside the other
two. Judges are measured by the area under the ROC curve.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

import numpy as np
import pandas as pd
import scipy
from numpy.typing import NDArray

from anmi import seeds
from anmi.candidates import OPEN, Candidates, CandidateShards
from anmi.corpus.texts import normalised
from anmi.corpus.types import empty
from anmi.errors import AnmiError
from anmi.evaluation.significance import share, wilson
from anmi.ragged import Bools, Float32s, Float64s, Int64s
from anmi.seeds import choose
from anmi.selection.recipe import RecipeBook, Runner

Kinds = Literal["auto", "hidden", "equivalents"]
Hide = Literal["half", "all_but_one"]
HIDDEN: Final = "hidden"
EQUIVALENT: Final = "equivalent"
_PAIR: Final = ["query_id", "document_id"]
_NEEDS: Final = {
    "hidden": "training queries with two positives of different text",
    "equivalents": (
        "equivalents (queries of equal text as in api_docs, or documents whose metadata hold"
        " triples)"
    ),
}


@dataclass(frozen=True)
class Planting:
    """The audit version of a collection.

    Attributes
    ----------
    queries
        Training queries that have planted truth, in the columns of the collection's queries.
    qrels
        What the mining may know of them, in the columns of the collection's qrels.
    truth
        ``query_id, document_id, kind``, kind ``hidden`` or ``equivalent``: relevant, unlabelled,
        and allowed as candidates. Holds every document of a planted text.
    """

    queries: pd.DataFrame
    qrels: pd.DataFrame
    truth: pd.DataFrame


class NothingToPlant(AnmiError):
    """No query has a second positive to hide, and no equivalent is known."""


def plant(
    queries: pd.DataFrame,
    qrels: pd.DataFrame,
    equivalents: pd.DataFrame,
    copies: Mapping[str, str],
    *,
    kinds: Kinds = "auto",
    hide: Hide = "half",
    limit: int = 0,
    seed: int,
) -> Planting:
    """Hide positives and gather equivalents of the training queries.

    Documents of the same text are one document here: a text that is known to be relevant is never
    planted (the mining would exclude it anyway), and every copy of a planted text is planted.

    Parameters
    ----------
    queries
        ``query_id, text, split``.
    qrels
        ``query_id, document_id, relevance``; every label above 0 counts.
    equivalents
        ``query_id, document_id``; may be empty.
    copies
        For each document that is a copy, the first one of the same text.
    kinds
        ``hidden``, ``equivalents``, or ``auto`` for both as far as the collection offers them.
    hide
        ``half`` of a query's positives, rounded down, or ``all_but_one``, which leaves a judge no
        query with several to learn from.
    limit
        Most queries kept, chosen by a hash of the text; 0 keeps all.
    seed
        Keys which positives stay known and which queries are kept.

    Raises
    ------
    NothingToPlant
        The collection offers none of the kinds asked for; says what it would need.

    Examples
    --------
    >>> queries = pd.DataFrame({"query_id": ["q"], "text": ["?"], "split": ["train"]})
    >>> qrels = pd.DataFrame({"query_id": ["q", "q"], "document_id": ["a", "b"], "relevance": [1, 1]})
    >>> none = pd.DataFrame({"query_id": [], "document_id": []})
    >>> planted = plant(queries, qrels, none, {}, seed=1)
    >>> sorted([*planted.qrels.document_id, *planted.truth.document_id])
    ['a', 'b']
    """
    train = queries[queries["split"] == "train"]
    known = qrels[(qrels["relevance"] > 0) & qrels["query_id"].isin(train["query_id"])]
    first = pd.Series(dict(copies), dtype=object)
    parts = [empty(*_PAIR, "kind")]
    if kinds in ("auto", "hidden"):
        hidden = _hidden(known, _text(known["document_id"], first), hide, seed)
        parts.append(known.loc[hidden, _PAIR].assign(kind=HIDDEN))
        known = known[~hidden]
    if kinds in ("auto", "equivalents"):
        offered = equivalents[equivalents["query_id"].isin(known["query_id"])]
        parts.append(offered[_PAIR].assign(kind=EQUIVALENT))
    truth = _unknown(pd.concat(parts, ignore_index=True), known, first)
    if truth.empty:
        lacking = " and no ".join(need for kind, need in _NEEDS.items() if kinds in ("auto", kind))
        raise NothingToPlant(
            f"the collection has no {lacking}, so there is no truth to plant (audit.kinds:"
            f" {kinds}); audit one that has such, or add labels"
        )
    asked = train[train["query_id"].isin(truth["query_id"])]
    if limit and limit < len(asked):
        asked = asked[choose([normalised(text) for text in asked["text"]], limit, seed)]
    truth = truth[truth["query_id"].isin(asked["query_id"])]
    known = known[known["query_id"].isin(asked["query_id"])].reset_index(drop=True)
    return Planting(asked.reset_index(drop=True), known, _with_copies(truth, first))


def without_source(corpus: pd.DataFrame) -> pd.DataFrame:
    """Return the corpus without ``metadata.triples``, of which equivalents are made.

    A judge that compares triples would be measured against itself.

    Examples
    --------
    >>> corpus = pd.DataFrame({"document_id": ["a"], "metadata": ['{"triples": [["x", "is", "y"]], "size": 1}']})
    >>> without_source(corpus).metadata.tolist()
    ['{"size": 1}']
    """

    def stripped(text: str) -> str:
        if '"triples"' not in text:
            return text
        known = json.loads(text)
        return json.dumps(
            {key: value for key, value in known.items() if key != "triples"}, ensure_ascii=False
        )

    return corpus.assign(metadata=[stripped(text) for text in corpus["metadata"]])


def _text(documents: pd.Series, first: pd.Series) -> NDArray[np.object_]:
    """Return for every document the first one that has its text."""
    return documents.map(first).fillna(documents).to_numpy(dtype=object)


def _hidden(known: pd.DataFrame, text: NDArray[np.object_], hide: Hide, seed: int) -> Bools:
    """Return which labels are hidden: of every query's texts half or all but one, by the query's own stream."""
    pairs = pd.DataFrame({"query_id": known["query_id"].to_numpy(), "text": text})
    texts = pairs.drop_duplicates().sort_values(["query_id", "text"], ignore_index=True)
    texts = texts[texts["query_id"].duplicated(keep=False)]
    # Which place each text has in its query's own random order; those of the first places stay.
    count = texts.groupby("query_id").size()
    orders = [
        seeds.stream(seed, "audit/known", str(query)).permutation(n) for query, n in count.items()
    ]
    place = np.concatenate([*orders, np.zeros(0, np.int64)])
    stay = (
        texts["query_id"]
        .map((count + 1) // 2 if hide == "half" else count.clip(upper=1))
        .to_numpy()
    )
    gone = pd.MultiIndex.from_frame(texts[place >= stay])
    return pd.MultiIndex.from_frame(pairs).isin(gone)


def _unknown(truth: pd.DataFrame, known: pd.DataFrame, first: pd.Series) -> pd.DataFrame:
    """Leave out what has the text of a known positive, and what was hidden already."""
    labelled = pd.MultiIndex.from_arrays([known["query_id"], _text(known["document_id"], first)])
    text = _text(truth["document_id"], first)
    found = pd.MultiIndex.from_arrays([truth["query_id"], text]).isin(labelled)
    return truth[~found].drop_duplicates(_PAIR).reset_index(drop=True)


def _with_copies(truth: pd.DataFrame, first: pd.Series) -> pd.DataFrame:
    """Add the other documents of each planted text, under the same kind."""
    copies = pd.DataFrame(
        {"text": [*first.to_numpy(), *first.unique()], "copy": [*first.index, *first.unique()]}
    )
    merged = truth.assign(text=_text(truth["document_id"], first)).merge(copies, on="text")
    added = merged[["query_id", "copy", "kind"]].rename(columns={"copy": "document_id"})
    return (
        pd.concat([truth, added], ignore_index=True).drop_duplicates(_PAIR).reset_index(drop=True)
    )


class PlantedTruth:
    """Tells which candidates of a block are planted.

    Parameters
    ----------
    truth
        ``query_id, document_id``.
    document_ids
        By document index.
    """

    def __init__(self, truth: pd.DataFrame, document_ids: pd.Series) -> None:
        names = truth["query_id"].unique()
        self._row = pd.Series(np.arange(len(names)), index=names)
        self._documents = len(document_ids)
        position = pd.Series(np.arange(len(document_ids)), index=document_ids.to_numpy())
        rows = self._row.loc[truth["query_id"]].to_numpy()
        self._keys = np.unique(
            rows * self._documents + position.loc[truth["document_id"]].to_numpy()
        )

    def __len__(self) -> int:
        return len(self._keys)

    def keys(self, block: Candidates) -> Int64s:
        """Return one number per (query, candidate), -1 where the query has no planted truth, [Q, M]."""
        rows = self._row.reindex(block.query_ids).fillna(-1).to_numpy(np.int64)[:, None]
        return np.where((rows >= 0) & block.filled, rows * self._documents + block.documents, -1)

    def mask(self, block: Candidates) -> Bools:
        """Return True where a candidate is planted, [Q, M]."""
        return np.isin(self.keys(block), self._keys)


log = logging.getLogger(__name__)
SHOWN_LOST: Final = 20
# Ranks order like the scores they come from, errors and errors of gaps are no judgments.
_NO_JUDGMENT: Final = ("fused", "_rank", "_se")


@dataclass
class _Point:
    """One recipe, and what it chose."""

    recipe: str
    runner: Runner
    setting: str = ""
    threshold: float = math.nan
    rows: int = 0
    full: int = 0
    gap: float = 0.0
    # Of each row, how many negatives it has and how many of them are planted.
    negatives: list[Int64s] = field(default_factory=list)
    false_negatives: list[Int64s] = field(default_factory=list)
    failed: str = ""

    def add(self, block: Candidates, planted: Bools, gaps: Float32s) -> None:
        """Run the recipe on a block and count."""
        chosen = self.runner.apply(block)
        taken = chosen.negatives & (chosen.query_verdict == OPEN)[:, None]
        found = taken.sum(axis=1)
        self.rows += len(block)
        self.full += int((found >= self.runner.recipe.negatives).sum())
        self.negatives.append(found)
        self.false_negatives.append((taken & planted).sum(axis=1))
        self.gap += float(gaps[taken].sum(dtype=np.float64))


def audit_recipes(
    shards: CandidateShards,
    planted: PlantedTruth,
    recipes: RecipeBook,
    *,
    seed: int,
    column: str = "dense",
) -> pd.DataFrame:
    """Run every recipe that chooses negatives, and count.

    The main threshold is that of the recipe's last step that has one (``StepType.thresholds``).

    Parameters
    ----------
    shards
        Rated candidates, one row per (query, known positive), with the query columns that recipes
        read.
    planted
        What of it is in truth relevant.
    recipes
        All recipes.
    seed
        Of the run.
    column
        Similarity by which hardness is measured; the same for all recipes. Where nobody measured it
        the gap is NaN.

    Returns
    -------
    pandas.DataFrame
        A row per recipe: ``recipe, setting`` (``step.parameter``, empty without one),
        ``threshold``, ``false_negative_rate`` (share of the chosen negatives that are planted, NaN
        where none was chosen) with its interval ``false_negative_rate_low,
        false_negative_rate_high`` and the ``design_effect`` from
        :func:`anmi.evaluation.significance.share`, ``false_negatives`` (their number), ``gap``
        (mean of positive minus negative), ``coverage`` (share of rows with all the negatives asked
        for), ``queries_lost`` (queries without a single negative), ``lost`` (the first 20 of them),
        ``negatives``, and ``failed``: why a recipe cannot be run on this collection. Of a recipe
        with a ``pool`` it is about the pool, from which training draws.

    Raises
    ------
    AnmiError
        There is no recipe that chooses negatives, or none that runs.
    """
    points = _points(shards, recipes, seed)
    queries: list[NDArray[np.str_]] = []
    for block in shards:
        queries.append(block.query_ids)
        mask = planted.mask(block)
        # Recipes that read nothing of an encoder are mined without one.
        unknown = np.full(block.documents.shape, np.nan, np.float32)
        gaps = (
            block.positive_columns[column][:, :1] - block.columns[column]
            if column in block.columns
            else unknown
        )
        for point in points:
            if not point.failed:
                _guarded(point, lambda p, b=block, m=mask, g=gaps: p.add(b, m, g))
    rows = np.concatenate(queries) if queries else np.zeros(0, np.str_)
    names, cluster = np.unique(rows, return_inverse=True)
    table = pd.DataFrame([_row(point, names, cluster, seed) for point in points])
    if table.empty or (table["failed"] != "").all():
        reasons = (
            "; ".join(table["failed"]) if len(table) else "no recipe of the book chooses negatives"
        )
        raise AnmiError(f"the audit has no recipe to measure: {reasons}")
    return table


def _points(shards: CandidateShards, recipes: RecipeBook, seed: int) -> list[_Point]:
    """Return every recipe that chooses negatives, fitted."""
    points = []
    for name in recipes.names():
        recipe = recipes.get(name)
        if not recipe.negatives or not recipe.steps:
            continue
        base = _Point(name, Runner(recipe, seed))
        _guarded(base, lambda point: point.runner.fit(shards))
        if (place := recipe.main_threshold) is not None:
            step = recipe.steps[place]
            own = getattr(step.params, str(step.threshold))
            base.setting = f"{step.name}.{step.threshold}"
            base.threshold = math.nan if own is None or isinstance(own, str) else float(own)
        points.append(base)
    return points


def _guarded(point: _Point, act: Any) -> None:
    """Note why a recipe cannot run here instead of failing the audit of all others."""
    try:
        act(point)
    except AnmiError as error:
        log.warning("recipe %s cannot be audited: %s", point.recipe, error)
        point.failed = str(error)


def _row(point: _Point, queries: NDArray[np.str_], cluster: Int64s, seed: int) -> dict[str, Any]:
    if point.failed:
        # What it counted before it failed would be the figures of a part.
        point = replace(point, rows=0, full=0, gap=0.0, negatives=[], false_negatives=[])
    nothing = [np.zeros(len(cluster), np.int64)]
    negatives, false_negatives = (
        np.bincount(cluster, np.concatenate(parts or nothing), len(queries))
        for parts in (point.negatives, point.false_negatives)
    )
    found = share(false_negatives, negatives, seed=seed)
    lost = queries[negatives == 0]
    return {
        "recipe": point.recipe,
        "setting": point.setting,
        "threshold": point.threshold,
        "false_negative_rate": found.value,
        "false_negative_rate_low": found.low,
        "false_negative_rate_high": found.high,
        "design_effect": found.design_effect,
        "false_negatives": found.count,
        "gap": point.gap / found.total if found.total else math.nan,
        "coverage": point.full / point.rows if point.rows else 0.0,
        "queries_lost": len(lost),
        "lost": lost[:SHOWN_LOST].tolist(),
        "negatives": found.total,
        "failed": point.failed,
    }


def audit_judges(
    shards: Iterable[Candidates], planted: PlantedTruth, *, depth: int = 50
) -> pd.DataFrame:
    """Measure how well each judgment tells planted documents from the other candidates near the top.

    Only the dense top ``depth`` of a query counts: among all candidates most are easy for every
    judge.

    Returns a row per column of judgments, best first: ``judge, auc, auc_low, auc_high`` from
    :func:`clustered_auc` by query, ``planted, others`` (candidates it judged) and ``missing``
    (those it did not, which are left out). Larger is taken for more relevant. ``auc`` is NaN where
    either kind is absent.
    """
    labels = [np.zeros(0, bool)]
    queries = [np.zeros(0, np.str_)]
    values: dict[str, list[Float32s]] = {}
    for block in shards:
        near = block.filled & (block.columns["dense_rank"] <= depth)
        labels.append(planted.mask(block)[near])
        queries.append(np.broadcast_to(block.query_ids[:, None], near.shape)[near])
        for name in (name for name in block.columns if not name.endswith(_NO_JUDGMENT)):
            values.setdefault(name, []).append(block.columns[name][near])
    truth = np.concatenate(labels)
    query = np.unique(np.concatenate(queries), return_inverse=True)[1]
    rows = []
    for name, parts in values.items():
        scores = np.concatenate(parts)
        known = np.isfinite(scores)
        auc, low, high = clustered_auc(scores[known], truth[known], query[known])
        rows.append(
            {
                "judge": name,
                "auc": auc,
                "auc_low": low,
                "auc_high": high,
                "planted": int(truth[known].sum()),
                "others": int((~truth[known]).sum()),
                "missing": int((~known).sum()),
            }
        )
    columns = ["judge", "auc", "auc_low", "auc_high", "planted", "others", "missing"]
    return pd.DataFrame(rows, columns=columns).sort_values(
        "auc", ascending=False, kind="stable", ignore_index=True
    )


def clustered_auc(
    scores: NDArray[Any],
    truth: Bools,
    cluster: NDArray[np.integer],
    confidence: float = 0.95,
) -> tuple[float, float, float]:
    """Return the area under the ROC curve with an interval that allows for correlation inside clusters.

    Obuchowski's variance (Biometrics 53, 1997), which is DeLong's summed over clusters, on the
    logit scale so that the interval stays in [0, 1]. Where the variance is 0 (perfect separation)
    it is the Wilson interval of the AUC as a share of as many trials as there are clusters with a
    positive.

    Parameters
    ----------
    scores
        Larger for the positives, hopefully; finite, [n].
    truth
        True for the positives, [n].
    cluster
        Number of the cluster each belongs to, [n].
    confidence
        Of the interval.

    Returns
    -------
    tuple of float
        AUC, low, high; NaN where there are no positives or no others, an interval of [0, 1] with
        one cluster.

    Examples
    --------
    >>> auc, low, high = clustered_auc(
    ...     np.array([3.0, 1.0, 2.0, 0.0]), np.array([True, False, True, False]), np.array([0, 0, 1, 1]))
    >>> auc
    1.0
    """
    positive = scores[truth].astype(np.float64)
    other = scores[~truth].astype(np.float64)
    if not len(positive) or not len(other):
        return math.nan, math.nan, math.nan
    of_positive = _placement(positive, other)
    of_other = 1 - _placement(other, positive)
    auc = float(of_positive.mean())
    size = int(cluster.max()) + 1
    # Per cluster: how far its members' placements lie from what the AUC predicts.
    left = np.bincount(cluster[truth], of_positive - auc, size) / len(positive)
    right = np.bincount(cluster[~truth], of_other - auc, size) / len(other)
    with_positive = len(np.unique(cluster[truth]))
    with_other = len(np.unique(cluster[~truth]))
    both = len(np.unique(cluster))
    if min(with_positive, with_other) < 2:
        return auc, 0.0, 1.0
    variance = (
        with_positive / (with_positive - 1) * (left**2).sum()
        + with_other / (with_other - 1) * (right**2).sum()
        + 2 * both / (both - 1) * (left * right).sum()
    )
    if variance <= 0 or auc in (0.0, 1.0):
        return auc, *wilson(auc, with_positive, confidence)
    expit = scipy.special.expit
    logit = scipy.special.logit
    half = scipy.stats.norm.ppf(0.5 + confidence / 2) * math.sqrt(variance) / (auc * (1 - auc))
    return auc, float(expit(logit(auc) - half)), float(expit(logit(auc) + half))


def _placement(values: Float64s, among: Float64s) -> Float64s:
    """Return the share of ``among`` that lies below each value, ties counting half."""
    ordered = np.sort(among)
    below, up_to = (np.searchsorted(ordered, values, side) for side in ("left", "right"))
    return (below + up_to) / (2 * len(among))


def found_share(shards: Iterable[Candidates], planted: PlantedTruth) -> float:
    """Return the share of the planted (query, document) pairs that are candidates; the others are no negatives."""
    found = [np.unique(planted.keys(block)[planted.mask(block)]) for block in shards]
    return len(np.unique(np.concatenate(found))) / len(planted) if found and len(planted) else 0.0


def summarise(
    recipes: pd.DataFrame, judges: pd.DataFrame, truth: pd.DataFrame, found: float
) -> dict[str, Any]:
    """Return the audit as nested numbers, ready for JSON and for tracking; ``found`` is from :func:`found_share`."""
    own = recipes[recipes["failed"] == ""].set_index("recipe")
    rates = [f"false_negative_rate{end}" for end in ("", "_low", "_high")]
    numbers = [*rates, "design_effect", "gap", "coverage", "queries_lost", "negatives"]
    return {
        "audit": {
            "queries": int(truth["query_id"].nunique()),
            "planted": {
                str(kind): int(count) for kind, count in truth.groupby("kind").size().items()
            },
            "found": found,
            "recipes": own[numbers].to_dict("index"),
            "judges": judges.set_index("judge")[["auc", "auc_low", "auc_high"]].to_dict("index"),
        },
        "lost": {str(name): list(ids) for name, ids in own["lost"].items() if len(ids)},
        "failed": dict(
            recipes.loc[recipes["failed"] != "", ["recipe", "failed"]].to_numpy().tolist()
        ),
    }


def check_false_negatives(recipes: pd.DataFrame, recipe: str, limit: float) -> None:
    """Fail when a recipe, as it is, lets more false negatives through than allowed.

    The estimate decides, not a bound of its interval: with the lower bound an audit of fewer
    queries would pass more easily, with the upper one a small one could not pass at all.

    Raises
    ------
    AnmiError
        It lets more through, or how many is not known.
    """
    own = recipes[recipes["recipe"] == recipe]
    if own.empty:
        raise AnmiError(
            f'audit.max_false_negative_rate: recipe "{recipe}" chooses no negatives before'
            " training, so an audit cannot know which of them are false; name another as"
            " audit.recipe"
        )
    row = own.iloc[0]
    if math.isnan(row["false_negative_rate"]):
        reason = row["failed"] or "it left no negative for any query"
        raise AnmiError(
            f'audit.max_false_negative_rate: the false-negative rate of recipe "{recipe}" is not'
            f" known: {reason}"
        )
    if row["false_negative_rate"] > limit:
        interval = (
            f"95 % interval {row['false_negative_rate_low']:.2%} to"
            f" {row['false_negative_rate_high']:.2%}"
        )
        raise AnmiError(
            f'recipe "{recipe}" has {row["false_negative_rate"]:.2%} false negatives'
            f" ({row['false_negatives']} of "
            f"{row['negatives']}, {interval}), more than audit.max_false_negative_rate allows"
            f" ({limit:.2%}): tighten "
            f"{row['setting'] or 'it'}, or choose another recipe"
        )
