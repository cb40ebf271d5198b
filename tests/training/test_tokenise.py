import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from anmi.retrieval.sparse.model import inference_free
from anmi.training.batch import Tokeniser

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


def test_prompts_go_to_their_role():
    model = encoder(prompts={"query": "q "})
    tokenise = Tokeniser(model, None)
    assert tokenise(["a"], "query")["input_ids"].tolist() == [4, 1]
    assert tokenise(["a"], "document")["input_ids"].tolist() == [1]


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
