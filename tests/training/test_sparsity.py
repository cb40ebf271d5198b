from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file
from tests.mined import mined
from transformers import BertConfig, BertForMaskedLM, BertTokenizer

from anmi.errors import AnmiError
from anmi.evaluation.retrieval import search_by
from anmi.retrieval.encoders import Encoder, load_encoder
from anmi.retrieval.index import SparseIndex, term_table
from anmi.retrieval.sparse.model import inference_free, of_masked_lm, sparse_vectors
from anmi.training.objective import penalty
from anmi.training.options import SparsityOptions, TrainingOptions
from anmi.training.trainer import train

WORDS = [f"w{i}" for i in range(60)]
DOCUMENTS = [f"w{i + 20} w{i + 40}" for i in range(20)]
QUERIES = [f"w{i}" for i in range(20)]


def rows() -> pd.DataFrame:
    """Query w_i belongs to the document "w_{i+20} w_{i+40}", with which it shares no term."""
    return mined(QUERIES, DOCUMENTS, 1)


@pytest.fixture
def model(word_encoder):
    made = inference_free(word_encoder(WORDS), DOCUMENTS)
    with torch.no_grad():
        # So that every word may become a term of every document.
        made[0].sub_modules["document"][0].threshold.fill_(-1)
    return made


def fit(model, weight: float, learning_rate: float = 0.05, **others):
    options = {"epochs": 20, "batch_size": 10, "learning_rate": learning_rate} | others
    options |= {"retriever": "sparse", "sparsity": {"weight": weight, "steps": 10}}
    data = {"output": None, "seed": 1}
    return train(rows(), encoder=model, options=TrainingOptions(**options), **data)


def best(model) -> tuple[np.ndarray, np.ndarray]:
    """The first document of each query, and its score."""
    documents, scores = search_by(Encoder.of(model), QUERIES, DOCUMENTS)(3)
    return documents[:, 0], scores[:, 0]


def save_bert(folder: Path, vocabulary: int, layers: int) -> None:
    torch.manual_seed(0)
    size = {"hidden_size": 32, "num_hidden_layers": layers, "num_attention_heads": 2}
    config = BertConfig(vocab_size=vocabulary, intermediate_size=64, **size)
    BertForMaskedLM(config).save_pretrained(folder)


def test_documents_learn_the_terms_that_they_are_asked_by(model):
    before, _ = best(model)
    fit(model, 1e-3)
    found, scores = best(model)
    assert (before == np.arange(20)).sum() <= 5
    assert (found == np.arange(20)).sum() >= 18
    vectors = sparse_vectors(model, DOCUMENTS, "document").toarray()
    asked = sparse_vectors(model, QUERIES, "query").toarray()
    np.testing.assert_allclose(scores, (asked * vectors[found]).sum(axis=1), rtol=1e-5)


def test_a_larger_penalty_leaves_fewer_terms(model, word_encoder):
    def postings() -> int:
        return SparseIndex.build(
            sparse_vectors(model, DOCUMENTS, "document"), DOCUMENTS
        ).postings.nnz

    before = postings()
    fit(model, 0.3)
    assert postings() < before / 2


@given(st.data(), st.integers(0, 400), st.floats(0, 1), st.integers(1, 300))
def test_the_penalty_by_places_and_idf_is_as_the_slow_reference(data, step, weight, steps):
    shape = data.draw(st.tuples(st.integers(1, 6), st.integers(1, 5)))
    values = np.array(
        data.draw(st.lists(st.sampled_from([0.0, 0.5, 2.0]), min_size=30, max_size=30))
    )
    documents = values[: shape[0] * shape[1]].reshape(shape)
    places = np.array(
        data.draw(st.lists(st.integers(-1, shape[0] - 1), min_size=6, max_size=6))
    ).reshape(3, 2)
    places[:, 0] = np.maximum(places[:, 0], 0)
    idf = np.array(
        data.draw(st.lists(st.sampled_from([0.0, 0.5, 2.0]), min_size=shape[1], max_size=shape[1]))
    )
    scale = np.divide(1, idf, out=np.zeros_like(idf), where=idf > 0)
    expected = 0.0
    for place in places.T:
        stands = [documents[i] * scale for i in place if i >= 0]
        if stands:
            expected += (np.mean(stands, axis=0) ** 2).sum()
    options, vectors = SparsityOptions(weight=weight, steps=steps), torch.tensor(documents)
    found = penalty(vectors, options, step, places=torch.tensor(places), idf=torch.tensor(idf))
    assert float(found) == pytest.approx(weight * min(1, step / steps) ** 2 * expected, rel=1e-5)
    plain = weight * min(1, step / steps) ** 2 * (documents.mean(axis=0) ** 2).sum()
    assert float(penalty(vectors, options, step)) == pytest.approx(plain, rel=1e-5)


