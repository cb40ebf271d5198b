"""Copies, near-duplicates, parts, splits and new documents."""

from __future__ import annotations

import logging
import random
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anmi.corpus import related as near
from anmi.corpus.related import (
    copies,
    families_of,
    find_related,
    new_documents,
    parents_of,
    siblings,
    why_none_is_new,
)
from anmi.corpus.texts import (
    document_texts,
    find_duplicates,
    find_queries,
    normalised,
    normalised_forms,
    to_json,
)
from anmi.errors import AnmiError
from anmi.seeds import choose, cut

# Pairs of texts, two or more a line.
SAME = """
Straße = STRASSE | ﬁne  tuning = fine\ttuning. | １２ ＡＢ = 12 ab | 한국어 = 한국어
\ufeffLos Panthers = los panthers | co-operate = co operate | 47,XYY syndrome = 47, XYY syndrome
What is “C#” – (a language)? = what is c# a language | it’s −5 °C… = It's -5 °C.
你好，世界！ = 你好 世界 | red ,green = red, green | İZMİR = izmir | a &lt; b = a < b
he said,"yes" twice = He said, "yes" twice. | <p>What is <b>R&amp;D</b>?</p> = what is r&d
one<br/>two&nbsp;three = one two three | ## Why **is** the [sky](https://x.org/a) `blue`? = why is the sky blue
"""
DIFFERENT = """
कि = की | a < b = a > b | ? = ! | arrays in C. = arrays in C#? | C = C++ | at 5 = at −5 | 50 = 50%
net = .NET | init = __init__ | 1.5 = 1 5 | 3-5 = 3 5 | 5 + 3 = 5 * 3 | *args = **args | a*b*c = abc
what does <br> do = what does <hr> do | what is <br>? = what is <p>? | List<int> = List<str>
AT&T = AT T | a[] = a | 用C写 = 用C#写
"""


@pytest.mark.parametrize(("pairs", "same"), [(SAME, True), (DIFFERENT, False)])
def test_signs_make_another_text_and_the_way_of_writing_does_not(pairs: str, same: bool) -> None:
    for line in pairs.strip().replace(" | ", "\n").split("\n"):
        one, other = (normalised(text) for text in line.split(" = "))
        assert (one == other) is same, line


ALIKE = st.sampled_from(["a b", "A b", "a  b", "c", "C", "c!", "d"])
SIGNS = st.text("aÉ5漢 \n\t\xa0\u2028\x1c\x85\u200d\u0301.,()-\"'#*?<>&;İß", max_size=12)


@given(st.lists(ALIKE | SIGNS, max_size=20))
def test_duplicates_point_to_the_first_of_their_kind(texts):
    forms = [normalised(text) for text in texts]
    assert normalised_forms(texts).to_pylist() == forms
    found = find_duplicates([str(row) for row in range(len(texts))], normalised_forms(texts))
    first = {row: forms.index(form) for row, form in enumerate(forms)}
    assert found.values.tolist() == [
        [str(row), str(one)] for row, one in first.items() if row != one
    ]


def queries_in(corpus, **texts):
    """What ``find_queries`` says of queries by their id, in a corpus of ``id: (title, text)``."""
    corpus = pd.DataFrame(
        [(i, *parts) for i, parts in corpus.items()], columns=["document_id", "title", "text"]
    )
    queries = pd.DataFrame(
        {"query_id": list(texts), "normalised": [normalised(text) for text in texts.values()]}
    )
    forms = [normalised(text) for text in document_texts(corpus)]
    return dict(zip(texts, find_queries(queries, corpus, forms), strict=True))


def test_a_query_is_the_document_of_its_id_and_text_or_else_of_its_text():
    corpus = {
        "a": ("", "Meat is murder."),
        "b": ("Diets", "Meat is food."),
        "c": ("Meat", "is life"),
    }
    queries = {"a": "meat is murder", "b": "Meat is food", "c": "Meat is life!", "d": "Meat is air"}
    assert queries_in(corpus, **queries) == {"a": "a", "b": "b", "c": "c", "d": ""}
    corpus = {"x": ("", "fox"), "q": ("", "Fox?"), "y": ("An", "owl")}
    queries = {"q": "FOX", "other": "fox!", "owl": "an owl", "no title": "owl"}
    expected = {"q": "q", "other": "x", "owl": "y", "no title": ""}
    assert queries_in(corpus, **queries) == expected


