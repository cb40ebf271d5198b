"""The corpus's own encoder is a table with a vector for each piece of the words of its documents.

A vector is made of two halves. One is the piece's place in a latent semantic analysis of the
corpus, which knows what stands together here, in any language. The other is what MiniLM, asked for
the piece alone, knows of it. Together they start where a small transformer does, and training moves
them on. It is saved as a plain sentence-transformers model.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from importlib import metadata
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from anmi.corpus.texts import Texts, taken
from anmi.errors import AnmiError
from anmi.files import write_json
from anmi.ragged import Float32s
from anmi.retrieval.spelling import UNKNOWN, pieces_of, spelling_of
from anmi.retrieval.terms import counted, counted_texts, idf_of
from anmi.retrieval.token_table import (
    PLAIN_NORMALIZE,
    WEIGHTS,
    learn_pieces,
    lowered_words,
    lowering,
)
from anmi.retrieval.tokenize import UNBROKEN

log = logging.getLogger(__name__)

HALF: Final = 256
PIECES: Final = 30_000
# Documents that are read for all of it: more tell little that is new, and a million take minutes.
READ: Final = 200_000
# Longer ones are read in parts of so many characters, each as a document: what stands in megabytes
# stands nowhere together, and memory is bounded.
_PART: Final = re.compile(r"(?s).{1,100000}(?!\S)|.{1,100000}")
# Characters of different words that pieces are learned of, which takes time by their number.
_LEARNED: Final = 500_000
# Times that a word stands in one text that pieces are learned of.
_REPEATED: Final = 64
_ITERATIONS: Final = 4
_STATIC: Final = (
    "sentence_transformers.sentence_transformer.modules.static_embedding.StaticEmbedding"
)
_NORMALIZE: Final = "sentence_transformers.base.modules.normalize.Normalize"

Distil = Callable[[list[str]], Float32s]


def corpus_encoder(
    texts: Texts,
    seed: int,
    distil: Distil,
    spelled: Any,
) -> tuple[Any, Float32s]:
    """Make the encoder of a corpus.

    Parameters
    ----------
    texts
        Documents.
    seed
        Of the documents that are read where there are more than 200,000, and of the decomposition.
    distil
        Unit vectors of pieces, float32 [V, D], from MiniLM.
    spelled
        Its tokenizer, which says whether it knows the script.

    Returns
    -------
    tokenizer, table
        Of the library tokenizers, and float32 [V, 512] or narrower; the first row is that of
        unknown words, all 0.

    Raises
    ------
    AnmiError
        The documents hold no word.

    References
    ----------
    Deerwester et al., "Indexing by latent semantic analysis", JASIS 41, 1990.
    """
    random_order = np.random.default_rng(seed).permutation(len(texts))
    read = np.sort(random_order[:READ])
    stretches = [*chain.from_iterable(map(_PART.findall, taken(texts, read)))]
    counts, vocabulary = counted_texts(stretches, lowered_words, alone=True)
    words = list(vocabulary)
    if not words:
        raise AnmiError(
            f"the {len(texts)} documents hold no word, so that they have no encoder of their own"
        )
    times = np.asarray(counts.sum(axis=0)).ravel()
    weight = np.float32(1.0 if spelling_of(words, times, spelled).knows_script else 0.5)
    tokenizer = _of_pieces(words, times)
    numbers = tokenizer.get_vocab()
    pieces = sorted(numbers, key=numbers.__getitem__)
    word_pieces = [encoding.tokens for encoding in tokenizer.encode_batch(words)]
    counts = counts @ counted(word_pieces, numbers, grow=False)
    occurrences = np.asarray(counts.sum(axis=0)).ravel()
    occurrences[0] = 0
    table, idf = _latent(counts, seed)
    rows = pieces_of(pieces, spelled)
    is_spelled = np.array([len(row) > 0 and UNKNOWN not in row for row in rows])
    # What only one document has leads to that document by its own half, and asking for it takes
    # half of the time. Where there are fewer documents than dimensions that half is narrow, of a
    # single document one number.
    frequency = counts.getnnz(axis=0) * (is_spelled & (occurrences > 0))
    distilled = np.flatnonzero(frequency >= (2 if counts.shape[0] >= HALF else 1))
    if len(distilled):
        meaning = np.zeros((len(pieces), min(HALF, len(distilled))), np.float32)
        vectors = distil([pieces[place] for place in distilled])
        meaning[distilled] = _principal(vectors, occurrences[distilled], meaning.shape[1])
        table = np.hstack([table, weight * meaning])
    table *= idf[:, None]
    table[occurrences == 0] = 0
    log.info("The corpus's own encoder has %d pieces of words, of %d dimensions", *table.shape)
    return tokenizer, np.ascontiguousarray(table)


def save(tokenizer: Any, table: Float32s, folder: Path) -> None:
    """Write the encoder as sentence-transformers does, without its import, which takes seconds."""
    from safetensors.numpy import save_file

    packages = {"pytorch": "torch"} | {
        name: name for name in ("sentence_transformers", "transformers")
    }
    settings = {
        "__version__": {name: metadata.version(package) for name, package in packages.items()},
        "default_prompt_name": None,
        "model_type": "SentenceTransformer",
        "prompts": {"document": "", "query": ""},
        "similarity_fn_name": "cosine",
    }
    paths = {"": _STATIC, "1_Normalize": _NORMALIZE}
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": kind}
        for number, (path, kind) in enumerate(paths.items())
    ]
    (folder / "1_Normalize").mkdir(parents=True)
    write_json(folder / "config_sentence_transformers.json", settings)
    write_json(folder / "modules.json", modules)
    write_json(folder / "1_Normalize" / "config.json", PLAIN_NORMALIZE)
    save_file({WEIGHTS: table}, folder / "model.safetensors")
    tokenizer.save(str(folder / "tokenizer.json"))


def _of_pieces(words: Sequence[str], times: NDArray[Any]) -> Any:
    """Return a tokenizer of the pieces that explain the most frequent words best."""
    from tokenizers import Tokenizer
    from tokenizers.models import Unigram
    from tokenizers.pre_tokenizers import WhitespaceSplit

    order = np.argsort(-times, kind="stable")
    lengths = np.array(list(map(len, words)))[order]
    frequent = order[np.cumsum(lengths) - lengths < _LEARNED].tolist()
    # What no blank interrupts takes time by the square of its length.
    repeated = (
        (UNBROKEN.sub(r"\g<0> ", words[place]) + " ") * min(_REPEATED, int(times[place]) - start)
        for place in frequent
        for start in range(0, int(times[place]), _REPEATED)
    )
    # Words are lowered and cut already, and to do so each time they occur takes most of the time.
    tokenizer = Tokenizer(Unigram())
    tokenizer.pre_tokenizer = WhitespaceSplit()
    learn_pieces(tokenizer, repeated, PIECES, [UNKNOWN])
    return lowering(tokenizer)


def _latent(counts: sparse.csr_matrix, seed: int) -> tuple[Float32s, Float32s]:
    """Return the unit vector of each piece by latent semantic analysis, [V, K], and idf, [V]."""
    from sklearn.utils.extmath import randomized_svd

    held = counts.copy()
    idf = idf_of(counts)
    held.data = (1 + np.log(held.data)) * idf[held.indices]
    squares = held.multiply(held).sum(axis=1)
    length = np.sqrt(np.asarray(squares).ravel())
    scale = sparse.diags(1 / np.maximum(length, 1e-9))
    held = (scale @ held).tocsr().astype(np.float32)
    width = min(HALF, *held.shape)
    _, values, right = randomized_svd(held, width, n_iter=_ITERATIONS, random_state=seed)
    # Where documents repeat there are fewer directions than asked for, and the others are noise.
    return _unit(right[values > 1e-4 * values[0]].T), idf


def _principal(vectors: Float32s, occurrences: NDArray[Any], width: int) -> Float32s:
    """Return unit vectors of fewer dimensions, [V, K], without what all words share."""
    centred = vectors - np.average(vectors, axis=0, weights=occurrences).astype(np.float32)
    values, directions = np.linalg.eigh(centred.T @ centred)
    return _unit(centred @ directions[:, np.argsort(-values)[:width]])


def _unit(vectors: NDArray[Any]) -> Float32s:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1e-12), np.float32)
