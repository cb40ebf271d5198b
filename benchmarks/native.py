"""What the corpus's own encoder and a hybrid bring, beside BM25 and `static`.

Cells are those of ``kedro anmi ablate`` (matrices ``native_…`` and ``static_…`` of
benchmarks/ablation.py): a recipe trains as a run does and is measured alone and with BM25, by what
training saw of a query's documents: ``labelled`` (a training query's label names one), ``new`` (all
are held out of mining, training and the encoder's vocabulary), ``unlabelled`` (the others). Cells
that are there are kept, so the script may be interrupted. ``--collect`` trains nothing, and takes
what is there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import pandas as pd

from ablation import MAIN, MATRICES, WORK, newest, run
from common import METRIC, ROOT, fill, load, markdown, mean, paired, parser, save

README, PAGE = ROOT / "README.md", ROOT / "docs" / "results.md"
# Rows of the tables: encoder, labels and system, and how they are called.
SHOWN: Final = {
    ("corpus", "all", "bm25"): "BM25",
    ("corpus", "all", "network"): "network, untrained",
    ("corpus", "all", "bm25_and_network"): "BM25 + network, untrained",
    ("corpus", "all", "zero_shot"): "`corpus` before training",
    ("corpus", "none", "anmi"): "`corpus`, trained without labels",
    ("corpus", "none", "hybrid"): "all parts, without labels",
    ("corpus", "all", "anmi"): "`corpus`, trained",
    ("corpus", "all", "hybrid"): "**all parts (default)**",
}
BUCKETS: Final = ("all", "labelled", "unlabelled", "new")


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument(
        "--collect", action="store_true", help="only write the result, from cells that are there"
    )
    collect = arguments.parse_args().collect
    old = load("native")
    names = [name for name in MATRICES if name.startswith(("native_", "static_"))]
    # A table after each seed, so that what is there early can be collected.
    for name, most in () if collect else ((name, most) for name in names for most in (1, 2, 3)):
        run(name, most)
    rows, tests = [], []
    about: dict[str, Any] = {"failed": [], "from": {}, "kept": []}
    for name in names:
        if (found := newest(name)) is not None:
            about |= {key: found[0][key] for key in ("date", "machine", "versions")}
            about["failed"] += found[0]["failed"]
            about["from"] |= found[0]["from"]
            more = of_matrix(name, *found)
            measured = {cell["collection"] for cell in found[0]["cells"]}
            more = tuple(
                [*rows_now, *(row for row in old[kind] if older(row, name, measured))]
                for rows_now, kind in zip(more, ("rows", "tests"), strict=True)
            )
            about["kept"] += sorted({*MATRICES[name].collections} - measured)
        else:
            more = tuple(
                [row for row in old[kind] if kept(row, name)] for kind in ("rows", "tests")
            )
            about["kept"] += [name] * bool(more[0])
        rows, tests = rows + more[0], tests + more[1]
    document = {"about": about, "rows": rows, "tests": tests}
    save("native", document, old if about["kept"] else None)
    fill(README, "native.py", table_of(rows, MAIN, brief))
    fill(PAGE, "native.py", table_of(rows, None, whole))


def of_matrix(name: str, results: dict[str, Any], queries: pd.DataFrame) -> Any:
    """Return rows and paired tests of a matrix, by completed judgments where a collection has them."""
    rows, tests = [], []
    encoder = "corpus" if name.startswith("native_") else "static"
    labels = "none" if name.endswith("_unlabelled") else "all"
    for collection, both in queries.groupby("collection", sort=False):
        kind = "completed" if (both.judgments == "completed").any() else "original"
        measured = both[both.judgments == kind]
        cells = [cell for cell in results["cells"] if cell["collection"] == collection]
        seconds = [
            json.loads((WORK / name / cell["folder"] / "cell.json").read_text())["seconds"]
            for cell in cells
        ]
        named = {METRIC: "anmi"} | {
            f"{system}_{METRIC}": system
            for system in ("hybrid", "bm25", "zero_shot", "network", "bm25_and_network")
            if f"{system}_{METRIC}" in measured
        }
        values = {}
        # Each seed holds out other documents, and a query may stand in one bucket and in another.
        for bucket in BUCKETS:
            part = measured if bucket == "all" else measured[measured.documents == bucket]
            values[bucket] = part.groupby("query_id")[list(named)].mean().rename(columns=named)
        made = {
            "collection": collection,
            "encoder": encoder,
            "labels": labels,
            "judgments": kind,
            "seeds": len(cells),
            "seconds": round(sum(seconds) / len(seconds)),
        }
        rows += [made | row for row in rows_of(values)]
        tests += [made | row for row in tests_of(values)]
    return rows, tests


def older(row: dict[str, Any], name: str, measured: set[str]) -> bool:
    """Tell whether an earlier row is of a collection of the matrix that was not measured again."""
    labels = "none" if name.endswith("_unlabelled") else "all"
    encoder = "corpus" if name.startswith("native_") else "static"
    same = (row["encoder"], row["labels"]) == (encoder, labels)
    return same and row["collection"] in {*MATRICES[name].collections} - measured


def kept(row: dict[str, Any], name: str) -> bool:
    """Tell whether an earlier row stands for a matrix that was not run: `static` is as it was, `corpus` is not."""
    same = name[:6] == row["encoder"] == "static"
    return same and row["collection"] in MATRICES[name].collections


def rows_of(values: dict[str, pd.DataFrame]) -> Iterator[dict[str, Any]]:
    """Yield a row per system and bucket."""
    for name, system in ((name, system) for system in values["all"] for name in BUCKETS):
        chosen = values[name][system].dropna()
        if chosen.empty:
            continue
        yield {"system": system, "bucket": name, **mean(chosen)}


def tests_of(values: dict[str, pd.DataFrame]) -> Iterator[dict[str, Any]]:
    """Yield paired tests: the hybrid against BM25 and the encoder, that against itself before training."""
    pairs = [
        ("hybrid", "bm25"),
        ("hybrid", "bm25_and_network"),
        ("hybrid", "network"),
        ("hybrid", "anmi"),
        ("anmi", "zero_shot"),
    ]
    for (first, second), name in (
        (pair, name) for pair in pairs for name in BUCKETS if {*pair} <= {*values[name]}
    ):
        chosen = values[name][[first, second]].dropna()
        if len(chosen) < 2:
            continue
        about = {"system": first, "against": second, "bucket": name, "queries": len(chosen)}
        yield about | paired(chosen[first], chosen[second])


def brief(
    of: dict[str, dict[str, Any]], names: Sequence[str] = BUCKETS[2:], between: str = " / "
) -> str:
    """Return nDCG@10 on unlabelled and on new documents."""
    return (
        between.join(
            f"{of[name]['ndcg_10']:.3f}".lstrip("0") if name in of else "–" for name in names if of
        )
        or "–"
    )


def whole(of: dict[str, dict[str, Any]]) -> str:
    """Return nDCG@10 over all test queries, and by what training saw."""
    return brief(of, BUCKETS, "/")


def table_of(
    rows: list[dict[str, Any]],
    chosen: Sequence[str] | None,
    cell: Callable[[dict[str, dict[str, Any]]], str],
) -> str:
    """Return a table with a row per system and a column per collection, with the numbers of its queries."""
    found = (
        pd.DataFrame(rows)
        .set_index(["encoder", "labels", "system", "collection", "bucket"])
        .to_dict("index")
    )
    collections = [
        name
        for name in dict.fromkeys(row["collection"] for row in rows)
        if not chosen or name in chosen
    ]

    def buckets(collection: str, *key: str) -> dict[str, dict[str, Any]]:
        return {
            name: found[*key, collection, name]
            for name in BUCKETS
            if (*key, collection, name) in found
        }

    heads = ["system"]
    for name in collections:
        of = buckets(name, "corpus", "all", "bm25")
        heads.append(
            f"{name}"
            f" ({' / '.join(str(of[each]['queries'] if each in of else 0) for each in BUCKETS[2:])})"
        )
    lines = [
        [called, *(cell(buckets(name, *key)) for name in collections)]
        for key, called in SHOWN.items()
    ]
    return markdown(heads, [line for line in lines if {*line[1:]} != {"–"}])


if __name__ == "__main__":
    main()
