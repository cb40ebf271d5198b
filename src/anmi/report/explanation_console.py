"""The tables that `kedro anmi explain` prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.cells import cell_len
from rich.console import Group
from rich.table import Table
from rich.text import Text

from anmi.judging.evidence import KINDS

STYLES: Final = {
    "negative": "bold",
    "promoted": "green",
    "uncertain": "yellow",
    "unsafe": "red",
    "unwanted": "dim",
    "rejected": "dim",
    "query dropped": "dim",
}
# Shown below the value they belong to.
_BELOW: Final = {
    "bm25": ("#", "bm25_rank"),
    "dense": ("#", "dense_rank"),
    "elo": ("±", "elo_se"),
    "gap": ("±", "gap_se"),
}
_FIRST: Final = ("dense", "bm25", "p_relevant", "elo", "gap", "cross")
# What a student is trained towards is no judgment of its own, and the order of fused ranks is that of the rows.
_HIDDEN: Final = {"soft_label", "fused", "preferred", "related", *(name for _, name in _BELOW.values())}
_REASONS: Final = {False: 2, True: 3}
_SMALL: Final = 0.05
# A console of so many cells and more is wide, and has room for sources of their own.
_WIDE: Final = 150
_NARROW: Final = 110
_LEAST_ROOM: Final = {False: 22, True: 30}
_OTHERS: Final = {False: 33, True: 42}


def candidates_table(found: Mapping[str, Any], top: int, width: int) -> Table:
    """Return the positives and candidates of one row, each with the rule that decided on it.

    The first ``top`` are shown, and what was chosen or promoted wherever it stands; scores as far as ``width`` cells
    hold them, those first that most rules go by. Under each document stands the start of its text, under a score its
    rank or standard error, under a rule the evidence that moved the fused judge most, in log-odds against an average
    candidate.
    """
    rows = found["candidates"]
    shown = [row for row in rows if row["place"] <= top or row["verdict"] in ("negative", "promoted")]
    every = [*found["positives"], *shown]
    wide = width >= _WIDE
    room, rule = (max(40, width // 3), 40) if wide else (22, 26 if width >= _NARROW else 17)
    # As wide as the longest id, but wide enough for the start of a text.
    room = min(room, max(_LEAST_ROOM[wide], *(cell_len(row["document_id"]) for row in every), 0))
    names = _fitting(rows, width - room - rule - _OTHERS[wide], wide)
    table = Table()
    table.add_column("#", justify="right", no_wrap=True)
    table.add_column("document", width=room)
    if wide:
        table.add_column("source", min_width=6)
    for name in names:
        table.add_column(_header(name, wide), justify="right", min_width=_cells(name, wide))
    table.add_column("verdict", min_width=9)
    table.add_column("why", min_width=rule)
    table.add_column("weight", justify="right", no_wrap=True)
    for row in found["positives"]:
        told = ("positive", "of this row" if row["own"] else "of the query, so no candidate", "")
        style = "green" if row["own"] else "dim green"
        table.add_row("+", *_measured(row, ["qrels"], room, names, wide), *map(Text, told), style=style)
    for row in shown:
        verdict = row["verdict"] if wide else row["verdict"].replace(" ", "\n")
        reasons = strongest(row["evidence"], _REASONS[wide])
        told = (verdict, "\n".join(text for text in (row["why"], reasons) if text), number(row["weight"]))
        cells = _measured(row, row["source"], room, names, wide)
        table.add_row(str(row["place"]), *cells, *map(Text, told), style=STYLES.get(row["verdict"], ""))
    table.caption = _caption(rows, len(shown))
    return table


def _fitting(rows: Sequence[Mapping[str, Any]], room: int, wide: bool) -> list[str]:
    """Names of the scores that fit into so many cells; those of evidence stand in log-odds elsewhere."""
    measured = {n: None for row in rows for n, value in row["scores"].items() if value is not None}
    told = KINDS if any(row["evidence"] for row in rows) else ()
    names = [n for n in _FIRST if n in measured]
    names += [n for n in measured if n not in names and n not in told and n not in _HIDDEN]
    if all(row["scores"].get("p_evidence") == row["scores"].get("p_relevant") for row in rows):
        names = [n for n in names if n != "p_evidence"]
    fitting: list[str] = []
    for name in names:
        if room >= _cells(name, wide) + 3:
            room -= _cells(name, wide) + 3
            fitting.append(name)
    return fitting


def _header(name: str, wide: bool) -> str:
    return name if wide else name.replace("_", "_\n")


def _cells(name: str, wide: bool) -> int:
    """Width of a score's column: that of its name or of a number such as ±449.9."""
    return max(6 if name in ("elo", "gap") else 5, *map(len, _header(name, wide).split("\n")))


