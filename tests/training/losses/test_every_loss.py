"""What holds of every loss, and a small training with each."""

import gc
import json
from dataclasses import replace

import pandas as pd
import pytest
import torch
from tests.mined import mined
from torch.nn import functional

from anmi.training.losses import build_loss
from anmi.training.losses.common import Facts
from anmi.training.options import TrainingOptions
from anmi.training.trainer import train

LOSSES = {
    "infonce": "infonce",
    "hybrid": "hybrid",
    "entity": "entity",
    "debiased": {"debiased": {"tau_plus": 0.01}},
    "debiased_paraphrase": {"debiased": {"tau_plus": 0.1, "form": "paraphrase"}},
    "debiased_learned": {"debiased": {"tau_plus": 0.01, "learned": True}},
    "triplet": "triplet",
    "distillation": {"distillation": {"label_temperature": 0.3}},
}


def make(name, temperature="learnable", t=0.3, dtype=torch.float64):
    start = {"learnable": "initial", "fixed": "value"}
    options = TrainingOptions(loss=LOSSES[name], temperature={temperature: {start[temperature]: t}})
    loss = build_loss(options, 4, seed=3)
    if name == "entity":
        loss.classify(range(3))
        torch.nn.init.normal_(loss.weight, generator=torch.Generator().manual_seed(3))
    return loss.to(dtype)


def batch(seed=0, rows=4, negatives=3, dtype=torch.float64):
    """Return queries [B, d], documents [B + n, d], log-weights and facts.

    Row i has document i as its positive, and all behind the positives as negatives, the last
    unjudged.
    """
    generator = torch.Generator().manual_seed(seed)

    def uniform(*shape):
        return torch.rand(*shape, generator=generator, dtype=dtype)

    query = functional.normalize(uniform(rows, 4) - 0.3, dim=1)
    # Negatives near the queries, so that the floor of the debiased losses is not what is tested.
    positives = functional.normalize(query + 3 * (uniform(rows, 4) - 0.5), dim=1)
    near = query[torch.arange(negatives) % rows]
    others = functional.normalize(near + uniform(negatives, 4), dim=1)
    log_weights = torch.full((rows, rows + negatives), -torch.inf, dtype=dtype)
    log_weights[:, rows:] = (0.2 + uniform(rows, negatives)).log()
    judged = torch.full_like(log_weights, torch.nan)
    judged[:, rows:-1] = uniform(rows, negatives - 1)
    judged[range(rows), range(rows)] = 0.5 + uniform(rows) / 2
    scales = {"p_relevant": (0, 1), "cross": (-4, 8), "elo": (700, 600)}
    told = {name: low + width * judged for name, (low, width) in scales.items()}
    facts = Facts(
        positive_column=torch.arange(rows),
        positive_judged={name: values.diagonal() for name, values in told.items()},
        judged=told,
        about=torch.arange(rows) - 1,
    )
    return query, torch.cat([positives, others]), log_weights, facts


def apply(loss, query, document, log_weights, facts, nan_at=()):
    nan_columns = torch.tensor(nan_at, dtype=torch.int64)
    similarity = (query @ document.T).index_fill(1, nan_columns, torch.nan)
    facts = replace(facts, query=query, document=document)
    positive = similarity.gather(1, facts.positive_column[:, None])[:, 0]
    return loss(positive, similarity, log_weights, facts)


def values_and_gradients(loss, query, document, log_weights, facts, nan_at=()):
    query, document = query.clone().requires_grad_(), document.clone().requires_grad_()
    values = apply(loss, query, document, log_weights, facts, nan_at)
    loss.zero_grad()
    values.sum().backward()
    own = [p.grad.clone() for p in loss.parameters() if p.grad is not None]
    return values.detach(), query.grad, document.grad, *own


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_are_those_of_finite_differences(name):
    loss = make(name)
    query, document, log_weights, facts = batch(seed=2)
    names = [key for key, _ in loss.named_parameters()]
    no_negatives = torch.full_like(log_weights[:, : len(query)], -torch.inf)

    def of(query, document, weights, *parameters):
        log_weights = torch.cat([no_negatives, weights], dim=1)
        values = dict(zip(names, parameters, strict=True))
        with torch.nn.utils.stateless._reparametrize_module(loss, values):
            return apply(loss, query, document, log_weights, facts)

    parameters = [p.detach().clone() for p in loss.parameters()]
    inputs = [query, document, log_weights[:, len(query) :], *parameters]
    assert torch.autograd.gradcheck(of, [x.requires_grad_() for x in inputs])


