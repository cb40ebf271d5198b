"""The recipes of the project beside their controls: the set ``judged_by_evidence``, by the command that users have.

Cells that are there are kept, so the script may be interrupted. The table of docs/results.md is made from the result.
Run from the repository's root (``--readme`` makes nothing but that table, from the result that is there):

    python benchmarks/ablation.py
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from anmi.report.ablation import bucket_table, cells, legend, mean_table, note, sentences, tables

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks" / "results" / "ablation.json"
TABLE = RESULT.with_suffix(".md")
PAGE = ROOT / "docs" / "results.md"
# Between these lines of the page.
MARKS = ("<!-- made by benchmarks/ablation.py -->\n", "<!-- end -->")
# Heading, collection and judgments.
COLUMNS = (
    ("scifact", "scifact", "original"), ("api_docs, completed", "api_docs", "completed"),
    ("WebNLG, completed", "kg_webnlg/beir_en", "completed"), ("WebNLG, original", "kg_webnlg/beir_en", "original"),
    ("medquad", "medquad", "original"),
)  # fmt: skip
TRUE_SHARE = ("relevant in truth, WebNLG", "kg_webnlg/beir_en", "completed")
ROWS = (
    "collection", "encoder", "recipe", "seed_count", "queries", "judgments", "ndcg_10", "low", "high", "spread",
    "baseline", "difference", "p_holm", "focus", "focus_difference", "p_holm_focus", "false_negative_rate",
    "false_negative_rate_low", "false_negative_rate_high",
    "false_negative_rate_from", "without", "coverage", "rows", "promoted", "train_seconds", "search_seconds",
    "memory_mb", "buckets",
)  # fmt: skip
KEPT = ("date", "machine", "versions", "set", "description", "seeds", "level", "confidence", "resamples", "from")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", default="judged_by_evidence")
    parser.add_argument("--work", type=Path, default=ROOT / "data" / "benchmarks" / "ablation")
    parser.add_argument("--page", action="store_true", help="only make the table of docs/results.md")
    arguments = parser.parse_args()
    if arguments.page:
        write_page(json.loads(RESULT.read_text(encoding="utf-8")))
        return
    kedro = Path(sys.executable).with_name("kedro")
    environment = os.environ | {"ANMI_DATA_ROOT": str(arguments.work.resolve())}
    command = [str(kedro), "run", "--pipelines", "ablation", "--params", f"ablation.set={arguments.set}"]
    done = subprocess.run(command, cwd=ROOT, env=environment, check=False)
    versions = sorted((arguments.work / "ablation" / "ablation_results.json").glob("*/ablation_results.json"))
    if not versions or json.loads(versions[-1].read_text(encoding="utf-8"))["set"] != arguments.set:
        sys.exit(done.returncode or 1)
    results = json.loads(versions[-1].read_text(encoding="utf-8"))
    document = {name: results[name] for name in KEPT} | {
        "rows": [{name: rounded(row[name]) for name in ROWS} for row in results["rows"]],
        "means": [{name: rounded(value) for name, value in row.items()} for row in results["means"]],
        "failed": results["failed"],
    }
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    TABLE.write_text(markdown(results), encoding="utf-8")
    write_page(document)
    # A cell that failed stands in the file; whoever runs this is to notice.
    sys.exit(done.returncode)


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


def write_page(document: Mapping[str, Any]) -> None:
    """Put the table of a result into the page."""
    text = PAGE.read_text(encoding="utf-8")
    start, end = map(re.escape, MARKS)
    PAGE.write_text(
        re.sub(f"({start}).*?({end})", lambda found: found[1] + page_table(document) + found[2], text, flags=re.S),
        encoding="utf-8",
    )


def page_table(document: Mapping[str, Any]) -> str:
    """Return nDCG@10 of every recipe, the best mean first; ▼ where the focus is significantly better.

    Parameters
    ----------
    document
        The result: ``rows``, ``means`` and ``level``.
    """
    found = {(row["recipe"], row["collection"], row["judgments"]): row for row in document["rows"]}
    header = ["recipe", *(name for name, *_ in COLUMNS), "mean", TRUE_SHARE[0], "training, s"]
    lines = [header, ["---"] * len(header)]
    for mean in (each for each in document["means"] if each["judgments"] == "best known"):
        recipe = mean["recipe"]
        values = [marked(found[recipe, *place], document["level"]) for _, *place in COLUMNS]
        rate = found[recipe, *TRUE_SHARE[1:]]["false_negative_rate"]
        # Of a collection once, by whatever judgments it is scored.
        seconds = {row["collection"]: row["train_seconds"] for key, row in found.items() if key[0] == recipe}
        lines.append([
            f"`{recipe}`", *values, f"{mean['ndcg_10']:.3f}", "–" if rate is None else f"{100 * rate:.1f} %",
            f"{sum(seconds.values()) / len(seconds):.0f}",
        ])  # fmt: skip
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines).replace("| --- ", "|---").replace("--- |", "---|")


def marked(row: Mapping[str, Any], level: float) -> str:
    """Return a mean with its mark."""
    behind = row["p_holm_focus"] is not None and row["p_holm_focus"] < level and row["focus_difference"] > 0
    return f"{row['ndcg_10']:.3f}" + (" ▼" if behind else "")


def rounded(value: object) -> object:
    """Round to five decimals, in depth."""
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    return round(value, 5) if isinstance(value, float) else value


if __name__ == "__main__":
    main()
