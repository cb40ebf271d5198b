"""What an ablation found, in sentences and tables of text, and how `kedro anmi ablation` prints it."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from anmi.evaluation.ablation import BEST_KNOWN, best_known
from anmi.report.by_bucket import bucket_name
from anmi.report.inputs import between

Row = Mapping[str, Any]
# Of lines that nobody's terminal breaks.
_WIDTH: Final = 160


def tables(results: Row) -> list[tuple[str, str, list[Row]]]:
    """Return (collection, judgments, rows) for each table, rows with the best mean first."""
    keys = dict.fromkeys((row["collection"], row["judgments"]) for row in results["rows"])
    return [
        (*key, sorted((r for r in results["rows"] if (r["collection"], r["judgments"]) == key), key=_worst_last))
        for key in keys
    ]


def _worst_last(row: Row) -> float:
    return -float(row["ndcg_10"])


def mark(difference: float | None, p_holm: float | None, level: float) -> str:
    """Return how a recipe stands to what it was tested against.

    Examples
    --------
    >>> mark(0.01, 0.001, 0.05), mark(-0.01, 0.001, 0.05), mark(0.01, 0.2, 0.05), mark(None, None, 0.05)
    ('▲', '▼', '·', '')
    """
    if difference is None or p_holm is None:
        return ""
    return "·" if p_holm >= level else "▲" if difference > 0 else "▼"


def legend(results: Row) -> str:
    """Return what the marks mean, and on what the models were trained."""
    # Results of an earlier release do not say; it had one pass.
    passes = (
        "Models were trained again on train and dev, which chose the epochs in a first pass."
        if results.get("refit")
        else "Models are those of a single pass on train, epochs chosen on dev; a run trains again with dev."
    )
    focus = (
        f" In the column of {results['focus']} it is that recipe that is better or worse." if results["focus"] else ""
    )
    return (
        f"▲ significantly better, ▼ significantly worse, · no significant difference: paired permutation tests over "
        f"queries, p below {results['level']:g} after Holm's correction over the recipes of a table.{focus} {passes}"
    )


def note(results: Row, collection: str, judgments: str) -> str:
    """Return what a table counts, and on what part of the collection."""
    truth = {
        "completed": "Completed judgments: own documents count 2, others known to be relevant 1.",
        "original": "Original labels.",
    }[judgments]
    return " ".join(filter(None, [truth, results["from"][collection]["note"]]))


def sentences(results: Row) -> list[str]:
    """Return what is to be said of the focus, of each recipe of ours that does not earn its place, and of failures.

    A recipe of ours earns its place when it is significantly better than the baseline on at least one collection and
    significantly worse on none, by the best judgments known.
    """
    rows, level = best_known(results["rows"]), results["level"]
    said = [_of_focus(rows, results)] if results["focus"] else []
    for name in results["ours"]:
        mine = [row for row in rows if row["recipe"] == name and row["p_holm"] is not None]
        better = _where(mine, level, 1)
        worse = _where(mine, level, -1)
        if mine and (worse or not better):
            said.append(
                f"{name} does not earn its place: against {results['baseline']} it is significantly better on "
                f"{_listed(better, len(mine))} and significantly worse on {_listed(worse, len(mine))}."
            )
    said += [
        f"{cell['collection']}, {cell['recipe']}, seed {cell['seed']} failed: {cell['error']}"
        for cell in results["failed"]
    ]
    return [each for each in said if each]


def _where(rows: Sequence[Row], level: float, sign: int) -> list[str]:
    return [
        f"{row['collection']} ({row['difference']:+.4f}, p {p_value(row['p_holm'])})"
        for row in rows
        if row["p_holm"] < level and row["difference"] * sign > 0
    ]


def _listed(places: Sequence[str], asked: int) -> str:
    return f"{len(places)} of {asked} collections" + (f": {', '.join(places)}" if places else "")


def _of_focus(rows: Sequence[Row], results: Row) -> str:
    focus, level = results["focus"], results["level"]
    tested = [row for row in rows if row["p_holm_focus"] is not None]
    if not tested:
        return ""
    means = [row for row in results["means"] if row["judgments"] == BEST_KNOWN]
    place = next((i for i, row in enumerate(means, 1) if row["recipe"] == focus), None)
    lost = [row for row in tested if row["p_holm_focus"] < level and row["focus_difference"] < 0]
    won = Counter(row["recipe"] for row in tested if row["p_holm_focus"] < level and row["focus_difference"] > 0)
    collections = len({row["collection"] for row in tested})
    beaten = ", ".join(f"{name} on {count}" for name, count in won.most_common()) or "no recipe on any"
    losses = "; ".join(f"to {row['recipe']} on {row['collection']} ({row['focus_difference']:+.4f})" for row in lost)
    standing = f"has place {place} of {len(means)} by mean nDCG@10 over the collections, " if place else ""
    return (
        f"{focus} {standing}is significantly better than {beaten} of {collections} collections, and loses "
        f"significantly {losses or 'to none'}."
    )


def p_value(value: float | None) -> str:
    """Return a p-value as text.

    Examples
    --------
    >>> p_value(0.0002), p_value(0.0312), p_value(None)
    ('< 0.001', '0.031', '–')
    """
    return "–" if value is None else "< 0.001" if value < 0.001 else f"{value:.3f}"


def cells(row: Row, results: Row) -> dict[str, str]:
    """Return a row as text, by column."""
    level = results["level"]
    to_baseline = mark(row["difference"], row["p_holm"], level)
    to_focus = mark(row["focus_difference"], row["p_holm_focus"], level)
    texts = {
        "recipe": row["recipe"],
        "nDCG@10": f"{row['ndcg_10']:.4f}",
        "95 % interval" if results["confidence"] == 0.95 else "interval": between(
            row["low"], row["high"], "{:.4f}".format
        ),
        f"Δ to {results['baseline']}": _signed(row["difference"], to_baseline),
        "p": p_value(row["p_holm"]),
    }
    if results["focus"]:
        texts |= {f"lead of {results['focus']}": _signed(row["focus_difference"], to_focus)}
    return texts | {
        "false negatives": _false_negatives(row),
        "coverage": f"{row['coverage']:.1%}",
        "training": f"{row['train_seconds']:.0f} s",
        "memory": f"{row['memory_mb']:,.0f} MiB",
        "seeds": str(row["seed_count"]),
    }


def _false_negatives(row: Row) -> str:
    if row["false_negative_rate"] is None:
        return "–"
    low, high = (100 * row[f"false_negative_rate_{end}"] for end in ("low", "high"))
    return f"{row['false_negative_rate']:.2%} ({low:.2f} to {high:.2f})"


def _signed(value: float | None, sign: str) -> str:
    return "–" if value is None else f"{value:+.4f} {sign}".replace("-", "−")


def bucket_table(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Return a table of nDCG@10 by kind of query: header and rows; empty where there is one kind only.

    The header says of how many queries a kind is, and which are too few to conclude from.
    """
    kinds = {kind: found["queries"] for row in rows for kind, found in row["buckets"].items()}
    if len(kinds) < 2:
        return [], []
    header = ["recipe", *(bucket_name(kind, count) for kind, count in kinds.items())]
    return header, [
        [
            row["recipe"],
            *(f"{row['buckets'][kind]['ndcg_10']:.4f}" if kind in row["buckets"] else "–" for kind in kinds),
        ]
        for row in rows
    ]


