"""What results say: names and numbers as text, and the sentences that sum them up."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pandas as pd

from anmi.corpus.types import RUN_ENDINGS
from anmi.evaluation.generalisation import ALL, BUCKETS, FEW, NEW, PSEUDO, UNLABELLED

BM25: Final = "bm25"
ZERO_SHOT: Final = "zero_shot"
HYBRID: Final = "hybrid"
METRIC: Final = "ndcg@10"
HEADLINE_METRICS: Final = ("ndcg@10", "mrr@10", "recall@10", "recall@100")
_SPELLED: Final = {"ndcg": "nDCG", "mrr": "MRR", "map": "MAP", "f2": "F2"}
# Rows of a funnel that are no step's.
_COUNTS: Final = ("total", "undecided", "negative", "complete")
# Systems that need no training.
_BASELINES: Final = {
    BM25: "BM25",
    ZERO_SHOT: "zero-shot",
    "corpus": "corpus's own encoder",
    "network": "network, untrained",
    "bm25_and_network": "BM25 + network, untrained",
}


def bucket_counts(results: pd.DataFrame) -> dict[str, int]:
    """Return the number of queries of each bucket that has some, in the order of the tables."""
    if "bucket" not in results:
        return {}
    count = results.drop_duplicates("bucket").set_index("bucket").queries
    return {name: int(count[name]) for name in BUCKETS if name in count.index}


def bucket_name(name: str, count: int) -> str:
    """Write a bucket with its number of queries, and whether these are too few to conclude from.

    Examples
    --------
    >>> bucket_name("unlabelled", 104), bucket_name("new", 7)
    ('unlabelled (104)', 'new (7, too few)')
    """
    return f"{name} ({count:,}{', too few' if count < FEW else ''})"


def judge_entries(
    cross_encoder: Mapping[str, Any], fused_judge: Mapping[str, Any] | None = None
) -> dict[str, Mapping[str, Any]]:
    """Return the ``judges`` of a report from what the judging stages wrote.

    A ``cross_encoder`` without a reliability, as when nothing was judged, is left out. Under
    ``judges`` the fused judge names others; one of the name ``cross_encoder`` replaces that above.

    Examples
    --------
    >>> curve = {"bins": [], "expected_calibration_error": 0.0}
    >>> calibration = [{"slope": 1.0, "intercept": 0.0}] * 3
    >>> found = judge_entries({"reliability": curve, "calibration": calibration})
    >>> found["cross_encoder"]["method"]
    'label shift, cross-fitted over 3 folds'
    """
    judges: dict[str, Mapping[str, Any]] = {}
    folds = len(cross_encoder.get("calibration") or [])
    if cross_encoder.get("reliability"):
        judges["cross_encoder"] = {
            "auc": cross_encoder.get("auc_positive_against_candidates"),
            "reliability": cross_encoder["reliability"],
            "method": f"label shift, cross-fitted over {folds} folds"
            if folds
            else "none: σ(logit)",
        }
    return judges | dict((fused_judge or {}).get("judges") or {})


def is_step(row: Mapping[str, Any]) -> bool:
    """Whether a row of a funnel tells what a step took out."""
    return row["kind"] not in _COUNTS


def step_name(row: Mapping[str, Any]) -> str:
    """Return how a row of a funnel is written for readers.

    Examples
    --------
    >>> step_name({"step": "max_ratio", "kind": "rejected"})
    'rejected: max_ratio'
    >>> step_name({"step": "uncertain", "kind": "uncertain"})
    'uncertain'
    """
    return (
        str(row["step"])
        if not is_step(row) or row["kind"] == row["step"]
        else f"{row['kind']}: {row['step']}"
    )


def percent(count: int, total: int) -> str:
    r"""Write a share.

    Examples
    --------
    >>> percent(1, 8), percent(0, 0)
    ('12.5\xa0%', '–')
    """
    return f"{100 * count / total:.1f}\u00a0%" if total else "–"


def funnel_rows(funnel: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Return what became of the candidates as cells: step, rule, candidates, share, queries."""
    total = next((row["candidates"] for row in funnel if row["kind"] == "total"), 0)
    return [
        (
            step_name(row),
            str(row.get("rule") or ""),
            f"{row['candidates']:,}",
            percent(row["candidates"], total),
            f"{row['queries']:,}",
        )
        for row in funnel
        if row["candidates"] or row["queries"]
    ]


