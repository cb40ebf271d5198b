import json
import sys
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sentence_transformers import SentenceTransformer
from tests.mined import mined
from tests.training import resuming

from anmi.errors import AnmiError
from anmi.retrieval.encoders import Encoder, load_encoder
from anmi.retrieval.kinds import EncoderSettings, training_precision
from anmi.store import Store
from anmi.training.batch import Batcher
from anmi.training.loop import CheckpointPlan
from anmi.training.losses import build_loss
from anmi.training.objective import ContrastiveObjective
from anmi.training.options import TrainingOptions
from anmi.training.trainer import train

WORDS = [f"w{i}" for i in range(60)]


def test_inner_products_are_taken_at_one_unless_a_temperature_is_chosen(word_encoder):
    def by_dot():
        return word_encoder(WORDS, normalise=False, similarity_fn_name="dot")

    assert set(fit(by_dot()).log["temperature"]) == {1.0}
    chosen = fit(by_dot(), temperature={"fixed": {"value": 0.5}})
    assert set(chosen.log["temperature"]) == {0.5}
    adversary = {"mixed": {"adversary": 0.1}}
    with pytest.raises(AnmiError, match="moves unit vectors"):
        fit(by_dot(), sources=adversary, negatives=1)


@pytest.fixture
def encoder(word_encoder) -> SentenceTransformer:
    return word_encoder(WORDS)


def table(rows: int = 20, negatives: int = 2) -> pd.DataFrame:
    """Query w_i belongs to the document "w_{i+20} w_{i+40}", with which it shares no word."""
    documents = [f"w{i + 20} w{i + 40}" for i in range(20)]
    return mined([f"w{i}" for i in range(rows)], documents, negatives, "q{:02}")


def accuracy(encoder: SentenceTransformer) -> float:
    data = table()
    queries, documents = (
        encoder.encode(data[name].tolist(), normalize_embeddings=True)
        for name in ("query", "positive")
    )
    return float(((queries @ documents.T).argmax(1) == np.arange(len(data))).mean())


def options(**changes) -> TrainingOptions:
    return TrainingOptions(**{"epochs": 3, "batch_size": 8, "learning_rate": 0.05, **changes})


NOT_OPTIONS = ("evaluate_dev", "choose_alpha", "dev_loss")


def fit(encoder, rows=None, output=None, **changes):
    given = {name: changes.pop(name) for name in NOT_OPTIONS if name in changes}
    rows = table() if rows is None else rows
    return train(rows, encoder=encoder, options=options(**changes), output=output, seed=1, **given)


@pytest.mark.parametrize("negatives", [0, 2])
def test_training_learns_the_pairs(encoder, negatives):
    before = accuracy(encoder)
    result = fit(encoder, table(negatives=negatives), epochs=15)
    assert before < 0.4
    assert accuracy(result.model) > 0.9
    assert result.summary["relative_weight_change"] > 0.01


def test_the_first_dimensions_learn_where_they_are_trained(word_encoder):
    def by_the_first(dimensions):
        trained = fit(word_encoder(WORDS, dimension=16), epochs=30, dimensions=dimensions).model
        trained.truncate_dim = 4
        return accuracy(trained)

    assert by_the_first([16, 4]) > 0.8 > by_the_first(None)
    with pytest.raises(AnmiError, match=r"training\.options\.dimensions begins with 32, .* 16 dim"):
        by_the_first([32, 2])


@pytest.fixture
def adapted():
    pytest.importorskip("peft", reason="the extra adapter is not installed")
    return {"precision": "float32", "learning_rate": 0.01}


