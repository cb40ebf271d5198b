"""What stays when the same is asked in other words."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from anmi.errors import AnmiError
from anmi.evaluation.paraphrases import paraphrases, robustness


def test_wordings_come_from_the_metadata_once_each() -> None:
    queries = pd.DataFrame({
        "query_id": ["a", "b", "c"], "text": ["x", "y", "z"],
        "metadata": ['{"alt": ["x", "xx", "xx", " ", "x x"]}', "{}", ""],
    })  # fmt: skip
    assert paraphrases(queries).values.tolist() == [["a#0", "a", "xx"], ["a#1", "a", "x x"]]
    assert paraphrases(queries[1:]).columns.tolist() == ["paraphrase_id", "query_id", "text"]
    with pytest.raises(AnmiError, match=r'metadata\.alt of query "a" was expected to be a list'):
        paraphrases(queries.assign(metadata='{"alt": "xx"}'))


def test_against_a_comparison_one_by_one() -> None:
    rng = np.random.default_rng(0)
    names = [f"q{i}" for i in range(8)]
    words = pd.DataFrame(
        [(f"{name}#{i}", name, "?") for name in names[:-1] for i in range(rng.integers(1, 4))],
        columns=["paraphrase_id", "query_id", "text"],
    )
    found = {name: rng.permutation(25)[: rng.integers(3, 20)].tolist() for name in [*names, *words.paraphrase_id]}

    def run(of: list[str]) -> pd.DataFrame:
        return pd.DataFrame(
            [(name, f"d{d}", rank) for name in of for rank, d in enumerate(found[name], 1)],
            columns=["query_id", "document_id", "rank"],
        )

    relevant = {name: set(rng.permutation(25)[:2].tolist()) for name in names}
    qrels = pd.DataFrame(
        [(q, f"d{d}") for q, each in relevant.items() for d in each], columns=["query_id", "document_id"]
    )
    table = robustness(run(names), run(words.paraphrase_id.tolist()), words, qrels)

    def mrr(name: str, query: str) -> float:
        return next((1 / rank for rank, d in enumerate(found[name][:10], 1) if d in relevant[query]), 0.0)

    assert table.index.tolist() == names[:-1]
    for query, line in table.iterrows():
        others = words.paraphrase_id[words.query_id == query].tolist()
        top = set(found[str(query)][:10])
        ranks = [mrr(name, str(query)) for name in others]
        assert line.overlap_10 == pytest.approx(np.mean([len(top & set(found[n][:10])) / len(top) for n in others]))
        assert line.mrr_10 == pytest.approx(mrr(str(query), str(query)))
        assert line.mrr_10_paraphrased == pytest.approx(np.mean(ranks))
        assert line.mrr_10_worst == pytest.approx(min(*ranks, line.mrr_10))
    assert 0 < table.overlap_10.mean() < 1 and table.mrr_10_worst.mean() < table.mrr_10_paraphrased.mean()