def origin_rows(origins: Mapping[str, Mapping[str, int]]) -> list[tuple[str, ...]]:
    r"""Return where negatives came from as cells: ``source`` or ``tier``, name, number, share.

    A negative counts once by source and once by tier. A single tier says nothing.

    Examples
    --------
    >>> origin_rows({"sources": {"bm25+dense": 3}, "tiers": {"window": 3}})
    [('source', 'bm25 + dense', '3', '100.0\xa0%')]
    """
    kinds = {"source": origins.get("sources", {}), "tier": origins.get("tiers", {})}
    return [
        (kind, name.replace("+", " + "), f"{count:,}", percent(count, sum(counts.values())))
        for kind, counts in kinds.items()
        if kind == "source" or len(counts) > 1
        for name, count in counts.items()
    ]


def systems(results: pd.DataFrame) -> list[str]:
    """Return the systems of the results: baselines first, then as they appear, the hybrid last."""
    recipes = list(dict.fromkeys(results["recipe"])) if "recipe" in results else []
    trained = [name for name in recipes if name not in (*_BASELINES, HYBRID)]
    return [b for b in _BASELINES if b in recipes] + trained + [HYBRID] * (HYBRID in recipes)


def system_name(recipe: str) -> str:
    """Return how a system is written for readers."""
    return _BASELINES.get(recipe, recipe)


def metric_name(metric: str) -> str:
    """Return how a metric is written for readers.

    Examples
    --------
    >>> metric_name("ndcg@10"), metric_name("recall@100")
    ('nDCG@10', 'Recall@100')
    """
    name, at, k = metric.partition("@")
    return f"{_SPELLED.get(name, name.capitalize())}{at}{k}"


def of_bucket(table: pd.DataFrame, bucket: str) -> pd.DataFrame:
    """Return the rows of a bucket of queries; without buckets every row is about all queries."""
    if "bucket" in table:
        return table[table["bucket"] == bucket]
    return table if bucket == ALL else table[:0]


def lookup(
    results: pd.DataFrame, recipe: str, metric: str, bucket: str = ALL
) -> Mapping[str, float] | None:
    """Return ``value, low, high`` of one system and metric in a bucket of queries, or None."""
    results = of_bucket(results, bucket)
    if not len(results):
        return None
    return _last(
        results[(results["recipe"] == recipe) & (results["metric"] == metric)],
        ["value", "low", "high"],
    )


def difference(
    comparisons: pd.DataFrame,
    system: str,
    metric: str = "ndcg@10",
    bucket: str = ALL,
    baseline: str = ZERO_SHOT,
) -> Mapping[str, float] | None:
    """Return ``difference, low, high, p_value`` of two systems; None for too few queries."""
    comparisons = of_bucket(comparisons, bucket)
    if not len(comparisons) or ("queries" in comparisons and comparisons["queries"].max() < FEW):
        return None
    is_of_system = (comparisons["system"] == system) & (comparisons["metric"] == metric)
    rows = comparisons[is_of_system & (comparisons["baseline"] == baseline)]
    return _last(rows, ["difference", "low", "high", "p_value"])


def _last(rows: pd.DataFrame, columns: Sequence[str]) -> Mapping[str, float] | None:
    # JSON writes an end that an interval lacks as null.
    return (
        {column: float(pd.to_numeric(rows[column].iloc[-1])) for column in columns}
        if len(rows)
        else None
    )


def signed(value: float) -> str:
    """Write a difference with its sign, to three decimals, without a negative zero.

    Examples
    --------
    >>> signed(0.0214), signed(-0.0001), signed(-0.02)
    ('+0.021', '0.000', '−0.020')
    """
    text = f"{abs(value):.3f}"
    return text if float(text) == 0 else f"+{text}" if value > 0 else f"−{text}"


