"""The recipe of the BM25 notebook beside the notebook's own miner, which runs here as its text has it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from rank_bm25 import BM25Okapi
from tests.mined import recipe_book
from tests.reports import class_of

from anmi.candidates import PADDING, CandidateShards
from anmi.pipelines.consistency.nodes import check_consistency
from anmi.pipelines.params import BM25Params, ConsistencyParams
from anmi.retrieval.bm25 import BM25Index
from anmi.retrieval.pool import RelatedDocuments
from anmi.retrieval.retrieve import Queries, Retrieve
from anmi.selection.recipe import Runner
from anmi.selection.rows import training_rows

ROOT = Path(__file__).parents[2]
RECIPES = yaml.safe_load((ROOT / "conf/base/recipes.yml").read_text(encoding="utf-8"))["recipes"]
NAME = "bm25_random_as_published"
DEPTH = 60


@pytest.fixture
def miner() -> Any:
    """The class of the notebook; words are parted at white space, as without NLTK."""
    return class_of("004", "HardNegativesMiner")(top_m=DEPTH, num_negatives=DEPTH)


def test_it_takes_the_candidates_of_the_notebook_and_judges_each_pair_alike(miner: Any) -> None:
    """Words of few kinds, so that scores are tied and terms stand in more than half of the documents."""
    rng = np.random.default_rng(4)
    texts = [" ".join(rng.choice([*"abcdefgh"], rng.integers(2, 9))) + f" D{i}" for i in range(300)]
    asked = [" ".join(rng.choice([*"abcdefghijk"], 3)) for _ in range(40)] + ["unknown"]
    pairs = rng.permuted(np.tile(np.arange(300, dtype=np.int32), (41, 1)), axis=1)[:, :2]
    okapi = BM25Okapi([text.lower().split() for text in texts])
    for row, query in enumerate(asked[:30]):
        # A positive near the top beside one that is seldom there.
        pairs[row, 1] = np.argsort(okapi.get_scores(query.split()))[::-1][row % 12]

    book = recipe_book(RECIPES)
    stated = book.get(NAME).settings("bm25", BM25Params()).model_copy(update={"depth": DEPTH})
    index = BM25Index.build(
        texts,
        "en",
        stated.tokenizer,
        engine=stated.engine,
        **{name: getattr(stated, name) for name in ("k1", "b", "epsilon")},
    )
    related = RelatedDocuments.unrelated(len(texts))
    retrieve = Retrieve(index, None, None, related, DEPTH, 0, 0, seed=1, measured=1000)
    ids = [f"q{row}" for row in range(len(asked))]
    nothing = np.full(len(asked), PADDING, np.int32)
    block = retrieve(Queries(ids, asked, pairs, nothing, np.zeros((len(asked), 0), np.float32)))
    shards = CandidateShards.of([block])
    checked = check_consistency(shards, NAME, book, ConsistencyParams(), stated)
    chosen = Runner(book.get(NAME), 1).run(shards.joined(checked))
    names = [f"d{i}" for i in range(len(texts))]
    rows = training_rows(chosen, names, texts, dict(zip(ids, asked, strict=True))).to_pandas()
    passed = set(zip(rows.query_id, rows.positive_id, strict=True))

    theirs = miner.build_bm25_index(texts)
    verdicts = set()
    for row, query in enumerate(asked):
        order = np.argsort(theirs.get_scores(miner.tokenize(query)))[::-1][:DEPTH]
        ours = block.documents[row][block.filled[row]].tolist()
        assert ours == [place for place in order if place not in pairs[row]], "ties and all"
        for positive in pairs[row].tolist():
            passes, negatives = miner.mine_hard_negatives(query, texts[positive], texts, theirs)
            verdicts.add(passes)
            assert passes == ((f"q{row}", f"d{positive}") in passed)
            if passes:
                assert set(negatives) - set(pairs[row].tolist()) == set(ours)
    assert verdicts == {True, False}
    drawn = rows.negative_ids.map(len)
    assert (drawn == book.get(NAME).negatives).all()
    # A positive that failed is neither a row nor a negative.
    for row in rows.itertuples():
        failing = {f"d{i}" for i in pairs[int(row.query_id[1:])]} - set(row.positive_ids)
        assert failing.isdisjoint(row.negative_ids) and failing.isdisjoint([row.positive_id])
