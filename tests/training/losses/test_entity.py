import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.mined import row
from torch.nn import functional

from anmi.errors import AnmiError
from anmi.training.losses.common import Facts
from anmi.training.losses.contrastive import WeightedInfoNCE
from anmi.training.losses.judged import EntityClassification
from anmi.training.losses.temperature import Temperature
from anmi.training.parts import EntityOptions

ENTITIES, DIMENSIONS = (2, 5, 7), 3


def made(share=0.4, seed=0):
    """A loss that has learned something."""
    loss = EntityClassification(Temperature(0.1), EntityOptions(share=share), DIMENSIONS)
    loss.prepare([row("q", "d", about=about) for about in (5, -1, 2, 7, 5)])
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
def test_it_is_the_formula_and_rows_about_no_class_have_infonce_alone(about, share, seed):
    loss = made(share, seed)
    similarities, query = block(len(about), seed)
    infonce = WeightedInfoNCE(loss.temperature)(*similarities).tolist()
    told = [slow_error(loss, q, a) if a in ENTITIES else 0.0 for q, a in zip(query.tolist(), about, strict=True)]
    expected = [(1 - share) * c + share * e for c, e in zip(infonce, told, strict=True)]
    assert loss(*similarities, Facts(query=query, about=torch.tensor(about))).tolist() == pytest.approx(expected)


def test_rows_about_nothing_are_refused():
    with pytest.raises(AnmiError, match="no positive of the training rows is known to be about any"):
        EntityClassification(Temperature(), EntityOptions(), DIMENSIONS).prepare([row("q", "d", about=-1)])
