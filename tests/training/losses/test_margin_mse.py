import pytest
import torch
from sentence_transformers.sentence_transformer import losses as library
from torch import nn
from torch.nn import functional

from anmi.errors import AnmiError
from anmi.training.losses import Facts, MarginMSE, build_loss
from anmi.training.options import TrainingOptions


def batch():
    """Three rows: the first has the negatives 3 and 4, the second none, the third 5; nobody judged 4."""
    generator = torch.Generator().manual_seed(5)
    query, document = (
        functional.normalize(torch.randn(n, 6, generator=generator, dtype=torch.float64), dim=1) for n in (3, 6)
    )
    judged = torch.rand(3, 6, generator=generator, dtype=torch.float64)
    judged[0, 4] = torch.nan
    facts = Facts(
        positive_column=torch.arange(3),
        negative_columns=torch.tensor([[3, 4], [-1, -1], [5, -1]]),
        # Nobody judged the third, but it is labelled relevant.
        positive_judged={"p_relevant": torch.tensor([0.9, 0.95, torch.nan], dtype=torch.float64)},
        judged={"p_relevant": judged},
    )
    return query, document, facts


def test_it_is_the_loss_of_sentence_transformers_on_the_judged_margins():
    query, document, facts = batch()
    similarity = query @ document.T
    found = MarginMSE(scale=2.0)(similarity.diagonal(), similarity, torch.zeros(3, 6), facts)
    labels = 2 * torch.tensor([0.9, 1.0]) - 2 * facts.judged["p_relevant"][[0, 2], [3, 5]]
    columns = (query[[0, 2]], document[[0, 2]], document[[3, 5]])
    theirs = library.MarginMSELoss(nn.Module())
    theirs.model.forward = dict
    expected = theirs([{"sentence_embedding": column} for column in columns], labels)
    torch.testing.assert_close(found, expected.expand(3))


def test_where_no_margin_is_known_there_is_nothing_to_learn():
    query, document, facts = batch()
    query.requires_grad_()
    similarity = query @ document.T
    found = MarginMSE()(similarity.diagonal(), similarity, torch.full((3, 6), -torch.inf), facts)
    found.sum().backward()
    assert torch.equal(found, torch.zeros(3, dtype=torch.float64))
    assert torch.equal(query.grad, torch.zeros_like(query))


def test_it_needs_its_judgments():
    with pytest.raises(AnmiError, match="cross"):
        query, document, facts = batch()
        MarginMSE("cross")(torch.zeros(3), query @ document.T, torch.zeros(3, 6), facts)


def test_options_choose_it():
    assert TrainingOptions(loss="margin_mse").reads == {"p_relevant"}
    assert build_loss(TrainingOptions(loss={"margin_mse": {"column": "cross"}})).columns == ("cross",)
