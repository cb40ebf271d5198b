"""The tables of an ablation as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from anmi.report.ablation_text import bucket_table, cells, legend, mean_table, note, sentences, tables


def markdown(results: Mapping[str, Any]) -> str:
    """Return an ablation as Markdown: what it says, a table per collection and judgments, means, kinds of query.

    Parameters
    ----------
    results
        As the node ``compare_recipes`` returns.
    """
    counts, machine = results["cells"], results["machine"]
    lines = [
        f"# Ablation: {results['set']}",
        "",
        f"{results['description']} Encoder {results['encoder']}, seeds {', '.join(map(str, results['seeds']))}, "
        f"{results['date']}, {machine['processor']} with {machine['cores']} cores, {machine['device']}. "
        f"{counts['finished']} cells, {counts['failed']} failed.",
        "",
        *(f"- {_escaped(sentence)}" for sentence in sentences(results)),
        "",
    ]
    header, rows = mean_table(results)
    if header:
        lines += ["## Mean over the collections", "", *_table(header, rows, bold=0), ""]
    for collection, judgments, found in tables(results):
        texts = [cells(row, results) for row in found]
        lines += [f"## {collection}, {judgments}", "", note(results, collection, judgments), ""]
        lines += [*_table(list(texts[0]), [list(text.values()) for text in texts], bold=0), ""]
        header, rows = bucket_table(found)
        if header:
            lines += ["nDCG@10 by kind of query:", "", *_table(header, rows), ""]
    return "\n".join([*lines, legend(results), ""])


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], bold: int | None = None) -> list[str]:
    """Return the lines of a table; one row may be set in bold."""
    return [
        _line(header),
        _line(["---", *["---:"] * (len(header) - 1)]),
        *(_line([f"**{_escaped(cell)}**" for cell in row] if i == bold else list(map(_escaped, row)))
          for i, row in enumerate(rows)),
    ]  # fmt: skip


def _line(values: Sequence[str]) -> str:
    return f"| {' | '.join(values)} |"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
