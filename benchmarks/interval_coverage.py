"""Whether the share of relevant negatives lies where the judge says, on collections whose whole truth is known.

Made collections (2,400 documents, 200 queries) with 1 to 600 relevant documents a query of which 1
to 20 are labelled, and with groups of 2 to 50 paraphrases, one labelled, by other words and by
another order of the same; and six real ones with all but one of the known positives hidden, or
half. Each is mined in this process, by the default recipe and the static encoder. ``HELD_OUT``
names what was not looked at before all choices had been made. Ten minutes on one core; ``python
benchmarks/interval_coverage.py PART OF A NAME ...`` only prints what it finds of these collections.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from anmi.candidates import PADDING, Candidates, CandidateShards
from anmi.corpus.related import find_related
from anmi.corpus.texts import find_duplicates, normalised_forms
from anmi.evaluation.diagnostics import Expected, diagnose
from anmi.judging.evidence import Material, Terms
from anmi.judging.fusing import FusedJudge, FusedOptions
from anmi.retrieval.bm25 import BM25Index
from anmi.retrieval.encoders import Encoder
from anmi.retrieval.kinds import EncoderSettings
from anmi.retrieval.pool import RelatedDocuments
from anmi.retrieval.retrieve import Queries, Retrieve
from anmi.selection.recipe import RecipeBook, Runner
from common import MODELS, about, recipes, save
from planted import COLLECTIONS, Opened, planted

DOCUMENTS, QUERIES, SEED = 2400, 200, 42
HELD_OUT: Final = ("200_relevant", "5_by_", "medquad", "sae4k_ko")
PARAPHRASES: Final = [
    (f"{size}_by_{kind}{'_and_copies' if near else ''}", size, kind, near)
    for size in (2, 5, 20, 50)
    for kind in ("words", "order")
    for near in (False, True)
]
MANY: Final = [
    (f"{relevant}_relevant_{known}_labelled", relevant, known)
    for relevant in (1, 5, 40, 200, 600)
    for known in (1, 5, 20)
    if known <= relevant
]
ASPECTS, WORDS = 4, 12
SYLLABLES = [
    a + b for a in "bdfgklmnprstvz" for b in ("a", "e", "i", "o", "u", "al", "en", "or", "is")
]


def words(count: int, draw: np.random.Generator) -> list[str]:
    """Make distinct words of two to four syllables."""
    made: dict[str, None] = {}
    while len(made) < count:
        made["".join(draw.choice(SYLLABLES, draw.integers(2, 5)))] = None
    return list(made)


@dataclass(frozen=True)
class Made:
    """Texts, and how relevant every document is to every query: 0, 1 or 2, int8 [Q, N]."""

    documents: list[str]
    queries: list[str]
    relevance: NDArray[np.int8]


def made(relevant: int, documents: int, queries: int, topics: int, seed: int = 1) -> Made:
    """Make a collection about topics.

    A document is about one topic, and a little about another; a topic has aspects with words of
    their own, and a query asks for one of them in a few words, so that some relevant documents hold
    none of its words and many others do.
    """
    draw = np.random.default_rng(seed)
    lexicon = words(4000 + topics * ASPECTS * WORDS, draw)
    common, topical = lexicon[:4000], np.array(lexicon[4000:]).reshape(topics, ASPECTS, WORDS)
    zipf = 1 / np.arange(1, 4001) ** 0.9
    zipf /= zipf.sum()
    shares = np.zeros((documents, topics * ASPECTS))
    texts = []
    for number in range(documents):
        main, other = number % topics, int(draw.integers(topics))
        for topic, weight in ((main, 0.8), (other, 0.2)):
            shares[number, topic * ASPECTS : (topic + 1) * ASPECTS] += weight * draw.dirichlet(
                [0.5] * ASPECTS
            )
        length = int(draw.integers(50, 130))
        about = draw.choice(topics * ASPECTS, int(0.5 * length), p=shares[number])
        picked = [
            topical[a // ASPECTS, a % ASPECTS, min(int(draw.geometric(0.2)) - 1, WORDS - 1)]
            for a in about
        ]
        tokens = [*picked, *draw.choice(common, length - len(picked), p=zipf)]
        texts.append(" ".join(np.array(tokens)[draw.permutation(len(tokens))].tolist()))
    asked, wanted = [], np.zeros((queries, topics * ASPECTS))
    for number in range(queries):
        topic, aspect = int(draw.integers(topics)), int(draw.integers(ASPECTS))
        wanted[number, topic * ASPECTS : (topic + 1) * ASPECTS] = 0.35
        wanted[number, topic * ASPECTS + aspect] = 1.0
        tokens = [
            *draw.choice(topical[topic, aspect], 3, replace=False),
            *draw.choice(topical[topic].ravel(), 2),
        ]
        tokens += draw.choice(common, int(draw.integers(0, 3)), p=zipf).tolist()
        asked.append(" ".join(tokens))
    affinity = wanted @ shares.T + 0.15 * draw.normal(size=(queries, documents))
    place = np.argsort(np.argsort(-affinity, axis=1), axis=1)
    relevance = (place < relevant).astype(np.int8) + (place < relevant / 4).astype(np.int8)
    return Made(texts, asked, relevance)


def some_known(truth: NDArray[np.int8], count: int, seed: int = 2) -> NDArray[np.bool_]:
    """Keep ``count`` labels of each query, drawn at random."""
    draws = np.where(truth > 0, np.random.default_rng(seed).random(truth.shape), 2.0)
    return (np.argsort(np.argsort(draws, axis=1), axis=1) < count) & (truth > 0)


@dataclass(frozen=True)
class Case:
    """A block of candidates beside what they are judged by, and which of all documents are relevant, bool [Q, N]."""

    name: str
    block: Candidates
    material: Material
    truth: NDArray[np.bool_]
    without: str | None = None


def paraphrased(size: int, kind: str, near: bool, seed: int = 5) -> Made:
    """Make groups of documents that say the same, by synonyms or in another order; ``near`` adds copies but for a word.

    A query asks in words that any of the group may have used; with copies, in those of the document
    that is labelled.
    """
    draw = np.random.default_rng(seed)
    groups = min(60, DOCUMENTS * 9 // 10 // size)
    lexicon = np.array(words(9000, draw)).reshape(3000, 3)
    rank = 1 / np.arange(1, 3001) ** 0.7
    rank /= rank.sum()

    def told(meanings: NDArray[np.int64]) -> list[str]:
        forms = (
            draw.integers(3, size=len(meanings))
            if kind == "words"
            else np.zeros(len(meanings), int)
        )
        some = lexicon[meanings, forms]
        return [str(each) for each in (draw.permutation(some) if kind == "order" else some)]

    meant = [draw.choice(3000, 60, p=rank) for _ in range(groups)]
    texts = [told(meant[group]) for group in range(groups) for _ in range(size)]
    of = np.repeat(np.arange(groups), size)
    if near:
        copied = draw.choice(
            len(texts), min(len(texts) // 5, DOCUMENTS - len(texts)), replace=False
        )
        texts += [[*texts[each][:-1], str(draw.choice(lexicon[:, 0], p=rank))] for each in copied]
        of = np.concatenate([of, of[copied]])
    others = DOCUMENTS - len(texts)
    texts += [told(draw.choice(3000, 60, p=rank)) for _ in range(others)]
    of = np.concatenate([of, np.full(others, -1)])
    asked, relevance = [], np.zeros((QUERIES, DOCUMENTS), np.int8)
    for query in range(QUERIES):
        group = query % groups
        known = int(draw.choice(np.flatnonzero(of == group)))
        rare = np.argsort(rank[meant[group]])[:12]
        picked = draw.choice(rare, 4, replace=False)
        asked.append(
            " ".join(
                np.array(texts[known])[picked]
                if near and kind == "words"
                else told(meant[group][picked])
            )
        )
        relevance[query, of == group] = 1
        relevance[query, known] = 2
    return Made([" ".join(text) for text in texts], asked, relevance)


def mined(name: str, each: Made, known: NDArray[np.bool_]) -> Case:
    """Retrieve candidates as a run does."""
    ids, asked = (
        [f"d{n}" for n in range(len(each.documents))],
        [f"q{n}" for n in range(len(each.queries))],
    )
    corpus = pd.DataFrame({"document_id": ids, "title": "", "text": each.documents})
    forms = normalised_forms(corpus.text)
    related = find_related(
        corpus.assign(metadata="{}"), forms, find_duplicates(corpus.document_id, forms)
    )
    encoder = Encoder(EncoderSettings(encoder="static"), MODELS)
    vectors = encoder.encode(each.documents, "document")
    terms = Terms.cut(each.documents, "en", "auto")
    width = int(known.sum(axis=1).max())
    positives = np.full((len(asked), width), PADDING, np.int32)
    for row, mine in enumerate(known):
        positives[row, : mine.sum()] = np.flatnonzero(mine)
    search = Retrieve(
        bm25=BM25Index.of_terms(terms),
        vectors=vectors,
        approximate=None,
        related=RelatedDocuments.from_table(related, ids),
        bm25_depth=100,
        dense_depth=100,
        random=32,
        seed=SEED,
        dense_ranks=100,
    )
    own = np.full(len(asked), PADDING, np.int32)
    block = search(
        Queries(asked, each.queries, positives, own, encoder.encode(each.queries, "query"))
    )
    material = Material(terms, dict(zip(asked, each.queries, strict=True)), vectors)
    return Case(name, block, material, each.relevance > 0)


def made_cases(wanted: tuple[str, ...]) -> Iterator[Case]:
    """All made collections whose name has one of the given parts."""
    for name, relevant, known in MANY:
        if any(part in name for part in wanted):
            each = made(relevant, DOCUMENTS, QUERIES, min(60, max(DOCUMENTS // relevant, 2)))
            yield mined(name, each, some_known(each.relevance, known))
    for name, size, kind, near in PARAPHRASES:
        if any(part in name for part in wanted):
            each = paraphrased(size, kind, near)
            yield mined(name, each, each.relevance == 2)


def real_cases(wanted: tuple[str, ...]) -> Iterator[Case]:
    """Collections with planted truth; see benchmarks/calibration.py."""
    for name in COLLECTIONS:
        for half in (False, True):
            full = f"{name}, {'half' if half else 'all but one'} hidden"
            if not any(part in full for part in wanted):
                continue
            (each,) = planted([name], "static", half)
            material = Opened.of(name, "static").material(each.block.query_ids.tolist())
            truth = np.zeros((len(each.block), int(each.block.documents.max()) + 1), bool)
            row, place = np.nonzero(each.truth)
            truth[row, each.block.documents[row, place]] = True
            unrelated = {"related": np.zeros(each.block.documents.shape, np.float32)}
            yield Case(full, each.block.with_columns(unrelated), material, truth, name)


def measure(case: Case) -> dict[str, Any]:
    """Mine by the default recipe; what is said, and what is true."""
    judge = FusedJudge(FusedOptions(without=case.without), case.material, "static", SEED)
    judge.fit(CandidateShards.of([case.block]))
    block = judge(case.block)
    block = block.with_columns({"p_relevant": block.columns["p_evidence"]})
    runner = Runner(RecipeBook(**recipes()).get("anmi"), SEED)
    shards = runner.run(CandidateShards.of([block]))
    (said,) = diagnose(shards, Expected(judge.summary))
    chosen = shards.whole()
    number = {query: row for row, query in enumerate(case.block.query_ids.tolist())}
    row, place = np.nonzero(chosen.negatives)
    query = np.array([number[each] for each in chosen.query_ids.tolist()])[row]
    true = float(case.truth[query, chosen.documents[row, place]].mean()) if len(row) else 0.0
    return {
        "case": case.name,
        "true": true,
        **(said or {}),
        "filled": float((chosen.negatives.sum(axis=1) >= 15).mean()),
        "grouped": judge.summary.get("grouped", 0.0),
        "as_relevant": judge.summary.get("as_relevant", 0.0),
    }


def main(wanted: tuple[str, ...]) -> None:
    """Measure the collections whose name has one of the given parts; without any all, and write the result."""
    found = []
    for case in chain(made_cases(wanted or ("",)), real_cases(wanted or ("",))):
        found.append(measure(case))
        print(
            "{case:<45} true {true:7.2%} said {share:7.2%} ({low:.2%} to {high:.2%}) rows filled"
            " {filled:.0%} as relevant {as_relevant:.1f} grouped {grouped:.0%} {warning}".format(
                **found[-1]
            ),
            flush=True,
        )
    if wanted:
        return
    inside = np.array([each["low"] <= each["true"] <= each["high"] for each in found])
    held = np.array([any(part in each["case"] for part in HELD_OUT) for each in found])
    warned = [bool(each["warning"]) for each in found if each["true"] > 0.05]
    needless = sum(bool(each["warning"]) for each in found if each["true"] <= 0.05)
    worst = max(each["true"] for each in found if not each["warning"])
    note = (
        f"of {len(found)} collections; {inside[held].mean():.2f} of the {held.sum()} held out;"
        f" {sum(warned)} of {len(warned)} with a true share above 5 % warned, and {needless} of the"
        f" others; without a warning at most {worst:.1%} of the negatives were relevant"
    )
    value = round(float(inside.mean()), 4)
    row = {"case": "interval_coverage", "value": value, "unit": "share", "note": note}
    save("interval_coverage", about() | {"rows": [row]})


if __name__ == "__main__":
    main(tuple(sys.argv[1:]))
