"""On the packaged MiniLM: the paths that a static encoder does not take."""

from typing import Any

import pytest
import torch
from tests.mined import row
from torch import Tensor, nn
from torch.nn import functional

from anmi.retrieval.kinds import quiet
from anmi.retrieval.model_folder import minilm_folder
from anmi.retrieval.tokens import Tokeniser
from anmi.training.batch import Batcher, Frozen
from anmi.training.losses.contrastive import WeightedInfoNCE
from anmi.training.losses.temperature import Temperature
from anmi.training.objective import ContrastiveObjective

TEXTS = ["sparse arrays", "the mean of a column of numbers", "solve a linear system"]
TEXTS += ["a b c d e f g h i j k l", "x"]


@pytest.fixture(scope="module")
def encoder():
    from sentence_transformers import SentenceTransformer

    with quiet():
        return SentenceTransformer(str(minilm_folder()), device="cpu")


def batch(encoder, tokens_per_pass, max_length=None, guide=None):
    rows = [row(text[:9], text, [f"not {text}"], weights=(0.5,)) for text in TEXTS]
    return Batcher(Tokeniser(encoder, max_length), "all", tokens_per_pass, guide)(rows)


def loss_and_gradient(encoder, data, **arguments):
    encoder.zero_grad()
    objective = ContrastiveObjective(encoder, WeightedInfoNCE(Temperature(0.07)), **arguments)
    loss = objective(data)
    loss.backward()
    return loss.detach(), encoder[0].auto_model.encoder.layer[0].output.dense.weight.grad.clone()


def test_passes_and_recomputation_change_nothing(encoder):
    encoder.eval()
    expected = loss_and_gradient(encoder, batch(encoder, 1000))
    for recompute in (False, True):
        got = loss_and_gradient(encoder, batch(encoder, 30), recompute=recompute)
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-6)


def test_embeddings_are_those_of_encode(encoder):
    encoder.eval()
    data = batch(encoder, 20)
    objective = ContrastiveObjective(encoder, WeightedInfoNCE(Temperature(0.07)))
    with torch.no_grad():
        got = objective._encode(data["documents"])[: len(TEXTS)]
    expected = torch.from_numpy(encoder.encode(TEXTS, normalize_embeddings=True))
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


def test_an_adversary_makes_the_loss_larger_and_leaves_the_positives_alone() -> None:
    class Given(nn.Module):
        def forward(self, features: Any) -> Any:
            return {"sentence_embedding": features["input_ids"]}

    torch.manual_seed(0)
    vectors = functional.normalize(torch.randn(9, 4), dim=1).requires_grad_()
    queries, documents = (
        {"groups": [{"input_ids": part}], "place": torch.arange(len(part))}
        for part in (vectors[:3], vectors[3:])
    )
    batch = {"queries": queries, "documents": documents, "positive": torch.arange(3), "judged": {}}
    batch |= {"weights": 1 - torch.eye(3, 6), "negatives": torch.tensor([[3], [4], [5]])}
    batch |= {"query_weight": torch.ones(3), "query_ids": ["a", "b", "c"]}
    seen: list[tuple[Tensor, Tensor]] = []

    class Spy(nn.Module):
        def forward(self, positive: Tensor, negatives: Tensor, log_weights: Tensor, _: Any) -> Any:
            seen.append((positive.detach(), negatives.detach()))
            return (negatives / 0.1 + log_weights).logsumexp(1) - positive / 0.1

    plain = ContrastiveObjective(Given(), Spy())(batch)
    harder = ContrastiveObjective(Given(), Spy(), adversary=0.1)(batch)
    assert harder.item() > plain.item() + 0.1
    assert torch.equal(seen[-1][0], seen[0][0]), "the positives' similarities are as they were"
    assert torch.equal(seen[-1][1].diagonal(), seen[0][1].diagonal())
    harder.backward()
    assert vectors.grad is not None and 0 < float(vectors.grad.abs().sum()) < float("inf")


@pytest.mark.parametrize("dimensions", [None, [8, 4, 2], [3]])
def test_dimensions_give_the_loss_of_matryoshka_in_sentence_transformers(
    word_encoder: Any, dimensions: list[int] | None
) -> None:
    from sentence_transformers.sentence_transformer.losses import (
        MatryoshkaLoss,
        MultipleNegativesRankingLoss,
    )

    encoder = word_encoder(["a", "b", "c", "d"], dimension=8)
    table = encoder[0].embedding.weight
    pairs = [("a", "a b"), ("b c", "c"), ("d", "d a")]
    expected = MultipleNegativesRankingLoss(encoder, scale=1 / 0.2)
    if dimensions:
        expected = MatryoshkaLoss(encoder, expected, dimensions)
    features = [encoder.preprocess(list(texts)) for texts in zip(*pairs, strict=True)]
    expected(features, torch.zeros(3)).backward()
    gradient = table.grad.clone()
    table.grad = None
    rows = [row(query, document) for query, document in pairs]
    loss = WeightedInfoNCE(Temperature(0.2))
    objective = ContrastiveObjective(encoder, loss, dimensions=dimensions)
    objective(Batcher(Tokeniser(encoder, None), "all", 100, None)(rows)).backward()
    assert gradient.abs().sum() > 0
    torch.testing.assert_close(table.grad, gradient)


@pytest.mark.parametrize("by_guide", [False, True])
def test_documents_of_other_rows_that_score_above_the_positive_are_left_out_and_mined_ones_stay(
    encoder: Any, by_guide: bool
) -> None:
    data = batch(encoder, 1000, guide=Frozen.guide(encoder) if by_guide else None)
    seen: list[Tensor] = []

    class Watching(nn.Module):
        def forward(self, positive: Tensor, similarity: Tensor, log_weights: Tensor, _: Any) -> Any:
            seen.extend((similarity.detach(), log_weights))
            return positive

    encoder.eval()
    objective = ContrastiveObjective(encoder, Watching(), filter_margin=-0.5)
    with torch.no_grad():
        objective(data)
    similarity, log_weights = seen
    for i in range(len(TEXTS)):
        own, mined = int(data["positive"][i]), set(data["negatives"][i].tolist())
        for j in range(similarity.shape[1]):
            above = similarity[i, j] > similarity[i, own] - 0.5
            kept = j != own and (j in mined or not above)
            assert bool(log_weights[i, j].isfinite()) == kept
    known = (data["weights"] > 0).sum()
    share = 1 - float(log_weights.isfinite().sum() / known)
    assert objective.measures["left_out"] == pytest.approx(share)
    assert 0 < objective.measures["left_out"] < 1


def test_a_step_reads_nothing_from_the_device(word_encoder: Any) -> None:
    # With a network transformers looks at the mask of each pass.
    words = word_encoder(["a", "b"], dimension=4)
    loss = WeightedInfoNCE(Temperature(0.07, learnable=True))
    objective = ContrastiveObjective(words, loss, margin=0.1, filter_margin=0.1)
    data = batch(words, None)
    with torch.profiler.profile() as profile:
        objective(data).backward()
    operations = {event.key for event in profile.key_averages()}
    assert "aten::mm" in operations
    assert not operations & {"aten::_local_scalar_dense", "aten::nonzero", "aten::item"}