@pytest.mark.parametrize(
    ("modules", "alpha"),
    [(None, None), (["query", "attention.self.value"], 0.5), ("layer.1.output.dense", None)],
)
def test_an_adapter_trains_its_layers_and_is_merged_into_a_plain_model(
    network_encoder, tmp_path, adapted, modules, alpha
):
    encoder = network_encoder(WORDS, layers=2)
    first = deepcopy(encoder).state_dict()
    settings = {"adapter": {"rank": 2, "modules": modules}, "alpha": alpha}
    result = fit(encoder, output=tmp_path / "model", **adapted, **settings)
    saved = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    assert saved.state_dict().keys() == first.keys()
    moved = {}
    for name, weight in saved.state_dict().items():
        assert torch.equal(weight, result.model.state_dict()[name])
        if not torch.equal(weight, first[name]):
            moved[name] = (weight - first[name]).float()
    ends = [modules] if isinstance(modules, str) else modules or ["dense", "query", "key", "value"]
    assert moved
    assert all(name.endswith(tuple(f"{end}.weight" for end in ends)) for name in moved)
    assert max(int(torch.linalg.matrix_rank(change, rtol=1e-3)) for change in moved.values()) == 2
    if alpha is not None:
        whole = fit(network_encoder(WORDS, layers=2), **adapted, **settings | {"alpha": 1.0}).model
        for name, change in moved.items():
            last = whole.state_dict()[name] - first[name]
            torch.testing.assert_close(change, alpha * last, rtol=1e-3, atol=1e-7)


def test_a_killed_training_of_an_adapter_goes_on(tmp_path, adapted):
    calls = []

    def run(plan, kill_at=0):
        def measure(model):
            calls.append(model)
            if len(calls) == kill_at:
                raise resuming.Killed
            return 0.0

        changes = resuming.BERT | {"adapter": {"rank": 2}}
        return resuming.fit(resuming.bert(tmp_path / "model"), plan, measure, **changes)

    plan = CheckpointPlan(tmp_path / "checkpoints")
    with pytest.raises(resuming.Killed):
        run(plan, kill_at=3)
    result = run(plan)
    assert result.summary["resumed_from_step"] == 11
    for name, weight in run(None).model.state_dict().items():
        torch.testing.assert_close(result.model.state_dict()[name], weight)


def test_an_adapter_that_fits_nothing_or_changes_nothing_is_an_error(
    network_encoder, encoder, adapted
):
    with pytest.raises(AnmiError, match=r'names "q_proj", .* among dense, key, query, value'):
        fit(network_encoder(WORDS), adapter={"modules": ["query", "q_proj"]}, **adapted)
    with pytest.raises(AnmiError, match="the encoder is a table"):
        fit(encoder, adapter={})
    half = network_encoder(WORDS).to(torch.bfloat16)
    with pytest.raises(AnmiError, match=r"changed no vector .* saved in bfloat16"):
        fit(half, adapter={}, **adapted | {"learning_rate": 1e-8})


def test_layers_that_are_run_again_give_the_same_weights(network_encoder):
    passes, weights = [], []
    for checkpoint_layers in (False, True):
        encoder = network_encoder(WORDS, layers=2)
        layer = encoder.get_submodule("0.auto_model.encoder.layer.1.output.dense")
        calls = []
        layer.register_forward_hook(lambda *_, calls=calls: calls.append(torch.is_grad_enabled()))
        result = fit(
            encoder, checkpoint_layers=checkpoint_layers, precision="float32", recompute=False
        )
        passes.append(len(calls))
        weights.append(result.model.state_dict())
    assert passes[1] == 2 * passes[0]
    for name, weight in weights[0].items():
        torch.testing.assert_close(weights[1][name], weight)


def test_what_is_not_there_is_named(encoder, network_encoder, monkeypatch):
    with pytest.raises(AnmiError, match="optimizer=adamw_8bit needs a CUDA card"):
        fit(encoder, optimizer="adamw_8bit")
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(AnmiError, match=r"anmi-retrieval\[adapter\]"):
        fit(network_encoder(WORDS), adapter={})


def test_a_single_rate_is_the_plain_loop_of_the_reports(encoder, monkeypatch):
    batches = []
    make = Batcher.__call__

    def keep(batcher, rows):
        batches.append(make(batcher, rows))
        return batches[-1]

    monkeypatch.setattr(Batcher, "__call__", keep)
    rows = table().assign(positive_elo=15.0, negative_elo=[[14.0, 12.0]] * 20)
    settings = {"loss": {"hybrid": {"targets": "raw"}}, "single_rate": True, "weight_decay": 0.01}
    settings |= {"warmup": 0, "schedule": "constant"}
    plain = deepcopy(encoder)
    log = fit(encoder, rows, alpha=1.0, **settings).log
    loss = build_loss(options(**settings), 8, seed=1)
    objective = ContrastiveObjective(plain, loss)
    optimizer = torch.optim.AdamW(objective.parameters(), lr=0.05)
    for batch, temperature, norm in zip(batches, log.temperature, log.grad_norm, strict=True):
        optimizer.zero_grad()
        objective(batch).backward()
        clipped = torch.nn.utils.clip_grad_norm_(objective.parameters(), 1.0)
        assert norm == pytest.approx(clipped.item(), rel=1e-4)
        optimizer.step()
        learned = loss.temperature.report()["temperature"].item()
        assert learned == pytest.approx(temperature, rel=1e-5)
    torch.testing.assert_close(plain[0].embedding.weight, encoder[0].embedding.weight)
    assert log.grad_norm.max() > 10, "the head's gradient is the largest"


