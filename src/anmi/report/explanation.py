"""What became of one query's candidates and why, as documents and as tables."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd
from rich.cells import cell_len
from rich.console import Group
from rich.table import Table
from rich.text import Text
from scipy.special import ndtr

from anmi.candidates import NEGATIVE, OPEN, PADDING, SOURCES, Candidates
from anmi.judging.cross_encoder import fold_of
from anmi.judging.evidence import KINDS, NETWORK
from anmi.judging.fused import EVIDENCE
from anmi.judging.fusing import contributions
from anmi.selection.steps.samplers import TIERS

TEXT_START: Final = 200
_NUMBER: Final = r"(-?[\d.]+(?:e[-+]?\d+)?)"
_SHARE: Final = re.compile(rf"(\w+) ≥ {_NUMBER} of the positive's")
_BELOW: Final = re.compile(rf"(\w+) ≥ the positive's − {_NUMBER}")
_GAP: Final = re.compile(rf"gap < {_NUMBER} Elo")
_CHANCE: Final = re.compile(rf"P\(gap < {_NUMBER} Elo\) > {_NUMBER}")
STYLES = {"negative": "bold", "promoted": "green", "uncertain": "yellow", "unsafe": "red"}
STYLES |= dict.fromkeys(("unwanted", "rejected", "query dropped"), "dim")
# Shown below the value they belong to.
_UNDER: Final = {
    "bm25": ("#", "bm25_rank"),
    "dense": ("#", "dense_rank"),
    "elo": ("±", "elo_se"),
    "gap": ("±", "gap_se"),
}
_FIRST: Final = ("dense", "bm25", "p_relevant", "elo", "gap", "cross")
# What a student is trained towards is no judgment of its own, and the order of fused ranks is that
# of the rows.
_HIDDEN: Final = {
    "soft_label",
    "fused",
    "preferred",
    "related",
    *(name for _, name in _UNDER.values()),
}
_SMALL: Final = 0.05
# In the place of scores that no positive has, to which no limit is finite.
_FAR: Final = np.full((1, 1), np.inf)
# Cells of everything but document, scores and rule, borders included.
_OTHERS: Final = 33


def explain(
    row: Candidates,
    corpus: pd.DataFrame,
    fused: Mapping[str, Any] | None = None,
    query: str = "",
    seed: int = 0,
    negatives_wanted: int | None = None,
) -> dict[str, Any]:
    """Say of each candidate of a query what was measured and what was decided, by which rule.

    Parameters
    ----------
    row
        A block of one query after selection.
    corpus
        ``document_id, title, text``; a document's index is its row.
    fused
        The artifact ``fused_judge``; without it, or without its evidence in the block, no evidence
        is shown.
    query, seed
        Its text and the seed of the run, which say whose coefficients judged it.
    negatives_wanted
        Negatives that the recipe asks for.

    Returns
    -------
    dict
        ``dropped`` (None, or ``step`` and ``rule``), ``figures`` of the query, ``positives`` (first
        the one that candidates are compared with) and ``candidates`` in the block's order, with
        their ``count``. A candidate has its ``place`` from 1, ``source``, ``scores`` by column (and
        the Elo ``gap`` to that positive), ``verdict`` (``negative``, ``not drawn``, ``query
        dropped``, or the kind of the rule that decided), ``step``, ``rule``, ``here`` (the rule in
        this query's numbers), ``why`` (all of this in one phrase), ``weight``, ``choice``,
        ``tier``, and under ``evidence`` what each kind adds to the log-odds. Numbers that were not
        measured are None.
    """
    dropping_step = row.legend[row.query_verdict[0]] if row.query_verdict[0] != OPEN else ""
    dropped = None
    if dropping_step:
        rule = row.rules[dropping_step].text if dropping_step in row.rules else ""
        dropped = {"step": dropping_step, "rule": rule}
    log_odds: dict[str, Any] = {}
    if fused and fused.get("models") and {*EVIDENCE} <= {*row.columns, NETWORK}:
        log_odds = contributions(row, dict(fused), fold_of_query(fused, query, seed))
    negative_count = int(row.negatives.sum())
    candidates = []
    for slot in np.flatnonzero(row.filled[0]).tolist():
        candidate = _candidate(row, slot, corpus, dropped)
        candidate["evidence"] = {kind: _plain(values[0, slot]) for kind, values in log_odds.items()}
        candidate["why"] = _why(candidate, negative_count, negatives_wanted)
        candidates.append(candidate)
    positives = []
    for number, document in enumerate(row.positives[0]):
        if document == PADDING:
            continue
        columns = row.positive_columns.items()
        scores = {name: _plain(values[0, number]) for name, values in columns}
        positives.append(_document(corpus, document) | {"scores": scores})
    return {
        "dropped": dropped,
        "figures": {name: _plain(values[0]) for name, values in row.query_columns.items()},
        "positives": positives,
        "count": len(candidates),
        "candidates": candidates,
    }


def _candidate(
    row: Candidates, slot: int, corpus: pd.DataFrame, dropped: Mapping[str, str] | None
) -> dict[str, Any]:
    """Return what was measured of a candidate, and the rule that decided on it."""
    code = row.verdict[0, slot]
    step = row.legend[code]
    rule = row.rules.get(step)
    choice, tier = (
        _plain(row.columns[name][0, slot]) if name in row.columns else None
        for name in ("choice", "tier")
    )
    candidate = {
        "place": slot + 1,
        **_document(corpus, row.documents[0, slot]),
        "source": [source for source, bit in SOURCES.items() if row.source[0, slot] & bit],
        "scores": _scores(row, slot),
        "verdict": rule.kind if rule else "rejected",
        "step": step,
        "rule": rule.text if rule else "",
        "here": in_numbers(rule.text, row, slot) if rule else "",
        "weight": _plain(row.weight[0, slot]),
        "choice": None if choice is None else int(choice),
        "tier": None if tier is None else TIERS[int(tier)],
    }
    if code == NEGATIVE:
        candidate |= {"verdict": "negative", "step": ""}
    elif code == OPEN and dropped:
        candidate |= {"verdict": "query dropped", **dropped}
    elif code == OPEN:
        candidate |= {"verdict": "not drawn", "step": "", "rule": ""}
    return candidate


def fold_of_query(fused: Mapping[str, Any], query: str, seed: int) -> int:
    """Return whose coefficients judged a query: 0 for shipped ones."""
    return (
        int(fold_of([query], len(fused["models"]), seed)[0])
        if len(fused.get("models", [])) > 1
        else 0
    )


def _document(corpus: pd.DataFrame, index: int) -> dict[str, str]:
    entry = corpus.iloc[int(index)]
    text = " ".join(f"{entry['title'] or ''} {entry['text']}".split())
    return {"document_id": str(entry["document_id"]), "start": text[:TEXT_START]}


def _scores(row: Candidates, slot: Any) -> dict[str, float | None]:
    scores = {
        n: _plain(values[0, slot])
        for n, values in row.columns.items()
        if n not in ("choice", "tier")
    }
    if "elo" in row.columns and "elo" in row.positive_columns:
        scores["gap"] = _plain(row.positive_columns["elo"][0, 0] - row.columns["elo"][0, slot])
    return scores


def _why(candidate: Mapping[str, Any], negative_count: int, negatives_wanted: int | None) -> str:
    if candidate["verdict"] == "negative":
        choice = f"choice {candidate['choice']} of {negative_count}" if candidate["choice"] else ""
        return ", ".join(filter(None, [choice, candidate["tier"]]))
    if candidate["verdict"] == "not drawn":
        if negatives_wanted == 0:
            return "the recipe draws none"
        # Too few were taken although this one was there to be taken.
        if negatives_wanted is not None and negative_count < negatives_wanted:
            return "the sampler had no value for it"
        return f"{negative_count} taken before it"
    rule = (
        f"{candidate['rule']} ({candidate['here']})"
        if candidate["here"]
        else str(candidate["rule"])
    )
    if candidate["step"] == candidate["verdict"] and rule:
        return rule
    return f"{candidate['step']}: {rule}" if rule else str(candidate["step"])


def in_numbers(rule: str, row: Candidates, slot: Any = 0) -> str:
    """Return a rule that is relative to the positive in this query's numbers; empty for any other.

    The block has one query; on ``slot`` depends only what is told of an interval of gaps.

    Examples
    --------
    >>> one = np.array([[0]], np.int32)
    >>> scores = {"dense": np.full((1, 1), 0.8)}
    >>> row = Candidates(np.array(["q"]), one, one, one.astype(np.uint8), positive_columns=scores)
    >>> in_numbers("dense ≥ 0.95 of the positive's", row), in_numbers("p_relevant ≥ 0.5", row)
    ('dense ≥ 0.76', '')
    """

    def positive(column: str) -> float:
        return float(row.positive_columns.get(column, _FAR)[0, 0])

    def candidate(column: str) -> float:
        return float(row.columns[column][0, slot]) if column in row.columns else math.nan

    if match := _SHARE.match(rule):
        score = positive(match[1])
        limit = score - abs(score) * (1 - float(match[2]))
        text = f"{match[1]} ≥ "
    elif match := _BELOW.fullmatch(rule):
        limit = positive(match[1]) - float(match[2])
        text = f"{match[1]} ≥ "
    elif match := _CHANCE.fullmatch(rule):
        gap = positive("elo") - candidate("elo")
        error = np.maximum(candidate("gap_se"), 1e-6)
        limit = float(ndtr((float(match[1]) - gap) / error))
        text = "here "
    elif match := _GAP.match(rule):
        limit = positive("elo") - float(match[1])
        text = "elo > "
    else:
        return ""
    return f"{text}{limit:.4g}" if math.isfinite(limit) else ""


def not_a_candidate(
    document: int,
    row: Candidates,
    corpus: pd.DataFrame,
    group: Mapping[str, str],
    itself: str = "",
    labelled: Collection[str] = (),
) -> str:
    """Say why a document of the corpus is not among the candidates of a query.

    ``labelled`` are the documents that labels call relevant, measured or not. ``group`` gives by
    the id of a document that repeats another's text the id of the first that has it; ``itself`` is
    the id of the document that the query is itself or has the text of, empty where there is none.
    """
    ids = corpus["document_id"]
    positives = ids.iloc[row.positives[0][row.positives[0] != PADDING]].astype(str).tolist()
    name = str(ids.iloc[document])
    if name in positives:
        return (
            "it is a positive of the"
            f" query{', the one that is compared with' if name == positives[0] else ''}"
        )
    if name in labelled:
        return (
            "it is a positive of the query, which was not measured: dense.positives says how many"
            " of them are"
        )
    for positive in (*positives, *labelled):
        if group.get(name, name) == group.get(positive, positive):
            return f"it has the text of the positive {positive}, and so is no negative"
    if itself and group.get(name, name) == group.get(itself, itself):
        return "it is the query itself, or has its text, and so is no negative"
    counts = {
        source: int(((row.source[0] & bit) > 0)[row.filled[0]].sum())
        for source, bit in SOURCES.items()
    }
    sources = ", ".join(f"{count} from {source}" for source, count in counts.items() if count)
    return (
        f"no source retrieved it for this query (candidates: {sources or 'none'}); bm25.depth and"
        " dense.depth say how deep each goes"
    )


def _plain(value: Any) -> float | None:
    """Return a measurement with the seven digits that float32 has, None where it is not finite."""
    number = float(value)
    return float(f"{number:.7g}") if math.isfinite(number) else None


def candidates_table(decisions: Mapping[str, Any], top: int, width: int) -> Table:
    """Return the positives and candidates of one query, each with the rule that decided on it.

    The first ``top`` are shown, and what was chosen or promoted wherever it stands; scores as far
    as ``width`` cells hold them, those first that most rules go by. Under each document stands the
    start of its text, under a score its rank or standard error, under a rule the evidence that
    moved the fused judge most, in log-odds against an average candidate.
    """
    rows = decisions["candidates"]
    shown = [
        row for row in rows if row["place"] <= top or row["verdict"] in ("negative", "promoted")
    ]
    longest = max(cell_len(row["document_id"]) for row in (*decisions["positives"], *shown))
    # As wide as the longest id, but wide enough for the start of a text.
    room = max(22, min(longest, width // 4))
    rule = max(17, width // 5)
    names = _fitting(rows, width - room - rule - _OTHERS)
    table = Table()
    table.add_column("#", justify="right", no_wrap=True)
    table.add_column("document", width=room)
    for name in names:
        table.add_column(_header(name), justify="right", min_width=_cells(name))
    table.add_column("verdict", min_width=9)
    table.add_column("why", min_width=rule)
    table.add_column("weight", justify="right", no_wrap=True)

    def add(
        slot: str,
        row: Mapping[str, Any],
        source: list[str],
        cells_of_row: Sequence[str],
        style: str,
    ) -> None:
        start = Text(row["start"])
        start.truncate(room, overflow="ellipsis")
        # An id is there to be copied, so it is never cut.
        document = Group(Text(row["document_id"], overflow="fold"), start, Text("+".join(source)))
        scores = [_stacked(row["scores"], name) for name in names]
        table.add_row(slot, document, *map(Text, (*scores, *cells_of_row)), style=style)

    for slot, row in enumerate(decisions["positives"]):
        add(
            "+",
            row,
            ["qrels"],
            ("positive", "" if slot else "compared with", ""),
            "dim green" if slot else "green",
        )
    for row in shown:
        why = "\n".join(text for text in (row["why"], strongest(row["evidence"])) if text)
        cells_of_row = (row["verdict"], why, number(row["weight"]))
        add(str(row["place"]), row, row["source"], cells_of_row, STYLES.get(row["verdict"], ""))
    counts = ", ".join(
        f"{count} {verdict}" for verdict, count in Counter(row["verdict"] for row in rows).items()
    )
    table.caption = (
        f"{len(shown)} of {len(rows)} candidates shown (--top); {counts}. Everything about one:"
        " --doc ID"
    )
    return table


def _fitting(rows: Sequence[Mapping[str, Any]], room: int) -> list[str]:
    """Return the names of the scores that fit into so many cells, without evidence."""
    measured = {n: None for row in rows for n, value in row["scores"].items() if value is not None}
    elsewhere = KINDS if any(row["evidence"] for row in rows) else ()
    names = [n for n in _FIRST if n in measured]
    names += [n for n in measured if n not in names and n not in elsewhere and n not in _HIDDEN]
    if all(row["scores"].get("p_evidence") == row["scores"].get("p_relevant") for row in rows):
        names = [n for n in names if n != "p_evidence"]
    fitting: list[str] = []
    for name in names:
        if room >= _cells(name) + 3:
            room -= _cells(name) + 3
            fitting.append(name)
    return fitting


def _header(name: str) -> str:
    return name.replace("_", "_\n")


def _cells(name: str) -> int:
    """Width of a score's column: that of its name or of a number such as ±449.9."""
    return max(6 if name in ("elo", "gap") else 5, *map(len, _header(name).split("\n")))


def _stacked(scores: Mapping[str, float | None], name: str) -> str:
    value = number(scores.get(name))
    mark, below = _UNDER.get(name, ("", ""))
    second = number(scores.get(below))
    return f"{value}\n{mark}{second}" if second else value


def strongest(evidence: Mapping[str, float | None]) -> str:
    """Name the three kinds of evidence that moved the judge most, in log-odds.

    Examples
    --------
    >>> strongest({"match": 0.2, "coverage": -1.5, "facts": 0.01})
    'coverage -1.5, match +0.2'
    """
    ranked = sorted(
        ((abs(v), n, v) for n, v in evidence.items() if v is not None and abs(v) >= _SMALL),
        reverse=True,
    )
    return ", ".join(f"{name} {value:+.1f}" for _, name, value in ranked[:3])


def document_table(decisions: Mapping[str, Any], candidate: Mapping[str, Any]) -> Table:
    """Return everything about one candidate, or positive, beside the compared positive.

    Both are of what :func:`anmi.report.explanation.explain` returns.
    """
    first = decisions["positives"][0]
    table = Table("name", "value", "the positive")
    table.columns[0].no_wrap = True
    table.columns[1].overflow = "fold"
    table.columns[2].overflow = "fold"

    def add(name: str, value: str, beside: str = "", style: str = "") -> None:
        table.add_row(*(Text(cell) for cell in (name, value, beside)), style=style)

    add("document", candidate["document_id"], first["document_id"], "bold")
    add("text", candidate["start"], first["start"])
    if "verdict" in candidate:
        add("verdict", candidate["verdict"], "positive", STYLES.get(candidate["verdict"], ""))
        add("why", candidate["why"])
        add("weight", number(candidate["weight"]))
        add("tier", candidate["tier"] or "")
        add("source", " + ".join(candidate["source"]), "qrels")
        add("place", f"{candidate['place']} of {decisions['count']}")
    evidence = candidate.get("evidence") or {}
    scores = candidate["scores"]
    rows = {name: number(value) for name, value in scores.items() if name not in evidence}
    moved = {
        name: f"{number(scores.get(name))} ({part or 0:+.2f} log-odds)"
        for name, part in evidence.items()
    }
    for section in (rows, moved):
        table.add_section()
        for name, shown in section.items():
            add(name, shown, number(first["scores"].get(name)))
    return table


def number(value: float | None) -> str:
    """Format a measurement; None, which means not measured, is left empty.

    Examples
    --------
    >>> number(12.0), number(0.123456), number(0.0002), number(None)
    ('12', '0.123', '2e-04', '')
    """
    if value is None:
        return ""
    if 0 < abs(value) < 0.0005:
        return f"{value:.0e}"
    return f"{value:.4g}" if abs(value) >= 1 or value == int(value) else f"{value:.3f}"
