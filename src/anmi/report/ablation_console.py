"""What ``kedro anmi ablation`` prints."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from anmi.report.ablation_text import cells, legend, mean_table, note, sentences, tables

# Of lines that nobody's terminal breaks.
_WIDTH: Final = 160


def console() -> Console:
    """Return where to print: as wide as the terminal, or wide enough for the table where there is none."""
    return Console(width=None if sys.stdout.isatty() else _WIDTH)


def show(results: Mapping[str, Any], console: Console) -> None:
    """Print an ablation: a table per collection and judgments, the means, and what they say.

    Parameters
    ----------
    results
        As the node ``compare_recipes`` returns.
    console
        Where to.
    """
    for collection, judgments, found in tables(results):
        texts = [cells(row, results) for row in found]
        counted = note(results, collection, judgments)
        title = f"{collection}, {judgments}: {found[0]['queries']:,} test queries. {counted}"
        console.print(table(title, list(texts[0]), [list(text.values()) for text in texts]))
    header, rows = mean_table(results)
    if header:
        console.print(table("Mean nDCG@10 over the collections", header, rows))
    for sentence in [legend(results), *sentences(results)]:
        console.print(escape(sentence), soft_wrap=True)


def table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Return a table whose first row, the best, is bold."""
    made = Table(title=escape(title), title_justify="left")
    for i, name in enumerate(header):
        made.add_column(escape(name), justify="left" if i == 0 else "right", no_wrap=i == 0)
    for i, row in enumerate(rows):
        made.add_row(*map(escape, row), style="bold" if i == 0 else None)
    return made