def test_log_has_one_row_a_step(encoder):
    result = fit(encoder, evaluate_dev=accuracy, warmup=0.25)
    log = result.log
    columns = ["step", "epoch", "loss", "grad_norm", "temperature", "learning_rate", "dev_ndcg@10"]
    assert list(log.columns) == columns
    assert log["step"].tolist() == list(range(1, 10))
    assert log["epoch"].iloc[-1] == pytest.approx(3.0)
    assert log["dev_ndcg@10"].notna().tolist() == [False, False, True] * 3
    assert log["learning_rate"].max() == pytest.approx(0.05)
    assert log["learning_rate"].iloc[0] == 0.0
    assert log["loss"].iloc[-1] < log["loss"].iloc[0]
    json.dumps(result.summary, allow_nan=False)


def test_dev_queries_are_measured_as_often_as_is_asked_for(encoder):
    measured = []

    def loss(model, temperature):
        measured.append((len(measured), temperature))
        return float(len(measured))

    log = fit(encoder, evaluate_dev=accuracy, dev_loss=loss, dev_every=2).log
    by_step = log.dropna(subset=["dev_loss"])
    assert by_step.step.tolist() == [2, 3, 4, 6, 8, 9]
    assert by_step["dev_ndcg@10"].notna().all() and by_step.dev_loss.tolist() == [1, 2, 3, 4, 5, 6]
    assert [temperature for _, temperature in measured] == by_step.temperature.tolist()


@pytest.mark.parametrize("saved", ["float16", "bfloat16"])
def test_weights_saved_in_half_are_read_and_trained_in_float32(network_encoder, tmp_path, saved):
    half, whole, trained = (str(tmp_path / name) for name in ("half", "whole", "trained"))
    model = network_encoder(WORDS).to(getattr(torch, saved))
    model.save(half)
    model.float().save(whole)
    start = load_encoder(half, tmp_path)
    texts = [*table()["positive"], "w1 w2 w3 w4 w5 w6 w7 w8"]
    together, alone = (Encoder.of(start).encode(t) for t in (texts, texts[:1]))
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(together[:1], alone, atol=1e-6)
    settings = {"precision": "float32", "output": tmp_path / "trained", "learning_rate": 1e-5}
    expected = fit(SentenceTransformer(whole, device="cpu"), **settings | {"output": None})
    for save_dtype in (None, "float32"):
        result = fit(SentenceTransformer(half, device="cpu"), save_dtype=save_dtype, **settings)
        assert result.summary["weights_saved_as"] == (save_dtype or saved)
        dtype = getattr(torch, save_dtype or saved)
        assert SentenceTransformer(trained, device="cpu").dtype == dtype
        for key, value in load_encoder(trained, tmp_path).state_dict().items():
            weights = expected.model.state_dict()[key]
            weights = weights.to(dtype).float() if weights.is_floating_point() else weights
            assert torch.equal(value, weights)
            assert torch.equal(value, result.model.state_dict()[key])


def test_float16_scales_gradients_and_leaves_out_steps_that_overflow(network_encoder):
    settings = {"learning_rate": 1e-3, "temperature": {"fixed": {"value": 0.05}}}
    half, whole = (
        fit(network_encoder(WORDS), precision=precision, **settings)
        for precision in ("float16", "float32")
    )
    assert half.summary["precision"] == "float16"
    for name in ("loss", "grad_norm"):
        np.testing.assert_allclose(half.log[name], whole.log[name], rtol=0.05, err_msg=name)
    steep = network_encoder(WORDS)
    steep[0].model.encoder.layer[0].output.dense.register_full_backward_hook(
        lambda module, gradients, _: [gradient * 100 for gradient in gradients]
    )
    overflown = fit(steep, precision="float16", **settings).log["grad_norm"]
    assert overflown.isna().any() and overflown.notna().any()