def test_a_penalty_that_empties_all_documents_is_told(model):
    with torch.no_grad():
        module = model[0].sub_modules["document"][0]
        module.log_factor.fill_(-200)
        module.threshold.fill_(2)
    with pytest.raises(AnmiError, match="smaller penalty"):
        search_by(Encoder.of(model), QUERIES, DOCUMENTS)(3)


@pytest.fixture(scope="module")
def masked_lm(tmp_path_factory) -> Path:
    """A BERT of two small layers that knows the words, and nothing of them."""
    folder = tmp_path_factory.mktemp("bert")
    (folder / "vocab.txt").write_text(
        "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS])
    )
    save_bert(folder, 65, layers=2)
    BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)
    return folder


def test_a_masked_language_model_learns_it_too(masked_lm, tmp_path):
    model = of_masked_lm(str(masked_lm), DOCUMENTS)
    query = model[0].sub_modules["query"][0]
    assert not query.weight[:5].any() and (query.weight[5:] > 0).all()
    features = model.preprocess(DOCUMENTS[:2], task="document")
    # The paper's formula: the maximum over tokens of log(1 + relu(logit)), padding left out.
    network = BertForMaskedLM.from_pretrained(masked_lm).eval()
    inputs, mask = features["input_ids"], features["attention_mask"]
    with torch.no_grad():
        logits = network(input_ids=inputs, attention_mask=mask).logits
    expected = torch.relu(logits.masked_fill(mask[..., None] == 0, -1e9)).amax(dim=1).log1p()
    vectors = sparse_vectors(model, DOCUMENTS[:2], "document").toarray()
    np.testing.assert_allclose(vectors, expected, rtol=1e-3, atol=1e-3)
    before, _ = best(model)
    trained = fit(model, 1e-4, learning_rate=5e-3, precision="float32").model
    found, _ = best(trained)
    assert (before == np.arange(20)).sum() <= 5
    assert (found == np.arange(20)).sum() >= 15
    trained.save(str(tmp_path / "model"), create_model_card=False)
    assert (best(load_encoder(str(tmp_path / "model"), tmp_path))[0] == found).all()


@pytest.mark.parametrize("size", [70, 60])
def test_a_head_of_another_size_is_cut_or_refused(masked_lm, tmp_path, size):
    save_bert(tmp_path, size, layers=1)
    BertTokenizer(str(masked_lm / "vocab.txt")).save_pretrained(tmp_path)
    if size < 65:
        with pytest.raises(AnmiError, match="has 65 tokens and its head predicts 60"):
            of_masked_lm(str(tmp_path), DOCUMENTS)
        return
    model = of_masked_lm(str(tmp_path), DOCUMENTS)
    found, _ = best(model)
    model.save(str(tmp_path / "model"), create_model_card=False)
    assert (best(load_encoder(str(tmp_path / "model"), tmp_path))[0] == found).all()
    assert sparse_vectors(model, DOCUMENTS, "document").shape[1] == 65


def test_weights_of_another_tokenizer_are_refused(model, tmp_path):
    model.save(str(tmp_path / "model"), create_model_card=False)
    file = tmp_path / "model" / "query_0_SparseStaticEmbedding" / "model.safetensors"
    save_file({"weight": load_file(file)["weight"][:-5].copy()}, file)
    folder = tmp_path / "model"
    for read in (lambda: load_encoder(str(folder), tmp_path), lambda: term_table(folder)):
        with pytest.raises(AnmiError, match=r"tokenizer has \d+ tokens and the table \d+ weights"):
            read()
