from dataclasses import replace

import pytest
import torch
from sentence_transformers.sentence_transformer import losses as library
from torch import nn
from torch.nn import functional

from anmi.errors import AnmiError
from anmi.training.losses import Facts, LibraryLoss, WeightedInfoNCE, build_loss
from anmi.training.options import TrainingOptions
from anmi.training.options.library_losses import FED_WITH, REFUSED, WHOLE_BATCH
from anmi.training.temperature import Temperature

ARGUMENTS = {"MatryoshkaLoss": {"matryoshka_dims": [6, 3]}}


def batch(rows=3, counts=(2, 2, 2)):
    """Return what a loss is called with: row i has the positive i and ``counts[i]`` negatives of its own."""
    generator = torch.Generator().manual_seed(5)
    total = sum(counts)
    query, document = (
        functional.normalize(torch.randn(n, 6, generator=generator, dtype=torch.float64), dim=1).requires_grad_()
        for n in (rows, rows + total)
    )
    own = torch.full((rows, max(counts)), -1)
    place = rows
    for i, count in enumerate(counts):
        own[i, :count] = torch.arange(place, place + count)
        place += count
    log_weights = torch.zeros(rows, rows + total, dtype=torch.float64)
    judged = torch.rand(rows, rows + total, generator=generator, dtype=torch.float64)
    facts = Facts(
        query=query,
        document=document,
        positive_column=torch.arange(rows),
        negative_columns=own,
        positive_judged={"p_relevant": 0.9 + judged[:, 0] / 10},
        judged={"p_relevant": judged},
    )
    return query @ document[:rows].T, log_weights, facts


def value(loss, similarity, log_weights, facts):
    documents = facts.query @ facts.document.T
    return loss(similarity.diagonal(), documents, log_weights, facts)


class Encoder(nn.Module):
    def forward(self, features):
        return dict(features)


def features(*columns):
    return [{"sentence_embedding": column} for column in columns]


def test_infonce_of_the_library_is_ours():
    """Every document of the batch that is not the row's own positive is a negative to both."""
    similarity, log_weights, facts = batch()
    log_weights[range(3), range(3)] = -torch.inf
    got = value(LibraryLoss("MultipleNegativesRankingLoss", {"scale": 10.0}), similarity, log_weights, facts)
    ours = WeightedInfoNCE(Temperature(0.1).double())(
        similarity.diagonal(), facts.query @ facts.document.T, log_weights, facts
    )
    torch.testing.assert_close(got, ours.mean().expand(3), rtol=1e-6, atol=1e-9)


def test_margins_are_the_judges():
    similarity, log_weights, facts = batch(counts=(2, 0, 1))
    facts.judged["p_relevant"][0, 4] = torch.nan
    # Nobody judged it, but it is labelled relevant.
    facts.positive_judged["p_relevant"][2] = torch.nan
    got = value(LibraryLoss("MarginMSELoss"), similarity, log_weights, facts)
    errors = []
    for i, column in ((0, 3), (2, 5)):
        margin = facts.query[i] @ facts.document[i] - facts.query[i] @ facts.document[column]
        wanted = (1.0 if i == 2 else facts.positive_judged["p_relevant"][i]) - facts.judged["p_relevant"][i, column]
        errors.append((margin - wanted) ** 2)
    torch.testing.assert_close(got, torch.stack(errors).mean().expand(3))


def test_rows_of_different_length_are_fed_as_they_would_be_alone():
    similarity, log_weights, facts = batch(counts=(2, 0, 1))
    got = value(LibraryLoss("DistillKLDivLoss"), similarity, log_weights, facts)
    loss = library.DistillKLDivLoss(Encoder())
    parts = []
    for i, columns in ((0, [3, 4]), (2, [5])):
        documents = [facts.document[[column]] for column in (i, *columns)]
        judged = torch.cat([facts.positive_judged["p_relevant"][[i]], facts.judged["p_relevant"][i, columns]])
        parts.append(loss(features(facts.query[[i]], *documents), judged[None]))
    torch.testing.assert_close(got, torch.stack(parts).mean().expand(3))


def test_a_row_with_fewer_negatives_repeats_its_own_and_one_without_borrows():
    similarity, log_weights, facts = batch(counts=(1, 0, 2))
    got = value(LibraryLoss("MultipleNegativesRankingLoss"), similarity, log_weights, facts)
    document = facts.document
    columns = [document[:3], document[[3, 3, 4]], document[[3, 3, 5]]]
    expected = library.MultipleNegativesRankingLoss(Encoder())(features(facts.query, *columns), None)
    torch.testing.assert_close(got, expected.expand(3))


