"""Which queries are mined: those for training, behind them dev queries for a refit, and never one for testing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from anmi.candidates import Candidates, CandidateShards
from anmi.corpus.mined import mined_dev, of_dev, of_train, to_mine, with_mined
from anmi.corpus.sources import load_collection


@pytest.fixture
def queries() -> pd.DataFrame:
    splits = ["test", "dev", "train"] * 20
    return pd.DataFrame({"query_id": [f"q{i}" for i in range(60)], "text": "a fox?", "split": splits})


def test_a_larger_share_of_dev_queries_holds_every_smaller_one(queries: pd.DataFrame) -> None:
    found = [mined_dev(with_mined(queries, share, seed=1)) for share in (0.0, 0.3, 0.6, 1.0)]
    assert [len(each) for each in found] == [0, 6, 12, 20]
    assert len(mined_dev(with_mined(queries, 1e-4, seed=1))) == 1, "none would say that no refit was asked for"
    assert found[0] < found[1] < found[2] < found[3] == set(queries.query_id[queries.split == "dev"])
    # The order of the queries is of no effect.
    assert mined_dev(with_mined(queries[::-1], 0.3, seed=1)) == found[1] != mined_dev(with_mined(queries, 0.3, seed=2))


def test_a_collection_without_dev_queries_has_none_mined(queries: pd.DataFrame) -> None:
    assert not mined_dev(with_mined(queries[queries.split != "dev"], 1.0, seed=1))


def test_training_queries_come_first_and_test_queries_never(queries: pd.DataFrame) -> None:
    asked = to_mine(with_mined(queries, 1.0, seed=1).assign(mined=True))
    assert asked.split.tolist() == ["train"] * 20 + ["dev"] * 20
    assert to_mine(queries).split.unique().tolist() == ["train"], "an earlier release mined no others"


def test_shards_are_told_apart_by_split(queries: pd.DataFrame, tmp_path: Path) -> None:
    told = with_mined(queries, 1.0, seed=1)
    ids = to_mine(told).query_id.to_numpy(np.str_)
    whole = Candidates(
        query_ids=ids,
        positives=np.arange(40, dtype=np.int32)[:, None],
        documents=np.arange(40, 80, dtype=np.int32)[:, None],
        source=np.ones((40, 1), np.uint8),
        columns={"dense": np.arange(40, dtype=np.float32)[:, None], "bm25": np.zeros((40, 1), np.float32)},
    )
    files = []
    for start in range(0, 40, 8):
        # Of five blocks the third has queries of both.
        files.append(tmp_path / f"{start}.parquet")
        files[-1].write_bytes(whole.take(slice(start, start + 8)).to_bytes())
    shards = CandidateShards.read(files)
    train, dev = of_train(shards, told), of_dev(shards, told)
    assert [len(block) for block in train] == [8, 8, 4]
    assert [len(block) for block in dev] == [4, 8, 8]
    np.testing.assert_array_equal(train.whole().columns["dense"][:, 0], np.arange(20))
    np.testing.assert_array_equal(dev.whole().query_ids, ids[20:])
    assert set(dev.only("bm25").whole().columns) == {"bm25"}
    assert of_train(shards, queries) is shards, "where no dev query is mined, nothing is looked at"


def test_a_cap_leaves_the_same_share_of_dev_queries(tmp_path: Path) -> None:
    (tmp_path / "pairs.jsonl").write_text(
        "".join(f'{{"query": "what is {i}?", "document": "the thing {i}"}}\n' for i in range(400))
    )
    place = f"pairs:{tmp_path}/pairs.jsonl"
    whole, half = (load_collection(place, subset=subset) for subset in (None, 100))
    assert whole.subset_share == 1
    train = int((whole.queries.split == "train").sum())
    assert half.subset_share == 100 / train
    mined = to_mine(with_mined(half.queries, half.subset_share, seed=42)).split.value_counts()
    dev = int((whole.queries.split == "dev").sum())
    assert mined.to_dict() == {"train": 100, "dev": round(dev * 100 / train)}
    assert (half.queries.split == "dev").sum() == dev, "all of them choose the epochs"
