"""Made collections of any size with planted relevance, as BEIR folders: what benchmarks/scale.py mines.

Words follow two power laws, the first words of a language by 1/rank and the rest by 1/rank^1.6
(Ferrer i Cancho and Solé 2001), out of a vocabulary without an end, so the number of different
words grows by Heaps' law with an exponent of about .6. A third of the words of a document are those
of its topic. Lengths are lognormal with the mean and spread of MS MARCO's passages. A query asks
with the rarer words of its document, a fifth of them swapped for others; a fifth of the queries
have a second relevant document, into which their words are written, and only half of these carry a
label: the others, which a miner must not take, are listed in ``unlabelled.tsv``. Some documents are
near-duplicates of the one before, some exact copies.

Chunk by chunk, each from random numbers keyed by seed and chunk, so a collection is the same on
every machine.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

CHUNK: Final = 10_000
SEED: Final = 1
# The most frequent English words, so that stop words and the recognition of the language find what
# they look for.
ENGLISH: Final = [
    "the", "of", "and", "to", "a", "in", "is", "it", "that", "was", "for", "on", "are", "with", "as", "be", "at",
    "by", "this", "had", "not", "but", "from", "or", "have", "an", "they", "which", "one", "you", "were", "all",
    "her", "she", "there", "would", "their", "we", "him", "been", "has", "when", "who", "will", "no", "more", "if",
    "out", "so", "up", "what", "its", "about", "than", "into", "them", "can", "only", "other", "time", "new", "some",
    "could", "these", "two", "may", "first", "then", "do", "any", "like", "my", "now", "over", "such", "our", "man",
    "me", "even", "most",
]  # fmt: skip
# Words that obey 1/rank; the tail's exponent gives Heaps' 1 / 1.6.
CORE: Final = 5_000
TAIL: Final = 1.6
TOPIC_SHARE: Final = 0.33
TOPIC_WORDS: Final = 60_000
# Words of MS MARCO's passages, and the standard deviation of their logarithm.
MEAN, SPREAD = 56, 0.42
SENTENCE: Final = 14
NEAR: Final = 0.03
EXACT: Final = 0.005
SWAPPED: Final = 0.2
SECOND: Final = 0.2
# Dev and test queries for each training query.
HELD_OUT: Final = 0.02
_ONSETS: Final = [
    *"bcdfghjklmnprstvwz",
    "br",
    "ch",
    "cl",
    "dr",
    "gr",
    "pl",
    "pr",
    "sh",
    "st",
    "th",
    "tr",
]
_SYLLABLES: Final = [
    onset + vowel for vowel in ("a", "e", "i", "o", "u", "ai", "ea", "ou") for onset in _ONSETS
]


def ranks(random: np.random.Generator, count: int) -> NDArray[np.int64]:
    """Draw ``count`` ranks of words, from 0."""
    head, tail = np.log(CORE), 1 / (TAIL - 1)
    place = random.random(count) * (head + tail)
    rest = np.maximum(head + tail - place, 1e-9) / tail
    drawn = np.where(
        place < head, np.exp(np.minimum(place, head)), CORE * rest ** (-1 / (TAIL - 1))
    )
    return np.minimum(drawn, 1e15).astype(np.int64) - 1


def spelled(rank: int) -> str:
    """Return the word of a rank; frequent words are short."""
    if rank < len(ENGLISH):
        return ENGLISH[rank]
    # From two syllables on, so that no made word is an English one of the list.
    rank += len(_SYLLABLES)
    parts = []
    while rank >= 0:
        parts.append(_SYLLABLES[rank % len(_SYLLABLES)])
        rank = rank // len(_SYLLABLES) - 1
    return "".join(parts)


def texts(
    tokens: NDArray[np.int64], starts: NDArray[np.int64], random: np.random.Generator | None = None
) -> pa.StringArray:
    """Return texts of the words from each start to the next; with ``random`` in sentences."""
    found, place = np.unique(tokens, return_inverse=True)
    words = [spelled(rank) for rank in found.tolist()]
    if random is not None:
        ends = random.random(len(tokens)) < 1 / SENTENCE
        ends[starts[1:] - 1] = True
        begins = np.zeros(len(tokens), bool)
        begins[starts[:-1]] = True
        begins[1:] |= ends[:-1]
        capital = [word.capitalize() for word in words]
        words += [f"{word}." for word in words] + capital + [f"{word}." for word in capital]
        place = place + len(found) * (ends + 2 * begins)
    values = pa.array(words).take(pa.array(place))
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(starts.astype(np.int32)), values), " ")


def documents(number: int, count: int, topics: int) -> tuple[Any, Any, Any]:
    """Draw the words of a chunk of documents, their starts, and the random numbers that go on from there."""
    random = np.random.Generator(np.random.Philox([SEED, number]))
    drawn = random.lognormal(np.log(MEAN) - SPREAD**2 / 2, SPREAD, count)
    copied = random.random(count) < NEAR + EXACT
    copied[0] = False
    # A copy of a copy is one of the first.
    source = np.maximum.accumulate(np.where(copied, 0, np.arange(count)))
    size = np.clip(drawn, 8, 4_000).astype(np.int64)[source]
    starts = np.concatenate([[0], np.cumsum(size)])
    tokens = ranks(random, int(starts[-1]))
    topic = np.repeat(random.integers(topics, size=count), size)
    of_topic = random.random(len(tokens)) < TOPIC_SHARE
    # The words of a topic are few, some frequent in it; they lie behind those that every text uses.
    within = (400 * random.random(len(tokens)) ** 3).astype(np.int64)
    told = 300 + (topic * 7_919 + within * 104_729) % TOPIC_WORDS
    tokens = np.where(of_topic, told, tokens)
    rows = np.flatnonzero(source != np.arange(count))
    exact = random.random(len(rows)) < EXACT / (NEAR + EXACT)
    for row, same in zip(rows.tolist(), exact.tolist(), strict=True):
        tokens[starts[row] : starts[row + 1]] = tokens[
            starts[source[row]] : starts[source[row] + 1]
        ]
        if not same:
            # One frequent word more or less is all that differs.
            tokens[starts[row] + size[row] // 2] = row % 40
    return tokens, starts, random


def queries(
    tokens: NDArray[np.int64], starts: NDArray[np.int64], count: int, random: np.random.Generator
) -> tuple[NDArray[np.int64], list[NDArray[np.int64]], NDArray[np.int64]]:
    """Draw the documents of queries, their words, and a second relevant document each, -1 where there is none.

    The words of a query are written into its second document.
    """
    rows = np.sort(random.choice(len(starts) - 1, count, replace=False))
    seconds = np.where(
        random.random(count) < SECOND, (rows + len(starts) // 2) % (len(starts) - 1), -1
    )
    noise = ranks(random, count * 12)
    wanted = random.integers(4, 10, count)
    asked = []
    for query, row in enumerate(rows.tolist()):
        words = tokens[starts[row] : starts[row + 1]]
        telling = np.unique(words[words >= len(ENGLISH)])
        # Rarer words twice as many as asked for, and of these some: nobody asks with the rarest
        # alone.
        rare = random.permutation(telling[-2 * int(wanted[query]) :])[: int(wanted[query])]
        rare = rare if len(rare) else words[:3]
        swapped = random.random(len(rare)) < SWAPPED
        swapped[0] = False
        asked.append(np.where(swapped, noise[query * 12 : query * 12 + len(rare)], rare))
        if (second := int(seconds[query])) >= 0:
            begin, end = starts[second], starts[second + 1]
            places = random.choice(end - begin, min(len(rare), end - begin), replace=False)
            tokens[begin + places] = rare[: len(places)]
    return rows, asked, seconds


def make(folder: Path, count: int, asked: int) -> None:
    """Write a collection of ``count`` documents and ``asked`` training queries."""
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    splits = {"train": asked} | dict.fromkeys(("dev", "test"), max(20, int(asked * HELD_OUT)))
    split_of = np.repeat(list(splits), list(splits.values()))
    # Queries of all splits are spread evenly over the documents.
    split_of = np.random.Generator(np.random.Philox([SEED, 2**32])).permutation(split_of)
    with ExitStack() as stack:

        def file(name: str) -> Any:
            return stack.enter_context((folder / name).open("w", encoding="utf-8"))

        corpus, questions, unlabelled = (
            file("corpus.jsonl"),
            file("queries.jsonl"),
            file("unlabelled.tsv"),
        )
        labels = {split: file(f"qrels/{split}.tsv") for split in splits}
        for each in (*labels.values(), unlabelled):
            each.write("query-id\tcorpus-id\tscore\n")
        for number, begin in enumerate(range(0, count, CHUNK)):
            end = min(begin + CHUNK, count)
            first, last = (round(len(split_of) * place / count) for place in (begin, end))
            tokens, starts, random = documents(number, end - begin, max(10, count // 200))
            rows, words, seconds = queries(tokens, starts, last - first, random)
            # After the queries, which write into second documents.
            found = texts(tokens, starts, random)
            ids = pc.cast(pa.array(np.arange(begin, end)), pa.string())
            corpus.writelines(
                pc.binary_join_element_wise(
                    '{"_id": "d', ids, '", "title": "", "text": "', found, '"}\n', ""
                ).to_pylist()
            )
            cuts = np.concatenate([[0], np.cumsum([len(each) for each in words])])
            for place, text in enumerate(
                texts(np.concatenate([*words, []]).astype(np.int64), cuts).to_pylist()
            ):
                query = first + place
                questions.write(f'{{"_id": "q{query}", "text": "{text}"}}\n')
                labels[split_of[query]].write(f"q{query}\td{begin + rows[place]}\t1\n")
                if seconds[place] >= 0:
                    known = labels[split_of[query]] if random.random() < 0.5 else unlabelled
                    known.write(f"q{query}\td{begin + seconds[place]}\t1\n")
