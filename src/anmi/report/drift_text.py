"""What a comparison of training data found, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

SCORE_NAMES: Final = {
    "bm25": "BM25 score",
    "dense": "cosine similarity",
    "p_relevant": "probability of relevance",
    "p_evidence": "probability of relevance by the evidence",
    "elo": "Elo",
}
_NAMES: Final = {
    "query_length": "length of queries (tokens)",
    "document_length": "length of documents (tokens)",
    "query_hardness": "hardness of queries (0 to 1)",
    "positives_per_query": "positives per query",
    "consistent": "queries that passed the consistency filter",
    "all_negatives": "rows with all negatives",
    "dropped": "rows dropped",
    "near_duplicates": "documents with a near-duplicate",
    "training_labels": "training labels",
    "training_rows": "training rows",
    "documents": "documents",
    **{f"{split}_queries": f"{split} queries" for split in ("train", "dev", "test")},
}
_KINDS: Final = {"positive": "of positives", "negative": "of negatives", "gap": "of the positive minus the negative's"}
_VERDICTS: Final = {
    "none": "The training data are like the champion's: nothing differs both surely and by much.",
    "slight": "The training data differ slightly from the champion's.",
    "strong": "The training data differ strongly from the champion's.",
}
_ORDER: Final = ("strong", "slight", "none")


def drift_name(name: str) -> str:
    """Return how a row of a comparison is written.

    Examples
    --------
    >>> drift_name("positive_dense"), drift_name("train_queries"), drift_name("taken out: barred")
    ('cosine similarity of positives', 'train queries', 'candidates taken out: barred')
    """
    kind, _, score = name.partition("_")
    if kind in _KINDS and score in SCORE_NAMES:
        return f"{SCORE_NAMES[score]} {_KINDS[kind]}"
    if name.startswith("taken out: "):
        return f"candidates {name}"
    return _NAMES.get(name, name)


def verdict_sentence(drift: Mapping[str, Any]) -> str:
    """Return the verdict in one sentence.

    Examples
    --------
    >>> verdict_sentence({"compared": False, "reason": "there is no champion to compare with"})
    'Drift was not measured: there is no champion to compare with.'
    """
    if not drift["compared"]:
        return f"Drift was not measured: {drift['reason']}."
    return _VERDICTS[drift["verdict"]]


def findings(drift: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return verdict and sentence of everything that is not ``none``, the strong ones first."""
    found = [(row["verdict"], text) for row, text in _sentences(drift) if row["verdict"] != "none"]
    return sorted(found, key=lambda entry: _ORDER.index(entry[0]))


def summary(drift: Mapping[str, Any]) -> list[str]:
    """Return the lines that a run logs."""
    lines = [f"{verdict}: {text}" for verdict, text in findings(drift)]
    return [verdict_sentence(drift), *lines, *differences(drift)]


def differences(drift: Mapping[str, Any]) -> list[str]:
    """Say what scores depend on besides the data, where it has changed."""
    return [
        f"{name} was {value['reference']} and is {value['current']}: what scores show may come of that."
        for name, value in drift.get("different", {}).items()
    ]


def _sentences(drift: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], str]]:
    for name, row in drift.get("counts", {}).items():
        yield row, f"{drift_name(name)}: {row['reference']:,} before, {row['current']:,} now."
    for name, row in drift.get("new_terms", {}).items():
        yield (
            row,
            f"{percent(row['current'])} of the terms in {name} did not occur in the champion's data; "
            f"{percent(row['reference'])} would be usual.",
        )
    for name, row in drift.get("distributions", {}).items():
        yield (
            row,
            f"{drift_name(name)}: {number(row['mean_reference'])} on average before, {number(row['mean_current'])} "
            f"now ({row['shift']:+.2f} standard deviations); {percent(row['moved'])} of the values would have to "
            "move to another bin.",
        )
    for name, row in drift.get("shares", {}).items():
        yield row, f"{drift_name(name)}: {percent(row['reference'])} before, {percent(row['current'])} now."


def percent(share: float) -> str:
    """Return a share for readers.

    Examples
    --------
    >>> [percent(share).replace(chr(160), " ") for share in (0.1234, 0.00012, 1e-6, 0.0)]
    ['12.3 %', '0.01 %', '< 0.01 %', '0.0 %']
    """
    if 0 < share < 1e-4:
        return "<\u00a00.01\u00a0%"
    return f"{100 * share:.1f}\u00a0%" if share >= 0.001 or not share else f"{100 * share:.2f}\u00a0%"


def number(value: float) -> str:
    """Return a mean for readers: three digits, or all before the point.

    Examples
    --------
    >>> number(1234.5), number(5.127), number(0.02179)
    ('1,234', '5.13', '0.0218')
    """
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
