"""What became of one query's candidates, as plain JSON-like documents that say why."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtr

from anmi.candidates import NEGATIVE, OPEN, PADDING, SOURCES, Candidates
from anmi.judging.cross_encoder import fold_of
from anmi.judging.fused import EVIDENCE
from anmi.judging.fusing import contributions

TEXT_START: Final = 200
_NUMBER: Final = r"(-?[\d.]+(?:e[-+]?\d+)?)"
_SHARE: Final = re.compile(rf"(\w+) ≥ {_NUMBER} of the (lowest )?positive's")
_BELOW: Final = re.compile(rf"(\w+) ≥ the (lowest )?positive's − {_NUMBER}")
_GAP: Final = re.compile(rf"gap < {_NUMBER} Elo")
_CHANCE: Final = re.compile(rf"P\(gap < {_NUMBER} Elo\) > {_NUMBER}")
_GAPS: Final = re.compile(rf"gap not in {_NUMBER}…{_NUMBER} Elo")


def explain(
    row: Candidates,
    corpus: pd.DataFrame,
    fused: Mapping[str, Any] | None = None,
    fold: int = 0,
    wanted: int | None = None,
) -> dict[str, Any]:
    """Say of each candidate of a row what was measured and what was decided, by which rule.

    Parameters
    ----------
    row
        A block of one row after selection.
    corpus
        ``document_id, title, text``; a document's index is its row.
    fused
        The artifact ``fused_judge``; without it, or without its evidence in the block, no evidence is told.
    fold
        Whose coefficients judged the query.
    wanted
        Negatives the recipe asks for.

    Returns
    -------
    dict
        ``dropped`` (None, or ``step`` and ``rule``), ``figures`` of the query, ``positives`` (the row's own first)
        and ``candidates`` in the block's order, with their ``count``. A candidate has its ``place`` from 1,
        ``source``, ``scores`` by column (and the Elo ``gap`` to the row's own positive), ``verdict`` (``negative``,
        ``not drawn``, ``query dropped``, or the kind of the rule that decided), ``step``, ``rule``, ``here`` (the
        rule in this row's numbers), ``why`` (all of this in one phrase), ``weight``, ``choice``, ``tier``, and under
        ``evidence`` what each kind adds to the log-odds. Numbers that were not measured are None.
    """
    legend, rules = row.legend, row.rules
    dropped = legend[row.query_verdict[0]] if row.query_verdict[0] != OPEN else None
    places = np.flatnonzero(row.filled[0])
    parts = _evidence(row, fused or {}, fold)
    taken = int(row.negatives.sum())
    candidates = []
    for place in places:
        name = legend[row.verdict[0, place]]
        choice, tier = (_plain(row.columns[n][0, place]) if n in row.columns else None for n in ("choice", "tier"))
        rule = rules.get(name)
        found = {
            "place": int(place) + 1,
            **_document(corpus, row.documents[0, place]),
            "source": [source for source, bit in SOURCES.items() if row.source[0, place] & bit],
            "scores": _scores(row, place),
            "verdict": rule.kind if rule else "rejected",
            "step": name,
            "rule": rule.text if rule else "",
            "here": in_numbers(rule.text, row, place) if rule else "",
            "weight": _plain(row.weight[0, place]),
            "choice": None if choice is None else int(choice),
            "tier": None if tier is None else tier_name(int(tier)),
            "evidence": {n: _plain(part[0, place]) for n, part in parts.items()},
        }
        if row.verdict[0, place] == NEGATIVE:
            found |= {"verdict": "negative", "step": ""}
        elif row.verdict[0, place] == OPEN:
            found |= {"verdict": "query dropped" if dropped else "not drawn", "step": dropped or ""}
            found["rule"] = rules[dropped].text if dropped in rules else ""
        candidates.append(found | {"why": _why(found, taken, wanted)})
    return {
        "dropped": {"step": dropped, "rule": rules[dropped].text if dropped in rules else ""} if dropped else None,
        "figures": {name: _plain(values[0]) for name, values in row.query_columns.items()},
        "positives": [
            _document(corpus, document)
            | {"own": place == 0, "scores": {n: _plain(c[0, place]) for n, c in row.positive_columns.items()}}
            for place, document in enumerate(row.positives[0])
            if document != PADDING
        ],
        "count": len(candidates),
        "candidates": candidates,
    }


def fold_of_query(fused: Mapping[str, Any], query: str, seed: int) -> int:
    """Return whose coefficients judged a query: 0 for shipped ones."""
    return int(fold_of([query], len(fused["models"]), seed)[0]) if len(fused.get("models", [])) > 1 else 0


def _document(corpus: pd.DataFrame, index: int) -> dict[str, str]:
    entry = corpus.iloc[int(index)]
    text = " ".join(f"{entry['title'] or ''} {entry['text']}".split())
    return {"document_id": str(entry["document_id"]), "start": text[:TEXT_START]}


def _scores(row: Candidates, place: Any) -> dict[str, float | None]:
    found = {n: _plain(values[0, place]) for n, values in row.columns.items() if n not in ("choice", "tier")}
    if "elo" in row.columns and "elo" in row.positive_columns:
        found["gap"] = _plain(row.positive_columns["elo"][0, 0] - row.columns["elo"][0, place])
    return found


def _evidence(row: Candidates, fused: Mapping[str, Any], fold: int) -> dict[str, NDArray[np.float64]]:
    if not fused.get("models") or any(name not in row.columns for name in EVIDENCE):
        return {}
    return contributions(row, dict(fused), fold)


def _why(candidate: Mapping[str, Any], taken: int, wanted: int | None) -> str:
    if candidate["verdict"] == "negative":
        parts = [f"choice {candidate['choice']} of {taken}" if candidate["choice"] else "", candidate["tier"] or ""]
        return ", ".join(part for part in parts if part)
    if candidate["verdict"] == "not drawn":
        if wanted == 0:
            return "the recipe draws none"
        # Too few were taken although this one was there to be taken.
        if wanted is not None and taken < wanted:
            return "the sampler had no value for it"
        return f"{taken} taken before it"
    told = f"{candidate['rule']} ({candidate['here']})" if candidate["here"] else str(candidate["rule"])
    if candidate["step"] == candidate["verdict"] and told:
        return told
    return f"{candidate['step']}: {told}" if told else str(candidate["step"])


def tier_name(tier: int) -> str:
    """Return the name of a value of the column ``tier``.

    Examples
    --------
    >>> tier_name(0), tier_name(9)
    ('window', 'tier 9')
    """
    from anmi.selection.steps.back_off import TIERS

    return TIERS[tier] if 0 <= tier < len(TIERS) else f"tier {tier}"


def in_numbers(rule: str, row: Candidates, place: Any = 0) -> str:
    """Return a rule that is relative to a positive of the row in this row's numbers; empty for any other.

    The block has one row; on ``place`` depends only what is told of an interval of gaps.

    Examples
    --------
    >>> one = np.array([[0]], np.int32)
    >>> own = {"dense": np.full((1, 1), 0.8)}
    >>> row = Candidates(np.array(["q"]), one, one, one.astype(np.uint8), positive_columns=own)
    >>> in_numbers("dense ≥ 0.95 of the positive's", row), in_numbers("p_relevant ≥ 0.5", row)
    ('dense ≥ 0.76', '')
    """

    def positive(column: str, lowest: bool = False) -> float:
        values = row.positive_columns.get(column, np.zeros((1, 0), np.float32))[0, : None if lowest else 1]
        return float(np.min(values[np.isfinite(values)], initial=math.inf))

    if found := _SHARE.fullmatch(rule):
        reference, text = positive(found[1], bool(found[3])), f"{found[1]} ≥ {{}}"
        limits = [reference - abs(reference) * (1 - float(found[2]))]
    elif found := _BELOW.fullmatch(rule):
        limits, text = [positive(found[1], bool(found[2])) - float(found[3])], f"{found[1]} ≥ {{}}"
    elif found := _CHANCE.fullmatch(rule):
        gap = positive("elo") - row.columns["elo"][0, place] if "elo" in row.columns else math.nan
        error = row.columns["gap_se"][0, place] if "gap_se" in row.columns else math.nan
        limits, text = [float(ndtr((float(found[1]) - gap) / np.maximum(error, 1e-6)))], "here {}"
    elif found := _GAP.match(rule):
        limits, text = [positive("elo") - float(found[1])], "elo > {}"
    elif found := _GAPS.fullmatch(rule):
        limits, text = [positive("elo") - float(found[2]), positive("elo") - float(found[1])], "elo not in {}…{}"
    else:
        return ""
    return "" if not all(map(math.isfinite, limits)) else text.format(*(f"{limit:.4g}" for limit in limits))


def not_a_candidate(
    document: int, row: Candidates, corpus: pd.DataFrame, group: Mapping[str, str], itself: str = ""
) -> str:
    """Say why a document of the corpus is not among the candidates of a row.

    ``group`` gives by the id of a document that repeats another's text the id of the first that has it; ``itself`` is
    the id of the document that the query is itself or has the text of, empty where there is none.
    """
    ids = corpus["document_id"]
    positives = row.positives[0][row.positives[0] != PADDING].tolist()
    name = str(ids.iloc[document])
    if document in positives:
        return "it is the positive of this row" if document == positives[0] else "it is another positive of the query"
    for positive in map(str, ids.iloc[positives]):
        if group.get(name, name) == group.get(positive, positive):
            return f"it has the text of the positive {positive}, and so is no negative"
    if itself and group.get(name, name) == group.get(itself, itself):
        return "it is the query itself, or has its text, and so is no negative"
    counts = {source: int(((row.source[0] & bit) > 0)[row.filled[0]].sum()) for source, bit in SOURCES.items()}
    known = ", ".join(f"{count} from {source}" for source, count in counts.items() if count)
    return (
        f"no source retrieved it for this query (candidates: {known or 'none'}); bm25.depth and dense.depth say how "
        "deep each goes"
    )


def _plain(value: Any) -> float | None:
    """Return a measurement as a number that is short in JSON: float32 has no more than seven digits."""
    number = float(value)
    return float(f"{number:.7g}") if math.isfinite(number) else None