@pytest.mark.parametrize(("bfloat16", "expected"), [(True, "bfloat16"), (False, "float16")])
def test_a_card_that_emulates_bfloat16_trains_in_float16(
    network_encoder, monkeypatch, bfloat16, expected
):
    model = network_encoder(WORDS)
    supports = lambda including_emulation: bfloat16 or including_emulation  # noqa: E731
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", supports)
    monkeypatch.setattr(type(model), "device", torch.device("cuda"))
    assert training_precision(model, "auto") == expected
    assert training_precision(model, "float32") == "float32"


def test_a_layer_that_gets_no_gradient_is_an_error_that_names_it(network_encoder):
    model = network_encoder(WORDS, layers=2)
    first = model[0].model.encoder.layer[0]
    first.register_forward_hook(lambda *features: features[2].detach())
    with pytest.raises(AnmiError, match=r"did not move layer 0 of 0\..*layer, though layer 1"):
        fit(model, learning_rate=1e-3)
    for weights in first.parameters():
        weights.requires_grad_(False)
    assert fit(model, learning_rate=1e-3).summary["relative_weight_change"] > 0


def weights(model: SentenceTransformer) -> torch.Tensor:
    return model[0].embedding.weight.detach().clone()


@pytest.mark.parametrize("encoders", ["shared", "two"])
def test_what_has_no_direction_gets_none(encoder, encoders):
    encoder[0].embedding.weight.data[:2] = 0
    weights = fit(encoder, encoders=encoders).model.state_dict().values()
    tables = [value for value in weights if value.ndim == 2]
    assert len(tables) == 1 + (encoders == "two")
    assert not any(bool(table[:2].any()) for table in tables), "w0 was asked for"


def test_rows_in_another_order_give_the_same_weights(encoder):
    start, rows = deepcopy(encoder), table(40)
    first = fit(encoder, rows).model[0].embedding.weight
    again = fit(start, rows.sample(frac=1, random_state=3)).model[0].embedding.weight
    assert torch.equal(first, again)


@pytest.mark.parametrize("alpha", ["start", 0.0, 0.5, 1.0])
def test_a_table_keeps_the_lengths_it_learned_and_a_share_of_the_directions(encoder, alpha):
    first = weights(encoder)
    last = weights(fit(deepcopy(encoder), alpha=1.0).model)
    measured = {}

    def choose(encoder_at: Callable[[Any], SentenceTransformer]) -> Any:
        for share in ("start", 0.0, 0.25, 1.0):
            model = encoder_at(share)
            assert not model.training
            measured[share] = weights(model)
        return alpha

    result = fit(encoder, choose_alpha=choose)
    assert torch.equal(measured["start"], first) and torch.equal(measured[1.0], last)
    for share in (0.0, 0.25):
        torch.testing.assert_close(measured[share].norm(dim=1), last.norm(dim=1))
    cosine = torch.nn.functional.cosine_similarity
    torch.testing.assert_close(cosine(measured[0.0], first), torch.ones(len(first)))
    nearness = [cosine(measured[share], last) for share in (0.0, 0.25)]
    is_turned = nearness[0] < 0.999
    assert is_turned.any() and bool((nearness[1] > nearness[0])[is_turned].all())
    if alpha in measured:
        assert torch.equal(weights(result.model), measured[alpha])
    assert result.summary["alpha"] == alpha
    assert (result.summary["unchanged"] is None) == (alpha != "start")


def test_what_cannot_train_is_refused(encoder):
    with pytest.raises(AnmiError, match="as steps of 1e-20 are lost in rounding"):
        fit(encoder, learning_rate=1e-20)
    with torch.no_grad():
        encoder[0].embedding.weight[4] = float("nan")  # the row of w3
    with pytest.raises(AnmiError, match=r"queries (.*, )?q03\b"):
        fit(encoder, table(negatives=0), in_batch="positives")
    encoder.requires_grad_(False)
    with pytest.raises(AnmiError, match="no weight that may change"):
        fit(encoder)


