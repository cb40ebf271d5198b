import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from anmi.errors import AnmiError
from anmi.training.batch import Row
from anmi.training.losses import EntityClassification, Facts, WeightedInfoNCE, build_loss
from anmi.training.losses.temperature import Temperature
from anmi.training.options import TrainingOptions

ENTITIES, DIMENSIONS = (2, 5, 7), 3


def row(about):
    return Row("q", "q", "d", "d", (), (), (), 1.0, frozenset({"d"}), about=about)


def made(share=0.4, seed=0):
    """A loss that has learned something."""
    loss = EntityClassification(Temperature(0.1), DIMENSIONS, share)
    loss.prepare([row(about) for about in (5, -1, 2, 7, 5)])
    for parameter in (loss.weight, loss.bias):
        torch.nn.init.normal_(parameter, generator=torch.Generator().manual_seed(seed))
    return loss.double()


def block(rows, seed=0, negatives=2):
    generator = torch.Generator().manual_seed(seed)
    similarity = torch.rand(rows, 1 + negatives, generator=generator, dtype=torch.float64)
    weights = torch.rand(rows, negatives, generator=generator, dtype=torch.float64)
    query = functional.normalize(torch.randn(rows, DIMENSIONS, generator=generator, dtype=torch.float64), dim=1)
    return (similarity[:, 0], similarity[:, 1:], weights.log()), query


def slow_error(loss, query, about):
    """Cross-entropy of a linear classifier, by hand."""
    logits = [
        sum(w * x for w, x in zip(line, query, strict=True)) + b
        for line, b in zip(loss.weight.tolist(), loss.bias.tolist(), strict=True)
    ]
    return math.log(sum(map(math.exp, logits))) - logits[ENTITIES.index(about)]


@given(
    about=st.lists(st.sampled_from([-1, 0, 2, 5, 7, 8, 1000]), min_size=1, max_size=5),
    share=st.floats(0, 1),
    seed=st.integers(0, 50),
)
@settings(max_examples=40, deadline=None)
def test_it_is_the_formula_and_rows_about_no_class_have_infonce_alone(about, share, seed):
    loss = made(share, seed)
    similarities, query = block(len(about), seed)
    infonce = WeightedInfoNCE(loss.temperature)(*similarities).tolist()
    told = [slow_error(loss, q, a) if a in ENTITIES else 0.0 for q, a in zip(query.tolist(), about, strict=True)]
    expected = [(1 - share) * c + share * e for c, e in zip(infonce, told, strict=True)]
    assert loss(*similarities, Facts(query=query, about=torch.tensor(about))).tolist() == pytest.approx(expected)


def test_gradients_of_query_and_head_are_those_of_finite_differences():
    loss = made()
    similarities, query = block(4)
    names = ("weight", "bias")

    def of(query, *parameters):
        with torch.nn.utils.stateless._reparametrize_module(loss, dict(zip(names, parameters, strict=True))):
            return loss(*similarities, Facts(query=query, about=torch.tensor([2, -1, 7, 5])))

    inputs = [query, *(getattr(loss, name).detach().clone() for name in names)]
    assert torch.autograd.gradcheck(of, [x.requires_grad_() for x in inputs])


def test_a_row_about_no_class_pulls_at_nothing():
    loss = made()
    similarities, query = block(2)
    query.requires_grad_()
    loss(*similarities, Facts(query=query, about=torch.tensor([-1, 6]))).sum().backward()
    for tensor in (query, loss.weight, loss.bias):
        assert torch.equal(tensor.grad, torch.zeros_like(tensor))
    assert math.isnan(loss.report()["entity_accuracy"])


def test_with_a_share_of_nothing_it_is_infonce():
    loss = made(share=0.0)
    similarities, query = block(3)
    got = loss(*similarities, Facts(query=query, about=torch.tensor([2, 5, -1])))
    assert torch.equal(got, WeightedInfoNCE(loss.temperature)(*similarities))


def test_a_head_that_has_learned_nothing_draws_no_embedding_anywhere():
    loss = EntityClassification(Temperature(0.1), DIMENSIONS, share=1.0)
    state = torch.get_rng_state()
    loss.prepare([row(about) for about in ENTITIES])
    assert torch.equal(torch.get_rng_state(), state)
    similarities, query = block(3)
    query = query.float().requires_grad_()
    found = loss(*(x.float() for x in similarities), Facts(query=query, about=torch.tensor(ENTITIES)))
    found.sum().backward()
    assert found.tolist() == pytest.approx([math.log(3)] * 3)
    assert torch.equal(query.grad, torch.zeros_like(query))


def test_it_learns_which_entity_a_query_is_about_and_the_log_tells_how_well():
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(len(ENTITIES), DIMENSIONS, generator=generator)
    place = torch.randint(len(ENTITIES), (60,), generator=generator)
    query = functional.normalize(centres[place] + 0.2 * torch.randn(60, DIMENSIONS, generator=generator), dim=1)
    loss = EntityClassification(Temperature(0.1), DIMENSIONS, share=1.0)
    loss.prepare([row(about) for about in ENTITIES])
    facts = Facts(query=query, about=torch.tensor(ENTITIES)[place])
    optimizer = torch.optim.Adam(loss.parameters(), lr=0.1)
    for _ in range(60):
        optimizer.zero_grad()
        loss(torch.zeros(60), torch.zeros(60, 1), torch.zeros(60, 1), facts).mean().backward()
        optimizer.step()
    assert loss.report()["entity_accuracy"] > 0.9


def test_what_was_learned_is_read_back():
    loss, again = made(seed=1), made(seed=2)
    again.load_state_dict(loss.state_dict())
    similarities, query = block(3)
    facts = Facts(query=query, about=torch.tensor([2, 5, 7]))
    assert torch.equal(again(*similarities, facts), loss(*similarities, facts))


def test_it_says_what_it_lacks():
    with pytest.raises(AnmiError, match="give it facts with `query` and `about`"):
        made()(torch.zeros(1), torch.zeros(1, 1), torch.zeros(1, 1))
    unprepared = EntityClassification(Temperature(), DIMENSIONS)
    with pytest.raises(AnmiError, match="`prepare` the training rows"):
        unprepared(*block(1)[0], Facts(query=torch.zeros(1, DIMENSIONS), about=torch.tensor([0])))
    with pytest.raises(AnmiError, match="no positive of the training rows is known to be about any"):
        unprepared.prepare([row(-1)])


def test_options_choose_it():
    options = TrainingOptions(loss={"entity": {"share": 0.3}})
    loss = build_loss(options, DIMENSIONS)
    assert (loss.share, loss.temperature.report()["temperature"]) == (0.3, pytest.approx(0.07))
    assert options.reads == set()
    with pytest.raises(AnmiError, match="number of dimensions"):
        build_loss(options)