def between(
    low: float | None,
    high: float | None,
    write: Callable[[float], str] = "{:.3f}".format,
    joint: str = " to ",
) -> str:
    """Write an interval; of a single query there is none.

    Examples
    --------
    >>> between(0.25, 0.5), between(-0.1, 0.1, signed), between(float("nan"), float("nan"))
    ('0.250 to 0.500', '−0.100 to +0.100', 'no interval')
    """
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
        return "no interval"
    return f"{write(low)}{joint}{write(high)}"


def p_value(value: float) -> str:
    """Write a p-value.

    Examples
    --------
    >>> p_value(0.0312), p_value(0.00002)
    ('p = 0.031', 'p < 0.001')
    """
    return "p < 0.001" if value < 0.001 else f"p = {value:.3f}"


_OF: Final = {
    UNLABELLED: "on documents without a training label",
    NEW: "on new documents",
    PSEUDO: "on pseudo-queries made of new documents",
}


def where(collection: str, recipe: str, run: str, date: str) -> str:
    """Say in one line of which run something is.

    Examples
    --------
    >>> where("docs:notes/*.md", "anmi", "2026-01-01T00.00.00.000Z", "2026-01-01T00:00:00+00:00")
    'docs:notes/*.md · recipe anmi · run 2026-01-01T00.00.00.000Z · 2026-01-01 00:00 UTC'
    """
    when = f"{date[:16].replace('T', ' ')} UTC" if date.endswith("+00:00") else date
    return " · ".join(
        filter(None, (collection, recipe and f"recipe {recipe}", run and f"run {run}", when))
    )


def pseudo_query_notice(test_queries: str | None) -> str:
    """Say where nobody labelled the test queries, or fewer than 20; nothing for ``labels``.

    Examples
    --------
    >>> pseudo_query_notice("labels"), pseudo_query_notice("pseudo_queries")[:41]
    ('', 'No test query has a label: pseudo-queries')
    """
    if test_queries == "labels_and_pseudo_queries":
        return (
            f"Fewer than {FEW} test queries have a label: pseudo-queries made of new documents are "
            "measured beside them, as `pseudo`, which is weaker evidence than labels."
        )
    if test_queries != "pseudo_queries":
        return ""
    return (
        "No test query has a label: pseudo-queries made of new documents replace them, "
        "which is weaker evidence than labels."
    )


def copies_notice(results: pd.DataFrame) -> str:
    """Say what the main metric is where copies count by themselves; empty without such copies."""
    values = []
    for system in systems(results):
        once = lookup(results, system, METRIC)
        plain = lookup(results, system, f"plain_{METRIC}")
        if once and plain:
            figures = f"{once['value']:.3f} ({plain['value']:.3f})"
            values.append(f"{system_name(system)} {figures}")
    if not values:
        return ""
    return (
        "Documents of one text count once; in brackets as BEIR counts them, each by itself:"
        f" {metric_name(METRIC)} of {', '.join(values)}."
    )


def training_notice(unchanged: str | None) -> str:
    """Say why training left the encoder as it was; empty where it did not.

    Examples
    --------
    >>> training_notice(None)
    ''
    """
    if not unchanged:
        return ""
    return (
        f"Training changed nothing: {unchanged}. What is measured and searched as trained is the"
        " encoder as it was before."
    )


def notices(results: Mapping[str, Any], rows: pd.DataFrame) -> list[str]:
    """Return what a reader of the ``rows`` of results must know, a sentence or two each."""
    sentences = [
        pseudo_query_notice(results.get("test_queries")),
        training_notice(results.get("unchanged")),
        *(f"{warning}." for warning in results.get("warnings") or ()),
        results.get("final"),
        copies_notice(rows),
    ]
    return [sentence for sentence in sentences if sentence]


