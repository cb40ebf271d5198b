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
from dataclasses import dataclass, field
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
from anmi.ragged import Bools, Float32s, Int64s
from anmi.seeds import choose
from anmi.selection.recipe import RecipeBook, Runner

Kinds = Literal["auto", "hidden", "equivalents"]
Hide = Literal["half", "all_but_one"]
HIDDEN: Final = "hidden"
EQUIVALENT: Final = "equivalent"
_PAIR: Final = ["query_id", "document_id"]
_NEEDS: Final = {
    "hidden": "training queries with two positives of different text",
    "equivalents": "equivalents (queries of equal text as in api_docs, or triples in metadata)",
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
    >>> qrels = pd.DataFrame({"query_id": "q", "document_id": ["a", "b"], "relevance": 1})
    >>> none = pd.DataFrame({"query_id": [], "document_id": []})
    >>> planted = plant(queries, qrels, none, {}, seed=1)
    >>> sorted([*planted.qrels.document_id, *planted.truth.document_id])
    ['a', 'b']
    """
    train = queries[queries["split"] == "train"]
    is_relevant = qrels["relevance"] > 0
    is_training = qrels["query_id"].isin(train["query_id"])
    labels = qrels[is_relevant & is_training]
    first_copies = pd.Series(dict(copies), dtype=object)
    parts = [empty(*_PAIR, "kind")]
    if kinds in ("auto", "hidden"):
        is_hidden = _hidden(labels, _first_of_text(labels["document_id"], first_copies), hide, seed)
        parts.append(labels.loc[is_hidden, _PAIR].assign(kind=HIDDEN))
        labels = labels[~is_hidden]
    if kinds in ("auto", "equivalents"):
        offered = equivalents[equivalents["query_id"].isin(labels["query_id"])]
        parts.append(offered[_PAIR].assign(kind=EQUIVALENT))
    truth = _unlabelled(pd.concat(parts, ignore_index=True), labels, first_copies)
    if truth.empty:
        needs = [need for kind, need in _NEEDS.items() if kinds in ("auto", kind)]
        lacking = " and no ".join(needs)
        raise NothingToPlant(
            f"the collection has no {lacking}, so there is no truth to plant (audit.kinds:"
            f" {kinds}); audit one that has such, or add labels"
        )
    train = train[train["query_id"].isin(truth["query_id"])]
    if limit and limit < len(train):
        texts = [normalised(text) for text in train["text"]]
        train = train[choose(texts, limit, seed)]
    truth = truth[truth["query_id"].isin(train["query_id"])]
    truth = _with_copies(truth, first_copies)
    labels = labels[labels["query_id"].isin(train["query_id"])]
    labels = labels.reset_index(drop=True)
    return Planting(train.reset_index(drop=True), labels, truth)


def without_source(corpus: pd.DataFrame) -> pd.DataFrame:
    """Return the corpus without ``metadata.triples``, of which equivalents are made.

    A judge that compares triples would be measured against itself.

    Examples
    --------
    >>> metadata = ['{"triples": [["x", "is", "y"]], "size": 1}']
    >>> without_source(pd.DataFrame({"metadata": metadata})).metadata.tolist()
    ['{"size": 1}']
    """

    def stripped(text: str) -> str:
        if '"triples"' not in text:
            return text
        metadata = json.loads(text)
        metadata.pop("triples", None)
        return json.dumps(metadata, ensure_ascii=False)

    return corpus.assign(metadata=corpus["metadata"].map(stripped))


def _first_of_text(documents: pd.Series, first_copies: pd.Series) -> NDArray[np.object_]:
    """Return for every document the first one that has its text."""
    return documents.map(first_copies).fillna(documents).to_numpy(dtype=object)


def _hidden(
    labels: pd.DataFrame,
    text: NDArray[np.object_],
    hide: Hide,
    seed: int,
) -> Bools:
    """Return which labels are hidden: half of every query's texts or all but one.

    Each query has its own random stream.
    """
    pairs = pd.DataFrame({"query_id": labels["query_id"].to_numpy(), "text": text})
    texts = pairs.drop_duplicates()
    texts = texts.sort_values(["query_id", "text"], ignore_index=True)
    texts = texts[texts["query_id"].duplicated(keep=False)]
    counts = texts.groupby("query_id").size()
    places = [np.zeros(0, np.int64)]
    for query_id, count in counts.items():
        stream = seeds.stream(seed, "audit/known", str(query_id))
        places.append(stream.permutation(count))
    known_counts = (counts + 1) // 2 if hide == "half" else counts.clip(upper=1)
    known_of_texts = texts["query_id"].map(known_counts).to_numpy()
    is_hidden = np.concatenate(places) >= known_of_texts
    hidden = pd.MultiIndex.from_frame(texts[is_hidden])
    return pd.MultiIndex.from_frame(pairs).isin(hidden)


def _unlabelled(
    truth: pd.DataFrame,
    labels: pd.DataFrame,
    first_copies: pd.Series,
) -> pd.DataFrame:
    """Leave out what has the text of a known positive, and what was hidden already."""
    label_texts = _first_of_text(labels["document_id"], first_copies)
    truth_texts = _first_of_text(truth["document_id"], first_copies)
    labelled = pd.MultiIndex.from_arrays([labels["query_id"], label_texts])
    is_labelled = pd.MultiIndex.from_arrays([truth["query_id"], truth_texts]).isin(labelled)
    return truth[~is_labelled].drop_duplicates(_PAIR, ignore_index=True)


def _with_copies(truth: pd.DataFrame, first_copies: pd.Series) -> pd.DataFrame:
    """Add the other documents of each planted text, under the same kind."""
    firsts = first_copies.unique()
    copies = pd.DataFrame(
        {
            "text": [*first_copies, *firsts],
            "copy": [*first_copies.index, *firsts],
        }
    )
    texts = truth.assign(text=_first_of_text(truth["document_id"], first_copies))
    added = texts.merge(copies, on="text")[["query_id", "copy", "kind"]]
    united = pd.concat([truth, added.rename(columns={"copy": "document_id"})])
    return united.drop_duplicates(_PAIR, ignore_index=True)


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
        self._query_ids = pd.Index(truth["query_id"].unique())
        self._documents = len(document_ids)
        queries = self._query_ids.get_indexer(pd.Index(truth["query_id"]))
        rows = np.arange(self._documents)
        numbers = pd.Series(rows, index=document_ids.to_numpy())
        documents = numbers.loc[truth["document_id"]].to_numpy()
        self._keys = np.unique(queries * self._documents + documents)

    def __len__(self) -> int:
        return len(self._keys)

    def keys(self, block: Candidates) -> Int64s:
        """Return one number per (query, candidate), -1 of queries without planted truth, [Q, M]."""
        queries = self._query_ids.get_indexer(pd.Index(block.query_ids))[:, None]
        keys = queries.astype(np.int64) * self._documents + block.documents
        return np.where((queries >= 0) & block.filled, keys, -1)

    def mask(self, block: Candidates) -> Bools:
        """Return True where a candidate is planted, [Q, M]."""
        return np.isin(self.keys(block), self._keys)


log = logging.getLogger(__name__)
SHOWN_LOST: Final = 20
_SIMILARITY: Final = "dense"
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

    def fit(self, shards: CandidateShards) -> None:
        """Fit the recipe, or note why it cannot run here."""
        try:
            self.runner.fit(shards)
        except AnmiError as error:
            self._fail(error)

    def add(self, block: Candidates, planted: Bools, gaps: Float32s) -> None:
        """Run the recipe on a block and count, or note why it cannot run here."""
        try:
            selected = self.runner.apply(block)
        except AnmiError as error:
            self._fail(error)
            return
        is_negative = selected.negatives & (selected.query_verdict == OPEN)[:, None]
        negatives = is_negative.sum(axis=1)
        self.rows += len(block)
        self.full += int((negatives >= self.runner.recipe.negatives).sum())
        self.negatives.append(negatives)
        self.false_negatives.append((is_negative & planted).sum(axis=1))
        self.gap += float(gaps[is_negative].sum(dtype=np.float64))

    def _fail(self, error: AnmiError) -> None:
        """Forget what was counted, which would be the figures of a part."""
        log.warning("recipe %s cannot be audited: %s", self.recipe, error)
        self.failed = str(error)
        self.rows = 0
        self.full = 0
        self.gap = 0.0
        self.negatives.clear()
        self.false_negatives.clear()


def audit_recipes(
    shards: CandidateShards,
    planted: PlantedTruth,
    recipes: RecipeBook,
    *,
    seed: int,
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

    Returns
    -------
    pandas.DataFrame
        A row per recipe: ``recipe, setting`` (``step.parameter``, empty without one),
        ``threshold``, ``false_negative_rate`` (share of the chosen negatives that are planted, NaN
        where none was chosen) with its interval ``false_negative_rate_low,
        false_negative_rate_high`` and the ``design_effect`` from
        :func:`anmi.evaluation.significance.share`, ``false_negatives`` (their number), ``gap``
        (mean of positive minus negative by ``dense``; NaN where nobody measured it), ``coverage``
        (share of rows with all the negatives asked for), ``queries_lost`` (queries without a single
        negative), ``lost`` (the first 20 of them), ``negatives``, and ``failed``: why a
        recipe cannot be run on this collection. Of a recipe with a ``pool`` it is about the pool,
        from which training draws.

    Raises
    ------
    AnmiError
        There is no recipe that chooses negatives, or none that runs.
    """
    points = _points(shards, recipes, seed)
    query_ids = [np.zeros(0, np.str_)]
    for block in shards:
        query_ids.append(block.query_ids)
        is_planted = planted.mask(block)
        # Recipes that read nothing of an encoder are mined without one.
        gaps = np.full(block.documents.shape, np.nan, np.float32)
        if _SIMILARITY in block.columns:
            gaps = block.positive_columns[_SIMILARITY][:, :1] - block.columns[_SIMILARITY]
        for point in points:
            if not point.failed:
                point.add(block, is_planted, gaps)
    queries, query = np.unique(np.concatenate(query_ids), return_inverse=True)
    table = pd.DataFrame([_row(point, queries, query, seed) for point in points])
    if all(point.failed for point in points):
        reasons = [point.failed for point in points] or ["no recipe of the book chooses negatives"]
        raise AnmiError(f"the audit has no recipe to measure: {'; '.join(reasons)}")
    return table


def _points(shards: CandidateShards, recipes: RecipeBook, seed: int) -> list[_Point]:
    """Return every recipe that chooses negatives, fitted."""
    points = []
    for name in recipes.names():
        recipe = recipes.get(name)
        if not recipe.negatives or not recipe.steps:
            continue
        point = _Point(name, Runner(recipe, seed))
        point.fit(shards)
        if (step := recipe.main_step) is not None:
            threshold = getattr(step.params, str(step.threshold))
            point.setting = f"{step.name}.{step.threshold}"
            if isinstance(threshold, int | float):
                point.threshold = float(threshold)
        points.append(point)
    return points


def _row(
    point: _Point,
    queries: NDArray[np.str_],
    query: Int64s,
    seed: int,
) -> dict[str, Any]:
    """Return the figures of a recipe; ``query`` says which of the Q queries each row is of, [R]."""
    unknown = [np.zeros(len(query), np.int64)]
    negatives = np.concatenate(point.negatives or unknown)
    false_negatives = np.concatenate(point.false_negatives or unknown)
    negatives_by_query = np.bincount(query, negatives, len(queries))
    false_by_query = np.bincount(query, false_negatives, len(queries))
    rate = share(false_by_query, negatives_by_query, seed=seed)
    lost = queries[negatives_by_query == 0]
    return {
        "recipe": point.recipe,
        "setting": point.setting,
        "threshold": point.threshold,
        "false_negative_rate": rate.value,
        "false_negative_rate_low": rate.low,
        "false_negative_rate_high": rate.high,
        "design_effect": rate.design_effect,
        "false_negatives": rate.count,
        "gap": point.gap / rate.total if rate.total else math.nan,
        "coverage": point.full / point.rows if point.rows else 0.0,
        "queries_lost": len(lost),
        "lost": lost[:SHOWN_LOST].tolist(),
        "negatives": rate.total,
        "failed": point.failed,
    }


def audit_judges(
    shards: Iterable[Candidates],
    planted: PlantedTruth,
    *,
    depth: int = 50,
) -> pd.DataFrame:
    """Measure how well each judgment tells planted documents from other candidates near the top.

    Only the dense top ``depth`` of a query counts: among all candidates most are easy for every
    judge.

    Returns a row per column of judgments, best first: ``judge, auc, auc_low, auc_high`` from
    :func:`clustered_auc` by query, ``planted, others`` (candidates it judged) and ``missing``
    (those it did not, which are left out). Larger is taken for more relevant. ``auc`` is NaN where
    either kind is absent.
    """
    labels = [np.zeros(0, bool)]
    query_ids = [np.zeros(0, np.str_)]
    judgments: dict[str, list[Float32s]] = {}
    for block in shards:
        is_near = block.columns["dense_rank"] <= depth
        row, slot = np.nonzero(block.filled & is_near)
        labels.append(planted.mask(block)[row, slot])
        query_ids.append(block.query_ids[row])
        for judge, values in block.columns.items():
            if not judge.endswith(_NO_JUDGMENT):
                judgments.setdefault(judge, []).append(values[row, slot])
    truth = np.concatenate(labels)
    query = np.unique(np.concatenate(query_ids), return_inverse=True)[1]
    rows = []
    for judge, parts in judgments.items():
        scores = np.concatenate(parts)
        judged = np.isfinite(scores)
        area = clustered_auc(scores[judged], truth[judged], query[judged])
        counts = (truth[judged].sum(), (~truth[judged]).sum(), (~judged).sum())
        rows.append((judge, *area, *map(int, counts)))
    columns = ["judge", "auc", "auc_low", "auc_high", "planted", "others", "missing"]
    table = pd.DataFrame(rows, columns=columns)
    return table.sort_values("auc", ascending=False, kind="stable", ignore_index=True)


def clustered_auc(
    scores: NDArray[Any],
    truth: Bools,
    cluster: NDArray[np.integer],
    confidence: float = 0.95,
) -> tuple[float, float, float]:
    """Return the area under the ROC curve with an interval that allows for correlated clusters.

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
    >>> truth = np.array([True, False, True, False])
    >>> clustered_auc(np.array([3.0, 1.0, 2.0, 0.0]), truth, np.array([0, 0, 1, 1]))[0]
    1.0
    """
    if truth.all() or not truth.any():
        return math.nan, math.nan, math.nan
    ranks = scipy.stats.rankdata(scores)
    positive_ranks = scipy.stats.rankdata(scores[truth])
    negative_ranks = scipy.stats.rankdata(scores[~truth])
    # The share of the other kind that lies below each score, ties counting half.
    of_positive = (ranks[truth] - positive_ranks) / len(negative_ranks)
    of_negative = 1 - (ranks[~truth] - negative_ranks) / len(positive_ranks)
    auc = float(of_positive.mean())
    size = int(cluster.max()) + 1
    # Per cluster: how far its members' placements lie from what the AUC predicts.
    left = np.bincount(cluster[truth], of_positive - auc, size) / len(of_positive)
    right = np.bincount(cluster[~truth], of_negative - auc, size) / len(of_negative)
    with_positive = len(np.unique(cluster[truth]))
    with_negative = len(np.unique(cluster[~truth]))
    clusters = len(np.unique(cluster))
    if min(with_positive, with_negative) < 2:
        return auc, 0.0, 1.0
    variance = (
        with_positive / (with_positive - 1) * (left**2).sum()
        + with_negative / (with_negative - 1) * (right**2).sum()
        + 2 * clusters / (clusters - 1) * (left * right).sum()
    )
    if variance <= 0 or auc in (0.0, 1.0):
        return auc, *wilson(auc, with_positive, confidence)
    logit = scipy.special.logit(auc)
    z = scipy.stats.norm.ppf(0.5 + confidence / 2)
    half = z * math.sqrt(variance) / (auc * (1 - auc))
    low, high = scipy.special.expit([logit - half, logit + half]).tolist()
    return auc, low, high


def found_share(shards: Iterable[Candidates], planted: PlantedTruth) -> float:
    """Return the share of the planted (query, document) pairs that are candidates."""
    keys = [np.zeros(0, np.int64)]
    for block in shards:
        block_keys = planted.keys(block)[planted.mask(block)]
        keys.append(np.unique(block_keys))
    reached = np.unique(np.concatenate(keys))
    return len(reached) / len(planted) if len(planted) else 0.0


def summarise(
    recipes: pd.DataFrame,
    judges: pd.DataFrame,
    truth: pd.DataFrame,
    candidate_share: float,
) -> dict[str, Any]:
    """Return the audit as nested numbers, ready for JSON and for tracking.

    ``candidate_share`` is from :func:`found_share`.
    """
    has_failed = recipes["failed"] != ""
    by_recipe = recipes[~has_failed].set_index("recipe")
    rates = [f"false_negative_rate{bound}" for bound in ("", "_low", "_high")]
    numbers = [*rates, "design_effect", "gap", "coverage", "queries_lost", "negatives"]
    lost = by_recipe["lost"][by_recipe["queries_lost"] > 0]
    return {
        "audit": {
            "queries": int(truth["query_id"].nunique()),
            "planted": truth.groupby("kind").size().to_dict(),
            "found": candidate_share,
            "recipes": by_recipe[numbers].to_dict("index"),
            "judges": judges.set_index("judge")[["auc", "auc_low", "auc_high"]].to_dict("index"),
        },
        "lost": lost.map(list).to_dict(),
        "failed": recipes[has_failed].set_index("recipe")["failed"].to_dict(),
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
    rows = recipes[recipes["recipe"] == recipe].to_dict("records")
    if not rows:
        raise AnmiError(
            f'audit.max_false_negative_rate: recipe "{recipe}" chooses no negatives before'
            " training, so an audit cannot know which of them are false; name another as"
            " audit.recipe"
        )
    rate = rows[0]["false_negative_rate"]
    if math.isnan(rate):
        reason = rows[0]["failed"] or "it left no negative for any query"
        raise AnmiError(
            f'audit.max_false_negative_rate: the false-negative rate of recipe "{recipe}" is not'
            f" known: {reason}"
        )
    if rate > limit:
        count = "{false_negatives} of {negatives}".format_map(rows[0])
        interval = "{false_negative_rate_low:.2%} to {false_negative_rate_high:.2%}"
        raise AnmiError(
            f'recipe "{recipe}" has {rate:.2%} false negatives ({count}, 95 % interval'
            f" {interval.format_map(rows[0])}), more than audit.max_false_negative_rate allows"
            f" ({limit:.2%}): tighten {rows[0]['setting'] or 'it'}, or choose another recipe"
        )