def corpus_of(*metadata: str) -> pd.DataFrame:
    return pd.DataFrame(
        {"document_id": [f"d{i}" for i in range(len(metadata))], "metadata": metadata}
    )


def parents(metadata: list[str], column: str | None = None) -> list[str]:
    return parents_of(corpus_of(*metadata), column).tolist()


def families(corpus: pd.DataFrame) -> list[str]:
    return families_of(corpus, parents_of(corpus)).tolist()


def test_documents_of_one_parent_are_siblings_and_the_parent_is_one_of_them() -> None:
    names = ["p", None, "p", "q", "p", "d1"]
    found = parents_of(corpus_of(*[to_json({"document": name}) for name in names]))
    assert found.tolist() == ["p", "d1", "p", "q", "p", "d1"]
    assert np.stack(siblings(found)).T.tolist() == [[0, 2], [0, 4], [1, 5]]


def test_only_the_key_document_names_a_parent_or_the_column_that_a_setting_names() -> None:
    metadata = [
        '{"parent": "p", "document": "q"}',
        '{"doc_id": "p", "parent_id": "p", "document_id": "p", "parent": 3}',
        '{"document": ""}',
        '{"document": ["x"]}',
    ]
    assert parents(metadata) == ["q", "d1", "d2", "d3"]
    assert parents(metadata, "parent") == ["p", "3", "d2", "d3"]
    assert parents(metadata, "") == ["d0", "d1", "d2", "d3"]
    with pytest.raises(AnmiError, match='no document has a "family"'):
        parents(metadata, "family")
    books = ['{"book": 1.0}', '{"book": NaN}', '{"book": null}', '{"book": " 1 "}']
    assert parents(books, "book") == ["1", "d1", "d2", "1"], "read as ids of documents are"


@pytest.mark.parametrize("mark", ["#", "_", "::", "_chunk_", "-p", "/section"])
def test_numbers_of_parts_are_recognised_where_much_of_the_corpus_has_them(mark: str) -> None:
    ids = [f"x_{i}{mark}{j}" for i in range(5) for j in range(4)]
    cut = pd.DataFrame({"document_id": [*ids, "x_2", "y#7"], "metadata": "{}"})
    assert families(cut) == [*(f"x_{i}" for i in range(5) for _ in range(4)), "x_2", "y"]
    assert parents_of(cut).equals(cut.document_id), "ids alone make no documents"
    stated = cut.document_id.where(cut.index > 0, "z")
    assert families_of(cut, stated)[:2].tolist() == ["z", "x_0"], "what metadata say stands"


APOLLO = [f"Apollo_{10 * i + j}" for i in range(1, 11) for j in (3, 5, 6, 7, 8, 9)]
NO_PARTS = {
    "SciFact": [str(4983 + 17 * i) for i in range(60)],
    "NFCorpus": [f"MED-{i}" for i in range(60)],
    "one row": [f"doc_{i}" for i in range(60)],
    "XQuAD": [f"{i:04}-{j:03}" for i in range(20) for j in range(3)],
    "dates": [f"2019-{month:02}-{day:02}" for month in (1, 2, 3) for day in range(1, 21)],
    "gaps": APOLLO,
    "rows of tables": [f"f{i}.jsonl#{j}" for i in range(20) for j in (1, 2, 3)],
}


@pytest.mark.parametrize("ids", NO_PARTS.values(), ids=NO_PARTS)
def test_numbers_of_something_else_are_no_parts(ids: list[str]) -> None:
    metadata = [to_json({"path": name.partition("#")[0]}) for name in ids]
    assert families(pd.DataFrame({"document_id": ids, "metadata": metadata})) == ids


def test_documents_with_titles_of_their_own_are_no_parts() -> None:
    titled = pd.DataFrame({"document_id": [f"x{i}_{j}" for i in range(20) for j in range(3)]})
    titled = titled.assign(metadata="{}", title="Title " + titled.document_id)
    assert families(titled) == titled.document_id.tolist()