def test_saved_model_is_the_trained_one_and_replaces_an_old_one(encoder, tmp_path):
    output = tmp_path / "deep" / "model"
    for _ in range(2):
        result = fit(encoder, output=output)
    assert [path.name for path in output.parent.iterdir()] == ["model"]
    names = {path.name for path in output.rglob("*") if path.is_file()}
    assert "model.safetensors" in names and "README.md" not in names
    assert not any(name.endswith((".bin", ".pkl", ".pt")) for name in names)
    again = SentenceTransformer(str(output), device="cpu")
    assert torch.equal(weights(again), weights(result.model))
    assert again.encode("w1").tolist() == result.model.encode("w1").tolist()


@pytest.mark.parametrize("kind", ["table", "network"])
@pytest.mark.parametrize("alpha", [1.0, 0.5])
def test_query_only_learns_and_leaves_documents_to_the_vectors_in_the_store(
    request, tmp_path, monkeypatch, kind, alpha
):
    make = request.getfixturevalue("word_encoder" if kind == "table" else "network_encoder")
    prompts = {"query": "w1 ", "document": "w2 "}
    make(WORDS, prompts=prompts).save(str(tmp_path / "start"))
    start = load_encoder(str(tmp_path / "start"), tmp_path)
    changes = {"encoders": "query_only", "epochs": 15, "alpha": alpha}
    if kind == "network":
        changes |= {"learning_rate": 0.005, "precision": "float32"}
    result = fit(start, output=tmp_path / "trained", **changes)
    assert result.log["loss"].iloc[-1] < 0.7 * result.log["loss"].iloc[0]

    rows = table()
    documents = rows["positive"].tolist()
    before = Encoder.of(start).encode(rows["query"].tolist(), "query")
    with Store(tmp_path / "store") as store:
        settings = EncoderSettings(precision="float32")
        first, second = (
            Encoder(
                settings.of(str(tmp_path / name)), tmp_path, store, only_known=name == "trained"
            )
            for name in ("start", "trained")
        )
        vectors = first.encode(documents, "document")
        stored = len(store)
        queries = second.encode(rows["query"].tolist(), "query")
        assert len(store) == stored, "vectors of a trained side are not kept"
        monkeypatch.setattr(Encoder, "embed", None)
        assert np.array_equal(second.encode(documents, "document"), vectors)
    nearer = (queries - before) @ vectors.T
    assert np.diag(nearer).mean() > nearer.mean() + 0.1, "their own document, more than others"
    plain = SentenceTransformer(str(tmp_path / "trained"), device="cpu")
    by_library = plain.encode_document(documents, normalize_embeddings=True)
    np.testing.assert_allclose(by_library, vectors, atol=1e-3)
    by_library = plain.encode_query(rows["query"].tolist(), normalize_embeddings=True)
    np.testing.assert_allclose(by_library, queries, atol=1e-5)


def test_two_encoders_learn_the_pairs_and_the_hardness_and_are_saved(word_encoder, tmp_path):
    # Half of the queries are long and full of question marks.
    rows, start = table(negatives=3), word_encoder(["?", *WORDS], dimension=16)
    rows["query"] = [f"{query}{' ?' * (12 * (i % 2))}" for i, query in enumerate(rows["query"])]
    changes = {"epochs": 30, "encoders": "two", "hardness": "hans"}
    result = fit(deepcopy(start), rows, tmp_path / "model", **changes)
    error = result.log["hardness_error"]
    assert error.iloc[-3:].mean() < 0.4 * error.iloc[:3].mean()
    assert result.log["negatives"].between(1, 3).all()
    texts = {"query": rows["query"].tolist(), "document": rows["positive"].tolist()}
    found = {role: Encoder.of(result.model).encode(given, role) for role, given in texts.items()}
    assert ((found["query"] @ found["document"].T).argmax(1) == np.arange(20)).mean() > 0.9
    for other in (
        Encoder.of(result.model).encode(texts["query"], "document"),
        Encoder.of(start).encode(texts["query"]),
    ):
        assert not np.allclose(other, found["query"])
    loaded = load_encoder(str(tmp_path / "model"), tmp_path)
    for role, vectors in found.items():
        assert np.array_equal(Encoder.of(loaded).encode(texts[role], role), vectors)
