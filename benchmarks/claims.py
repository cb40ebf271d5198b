"""What reports claim of a method beside what was measured for exactly that comparison: docs/claims.md.

Runs the matrix ``claims`` (cells that are there are kept, so it may be interrupted; ``--collect`` runs none), and
compares each system with what it is claimed over: nDCG@10 on test, the mean over seeds per query, paired by query.
Improvements are in percent of the other system's mean, as reports give them. Consistency, HANS and DNH are taken from
the results of their own scripts. Run from the repository's root:

    python benchmarks/claims.py
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pandas as pd

from ablation import METRIC, ROOT, newest, run
from anmi.evaluation.significance import compare

RESULTS: Final = ROOT / "benchmarks" / "results"
PAGE: Final = ROOT / "docs" / "claims.md"
# Between these lines of the page.
MARKS: Final = ("<!-- made by benchmarks/claims.py -->\n", "<!-- end -->")
SET: Final = "claims"
BUCKETS: Final = ("all", "unlabelled")
RESAMPLES: Final = 10_000


class Claim(NamedTuple):
    """A system, what it is claimed over, and by how much, in percent."""

    name: str
    system: str
    over: str
    claimed: str


IMPROVEMENTS: Final = (
    Claim("positive-relative thresholds (NV-Retriever)", "nv_retriever", "naive_top", "+3 to +5 %"),
    Claim("the same, absolute threshold", "nv_abs", "naive_top", "below NV-Retriever's"),
    Claim("the same, margin", "nv_margin", "naive_top", "below NV-Retriever's"),
    Claim("debiased loss", "debiased", "naive_top", "+4 to +6 %"),
    Claim("debiased loss, learned share", "debiased_learned", "naive_top", "+4 to +6 %"),
    Claim("ProGCL, weights", "progcl_weight", "naive_top", "+2 to +4 %"),
    Claim("ProGCL, mixing", "progcl_mix", "naive_top", "+2 to +4 %"),
    Claim("ProGCL, beta mixture", "progcl_beta", "naive_top", "+2 to +4 %"),
    Claim("SimANS, by scores", "simans", "naive_top", "+2 to +3 %"),
    Claim("SimANS, by ranks", "simans_rank", "naive_top", "+2 to +3 %"),
    Claim("denoising by a cross-encoder", "rocketqa", "naive_top", "+12 to +18 %"),
    Claim("learnable temperature", "naive_top", "fixed_temperature", "+1 to +2 %"),
    Claim("curriculum on ANMI 2.0", "anmi_2_0_curriculum", "anmi_2_0", "+5 to +8 %"),
    Claim("curriculum on ANMI 2.1", "anmi_2_1_curriculum", "anmi_2_1", "+5 to +8 %"),
    Claim("curriculum of a bandit", "anmi_bandit", "anmi_labels_only", "+5 to +8 %"),
    Claim("ANMI 2.1 over 2.0", "anmi_2_1", "anmi_2_0", "+10 to +18 %"),
    Claim("HANS", "hans", "naive_top", "better on hard queries"),
    Claim("HANS, the report's formulas", "hans_formulas", "naive_top", "better on hard queries"),
    Claim("HANS, as published", "hans_as_published", "naive_top", "better on hard queries"),
    Claim("ANMI 2.0, as published", "anmi_2_0_as_published", "naive_top", "better"),
    Claim("ANMI 2.1, as published", "anmi_2_1_as_published", "anmi_2_0_as_published", "+10 to +18 %"),
    Claim("denoising as published", "denoising_as_published", "naive_top", "+12 to +18 %"),
    Claim("fused judge, the nearest clean ones", "clean_top", "naive_top", "ours"),
    Claim("fused judge, back-off and barring", "anmi_labels_only", "naive_top", "ours"),
)
SHARES: Final = (
    Claim("share of false negatives, not denoised", "naive_top", "", "70 %"),
    Claim("share of false negatives, denoised", "rocketqa", "", "15 to 20 %"),
    Claim("share of false negatives, fused judge", "clean_top", "", "ours"),
    Claim("share of false negatives, default's labels", "anmi_labels_only", "", "ours"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=ROOT / "data" / "benchmarks" / "ablation")
    parser.add_argument("--collect", action="store_true", help="only write the result, from cells that are there")
    arguments = parser.parse_args()
    if not arguments.collect:
        run(SET, arguments.work)
    found = newest(SET, arguments.work)
    if found is None:
        raise SystemExit(f"no run of the set {SET} in {arguments.work}: run it without --collect")
    results, queries = found
    rows = [*improvements(queries), *shares(results)]
    about = {key: results[key] for key in ("date", "machine", "versions", "from", "failed")}
    # What an earlier run measured on other collections stays; `about` says what is new.
    committed = json.loads((RESULTS / "letter.json").read_text(encoding="utf-8"))["rows"]
    new, of_others = {row["collection"] for row in rows}, list(of_other_scripts())
    others = {(row["claim"], row["collection"]) for row in of_others}
    rows += [
        row for row in committed
        if row["collection"] not in new and (row["claim"], row["collection"]) not in others
    ] + of_others  # fmt: skip
    document = {"about": about, "rows": rows}
    (RESULTS / "letter.json").write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    write_page(rows)


def improvements(queries: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield a row per claim, collection, judgments and bucket."""
    for (collection, judgments), cells in queries.groupby(["collection", "judgments"], sort=False):
        mean = cells.pivot_table(METRIC, "query_id", "recipe")
        bucket = cells.drop_duplicates("query_id").set_index("query_id")["documents"].reindex(mean.index)
        seeds = cells.groupby("recipe").seed.nunique()
        for claim in IMPROVEMENTS:
            if not {claim.system, claim.over} <= set(mean.columns):
                continue
            for name in BUCKETS:
                chosen = mean if name == "all" else mean[bucket == name]
                pair = chosen[[claim.system, claim.over]].dropna()
                other = float(pair[claim.over].mean())
                if pair.empty or other == 0:
                    continue
                against = compare(
                    pair[claim.system].to_numpy(), pair[claim.over].to_numpy(), seed=1, resamples=RESAMPLES
                )
                yield {
                    "claim": claim.name, "system": claim.system, "over": claim.over, "collection": collection,
                    "encoder": "static", "judgments": judgments, "bucket": name, "measure": f"relative {METRIC}, %",
                    "claimed": claim.claimed, "measured": percent(against.difference, other),
                    "low": percent(against.low, other), "high": percent(against.high, other),
                    "p": round(against.p_value, 4), "seeds": int(seeds[[claim.system, claim.over]].min()),
                    "queries": len(pair),
                }  # fmt: skip