def test_a_value_that_much_of_the_corpus_shares_is_no_parent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    metadata = ['{"document": "category"}'] * 30 + ['{"document": "x"}'] * 2 + ["{}"] * 100
    assert parents(metadata)[29:33] == ["d29", "x", "x", "d32"]
    assert '30 of 132 documents share the value "category"' in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        assert set(parents(['{"document": "x"}'] * 20)) == {"x"}
        assert parents(metadata, "document")[:30] == ["category"] * 30
    assert not caplog.messages


def test_a_document_with_some_of_the_passages_of_another_is_no_copy_of_it() -> None:
    corpus = pd.DataFrame({"document_id": ["a1", "a2", "b", "c1", "c2"], "parent": [*"aabcc"]})
    same = {"document_id": ["b", "c1", "c2"], "other_id": ["a1", "a1", "a2"], "kind": "copy"}
    assert copies(pd.DataFrame(same), corpus) == {"c": "a"}


def test_copies_come_first_and_are_compared_with_nothing_else() -> None:
    names = [f"w{letter}" for letter in "abcdefghij"]
    text, another = (" ".join(random.Random(seed).choices(names, k=80)) for seed in (0, 9))
    # Words of ten documents are no names.
    texts = [another, text, text, f"{text} wa", *[" ".join(names)] * 9]
    duplicates = pd.DataFrame({"document_id": ["d2"], "duplicate_of": ["d1"]})
    corpus = corpus_of(*["{}"] * 13)
    parts = corpus.document_id.replace({"d0": "p", "d2": "p"})
    table = find_related(corpus, texts, duplicates, parts)
    expected = [["d2", "d1", "copy"], ["d0", "d2", "sibling"], ["d1", "d3", "near"]]
    assert table.iloc[:, :3].values.tolist() == expected
    assert table.similarity[0] == 1 and np.isnan(table.similarity[1])
    assert 0.9 < table.similarity[2] < 1
    assert copies(table) == {"d2": "d1"}
    nothing = find_related(corpus[:1], ["a"], duplicates.iloc[:0], parts[:1])
    assert nothing.dtypes.equals(table.dtypes)


FILLER = [f"w{chr(97 + i)}" for i in range(26)]


def near_duplicates(texts: list[str], *given: float, **named: float):
    return near.near_duplicates(normalised_forms(texts), *given, **named)


def essay(seed: int, length: int = 80) -> list[str]:
    return random.Random(seed).choices(FILLER, k=length)