def test_pairs_are_labelled_or_judged():
    similarity, log_weights, facts = batch(counts=(1, 1, 0))
    pairs = features(facts.query[[0, 1, 2, 0, 1]], facts.document[[0, 1, 2, 3, 4]])
    judged = torch.cat([facts.positive_judged["p_relevant"], facts.judged["p_relevant"][[0, 1], [3, 4]]])
    for column, labels in ((None, torch.tensor([1.0, 1, 1, 0, 0], dtype=torch.float64)), ("p_relevant", judged)):
        got = value(LibraryLoss("CosineSimilarityLoss", column=column), similarity, log_weights, facts)
        torch.testing.assert_close(got, library.CosineSimilarityLoss(Encoder())(pairs, labels).expand(3))


@pytest.mark.parametrize("name", [*FED_WITH, "MatryoshkaLoss"])
def test_every_one_gives_finite_values_and_moves_the_encoder(name):
    similarity, log_weights, facts = batch(counts=(2, 0, 1))
    losses = value(LibraryLoss(name, ARGUMENTS.get(name), dimensions=6), similarity, log_weights, facts)
    assert losses.shape == (3,)
    losses.mean().backward()
    for embedding in (facts.query, facts.document):
        assert torch.isfinite(embedding.grad).all()
        assert (embedding.grad != 0).any()


@pytest.mark.parametrize("name", [name for name in FED_WITH if name not in WHOLE_BATCH])
def test_without_any_negative_there_is_nothing_but_what_pairs_teach(name):
    similarity, log_weights, facts = batch(counts=(2, 0, 1))
    nobody = torch.full_like(log_weights, -torch.inf)
    losses = value(LibraryLoss(name), similarity, nobody, facts)
    losses.sum().backward()
    assert torch.isfinite(facts.query.grad).all()
    if FED_WITH[name] in ("triplets", "margins", "scores"):
        assert torch.equal(losses, torch.zeros(3, dtype=torch.float64))
        assert torch.equal(facts.query.grad, torch.zeros(3, 6, dtype=torch.float64))


def test_all_that_the_library_has_is_known():
    own = {name for name in library.__all__ if name.endswith(("Loss", "InBatchNegatives"))}
    cached = {name for name in own if name.startswith("Cached")}
    assert own == {*FED_WITH, "MatryoshkaLoss", *REFUSED} | cached


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("MultipleNegativeRankingLoss", 'did you mean "MultipleNegativesRankingLoss"'),
        ("CachedMultipleNegativesRankingLoss", "recompute: true"),
        ("CachedGISTEmbedLoss", "guide"),
        ("SoftmaxLoss", "classes"),
    ],
)
def test_what_cannot_be_used_is_refused_before_anything_runs(name, message):
    with pytest.raises(ValueError, match=message):
        TrainingOptions(loss={"library": {"name": name}})
    with pytest.raises(AnmiError, match=message):
        LibraryLoss(name)


def test_wrong_arguments_are_named():
    with pytest.raises(AnmiError, match=r"TripletLoss refuses.*margn"):
        LibraryLoss("TripletLoss", {"margn": 0.2})
    with pytest.raises(AnmiError, match="COSINE"):
        LibraryLoss("TripletLoss", {"distance_metric": "cosin"})
    with pytest.raises(AnmiError, match="MultipleNegativesRankingLoss"):
        LibraryLoss("MatryoshkaLoss", {"loss": "MultipleNegativesRankLoss", "matryoshka_dims": [2]}, dimensions=6)


def test_it_needs_the_embeddings_and_its_judgments():
    similarity, log_weights, facts = batch()
    with pytest.raises(AnmiError, match="embeddings"):
        LibraryLoss("TripletLoss")(similarity.diagonal(), similarity, log_weights)
    with pytest.raises(AnmiError, match="p_relevant"):
        value(LibraryLoss("MarginMSELoss"), similarity, log_weights, replace(facts, judged={}))


def test_options_choose_it():
    loss = build_loss(TrainingOptions(loss={"library": {"arguments": {"scale": 50.0}}}))
    assert loss.report() == {"temperature": 0.02}
    assert TrainingOptions(loss="margin_mse").reads == {"p_relevant"}
    assert TrainingOptions(loss={"library": {"name": "DistillKLDivLoss", "column": "cross"}}).reads == {"cross"}
    assert TrainingOptions(loss={"library": {"name": "CoSENTLoss"}}).reads == set()
    with pytest.raises(AnmiError, match="in_batch: all"):
        build_loss(TrainingOptions(loss="library", in_batch="none"))
    matryoshka = {"name": "MatryoshkaLoss", "arguments": {"loss": "MarginMSELoss", "matryoshka_dims": [6, 3]}}
    options = TrainingOptions(loss={"library": matryoshka}, in_batch="none")
    assert options.reads == {"p_relevant"}
    assert build_loss(options, 6).fed_with == "margins"
    with pytest.raises(ValueError, match="MarginMSELoss"):
        TrainingOptions(loss={"library": matryoshka | {"arguments": {"loss": "MarginMSLoss"}}})