@pytest.mark.parametrize("name", LOSSES)
def test_a_negative_of_weight_zero_is_not_there_whatever_stands_in_its_place(name):
    query, document, log_weights, facts = batch()
    log_weights[:, 5] = -torch.inf
    # Distillation learns from what is no negative, too, as long as somebody judged it.
    for values in facts.judged.values():
        values[:, 5] = torch.nan
    keep = [column for column in range(document.shape[0]) if column != 5]
    fewer = replace(facts, judged={key: values[:, keep] for key, values in facts.judged.items()})
    with_zero = values_and_gradients(make(name), query, document, log_weights, facts, nan_at=[5])
    without = values_and_gradients(make(name), query, document[keep], log_weights[:, keep], fewer)
    assert torch.equal(with_zero[2][5], torch.zeros(4, dtype=torch.float64))
    with_zero = (*with_zero[:2], with_zero[2][keep], *with_zero[3:])
    for got, expected in zip(with_zero, without, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", [name for name in LOSSES if name not in ("hybrid", "entity")])
@pytest.mark.parametrize("columns", [0, 3])
def test_a_row_without_negatives_has_no_loss_and_no_gradient(name, columns):
    query, document, log_weights, facts = batch()
    size = 4 + columns
    document, log_weights = document[:size], torch.full_like(log_weights[:, :size], -torch.inf)
    judged = {key: values[:, :size].fill_(torch.nan) for key, values in facts.judged.items()}
    facts = replace(facts, judged=judged)
    for tensor in values_and_gradients(make(name), query, document, log_weights, facts):
        assert torch.equal(tensor, torch.zeros_like(tensor))


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("t", [0.01, 1.0])
def test_extreme_similarities_stay_finite_in_float32(name, t):
    unit = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]])
    # Every query with every positive, and with each subset of the three documents as negatives.
    query, positive = unit.repeat_interleave(3, dim=0), torch.arange(3).repeat(3)
    subsets = torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * 3)
    query, positive = query.repeat(8, 1), positive.repeat(8)
    weights = subsets.repeat_interleave(9, dim=0)
    document = torch.cat([unit, unit])
    weights = torch.cat([torch.zeros(72, 3), weights], dim=1)
    judged, positive_judged = {}, {}
    for key, ends in {"p_relevant": (0.0, 1), "cross": (-12.0, 12), "elo": (0.0, 3000)}.items():
        positive_judged[key] = torch.tensor(ends).repeat(36)
        values = torch.tensor([0.0, 0, 0, *ends, ends[0]])
        judged[key] = torch.where(weights > 0, values, torch.nan)
    facts = Facts(None, None, positive, None, positive_judged, judged, positive)
    # The head of the loss of entities reads embeddings of four dimensions.
    query, document = (functional.pad(vectors, (0, 2)) for vectors in (query, document))
    loss = make(name, t=t, dtype=torch.float32)
    result = values_and_gradients(loss, query, document, weights.log(), facts)
    assert all(torch.isfinite(tensor).all() for tensor in result)
    assert (result[0] >= 0).all() and (result[0] > 0).any()


@pytest.mark.parametrize("name", LOSSES)
def test_the_first_weights_depend_on_the_seed_alone(name):
    options = TrainingOptions(loss=LOSSES[name], temperature="adaptive")
    torch.rand(3)
    state = torch.get_rng_state()
    first, again, other = (build_loss(options, 4, seed).state_dict() for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(first[key], again[key]) for key in first)
    if any("weight" in key for key in first):
        assert any(not torch.equal(first[key], other[key]) for key in first)


@pytest.fixture(scope="module")
def _quick_garbage_collection():
    """Every training ends with a garbage collection by accelerate, which would walk all of torch each time."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


WORDS = [f"w{i}" for i in range(60)]
LOGGED = {
    "hybrid": "elo_error",
    "debiased_learned": "tau_plus",
    "triplet": "margin_violation_rate",
    "distillation": "divergence",
}


def table() -> pd.DataFrame:
    """Query w_i belongs to the document "w_{i+20} w_{i+40}"; rows have 0 to 2 negatives."""
    judged = {"positive_elo": 1400.0, "negative_elo": [900.0, 800.0]}
    judged |= {"positive_p_relevant": 0.95, "negative_p_relevant": [0.1, 0.05]}
    rows = mined(WORDS[:20], [f"w{i + 20} w{i + 40}" for i in range(20)], 2, **judged)
    rows["weights"] = [[1.0, 0.5]] * 20
    for name in ("negative_ids", "negatives", "weights", "negative_elo", "negative_p_relevant"):
        rows[name] = [values[: i % 3] for i, values in enumerate(rows[name])]
    return rows


@pytest.mark.usefixtures("_quick_garbage_collection")
@pytest.mark.parametrize("name", [name for name in LOSSES if name != "entity"])
def test_training_moves_the_encoder_and_lowers_the_loss(word_encoder, name):
    options = TrainingOptions(
        loss=LOSSES[name], temperature="fixed", epochs=6, batch_size=10, learning_rate=0.05
    )
    result = train(table(), encoder=word_encoder(WORDS), options=options, output=None, seed=1)
    losses = result.log["loss"]
    assert losses.iloc[-2:].mean() < 0.9 * losses.iloc[:2].mean()
    assert result.summary["relative_weight_change"] > 0.01
    assert result.log.notna()[[LOGGED[name]] if name in LOGGED else []].all().all()
    json.dumps(result.summary, allow_nan=False)


@pytest.mark.parametrize("name", ["hybrid", "debiased_learned"])
def test_what_a_loss_learns_is_learned_at_its_own_rate_and_the_same_with_the_same_seed(
    word_encoder, name, monkeypatch
):
    found, options = [], TrainingOptions(loss=LOSSES[name], epochs=2, batch_size=10)
    for rate in (1e-2, 1e-2, 1e-9):
        monkeypatch.setattr(type(options.loss), "learning_rate", rate)
        model = word_encoder(WORDS)
        found.append(train(table(), encoder=model, options=options, output=None, seed=1).log)
    pd.testing.assert_frame_equal(found[0], found[1])
    column = LOGGED[name]
    assert (found[0][column] - found[2][column]).abs().max() > 1e-4
