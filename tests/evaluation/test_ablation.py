"""The table of an ablation against a slow, readable account of the same."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest

from anmi.evaluation.ablation import BEST_KNOWN, COMPLETED, ORIGINAL, Design, best_known, means, table

RECIPES = ("plain", "better", "same")
DESIGN = Design(
    encoder="static", recipes=RECIPES, collections=("a", "b"), baseline="plain", focus="better", resamples=2000
)


def queries_of(collection: str, judgments: str, n: int = 40, seeds: tuple[int, ...] = (1, 2)) -> pd.DataFrame:
    """A query's own difficulty, and a little chance; `better` is better by 0.1."""
    rng = np.random.default_rng(3)
    base = rng.random(n) * 0.6
    rows = []
    for recipe, seed in itertools.product(RECIPES, seeds):
        values = base + (0.1 if recipe == "better" else 0.0) + rng.normal(0, 0.05, n)
        rows += [
            {"collection": collection, "recipe": recipe, "seed": seed, "judgments": judgments, "query_id": f"q{i:02d}",
             "documents": "seen" if i % 4 == 0 else "unseen", "hardness": "hard" if i < 9 else "easy", "ndcg@10": value}
            for i, value in enumerate(np.clip(values, 0, 1))
        ]  # fmt: skip
    return pd.DataFrame(rows)


def cells_of(queries: pd.DataFrame) -> pd.DataFrame:
    cells = queries[["collection", "recipe", "seed"]].drop_duplicates(ignore_index=True)
    return cells.assign(
        false_negative_rate=[np.nan if recipe == "plain" else 0.1 for recipe in cells.recipe],
        false_negative_rate_low=0.05, false_negative_rate_high=0.2,
        false_negative_rate_from="equivalents", coverage=0.9,
        rows=10, promoted=0, train_seconds=[float(seed) for seed in cells.seed], search_seconds=1.0, memory_mb=100.0,
    )  # fmt: skip


@pytest.fixture(scope="module")
def queries() -> pd.DataFrame:
    return pd.concat([queries_of("a", ORIGINAL), queries_of("a", COMPLETED), queries_of("b", ORIGINAL)])


@pytest.fixture(scope="module")
def rows(queries: pd.DataFrame) -> list[dict]:
    # Cells finish in any order.
    return table(cells_of(queries), queries.sample(frac=1, random_state=1), DESIGN)


def test_a_row_per_collection_judgments_and_recipe(rows: list[dict]) -> None:
    keys = [(row["collection"], row["judgments"], row["recipe"]) for row in rows]
    assert keys == [(c, j, r) for c, j in (("a", COMPLETED), ("a", ORIGINAL), ("b", ORIGINAL)) for r in RECIPES]
    assert {row["seed_count"] for row in rows} == {2}
    plain = rows[0]
    assert (plain["false_negative_rate"], plain["p_holm"], plain["difference"], plain["train_seconds"]) == (
        None,
        None,
        None,
        1.5,
    )
    assert rows[1]["focus_difference"] is None
    assert rows[2]["false_negative_rate"] == 0.1


def test_means_and_intervals_are_those_of_a_slow_bootstrap(rows: list[dict], queries: pd.DataFrame) -> None:
    row = rows[-2]
    mine = queries[(queries.collection == "b") & (queries.recipe == "better")]
    per_query = [float(np.mean(mine.loc[mine.query_id == query, "ndcg@10"])) for query in sorted(set(mine.query_id))]
    assert row["ndcg_10"] == pytest.approx(np.mean(per_query), abs=1e-12)
    rng = np.random.default_rng(0)
    drawn = sorted(np.mean([per_query[rng.integers(40)] for _ in range(40)]) for _ in range(2000))
    assert row["low"] == pytest.approx(drawn[50], abs=0.01)
    assert row["high"] == pytest.approx(drawn[1949], abs=0.01)
    seeds = [mine.loc[mine.seed == seed, "ndcg@10"].mean() for seed in (1, 2)]
    assert row["spread"] == pytest.approx(abs(seeds[0] - seeds[1]) / np.sqrt(2))
    seen = [value for place, value in enumerate(per_query) if place % 4 == 0]
    assert row["buckets"]["seen"] == {"queries": 10, "ndcg_10": pytest.approx(np.mean(seen))}
    assert row["buckets"]["hard"] == {"queries": 9, "ndcg_10": pytest.approx(np.mean(per_query[:9]))}
    assert set(row["buckets"]) == {"seen", "unseen", "hard", "easy"}


