import pytest
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

from anmi.errors import AnmiError
from anmi.retrieval.encoders import minilm_folder
from anmi.retrieval.kinds import quiet
from anmi.training.losses import (
    DebiasedContrastive,
    Distillation,
    ForSentenceTransformers,
    MarginMSE,
    TauPlus,
    WeightedInfoNCE,
)
from anmi.training.temperature import Temperature

WORDS = [f"w{i}" for i in range(60)]


@pytest.fixture
def encoder(word_encoder) -> SentenceTransformer:
    return word_encoder(WORDS)


def texts(rows=6, negatives=2):
    def document(i):
        return f"w{i % 20 + 20} w{i % 20 + 40}"

    return {
        "anchor": [f"w{i}" for i in range(rows)],
        "positive": [document(i) for i in range(rows)],
        **{f"negative_{j}": [document(i + 5 * j) for i in range(rows)] for j in range(1, negatives + 1)},
    }


def tokenised(encoder, columns):
    return [encoder.preprocess(column) for column in columns.values()]


@pytest.mark.parametrize("negatives", [0, 1, 3])
def test_infonce_of_weight_one_is_multiple_negatives_ranking(encoder, negatives):
    features = tokenised(encoder, texts(4, negatives))
    found = []
    ours = ForSentenceTransformers(encoder, WeightedInfoNCE(Temperature(0.05)))
    for loss in (ours, MultipleNegativesRankingLoss(encoder, scale=20.0)):
        encoder.zero_grad()
        value = loss(features, None)
        value.backward()
        found.append((value.detach(), encoder[0].embedding.weight.grad.clone()))
    torch.testing.assert_close(found[0], found[1], rtol=1e-5, atol=1e-6)


def test_it_is_that_also_with_a_transformer_and_padding():
    with quiet():
        minilm = SentenceTransformer(str(minilm_folder()), device="cpu").eval()
    columns = {"anchor": ["a sum", "sparse arrays of numbers"], "positive": ["adds", "what a sparse array is"]}
    with torch.no_grad():
        ours = ForSentenceTransformers(minilm, WeightedInfoNCE(Temperature(0.05)))(tokenised(minilm, columns))
        theirs = MultipleNegativesRankingLoss(minilm, scale=20.0)(tokenised(minilm, columns), None)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


def equal(encoder, first, second, in_batch="all", second_in_batch="all"):
    values = [
        ForSentenceTransformers(encoder, WeightedInfoNCE(Temperature(0.5)), how)(tokenised(encoder, columns))
        for columns, how in ((first, in_batch), (second, second_in_batch))
    ]
    return torch.allclose(*values, rtol=1e-6, atol=1e-7)


def test_what_stands_twice_counts_once(encoder):
    columns = {"anchor": ["w1"], "positive": ["w2"], "n1": ["w3"]}
    assert equal(encoder, columns | {"n2": ["w3"]}, columns)
    assert not equal(encoder, columns | {"n2": ["w4"]}, columns)
    # Nor does another spelling of the positive, as tokens go, become a negative.
    assert equal(encoder, columns | {"n2": ["  w2"]}, columns)


def test_positives_of_the_same_anchor_are_no_negatives(encoder):
    both = {"anchor": ["w1", "w1"], "positive": ["w2", "w3"], "n1": ["w3", "w4"]}
    value = ForSentenceTransformers(encoder, WeightedInfoNCE(Temperature(0.5)))(tokenised(encoder, both))
    alone = [
        ForSentenceTransformers(encoder, WeightedInfoNCE(Temperature(0.5)))(
            tokenised(encoder, {"anchor": ["w1"], "positive": [positive], "n1": ["w4"]})
        )
        for positive in ("w2", "w3")
    ]
    torch.testing.assert_close(value, torch.stack(alone).mean())


def test_in_batch_says_whose_documents_are_negatives(encoder):
    columns = {"anchor": ["w1", "w5"], "positive": ["w2", "w6"], "n1": ["w3", "w7"]}
    seen = {}
    for how in ("none", "positives", "all"):

        class Spy(WeightedInfoNCE):
            def forward(self, positive, documents, log_weights, facts):
                seen[how] = log_weights.exp().tolist()  # noqa: B023
                return super().forward(positive, documents, log_weights, facts)

        ForSentenceTransformers(encoder, Spy(Temperature(0.5)), how)(tokenised(encoder, columns))
    assert seen == {
        "none": [[0, 0, 1, 0], [0, 0, 0, 1]],
        "positives": [[0, 1, 1, 0], [1, 0, 0, 1]],
        "all": [[0, 1, 1, 1], [1, 0, 1, 1]],
    }


LOSSES = {
    "infonce": lambda: WeightedInfoNCE(Temperature(0.1, learnable=True)),
    "debiased": lambda: DebiasedContrastive(Temperature(0.1), TauPlus(0.01, learnable=True, prior_strength=3.0)),
    "distillation": lambda: Distillation(Temperature(0.1)),
    "margin_mse": MarginMSE,
}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("in_batch", ["none", "all"])
def test_the_librarys_trainer_trains_with_it(encoder, tmp_path, name, in_batch):
    columns = texts(16)
    loss = ForSentenceTransformers(encoder, LOSSES[name](), in_batch)
    if loss.loss.__class__ in (Distillation, MarginMSE):
        columns["label"] = [[0.9, 0.1, 0.2]] * 16
    before = encoder[0].embedding.weight.detach().clone()
    own = [p.detach().clone() for p in loss.loss.parameters()]
    trainer = SentenceTransformerTrainer(
        model=encoder,
        args=SentenceTransformerTrainingArguments(
            output_dir=str(tmp_path), num_train_epochs=6, per_device_train_batch_size=8, learning_rate=0.02,
            logging_steps=2, report_to="none", save_strategy="no", disable_tqdm=True, use_cpu=True,
        ),
        train_dataset=Dataset.from_dict(columns),
        loss=loss,
    )  # fmt: skip
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert losses[-1] < losses[0]
    assert not torch.equal(encoder[0].embedding.weight, before)
    assert all(not torch.equal(p, old) for p, old in zip(loss.loss.parameters(), own, strict=True))


@pytest.mark.parametrize("labels", [None, torch.ones(6), torch.ones(6, 2)])
def test_missing_judgments_are_refused(encoder, labels):
    loss = ForSentenceTransformers(encoder, Distillation(Temperature(0.1)))
    with pytest.raises(AnmiError, match=r"column `label`.*\(6, 3\)"):
        loss(tokenised(encoder, texts()), labels)