def collection(seed: int, count: int = 60) -> list[str]:
    """Texts of which some are copies with a few words changed, moved or added; every word is in many of them."""
    rng = random.Random(seed)
    texts = [essay(seed * 1000 + i, rng.choice([0, 1, 2, 5, 30, 80])) for i in range(count // 2)]
    for _ in range(count - len(texts)):
        copy = list(rng.choice(texts))
        for _ in range(rng.randrange(3)):
            copy.insert(rng.randrange(len(copy) + 1), rng.choice([*FILLER, "x7", "x", "7", "rare"]))
        texts.append(copy)
    return [" ".join(words) for words in texts]


def by_all_pairs(
    texts: list[str], similarity: float, name_share: float
) -> dict[tuple[int, int], float]:
    words = [text.split() for text in texts]
    runs = [{tuple(w[i : i + 3]) for i in range(max(1, len(w) - 2))} if w else set() for w in words]
    frequency = Counter(word for each in words for word in set(each))

    def telling(word: str) -> bool:
        few = frequency[word] < max(10, name_share * len(texts))
        return few or len(word) == 1 or any(c.isdigit() for c in word)

    found = {}
    for j in range(len(texts)):
        for i in range(j):
            if not runs[i] or not runs[j]:
                continue
            jaccard = len(runs[i] & runs[j]) / len(runs[i] | runs[j])
            a, b = Counter(words[i]), Counter(words[j])
            if jaccard >= similarity and not any(telling(word) for word in (a - b) + (b - a)):
                found[i, j] = jaccard
    return found


@pytest.mark.parametrize("name_share", [0.01, 0.5])
@pytest.mark.parametrize("similarity", [0.5, 0.8, 0.9, 1.0])
def test_near_duplicates_are_those_of_a_comparison_of_all_pairs(
    similarity: float, name_share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(near, "_NAME_SHARE", name_share)
    for seed in range(3):
        texts = collection(seed)
        expected = by_all_pairs(texts, similarity, name_share)
        found = {(i, j): share for i, j, share in near_duplicates(texts, similarity, least_words=1)}
        assert found == pytest.approx(expected)
    assert expected, "nothing was compared"


def test_where_there_are_no_blanks_characters_are_words() -> None:
    characters = [chr(0x4E00 + i) for i in range(30)]
    base = "".join(random.Random(0).choices(characters, k=100))
    others = ["".join(random.Random(i).choices(characters, k=100)) for i in range(1, 15)]
    texts = [base, *others, f"{base[:50]}{characters[0]}{base[50:]}", f"{base[:50]}龜{base[50:]}"]
    ((i, j, share),) = near_duplicates(texts)
    assert (i, j) == (0, 15) and share > 0.9


def test_short_texts_are_not_compared() -> None:
    texts = [" ".join(essay(0, length)) for length in (49, 49, 50, 50)]
    assert near_duplicates(texts) == [(2, 3, 1.0)]


def test_forms_filled_in_alike_are_no_pairs() -> None:
    texts = [f"{' '.join(FILLER)} number {i}" for i in range(3000)]
    assert [pair[:2] for pair in near_duplicates([*texts, texts[7]], least_words=28)] == [(7, 3000)]


NAMES = [f"q{i}" for i in range(4000)]


def test_shares_are_met():
    split = cut(NAMES, 42, dev_share=0.15, test_share=0.2)
    # Four standard deviations of a share of 4,000 draws are below 0.03.
    assert abs(np.mean(split == "dev") - 0.15) < 0.03
    assert abs(np.mean(split == "test") - 0.2) < 0.03


@given(st.permutations(NAMES[:50]), st.integers(0, 2**31))
def test_texts_are_chosen_by_what_they_are_and_not_by_their_order(order, seed):
    chosen = (set(np.array(names)[choose(names, 7, seed)]) for names in (NAMES[:50], order))
    assert next(chosen) == next(chosen)


@given(st.lists(st.sampled_from(NAMES[:20]), max_size=40), st.integers(0, 2**31))
def test_equal_texts_share_a_split_and_move_no_other(texts, seed):
    split = dict(zip(NAMES[:20], cut(NAMES[:20], seed, dev_share=0.3, test_share=0.3), strict=True))
    assert cut(texts, seed, dev_share=0.3, test_share=0.3).tolist() == [
        split[text] for text in texts
    ]


COUNT = 400
CORPUS = pd.DataFrame({"document_id": [f"d{i}" for i in range(COUNT)]}).assign(
    title="", text=[f"text {i}" for i in range(COUNT)], metadata="{}"
)
NOTHING = pd.DataFrame({"document_id": [], "other_id": [], "kind": []}, dtype=str)


def asked(**splits: list[list[int]]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Queries of each split, and the documents that answer each of them."""
    rows = [
        (f"{split}{i}", f"what is {split}{i}", split, own)
        for split, of_split in splits.items()
        for i, own in enumerate(of_split)
    ]
    queries = pd.DataFrame(rows, columns=["query_id", "text", "split", "document_id"])
    qrels = queries.explode("document_id")[["query_id", "document_id"]].astype(str)
    qrels = qrels.assign(document_id="d" + qrels.document_id, relevance=1)
    return queries.drop(columns="document_id"), qrels.reset_index(drop=True)


def wholly_new(queries: pd.DataFrame, qrels: pd.DataFrame, new: set[str]) -> pd.Series:
    return qrels.document_id.isin(new).groupby(qrels.query_id).all().reindex(queries.query_id)


@given(
    st.lists(st.lists(st.integers(0, COUNT - 1), min_size=1, max_size=3), min_size=1, max_size=90),
    st.sets(st.integers(0, COUNT - 1), min_size=1, max_size=60),
    st.integers(0, 60),
)
def test_no_training_label_names_them_or_what_is_related_to_them(
    test: list[list[int]], train: set[int], wanted: int
) -> None:
    queries, qrels = asked(
        train=[[place] for place in train], test=test, dev=[[place] for place in range(0, COUNT, 9)]
    )
    # Chains of three documents of one text.
    chains = [(f"d{i}", f"d{i + j}", "near") for i in range(0, 30, 3) for j in (1, 2)]
    related = pd.DataFrame(chains, columns=["document_id", "other_id", "kind"])
    found = new_documents(CORPUS, queries, qrels, related, new_queries=wanted, seed=1)
    labelled = set(qrels.document_id[qrels.query_id.str.startswith("train")])
    chosen = set(found.document_id)
    assert not chosen & labelled and found.document_id.is_unique
    assert set(found.split) <= {"dev", "test"}
    for first, other in zip(related.document_id, related.other_id, strict=True):
        assert (first in chosen) == (other in chosen)
    counts = found.split.value_counts()
    labelled_count = qrels.document_id.nunique()
    most = {"dev": labelled_count, "test": COUNT if len(test) < 20 else labelled_count}
    assert all(counts[split] <= max(most[split] / 20, 1) for split in counts.index)
    assert wanted == 0 or len(test) < 20 or len(test) >= 60 or "test" not in counts
    if len(test) < 20 and "test" in counts:
        # What is measured with labels is measured on whole texts.
        new_for_test = set(found.document_id[found.split == "test"])
        of_test = qrels.document_id[qrels.query_id.str.startswith("test")]
        assert not new_for_test & set(of_test)
    mixed = (table.sample(frac=1, random_state=3) for table in (CORPUS, queries, qrels))
    again = new_documents(*mixed, related, new_queries=wanted, seed=1)
    assert dict(again.to_numpy().tolist()) == dict(found.to_numpy().tolist())


@pytest.mark.parametrize(
    ("queries", "wanted", "new"),
    [(300, 100, 20), (60, 100, 8), (59, 100, 0), (20, 100, 0), (300, 5, 5), (300, 0, 0)],
)
def test_a_twentieth_of_the_labelled_documents_is_new_and_none_for_few_test_queries(
    queries: int, wanted: int, new: int
) -> None:
    tables = asked(
        train=[[i] for i in range(300, 400)], test=[[i] for i in range(queries)], dev=[[399]] * 20
    )
    found = new_documents(CORPUS, *tables, NOTHING, new_queries=wanted, seed=1)
    assert int(wholly_new(*tables, set(found.document_id)).sum()) == new == len(found)
    assert (f"{queries} test queries" in why_none_is_new(*tables)) == (queries < 60)


def test_where_nobody_labelled_a_split_any_documents_are_new_for_it() -> None:
    queries, qrels = asked(train=[[0], [1]])
    found = new_documents(CORPUS, queries, qrels, NOTHING, new_queries=100, seed=1)
    assert found.split.value_counts().to_dict() == {"dev": COUNT // 20, "test": COUNT // 20}
    for count, new in ((240, 12), (114, 10), (60, 10), (48, 9), (20, 4), (19, 0), (0, 0)):
        found = new_documents(
            CORPUS[:count], queries[:0], qrels[:0], NOTHING, new_queries=100, seed=1
        )
        assert found.split.value_counts().to_dict() == ({"dev": new, "test": new} if new else {})
    assert found.columns.tolist() == ["document_id", "split"]
    found = new_documents(CORPUS, *asked(dev=[[0]] * 19), NOTHING, new_queries=100, seed=1)
    assert (found.split == "dev").sum() == COUNT // 20, "nineteen dev queries are too few"


@pytest.mark.parametrize(("files", "new"), [(40, 8), (12, 2), (4, 0)])
def test_documents_are_counted_and_not_their_passages(files: int, new: int) -> None:
    queries, qrels = asked()
    parent = [f"file{i % files}" for i in range(COUNT)]
    found = new_documents(
        CORPUS.assign(parent=parent), queries, qrels, NOTHING, new_queries=100, seed=1
    )
    file_of = dict(zip(CORPUS.document_id, parent, strict=True))
    counts = found.document_id.map(file_of).groupby(found.split).nunique()
    assert counts.to_dict() == ({"dev": new, "test": new} if new else {})
    corpus = CORPUS.assign(parent=["long"] * (COUNT // 2) + parent[: COUNT // 2])
    for seed in range(5):
        # Half of all the text is never held out.
        found = new_documents(corpus, queries, qrels, NOTHING, new_queries=100, seed=seed)
        assert "d0" not in set(found.document_id)