def test_p_values_are_those_of_flipped_signs_corrected_by_holm(rows: list[dict], queries: pd.DataFrame) -> None:
    mine = [row for row in rows if row["collection"] == "b"]
    values = {
        name: queries[(queries.collection == "b") & (queries.recipe == name)].groupby("query_id")["ndcg@10"].mean()
        for name in RECIPES
    }

    def slow(a: str, b: str) -> float:
        difference = (values[a] - values[b]).to_numpy()
        rng = np.random.default_rng(0)
        hits = sum(
            abs(np.mean(difference * rng.choice([-1, 1], len(difference)))) >= abs(difference.mean()) - 1e-12
            for _ in range(2000)
        )
        return (hits + 1) / 2001

    raw = {name: slow(name, "plain") for name in ("better", "same")}
    # Of two tests the smaller counts twice, and the larger is no smaller than that.
    first, second = sorted(raw, key=raw.get)
    expected = {first: min(1, 2 * raw[first])}
    expected[second] = max(raw[second], expected[first])
    for row in mine:
        if row["recipe"] != "plain":
            assert row["p_holm"] == pytest.approx(expected[row["recipe"]], abs=0.04)
            assert row["difference"] == pytest.approx((values[row["recipe"]] - values["plain"]).mean())
    by_name = {row["recipe"]: row for row in mine}
    assert by_name["better"]["p_holm"] < 0.01
    assert by_name["plain"]["focus_difference"] == pytest.approx(by_name["better"]["difference"])
    assert by_name["plain"]["p_holm_focus"] < 0.01


def test_means_over_collections_count_them_alike(queries: pd.DataFrame, rows: list[dict]) -> None:
    found = {(row["recipe"], row["judgments"]): row for row in means(queries, DESIGN)}
    of = {(row["collection"], row["judgments"], row["recipe"]): row["ndcg_10"] for row in rows}
    best = found["better", BEST_KNOWN]
    assert best["ndcg_10"] == pytest.approx((of["a", COMPLETED, "better"] + of["b", ORIGINAL, "better"]) / 2)
    assert best["low"] < best["ndcg_10"] < best["high"]
    assert next(iter(found)) == ("better", BEST_KNOWN)
    # A recipe that failed on one collection has no mean.
    partial = queries[(queries.collection == "a") | (queries.recipe != "same")]
    assert {row["recipe"] for row in means(partial, DESIGN)} == {"plain", "better"}


def test_the_interval_of_a_mean_is_as_wide_as_its_collections_tell(queries: pd.DataFrame) -> None:
    row = next(row for row in means(queries, DESIGN) if (row["recipe"], row["judgments"]) == ("better", ORIGINAL))
    mine = queries[(queries.judgments == ORIGINAL) & (queries.recipe == "better")]
    values = [part.groupby("query_id")["ndcg@10"].mean() for _, part in mine.groupby("collection")]
    error = np.sqrt(sum(part.var(ddof=0) / len(part) for part in values)) / len(values)
    assert row["high"] - row["low"] == pytest.approx(2 * 1.96 * error, rel=0.15)
    # Of one query nothing can be resampled.
    one = queries[(queries.collection == "b") | (queries.query_id == mine[mine.collection == "a"].query_id.iloc[0])]
    assert all(np.isnan(row["low"]) for row in means(one, DESIGN))


def test_the_best_known_judgments_are_the_completed_ones(rows: list[dict]) -> None:
    assert {(row["collection"], row["judgments"]) for row in best_known(rows)} == {("a", COMPLETED), ("b", ORIGINAL)}


def test_what_failed_leaves_the_others_comparable(queries: pd.DataFrame) -> None:
    left = queries[(queries.recipe != "plain") & (queries.collection == "b")]
    found = table(cells_of(left), left, DESIGN)
    assert [row["recipe"] for row in found] == ["better", "same"]
    assert all(row["p_holm"] is None for row in found)
    assert found[1]["p_holm_focus"] is not None
    assert table(cells_of(left[:0]), left[:0], DESIGN) == []