def write_page(rows: list[dict[str, Any]]) -> None:
    """Put the tables into the page."""
    before, rest = PAGE.read_text(encoding="utf-8").split(MARKS[0])
    PAGE.write_text(before + MARKS[0] + table(rows) + MARKS[1] + rest.split(MARKS[1], 1)[1], encoding="utf-8")


def percent(part: float, whole: float) -> float:
    """Return a share in percent."""
    return round(100 * part / whole, 2)


def shares(results: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield shares of false negatives where the collection's truth tells them."""
    for claim in SHARES:
        for row in results["rows"]:
            share = row["facts"].get("false_negative_rate")
            if (row["system"], row["judgments"], row["bucket"]) != (claim.system, "original", "all") or share is None:
                continue
            yield {
                "claim": claim.name, "system": claim.system, "over": "", "collection": row["collection"],
                "encoder": "static", "judgments": "equivalents", "bucket": "all",
                "measure": "false negatives, %", "claimed": claim.claimed, "measured": percent(share, 1),
                "low": None, "high": None, "p": None, "seeds": row["seeds"], "queries": row["queries"],
            }  # fmt: skip


def of_other_scripts() -> Iterator[dict[str, Any]]:
    """Yield what other benchmarks have measured of a claim."""
    lexical = json.loads((RESULTS / "lexical_miner.json").read_text(encoding="utf-8"))
    common = {"over": "", "judgments": "", "bucket": "all", "low": None, "high": None, "p": None, "seeds": 1}
    for row in lexical["rows"]:
        if row["case"] == "consistency":
            yield common | {
                "claim": f"queries that pass the consistency filter, tokenizer {row['tokenizer']}",
                "system": "bm25_random", "collection": "ko_pairs", "encoder": "bm25", "measure": "queries, %",
                "claimed": "32.5 %", "measured": percent(row["pass_rate"], 1), "queries": row["queries"],
            }  # fmt: skip
    hans = json.loads((RESULTS / "hans.json").read_text(encoding="utf-8"))
    for row in hans["rows"]:
        if against := row.get("against_baseline"):
            yield common | {
                "claim": f"HANS over the same encoders ({row['encoders']})", "system": row["arm"], "over": "baseline",
                "collection": row["collection"], "encoder": hans["encoder"], "measure": f"{hans['metric']}, points",
                "claimed": "better on all metrics", "measured": percent(against["difference"], 1),
                "low": percent(against["low"], 1), "high": percent(against["high"], 1), "p": against["p_value"],
                "seeds": len(row["seeds"]), "queries": int(row["thirds"]["all"]["queries"]),
            }  # fmt: skip
    hardening = json.loads((RESULTS / "dnh.json").read_text(encoding="utf-8"))["rows"]
    base = {row["collection"]: row for row in hardening if row["recipe"] == "dnh_random"}
    for row in hardening:
        if row["recipe"] != "dnh_random":
            yield common | {
                "claim": "DNH: factuality (AUC) over random negatives", "system": row["recipe"], "over": "dnh_random",
                "collection": row["collection"], "encoder": "static", "measure": "AUC, points", "claimed": "better",
                "measured": percent(row["factuality_auc"] - base[row["collection"]]["factuality_auc"], 1),
                "seeds": row["seed_count"], "queries": None,
            }  # fmt: skip


def table(rows: list[dict[str, Any]]) -> str:
    """Return the page's tables, one per measure; of improvements, the judgments that know most."""
    parts = []
    for measure in dict.fromkeys(row["measure"] for row in rows):
        chosen = [row for row in rows if row["measure"] == measure]
        completed = {row["collection"] for row in chosen if row["judgments"] == "completed"}
        chosen = [row for row in chosen if row["collection"] not in completed or row["judgments"] != "original"]
        lines = [
            f"### {measure}", "",
            "| claim | system | over | collection | queries | claimed | measured | 95 % interval | p |",
            "|---|---|---|---|---|---|---|---|---|",
        ]  # fmt: skip
        for row in sorted(chosen, key=lambda row: (row["claim"], row["collection"], row["bucket"])):
            interval = "" if row["low"] is None else f"{row['low']:+.1f} to {row['high']:+.1f}"
            p = "" if row["p"] is None else f"{row['p']:.4f}"
            over, which = f"`{row['over']}`" if row["over"] else "", row["bucket"]
            lines.append(
                f"| {row['claim']} | `{row['system']}` | {over} | {row['collection']} | {which} | {row['claimed']} | "
                f"{row['measured']:+.1f} | {interval} | {p} |"
            )
        parts.append("\n".join(lines) + "\n")
    return "\n" + "\n".join(parts) + "\n"


if __name__ == "__main__":
    main()