def mean_table(results: Row) -> tuple[list[str], list[list[str]]]:
    """Return the means over the collections: header and rows, the best first; empty with a single collection."""
    means = {(row["recipe"], row["judgments"]): row for row in results["means"]}
    if not means or next(iter(means.values()))["collections"] < 2:
        return [], []
    names = [recipe for recipe, judgments in means if judgments == BEST_KNOWN]

    def shown(row: Row) -> str:
        return f"{row['ndcg_10']:.4f} ({between(row['low'], row['high'], '{:.4f}'.format)})"

    return ["recipe", "best known judgments", "original labels"], [
        [name, shown(means[name, BEST_KNOWN]), shown(means[name, "original"])] for name in names
    ]


def console() -> Console:
    """Return where to print: as wide as the terminal, or wide enough for the table where there is none."""
    return Console(width=None if sys.stdout.isatty() else _WIDTH)


def show(results: Row, console: Console) -> None:
    """Print an ablation, as the node ``compare_recipes`` returns it: tables, means, and what they say."""
    for collection, judgments, found in tables(results):
        texts = [cells(row, results) for row in found]
        counted = note(results, collection, judgments)
        title = f"{collection}, {judgments}: {found[0]['queries']:,} test queries. {counted}"
        console.print(_printed(title, list(texts[0]), [list(text.values()) for text in texts]))
        header, rows = bucket_table(found)
        if header:
            console.print(_printed("nDCG@10 by kind of query", header, rows))
    header, rows = mean_table(results)
    if header:
        console.print(_printed("Mean nDCG@10 over the collections", header, rows))
    for sentence in [legend(results), *sentences(results)]:
        console.print(escape(sentence), soft_wrap=True)


def _printed(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Return a table whose first row, the best, is bold."""
    made = Table(title=escape(title), title_justify="left")
    for i, name in enumerate(header):
        made.add_column(escape(name), justify="left" if i == 0 else "right", no_wrap=i == 0)
    for i, row in enumerate(rows):
        made.add_row(*map(escape, row), style="bold" if i == 0 else None)
    return made