def verdict(results: pd.DataFrame, comparisons: pd.DataFrame) -> str:
    """Say how the measured search does against every other system, if there are enough queries.

    That is on documents that nobody labelled and on new ones; on all test queries where neither
    have enough, and on pseudo-queries where these are too few. The search is the hybrid where
    there is one, else what was trained. Results without buckets are about all queries.
    """
    counts = bucket_counts(results)
    rows = of_bucket(results, ALL)
    total = int(rows["queries"].max()) if len(rows) and "queries" in rows else 0
    if total < FEW and ("queries" in rows or rows.empty):
        noun = "query" if total == 1 else "queries"
        too_few = (
            f"Too few to measure: {total:,} test {noun}, and {FEW} are the least that tell systems"
            " apart. To measure the search, ask it questions in `kedro anmi serve` and mark the"
            " answers."
        )
        on_pseudo = _against(results, comparisons, PSEUDO, counts.get(PSEUDO, 0))
        return f"{too_few} {on_pseudo}".strip()
    enough = [name for name in _OF if counts.get(name, 0) >= FEW]
    sentences = [
        _against(results, comparisons, name, counts.get(name, total)) for name in enough or [ALL]
    ]
    few = [f"{counts[name]:,} {_OF[name]}" for name in _OF if 0 < counts.get(name, 0) < FEW]
    sentences.append(f"Too few to measure: {', '.join(few)}." if few and any(sentences) else "")
    if counts and not counts.keys() & _OF.keys():
        sentences.append(
            "A training query's label names a document of each, so nothing is known about other"
            " documents."
        )
    return " ".join(filter(None, sentences))


def told(change: Mapping[str, float]) -> str:
    """Write a difference with its interval."""
    return (
        f"{signed(change['difference'])} [{between(change['low'], change['high'], signed, ', ')}]"
    )


def _against(results: pd.DataFrame, comparisons: pd.DataFrame, bucket: str, count: int) -> str:
    names = systems(results)
    measured = lookup(results, names[-1], METRIC, bucket) if names else None
    against: dict[str, list[str]] = {}
    for rival in names[:-1]:
        change = difference(comparisons, names[-1], METRIC, bucket, baseline=rival)
        before = lookup(results, rival, METRIC, bucket)
        if change and before:
            relation = (
                "above"
                if change["low"] > 0
                else "below"
                if change["high"] < 0
                else "not clearly different from"
            )
            by = f"{signed(change['difference'])}, {p_value(change['p_value'])}"
            against.setdefault(relation, []).append(
                f"{system_name(rival)} {before['value']:.3f} ({by})"
            )
    if not (measured and against):
        return ""
    place = _OF.get(bucket, "on all test queries") + (f" ({count:,} queries)" if count else "")
    relations = "; ".join(f"{relation} {', '.join(others)}" for relation, others in against.items())
    value = f"{measured['value']:.3f} [{between(measured['low'], measured['high'], joint=', ')}]"
    return (
        f"{place[0].upper()}{place[1:]}, {system_name(names[-1])} has {metric_name(METRIC)}"
        f" {value}: {relations}."
    )


def composition(search: Mapping[str, Any] | None) -> str:
    """Say what the search is made of, what its weights rest on, and what was left out."""
    weights = (search or {}).get("weights")
    if not search or not weights:
        return ""
    sentences = [_weights_sentence(search, weights)] if search.get("method") == "convex" else []
    sentences += [
        f"{system_name(part)} was left out: {reason}."
        for part, reason in (search.get("left_out") or {}).items()
    ]
    return " ".join(sentences)


def _weights_sentence(search: Mapping[str, Any], weights: Mapping[str, float]) -> str:
    parts = " + ".join(f"{weight:.2f} {system_name(part)}" for part, weight in weights.items())
    fit = search.get("fit") or {}
    if not fit.get("queries"):
        return f"hybrid: {parts}, weights that no dev query chose."
    which = f", {fit['unlabelled']:,} of them on documents that no training label names"
    scores = ", ".join(f"{system_name(part)} {value:.3f}" for part, value in fit["ndcg@10"].items())
    return (
        f"hybrid: {parts}, chosen by {fit['queries']:,} dev queries{which};"
        f" {metric_name(METRIC)} there: {scores}."
    )


PART_COLUMNS: Final = ("part", "weight", "nDCG@10 alone", "search without it", "ms a query", "MB")


