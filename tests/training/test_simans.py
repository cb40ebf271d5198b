"""Draws of negatives in training."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tests.mined import row as any_row
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from anmi import seeds
from anmi.candidates import PADDING, Candidates
from anmi.retrieval.sparse.model import inference_free
from anmi.selection.steps.samplers import row_keys
from anmi.selection.steps.simans import SimAns, log_chances
from anmi.training.batch import Row, Tokeniser
from anmi.training.losses.drawn import LearnableSimAns
from anmi.training.sampling import InTurn

GAPS = range(100, 900, 50)


def row(number: int) -> Row:
    """A row whose negatives are called by row, place and gap."""
    names = tuple(f"{number}:{place}:{gap}" for place, gap in enumerate(GAPS))
    judged = {"elo": (0.0, tuple(-float(gap) for gap in GAPS)), "cross": (1.0, (0.5,) * len(GAPS))}
    return any_row(f"q{number}", "document", names, judged=judged)


ROWS = [row(number) for number in range(3)]


def test_positives_without_a_row_have_their_turn_and_judged_ones_stay():
    known = pd.DataFrame({"query_id": "q", "document_id": [f"d{n}" for n in range(20)], "text": "of the document"})
    rows = [replace(ROWS[0], query_id="q", positive_id=f"d{n}", judged={}) for n in (3, 7, 9)]
    rows += [replace(rows[0], positive_id="promoted"), replace(rows[0], judged=ROWS[0].judged)]
    sampler = InTurn(lambda numbers, step: [rows[number] for number in numbers], rows, known, seed=1, steps=2)
    epochs = [[row.positive_id for row in sampler(np.arange(5), step)] for step in range(0, 14, 2)]
    assert all(len(set(shown[:3])) == 3 and shown[3:] == ["promoted", "d3"] for shown in epochs)
    assert {name for shown in epochs for name in shown[:3]} == set(known.document_id)
    assert [row.positive_id for row in sampler(np.arange(5), 1)] == epochs[0]


TEXTS = ["a b", "c", "", "b b a", "a b"]


def encoder(**arguments) -> SentenceTransformer:
    tokenizer = Tokenizer(WordLevel({"[UNK]": 0, "a": 1, "b": 2, "c": 3, "q": 4}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    return SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=4)], device="cpu", **arguments)


def test_remembered_tokens_are_those_of_the_encoder():
    model = encoder()
    tokenise = Tokeniser(model, None)
    for texts in (TEXTS[:2], TEXTS, TEXTS[::-1]):
        expected = model.preprocess(texts)
        got = tokenise(texts, "document")
        assert got.keys() == expected.keys()
        for name, tensor in expected.items():
            assert torch.equal(got[name], tensor)


def test_a_sparse_retriever_remembers_its_documents(word_encoder):
    model = inference_free(word_encoder(["a", "b", "c"]), ["a b", "c b"])
    tokenise = Tokeniser(model, None)
    for role in ("document", "query", "document"):
        for texts in (TEXTS, TEXTS[::-1]):
            expected, got = model.preprocess(texts, task=role), tokenise(texts, role)
            # Of networks alone, which read several kinds of input.
            expected.pop("modality", None)
            assert got.keys() - {"modality"} == expected.keys()
            for name, value in expected.items():
                assert torch.equal(got[name], value) if torch.is_tensor(value) else got[name] == value


A, B = 30.0, -0.1


def rows(queries: int = 40, width: int = 12) -> Candidates:
    rng = np.random.default_rng(0)
    filled = np.arange(width) < rng.integers(0, width + 1, queries)[:, None]
    documents = np.where(filled, np.tile(np.arange(width), (queries, 1)), PADDING).astype(np.int32)
    return Candidates(
        query_ids=np.array([f"q{i}" for i in range(queries)]), positives=np.full((queries, 1), 1000, np.int32),
        documents=documents, source=np.ones(documents.shape, np.uint8),
        columns={"dense": np.where(filled, rng.uniform(0, 1, documents.shape), np.nan).astype(np.float32)},
        positive_columns={"dense": rng.uniform(0.5, 0.9, (queries, 1)).astype(np.float32)},
    )  # fmt: skip


def tensors(block: Candidates, seed: int = 5) -> tuple[torch.Tensor, ...]:
    uniform = seeds.uniform(seed, "selection/simans", row_keys(block), block.documents)
    return (
        torch.from_numpy(block.columns["dense"].astype(np.float64)),
        torch.from_numpy(block.positive_columns["dense"].astype(np.float64)),
        torch.from_numpy(block.undecided),
        torch.from_numpy(uniform),
    )


def test_its_chances_are_those_of_the_step() -> None:
    block = rows()
    scores, positive, usable, _ = tensors(block)
    ours = LearnableSimAns(A, B).log_chances(scores, positive, usable).detach().numpy()
    theirs = log_chances(block, SimAns(a=A, b=B, scale=False))
    np.testing.assert_allclose(ours[block.undecided], theirs[block.undecided], rtol=1e-4, atol=1e-5)