def _measured(row: Mapping[str, Any], source: list[str], room: int, names: list[str], wide: bool) -> list[Any]:
    """Cells of the document, its source and its scores; where there is little room the source stands below the text."""
    start = Text(row["start"])
    start.truncate(room, overflow="ellipsis")
    # An id is there to be copied, so it is never cut.
    lines = [Text(row["document_id"], overflow="fold"), start]
    scores = [Text(_stacked(row["scores"], name)) for name in names]
    if wide:
        return [Group(*lines), Text("\n".join(source)), *scores]
    return [Group(*lines, Text("+".join(source))), *scores]


def _stacked(scores: Mapping[str, float | None], name: str) -> str:
    value = number(scores.get(name))
    mark, below = _BELOW.get(name, ("", ""))
    second = number(scores.get(below))
    return f"{value}\n{mark}{second}" if second else value


def strongest(evidence: Mapping[str, float | None], count: int = 3) -> str:
    """Name the evidence that moved the judge most, in log-odds.

    Examples
    --------
    >>> strongest({"match": 0.2, "coverage": -1.5, "facts": 0.01})
    'coverage -1.5, match +0.2'
    """
    known = sorted(((abs(v), n, v) for n, v in evidence.items() if v is not None and abs(v) >= _SMALL), reverse=True)
    return ", ".join(f"{name} {value:+.1f}" for _, name, value in known[:count])


def _caption(rows: list[Mapping[str, Any]], shown: int) -> str:
    counts: dict[str, int] = {}
    for row in rows:
        counts[row["verdict"]] = counts.get(row["verdict"], 0) + 1
    told = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    return f"{shown} of {len(rows)} candidates shown (--top); {told}. Everything about one: --doc ID"


def document_table(found: Mapping[str, Any], candidate: Mapping[str, Any]) -> Table:
    """Return everything about one candidate, or another positive, beside the row's own positive.

    Both are of what :func:`anmi.report.explanation.explain` returns.
    """
    own = found["positives"][0]
    table = Table(show_lines=False)
    table.add_column("name", no_wrap=True)
    table.add_column("value", overflow="fold")
    table.add_column("the row's positive", overflow="fold")

    def add(name: str, value: str, beside: str = "", style: str = "") -> None:
        table.add_row(*(Text(cell) for cell in (name, value, beside)), style=style)

    add("document", candidate["document_id"], own["document_id"], "bold")
    add("text", candidate["start"], own["start"])
    if "verdict" in candidate:
        add("verdict", candidate["verdict"], "positive", STYLES.get(candidate["verdict"], ""))
        add("why", candidate["why"])
        add("weight", number(candidate["weight"]))
        add("tier", candidate["tier"] or "")
        add("source", " + ".join(candidate["source"]), "qrels")
        add("place", f"{candidate['place']} of {found['count']}")
    evidence = candidate.get("evidence") or {}
    table.add_section()
    for name, value in candidate["scores"].items():
        if name not in evidence:
            add(name, number(value), number(own["scores"].get(name)))
    table.add_section()
    for name, part in evidence.items():
        add(
            name,
            f"{number(candidate['scores'].get(name))} ({part or 0:+.2f} log-odds)",
            number(own["scores"].get(name)),
        )
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