def part_rows(search: Mapping[str, Any] | None) -> list[tuple[str, ...]]:
    """Return the parts of the search as cells of :data:`PART_COLUMNS`, by dev queries.

    Examples
    --------
    >>> search = {"weights": {"bm25": 1.0}, "milliseconds": {"bm25": 2.0}}
    >>> search["megabytes"] = {"bm25": 7.25}
    >>> part_rows(search)
    [('BM25', '1.00', '–', '–', '2.0', '7.2')]
    """
    search = search or {}
    weights = search.get("weights") or {}
    fit = search.get("fit") or {}

    def cell(values: Mapping[str, float] | None, part: str, form: str) -> str:
        return format(values[part], form) if values and part in values else "–"

    return [
        (
            system_name(part),
            f"{weight:.2f}",
            cell(fit.get("ndcg@10"), part, ".3f"),
            cell(fit.get("without"), part, ".3f"),
            cell(search.get("milliseconds"), part, ",.1f"),
            cell(search.get("megabytes"), part, ",.1f"),
        )
        for part, weight in sorted(weights.items(), key=lambda item: -item[1])
    ]


def warning(results: pd.DataFrame, comparisons: pd.DataFrame) -> str:
    """Warn that a system fell significantly below the untrained encoder without labels."""
    counts = bucket_counts(results)
    worse = []
    for bucket in (name for name in _OF if counts.get(name, 0) >= FEW):
        for system in systems(results):
            untrained = system in _BASELINES or system.endswith(RUN_ENDINGS)
            change = None if untrained else difference(comparisons, system, METRIC, bucket)
            if change and change["high"] < 0:
                worse.append(
                    f"{system_name(system)} {_OF[bucket]} ({told(change)},"
                    f" {p_value(change['p_value'])})"
                )
    if not worse:
        return ""
    return (
        f"Warning: training lost quality against zero-shot: {', '.join(worse)}. What was gained"
        " elsewhere may not reach new questions."
    )


def false_negatives_lines(counts: Mapping[str, Any] | None) -> list[str]:
    """Return how many negatives are in truth relevant, and whose truth had a part in judging them.

    From :func:`anmi.evaluation.diagnostics.false_negatives`, with ``of`` and ``judge``; nothing
    where it is not known.
    """
    if not counts:
        return []
    share = f"{counts['share']:.1%}" if counts["total"] else "none chosen"
    sentence = (
        f"{counts['count']:,} of {counts['total']:,} {counts.get('of', 'selected')} negatives are"
        f" in truth relevant ({share}, 95 % interval over queries {counts['low']:.1%} to"
        f" {counts['high']:.1%})"
    )
    notes = [judged_by(counts.get("judge") or {})]
    if not counts["known"]:
        notes = [
            "no unlabelled relevant document of these queries is known, so more may hide",
            *notes,
        ]
    return [sentence, *(f"  {note}" for note in notes if note)]


def judged_by(judge: Mapping[str, Any]) -> str:
    """Say which collections a judge's coefficients were fitted on.

    ``judge`` is from :func:`anmi.judging.fusing.provenance`.

    Examples
    --------
    >>> judged_by({"without": "api_docs", "fitted_on": ["scifact"]})
    'scored with coefficients fitted without api_docs'
    >>> judged_by({"without": None, "fitted_on": ["api_docs", "scifact"]})
    'scored with coefficients fitted on api_docs, scifact, so in-sample on these'
    """
    if not judge:
        return ""
    if judge["without"]:
        return f"scored with coefficients fitted without {judge['without']}"
    return (
        f"scored with coefficients fitted on {', '.join(judge['fitted_on'])}, so in-sample on these"
    )


def of_the_hardest(curves: Mapping[str, Any], minimum: int) -> str:
    """Say in words what the figure of nearness shows; nothing of fewer than ``minimum``."""
    shares = []
    for name in ("chosen", "rejected"):
        curve = curves[name]
        bins = zip(curves["edges"], curve["judged"], curve["expected"], strict=False)
        hardest = [(count, count * share) for low, count, share in bins if low >= 0 and count]
        judged = sum(count for count, _ in hardest)
        if judged < minimum:
            return ""
        relevant = sum(expected for _, expected in hardest)
        shares.append(f"{100 * relevant / judged:.1f} % of the {name} ones")
    return (
        f" Of those at least as near as the positive, the judge expects {' and '.join(shares)} to"
        " be relevant."
    )
